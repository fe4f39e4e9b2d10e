//! Tensor copies: what lands where, for tensors of every rank, swizzled and ragged, and what is refused.

mod support;

use ptx_emulator::tensor_map::{Axis, Element, Fill, Interleave, L2Promotion, Swizzle};
use ptx_emulator::{Memory, TensorMap};
use support::{Run, memory, module, ptx};

/// The elements that a tensor's axes have, and what a box takes of each: size, padding in bytes, box, step.
type Shape<'a> = &'a [(u64, u64, u32, u32)];

fn map(element: Element, swizzle: Swizzle, address: u64, shape: Shape<'_>) -> TensorMap {
    let mut stride = element.bytes();
    let mut axes = Vec::new();
    for &(size, padding, box_size, step) in shape {
        axes.push(Axis {
            size,
            stride,
            box_size,
            step,
        });
        stride = stride * size + padding;
    }
    TensorMap {
        element,
        address,
        axes,
        interleave: Interleave::None,
        swizzle,
        l2_promotion: L2Promotion::Bytes128,
        fill: Fill::Zero,
    }
}

/// A kernel over one warp: parameters `map` and `out`, the map's address in %map, an mbarrier at %r4, a box at %r5.
fn kernel(at: u32, body: &str) -> String {
    ptx(&format!(
        ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {{
         .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b64 %d<8>; .reg .b64 %map; .reg .b64 %out;
         mov.b64 %d1, map; cvta.param.u64 %map, %d1; ld.param.u64 %out, [out];
         mov.u32 %r1, %tid.x; mov.u32 %r4, smem; add.u32 %r5, %r4, {at}; setp.eq.u32 %p1, %r1, 0;
         @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
         {body}
         ret; }}"
    ))
}

const OPCODE: &str = "shared::cluster.global.tile.mbarrier::complete_tx::bytes";

/// The copy of a box to %r5, announced to the mbarrier.
fn load(opcode: &str, start: &[i32], bytes: usize) -> String {
    let (rank, coordinates) = (start.len(), list(start));
    format!(
        "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {bytes};
         @%p1 cp.async.bulk.tensor.{rank}d.{opcode} [%r5], [%map, {coordinates}], [%r4];\n"
    )
}

fn list(start: &[i32]) -> String {
    let coordinates: Vec<String> = start.iter().map(i32::to_string).collect();
    format!("{{{}}}", coordinates.join(", "))
}

const WAIT: &str = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra W;\n";

/// Every lane's share of the box, to `out`.
fn drain(bytes: usize) -> String {
    format!(
        "shl.b32 %r6, %r1, 4;
         L: setp.ge.u32 %p3, %r6, {bytes}; @%p3 bra E; add.u32 %r7, %r5, %r6;
         ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r7]; cvt.u64.u32 %d2, %r6; add.u64 %d2, %d2, %out;
         st.global.v4.b32 [%d2], {{%r8, %r9, %r10, %r11}}; add.u32 %r6, %r6, 512; bra L; E:\n"
    )
}

/// A tensor's bytes in fresh memory, no two neighbours alike, and their address.
fn tensor(memory: &Memory, bytes: u64) -> (u64, Vec<u8>) {
    let address = memory.allocate(bytes).unwrap();
    let values: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256 * 13 + i / 65536) as u8).collect();
    memory.write(address, &values).unwrap();
    (address, values)
}

/// Bytes from a tensor's first element to its last one's end.
fn extent(map: &TensorMap) -> u64 {
    let above: u64 = map.axes.iter().map(|axis| (axis.size - 1) * axis.stride).sum();
    above + map.element.bytes()
}

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
