//! Tensor copies that are refused: bad maps, bad places, races.

use ptx_emulator::tensor_map::{Axis, Element, Interleave, Swizzle};
use ptx_emulator::{Error, Fault, FaultKind, Launch, Memory, Options, TensorMap, launch};

use crate::build::*;
use crate::support::{Run, memory, module, refuses};

const SEEDS: [Option<u64>; 5] = [None, Some(1), Some(2), Some(3), Some(4)];

/// A tensor of 100 rows of 64 bytes, its boxes of 8 rows, and room for what a kernel puts out.
fn setting() -> (Memory, TensorMap, u64) {
    let memory = memory();
    let (address, _) = tensor(&memory, 6400);
    let out = memory.allocate(512).unwrap();
    memory.fill(out, &[1], 512).unwrap();
    let map = map(Element::U8, Swizzle::None, address, &[(64, 0, 64, 1), (100, 0, 8, 1)]);
    (memory, map, out)
}

fn check(result: Result<impl Sized, Error>, kind: FaultKind, says: &str) -> Box<Fault> {
    match result {
        Err(Error::Fault(fault)) => {
            assert_eq!(fault.kind, kind, "{fault}");
            assert!(fault.to_string().contains(says), "`{says}` is not in: {fault}");
            fault
        }
        Err(other) => panic!("not a fault: {other}"),
        Ok(_) => panic!("no fault, where one says `{says}`"),
    }
}

/// Checks that a body is refused with a map like the usual one, whatever the interleaving.
fn refused(kind: FaultKind, says: &str, at: u32, body: &str, change: impl Fn(&mut TensorMap)) {
    for seed in SEEDS {
        let (memory, mut map, out) = setting();
        change(&mut map);
        check(run(&map, at, body, &memory, out, seed), kind, says);
    }
}

fn same(_: &mut TensorMap) {}

fn fine(body: &str) {
    for seed in SEEDS {
        let (memory, map, out) = setting();
        run(&map, 128, body, &memory, out, seed).unwrap_or_else(|error| panic!("seed {seed:?}: {error}"));
    }
}

/// One copy of the usual box.
fn one() -> String {
    load(OPCODE, &[0, 0], 512)
}

const PREFETCH: &str = "@%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {0, 96}];\n";

#[test]
fn bytes_that_are_no_map() {
    let (memory, map, out) = setting();
    let good = map.encode().unwrap();
    let body = format!("{}{WAIT}", one());
    let module = module(&kernel(128, &body));
    let with = |bytes: &[u8]| Run::new("k").shared(1024).bytes(bytes).u64(out).on(&module, &memory);
    with(&good).unwrap();
    check(
        with(&[0; 128]),
        FaultKind::BadInstruction,
        "hold no tensor map that this emulator can read",
    );
    for at in [0, 8, 20, 60, 127] {
        let mut changed = good;
        changed[at] ^= 1;
        check(with(&changed), FaultKind::BadInstruction, "hold no tensor map");
    }
    // The instructions that only look at a map look at it too.
    for look in [
        "prefetch.tensormap [%map];",
        "prefetch.param.tensormap [map];",
        PREFETCH,
    ] {
        let module = crate::support::module(&kernel(128, look));
        let run = Run::new("k").shared(1024).bytes(&[0; 128]).u64(out);
        check(
            run.on(&module, &memory),
            FaultKind::BadInstruction,
            "hold no tensor map",
        );
    }
}

#[test]
fn maps_in_the_wrong_place() {
    let moved = |by: &str| format!("{by} {}", one());
    let refused = |kind, says, by| refused(kind, says, 128, &moved(by), same);
    refused(FaultKind::Misaligned, "multiple of 64", "add.u64 %map, %map, 32;");
    refused(FaultKind::OutOfBounds, "parameter", "add.u64 %map, %map, 64;");
    refused(FaultKind::OutOfBounds, "global", "mov.u64 %map, 0;");
    refused(FaultKind::OutOfBounds, "global", "add.u64 %map, %out, 448;");
    let shared = "cvt.u64.u32 %map, %r5; cvta.shared.u64 %map, %map;";
    refused(FaultKind::BadInstruction, "not in shared or local memory", shared);
    // A parameter that is declared with too little alignment may lie wrongly.
    let text = kernel(128, &one()).replace(
        "k(.param .align 64 .b8 map[128],",
        "k(.param .u64 first, .param .align 8 .b8 map[128],",
    );
    let (memory, map, out) = setting();
    let run = Run::new("k").shared(1024).u64(0).bytes(&map.encode().unwrap()).u64(out);
    check(run.on(&module(&text), &memory), FaultKind::Misaligned, "multiple of 64");
}

