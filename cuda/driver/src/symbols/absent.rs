//! Functions that neither `cust` nor any other caller known needs of the emulated driver, and that it does not have:
//! programs that name them link and load. An argument is a word here, be it a pointer or a number: that is how one is
//! passed.

use crate::table::driver_api;
use crate::types::*;

/// Lists functions by their arguments to [`driver_api`].
macro_rules! words {
    ($($arguments:tt: $($name:ident)*;)*) => {
        driver_api! { Ours: $($($name $arguments => unsupported;)*)*
            cuParamSetf(function: CUfunction, offset: c_int, value: f32) => unsupported;
            cuTexRefSetMipmapLevelBias(texture: *mut c_void, bias: f32) => unsupported;
            cuTexRefSetMipmapLevelClamp(texture: *mut c_void, least: f32, most: f32) => unsupported;
            cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcHandle) => unsupported;
            cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcHandle, flags: c_uint) => unsupported;
        }
    };
}

words! {
    (a: usize):
        cuDestroyExternalSemaphore cuGraphicsUnregisterResource cuGreenCtxDestroy cuIpcCloseMemHandle cuLaunch
        cuLogsUnregisterCallback cuMemRelease cuMipmappedArrayDestroy cuTexRefCreate cuTexRefDestroy;
    (a: usize, b: usize):
        cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState
        cuCheckpointProcessLock cuCheckpointProcessRestore cuCheckpointProcessUnlock cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArrayGetSparseProperties cuCtxFromGreenCtx cuCtxGetExecAffinity
        cuCtxRecordEvent cuCtxWaitEvent cuDeviceUnregisterAsyncNotification cuFlushGPUDirectRDMAWrites
        cuFuncSetSharedSize cuGetExportTable cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams
        cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams
        cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuGraphNodeSetParams
        cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceSetMapFlags_v2 cuGreenCtxGetId
        cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuImportExternalSemaphore cuIpcGetEventHandle cuIpcGetMemHandle
        cuLogsCurrent cuMemAddressFree cuMemGetAllocationPropertiesFromHandle cuMemPoolExportPointer
        cuMemRetainAllocationHandle cuMemUnmap cuMipmappedArrayGetSparseProperties cuMulticastAddDevice
        cuMulticastCreate cuParamSetSize cuStreamGetGreenCtx cuSurfRefGetArray cuTexObjectGetTextureDesc
        cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode cuTexRefGetFlags
        cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmappedArray
        cuTexRefSetBorderColor cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetMaxAnisotropy
        cuTexRefSetMipmapFilterMode;
    (a: usize, b: usize, c: usize):
        cuArrayGetMemoryRequirements cuArrayGetPlane cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal
        cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal cuCtxGetDevResource cuDevResourceGenerateDesc
        cuDeviceGetDevResource cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes cuExternalMemoryGetMappedMipmappedArray
        cuGraphExecBatchMemOpNodeSetParams cuGraphExecExternalSemaphoresSignalNodeSetParams
        cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecNodeSetParams
        cuGraphicsMapResources cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedPointer_v2
        cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz cuGreenCtxGetDevResource
        cuLaunchCooperativeKernelMultiDevice cuLaunchGrid cuLibraryGetUnifiedFunction cuLogsDumpToFile
        cuLogsRegisterCallback cuMemGetAccess cuMemGetAllocationGranularity cuMemGetDefaultMemPool cuMemGetMemPool
        cuMemImportFromShareableHandle cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPoolImportPointer
        cuMemSetMemPool cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
        cuModuleGetSurfRef cuModuleGetTexRef cuMulticastGetGranularity cuParamSetTexRef cuParamSeti
        cuProfilerInitialize cuSurfRefSetArray cuTexRefGetAddressMode cuTexRefGetFormat cuTexRefGetMipmapLevelClamp
        cuTexRefSetAddressMode cuTexRefSetArray cuTexRefSetFormat cuTexRefSetMipmappedArray;
    (a: usize, b: usize, c: usize, d: usize):
        cuDeviceGetHostAtomicCapabilities cuDeviceGetTexture1DLinearMaxWidth cuDeviceRegisterAsyncNotification
        cuFuncSetBlockShape cuGraphicsSubResourceGetMappedArray cuGreenCtxCreate
        cuGreenCtxStreamCreate cuLaunchGridAsync cuLibraryGetManaged cuLogsDumpToMemory cuMemCreate
        cuMemExportToShareableHandle cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle
        cuMemSetAccess cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz cuMemcpyAtoD_v2 cuMemcpyAtoD_v2_ptds
        cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds cuMulticastUnbind cuParamSetv cuSignalExternalSemaphoresAsync
        cuSignalExternalSemaphoresAsync_ptsz cuStreamBatchMemOp cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2
        cuStreamBatchMemOp_v2_ptsz cuStreamWaitValue32 cuStreamWaitValue32_ptsz cuStreamWaitValue32_v2
        cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64 cuStreamWaitValue64_ptsz cuStreamWaitValue64_v2
        cuStreamWaitValue64_v2_ptsz cuStreamWriteValue32 cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2
        cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64 cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2
        cuStreamWriteValue64_v2_ptsz cuTexRefSetAddress2D_v3 cuTexRefSetAddress_v2 cuWaitExternalSemaphoresAsync
        cuWaitExternalSemaphoresAsync_ptsz;
    (a: usize, b: usize, c: usize, d: usize, e: usize):
        cuDeviceGetP2PAtomicCapabilities cuGraphAddBatchMemOpNode cuGraphAddExternalSemaphoresSignalNode
        cuGraphAddExternalSemaphoresWaitNode cuGraphAddNode cuGraphConditionalHandleCreate cuMemAddressReserve
        cuMemBatchDecompressAsync cuMemBatchDecompressAsync_ptsz cuMemDiscardBatchAsync
        cuMemDiscardBatchAsync_ptsz cuMemGetHandleForAddressRange cuMemMap cuMemRangeGetAttribute
        cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds cuMemcpyAtoHAsync_v2
        cuMemcpyAtoHAsync_v2_ptsz cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz cuMulticastBindAddr;
    (a: usize, b: usize, c: usize, d: usize, e: usize, f: usize):
        cuDevSmResourceSplitByCount cuGraphAddNode_v2 cuMemRangeGetAttributes cuMulticastBindMem;
    (a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize):
        cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz cuMemPrefetchBatchAsync
        cuMemPrefetchBatchAsync_ptsz cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz;
    (a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize):
        cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz;
    (a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize, j: usize, k: usize, l: usize, m: usize, n: usize, o: usize, p: usize):
        cuTensorMapEncodeIm2colWide;
}
