//! Launches that run, and launches that are refused before they do.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::emulated;
use hopper_cuda_driver::ffi::{function_attribute as attribute, *};
use std::ptr::{null, null_mut, without_provenance_mut};

const ADD: &str = include_str!("ptx/add.ptx");

/// Operands of `add` for `n` elements: the first is `i`, the second `2 i`.
struct Operands {
    a: CUdeviceptr,
    b: CUdeviceptr,
    out: CUdeviceptr,
    n: u32,
}

impl Operands {
    fn new(n: u32) -> Operands {
        let scaled = |by: u32| upload(&(0..n).map(|i| (i * by) as f32).collect::<Vec<_>>());
        let out = get!(cuMemAlloc_v2(4 * n as usize));
        Operands {
            a: scaled(1),
            b: scaled(2),
            out,
            n,
        }
    }

    fn parameters(&self) -> [*const c_void; 4] {
        [
            parameter(&self.a),
            parameter(&self.b),
            parameter(&self.out),
            parameter(&self.n),
        ]
    }

    fn check(&self) {
        let expected: Vec<f32> = (0..self.n).map(|i| (3 * i) as f32).collect();
        assert_eq!(download::<f32>(self.out, self.n as usize), expected);
    }
}

#[test]
fn a_kernel_computes_what_it_says() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let operands = Operands::new(1000);
    assert_eq!(launch(&config(8, 128), add, &operands.parameters()), SUCCESS);
    ok!(cuCtxSynchronize());
    operands.check();
}

#[test]
fn parameters_can_come_as_one_buffer() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let operands = Operands::new(100);
    let mut buffer = [0_u8; 28];
    for (at, address) in [operands.a, operands.b, operands.out].into_iter().enumerate() {
        buffer[8 * at..8 * at + 8].copy_from_slice(&address.to_ne_bytes());
    }
    buffer[24..].copy_from_slice(&operands.n.to_ne_bytes());
    let launch = |mut size: usize| {
        let mut extra = [
            without_provenance_mut(1),
            buffer.as_ptr().cast_mut().cast(),
            without_provenance_mut(2),
            (&raw mut size).cast(),
            null_mut(),
        ];
        code!(cuLaunchKernel(
            add,
            1,
            1,
            1,
            128,
            1,
            1,
            0,
            null_mut(),
            null_mut(),
            extra.as_mut_ptr()
        ))
    };
    assert_eq!(launch(27), INVALID_VALUE);
    assert_eq!(launch(28), SUCCESS);
    operands.check();
    let mut unknown = [without_provenance_mut(3), null_mut::<c_void>(), null_mut()];
    let mut pointers = operands.parameters().map(<*const c_void>::cast_mut);
    let refused = |parameters: *mut *mut c_void, extra: *mut *mut c_void| {
        code!(cuLaunchKernel(
            add,
            1,
            1,
            1,
            128,
            1,
            1,
            0,
            null_mut(),
            parameters,
            extra
        ))
    };
    assert_eq!(refused(null_mut(), unknown.as_mut_ptr()), INVALID_VALUE);
    assert_eq!(
        refused(pointers.as_mut_ptr(), unknown.as_mut_ptr()),
        INVALID_VALUE,
        "both ways at once"
    );
    assert_eq!(refused(null_mut(), null_mut()), INVALID_VALUE, "neither");
    pointers[2] = null_mut();
    assert_eq!(refused(pointers.as_mut_ptr(), null_mut()), INVALID_VALUE);
}

#[test]
fn launches_that_break_a_limit_are_refused() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let free = kernel_of(CHAIN, "ranks");
    let operands = Operands::new(1);
    let parameters = operands.parameters();
    let fine = config(1, 32);
    for (what, config, function) in [
        ("no blocks", config(0, 32), add),
        ("no threads", config(1, 0), add),
        (
            "grid too high",
            CUlaunchConfig {
                gridDimY: 65536,
                ..fine
            },
            add,
        ),
        (
            "grid too deep",
            CUlaunchConfig {
                gridDimZ: 65536,
                ..fine
            },
            add,
        ),
        ("grid too wide", config(1 << 31, 32), add),
        ("more threads than .maxntid", config(1, 129), add),
        ("more threads than a block can have", config(1, 1025), free),
        (
            "block too deep",
            CUlaunchConfig {
                blockDimX: 1,
                blockDimZ: 65,
                ..fine
            },
            free,
        ),
        (
            "a product past 32 bits",
            CUlaunchConfig {
                blockDimX: 1024,
                blockDimY: 1024,
                blockDimZ: 64,
                ..fine
            },
            free,
        ),
        (
            "more shared memory than by default",
            CUlaunchConfig {
                sharedMemBytes: 49153,
                ..fine
            },
            add,
        ),
    ] {
        assert_eq!(launch(&config, function, &parameters), INVALID_VALUE, "{what}");
    }
    ok!(cuFuncSetAttribute(
        add,
        attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
        232_448
    ));
    assert_eq!(
        launch(
            &CUlaunchConfig {
                sharedMemBytes: 232_449,
                ..fine
            },
            add,
            &parameters
        ),
        INVALID_VALUE
    );
    assert_eq!(
        launch(
            &CUlaunchConfig {
                sharedMemBytes: 232_448,
                ..fine
            },
            add,
            &parameters
        ),
        SUCCESS
    );
    assert_eq!(
        code!(cuLaunchKernelEx(null(), add, null_mut(), null_mut())),
        INVALID_VALUE
    );
    for wrong in [null_mut(), handle!(cuStreamCreate(0))] {
        assert_eq!(launch(&fine, wrong, &parameters), INVALID_HANDLE);
    }
    let elsewhere = CUlaunchConfig { hStream: add, ..fine };
    assert_eq!(
        launch(&elsewhere, add, &parameters),
        INVALID_HANDLE,
        "that is no stream"
    );
    ok!(cuCtxSynchronize());
}

