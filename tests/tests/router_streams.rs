//! Routers among other work: behind projections, and on a caller's own context and stream.

use hopper_cuda_driver::emulated::set_seed;
use hopper_proj::cust::memory::{DeviceBuffer, DeviceCopy};
use hopper_proj::cust::stream::{Stream, StreamFlags};
use hopper_proj::formats::split::Split;
use hopper_proj::formats::{bf16 as bf16_format, window12};
use hopper_proj::instances::Format;
use hopper_proj::plan::{Op, Workload, route_workspace};
use hopper_proj::raw::{DeviceWeights, Kernels, Overlap, Queue, RouteCall, RouterMemory, RowMajor, Workspace};
use hopper_proj::reference::{self, LOGITS_GOAL, gate};
use hopper_proj::{Choices, RouterConfig, Score, Tokens};
use hopper_proj::{Error, bf16};
use hopper_proj_tests::driver::{self, OwnContext};
use hopper_proj_tests::{Device, Values, bits, here, prepare_row_major, shape, there};

/// The router reads what a projection has just written, and its own launches follow each other, while programmatic
/// launches overlap.
#[test]
fn a_router_waits_for_what_it_reads() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (engine, stream) = (&device.engine, &device.stream);
    let (k, hidden, experts) = (96, 136, 20);
    let config = RouterConfig::new(Score::Sigmoid, 3).renormalize();
    let (layer, weights) = (values.bf16(hidden * k), values.fp32(experts * hidden));
    let projection = prepare_row_major(engine, &layer, shape(hidden, k)).unwrap();
    let router = device.fp32_router(&weights, experts, &config);
    for m in [4, 40] {
        for seed in 0..5 {
            set_seed(Some(seed));
            let x = engine.upload(&values.bf16(m * k)).unwrap();
            let mut y = engine.upload(&vec![bf16::NAN; m * hidden]).unwrap();
            let (mut ids, mut chosen) = (there(&vec![-9i32; m * 3]), there(&vec![f32::NAN; m * 3]));
            let mut logits = there(&vec![f32::NAN; m * experts]);
            engine.project(&projection, &x, m, &mut y, stream).unwrap();
            for _ in 0..2 {
                let choices = Choices::new(&mut ids, &mut chosen).logits(&mut logits);
                router.route(Tokens::new(&y, m), choices, stream).unwrap();
            }
            engine.synchronize(stream).unwrap();
            let y = engine.download(&y, stream).unwrap();
            let exact = reference::logits(&y, &weights, shape(experts, hidden), m).unwrap();
            let logits = here(&logits);
            let error = reference::relative_error_fp32(&logits, &exact);
            assert!(error < LOGITS_GOAL, "m = {m}: {error:e}");
            gate::check(&here(&ids), &here(&chosen), &logits, router.gate(), None).unwrap();
        }
    }
}

