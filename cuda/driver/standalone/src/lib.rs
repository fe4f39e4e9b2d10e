//! The emulated CUDA driver as `libcuda.so.1`: every symbol of `hopper-cuda-driver`, for programs that know nothing of
//! it.

/// Runs when the library is loaded, before any of its functions can be called.
extern "C" fn start() {
    hopper_cuda_driver::serve_as_library();
}

// SAFETY: the section holds pointers to functions that the loader calls one after the other; this is one.
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static START: extern "C" fn() = start;
