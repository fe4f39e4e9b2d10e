//! The library's promises around a projection: sizes, streams, contexts, slices, what it refuses.

use approx::assert_abs_diff_eq;
use hopper_proj::cust::memory::DeviceBuffer;
use hopper_proj::cust::stream::{Stream, StreamFlags};
use hopper_proj::formats::Weights;
use hopper_proj::instances::{Format, formats::bf16::GEMV_BF16};
use hopper_proj::io::checkpoint::{Cast, Checkpoint};
use hopper_proj::plan::{Op, Workload};
use hopper_proj::raw::{DeviceWeights, Kernels, Output, Overlap, Queue};
use hopper_proj::{DriverChoice, Dtype, Engine, EngineOptions, Error, Projection, Shape, bf16, formats};
use hopper_proj_tests::chain::{Chain, layers};
use hopper_proj_tests::driver::{self, OwnContext};
use hopper_proj_tests::{
    Device, POISON, Values, any_tokens, bits, check, data, poisoned, prepare, prepare_row_major, shape,
};

#[test]
fn no_tokens_are_no_work() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let engine = &device.engine;
    let shape = shape(33, 64);
    let projection = prepare(engine, &values.bf16(33 * 64), shape).unwrap();
    let (x, mut whole) = (engine.upload::<bf16>(&[]).unwrap(), poisoned(8));
    engine
        .project(&projection, &x, 0, whole.slice_mut(4..4).unwrap(), &device.stream)
        .unwrap();
    let left = engine.download(&whole, &device.stream).unwrap();
    assert!(left.iter().all(|v| v.to_bits() == POISON));
    assert_eq!(engine.plan(&projection, &x, 0).unwrap(), None);
}

#[test]
fn many_tokens_are_walked() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let shape = shape(50, 200);
    let w = values.bf16(50 * 200);
    let projection = prepare(&device.engine, &w, shape).unwrap();
    for m in [33, 64, 100] {
        // Wide loads of x and, one value further, narrow ones.
        for lead in [8, 9] {
            let x = values.bf16(m * 200);
            let y = device.project(None, &projection, &x, lead, m).unwrap();
            check(&y, &x, &w, shape, m).unwrap();
        }
    }
}

