//! What lands where, for tensors of every rank, swizzled and ragged.

use ptx_emulator::TensorMap;
use ptx_emulator::tensor_map::{Element, Fill, Swizzle};

use crate::build::*;
use crate::support::{Run, memory, module};

/// For each element of a box, in the order of an unswizzled box, where it lies in the tensor's bytes, if it does.
fn places(map: &TensorMap, start: &[i32]) -> Vec<Option<usize>> {
    let mut places = vec![Some(0)];
    for (i, axis) in map.axes.iter().enumerate() {
        let step = if i == 0 { 1 } else { axis.step };
        places = (0..axis.box_size)
            .step_by(step as usize)
            .flat_map(|k| {
                let at = i64::from(start[i]) + i64::from(k);
                let inside = (0..axis.size as i64).contains(&at);
                let offset = at as usize * if inside { axis.stride as usize } else { 0 };
                places
                    .iter()
                    .map(move |place: &Option<usize>| place.filter(|_| inside).map(|p| p + offset))
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    places
}

/// Where a swizzled box's bytes lie, the box starting `phase` rows of 128 bytes after a multiple of 1024.
fn swizzled(swizzle: Swizzle, row: usize, phase: usize, at: usize) -> usize {
    let (r, piece) = (at / row, at % row / 16);
    let line = phase + r * row / 128;
    let by = match swizzle {
        Swizzle::None => 0,
        Swizzle::Bytes32 => line % 2,
        Swizzle::Bytes64 => line % 4,
        Swizzle::Bytes128 => line % 8,
    };
    r * row + (piece ^ by) * 16 + at % 16
}

/// Copies a box in and checks every byte, under many interleavings.
fn arrives(element: Element, swizzle: Swizzle, fill: Fill, shape: Shape<'_>, start: &[i32], at: u32) {
    let memory = memory();
    let like = map(element, swizzle, 0, shape);
    let (address, values) = tensor(&memory, extent(&like));
    let mut map = map(element, swizzle, address, shape);
    map.fill = fill;
    let places = places(&map, start);
    let size = element.bytes() as usize;
    let bytes = places.len() * size;
    let row = shape[0].2 as usize * size;
    let hole = match (fill, size) {
        (Fill::Zero, _) => vec![0; size],
        (Fill::Nan, _) => [vec![0xff; size - 1], vec![0x7f]].concat(),
    };
    let mut expected = vec![0; bytes];
    for (i, place) in places.iter().enumerate() {
        let value = place.map_or(&hole[..], |p| &values[p..p + size]);
        for (k, &byte) in value.iter().enumerate() {
            expected[swizzled(swizzle, row, at as usize % 1024 / 128, i * size + k)] = byte;
        }
    }
    let module = module(&kernel(
        at,
        &format!("{}{WAIT}{}", load(OPCODE, start, bytes), drain(bytes)),
    ));
    let read = places.iter().flatten().count() * size;
    for seed in [None, Some(1), Some(2)] {
        let out = memory.allocate(bytes as u64).unwrap();
        let mut run = Run::new("k").shared(at + bytes as u32);
        run.seed = seed;
        let run = run.bytes(&map.encode().unwrap()).u64(out);
        let (_, counters) = run.on(&module, &memory).unwrap_or_else(|error| panic!("{error}"));
        let mut seen = vec![0; bytes];
        memory.read(out, &mut seen).unwrap();
        assert!(seen == expected, "{map:?} from {start:?}");
        assert_eq!(
            counters.traffic.get(&address).map_or(0, |t| t.read_bytes),
            read as u64,
            "{map:?} from {start:?}"
        );
    }
}

#[test]
fn boxes_of_matrices() {
    let shape: Shape<'_> = &[(200, 0, 64, 1), (100, 0, 16, 1)];
    for start in [
        [0, 0],
        [64, 16],
        [-8, -3],
        [176, 92],
        [40, 7],
        [200, 0],
        [-64, 0],
        [0, 1000],
    ] {
        for at in [1024, 128] {
            arrives(Element::Bf16, Swizzle::Bytes128, Fill::Zero, shape, &start, at);
        }
        arrives(Element::Bf16, Swizzle::None, Fill::Zero, shape, &start, 128);
    }
}

#[test]
fn boxes_of_every_rank_and_type() {
    for &element in Element::ALL {
        let (row, stride) = (32 / element.bytes() as u32, 48 / element.bytes());
        let shape: Shape<'_> = &[(stride, 0, row, 1), (9, 0, 5, 1)];
        arrives(element, Swizzle::Bytes32, Fill::Zero, shape, &[-3, 6], 1024);
    }
    let shapes: &[(Element, Shape<'_>, &[i32])] = &[
        // The first axis has no step, whatever the map says.
        (Element::U8, &[(100, 0, 64, 99)], &[70]),
        (
            Element::F32,
            &[(40, 16, 32, 1), (7, 0, 4, 1), (5, 48, 3, 1)],
            &[-4, 5, -1],
        ),
        (
            Element::U16,
            &[(24, 0, 8, 1), (5, 0, 3, 1), (4, 0, 2, 1), (6, 32, 5, 1)],
            &[20, -1, 3, 2],
        ),
        (
            Element::S64,
            &[(4, 0, 2, 1), (3, 0, 2, 1), (3, 0, 2, 1), (3, 0, 2, 1), (3, 0, 3, 1)],
            &[3, -1, 2, 0, 1],
        ),
        // Every second row, and every third plane.
        (
            Element::Bf16,
            &[(64, 0, 64, 1), (20, 0, 9, 2), (11, 0, 8, 3)],
            &[0, -4, 5],
        ),
        (Element::U8, &[(32, 0, 16, 1), (40, 0, 256, 8)], &[8, -100]),
    ];
    for &(element, shape, start) in shapes {
        arrives(element, Swizzle::None, Fill::Zero, shape, start, 128);
    }
    let ragged: Shape<'_> = &[(40, 16, 32, 1), (7, 0, 4, 1), (5, 48, 3, 1)];
    arrives(Element::F32, Swizzle::Bytes128, Fill::Zero, ragged, &[-4, 5, -1], 1024);
}

#[test]
fn swizzles_follow_the_address() {
    let patterns = [
        (Swizzle::Bytes32, 16),
        (Swizzle::Bytes64, 32),
        (Swizzle::Bytes128, 64),
        (Swizzle::None, 128),
    ];
    for (swizzle, row) in patterns {
        let shape: Shape<'_> = &[(200, 0, row, 1), (60, 0, 40, 1)];
        for at in (128..=1024).step_by(128) {
            arrives(Element::Bf16, swizzle, Fill::Zero, shape, &[70, 31], at);
        }
    }
}

#[test]
fn places_outside_can_be_filled_with_nan() {
    for element in [Element::F16, Element::F32, Element::F64, Element::Bf16] {
        let shape: Shape<'_> = &[(64 / element.bytes(), 0, 128 / element.bytes() as u32, 1), (9, 0, 7, 1)];
        arrives(element, Swizzle::Bytes128, Fill::Nan, shape, &[-1, 5], 1024);
    }
}

#[test]
fn stores_write_what_lies_in_the_tensor() {
    let cases: &[(Swizzle, Shape<'_>, &[i32])] = &[
        (Swizzle::Bytes128, &[(200, 0, 64, 1), (100, 0, 16, 1)], &[-8, 90]),
        (
            Swizzle::Bytes64,
            &[(40, 0, 32, 1), (9, 0, 4, 2), (5, 0, 3, 1)],
            &[16, 4, -1],
        ),
        (Swizzle::None, &[(40, 0, 16, 1)], &[30]),
    ];
    for &(swizzle, shape, start) in cases {
        for seed in [None, Some(1), Some(2)] {
            let memory = memory();
            let (address, mut expected) = tensor(&memory, extent(&map(Element::F16, swizzle, 0, shape)));
            let map = map(Element::F16, swizzle, address, shape);
            let places = places(&map, start);
            let bytes = places.len() * 2;
            let out = memory.allocate(bytes as u64).unwrap();
            let image: Vec<u8> = (0..bytes).map(|i| (i * 11 + i / 256) as u8).collect();
            memory.write(out, &image).unwrap();
            for (i, place) in places.iter().enumerate() {
                let from = swizzled(swizzle, shape[0].2 as usize * 2, 0, 2 * i);
                if let Some(place) = *place {
                    expected[place..place + 2].copy_from_slice(&image[from..from + 2]);
                }
            }
            let body = format!("{}{}{COMMIT}", supply(bytes), store(start));
            let counters = run(&map, 1024, &body, &memory, out, seed).unwrap_or_else(|error| panic!("{error}"));
            let mut seen = vec![0; expected.len()];
            memory.read(address, &mut seen).unwrap();
            assert!(seen == expected, "{map:?} at {start:?}");
            let written = places.iter().flatten().count() as u64 * 2;
            assert_eq!(counters.traffic[&address].written_bytes, written);
        }
    }
}

#[test]
fn sectors_are_counted_per_row() {
    let memory = memory();
    let (address, _) = tensor(&memory, 40_000);
    let shape: Shape<'_> = &[(200, 0, 64, 1), (100, 0, 16, 1)];
    let map = map(Element::Bf16, Swizzle::Bytes128, address, shape);
    let out = memory.allocate(16).unwrap();
    let body = format!("{}{WAIT}", load(OPCODE, &[0, 0], 2048));
    let counters = run(&map, 1024, &body, &memory, out, None).unwrap();
    // Rows are 400 bytes apart: every second one starts in the middle of a sector.
    let traffic = counters.traffic[&address];
    assert_eq!((traffic.read_bytes, traffic.read_sectors), (2048, 8 * 4 + 8 * 5));
    // Two rows of 16 bytes share a sector.
    let map = crate::build::map(Element::U8, Swizzle::None, address, &[(16, 0, 16, 1), (100, 0, 8, 1)]);
    let body = format!("{}{WAIT}", load(OPCODE, &[0, 1], 128));
    let traffic = run(&map, 1024, &body, &memory, out, None).unwrap().traffic[&address];
    assert_eq!((traffic.read_bytes, traffic.read_sectors), (128, 5));
}

#[test]
fn multicast_and_every_other_form() {
    let forms = [
        "shared::cta.global.tile.mbarrier::complete_tx::bytes",
        "shared::cluster.global.mbarrier::complete_tx::bytes",
    ];
    for form in forms {
        let memory = memory();
        let (address, values) = tensor(&memory, 512);
        let map = map(Element::U8, Swizzle::None, address, &[(512, 0, 64, 1)]);
        let out = memory.allocate(64).unwrap();
        let body = format!(
            "prefetch.tensormap [%map]; prefetch.param.tensormap [map];
             cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%map, {{17}}];
             cp.async.bulk.prefetch.tensor.1d.L2.global.L2::cache_hint [%map, {{17}}], %out;
             {}{WAIT}{}",
            load(form, &[17], 64),
            drain(64)
        );
        run(&map, 128, &body, &memory, out, Some(1)).unwrap();
        let mut seen = [0; 64];
        memory.read(out, &mut seen).unwrap();
        assert_eq!(seen, values[17..81]);
    }
    let everywhere = format!(
        "mov.u32 %r12, %cluster_ctarank; mov.u16 %h1, 5; mov.b64 %d4, 0; setp.eq.u32 %p4, %r12, 1; and.pred %p4, %p4, %p1;
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
         setp.ne.u32 %p5, %r12, 1; @!%p5 bra S;
         @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 512; S:
         @%p4 cp.async.bulk.tensor.2d.{OPCODE}.multicast::cluster.L2::cache_hint [%r5], [%map, {{%r12, 2}}], [%r4], %h1, %d4;
         @!%p5 bra T; {WAIT} T:
         mul.wide.u32 %d5, %r12, 512; add.u64 %out, %out, %d5; @!%p5 bra E; {}
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
        drain(512)
    );
    let everywhere = module(&kernel(128, &everywhere));
    for seed in [None, Some(1), Some(2), Some(3)] {
        let memory = memory();
        let (address, values) = tensor(&memory, 4096);
        let map = map(Element::U8, Swizzle::None, address, &[(64, 0, 64, 1), (64, 0, 8, 1)]);
        let out = memory.allocate(3 * 512).unwrap();
        let mut run = Run::new("k").cluster(3).shared(1024);
        run.seed = seed;
        let run = run.bytes(&map.encode().unwrap()).u64(out);
        let (_, counters) = run.on(&everywhere, &memory).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = vec![0; 512];
        for row in 0..8 {
            expected[row * 64..row * 64 + 63].copy_from_slice(&values[(row + 2) * 64 + 1..(row + 3) * 64]);
        }
        for (rank, expected) in [(0, &expected), (1, &vec![0; 512]), (2, &expected)] {
            let mut seen = vec![0; 512];
            memory.read(out + rank * 512, &mut seen).unwrap();
            assert_eq!(seen, *expected, "rank {rank}");
        }
        assert_eq!(counters.traffic[&address].read_bytes, 8 * 63);
    }
}

#[test]
fn maps_lie_in_global_and_constant_memory_too() {
    for space in ["global", "const"] {
        let start = format!(".{space} .align 64 .b8 table[256];\n.visible .entry");
        let take = format!("mov.b64 %d3, table; cvta.{space}.u64 %d3, %d3; add.u64 %map, %d3, 128;");
        let body = format!(
            "{take} @%p1 prefetch.tensormap [%map]; {}{WAIT}{}",
            load(OPCODE, &[3], 16),
            drain(16)
        );
        let module = module(&kernel(128, &body).replace(".visible .entry", &start));
        let memory = memory();
        let (address, values) = tensor(&memory, 64);
        let map = map(Element::U8, Swizzle::None, address, &[(64, 0, 16, 1)]);
        let (table, _) = module.global_address(&memory, "table").unwrap();
        memory.write(table + 128, &map.encode().unwrap()).unwrap();
        let out = memory.allocate(16).unwrap();
        let run = Run::new("k").shared(1024).bytes(&[0; 128]).u64(out);
        run.on(&module, &memory).unwrap_or_else(|error| panic!("{error}"));
        let mut seen = [0; 16];
        memory.read(out, &mut seen).unwrap();
        assert_eq!(seen, values[3..19]);
    }
}

#[test]
fn forms_that_exist_and_forms_that_do_not() {
    let load = "cp.async.bulk.tensor";
    let by = "mbarrier::complete_tx::bytes";
    for (exists, text) in [
        (
            true,
            format!(
                "{load}.4d.shared::cluster.global.tile.{by}.L2::cache_hint [smem], [%map, {{%r1, 4, -4, %r1}}], [smem+32], %d1"
            ),
        ),
        (
            true,
            format!("{load}.5d.global.shared::cta.bulk_group.L2::cache_hint [%map, {{%r1, 0, 1, 2, 3}}], [%r4], %d1"),
        ),
        (
            true,
            format!("{load}.1d.global.shared::cta.tile.bulk_group [%map, {{7}}], [%r4]"),
        ),
        (
            true,
            "cp.async.bulk.prefetch.tensor.3d.L2.global.tile.L2::cache_hint [%map, {%r1, %r1, %r1}], %d1".into(),
        ),
        (
            false,
            format!("{load}.2d.shared::cluster.global.tile.{by} [%r4], [%map, {{%r1}}], [%r4]"),
        ),
        (
            false,
            format!("{load}.6d.shared::cluster.global.tile.{by} [%r4], [%map, {{0, 0, 0, 0, 0, 0}}], [%r4]"),
        ),
        (
            false,
            format!("{load}.3d.shared::cluster.global.im2col.{by} [%r4], [%map, {{0, 0, 0}}], [%r4], {{%h1}}"),
        ),
        (
            false,
            format!("{load}.1d.shared::cta.global.tile.{by}.multicast::cluster [%r4], [%map, {{0}}], [%r4], %h1"),
        ),
        (
            false,
            format!("{load}.1d.shared::cluster.shared::cta.tile.{by} [%r4], [%map, {{0}}], [%r4]"),
        ),
        (
            false,
            format!("{load}.1d.shared::cluster.global.tile.bulk_group [%r4], [%map, {{0}}], [%r4]"),
        ),
        (
            false,
            format!("{load}.1d.shared::cluster.global.tile.{by} [%r4], [%map], [%r4]"),
        ),
        (
            false,
            format!("{load}.1d.shared::cluster.global.tile.{by} [%r4], [%map, {{0}}]"),
        ),
        (
            false,
            format!("{load}.1d.shared::cluster.global.tile.{by} [%r4], [%map, {{0}}], [%r4], %h1"),
        ),
        (
            false,
            format!("{load}.1d.shared::cluster.global.tile.{by} [%r4], [%map, {{%d1}}], [%r4]"),
        ),
        (
            false,
            "cp.async.bulk.prefetch.tensor.1d.L2.shared::cta.tile [%map, {0}]".into(),
        ),
    ] {
        let read = ptx_emulator::Module::parse(&kernel(128, &format!("{text};")));
        assert_eq!(read.is_ok(), exists, "{text}: {:?}", read.err());
    }
}
