//! CUDA's result codes: number, name, words, and how far `cust` can tell it from others.

use crate::types::CUresult;
use std::cell::Cell;
use std::ffi::CStr;

/// A result code other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code(pub(crate) CUresult);

/// What an emulated call answers.
pub(crate) type Answer<T = ()> = Result<T, Code>;

/// The number that a C caller sees.
pub(crate) fn number(answer: Answer) -> CUresult {
    answer.map_or_else(|code| code.0, |()| 0)
}

/// How far `cust` knows a code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// Not at all: it is newer than CUDA 11.4.
    Nowhere,
    /// Its bindings have a variant for it, which its own `CudaError` merges with others as unknown.
    InBindings,
    /// Both have one.
    InErrors,
}

struct Row {
    number: CUresult,
    name: &'static CStr,
    words: &'static CStr,
    known: Known,
}

macro_rules! codes {
    ($($number:literal $name:literal $words:literal $known:ident $(as $short:ident)?;)*) => {
        const ROWS: &[Row] = &[$(Row { number: $number, name: $name, words: $words, known: codes!(@$known) }),*];
        impl Code {
            $($(pub(crate) const $short: Code = Code($number);)?)*
        }
    };
    (@cust) => { Known::InErrors };
    (@bindings) => { Known::InBindings };
    (@newer) => { Known::Nowhere };
}

