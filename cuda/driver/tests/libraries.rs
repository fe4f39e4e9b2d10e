//! Libraries, the linker, and what kernels tell of themselves.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{function_attribute, *};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

/// A variable and two kernels: one reads it, one does nothing.
const COUNTED: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 step = 3;
.visible .entry bump(.param .u64 buffer, .param .u8 unused)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [buffer];
    ld.global.u32 %r1, [%rd1];
    ld.global.u32 %r2, [step];
    add.u32 %r3, %r1, %r2;
    st.global.u32 [%rd1], %r3;
    ret;
}
.visible .entry idle()
{
    ret;
}
";

fn library() -> CUlibrary {
    let text = CString::new(COUNTED).expect("PTX has no zero bytes");
    let (mut library, none) = (null_mut(), null_mut::<c_void>());
    let code = code!(cuLibraryLoadData(
        &mut library,
        text.as_ptr().cast(),
        none.cast(),
        none.cast(),
        0,
        none.cast(),
        none.cast(),
        0
    ));
    assert_eq!(code, SUCCESS);
    library
}

fn bump(kernel: CUkernel, buffer: CUdeviceptr) -> u32 {
    let byte = 0_u8;
    let code = launch(&config(1, 1), kernel, &[parameter(&buffer), parameter(&byte)]);
    assert_eq!(code, SUCCESS);
    download::<u32>(buffer, 1)[0]
}

#[test]
fn a_library_serves_every_context() {
    start();
    let library = library();
    let kernel = handle!(cuLibraryGetKernel(library, c"bump".as_ptr()));
    assert_eq!(
        handle!(cuLibraryGetKernel(library, c"bump".as_ptr())),
        kernel,
        "one handle"
    );
    let first = Context::new();
    assert_eq!(bump(kernel, upload(&[4_u32])), 7);
    let (mut step, mut bytes) = (0, 0);
    ok!(cuLibraryGetGlobal(&mut step, &mut bytes, library, c"step".as_ptr()));
    assert_eq!(bytes, 4);
    ok!(cuMemsetD32_v2(step, 10, 1));
    assert_eq!(bump(kernel, upload(&[4_u32])), 14);
    let function = handle!(cuKernelGetFunction(kernel));
    {
        let _second = Context::new();
        assert_eq!(
            bump(kernel, upload(&[4_u32])),
            7,
            "another context has a variable of its own"
        );
        assert_ne!(handle!(cuKernelGetFunction(kernel)), function);
        assert_eq!(launch(&config(1, 1), function, &[]), INVALID_HANDLE, "the first one's");
    }
    let module = handle!(cuLibraryGetModule(library));
    assert_eq!(handle!(cuModuleGetFunction(module, c"bump".as_ptr())), function);
    ok!(cuLibraryUnload(library));
    assert_eq!(launch(&config(1, 1), kernel, &[]), INVALID_HANDLE);
    assert_eq!(code!(cuLibraryUnload(library)), INVALID_HANDLE);
    assert_eq!(code!(cuModuleUnload(module)), INVALID_HANDLE);
    drop(first);
}

#[test]
fn libraries_and_kernels_tell_what_they_are() {
    let _context = Context::new();
    let library = library();
    let mut count = 0;
    ok!(cuLibraryGetKernelCount(&mut count, library));
    assert_eq!(count, 2);
    let mut kernels = [null_mut(); 3];
    ok!(cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 3, library));
    assert!(kernels[2].is_null());
    let kernel = kernels[0];
    assert_eq!(handle!(cuKernelGetLibrary(kernel)), library);
    let mut name = null();
    ok!(cuKernelGetName(&mut name, kernel));
    // SAFETY: a name that is good as long as the library.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"bump");
    ok!(cuFuncGetName(&mut name, kernel));
    // SAFETY: the function's name ends in a zero byte and is there as long as its module.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"bump");
    let (mut offset, mut size) = (0, 0);
    ok!(cuKernelGetParamInfo(kernel, 1, &mut offset, &mut size));
    assert_eq!((offset, size), (8, 1));
    assert_eq!(
        code!(cuFuncGetParamInfo(kernel, 2, &mut offset, &mut size)),
        INVALID_VALUE
    );
    ok!(cuKernelGetParamCount(kernel, &mut size));
    assert_eq!(size, 2);
    let mut value = 0;
    let shared = function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ok!(cuKernelSetAttribute(shared, 100_000, kernel, 0));
    ok!(cuKernelGetAttribute(&mut value, shared, kernel, 0));
    assert_eq!(value, 100_000);
    ok!(cuKernelSetCacheConfig(kernel, 1, 0));
    assert_eq!(code!(cuKernelSetCacheConfig(kernel, 1, 1)), INVALID_DEVICE);
    let mut state = 9;
    ok!(cuFuncIsLoaded(&mut state, kernel));
    ok!(cuFuncLoad(kernel));
    assert_eq!(state, 1);
    let mut out = null_mut();
    assert_eq!(
        code!(cuLibraryGetKernel(&mut out, library, c"none".as_ptr())),
        NOT_FOUND
    );
    assert_eq!(
        code!(cuLibraryGetKernel(&mut out, kernel, c"bump".as_ptr())),
        INVALID_HANDLE
    );
    ok!(cuLibraryUnload(library));
    assert_eq!(code!(cuKernelGetName(&mut name, kernel)), INVALID_HANDLE);
}