/// Launches with attributes.
fn launch_with(attributes: &[CUlaunchAttribute], grid: u32, function: CUfunction, buffer: CUdeviceptr) -> u32 {
    let config = CUlaunchConfig {
        attrs: attributes.as_ptr(),
        numAttrs: attributes.len() as u32,
        ..config(grid, 32)
    };
    launch(&config, function, &[parameter(&buffer)])
}

#[test]
fn clusters_are_launched_as_asked() {
    let _context = Context::new();
    let module = load(CHAIN);
    let (ranks, pairs) = (kernel(module, "ranks"), kernel(module, "pairs"));
    let buffer = upload(&[0_u32; 32]);
    let cluster = |x, y, z| [CUlaunchAttribute::cluster([x, y, z])];
    assert_eq!(launch_with(&[], 4, ranks, buffer), SUCCESS);
    assert_eq!(download::<u32>(buffer, 4), [100; 4]);
    assert_eq!(launch_with(&cluster(4, 1, 1), 8, ranks, buffer), SUCCESS);
    assert_eq!(download::<u32>(buffer, 8), [400, 401, 402, 403, 400, 401, 402, 403]);
    assert_eq!(
        launch_with(&[], 4, pairs, buffer),
        SUCCESS,
        "what the kernel requires is understood"
    );
    assert_eq!(download::<u32>(buffer, 4), [200, 201, 200, 201]);

    assert_eq!(
        launch_with(&cluster(3, 1, 1), 4, ranks, buffer),
        INVALID_CLUSTER_SIZE,
        "3 does not divide 4"
    );
    assert_eq!(
        launch_with(&cluster(1, 2, 1), 4, ranks, buffer),
        INVALID_CLUSTER_SIZE,
        "2 does not divide 1"
    );
    assert_eq!(launch_with(&cluster(0, 1, 1), 4, ranks, buffer), INVALID_CLUSTER_SIZE);
    assert_eq!(
        launch_with(&cluster(4, 1, 1), 4, pairs, buffer),
        INVALID_CLUSTER_SIZE,
        "it requires 2"
    );
    assert_eq!(launch_with(&[], 3, pairs, buffer), INVALID_CLUSTER_SIZE);
    assert_eq!(
        launch_with(&cluster(16, 1, 1), 32, ranks, buffer),
        INVALID_CLUSTER_SIZE,
        "8 is portable"
    );
    ok!(cuFuncSetAttribute(
        ranks,
        attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
        1
    ));
    assert_eq!(launch_with(&cluster(16, 1, 1), 32, ranks, buffer), SUCCESS);
    assert_eq!(download::<u32>(buffer, 32)[31], 1615);
    assert_eq!(launch_with(&cluster(32, 1, 1), 32, ranks, buffer), INVALID_CLUSTER_SIZE);

    let mut parameters = [parameter(&buffer).cast_mut()];
    let through_cust = code!(cuLaunchKernel(
        pairs,
        3,
        1,
        1,
        32,
        1,
        1,
        0,
        null_mut(),
        parameters.as_mut_ptr(),
        null_mut()
    ));
    assert_eq!(
        through_cust, UNKNOWN,
        "cust has no name for that code, so its function does not return it"
    );
}

#[test]
fn attributes_that_are_not_emulated_are_refused() {
    let _context = Context::new();
    let ranks = kernel_of(CHAIN, "ranks");
    let buffer = upload(&[0_u32; 4]);
    let attribute = |id: u32, value: i32| {
        let mut attribute = CUlaunchAttribute::cluster([0; 3]);
        attribute.id = id;
        attribute.value.number = value;
        attribute
    };
    for (id, value, expected) in [
        (launch_attribute::IGNORE, 0, SUCCESS),
        (launch_attribute::PRIORITY, -1, SUCCESS),
        (launch_attribute::COOPERATIVE, 0, SUCCESS),
        (launch_attribute::COOPERATIVE, 1, SUCCESS),
        (launch_attribute::PROGRAMMATIC_EVENT, 0, NOT_SUPPORTED),
        (999, 0, INVALID_VALUE),
    ] {
        assert_eq!(
            launch_with(&[attribute(id, value)], 1, ranks, buffer),
            expected,
            "attribute {id}"
        );
    }
    let without_array = CUlaunchConfig {
        numAttrs: 1,
        ..config(1, 32)
    };
    assert_eq!(launch(&without_array, ranks, &[parameter(&buffer)]), INVALID_VALUE);
}

