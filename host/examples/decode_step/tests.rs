//! The example as it stands, and that its comparison sees what goes wrong. One test at a time: some ask
//! for the one graph that is captured.

use super::*;
use hopper_cuda_driver::ffi::{self, CUgraphEdgeData};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The right to use the device.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn args(text: &str) -> Args {
    Args::parse_from(["decode_step"].into_iter().chain(text.split_whitespace()))
}

/// On a GPU, that is all of it: every layer in full, ten thousand replays.
#[test]
fn the_example_finds_nothing_wrong() {
    let _alone = alone();
    let less = if engine().device().driver == DriverInUse::Emulated {
        "--replays 50 --every 20"
    } else {
        ""
    };
    run(&args(less)).unwrap();
}

#[test]
fn any_tokens_and_formats_will_do() {
    let _alone = alone();
    for given in [
        "--tokens 1 --window12",
        "--tokens 9 --window12 qkv_gate,o,pooler,unpooler",
        "--tokens 33",
    ] {
        run(&args(&format!("{given} --replays 2 --every 1 --reduce 48"))).unwrap();
    }
}

struct Prepared {
    step: Step,
    values: Values,
    stream: Stream,
    engine: Engine,
}

/// Kernels are loaded once, which takes longer than a step.
fn engine() -> Engine {
    static ONE: OnceLock<Engine> = OnceLock::new();
    let engine =
        ONE.get_or_init(|| Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto).unwrap()).unwrap());
    engine.make_current().unwrap();
    engine.clone()
}

fn prepared() -> Prepared {
    let engine = engine();
    let stream = engine.stream().unwrap();
    let mut values = Values(StdRng::seed_from_u64(5));
    let step = Step::prepare(&engine, &args("--tokens 3"), 64, &mut values).unwrap();
    Prepared {
        step,
        values,
        stream,
        engine,
    }
}

/// Changes the first weight of a layer where the device has it.
fn change(layer: &Layer) {
    let value = bf16::from_f32(2.0);
    // SAFETY: the first two bytes of the layer's units, which live; nothing runs.
    let code = unsafe { ffi::cuMemcpyHtoD_v2(layer.projection.pointer(), (&raw const value).cast(), 2) };
    assert_eq!(code, 0);
}

#[test]
fn a_comparison_sees_what_goes_wrong() {
    /// What goes wrong after the capture, ahead of a replay or behind it, and what the comparison says.
    type Mistake = (
        &'static str,
        fn(&mut Step, &mut Vec<bf16>),
        fn(&mut Step, &Engine, &Stream),
        &'static str,
    );
    let nothing = |_: &mut Step, _: &mut Vec<bf16>| {};
    let mistakes: [Mistake; 11] = [
        ("nothing", nothing, |_, _, _| {}, ""),
        (
            "x is not refreshed",
            |_, x| x[7] = bf16::from_f32(-2.0),
            |_, _, _| {},
            "qkv_gate: the relative error",
        ),
        (
            "a weight of o",
            |step, _| change(&step.o),
            |_, _, _| {},
            "o: the relative error",
        ),
        (
            "a weight of the unpooler",
            |step, _| change(&step.unpooler),
            |_, _, _| {},
            "unpooler: the relative error",
        ),
        (
            "a 12-bit weight",
            |step, _| step.pooler.weights[70] += bf16::ONE,
            |_, _, _| {},
            "pooler: the relative error",
        ),
        (
            "a weight of the router",
            |step, _| step.experts.weights[9] += 1e-2,
            |_, _, _| {},
            "the router's logits: the relative error",
        ),
        (
            "a layer that is not written",
            nothing,
            |step, engine, stream| step.pooler.poison(engine, stream).unwrap(),
            "pooler: the relative error against FP64 is inf",
        ),
        (
            "a router that is not written",
            nothing,
            |step, engine, stream| step.experts.poison(engine, stream).unwrap(),
            "the router's logits: the relative error against FP64 is inf",
        ),
        (
            "ids that are not written",
            nothing,
            |step, engine, stream| engine.write(&mut step.experts.ids, &[i32::MIN; 24], stream).unwrap(),
            "an id is out of range",
        ),
        (
            "the wrong ids",
            nothing,
            |step, engine, stream| {
                let mut ids = engine.download(&step.experts.ids, stream).unwrap();
                ids.swap(0, 1);
                engine.write(&mut step.experts.ids, &ids, stream).unwrap();
            },
            "FP64 chooses",
        ),
        (
            "the wrong weights",
            nothing,
            |step, engine, stream| engine.write(&mut step.experts.shares, &[0.5; 24], stream).unwrap(),
            "a weight is 5e-1",
        ),
    ];
    let _alone = alone();
    for (what, ahead, behind, said) in mistakes {
        let Prepared {
            mut step,
            mut values,
            stream,
            engine,
        } = prepared();
        let mut graph = engine.capture(&stream, || step.queue(&engine, &stream)).unwrap();
        let mut x = values.bf16(step.x.len(), 1.0);
        step.poison(&engine, &stream).unwrap();
        let given = x.clone();
        ahead(&mut step, &mut x);
        step.replay(&engine, &mut graph, &given, &stream).unwrap();
        behind(&mut step, &engine, &stream);
        let seen = step
            .compare(&engine, &x, &stream)
            .err()
            .map(|err| err.to_string())
            .unwrap_or_default();
        assert!(
            seen.contains(said) && seen.is_empty() == said.is_empty(),
            "{what}: {seen}"
        );
    }
}

/// A step that is not launched leaves the poison.
#[test]
fn a_replay_that_does_not_happen_is_seen() {
    let _alone = alone();
    let Prepared {
        mut step,
        mut values,
        stream,
        engine,
    } = prepared();
    let x = values.bf16(step.x.len(), 1.0);
    engine.capture(&stream, || step.queue(&engine, &stream)).unwrap();
    step.poison(&engine, &stream).unwrap();
    let err = step.compare(&engine, &x, &stream).err().unwrap().to_string();
    assert!(
        err.contains("qkv_gate: the relative error against FP64 is inf"),
        "{err}"
    );
}

#[test]
fn every_edge_of_the_graph_is_programmatic() {
    let _alone = alone();
    let Prepared {
        mut step,
        stream,
        engine,
        ..
    } = prepared();
    let mut edges = Vec::new();
    let record = || {
        step.queue(&engine, &stream)?;
        let (mut status, mut graph, mut count) = (0, null_mut(), 16);
        // Where edges are programmatic, the driver wants to tell.
        let (mut last, mut last_edges, mut last_count) = (null(), null(), 0);
        let mut data = [CUgraphEdgeData::default(); 16];
        let (mut from, mut to) = ([null_mut(); 16], [null_mut(); 16]);
        // SAFETY: a live stream that is being captured, whose graph lives until then; arrays of as many elements as
        // they are said to have.
        let codes = unsafe {
            [
                ffi::cuStreamGetCaptureInfo_v3(
                    stream.handle().cast(),
                    &mut status,
                    null_mut(),
                    &mut graph,
                    &mut last,
                    &mut last_edges,
                    &mut last_count,
                ),
                ffi::cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count),
            ]
        };
        assert_eq!(codes, [0, 0]);
        edges = data[..count].iter().map(|edge| edge.r#type).collect();
        Ok(())
    };
    engine.capture(&stream, record).unwrap();
    assert_eq!(edges, [1; 4], "five launches in a row");
}
