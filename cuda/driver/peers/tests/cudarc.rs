//! `cudarc`, as it comes from its registry, with the emulated driver under the name of NVIDIA's library.

use cudarc::driver::sys::{
    CUevent_flags, CUfunction_attribute, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode,
};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use half::bf16;
use hopper_proj::formats::bf16::pack;
use hopper_proj::plan::{Device, Kernel, Op, plan_with};
use hopper_proj::{Request, Shape, reference};
use kernels_gpu::instances::{Format, GemvArgs, formats::bf16::GEMV_BF16};
use std::sync::Arc;

const ADD: &str = include_str!("../../tests/ptx/add.ptx");
const KERNELS: &str = include_str!("../../../../host/ptx/gemv_bf16.ptx");

type Result<T = ()> = std::result::Result<T, DriverError>;

fn function(context: &Arc<CudaContext>, ptx: &str, name: &str) -> Result<CudaFunction> {
    context.load_module(Ptx::from_src(ptx))?.load_function(name)
}

const ONE_BLOCK: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (128, 1, 1),
    shared_mem_bytes: 0,
};

/// Adds 100 values on a stream.
fn add(
    stream: &CudaStream,
    add: &CudaFunction,
    a: &CudaSlice<f32>,
    b: &CudaSlice<f32>,
    sum: &mut CudaSlice<f32>,
) -> Result {
    let n = 100_u32;
    // SAFETY: the kernel's arguments are two inputs, an output and a length, and each holds as many values.
    unsafe {
        stream
            .launch_builder(add)
            .arg(a)
            .arg(b)
            .arg(sum)
            .arg(&n)
            .launch(ONE_BLOCK)
    }
    .map(|_| ())
}

fn ramp(by: f32) -> Vec<f32> {
    (0..100_u8).map(|i| f32::from(i) * by).collect()
}

#[test]
fn the_device_is_the_emulated_one() -> Result {
    let context = CudaContext::new(0)?;
    assert_eq!(CudaContext::device_count()?, 1);
    assert!(context.name()?.contains("Emulated sm_90"), "{}", context.name()?);
    assert_eq!(context.compute_capability()?, (9, 0));
    assert!(context.has_async_alloc(), "memory pools are what programs look for");
    assert!(CudaContext::new(1).is_err());
    Ok(())
}

#[test]
fn vectors_are_added_from_ptx_text() -> Result {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let kernel = function(&context, ADD, "add")?;
    let (a, b) = (stream.clone_htod(&ramp(1.0))?, stream.clone_htod(&ramp(2.0))?);
    let mut sum = stream.alloc_zeros::<f32>(100)?;
    let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    add(&stream, &kernel, &a, &b, &mut sum)?;
    let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    assert_eq!(stream.clone_dtoh(&sum)?, ramp(3.0));
    end.synchronize()?;
    assert!(end.is_complete() && start.elapsed_ms(&end)? > 0.0);
    assert!(context.load_module(Ptx::from_src("no PTX")).is_err());
    Ok(())
}

#[test]
fn streams_wait_for_each_other() -> Result {
    let context = CudaContext::new(0)?;
    let kernel = function(&context, ADD, "add")?;
    let (first, second) = (context.new_stream()?, context.new_stream_with_priority(-5)?);
    let one = first.clone_htod(&ramp(1.0))?;
    let mut two = first.alloc_zeros::<f32>(100)?;
    add(&first, &kernel, &one, &one, &mut two)?;
    second.join(&first)?;
    let mut three = second.alloc_zeros::<f32>(100)?;
    add(&second, &kernel, &one, &two, &mut three)?;
    assert_eq!(second.clone_dtoh(&three)?, ramp(3.0));
    let forked = context.default_stream().fork()?;
    assert_eq!(forked.clone_dtoh(&three)?, ramp(3.0));
    assert_eq!(context.per_thread_stream().clone_dtoh(&three)?, ramp(3.0));
    Ok(())
}

#[test]
fn captured_launches_run_again() -> Result {
    let context = CudaContext::new(0)?;
    // What is used here is used on one stream alone.
    // SAFETY: so nothing has to be waited for.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let kernel = function(&context, ADD, "add")?;
    let step = stream.clone_htod(&ramp(1.0))?;
    let mut sums = stream.alloc_zeros::<f32>(100)?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    for _ in 0..3 {
        // Memory that a graph allocates and frees.
        let mut copy = stream.alloc_zeros::<f32>(100)?;
        stream.memcpy_dtod(&sums, &mut copy)?;
        add(&stream, &kernel, &step, &copy, &mut sums)?;
    }
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?.expect("something was captured");
    graph.upload()?;
    for _ in 0..2 {
        graph.launch()?;
    }
    assert_eq!(stream.clone_dtoh(&sums)?, ramp(6.0));
    Ok(())
}