codes! {
    0 c"CUDA_SUCCESS" c"no error" cust;
    1 c"CUDA_ERROR_INVALID_VALUE" c"invalid argument" cust as INVALID_VALUE;
    2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory" cust as OUT_OF_MEMORY;
    3 c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error" cust as NOT_INITIALIZED;
    4 c"CUDA_ERROR_DEINITIALIZED" c"driver shutting down" cust;
    5 c"CUDA_ERROR_PROFILER_DISABLED" c"profiler disabled while using external profiling tool" cust;
    6 c"CUDA_ERROR_PROFILER_NOT_INITIALIZED" c"profiler not initialized: call cudaProfilerInitialize()" cust;
    7 c"CUDA_ERROR_PROFILER_ALREADY_STARTED" c"profiler already started" cust;
    8 c"CUDA_ERROR_PROFILER_ALREADY_STOPPED" c"profiler already stopped" cust;
    34 c"CUDA_ERROR_STUB_LIBRARY" c"CUDA driver is a stub library" bindings;
    36 c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER" c"API call is not supported in the installed CUDA driver" newer;
    46 c"CUDA_ERROR_DEVICE_UNAVAILABLE" c"CUDA-capable device(s) is/are busy or unavailable" newer;
    47 c"CUDA_ERROR_MULTICAST_RESOURCE_FULL" c"out of multicast resources" newer;
    100 c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected" cust as NO_DEVICE;
    101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal" cust as INVALID_DEVICE;
    102 c"CUDA_ERROR_DEVICE_NOT_LICENSED" c"device doesn't have valid Grid license" bindings;
    200 c"CUDA_ERROR_INVALID_IMAGE" c"device kernel image is invalid" cust;
    201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context" cust as INVALID_CONTEXT;
    202 c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT" c"context already current" cust;
    205 c"CUDA_ERROR_MAP_FAILED" c"mapping of buffer object failed" cust;
    206 c"CUDA_ERROR_UNMAP_FAILED" c"unmapping of buffer object failed" cust;
    207 c"CUDA_ERROR_ARRAY_IS_MAPPED" c"array is mapped" cust;
    208 c"CUDA_ERROR_ALREADY_MAPPED" c"resource already mapped" cust;
    209 c"CUDA_ERROR_NO_BINARY_FOR_GPU" c"no kernel image is available for execution on the device" cust as NO_BINARY_FOR_GPU;
    210 c"CUDA_ERROR_ALREADY_ACQUIRED" c"resource already acquired" cust;
    211 c"CUDA_ERROR_NOT_MAPPED" c"resource not mapped" cust;
    212 c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY" c"resource not mapped as array" cust;
    213 c"CUDA_ERROR_NOT_MAPPED_AS_POINTER" c"resource not mapped as pointer" cust;
    214 c"CUDA_ERROR_ECC_UNCORRECTABLE" c"uncorrectable ECC error encountered" cust;
    215 c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"limit is not supported on this architecture" cust as UNSUPPORTED_LIMIT;
    216 c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE" c"exclusive-thread device already in use by a different thread" cust;
    217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"peer access is not supported between these two devices" cust as PEER_ACCESS_UNSUPPORTED;
    218 c"CUDA_ERROR_INVALID_PTX" c"a PTX JIT compilation failed" cust as INVALID_PTX;
    219 c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT" c"invalid OpenGL or DirectX context" cust;
    220 c"CUDA_ERROR_NVLINK_UNCORRECTABLE" c"uncorrectable NVLink error detected during the execution" cust;
    221 c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND" c"PTX JIT compiler library not found" bindings;
    222 c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION" c"the provided PTX was compiled with an unsupported toolchain." bindings;
    223 c"CUDA_ERROR_JIT_COMPILATION_DISABLED" c"PTX JIT compilation was disabled" bindings;
    224 c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY" c"the provided execution affinity is not supported" bindings as UNSUPPORTED_EXEC_AFFINITY;
    225 c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC" c"the provided PTX contains unsupported call to cudaDeviceSynchronize" newer;
    226 c"CUDA_ERROR_CONTAINED" c"Invalid resource handle" newer;
    227 c"CUDA_ERROR_INSUFFICIENT_LOADER_VERSION" c"the version of the loader is too old for this library" newer;
    300 c"CUDA_ERROR_INVALID_SOURCE" c"device kernel image is invalid" cust;
    301 c"CUDA_ERROR_FILE_NOT_FOUND" c"file not found" cust as FILE_NOT_FOUND;
    302 c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND" c"shared object symbol not found" cust;
    303 c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED" c"shared object initialization failed" cust;
    304 c"CUDA_ERROR_OPERATING_SYSTEM" c"OS call failed or operation not supported on this OS" cust as OPERATING_SYSTEM;
    400 c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle" cust as INVALID_HANDLE;
    401 c"CUDA_ERROR_ILLEGAL_STATE" c"the operation cannot be performed in the present state" bindings as ILLEGAL_STATE;
    402 c"CUDA_ERROR_LOSSY_QUERY" c"attempted introspection would be semantically lossy" newer as LOSSY_QUERY;
    500 c"CUDA_ERROR_NOT_FOUND" c"named symbol not found" cust as NOT_FOUND;
    600 c"CUDA_ERROR_NOT_READY" c"device not ready" cust as NOT_READY;
    700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered" cust as ILLEGAL_ADDRESS;
    701 c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" c"too many resources requested for launch" cust;
    702 c"CUDA_ERROR_LAUNCH_TIMEOUT" c"the launch timed out and was terminated" cust as LAUNCH_TIMEOUT;
    703 c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING" c"launch uses incompatible texturing mode" cust;
    704 c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" c"peer access is already enabled" cust;
    705 c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" c"peer access has not been enabled" cust as PEER_ACCESS_NOT_ENABLED;
    708 c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" c"cannot set while device is active in this process" cust;
    709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed" cust as CONTEXT_IS_DESTROYED;
    710 c"CUDA_ERROR_ASSERT" c"device-side assert triggered" cust;
    711 c"CUDA_ERROR_TOO_MANY_PEERS" c"peer mapping resources exhausted" cust;
    712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"part or all of the requested memory range is already mapped" cust as HOST_MEMORY_ALREADY_REGISTERED;
    713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"pointer does not correspond to a registered memory region" cust as HOST_MEMORY_NOT_REGISTERED;
    714 c"CUDA_ERROR_HARDWARE_STACK_ERROR" c"hardware stack error" cust;
    715 c"CUDA_ERROR_ILLEGAL_INSTRUCTION" c"an illegal instruction was encountered" cust;
    716 c"CUDA_ERROR_MISALIGNED_ADDRESS" c"misaligned address" cust as MISALIGNED_ADDRESS;
    717 c"CUDA_ERROR_INVALID_ADDRESS_SPACE" c"operation not supported on global/shared address space" cust;
    718 c"CUDA_ERROR_INVALID_PC" c"invalid program counter" cust;
    719 c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure" cust as LAUNCH_FAILED;
    720 c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" c"too many blocks in cooperative launch" bindings as COOPERATIVE_LAUNCH_TOO_LARGE;
    721 c"CUDA_ERROR_TENSOR_MEMORY_LEAK" c"tensor memory not completely freed" newer;
    800 c"CUDA_ERROR_NOT_PERMITTED" c"operation not permitted" cust as NOT_PERMITTED;
    801 c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported" cust as NOT_SUPPORTED;
    802 c"CUDA_ERROR_SYSTEM_NOT_READY" c"system not yet initialized" bindings;
    803 c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" c"system has unsupported display driver / cuda driver combination" bindings;
    804 c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" c"forward compatibility was attempted on non supported HW" bindings;
    805 c"CUDA_ERROR_MPS_CONNECTION_FAILED" c"MPS client failed to connect to the MPS control daemon or the MPS server" bindings;
    806 c"CUDA_ERROR_MPS_RPC_FAILURE" c"the remote procedural call between the MPS server and the MPS client failed" bindings;
    807 c"CUDA_ERROR_MPS_SERVER_NOT_READY" c"MPS server is not ready to accept new MPS client requests" bindings;
    808 c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED" c"the hardware resources required to create MPS client have been exhausted" bindings;
    809 c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED" c"the hardware resources required to support device connections have been exhausted" bindings;
    810 c"CUDA_ERROR_MPS_CLIENT_TERMINATED" c"the MPS client has been terminated by the server" newer;
    811 c"CUDA_ERROR_CDP_NOT_SUPPORTED" c"is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it" newer;
    812 c"CUDA_ERROR_CDP_VERSION_MISMATCH" c"unsupported interaction between different versions of CUDA Dynamic Parallelism" newer;
    900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"operation not permitted when stream is capturing" bindings as STREAM_CAPTURE_UNSUPPORTED;
    901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"operation failed due to a previous error during capture" bindings as STREAM_CAPTURE_INVALIDATED;
    902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE" c"operation would result in a merge of separate capture sequences" bindings as STREAM_CAPTURE_MERGE;
    903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" c"capture was not ended in the same stream as it began" bindings as STREAM_CAPTURE_UNMATCHED;
    904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"capturing stream has unjoined work" bindings as STREAM_CAPTURE_UNJOINED;
    905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"dependency created on uncaptured work in another stream" bindings as STREAM_CAPTURE_ISOLATION;
    906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"operation would make the legacy stream depend on a capturing blocking stream" bindings as STREAM_CAPTURE_IMPLICIT;
    907 c"CUDA_ERROR_CAPTURED_EVENT" c"operation not permitted on an event last recorded in a capturing stream" bindings as CAPTURED_EVENT;
    908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" c"attempt to terminate a thread-local capture sequence from another thread" bindings as STREAM_CAPTURE_WRONG_THREAD;
    909 c"CUDA_ERROR_TIMEOUT" c"wait operation timed out" bindings;
    910 c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE" c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update" bindings as GRAPH_EXEC_UPDATE_FAILURE;
    911 c"CUDA_ERROR_EXTERNAL_DEVICE" c"an async error has occured in external entity outside of CUDA" bindings;
    912 c"CUDA_ERROR_INVALID_CLUSTER_SIZE" c"a kernel launch error has occurred due to cluster misconfiguration" newer as INVALID_CLUSTER_SIZE;
    913 c"CUDA_ERROR_FUNCTION_NOT_LOADED" c"the function is not loaded" newer;
    914 c"CUDA_ERROR_INVALID_RESOURCE_TYPE" c"invalid resource type" newer;
    915 c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" c"invalid resource configuration" newer;
    916 c"CUDA_ERROR_KEY_ROTATION" c"a key rotation has interrupted the operation" newer;
    917 c"CUDA_ERROR_STREAM_DETACHED" c"the stream has been detached from its context" newer;
    999 c"CUDA_ERROR_UNKNOWN" c"unknown error" cust as UNKNOWN;
}

