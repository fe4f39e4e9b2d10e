//! `stream_read`: reads bytes as fast as the memory delivers them and does nothing else. What it takes for a byte count
//! is the limit that a projection over as many bytes is held against.

use crate::args::StreamReadArgs;
use crate::instances::{StreamRead, for_each_stream_read, stream_read_name, stream_read_row};
use crate::ring::Ring;
use cuda_std::{global, pdl, shared, thread, warp};

trait Instance {
    const READ: StreamRead;
}

/// Every CTA streams its contiguous share of the chunks through one ring.
///
/// # Safety
///
/// The kernel is launched with the block and shared memory of its row, and with arguments that the host has checked:
/// `bytes` at `data`, both 16-byte aligned, and a word per warp of the grid at `out`.
#[inline(always)]
unsafe fn stream_read<I: Instance>(args: StreamReadArgs) {
    let chunk = const { I::READ.chunk_bytes() as u64 };
    let stages = const { I::READ.stages as u32 };
    let threads = const { I::READ.threads() as u32 };
    pdl::launch_dependents();
    let (thread, warp) = (thread::thread_idx_x(), warp::uniform_warp_id());
    let base = shared::dynamic_base();
    let mut ring = Ring::new(
        base,
        base + const { I::READ.ring_offset() as u32 },
        chunk as u32,
        stages,
    );

    let chunks = args.bytes.div_ceil(chunk);
    let (cta, ctas) = (u64::from(thread::block_idx_x()), u64::from(thread::grid_dim_x()));
    let (first, last) = (chunks * cta / ctas, chunks * (cta + 1) / ctas);
    let chunk_len = |index: u64| (args.bytes - index * chunk).min(chunk) as u32;
    let fill = |ring: &Ring, stage: u32, index: u64| {
        // SAFETY: the chunk lies within the caller's bytes, and the stage has been left by every reader.
        unsafe {
            ring.expect(stage, chunk_len(index));
            ring.copy(stage, 0, args.data + index * chunk, chunk_len(index));
        }
    };
    if warp == 0 && warp::elect(u32::MAX) {
        // SAFETY: the first use of this CTA's barriers.
        unsafe { ring.init() };
        for stage in 0..stages {
            if first + u64::from(stage) < last {
                fill(&ring, stage, first + u64::from(stage));
            }
        }
    }
    thread::sync_threads();

    let mut sum = 0u32;
    let mut index = first;
    while index < last {
        // SAFETY: initialised before the barrier above.
        let data = unsafe { ring.wait() };
        let mut offset = thread * 16;
        while offset < chunk_len(index) {
            // SAFETY: inside the chunk that has just landed.
            let v = unsafe { shared::load_v4(data + offset) };
            sum ^= v[0] ^ v[1] ^ v[2] ^ v[3];
            offset += threads * 16;
        }
        thread::sync_threads();
        if warp == 0 && index + u64::from(stages) < last && warp::elect(u32::MAX) {
            fill(&ring, ring.stage(), index + u64::from(stages));
        }
        ring.advance();
        index += 1;
    }
    pdl::wait();
    for distance in [16, 8, 4, 2, 1] {
        sum ^= warp::warp_shuffle_xor(u32::MAX, sum, distance);
    }
    if warp::lane_id() == 0 {
        let at = cta * const { I::READ.warps as u64 } + u64::from(warp::warp_id());
        // SAFETY: the caller gives one word per warp of the grid.
        unsafe { global::store_u32(args.out + at * 4, sum) };
    }
}

macro_rules! entries {
    ($($w:literal $s:literal $b:literal, $ctas:literal $regs:literal;)*) => { $(
        const _: () = {
            enum Row {}
            impl Instance for Row {
                const READ: StreamRead = stream_read_row!($w $s $b, $ctas $regs);
            }
            /// # Safety
            ///
            /// The launch is what the row and [`crate::args`] say; the host checks it.
            #[unsafe(export_name = stream_read_name!($w $s $b))]
            unsafe extern "ptx-kernel" fn entry(args: StreamReadArgs) {
                // SAFETY: the host checks what it launches.
                unsafe { stream_read::<Row>(args) }
            }
        };
    )* };
}
for_each_stream_read!(entries);
