//! Memory in a stream's order: pools, and memory of graphs.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{graph_mem_attribute, mem_pool_attribute as attribute, *};
use std::ptr::{null, null_mut};

fn number(pool: CUmemoryPool, which: u32) -> u64 {
    let mut value = 0_u64;
    ok!(cuMemPoolGetAttribute(pool, which, (&raw mut value).cast()));
    value
}

fn properties() -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: 1,
        handleTypes: 0,
        location: CUmemLocation {
            r#type: mem_location::DEVICE,
            id: 0,
        },
        win32SecurityAttributes: null_mut(),
        maxSize: 0,
        reserved: [0; 56],
    }
}

#[test]
fn pools_count_what_is_allocated_from_them() {
    let _context = Context::new();
    let pool = handle!(cuMemPoolCreate(&properties()));
    let address: CUdeviceptr = get!(cuMemAllocFromPoolAsync(1000, pool, null_mut()));
    assert_eq!(number(pool, attribute::USED_MEM_CURRENT), 1000);
    let mut of = null_mut::<c_void>();
    ok!(cuPointerGetAttribute(
        (&raw mut of).cast(),
        pointer_attribute::MEMPOOL_HANDLE,
        address
    ));
    assert_eq!(of, pool);
    ok!(cuMemFreeAsync(address, null_mut()));
    assert_eq!(
        (
            number(pool, attribute::USED_MEM_CURRENT),
            number(pool, attribute::USED_MEM_HIGH)
        ),
        (0, 1000)
    );
    let mut threshold = u64::MAX;
    ok!(cuMemPoolSetAttribute(
        pool,
        attribute::RELEASE_THRESHOLD,
        (&raw mut threshold).cast()
    ));
    assert_eq!(number(pool, attribute::RELEASE_THRESHOLD), u64::MAX);
    ok!(cuMemPoolTrimTo(pool, 0));
    let mut access = CUmemAccessDesc {
        location: properties().location,
        flags: 3,
    };
    ok!(cuMemPoolSetAccess(pool, &access, 1));
    let mut flags = 0;
    ok!(cuMemPoolGetAccess(&mut flags, pool, &mut access.location));
    assert_eq!(flags, 3);
    access.flags = 0;
    assert_eq!(code!(cuMemPoolSetAccess(pool, &access, 1)), INVALID_VALUE);
    ok!(cuMemPoolDestroy(pool));
    assert_eq!(code!(cuMemPoolDestroy(pool)), INVALID_VALUE);
    let mut out = 0;
    assert_eq!(
        code!(cuMemAllocFromPoolAsync(&mut out, 16, pool, null_mut())),
        INVALID_VALUE
    );
}

#[test]
fn the_device_has_a_pool_and_takes_another() {
    let _context = Context::new();
    let first = handle!(cuDeviceGetDefaultMemPool(0));
    assert_eq!(code!(cuMemPoolDestroy(first)), INVALID_VALUE, "the device's own");
    let mut wrong = properties();
    wrong.handleTypes = 1;
    let mut out = null_mut();
    assert_eq!(code!(cuMemPoolCreate(&mut out, &wrong)), NOT_SUPPORTED);
    wrong.allocType = 0;
    assert_eq!(code!(cuMemPoolCreate(&mut out, &wrong)), INVALID_VALUE);
    assert_eq!(code!(cuMemPoolCreate(&mut out, null())), INVALID_VALUE);
    let mine = handle!(cuMemPoolCreate(&properties()));
    ok!(cuDeviceSetMemPool(0, mine));
    assert_eq!(handle!(cuDeviceGetMemPool(0)), mine);
    ok!(cuMemPoolDestroy(mine));
    assert_eq!(handle!(cuDeviceGetMemPool(0)), first);
    assert_eq!(code!(cuDeviceGetMemPool(&mut out, 1)), INVALID_DEVICE);
    let mut reuse = 9_i32;
    ok!(cuMemPoolGetAttribute(
        first,
        attribute::REUSE_ALLOW_OPPORTUNISTIC,
        (&raw mut reuse).cast()
    ));
    assert_eq!(reuse, 1);
    assert_eq!(
        code!(cuMemPoolGetAttribute(first, 99, (&raw mut reuse).cast())),
        INVALID_VALUE
    );
}