fn row(number: CUresult) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.number == number)
}

/// The name of a code, as `cuGetErrorName` gives it.
pub(crate) fn name(number: CUresult) -> Option<&'static CStr> {
    row(number).map(|row| row.name)
}

/// What a code means, as `cuGetErrorString` gives it.
pub(crate) fn words(number: CUresult) -> Option<&'static CStr> {
    row(number).map(|row| row.words)
}

/// A code in full: its words, its name and its number.
pub(crate) fn describe(number: CUresult) -> String {
    match row(number) {
        Some(row) => format!(
            "{} ({}, {number})",
            row.words.to_string_lossy(),
            row.name.to_string_lossy()
        ),
        None => format!("a code that this version does not know ({number})"),
    }
}

/// What a code means, in CUDA's words, where the driver in use does not know it: drivers know no code that is newer
/// than they are, and where none is in use there is none to ask.
pub fn meaning(code: u32) -> Option<&'static str> {
    words(code)?.to_str().ok()
}

thread_local! {
    static BEHIND_UNKNOWN: Cell<CUresult> = const { Cell::new(0) };
}

/// The code that the calling thread's last failure answered which `cust` tells as `UnknownError`, 999; 0 where it has
/// had none. `cust` has a name for few codes, and 999 stands for all others: this is the one that the driver gave.
pub fn behind_unknown() -> u32 {
    BEHIND_UNKNOWN.get()
}