#[test]
fn modules_list_their_kernels() {
    let _context = Context::new();
    let module = load(COUNTED);
    let mut count = 0;
    ok!(cuModuleGetFunctionCount(&mut count, module));
    let mut functions = [null_mut(); 2];
    ok!(cuModuleEnumerateFunctions(functions.as_mut_ptr(), 2, module));
    assert_eq!((count, functions[1]), (2, kernel(module, "idle")));
    let mut mode = 9;
    ok!(cuModuleGetLoadingMode(&mut mode));
    assert_eq!(mode, 1);
}

#[test]
fn nodes_of_graphs_launch_kernels_of_libraries() {
    let _context = Context::new();
    let (library, graph, buffer) = (library(), handle!(cuGraphCreate(0)), upload(&[1_u32]));
    let (byte, kern) = (0_u8, handle!(cuLibraryGetKernel(library, c"bump".as_ptr())));
    let mut pointers = [parameter(&buffer).cast_mut(), parameter(&byte).cast_mut()];
    let node = CUDA_KERNEL_NODE_PARAMS_v2 {
        v1: launch_of(null_mut(), &mut pointers),
        kern,
        ctx: null_mut(),
    };
    handle!(cuGraphAddKernelNode_v2(graph, null(), 0, &node));
    assert_eq!(run(executable(graph), buffer), 4);
}

#[test]
fn the_linker_passes_one_text_on() {
    let _context = Context::new();
    let none = null_mut::<c_void>();
    let link = handle_last(|out| code!(cuLinkCreate_v2(0, none.cast(), none.cast(), out)));
    let add = |kind, text: &str| {
        let data = text.as_ptr().cast_mut().cast();
        code!(cuLinkAddData_v2(
            link,
            kind,
            data,
            text.len(),
            null(),
            0,
            none.cast(),
            none.cast()
        ))
    };
    let (mut image, mut size) = (null_mut(), 0);
    assert_eq!(
        code!(cuLinkComplete(link, &mut image, &mut size)),
        INVALID_VALUE,
        "nothing to link"
    );
    assert_eq!(add(0, COUNTED), NOT_SUPPORTED, "a binary");
    assert_eq!(add(1, "no PTX"), INVALID_PTX);
    assert_eq!(add(1, COUNTED), SUCCESS);
    assert_eq!(add(1, COUNTED), NOT_SUPPORTED, "a second text");
    ok!(cuLinkComplete(link, &mut image, &mut size));
    assert_eq!(size, COUNTED.len() + 1);
    let module = handle!(cuModuleLoadData(image));
    ok!(cuLinkDestroy(link));
    assert_eq!(code!(cuLinkDestroy(link)), INVALID_HANDLE);
    assert!(!kernel(module, "bump").is_null());
}

/// A handle that a call writes to its last argument.
fn handle_last(call: impl FnOnce(*mut *mut c_void) -> u32) -> *mut c_void {
    let mut handle = null_mut();
    assert_eq!(call(&mut handle), SUCCESS);
    handle
}

#[test]
fn the_compiler_says_what_it_did() {
    let _context = Context::new();
    let text = CString::new(COUNTED).expect("PTX has no zero bytes");
    let mut log = [0_u8; 100];
    let mut options = [
        jit_option::INFO_LOG_BUFFER,
        jit_option::INFO_LOG_BUFFER_SIZE_BYTES,
        jit_option::WALL_TIME,
    ];
    let mut values = [
        log.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(100),
        null_mut(),
    ];
    let mut module = null_mut();
    ok!(cuModuleLoadDataEx(
        &mut module,
        text.as_ptr().cast(),
        3,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    let words = String::from_utf8_lossy(&log[..values[1].addr()]).into_owned();
    assert!(words.starts_with("read for emulation in"), "{words}");
    assert!(f32::from_bits(values[2].addr() as u32) > 0.0);
}