/// With weights for it, many tokens are one matrix product, by tensor copies or, where x lies at odd addresses, by
/// plain loads.
#[test]
fn many_tokens_are_one_product_where_the_weights_are_kept_for_it() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    for (n, k) in [(200, 512), (77, 203)] {
        let shape = shape(n, k);
        let w = values.bf16(n * k);
        let projection = prepare_row_major(&device.engine, &w, shape).unwrap();
        for (m, lead) in [(32, 8), (33, 8), (33, 1), (128, 8), (200, 8)] {
            let x = values.bf16(m * k);
            let fenced = device.fenced(&x, lead);
            let x_there = fenced.slice(lead..lead + m * k).unwrap();
            let kernel = device.engine.kernel(&projection, x_there, m);
            let (kernel, plain) = (kernel.unwrap().unwrap(), lead == 1 || k % 8 != 0);
            assert!(m <= 32 || kernel.starts_with("gemm_bf16_"), "{kernel}");
            assert_eq!(kernel.contains("_plain_"), m > 32 && plain, "{kernel}");
            let y = device.project(None, &projection, &x, lead, m).unwrap();
            check(&y, &x, &w, shape, m).unwrap();
        }
        let x = device.engine.upload(&values.bf16(40 * k)).unwrap();
        let mut y = poisoned(40 * n - 1);
        let err = device
            .engine
            .project(&projection, &x, 40, &mut y, &device.stream)
            .unwrap_err();
        assert!(err.to_string().starts_with("y holds"), "{err}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let device = Device::of_the_run();
    let (engine, stream) = (&device.engine, &device.stream);
    let shape = shape(3, 5);
    let projection = prepare(engine, &[bf16::ONE; 15], shape).unwrap();
    let another = Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto).unwrap()).unwrap();
    let other = prepare(&another, &[bf16::ONE; 15], shape).unwrap();
    let project =
        |projection, x: usize, m, y: usize| engine.project(projection, &poisoned(x), m, &mut poisoned(y), stream);
    let of_another_m = |m| {
        let x = poisoned(5);
        let plan = engine.plan(&projection, &x, m).unwrap();
        engine.project_as(
            plan.as_ref(),
            &projection,
            &x,
            1,
            &mut poisoned(3),
            stream,
            Overlap::None,
        )
    };
    let bytes = [0; 60];
    for (result, words) in [
        (
            project(&projection, 11, 2, 6),
            "x holds 11 elements, but [2, 5] needs exactly 10",
        ),
        (
            project(&projection, 9, 2, 6),
            "x holds 9 elements, but [2, 5] needs exactly 10",
        ),
        (
            project(&projection, 10, 2, 5),
            "y holds 5 elements, but [2, 3] needs exactly 6",
        ),
        (
            project(&projection, 10, 2, 7),
            "y holds 7 elements, but [2, 3] needs exactly 6",
        ),
        (
            project(&projection, 5, 0, 3),
            "x holds 5 elements, but [0, 5] needs exactly 0",
        ),
        (project(&projection, 5, usize::MAX, 3), "exceed what one launch of"),
        (project(&other, 10, 2, 6), "prepared by another engine"),
        (of_another_m(40), "the plan was made for another request"),
        (
            prepare(engine, &[bf16::ONE; 14], shape).map(drop),
            "the weights holds 14 elements, but [3, 5] needs exactly 15",
        ),
        (
            prepare_bytes(engine, &bytes, Dtype::F32, shape).map(drop),
            "weights are F32; a projection computes with BF16",
        ),
        (
            prepare_bytes(engine, &bytes[..30], Dtype::F16, shape).map(drop),
            "weights are F16; this build computes with BF16",
        ),
        (
            prepare_bytes(engine, &bytes, Dtype::Bf16, shape).map(drop),
            "60 elements, but [3, 10] needs exactly 30",
        ),
        (
            Shape::new(0, 5).map(drop),
            "weights are 0 × 5; each side must lie between 1 and",
        ),
        (
            Shape::new(5, 1 << 32).map(drop),
            "weights are 5 × 4294967296; each side must lie between 1 and",
        ),
    ] {
        let err = result.expect_err(words).to_string();
        assert!(err.contains(words), "{err}\ndoes not say: {words}");
    }
    engine.synchronize(stream).unwrap();
}

fn prepare_bytes(engine: &Engine, weights: &[u8], dtype: Dtype, shape: Shape) -> Result<Projection, Error> {
    engine.prepare(Weights::bytes(weights, dtype, shape)?, &any_tokens())
}

#[test]
fn bytes_of_weights_may_start_anywhere() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let shape = shape(19, 70);
    let (w, x) = (values.bf16(19 * 70), values.bf16(70));
    let bytes: Vec<u8> = [0].into_iter().chain(w.iter().flat_map(|v| v.to_le_bytes())).collect();
    let run = |projection| device.project(None, &projection, &x, 8, 1).unwrap();
    let from_values = run(prepare(&device.engine, &w, shape).unwrap());
    let from_bytes = run(prepare_bytes(&device.engine, &bytes[1..], Dtype::Bf16, shape).unwrap());
    assert_eq!(bits(&from_values), bits(&from_bytes));
}

#[test]
fn thousands_of_tokens_are_one_call() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (shape, m) = (shape(24, 72), 8192);
    let (w, x) = (values.bf16(24 * 72), values.bf16(m * 72));
    let projections = [
        prepare(&device.engine, &w, shape).unwrap(),
        prepare_row_major(&device.engine, &w, shape).unwrap(),
        device.prepare(Format::Window12, &w, shape),
    ];
    // Whole rows of 16 bytes, and rows for which there may be plain loads alone, or a walk.
    for (projection, lead) in projections
        .iter()
        .flat_map(|projection| [(projection, 8), (projection, 1)])
    {
        let y = device.project(None, projection, &x, lead, m).unwrap();
        check(&y, &x, &w, shape, m).unwrap();
    }
}

