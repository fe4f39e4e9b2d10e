//! Modules, kernels and their attributes.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{function_attribute as attribute, *};
use std::ffi::{CStr, CString};
use std::io::Write as _;
use std::ptr::{null, null_mut, without_provenance_mut};

const ADD: &str = include_str!("ptx/add.ptx");

/// Loads with a log of a size; the code, and what the log says.
fn load_with_log(ptx: &str, room: usize) -> (u32, String) {
    let text = CString::new(ptx).expect("PTX has no zero bytes");
    let mut module = null_mut();
    let mut log = vec![b'?'; 512];
    let mut options = [
        99,
        jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        jit_option::ERROR_LOG_BUFFER,
    ];
    let mut values = [null_mut(), without_provenance_mut(room), log.as_mut_ptr().cast()];
    let code = code!(cuModuleLoadDataEx(
        &mut module,
        text.as_ptr().cast(),
        3,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    let written = values[1].addr();
    assert!(written <= room.saturating_sub(1));
    assert!(
        log[room..].iter().all(|&byte| byte == b'?'),
        "nothing is written past the buffer"
    );
    if room > 0 {
        assert_eq!(log[written], 0);
    }
    (code, String::from_utf8_lossy(&log[..written]).into_owned())
}

#[test]
fn ptx_that_cannot_be_read_is_refused_in_words() {
    let _context = Context::new();
    let bad = ADD.replace("add.rn.f32", "frobnicate.f32");
    let line = 1 + bad
        .lines()
        .position(|line| line.contains("frobnicate"))
        .expect("the line is there");
    let (code, words) = load_with_log(&bad, 512);
    assert_eq!(code, INVALID_PTX);
    assert!(
        words.contains("frobnicate") && words.contains(&line.to_string()),
        "{words}"
    );
    let (code, cut) = load_with_log(&bad, 10);
    assert_eq!((code, cut.as_str()), (INVALID_PTX, &words[..9]));
    assert_eq!(load_with_log(&bad, 1), (INVALID_PTX, String::new()));
    assert_eq!(load_with_log(&bad, 0), (INVALID_PTX, String::new()));
    assert_eq!(load_with_log(ADD, 512), (SUCCESS, String::new()));
}

#[test]
fn static_shared_memory_has_the_limit_that_ptxas_has() {
    let _context = Context::new();
    let with = |bytes: u32| ADD.replacen('{', &format!("{{ .shared .align 4 .b8 big[{bytes}];"), 1);
    assert_eq!(load_with_log(&with(49152), 512), (SUCCESS, String::new()));
    let (code, words) = load_with_log(&with(49153), 512);
    assert_eq!(code, INVALID_PTX);
    assert!(words.contains("49153"), "{words}");
}

#[test]
fn images_that_are_no_ptx_are_refused() {
    let _context = Context::new();
    let mut module = null_mut();
    let mut load = |image: &[u8]| code!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    assert_eq!(load(b"\x7fELF\x02\x01\x01\0"), NO_BINARY_FOR_GPU);
    assert_eq!(load(b"\x50\xED\x55\xBA\x01\0\x10\0"), NO_BINARY_FOR_GPU);
    assert_eq!(
        load(b"\x7fE\0"),
        INVALID_PTX,
        "the text ends there, and so does the reading"
    );
    assert_eq!(load(b".version 8.0 \xFF\xFE\0"), INVALID_PTX);
    assert_eq!(load(b"\0"), INVALID_PTX);
    assert_eq!(code!(cuModuleLoadData(null_mut(), ADD.as_ptr().cast())), INVALID_VALUE);
    assert_eq!(code!(cuModuleLoadData(&mut module, null())), INVALID_VALUE);
    assert_eq!(
        code!(cuModuleLoadDataEx(&mut module, null(), 2, null_mut(), null_mut())),
        INVALID_VALUE
    );
    assert_eq!(
        code!(cuModuleLoadFatBinary(&mut module, ADD.as_ptr().cast())),
        NO_BINARY_FOR_GPU
    );
}

#[test]
fn modules_load_from_files() {
    let _context = Context::new();
    let mut file = tempfile::NamedTempFile::new().expect("a file can be made");
    file.write_all(ADD.as_bytes()).expect("the file can be written");
    let path = CString::new(file.path().to_str().expect("its name is UTF-8")).expect("and has no zero byte");
    let module = handle!(cuModuleLoad(path.as_ptr()));
    assert!(!kernel(module, "add").is_null());
    let mut module = null_mut();
    assert_eq!(
        code!(cuModuleLoad(&mut module, c"/no/such/file.ptx".as_ptr())),
        FILE_NOT_FOUND
    );
    assert_eq!(code!(cuModuleLoad(&mut module, null())), INVALID_VALUE);
}

#[test]
fn kernels_are_found_by_name_and_go_with_their_module() {
    let context = Context::new();
    let module = load(ADD);
    let add = kernel(module, "add");
    assert_eq!(kernel(module, "add"), add, "a kernel has one handle");
    assert_eq!(handle!(cuFuncGetModule(add)), module);
    let mut out = null_mut();
    let look_up = |out: &mut CUfunction, module, name: &CStr| code!(cuModuleGetFunction(out, module, name.as_ptr()));
    assert_eq!(look_up(&mut out, module, c"sub"), NOT_FOUND);
    assert_eq!(look_up(&mut out, module, c"\xFF"), NOT_FOUND);
    assert_eq!(look_up(&mut out, add, c"add"), INVALID_HANDLE);
    assert_eq!(look_up(&mut out, null_mut(), c"add"), INVALID_HANDLE);
    assert_eq!(code!(cuModuleGetFunction(&mut out, module, null())), INVALID_VALUE);
    assert_eq!(
        code!(cuModuleGetFunction(null_mut(), module, c"add".as_ptr())),
        INVALID_VALUE
    );

    let other = Context::new();
    assert_eq!(
        look_up(&mut out, module, c"add"),
        INVALID_HANDLE,
        "it belongs to the other context"
    );
    assert_eq!(code!(cuModuleUnload(module)), INVALID_HANDLE);
    drop(other);
    ok!(cuCtxSetCurrent(context.0));

    ok!(cuModuleUnload(module));
    assert_eq!(code!(cuModuleUnload(module)), INVALID_HANDLE);
    assert_eq!(launch(&config(1, 32), add, &[]), INVALID_HANDLE);
    let mut value = 0;
    assert_eq!(
        code!(cuFuncGetAttribute(&mut value, attribute::NUM_REGS, add)),
        INVALID_HANDLE
    );
}

#[test]
fn variables_have_an_address_and_what_they_start_with() {
    let _context = Context::new();
    let module = load(&format!("{ADD}\n.global .align 4 .u32 table[3] = {{1, 2, 3}};\n"));
    let (mut address, mut bytes) = (0, 0);
    let look_up = |address: *mut u64, bytes: *mut usize, name: &CStr| {
        code!(cuModuleGetGlobal_v2(address, bytes, module, name.as_ptr()))
    };
    assert_eq!(look_up(&mut address, &mut bytes, c"table"), SUCCESS);
    assert_eq!(bytes, 12);
    assert_eq!(download::<u32>(address, 3), [1, 2, 3]);
    assert_eq!(
        look_up(&mut address, null_mut(), c"table"),
        SUCCESS,
        "one of the two may be left out"
    );
    assert_eq!(look_up(&mut address, &mut bytes, c"add"), NOT_FOUND, "that is a kernel");
    ok!(cuModuleUnload(module));
    let mut word = 0_u32;
    assert_eq!(
        code!(cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4)),
        INVALID_VALUE,
        "it went with its module"
    );
}

#[test]
fn attributes_are_told_and_set_within_their_limits() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let get = |which: u32| -> i32 { get!(cuFuncGetAttribute(which, add)) };
    let set = |which: u32, value: i32| code!(cuFuncSetAttribute(add, which, value));
    assert_eq!(get(attribute::MAX_THREADS_PER_BLOCK), 128, "what .maxntid says");
    assert_eq!(get(attribute::SHARED_SIZE_BYTES), 0);
    assert!((1..=255).contains(&get(attribute::NUM_REGS)));
    assert_eq!(get(attribute::BINARY_VERSION), 90);
    for (which, fine, wrong, first) in [
        (attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES, 232_448, 232_449, 49152),
        (attribute::PREFERRED_SHARED_MEMORY_CARVEOUT, 100, 101, -1),
        (attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, 2, 0),
        (attribute::CLUSTER_SIZE_MUST_BE_SET, 1, 2, 0),
        (attribute::REQUIRED_CLUSTER_WIDTH, 2, -1, 0),
        (attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE, 2, 3, 0),
    ] {
        assert_eq!(get(which), first, "attribute {which}");
        assert_eq!(set(which, wrong), INVALID_VALUE, "attribute {which}");
        assert_eq!(get(which), first, "attribute {which}");
        assert_eq!(set(which, fine), SUCCESS, "attribute {which}");
        assert_eq!(get(which), fine, "attribute {which}");
    }
    assert_eq!(set(attribute::NUM_REGS, 8), INVALID_VALUE, "this one is told, not set");
    assert_eq!(set(1000, 0), INVALID_VALUE);
    assert_eq!(
        code!(cuFuncSetAttribute(
            null_mut(),
            attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
            0
        )),
        INVALID_HANDLE
    );
    assert_eq!(
        code!(cuFuncGetAttribute(null_mut(), attribute::NUM_REGS, add)),
        INVALID_VALUE
    );
}

