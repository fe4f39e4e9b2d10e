//! The split-K reduction through global memory: where the sums lie, which CTA was the last to add to them, and how
//! results are stored.
//!
//! Sums that slices share are added by `red` and read past the L1 cache; the last CTA is elected by an `atom.acq_rel`
//! (PTX ISA §9.7.13.5, §8 memory consistency model).

use crate::args::SplitKArgs;
use cuda_std::{atomic, convert, global, thread};

/// Bytes of a BF16 value.
const BF16: u64 = 2;
/// Bytes of an FP32 value, and of a counter.
const FP32: u64 = 4;
/// Values of a 128-bit access.
pub(crate) const QUAD: u32 = 4;

/// The result, row-major `[m, n]`.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Its address; 0 where nobody asks for it.
    pub(crate) y: u64,
    /// Whether it is FP32; else BF16.
    pub(crate) fp32: bool,
}

impl Output {
    /// Stores the first `count` values of four from `index` on, where anybody asks for them.
    ///
    /// # Safety
    ///
    /// The `count` values lie inside y, and one thread of the grid stores them.
    #[inline(always)]
    pub(crate) unsafe fn store_quad(self, index: u64, values: [f32; 4], count: u32) {
        if self.y == 0 {
            return;
        }
        // SAFETY: the first `count` values lie inside y, and this thread alone stores them; wide stores are aligned.
        unsafe {
            if self.fp32 {
                store_quad(self.y + index * FP32, values, count);
                return;
            }
            let (at, values) = (self.y + index * BF16, values.map(convert::f32_to_bf16));
            if count == QUAD && at % 8 == 0 {
                let pair = |i: usize| u32::from(values[i]) | u32::from(values[i + 1]) << 16;
                global::store_v2(at, [pair(0), pair(2)]);
                return;
            }
            for (i, value) in values.iter().enumerate() {
                global::store_u16_if(at + i as u64 * BF16, *value, (i as u32) < count);
            }
        }
    }
}

/// Stores the first `count` of four values.
///
/// # Safety
///
/// `at` is a 4-byte aligned address with room for `count` values, and no other thread uses them.
#[inline(always)]
unsafe fn store_quad(at: u64, values: [f32; 4], count: u32) {
    // SAFETY: all four values are there and aligned, or each is predicated on the count.
    unsafe {
        if count == QUAD && at % 16 == 0 {
            global::store_v4(at, values.map(f32::to_bits));
            return;
        }
        for (i, value) in values.iter().enumerate() {
            global::store_u32_if(at + i as u64 * FP32, value.to_bits(), (i as u32) < count);
        }
    }
}

/// Loads the first `count` of four values past the L1 cache, zeros for the rest.
///
/// # Safety
///
/// `at` is a 4-byte aligned address of `count` values, whose writes the election has made visible.
#[inline(always)]
unsafe fn load_quad(at: u64, count: u32) -> [f32; 4] {
    // SAFETY: all four values are there and aligned, or each is loaded only where the count has it.
    unsafe {
        if count == QUAD && at % 16 == 0 {
            return atomic::load_relaxed_v4_f32(at);
        }
        let load = |i: u32| {
            if i < count {
                atomic::load_relaxed_f32(at + u64::from(i) * FP32)
            } else {
                0.0
            }
        };
        [load(0), load(1), load(2), load(3)]
    }
}

/// The sums in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    at: u64,
    slice_bytes: u64,
    slices: u32,
    /// Whether they are added atomically, to zeros; else every slice stores its own.
    atomic: bool,
}

impl Sums {
    /// The sums of `outputs` results, as the arguments want them added.
    #[inline(always)]
    pub(crate) fn new(split_k: &SplitKArgs, outputs: u64) -> Self {
        let atomic = split_k.serial == 0;
        Sums {
            at: split_k.sums,
            slice_bytes: outputs * FP32,
            slices: if atomic { 1 } else { split_k.slices },
            atomic,
        }
    }

    /// Sums that come from one slice, which stores them.
    #[inline(always)]
    pub(crate) fn of_one_slice(split_k: &SplitKArgs) -> Self {
        Sums {
            at: split_k.sums,
            slice_bytes: 0,
            slices: 1,
            atomic: false,
        }
    }