#[test]
fn boxes_that_cannot_be_copied() {
    let refused = |says, change: fn(&mut TensorMap)| refused(FaultKind::BadInstruction, says, 1024, &one(), change);
    refused("2 coordinates", |map| map.axes.truncate(1));
    let planes = load(OPCODE, &[0, 0, 0], 512);
    self::refused(FaultKind::BadInstruction, "interleaved", 1024, &planes, |map| {
        map.interleave = Interleave::Bytes16;
        map.axes.push(Axis {
            size: 1,
            stride: 6400,
            box_size: 1,
            step: 1,
        });
    });
    refused("rows of 32 bytes, swizzled within 64", |map| {
        map.swizzle = Swizzle::Bytes64;
        map.axes[0].box_size = 32;
    });
    refused("can have 232448", |map| {
        map.element = Element::U64;
        map.axes[0] = Axis {
            size: 256,
            stride: 8,
            box_size: 256,
            step: 1,
        };
        map.axes[1].stride = 2048;
        map.axes[1].box_size = 256;
    });
}

#[test]
fn places_that_do_not_fit() {
    refused(FaultKind::Misaligned, "multiple of 128", 64, &one(), same);
    refused(
        FaultKind::Misaligned,
        "multiple of 128",
        144,
        &format!("{}{}", supply(512), store(&[0, 0])),
        same,
    );
    refused(
        FaultKind::OutOfBounds,
        "shared memory",
        128,
        &format!("add.u32 %r5, %r5, 8064; {}", one()),
        same,
    );
    let far = "the tensor map at 0x7d0000000000 says that a tensor of [64, 101] elements";
    let longer = |map: &mut TensorMap| map.axes[1].size = 101;
    refused(FaultKind::OutOfBounds, far, 128, &load(OPCODE, &[0, 96], 512), longer);
    refused(FaultKind::OutOfBounds, far, 128, PREFETCH, longer);
    let out = format!("{}{}{COMMIT}", supply(512), store(&[0, 96]));
    refused(FaultKind::OutOfBounds, far, 128, &out, longer);
    // Strides that lead further than addresses go.
    refused(
        FaultKind::OutOfBounds,
        "lie in no allocation",
        128,
        &load(OPCODE, &[0, i32::MAX], 512),
        |map| {
            map.axes[1].size = 1 << 32;
            map.axes[1].stride = (1 << 40) - 16;
        },
    );
    // What is not copied may lie anywhere.
    let (memory, mut map, out) = setting();
    longer(&mut map);
    run(
        &map,
        128,
        &format!("{}{WAIT}", load(OPCODE, &[0, 92], 512)),
        &memory,
        out,
        None,
    )
    .unwrap();
}