#[test]
fn occupancy_follows_threads_and_shared_memory() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let blocks = |threads: i32, shared: usize| -> i32 {
        get!(cuOccupancyMaxActiveBlocksPerMultiprocessor(add, threads, shared))
    };
    assert_eq!(blocks(128, 100 << 10), 2, "228 KiB hold two blocks of 101");
    assert_eq!(blocks(128, 227 << 10), 1);
    assert_eq!(blocks(128, 228 << 10), 0);
    assert_eq!(blocks(129, 0), 0, "more threads than .maxntid says");
    assert!(blocks(32, 0) >= blocks(128, 0));
    let mut out = 0;
    assert_eq!(
        code!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut out, add, 0, 0)),
        INVALID_VALUE
    );
    assert_eq!(
        code!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut out, null_mut(), 32, 0)),
        INVALID_HANDLE
    );

    let (mut grid, mut block) = (0, 0);
    ok!(cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, add, None, 0, 0));
    assert!((1..=128).contains(&block) && grid % 132 == 0 && grid > 0);
    let available: usize = get!(cuOccupancyAvailableDynamicSMemPerBlock(add, 2, 128));
    assert_eq!(blocks(128, available), 2);
    assert_eq!(blocks(128, available + 128), 1);

    let attributes = [CUlaunchAttribute::cluster([2, 1, 1])];
    let pairs = CUlaunchConfig {
        attrs: attributes.as_ptr(),
        numAttrs: 1,
        sharedMemBytes: 40 << 10,
        ..config(2, 128)
    };
    let clusters: i32 = get!(cuOccupancyMaxActiveClusters(add, &pairs));
    assert_eq!(clusters, 132 * blocks(128, 40 << 10) / 2);
    assert_eq!(get!(cuOccupancyMaxPotentialClusterSize(add, &pairs)), 8);
}