#[test]
fn the_raw_layer_serves_a_context_and_a_stream_of_the_callers() {
    // Memory of the caller's context, by the caller's wrapper.
    fn there<T: DeviceCopy>(values: &[T]) -> DeviceBuffer<T> {
        DeviceBuffer::from_slice(values).unwrap()
    }
    fn here<T: DeviceCopy + Default>(values: &DeviceBuffer<T>) -> Vec<T> {
        values.as_host_vec().unwrap()
    }
    let mut values = Values::fresh();
    Device::of_the_run();
    let context = OwnContext::new();
    let current = driver::current();
    let kernels = Kernels::new().unwrap();
    let (shape, max_tokens, m) = (shape(20, 77), 40, 50);
    let (w, x) = (values.fp32(20 * 77), values.bf16(m * 77));
    let gate = RouterConfig::new(Score::Sigmoid, 3)
        .bias(values.fp32(20))
        .gate(20)
        .unwrap();
    let bias = there(&values.fp32(20));
    let split = Split::new(&w, shape, 2).unwrap();
    let size = route_workspace(Format::Bf16x2, shape, max_tokens, true).unwrap();
    let (units, rows) = (
        there(&bits(&split.units().unwrap())),
        there(&bits(&split.rows().unwrap())),
    );
    let (sums, shared_sums) = (there(&vec![f32::NAN; size.sums]), there(&vec![0f32; size.shared_sums]));
    let (counters, x_there) = (there(&vec![0u32; size.counters]), there(&bits(&x)));
    let (ids, chosen, logits) = (
        there(&[-9i32; 150]),
        there(&[f32::NAN; 150]),
        there(&vec![f32::NAN; m * 20]),
    );
    let row_major = RowMajor::new(rows.as_device_ptr().as_raw(), shape, 2).unwrap();
    let units_at = units.as_device_ptr().as_raw();
    let terms = |units, terms| DeviceWeights::Bf16(bf16_format::OnDevice { units, terms });
    let memory = RouterMemory {
        shape,
        weights: terms(units_at, 2),
        rows: Some(&row_major),
        factors: 0,
        bias: bias.as_device_ptr().as_raw(),
        workspace: Workspace {
            sums: sums.as_device_ptr().as_raw(),
            shared_sums: shared_sums.as_device_ptr().as_raw(),
            counters: counters.as_device_ptr().as_raw(),
            max_tokens,
        },
    };
    let call = RouteCall {
        x: x_there.as_device_ptr().as_raw(),
        x_stride: 77,
        m,
        token_mask: 0,
        ids: ids.as_device_ptr().as_raw(),
        weights: chosen.as_device_ptr().as_raw(),
        logits: logits.as_device_ptr().as_raw(),
    };
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    // SAFETY: the kernels' context is current, the stream is of it, the buffers hold what their shapes need; or refused
    // before a launch.
    let route = |memory: &RouterMemory<'_>, gate, call: &RouteCall, overlap| unsafe {
        let queue = Queue {
            stream: stream.as_inner(),
            overlap,
        };
        kernels.route(memory, gate, call, queue)
    };
    let err = route(&memory, Some(&gate), &call, Overlap::None).unwrap_err();
    assert!(matches!(err, Error::NotLoaded { .. }), "{err}");
    let workload = Workload {
        op: Op::Route,
        format: Format::Bf16x2,
        shape,
        row_major: true,
        m: 1..=max_tokens,
    };
    kernels.prepare(&workload).unwrap();
    for overlap in [Overlap::None, Overlap::Programmatic] {
        route(&memory, Some(&gate), &call, overlap).unwrap();
    }
    stream.synchronize().unwrap();
    let exact = reference::logits(&x, &w, shape, m).unwrap();
    let error = reference::relative_error_fp32(&here(&logits), &exact);
    assert!(error < LOGITS_GOAL, "{error:e}");
    // The bias on the device is the one that counts.
    let own = RouterConfig::new(Score::Sigmoid, 3).bias(here(&bias)).gate(20).unwrap();
    gate::check(&here(&ids), &here(&chosen), &here(&logits), &own, None).unwrap();
    assert!(here(&counters).iter().all(|&count| count == 0) && here(&shared_sums).iter().all(|&sum| sum == 0.0));
    assert_eq!(driver::current(), current);

    let other = RouterConfig::new(Score::Sigmoid, 3).gate(21).unwrap();
    let none = Workspace {
        max_tokens: 0,
        ..memory.workspace
    };
    for (memory, gate, call, words) in [
        (memory, Some(&gate), RouteCall { x: call.x + 1, ..call }, "x is"),
        (
            memory,
            Some(&gate),
            RouteCall {
                ids: call.ids + 2,
                ..call
            },
            "ids is",
        ),
        (
            memory,
            Some(&gate),
            RouteCall { ids: 0, ..call },
            "the address of ids or weights is 0",
        ),
        (
            memory,
            None,
            RouteCall { logits: 0, ..call },
            "the logits' address is 0",
        ),
        (
            memory,
            Some(&gate),
            RouteCall { x_stride: 76, ..call },
            "a stride of 76",
        ),
        (
            memory,
            Some(&gate),
            RouteCall {
                logits: call.x & !3,
                ..call
            },
            "overlaps x",
        ),
        (memory, Some(&other), call, "the weights have 20 rows"),
        (
            RouterMemory { bias: 0, ..memory },
            Some(&gate),
            call,
            "the bias's address is 0",
        ),
        (
            RouterMemory {
                weights: terms(units_at + 8, 2),
                ..memory
            },
            Some(&gate),
            call,
            "the packed weights is",
        ),
        (
            RouterMemory {
                weights: DeviceWeights::Window12(window12::OnDevice {
                    units: units_at,
                    starts: 0,
                    exceptions: 0,
                    palette: [0; 2],
                }),
                rows: None,
                ..memory
            },
            Some(&gate),
            RouteCall { m: 1, ..call },
            "no router reads",
        ),
        (
            RouterMemory {
                workspace: none,
                ..memory
            },
            Some(&gate),
            call,
            "max_tokens of the workspace",
        ),
        (
            RouterMemory {
                weights: terms(units_at, 3),
                ..memory
            },
            Some(&gate),
            call,
            "20 × 77 of 2 terms; the router's is 20 × 77 of 3 terms",
        ),
    ] {
        let err = route(&memory, gate, &call, Overlap::None).expect_err(words).to_string();
        assert!(err.contains(words), "{err}\ndoes not say: {words}");
    }
    assert!(matches!(
        RowMajor::new(8, shape, 2).unwrap_err(),
        Error::Alignment { .. }
    ));
    let endless = hopper_proj::Shape::new(u32::MAX as usize, u32::MAX as usize).unwrap();
    assert!(RowMajor::new(16, endless, 2).is_err());
    stream.synchronize().unwrap();
    // What lives in the context goes before it does.
    drop((kernels, units, rows, sums, shared_sums, counters, x_there));
    drop((bias, ids, chosen, logits, stream));
    drop(context);
}