/// The code itself where `cust`'s `CUresult` has a variant for it, else 999: `cust` declares its functions as returning
/// a Rust `enum`, for which any other number is undefined behaviour.
pub(crate) fn for_cust(number: CUresult) -> CUresult {
    match number {
        0 => 0,
        _ if known(number) >= Known::InBindings => number,
        _ => Code::UNKNOWN.0,
    }
}

/// Keeps a code that `cust` cannot tell from others, for [`behind_unknown`]. 999 itself is one.
pub(crate) fn keep(number: CUresult) {
    if number == Code::UNKNOWN.0 || (number != 0 && known(number) < Known::InErrors) {
        BEHIND_UNKNOWN.set(number);
    }
}

fn known(number: CUresult) -> Known {
    row(number).map_or(Known::Nowhere, |row| row.known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(ROWS.windows(2).all(|pair| pair[0].number < pair[1].number));
    }

    #[test]
    fn codes_that_cust_merges_are_kept() {
        for (given, kept) in [
            (46, 46),
            (2, 46),
            (0, 46),
            (802, 802),
            (719, 802),
            (999, 999),
            (12345, 12345),
            (1, 12345),
        ] {
            keep(given);
            assert_eq!(behind_unknown(), kept, "after code {given}");
        }
        assert_eq!(std::thread::spawn(behind_unknown).join().ok(), Some(0));
    }

    #[test]
    fn codes_that_cust_lacks_become_unknown() {
        for (given, seen) in [
            (0, 0),
            (1, 1),
            (801, 801),
            (719, 719),
            (911, 911),
            (46, 999),
            (912, 999),
            (12345, 999),
        ] {
            assert_eq!(for_cust(given), seen, "code {given}");
        }
    }
}
