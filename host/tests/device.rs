//! The engine's promises, on whichever driver the run has: what it checks, and what it leaves alone.

use hopper_proj::cust::context::CurrentContext;
use hopper_proj::formats::Weights;
use hopper_proj::raw::{self, Overlap};
use hopper_proj::{
    DriverChoice, Dtype, Engine, EngineOptions, Error, PrepareOptions, Projection, RowMajorCopy, Shape, bf16, reference,
};
use rayon::prelude::*;

fn engine() -> Engine {
    Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto).unwrap()).unwrap()
}

fn values(len: usize) -> Vec<bf16> {
    (0..len)
        .map(|i| bf16::from_f32(((i * 7919) % 17) as f32 / 8.0 - 1.0))
        .collect()
}

/// BF16 weights on the device, for any number of tokens.
fn prepare(engine: &Engine, weights: &[bf16], shape: Shape) -> Result<Projection, Error> {
    engine.prepare(Weights::bf16(weights, shape)?, &PrepareOptions::tokens(1..=usize::MAX))
}

/// The same from bytes.
fn prepare_bytes(engine: &Engine, weights: &[u8], dtype: Dtype, shape: Shape) -> Result<Projection, Error> {
    engine.prepare(Weights::bytes(weights, dtype, shape)?, &PrepareOptions::default())
}

fn check(engine: &Engine, n: usize, k: usize, m: usize) {
    let shape = Shape::new(n, k).unwrap();
    let (weights, x) = (values(n * k), values(m * k));
    let projection = prepare(engine, &weights, shape).unwrap();
    let stream = engine.stream().unwrap();
    let x_device = engine.upload(&x).unwrap();
    let mut y = engine.upload(&vec![bf16::NAN; m * n]).unwrap();
    engine.project(&projection, &x_device, m, &mut y, &stream).unwrap();
    engine.synchronize(&stream).unwrap();
    let expected = reference::project(&x, &weights, shape, m).unwrap();
    let error = reference::relative_error(&engine.download(&y, &stream).unwrap(), &expected);
    assert!(error <= reference::TOLERANCE, "{n} × {k} at m = {m}: {error}");
}

#[test]
fn projections_agree_with_the_reference() {
    let engine = engine();
    for (n, k, m) in [(1, 1, 1), (40, 200, 3), (64, 320, 17), (33, 65, 40)] {
        check(&engine, n, k, m);
    }
}

#[test]
fn slices_of_buffers_and_unaligned_x_work() {
    let engine = engine();
    let (n, k, m) = (24, 128, 2);
    let shape = Shape::new(n, k).unwrap();
    let (weights, x) = (values(n * k), values(m * k + 1));
    let projection = prepare(&engine, &weights, shape).unwrap();
    let stream = engine.stream().unwrap();
    let all = engine.upload(&x).unwrap();
    let x_device = all.slice(1..).unwrap();
    assert!(!engine.request(&projection, x_device, m).x_aligned);
    let mut y = engine.upload(&vec![bf16::NAN; m * n]).unwrap();
    engine.project(&projection, x_device, m, &mut y, &stream).unwrap();
    let expected = reference::project(&x[1..], &weights, shape, m).unwrap();
    assert!(reference::relative_error(&engine.download(&y, &stream).unwrap(), &expected) <= reference::TOLERANCE);
}

/// Packing waits for threads of the pool, and these may wait for a family to be loaded: neither must hold up the other.
#[test]
fn layers_are_prepared_on_all_threads_of_a_pool() {
    let shape = Shape::new(32, 64).unwrap();
    let weights = values(32 * 64);
    for _ in 0..8 {
        let engine = engine();
        let prepare = || {
            engine.make_current().unwrap();
            let options = PrepareOptions::tokens(64..=64).row_major(RowMajorCopy::Never);
            engine
                .prepare(Weights::bf16(&weights, shape).unwrap(), &options)
                .unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(prepare);
            (0..rayon::current_num_threads())
                .into_par_iter()
                .for_each(|_| prepare());
        });
    }
}

/// A thread of a pool that waits for a launch must not take up another launch meanwhile: it would wait for itself.
#[test]
fn launches_come_from_all_threads_of_a_pool() {
    let engine = engine();
    let shape = Shape::new(2048, 64).unwrap();
    let projection = prepare(&engine, &values(2048 * 64), shape).unwrap();
    let x = engine.upload(&values(64)).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    for _ in 0..8 {
        pool.scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|_| {
                    engine.make_current().unwrap();
                    let stream = engine.stream().unwrap();
                    let mut y = engine.upload(&vec![bf16::NAN; 2048]).unwrap();
                    engine.project(&projection, &x, 1, &mut y, &stream).unwrap();
                    engine.synchronize(&stream).unwrap();
                });
            }
        });
    }
}