    /// Takes the finished sums of the outputs `index(i)`: adds the slices in their order, or, where they were added
    /// atomically, leaves zeros for those of the outputs that are `live`.
    ///
    /// For the CTA that [`is_last`] has elected.
    ///
    /// # Safety
    ///
    /// This CTA is the one that [`is_last`] has elected, the outputs exist, and one of its threads takes each that is
    /// live.
    #[inline(always)]
    pub(crate) unsafe fn take<const COUNT: usize>(
        &self,
        index: impl Fn(usize) -> u64,
        live: impl Fn(usize) -> bool,
    ) -> [f32; COUNT] {
        let at: [u64; COUNT] = core::array::from_fn(|i| self.at + index(i) * FP32);
        let load = |slice: u32| -> [f32; COUNT] {
            let offset = u64::from(slice) * self.slice_bytes;
            // SAFETY: every slice has given its sums, which the election has made visible, past the L1 cache.
            core::array::from_fn(|i| unsafe { atomic::load_relaxed_f32(at[i] + offset) })
        };
        let mut sums = load(0);
        for slice in 1..self.slices {
            let more = load(slice);
            sums.iter_mut().zip(&more).for_each(|(sum, more)| *sum += more);
        }
        if self.atomic {
            for (i, &at) in at.iter().enumerate() {
                // SAFETY: nobody else touches them before the next launch.
                unsafe { atomic::store_relaxed_u32_if(at, 0, live(i)) };
            }
        }
        sums
    }
}

impl Sums {
    /// Gives the sums of `slice` for the first `count` of the four outputs from `index` on.
    ///
    /// # Safety
    ///
    /// There are `count` such outputs, and such a slice. Where sums are not atomic, one thread gives them.
    #[inline(always)]
    pub(crate) unsafe fn give_quad(&self, slice: u32, index: u64, sums: [f32; 4], count: u32) {
        let at = self.at + index * FP32;
        // SAFETY: the host gives a sum for every output, and for every slice where they do not share it; the rest of
        // the four is left alone.
        unsafe {
            if self.atomic {
                for (i, sum) in sums.iter().enumerate() {
                    atomic::add_relaxed_f32_if(at + i as u64 * FP32, *sum, (i as u32) < count);
                }
            } else {
                store_quad(at + u64::from(slice) * self.slice_bytes, sums, count);
            }
        }
    }

    /// Takes the finished sums of the first `count` of the four outputs from `index` on, like [`Sums::take`].
    ///
    /// # Safety
    ///
    /// This CTA is the one that [`is_last`] has elected, there are `count` such outputs, and one of its threads takes
    /// them.
    #[inline(always)]
    pub(crate) unsafe fn take_quad(&self, index: u64, count: u32) -> [f32; 4] {
        let at = self.at + index * FP32;
        // SAFETY: every slice has given its sums, which the election has made visible, and this thread alone clears
        // them.
        unsafe {
            let mut sums = load_quad(at, count);
            for slice in 1..self.slices {
                let more = load_quad(at + u64::from(slice) * self.slice_bytes, count);
                for (sum, more) in sums.iter_mut().zip(&more) {
                    *sum += more;
                }
            }
            if self.atomic {
                for i in 0..QUAD {
                    atomic::store_relaxed_u32_if(at + u64::from(i) * FP32, 0, i < count);
                }
            }
            sums
        }
    }
}

/// Counts this CTA at counter `index`; true, for the whole CTA, where it is the last of `arrivals`. That one sees what
/// all of them wrote before, by loads past the L1 cache, and leaves the counter at zero.
///
/// Every thread of the CTA calls it, behind a barrier that they all have met since they wrote: the addition releases
/// what came before.
///
/// # Safety
///
/// There is such a counter, zero before the launch, and `arrivals` CTAs count at it. The whole CTA calls it, as above,
/// in uniform control flow.
#[inline(always)]
pub(crate) unsafe fn is_last(split_k: &SplitKArgs, index: u32, arrivals: u32) -> bool {
    let counter = split_k.counters + u64::from(index) * FP32;
    let mut last = false;
    if thread::thread_idx_x() == 0 {
        // SAFETY: the host gives the counters of the grid.
        unsafe {
            last = atomic::add_acq_rel_u32(counter, 1) == arrivals - 1;
            if last {
                atomic::store_relaxed_u32(counter, 0);
            }
        }
    }
    thread::sync_threads_or(last)
}