/// Each reads what the one before has written, while programmatic launches let the two overlap.
#[test]
fn a_chain_on_one_stream_waits_for_what_it_reads() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let layers = layers(&mut values, &[96, 200, 72, 130], |w, shape| {
        prepare(&device.engine, w, shape)
    });
    for m in [1, 8, 13, 32] {
        let mut chain = Chain::new(&layers, m);
        let x = chain.refresh(&device, &mut values);
        chain.queue(&device).unwrap();
        device.engine.synchronize(&device.stream).unwrap();
        chain.check(&device, x);
    }
}

#[test]
fn the_raw_layer_serves_a_context_and_a_stream_of_the_callers() {
    let mut values = Values::fresh();
    Device::of_the_run();
    let context = OwnContext::new();
    let current = driver::current();
    let kernels = Kernels::new().unwrap();
    let (shape, m) = (shape(40, 72), 9);
    let workload = Workload {
        op: Op::Project,
        format: Format::Bf16,
        shape,
        row_major: false,
        m: m..=m,
    };
    let (w, x) = (values.bf16(40 * 72), values.bf16(m * 72));
    let packed = formats::bf16::pack(&w, shape).unwrap();
    let upload = |values: &[bf16]| DeviceBuffer::from_slice(&bits(values)).unwrap();
    let (packed, x_there) = (upload(&packed), upload(&x));
    let y_there = DeviceBuffer::from_slice(&vec![POISON; m * 40]).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let address = |buffer: &DeviceBuffer<u16>| buffer.as_device_ptr().as_raw();
    // SAFETY: the kernels' context is current, the stream is of it, the buffers hold what their shapes need; or refused
    // before a launch.
    let project = |x: u64, units: u64, y: u64, overlap| unsafe {
        let weights = DeviceWeights::Bf16(formats::bf16::OnDevice { units, terms: 1 });
        let queue = Queue {
            stream: stream.as_inner(),
            overlap,
        };
        kernels.project(x, weights, Output::Bf16(y), shape, m, queue)
    };
    let (x_at, packed_at, y_at) = (address(&x_there), address(&packed), address(&y_there));
    let err = project(x_at, packed_at, y_at, Overlap::None).unwrap_err();
    assert!(matches!(err, Error::NotLoaded { .. }), "{err}");
    kernels.prepare(&workload).unwrap();
    for overlap in [Overlap::None, Overlap::Programmatic] {
        project(x_at, packed_at, y_at, overlap).unwrap();
    }
    stream.synchronize().unwrap();
    let y: Vec<bf16> = y_there
        .as_host_vec()
        .unwrap()
        .into_iter()
        .map(bf16::from_bits)
        .collect();
    check(&y, &x, &w, shape, m).unwrap();
    assert_eq!(driver::current(), current);
    for (x, packed, y, words) in [
        (x_at + 1, packed_at, y_at, "x is"),
        (x_at, packed_at + 8, y_at, "the packed weights is"),
        (x_at, packed_at, y_at + 1, "y is"),
        (x_at, packed_at, x_at, "y at"),
    ] {
        let err = project(x, packed, y, Overlap::None).unwrap_err();
        assert!(err.to_string().starts_with(words), "{err}");
    }
    // What lives in the context goes before it does.
    drop((kernels, packed, x_there, y_there, stream));
    drop(context);
}

