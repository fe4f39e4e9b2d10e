//! Functions that `cust`'s bindings (CUDA 11.4) lack: launches with attributes, occupancy of clusters, tensor maps.
//! Their callers see every result code as it is.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Ours:
    cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: *const CUlaunchConfig,
        function: CUfunction,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) => launch::kernel_ex;
    cuOccupancyMaxActiveClusters(
        clusters: *mut c_int,
        function: CUfunction,
        config: *const CUlaunchConfig,
    ) => occupancy::clusters;
    cuOccupancyMaxPotentialClusterSize(
        size: *mut c_int,
        function: CUfunction,
        config: *const CUlaunchConfig,
    ) => occupancy::potential_cluster_size;
    cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        data_type: c_uint,
        rank: c_uint,
        address: *mut c_void,
        dimensions: *const u64,
        strides: *const u64,
        box_dimensions: *const c_uint,
        element_strides: *const c_uint,
        interleave: c_uint,
        swizzle: c_uint,
        l2_promotion: c_uint,
        out_of_bounds_fill: c_uint,
    ) => tensor_map::encode_tiled;
    cuTensorMapEncodeIm2col(
        map: *mut CUtensorMap,
        data_type: c_uint,
        rank: c_uint,
        address: *mut c_void,
        dimensions: *const u64,
        strides: *const u64,
        lower_corner: *const c_int,
        upper_corner: *const c_int,
        channels_per_pixel: c_uint,
        pixels_per_column: c_uint,
        element_strides: *const c_uint,
        interleave: c_uint,
        swizzle: c_uint,
        l2_promotion: c_uint,
        out_of_bounds_fill: c_uint,
    ) => unsupported;
    cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void) => tensor_map::replace_address;
}
