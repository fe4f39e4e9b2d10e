//! The library: a table of functions. Each logs its call, and does what its row says unless a variable names a code for
//! it.

mod arguments;
mod memory;
mod state;

use arguments::{Address, Flag, Handle, LaunchConfig, Name, New, Out};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

/// `name(arguments) => what answers;`: a function that may do something, and says the code. Without an answer it is 0,
/// and new handles are made.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) $(=> $answer:expr)?;)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            let told = state::code(stringify!($name));
            #[allow(unused_unsafe)]
            let code = match told {
                // SAFETY: the caller keeps the promises of the driver API: pointers are null, or valid for what the
                // function reads or writes there.
                0 => unsafe { functions!(@answer ($($argument),*) $($answer)?) },
                told => told,
            };
            let shown = [$((
                stringify!($argument),
                // SAFETY: pointers are null, or valid for a read: of what the caller passed in, and, where the answer
                // is 0, of what the function has written.
                unsafe { arguments::Argument::shown($argument, code == 0) },
            )),*];
            state::log(stringify!($name), code, &shown);
            code
        }
    )*};
    (@answer ($($argument:ident),*)) => {{ $(arguments::Argument::make($argument);)* 0 }};
    (@answer ($($argument:ident),*) $answer:expr) => { ($answer)($($argument),*) };
}

functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: Out<c_int>) => |version: Out<c_int>| version.put(state::version());
    cuGetErrorName(error: c_uint, text: Out<Name>) => |error, text: Out<Name>| text.put(state::words("NAME", error));
    cuGetErrorString(error: c_uint, text: Out<Name>) => |error, text: Out<Name>| text.put(state::words("words", error));

    cuDeviceGetCount(count: Out<c_int>) => |count: Out<c_int>| count.put(state::devices().len() as c_int);
    cuDeviceGet(device: Out<c_int>, ordinal: c_int) => state::device;
    cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) => state::name;
    cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) => |bytes: Out<usize>, _| bytes.put(state::MEMORY);
    cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) => state::attribute;

    cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) =>
        |context: Out<Handle>, device| context.put(state::primary(device));
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuCtxCreate_v2(context: New, flags: c_uint, device: c_int) => |context: New, _, _| state::push(context.make());
    cuCtxDestroy_v2(context: Handle);
    cuCtxPushCurrent_v2(context: Handle) => state::push;
    cuCtxPopCurrent_v2(context: Out<Handle>) => state::pop;
    cuCtxSetCurrent(context: Handle) => state::set_current;
    cuCtxGetCurrent(context: Out<Handle>) => |context: Out<Handle>| context.put(state::current());
    cuCtxGetDevice(device: Out<c_int>) => state::current_device;
    cuCtxSynchronize();
    cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) =>
        |least: Out<c_int>, greatest: Out<c_int>| { least.put(0); greatest.put(-5) };

    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) =>
        |free: Out<usize>, total: Out<usize>| { free.put(state::MEMORY); total.put(state::MEMORY) };
    cuMemAlloc_v2(address: Out<Address>, bytes: usize) => memory::allocate;
    cuMemAllocAsync(address: Out<Address>, bytes: usize, stream: Handle) =>
        |address, bytes, _| memory::allocate(address, bytes);
    cuMemFree_v2(address: Address) => memory::free;
    cuMemFreeAsync(address: Address, stream: Handle) => |address, _| memory::free(address);
    cuMemAllocHost_v2(address: Out<Address>, bytes: usize) => memory::allocate;
    cuMemHostAlloc(address: Out<Address>, bytes: usize, flags: c_uint) =>
        |address, bytes, _| memory::allocate(address, bytes);
    cuMemFreeHost(address: Address) => memory::free;
    cuMemHostRegister_v2(address: Address, bytes: usize, flags: c_uint);
    cuMemHostUnregister(address: Address);

    cuMemcpyHtoD_v2(to: Address, from: Address, bytes: usize) => |to, from, bytes| memory::copy(to, from, bytes, &[to]);
    cuMemcpyDtoH_v2(to: Address, from: Address, bytes: usize) =>
        |to, from, bytes| memory::copy(to, from, bytes, &[from]);
    cuMemcpyDtoD_v2(to: Address, from: Address, bytes: usize) =>
        |to, from, bytes| memory::copy(to, from, bytes, &[to, from]);
    cuMemcpyHtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Handle) =>
        |to, from, bytes, _| memory::copy(to, from, bytes, &[to]);
    cuMemcpyDtoHAsync_v2(to: Address, from: Address, bytes: usize, stream: Handle) =>
        |to, from, bytes, _| memory::copy(to, from, bytes, &[from]);
    cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Handle) =>
        |to, from, bytes, _| memory::copy(to, from, bytes, &[to, from]);
    cuMemsetD8_v2(to: Address, value: c_uchar, count: usize) => memory::fill;
    cuMemsetD16_v2(to: Address, value: c_ushort, count: usize) => memory::fill;
    cuMemsetD32_v2(to: Address, value: c_uint, count: usize) => memory::fill;
    cuMemsetD8Async(to: Address, value: c_uchar, count: usize, stream: Handle) =>
        |to, value, count, _| memory::fill(to, value, count);
    cuMemsetD16Async(to: Address, value: c_ushort, count: usize, stream: Handle) =>
        |to, value, count, _| memory::fill(to, value, count);
    cuMemsetD32Async(to: Address, value: c_uint, count: usize, stream: Handle) =>
        |to, value, count, _| memory::fill(to, value, count);

    cuModuleLoadData(module: New, image: *const c_void);
    cuModuleLoadDataEx(module: New, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut Handle);
    cuModuleUnload(module: Handle);
    cuModuleGetFunction(function: New, module: Handle, name: Name);
    cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: Handle) =>
        |value: Out<c_int>, _, _| value.put(0);
    cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int);
    cuFuncLoad(function: Handle);
    cuLaunchKernelEx(stream: LaunchConfig, function: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernel(
        function: Handle,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: Handle,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<c_int>, function: Handle, threads: c_int, shared: usize) =>
        |blocks: Out<c_int>, _, _, _| blocks.put(1);
    cuOccupancyMaxActiveClusters(clusters: Out<c_int>, function: Handle, stream: LaunchConfig) =>
        |clusters: Out<c_int>, _, _| clusters.put(1);

    cuStreamCreate(stream: New, flags: c_uint);
    cuStreamCreateWithPriority(stream: New, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    cuStreamIsCapturing(stream: Handle, status: Out<c_uint>) =>
        |stream, status| state::capture(stream, status, Out::NOWHERE);
    cuStreamGetCaptureInfo(stream: Handle, status: Out<c_uint>, id: Out<u64>) => state::capture;
    cuStreamGetCaptureInfo_v2(
        stream: Handle,
        status: Out<c_uint>,
        id: Out<u64>,
        graph: *mut Handle,
        dependencies: *mut Handle,
        count: *mut usize,
    ) => |stream, status, id, _, _, _| state::capture(stream, status, id);
    cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) => |stream, _| state::begin_capture(stream);
    cuStreamEndCapture(stream: Handle, graph: New) => state::end_capture;
    cuThreadExchangeStreamCaptureMode(mode: Flag) => state::exchange_mode;
    cuGraphInstantiateWithFlags(executable: New, graph: Handle, flags: u64);
    cuGraphLaunch(executable: Handle, stream: Handle);
    cuGraphExecDestroy(executable: Handle);
    cuGraphDestroy(graph: Handle);
    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: Out<usize>) => |_, _, count: Out<usize>| count.put(0);
    cuEventCreate(event: New, flags: c_uint);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventSynchronize(event: Handle);
    cuEventQuery(event: Handle);
    cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) =>
        |milliseconds: Out<f32>, _, _| milliseconds.put(1.0);
    cuEventDestroy_v2(event: Handle);

    cuTensorMapEncodeTiled(
        map: Out<arguments::Map>,
        data_type: c_uint,
        rank: c_uint,
        address: Address,
        dimensions: *const u64,
        strides: *const u64,
        box_dimensions: *const c_uint,
        element_strides: *const c_uint,
        interleave: c_uint,
        swizzle: c_uint,
        l2_promotion: c_uint,
        out_of_bounds_fill: c_uint,
    ) => encode_tiled;
    cuTensorMapReplaceAddress(map: Out<arguments::Map>, address: Address) =>
        |map: Out<arguments::Map>, address: Address| map.put(arguments::Map([address.0; 16]));
}

/// Shows that every argument came through: the map is filled with a number made of them all.
#[allow(clippy::too_many_arguments)]
unsafe fn encode_tiled(
    map: Out<arguments::Map>,
    data_type: c_uint,
    rank: c_uint,
    address: Address,
    dimensions: *const u64,
    strides: *const u64,
    box_dimensions: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    out_of_bounds_fill: c_uint,
) -> u32 {
    // SAFETY: the caller passes arrays of at least one value, but for a map of one dimension, which has no strides.
    let arrays = unsafe {
        let stride = if rank > 1 { *strides } else { 0 };
        [*dimensions, stride, (*box_dimensions).into(), (*element_strides).into()]
    };
    let numbers = [interleave, swizzle, l2_promotion, out_of_bounds_fill].map(u64::from);
    let all = [data_type.into(), rank.into(), address.0];
    let digits = all.iter().chain(&arrays).chain(&numbers);
    let number = digits.fold(0u64, |number, digit| number.wrapping_mul(10).wrapping_add(*digit));
    map.put(arguments::Map([number; 16]))
}

/// The marker by which the emulated driver knows a library as its own.
#[cfg(marked)]
#[unsafe(no_mangle)]
extern "C" fn hopper_cuda_driver_marker() {}
