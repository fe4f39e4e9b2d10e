//! Of modules and kernels, what `cust`'s bindings lack: libraries, names, parameters.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Ours:
    cuLinkAddFile_v2(
        state: CUlinkState,
        kind: c_uint,
        path: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) => link::add_file;
    cuModuleGetLoadingMode(mode: *mut c_uint) => module::loading_mode;
    cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) => module::function_count;
    cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule) => module::functions;
    cuFuncGetName(name: *mut *const c_char, function: CUfunction) => function::name;
    cuFuncGetParamCount(function: CUfunction, count: *mut usize) => function::param_count;
    cuFuncGetParamInfo(
        function: CUfunction,
        at: usize,
        offset: *mut usize,
        size: *mut usize,
    ) => function::param_info;
    cuFuncIsLoaded(state: *mut c_uint, function: CUfunction) => function::is_loaded;
    cuFuncLoad(function: CUfunction) => function::load;
    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        dynamic_shared: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
    ) => launch::cooperative;
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        min_grid: *mut c_int,
        block_size: *mut c_int,
        function: CUfunction,
        dynamic_shared_of: CUoccupancyB2DSize,
        dynamic_shared: usize,
        limit: c_int,
        flags: c_uint,
    ) => occupancy::potential_block_size_with_flags;
    cuLibraryLoadData(
        library: *mut CUlibrary,
        image: *const c_void,
        jit_options: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) => library::load_data;
    cuLibraryLoadFromFile(
        library: *mut CUlibrary,
        file: *const c_char,
        jit_options: *mut c_uint,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        count: c_uint,
    ) => library::load_file;
    cuLibraryUnload(library: CUlibrary) => library::unload;
    cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) => library::get_kernel;
    cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) => library::kernel_count;
    cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary) => library::kernels;
    cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) => library::get_module;
    cuLibraryGetGlobal(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) => library::get_global;
    cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) => library::kernel_function;
    cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) => library::kernel_library;
    cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) => library::kernel_name;
    cuKernelGetAttribute(
        value: *mut c_int,
        attribute: c_uint,
        kernel: CUkernel,
        device: CUdevice,
    ) => library::kernel_get_attribute;
    cuKernelSetAttribute(
        attribute: c_uint,
        value: c_int,
        kernel: CUkernel,
        device: CUdevice,
    ) => library::kernel_set_attribute;
    cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, device: CUdevice) => library::kernel_set_cache_config;
    cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) => function::param_count;
    cuKernelGetParamInfo(
        kernel: CUkernel,
        at: usize,
        offset: *mut usize,
        size: *mut usize,
    ) => function::param_info;
}
