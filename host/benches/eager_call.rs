//! What an eager `Engine::project` takes on the CPU: for a request that was seen before, and for a new one.
//!
//! The calls are captured on the emulated device, which records a launch and runs none. `driver_call` is the same
//! recording without the library: what is left of the others without it is the library's own time, up to the driver
//! call.

use divan::Bencher;
use hopper_cuda_driver::{ffi, select};
use hopper_proj::formats::Weights;
use hopper_proj::{Buffer, DriverChoice, Engine, EngineOptions, PrepareOptions, Projection, Shape, Stream, bf16};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

fn main() {
    divan::main();
}

/// Weights of several shapes, so that there are more requests than calls.
const ROWS: [usize; 24] = {
    let mut rows = [0; 24];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = 2304 + 16 * at;
        at += 1;
    }
    rows
};
const COLUMNS: usize = 64;
const TOKENS: usize = 32;
const CALLS: u32 = 700;

struct Setup {
    engine: Engine,
    stream: Stream,
    projections: Vec<Projection>,
    x: Buffer<bf16>,
    y: Buffer<bf16>,
}

impl Setup {
    fn new() -> Self {
        select(DriverChoice::Emulated).expect("the emulated driver");
        let engine = Engine::new(EngineOptions::on(DriverChoice::Emulated)).expect("an engine");
        let prepare = |rows: usize| {
            let (shape, values) = (Shape::new(rows, COLUMNS)?, vec![bf16::ONE; rows * COLUMNS]);
            engine.prepare(Weights::bf16(&values, shape)?, &PrepareOptions::tokens(1..=TOKENS))
        };
        let projections = ROWS.map(|rows| prepare(rows).expect("weights go to the device"));
        let buffer = |len: usize| engine.upload(&vec![bf16::ONE; len]).expect("memory");
        let (x, y) = (buffer(TOKENS * COLUMNS), buffer(TOKENS * ROWS[ROWS.len() - 1]));
        let stream = engine.stream().expect("a stream");
        Setup {
            engine,
            stream,
            projections: projections.into(),
            x,
            y,
        }
    }

    /// Runs `calls` while the stream is captured.
    fn captured(&mut self, calls: impl FnOnce(&mut Self)) {
        let (engine, stream) = (self.engine.clone(), self.stream.clone());
        let record = || {
            calls(self);
            Ok(())
        };
        engine.capture(&stream, record).expect("a capture");
    }

    /// The call with this number: another request each time, until all were there.
    fn project(&mut self, number: usize) {
        let (layer, m) = (number % ROWS.len(), 1 + number / ROWS.len() % TOKENS);
        let x = self.x.slice(..m * COLUMNS).expect("values enough");
        let y = self.y.slice_mut(..m * ROWS[layer]).expect("values enough");
        let projection = &self.projections[layer];
        let called = self.engine.project(projection, x, m, y, &self.stream);
        called.expect("a call that fits");
    }
}

#[divan::bench(sample_count = 20, sample_size = 1000)]
fn seen_request(bencher: Bencher<'_, '_>) {
    Setup::new().captured(|setup| bencher.bench_local(|| setup.project(8 * ROWS.len())));
}

#[divan::bench(sample_count = 7, sample_size = 100)]
fn new_request(bencher: Bencher<'_, '_>) {
    let (mut setup, number) = (Setup::new(), Cell::new(0));
    setup.captured(|setup| {
        bencher.bench_local(|| {
            setup.project(number.get());
            number.set(number.get() + 1);
        });
    });
    assert!(number.get() <= ROWS.len() * TOKENS && number.get() >= CALLS as usize);
}

#[divan::bench(sample_count = 20, sample_size = 1000)]
fn driver_call(bencher: Bencher<'_, '_>) {
    let mut setup = Setup::new();
    let (x, projection) = (setup.x.slice(..COLUMNS).expect("values enough"), &setup.projections[0]);
    let plan = setup.engine.plan(projection, x, 1).expect("a plan").expect("a launch");
    let function = setup.engine.kernels().function(&plan.kernel).expect("a loaded kernel");
    let attributes = [
        ffi::CUlaunchAttribute::cluster(plan.cluster),
        ffi::CUlaunchAttribute::programmatic_serialization(),
    ];
    let config = ffi::CUlaunchConfig {
        gridDimX: plan.grid[0],
        gridDimY: plan.grid[1],
        gridDimZ: plan.grid[2],
        blockDimX: plan.block[0],
        blockDimY: plan.block[1],
        blockDimZ: plan.block[2],
        sharedMemBytes: plan.shared_bytes,
        hStream: setup.stream.handle().cast(),
        attrs: attributes.as_ptr(),
        numAttrs: attributes.len() as u32,
    };
    // As large as any parameter of a projection.
    let mut parameter = [0u64; 32];
    let mut parameters: [*mut c_void; 1] = [parameter.as_mut_ptr().cast()];
    setup.captured(|_| {
        bencher.bench_local(|| {
            // SAFETY: the function is loaded, the configuration is that of its plan, and a captured launch runs
            // nothing.
            unsafe { ffi::cuLaunchKernelEx(&raw const config, function.cast(), parameters.as_mut_ptr(), null_mut()) }
        });
    });
}
