//! Kernels that copy boxes of tensors, in pieces, and the maps and tensors for them.

use ptx_emulator::tensor_map::{Axis, Element, Fill, Interleave, L2Promotion, Swizzle};
use ptx_emulator::{Counters, Error, Memory, TensorMap};

use crate::support::{Run, module, ptx};

/// The elements that a tensor's axes have, and what a box takes of each: size, padding in bytes, box, step.
pub(crate) type Shape<'a> = &'a [(u64, u64, u32, u32)];

pub(crate) fn map(element: Element, swizzle: Swizzle, address: u64, shape: Shape<'_>) -> TensorMap {
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
pub(crate) fn kernel(at: u32, body: &str) -> String {
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

pub(crate) const OPCODE: &str = "shared::cluster.global.tile.mbarrier::complete_tx::bytes";

/// The copy of a box to %r5, announced to the mbarrier.
pub(crate) fn load(opcode: &str, start: &[i32], bytes: usize) -> String {
    let (rank, coordinates) = (start.len(), list(start));
    format!(
        "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {bytes};
         @%p1 cp.async.bulk.tensor.{rank}d.{opcode} [%r5], [%map, {coordinates}], [%r4];\n"
    )
}

pub(crate) fn list(start: &[i32]) -> String {
    let coordinates: Vec<String> = start.iter().map(i32::to_string).collect();
    format!("{{{}}}", coordinates.join(", "))
}

pub(crate) const WAIT: &str = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra W;\n";

/// Every lane's share of the box, to `out`.
pub(crate) fn drain(bytes: usize) -> String {
    format!(
        "shl.b32 %r6, %r1, 4;
         L: setp.ge.u32 %p3, %r6, {bytes}; @%p3 bra E; add.u32 %r7, %r5, %r6;
         ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r7]; cvt.u64.u32 %d2, %r6; add.u64 %d2, %d2, %out;
         st.global.v4.b32 [%d2], {{%r8, %r9, %r10, %r11}}; add.u32 %r6, %r6, 512; bra L; E:\n"
    )
}

/// A tensor's bytes in fresh memory, no two neighbours alike, and their address.
pub(crate) fn tensor(memory: &Memory, bytes: u64) -> (u64, Vec<u8>) {
    let address = memory.allocate(bytes).unwrap();
    let values: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256 * 13 + i / 65536) as u8).collect();
    memory.write(address, &values).unwrap();
    (address, values)
}

/// Bytes from a tensor's first element to its last one's end.
pub(crate) fn extent(map: &TensorMap) -> u64 {
    let above: u64 = map.axes.iter().map(|axis| (axis.size - 1) * axis.stride).sum();
    above + map.element.bytes()
}

/// What a kernel does with a map whose bytes are at the parameter.
pub(crate) fn run(
    map: &TensorMap,
    at: u32,
    body: &str,
    memory: &Memory,
    out: u64,
    seed: Option<u64>,
) -> Result<Counters, Error> {
    let mut run = Run::new("k").shared(at + 8192);
    run.seed = seed;
    let run = run.bytes(&map.encode().unwrap()).u64(out);
    run.on(&module(&kernel(at, body)), memory).map(|(_, counters)| counters)
}

/// Fills the box with the bytes at `out`.
pub(crate) fn supply(bytes: usize) -> String {
    format!(
        "shl.b32 %r6, %r1, 4;
         L: setp.ge.u32 %p3, %r6, {bytes}; @%p3 bra E; add.u32 %r7, %r5, %r6; cvt.u64.u32 %d2, %r6; add.u64 %d2, %d2, %out;
         ld.global.v4.b32 {{%r8, %r9, %r10, %r11}}, [%d2]; st.shared.v4.b32 [%r7], {{%r8, %r9, %r10, %r11}};
         add.u32 %r6, %r6, 512; bra L; E: fence.proxy.async.shared::cta; bar.sync 0;\n"
    )
}

pub(crate) fn store(start: &[i32]) -> String {
    let (rank, coordinates) = (start.len(), list(start));
    format!("@%p1 cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%map, {coordinates}], [%r5];\n")
}

pub(crate) const COMMIT: &str = "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;\n";