#[test]
fn boxes_read_or_overwritten_too_early() {
    let refused = |says: &str, body: &str| refused(FaultKind::AsyncCopy, says, 128, body, same);
    let read = "ld.shared.u32 %r12, [%r5+4];\n";
    fine(&format!("{}{WAIT}{read}", one()));
    refused("under way", &format!("{}@%p1 {read}{WAIT}", one()));
    refused(
        "under way",
        &format!("{}@%p1 st.shared.u32 [%r5+508], 1;\n{WAIT}", one()),
    );
    let copy = "cp.async.bulk.tensor.2d.";
    let again = one()
        .replace("512;", "1024;")
        .replace(&format!("@%p1 {copy}"), "@%p1 TWICE")
        .replace(
            "TWICE",
            &format!("{copy}{OPCODE} [%r5+384], [%map, {{0, 0}}], [%r4]; @%p1 {copy}"),
        );
    refused("copies to", &format!("{again}{WAIT}"));
    refused("exits", &one());
    let store = |then: &str| format!("{}{}{then}", supply(512), store(&[0, 0]));
    fine(&store(COMMIT));
    refused("wait for it", &store(""));
    refused(
        "wait for the bulk group",
        &store(&format!("st.shared.u32 [%r5], 9; {COMMIT}")),
    );
    let unfenced = store(COMMIT).replace("fence.proxy.async.shared::cta;", "");
    refused("fence.proxy.async", &unfenced);
    // A box that nothing has filled, and a phase that expects more than the box has.
    let empty = crate::build::store(&[0, 0]);
    self::refused(FaultKind::UninitialisedShared, "copies from", 128, &empty, same);
    self::refused(
        FaultKind::Deadlock,
        "nothing visible",
        128,
        &format!("{}{WAIT}", load(OPCODE, &[0, 98], 528)),
        same,
    );
    // The places outside the tensor count too.
    fine(&format!("{}{WAIT}", load(OPCODE, &[0, 98], 512)));
}

#[test]
fn tensors_and_maps_that_an_unfinished_launch_wrote() {
    let writer = module(&crate::support::kernel("st.global.u32 [%out], 7;"));
    let then = |body: &str, in_map: bool| {
        let (memory, map, out) = setting();
        let table = memory.allocate(128).unwrap();
        let written = if in_map { table } else { map.address + 640 };
        let (id, _) = Run::new("k").u64(written).on(&writer, &memory).unwrap();
        memory.write(table + 4, &map.encode().unwrap()[4..]).unwrap();
        let body = if in_map {
            format!("mov.u64 %map, {table}; {body}")
        } else {
            body.to_owned()
        };
        let params = [&map.encode().unwrap()[..], &out.to_le_bytes()].concat();
        let what = Launch {
            entry: "k",
            grid: [1; 3],
            block: [32, 1, 1],
            cluster: [1; 3],
            dynamic_shared: 1024,
            params: &params,
            overlaps: Some(id),
        };
        launch(&module(&kernel(128, &body)), &memory, &what, &Options::default())
    };
    let load_at = |y| format!("{}{WAIT}", load(OPCODE, &[0, y], 512));
    let store_at = |y| format!("{}{}{COMMIT}", supply(512), store(&[0, y]));
    check(
        then(&load_at(4), false),
        FaultKind::EarlyDependentRead,
        "griddepcontrol.wait",
    );
    check(
        then(&store_at(4), false),
        FaultKind::EarlyDependentWrite,
        "griddepcontrol.wait",
    );
    check(
        then(&load_at(4), true),
        FaultKind::EarlyDependentRead,
        "griddepcontrol.wait",
    );
    for body in [load_at(4), store_at(4)] {
        then(&format!("griddepcontrol.wait; {body}"), false).unwrap();
    }
    then(&load_at(11), false).unwrap();
    then(&store_at(2), false).unwrap();
    // A prefetch changes nothing, whatever it fetches.
    then(
        "@%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map, {0, 8}];",
        false,
    )
    .unwrap();
}

#[test]
fn several_ranks_need_a_started_cluster() {
    let body = format!(
        "mov.u16 %h1, 3; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 512;
         @%p1 cp.async.bulk.tensor.2d.{OPCODE}.multicast::cluster [%r5], [%map, {{0, 0}}], [%r4], %h1; {WAIT}"
    );
    let (memory, map, out) = setting();
    let run = Run::new("k")
        .cluster(2)
        .shared(1024)
        .bytes(&map.encode().unwrap())
        .u64(out);
    check(
        run.on(&module(&kernel(128, &body)), &memory),
        FaultKind::RemoteBeforeStart,
        "may not have started",
    );
    refuses(
        FaultKind::BadInstruction,
        "tensor map",
        "mov.u64 %d1, smem; cvta.shared.u64 %d1, %d1; prefetch.tensormap [%d1];",
        &Run::new("k").shared(256),
    );
}