#[test]
fn clusters_are_counted_for_what_can_be_launched() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let attributes = |size: u32| [CUlaunchAttribute::cluster([size, 1, 1])];
    let count = |size: u32, shared: u32| {
        let attributes = attributes(size);
        let config = CUlaunchConfig {
            attrs: attributes.as_ptr(),
            numAttrs: 1,
            sharedMemBytes: shared,
            ..config(size, 128)
        };
        let mut clusters = -1;
        let code = code!(cuOccupancyMaxActiveClusters(&mut clusters, add, &config));
        (code, clusters)
    };
    ok!(cuFuncSetAttribute(
        add,
        attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
        227 << 10
    ));
    // One block on each SM, in GPCs of 16 and 18 SMs; then two.
    for (size, alone, pairs) in [(1, 132, 264), (2, 66, 132), (4, 32, 66), (8, 16, 32)] {
        assert_eq!(count(size, 227 << 10), (SUCCESS, alone), "clusters of {size}");
        assert_eq!(count(size, 113 << 10), (SUCCESS, pairs), "clusters of {size}");
    }
    assert_eq!(count(8, (227 << 10) + 1).0, INVALID_VALUE);
    assert_eq!(count(16, 0).0, INVALID_CLUSTER_SIZE);
    ok!(cuFuncSetAttribute(add, attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    assert_eq!(count(16, 227 << 10), (SUCCESS, 8));
    let mut clusters = 0;
    let bare = config(8, 128);
    for (to, config, why) in [
        (&raw mut clusters, std::ptr::null(), "no configuration"),
        (&raw mut clusters, &raw const bare, "no size of clusters"),
    ] {
        assert_eq!(
            code!(cuOccupancyMaxActiveClusters(to, add, config)),
            INVALID_VALUE,
            "{why}"
        );
    }
    let attributes = attributes(8);
    let eights = CUlaunchConfig {
        attrs: attributes.as_ptr(),
        numAttrs: 1,
        ..bare
    };
    assert_eq!(
        code!(cuOccupancyMaxActiveClusters(null_mut(), add, &eights)),
        INVALID_VALUE
    );
    assert_eq!(
        code!(cuOccupancyMaxActiveClusters(&mut clusters, null_mut(), &eights)),
        INVALID_HANDLE
    );
}