#[test]
fn arguments_are_checked() {
    let engine = engine();
    let stream = engine.stream().unwrap();
    let shape = Shape::new(3, 8).unwrap();
    let projection = prepare(&engine, &values(24), shape).unwrap();
    let x = engine.upload(&values(16)).unwrap();
    let mut y = engine.upload(&values(6)).unwrap();
    let short = engine.project(&projection, &x, 1, &mut y, &stream).unwrap_err();
    assert!(
        matches!(
            short,
            Error::Length {
                what: "x",
                given: 16,
                needed: 8,
                ..
            }
        ),
        "{short}"
    );
    let mut small = engine.upload(&values(5)).unwrap();
    let short = engine.project(&projection, &x, 2, &mut small, &stream).unwrap_err();
    assert!(
        matches!(
            short,
            Error::Length {
                what: "y",
                given: 5,
                needed: 6,
                ..
            }
        ),
        "{short}"
    );
    assert!(matches!(
        prepare(&engine, &values(23), shape),
        Err(Error::Length { .. })
    ));

    // More tokens than any kernel takes at a time: another grid.
    let many = engine.plan(&projection, &x, 300).unwrap();
    for other in [None, many.as_ref()] {
        let err = engine
            .project_as(other, &projection, &x, 2, &mut y, &stream, Overlap::None)
            .unwrap_err();
        assert!(err.to_string().contains("made for another request"), "{err}");
    }
    engine.synchronize(&stream).unwrap();
}

#[test]
fn no_tokens_do_nothing() {
    let engine = engine();
    let stream = engine.stream().unwrap();
    let projection = prepare(&engine, &values(24), Shape::new(3, 8).unwrap()).unwrap();
    let mut some = engine.upload(&values(1)).unwrap();
    let (none, y) = (engine.upload(&[]).unwrap(), some.slice_mut(..0).unwrap());
    engine.project(&projection, &none, 0, y, &stream).unwrap();
    assert_eq!(engine.download(&some, &stream).unwrap(), values(1));
}

#[test]
fn bytes_of_any_alignment_prepare_and_other_types_are_refused() {
    let engine = engine();
    let shape = Shape::new(2, 3).unwrap();
    let mut bytes = vec![0];
    bytes.extend(values(6).iter().flat_map(|v| v.to_le_bytes()));
    assert_eq!(
        prepare_bytes(&engine, &bytes[1..], Dtype::Bf16, shape).unwrap().shape(),
        shape
    );
    assert_eq!(
        prepare_bytes(&engine, &bytes[..12], Dtype::Bf16, shape)
            .unwrap()
            .bytes(),
        2048
    );
    assert!(matches!(
        prepare_bytes(&engine, &bytes, Dtype::Bf16, shape),
        Err(Error::Length { .. })
    ));
    assert!(matches!(
        prepare_bytes(&engine, &[0; 24], Dtype::F32, shape),
        Err(Error::Fp32Weights)
    ));
    assert!(matches!(
        prepare_bytes(&engine, &bytes[1..], Dtype::F16, shape),
        Err(Error::NeedsCast { given: Dtype::F16 })
    ));
}

#[test]
fn threads_must_make_the_context_current_and_calls_leave_it_alone() {
    let engine = engine();
    let projection = prepare(&engine, &values(24), Shape::new(3, 8).unwrap()).unwrap();
    std::thread::spawn(move || {
        assert!(matches!(engine.stream(), Err(Error::WrongContext)));
        assert!(matches!(engine.upload(&values(1)), Err(Error::WrongContext)));
        // A projection may be dropped where no context is current, and none is afterwards.
        drop(projection);
        assert!(matches!(engine.stream(), Err(Error::WrongContext)));
        engine.make_current().unwrap();
        check(&engine, 16, 64, 1);
        CurrentContext::get_device().unwrap();
        drop(engine);
    })
    .join()
    .unwrap();
}

#[test]
fn a_projection_belongs_to_its_engine() {
    let (one, other) = (engine(), engine());
    let projection = prepare(&one, &values(24), Shape::new(3, 8).unwrap()).unwrap();
    let stream = other.stream().unwrap();
    let x = other.upload(&values(8)).unwrap();
    let mut y = other.upload(&values(3)).unwrap();
    let err = other.project(&projection, &x, 1, &mut y, &stream).unwrap_err();
    assert!(matches!(err, Error::ForeignProjection), "{err}");
}