/// Memory that lives in a graph alone: filled, copied out and freed.
#[test]
fn a_graph_allocates_and_frees() {
    let _context = Context::new();
    let (stream, out) = (stream(), upload(&[0_u32; 4]));
    let mut address = 0;
    let graph = capture(stream, || {
        ok!(cuMemAllocAsync(&mut address, 16, stream));
        ok!(cuMemsetD32Async(address, 5, 4, stream));
        ok!(cuMemcpyDtoDAsync_v2(out, address, 16, stream));
        ok!(cuMemFreeAsync(address, stream));
    });
    assert_eq!(
        nodes(graph).into_iter().map(node_kind).collect::<Vec<_>>(),
        [10, 2, 1, 11]
    );
    assert_eq!(
        code!(cuMemsetD32_v2(address, 1, 4)),
        INVALID_VALUE,
        "it is not there yet"
    );
    let exec = executable(graph);
    (0..2).for_each(|_| ok!(cuGraphLaunch(exec, stream)));
    assert_eq!(download::<u32>(out, 4), [5; 4]);
    assert_eq!(
        code!(cuMemsetD32_v2(address, 1, 4)),
        INVALID_VALUE,
        "it is not there any more"
    );
}

#[test]
fn memory_of_a_graph_can_outlive_its_launch() {
    let _context = Context::new();
    let (stream, graph) = (stream(), handle!(cuGraphCreate(0)));
    let mut parameters = CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: properties(),
        accessDescs: null(),
        accessDescCount: 0,
        bytesize: 64,
        dptr: 0,
    };
    let node = handle!(cuGraphAddMemAllocNode(graph, null(), 0, &mut parameters));
    let address = parameters.dptr;
    let mut told = parameters;
    ok!(cuGraphMemAllocNodeGetParams(node, &mut told));
    assert_eq!((told.dptr, told.bytesize), (address, 64));
    let mut clone = null_mut();
    assert_eq!(code!(cuGraphClone(&mut clone, graph)), NOT_SUPPORTED);
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuMemsetD8_v2(address, 3, 64));
    assert_eq!(
        code!(cuGraphLaunch(exec, stream)),
        INVALID_VALUE,
        "the memory is still there"
    );
    let mut used = 0_u64;
    ok!(cuDeviceGetGraphMemAttribute(
        0,
        graph_mem_attribute::USED_MEM_HIGH,
        (&raw mut used).cast()
    ));
    assert!(used >= 64);
    ok!(cuMemFreeAsync(address, stream));
    ok!(cuGraphLaunch(exec, stream));
    assert_eq!(download::<u8>(address, 64), [0; 64], "fresh memory");
    let auto_free = handle!(cuGraphInstantiateWithFlags(graph, 1));
    ok!(cuGraphLaunch(auto_free, stream));
    ok!(cuGraphLaunch(auto_free, stream));
    let free = handle!(cuGraphAddMemFreeNode(graph, &node, 1, address));
    let mut freed = 0;
    ok!(cuGraphMemFreeNodeGetParams(free, &mut freed));
    assert_eq!(freed, address);
    ok!(cuMemFree_v2(address));
    let exec = executable(graph);
    (0..3).for_each(|_| ok!(cuGraphLaunch(exec, stream)));
    assert_eq!(code!(cuMemFree_v2(address)), INVALID_VALUE, "the graph has freed it");
    let mut out = null_mut();
    assert_eq!(
        code!(cuGraphAddMemFreeNode(&mut out, graph, null(), 0, 16)),
        INVALID_VALUE
    );
    ok!(cuDeviceGraphMemTrim(0));
}
