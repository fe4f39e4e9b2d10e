//! Launches.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuLaunchKernel / cuLaunchKernel_ptsz(
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
        extra: *mut *mut c_void,
    ) => launch::kernel;
}