/// The context stays as long as anything lives that was made in it.
#[test]
fn buffers_outlive_their_engine() {
    let shape = Shape::new(3, 8).unwrap();
    let first = engine();
    let (projection, stream) = (prepare(&first, &values(24), shape).unwrap(), first.stream().unwrap());
    let (x, mut y) = (
        first.upload(&values(8)).unwrap(),
        first.upload(&[bf16::NAN; 3]).unwrap(),
    );
    drop(first);
    drop(projection);
    stream.synchronize().unwrap();
    let next = engine();
    let projection = prepare(&next, &values(24), shape).unwrap();
    next.project(&projection, &x, 1, &mut y, &stream).unwrap();
    let expected = reference::project(&values(8), &values(24), shape, 1).unwrap();
    let y_here = next.download(&y, &stream).unwrap();
    assert!(reference::relative_error(&y_here, &expected) <= reference::TOLERANCE);
    drop((next, projection));
    drop((x, y, stream));
}

#[test]
fn writes_take_as_many_values_as_there_are() {
    let engine = engine();
    let stream = engine.stream().unwrap();
    let mut buffer = engine.upload(&values(6)).unwrap();
    engine
        .write(buffer.slice_mut(2..5).unwrap(), &[bf16::ONE; 3], &stream)
        .unwrap();
    let mut expected = values(6);
    expected[2..5].fill(bf16::ONE);
    assert_eq!(engine.download(&buffer, &stream).unwrap(), expected);
    let err = engine.write(&mut buffer, &[bf16::ONE; 5], &stream).unwrap_err();
    assert!(err.to_string().contains("holds 6 elements"), "{err}");
    let err = buffer.slice(4..7).unwrap_err();
    assert!(err.to_string().contains("range 4..7 of a buffer of 6"), "{err}");
    assert!(engine.zeroed::<f32>(usize::MAX).is_err());
}

#[test]
fn events_order_streams_and_tell_time() {
    let engine = engine();
    let (one, other) = (engine.stream().unwrap(), engine.stream().unwrap());
    let (start, end) = (engine.timing_event().unwrap(), engine.timing_event().unwrap());
    one.record(&start).unwrap();
    one.barrier().unwrap();
    one.record(&end).unwrap();
    other.wait(&end).unwrap();
    other.wait_for(&one).unwrap();
    other.synchronize().unwrap();
    assert!(end.milliseconds_since(&start).unwrap() >= 0.0);
    let no_time = engine.event().unwrap();
    one.record(&no_time).unwrap();
    assert!(no_time.milliseconds_since(&start).is_err());
    assert!(one.is_same(&one.clone()) && !one.is_same(&other));
}

#[test]
fn a_missing_device_is_named() {
    let mut options = EngineOptions::from_environment_or(DriverChoice::Auto).unwrap();
    options.ordinal = Some(999);
    let err = Engine::new(options).err().unwrap();
    assert!(matches!(err, Error::NoDevice { ordinal: 999, .. }), "{err}");
}

#[test]
fn unreadable_ptx_is_explained() {
    let _engine = engine();
    let broken = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { frobnicate.u32; }\n";
    let err = raw::load_module(broken).unwrap_err().to_string();
    assert!(err.contains("frobnicate"), "{err}");
    assert!(raw::load_module("\0").is_err());
    assert!(raw::load_module("").is_err());
}

#[test]
fn readers_read_what_they_are_given() {
    let engine = engine();
    let stream = engine.stream().unwrap();
    let projection = prepare(&engine, &values(64 * 256), Shape::new(64, 256).unwrap()).unwrap();
    engine.prepare_readers().unwrap();
    for reader in hopper_proj::instances::STREAM_READ {
        let mut out = engine
            .zeroed(engine.reader_ctas(reader) as usize * reader.warps)
            .unwrap();
        engine
            .stream_read(reader, &projection, &mut out, &stream, Overlap::Programmatic)
            .unwrap();
        engine.synchronize(&stream).unwrap();
        // The exclusive or of all words does not depend on who read which.
        let read = engine
            .download(&out, &stream)
            .unwrap()
            .iter()
            .fold(0, |all, word| all ^ word);
        let packed = hopper_proj::formats::bf16::pack(&values(64 * 256), projection.shape()).unwrap();
        let expected = packed.as_chunks::<2>().0.iter().fold(0, |all, [low, high]| {
            all ^ (u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16)
        });
        assert_eq!(read, expected, "{}", reader.name);
        let short = out.slice_mut(1..).unwrap();
        assert!(matches!(
            engine.stream_read(reader, &projection, short, &stream, Overlap::None),
            Err(Error::Length { .. })
        ));
    }
}
