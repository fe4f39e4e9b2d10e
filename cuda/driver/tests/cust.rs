//! `cust`, unmodified, on the emulated driver. It knows the device's primary context alone, which its tests share.

use cust::context::{Context, CurrentContext};
use cust::error::{CudaError, CudaResult};
use cust::event::{Event, EventFlags};
use cust::function::FunctionAttribute;
use cust::launch;
use cust::memory::{CopyDestination as _, DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags, StreamWaitEventFlags};
use hopper_cuda_driver::{Choice, Selected, select};
use std::sync::mpsc;

const ADD: &str = include_str!("ptx/add.ptx");

fn context() -> CudaResult<Context> {
    assert_eq!(select(Choice::Emulated).ok(), Some(Selected::Emulated));
    cust::quick_init()
}

#[test]
fn a_vector_sum_is_computed() -> CudaResult<()> {
    let _context = context()?;
    let module = Module::from_ptx(ADD, &[ModuleJitOption::MaxRegisters(64)])?;
    let add = module.get_function("add")?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let (a, b): (Vec<f32>, Vec<f32>) = (0..777).map(|i| (i as f32, 0.5 * i as f32)).unzip();
    let (a_device, b_device) = (DeviceBuffer::from_slice(&a)?, DeviceBuffer::from_slice(&b)?);
    let out = DeviceBuffer::<f32>::zeroed(a.len())?;
    let (begin, end) = (Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?);
    begin.record(&stream)?;
    // SAFETY: the kernel's parameters, and the buffers outlive the launch.
    unsafe {
        launch!(add<<<7, 128, 0, stream>>>(
            a_device.as_device_ptr(),
            b_device.as_device_ptr(),
            out.as_device_ptr(),
            a.len() as u32
        ))?;
    }
    end.record(&stream)?;
    stream.wait_event(Event::new(EventFlags::DISABLE_TIMING)?, StreamWaitEventFlags::DEFAULT)?;
    end.synchronize()?;
    assert!(end.elapsed_time_f32(&begin)? >= 0.0);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(out.as_host_vec()?, expected);
    Ok(())
}

#[test]
fn memory_goes_there_and_back() -> CudaResult<()> {
    let _context = context()?;
    let given = LockedBuffer::new(&3_u64, 1000)?;
    let mut buffer = DeviceBuffer::from_slice(&given)?;
    let mut seen = LockedBuffer::new(&0_u64, 1000)?;
    buffer.copy_to(&mut seen)?;
    assert_eq!(seen.as_slice(), given.as_slice());
    buffer.index(..500).set_8(1)?;
    assert_eq!(buffer.as_host_vec()?[499..501], [0x0101_0101_0101_0101, 3]);
    assert!(cust::memory::mem_get_info()?.0 < cust::memory::mem_get_info()?.1);
    buffer.copy_from(&given)?;
    DeviceBuffer::drop(buffer).map_err(|(error, _)| error)
}

#[test]
fn the_device_is_described() -> CudaResult<()> {
    let _context = context()?;
    let device = CurrentContext::get_device()?;
    assert_eq!(device.name()?, "Emulated sm_90 (H200 numbers)");
    assert_eq!(device.total_memory()?, 139 << 30);
    assert_eq!(
        device.get_attribute(cust::device::DeviceAttribute::MultiprocessorCount)?,
        132
    );
    let add = Module::from_ptx(ADD, &[])?;
    let threads = add
        .get_function("add")?
        .get_attribute(FunctionAttribute::MaxThreadsPerBlock)?;
    assert_eq!(threads, 128);
    Ok(())
}

#[test]
fn streams_call_back() -> CudaResult<()> {
    let _context = context()?;
    let stream = Stream::new(StreamFlags::DEFAULT, Some(-1))?;
    let (send, receive) = mpsc::channel();
    stream.add_callback(Box::new(move || send.send("called").unwrap_or_default()))?;
    stream.synchronize()?;
    assert_eq!(receive.try_recv(), Ok("called"));
    Ok(())
}

#[test]
fn managed_memory_is_the_hosts_and_the_devices() -> CudaResult<()> {
    let _context = context()?;
    let module = Module::from_ptx(ADD, &[])?;
    let add = module.get_function("add")?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let mut values = UnifiedBuffer::new(&2.5_f32, 100)?;
    values[7] = 1.0;
    let pointer = values.as_unified_ptr().as_raw_mut() as u64;
    // SAFETY: the kernel's arguments are two inputs, an output and a length, and the buffer holds as many values.
    unsafe { launch!(add<<<1, 128, 0, stream>>>(pointer, pointer, pointer, 100_u32)) }?;
    stream.synchronize()?;
    let expected: Vec<f32> = (0..100).map(|i| if i == 7 { 2.0 } else { 5.0 }).collect();
    assert_eq!(values[..], expected);
    Ok(())
}

#[test]
fn refusals_arrive_as_errors() -> CudaResult<()> {
    let _context = context()?;
    assert_eq!(
        Module::from_ptx("this is no PTX", &[]).err(),
        Some(CudaError::InvalidPtx)
    );
    let module = Module::from_ptx(ADD, &[])?;
    assert_eq!(module.get_function("sub").err(), Some(CudaError::NotFound));
    // SAFETY: the memory is never read.
    let too_much = unsafe { DeviceBuffer::<u64>::uninitialized(20 << 30) };
    assert_eq!(too_much.err(), Some(CudaError::OutOfMemory));
    let add = module.get_function("add")?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    // SAFETY: the launch is refused.
    let refused = unsafe { launch!(add<<<1, 129, 0, stream>>>(0_u64, 0_u64, 0_u64, 0_u32)) };
    assert_eq!(refused.err(), Some(CudaError::InvalidValue));
    assert_eq!(CudaError::NotSupported.to_string(), "\"operation not supported\"");
    stream.synchronize()
}