#[test]
fn a_slice_of_the_weights_gives_that_slice_of_the_result() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let file = Checkpoint::open(data("minilm-l6-v2-slice.safetensors")).unwrap();
    let name = "encoder.layer.0.intermediate.dense.weight";
    let whole = file.matrix(Some(name)).unwrap();
    let (n, k, m) = (whole.rows(), whole.cols(), 5);
    let w = whole.to_bf16(Some(Cast::Bf16)).unwrap();
    let x = values.bf16(m * k);
    // One instance for all: each sum then has one order, whatever the rows around it.
    let instance = Some(&GEMV_BF16[0]);
    let run = |w: &[bf16], (n, k), x: &[bf16]| {
        let projection = prepare(&device.engine, w, shape(n, k)).unwrap();
        device.project(instance, &projection, x, 8, m).unwrap()
    };
    let y = run(&w, (n, k), &x);

    let rows = 37..201;
    let part = whole.clone().slice(Some(rows.clone()), None).unwrap();
    let part_y = run(&part.to_bf16(Some(Cast::Bf16)).unwrap(), (rows.len(), k), &x);
    for (y, part) in y.chunks(n).zip(part_y.chunks(rows.len())) {
        assert_eq!(bits(&y[rows.clone()]), bits(part));
    }

    // The columns of W meet the same columns of x; the slices of a split add up to the whole.
    let mut sum = vec![0f64; m * n];
    for cols in [0..136, 136..384] {
        let part = whole.clone().slice(None, Some(cols.clone())).unwrap();
        let part = part.to_bf16(Some(Cast::Bf16)).unwrap();
        let x: Vec<bf16> = x.chunks(k).flat_map(|x| x[cols.clone()].to_vec()).collect();
        let expected: Vec<bf16> = w.chunks(k).flat_map(|w| w[cols.clone()].to_vec()).collect();
        assert_eq!(bits(&part), bits(&expected));
        let y = run(&part, (n, cols.len()), &x);
        check(&y, &x, &part, shape(n, cols.len()), m).unwrap();
        sum.iter_mut().zip(&y).for_each(|(sum, y)| *sum += y.to_f64());
    }
    for (y, sum) in y.iter().zip(sum) {
        assert_abs_diff_eq!(y.to_f64(), sum, epsilon = 0.02 * (1.0 + sum.abs()));
    }
}

#[test]
fn calls_leave_the_current_context_alone() {
    let device = Device::of_the_run();
    let (engine, stream) = (&device.engine, &device.stream);
    let own = driver::current();
    let shape = shape(3, 5);
    let projection = prepare(engine, &[bf16::ONE; 15], shape).unwrap();
    let spare = prepare(engine, &[bf16::ONE; 15], shape).unwrap();
    let (x, mut y) = (engine.upload(&[bf16::ONE; 5]).unwrap(), poisoned(3));
    engine.project(&projection, &x, 1, &mut y, stream).unwrap();
    engine.take_counters().unwrap();
    engine.synchronize(stream).unwrap();
    assert_eq!(driver::current(), own);

    let foreign = OwnContext::new();
    let there = driver::current();
    assert_ne!(there, own);
    let refused = [
        engine.project(&projection, &x, 1, &mut y, stream),
        prepare(engine, &[bf16::ONE; 15], shape).map(drop),
        engine.upload(&[bf16::ONE]).map(drop),
        engine.download(&y, stream).map(drop),
        engine.stream().map(drop),
        engine.take_counters().map(drop),
    ];
    for result in refused {
        let err = result.unwrap_err();
        assert!(matches!(err, Error::WrongContext), "{err}");
        assert!(err.to_string().contains("Engine::make_current"), "{err}");
    }
    drop(spare);
    assert_eq!(driver::current(), there);
    drop(foreign);
    engine.make_current().unwrap();
    assert_eq!(driver::current(), own);
    assert_eq!(engine.download(&y, stream).unwrap(), [bf16::from_f32(5.0); 3]);
}

#[test]
fn engines_and_threads_work_side_by_side() {
    let shape = shape(48, 136);
    let shared = Device::of_the_run();
    let weights = Values::fresh().bf16(48 * 136);
    let projection = prepare(&shared.engine, &weights, shape).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, weights, projection) = (&shared.engine, &weights, &projection);
            scope.spawn(move || {
                let mut values = Values::fixed(thread);
                let own = Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto).unwrap()).unwrap();
                let own_projection = prepare(&own, weights, shape).unwrap();
                for m in [1, 3, 8, 17] {
                    for (engine, projection) in [(engine, projection), (&own, &own_projection)] {
                        engine.make_current().unwrap();
                        let device = Device {
                            engine: engine.clone(),
                            stream: engine.stream().unwrap(),
                        };
                        let x = values.bf16(m * 136);
                        let y = device.project(None, projection, &x, 8, m).unwrap();
                        check(&y, &x, weights, shape, m).unwrap();
                    }
                }
            });
        }
    });
}