#[test]
fn memory_comes_and_goes_in_the_streams_order() -> Result {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    for round in 0..10_u8 {
        let values = stream.clone_htod(&vec![round; 1 << 16])?;
        assert_eq!(stream.clone_dtoh(&values.slice(1000..1010))?, [round; 10]);
    }
    // SAFETY: the values are written before they are read.
    let mut pinned = unsafe { context.alloc_pinned::<u8>(16) }?;
    pinned.as_mut_slice()?.fill(7);
    assert_eq!(stream.clone_dtoh(&stream.clone_htod(&pinned)?)?, [7; 16]);
    // SAFETY: the next line writes all values before anything reads them.
    let mut managed = unsafe { context.alloc_unified::<f32>(100, true) }?;
    managed.as_mut_slice()?.copy_from_slice(&ramp(1.0));
    let kernel = function(&context, ADD, "add")?;
    let mut sum = stream.alloc_zeros::<f32>(100)?;
    let n = 100_u32;
    // SAFETY: the kernel takes two inputs, an output and a length, and each array holds that many values.
    unsafe {
        stream
            .launch_builder(&kernel)
            .arg(&managed)
            .arg(&managed)
            .arg(&mut sum)
            .arg(&n)
            .launch(ONE_BLOCK)
    }?;
    assert_eq!(stream.clone_dtoh(&sum)?, ramp(2.0));
    Ok(())
}

/// Values that BF16 holds as they are.
fn values(count: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bf16::from_f32(((state >> 60) as f32 - 7.5) / 16.0)
        })
        .collect()
}

#[test]
fn the_gemv_that_ships_runs() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let (shape, m) = (Shape::new(96, 512)?, 3);
    let instance = GEMV_BF16
        .iter()
        .find(|instance| instance.cluster == 1)
        .ok_or("a kernel without clusters")?;
    let request = Request::new(Op::Project, Format::Bf16, shape, m);
    let plan = plan_with(&Kernel::Gemv(instance), &request, &Device::H200)?.ok_or("a launch")?;
    let kernel = function(&context, KERNELS, plan.kernel.name())?;
    let shared = i32::try_from(plan.shared_bytes)?;
    kernel.set_attribute(
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        shared,
    )?;

    let (x, weights) = (values(m * shape.k(), 1), values(shape.n() * shape.k(), 2));
    let raw = |values: &[bf16]| values.iter().map(|value| value.to_bits()).collect::<Vec<u16>>();
    let on_device = (
        stream.clone_htod(&raw(&x))?,
        stream.clone_htod(&raw(&pack(&weights, shape)?))?,
    );
    let y = stream.alloc_zeros::<f32>(m * shape.n())?;
    let address = |slice: &CudaSlice<u16>| cudarc::driver::DevicePtr::device_ptr(slice, &stream).0;
    let args = Args(GemvArgs {
        x: address(&on_device.0),
        x_stride: shape.k() as u64,
        weights: address(&on_device.1),
        y: cudarc::driver::DevicePtr::device_ptr(&y, &stream).0,
        m: m as u32,
        n: shape.n() as u32,
        k: shape.k() as u32,
        y_fp32: 1,
    });
    let [x_blocks, y_blocks, z_blocks] = plan.grid;
    let config = LaunchConfig {
        grid_dim: (x_blocks, y_blocks, z_blocks),
        block_dim: (plan.block[0], plan.block[1], plan.block[2]),
        shared_mem_bytes: plan.shared_bytes,
    };
    // SAFETY: the kernel takes these arguments by value, and all addresses in them hold what the plan is for.
    unsafe { stream.launch_builder(&kernel).arg(&args).launch(config) }?;
    let found = stream.clone_dtoh(&y)?;
    let expected = reference::project(&x, &weights, shape, m)?;
    let error = reference::relative_error_fp32(&found, &expected);
    assert!(error < 1e-6, "{error}");
    Ok(())
}

/// The arguments of a GEMV as `cudarc` passes them.
#[repr(transparent)]
struct Args(GemvArgs);

// SAFETY: the layout is C's, and the kernel takes it as it is.
unsafe impl cudarc::driver::DeviceRepr for Args {}

#[test]
fn what_a_kernel_does_wrong_is_an_error() -> Result {
    // A context of its own, since its fault stays with it.
    let context = CudaContext::new_non_primary(0, 0)?;
    let stream = context.new_stream()?;
    let kernel = function(&context, ADD, "add")?;
    let short = stream.clone_htod(&[1.0_f32; 10])?;
    let mut sum = stream.alloc_zeros::<f32>(100)?;
    let code = |result: Result| result.expect_err("the kernel reads past the end").0;
    // The launch goes well; `cudarc` then records events, which does not.
    let launched = add(&stream, &kernel, &short, &short, &mut sum);
    assert_eq!(code(launched), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(
        code(stream.clone_dtoh(&sum).map(|_| ())),
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        "it stays"
    );
    Ok(())
}