/// Runs `patient`, then something, then a kernel that may overlap what came before; the code after all, and the sum.
fn overlapping(then: impl FnOnce(CUstream, CUdeviceptr), second: &str) -> (u32, Option<u32>) {
    let _context = Context::new();
    let module = load(CHAIN);
    let stream = handle!(cuStreamCreate(0));
    let buffer = upload(&[0_u32]);
    let pdl = [CUlaunchAttribute::programmatic_serialization()];
    let config = CUlaunchConfig {
        hStream: stream,
        attrs: pdl.as_ptr(),
        numAttrs: 1,
        ..config(1, 1)
    };
    assert_eq!(
        launch(&config, kernel(module, "patient"), &[parameter(&buffer)]),
        SUCCESS
    );
    then(stream, buffer);
    assert_eq!(launch(&config, kernel(module, second), &[parameter(&buffer)]), SUCCESS);
    let code = code!(cuStreamSynchronize(stream));
    (code, (code == SUCCESS).then(|| download::<u32>(buffer, 1)[0]))
}

#[test]
fn a_launch_that_may_overlap_must_wait_before_it_reads() {
    assert_eq!(overlapping(|_, _| (), "patient"), (SUCCESS, Some(2)));
    assert_eq!(overlapping(|_, _| (), "hasty"), (LAUNCH_FAILED, None));
}

fn record(stream: CUstream) {
    let event = handle!(cuEventCreate(0));
    ok!(cuEventRecord(event, stream));
}

#[test]
fn work_between_two_launches_keeps_them_apart() {
    let expected = (SUCCESS, Some(2));
    assert_eq!(
        overlapping(|stream, _| ok!(cuStreamSynchronize(stream)), "hasty"),
        expected
    );
    assert_eq!(overlapping(|_, _| ok!(cuCtxSynchronize()), "hasty"), expected);
    assert_eq!(
        overlapping(|_, buffer| assert_eq!(download::<u32>(buffer, 1), [1]), "hasty"),
        expected
    );
    assert_eq!(overlapping(|stream, _| record(stream), "hasty"), expected);
    let fill = |stream, buffer| ok!(cuMemsetD32Async(buffer, 41, 1, stream));
    assert_eq!(overlapping(fill, "hasty"), (SUCCESS, Some(42)));
    let elsewhere = |_, _| {
        let (other, stream) = (get!(cuMemAlloc_v2(4)), handle!(cuStreamCreate(1)));
        ok!(cuMemsetD32Async(other, 41, 1, stream));
    };
    assert_eq!(
        overlapping(elsewhere, "hasty"),
        (LAUNCH_FAILED, None),
        "another stream's work does not"
    );
}

#[test]
fn contexts_count_what_their_launches_did() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    let operands = Operands::new(256);
    assert_eq!(emulated::counters(), emulated::Counters::default());
    let run = || assert_eq!(launch(&config(2, 128), add, &operands.parameters()), SUCCESS);
    run();
    let once = emulated::counters();
    assert_eq!(once.traffic[&operands.a].read_bytes, 1024);
    assert_eq!(once.traffic[&operands.a].read_sectors, 32);
    assert_eq!(once.traffic[&operands.out].written_bytes, 1024);
    assert_eq!(once.count("st.global"), 8, "eight warps");
    run();
    assert_eq!(emulated::take_counters().traffic[&operands.a].read_bytes, 2048);
    assert_eq!(emulated::counters(), emulated::Counters::default());
    std::thread::spawn(|| assert_eq!(emulated::counters(), emulated::Counters::default()))
        .join()
        .expect("a thread without a context counts nothing");
}

#[test]
fn a_seed_changes_no_result() {
    let _context = Context::new();
    let add = kernel_of(ADD, "add");
    for seed in [Some(0), Some(1), Some(u64::MAX), None] {
        emulated::set_seed(seed);
        let operands = Operands::new(300);
        assert_eq!(launch(&config(3, 128), add, &operands.parameters()), SUCCESS);
        operands.check();
    }
}

#[test]
fn threads_launch_side_by_side() {
    let threads: Vec<_> = (0..8)
        .map(|i| {
            std::thread::spawn(move || {
                let _context = Context::new();
                let add = kernel_of(ADD, "add");
                let operands = Operands::new(100 + i);
                for _ in 0..10 {
                    assert_eq!(launch(&config(2, 128), add, &operands.parameters()), SUCCESS);
                }
                operands.check();
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("the thread's assertions hold"));
}
