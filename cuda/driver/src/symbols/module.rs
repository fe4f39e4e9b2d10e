//! Modules and their kernels and variables.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuModuleLoad(module: *mut CUmodule, file: *const c_char) => module::load_file;
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void) => module::load_data;
    cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) => module::load_data_ex;
    cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) => module::load_fat_binary;
    cuModuleUnload(module: CUmodule) => module::unload;
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) => module::get_function;
    cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) => module::get_global;
    cuLinkCreate_v2(
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
        state: *mut CUlinkState,
    ) => link::create;
    cuLinkAddData_v2(
        state: CUlinkState,
        kind: c_uint,
        data: *mut c_void,
        size: usize,
        name: *const c_char,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) => link::add_data;
    cuLinkComplete(state: CUlinkState, cubin: *mut *mut c_void, size: *mut usize) => link::complete;
    cuLinkDestroy(state: CUlinkState) => link::destroy;
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction) => function::get_attribute;
    cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) => function::set_attribute;
    cuFuncSetCacheConfig(function: CUfunction, config: c_uint) => function::set_cache_config;
    cuFuncSetSharedMemConfig(function: CUfunction, config: c_uint) => function::set_shared_config;
    cuFuncGetModule(module: *mut CUmodule, function: CUfunction) => function::module;
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        block_size: c_int,
        dynamic_shared: usize,
    ) => occupancy::blocks;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        function: CUfunction,
        block_size: c_int,
        dynamic_shared: usize,
        flags: c_uint,
    ) => occupancy::blocks_with_flags;
    cuOccupancyMaxPotentialBlockSize(
        min_grid: *mut c_int,
        block_size: *mut c_int,
        function: CUfunction,
        dynamic_shared_of: CUoccupancyB2DSize,
        dynamic_shared: usize,
        limit: c_int,
    ) => occupancy::potential_block_size;
    cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize,
        function: CUfunction,
        blocks: c_int,
        block_size: c_int,
    ) => occupancy::available_shared;
}
