//! A ring of bulk copies: stages in shared memory, each with the mbarrier that tells when its bytes have landed (PTX
//! ISA §9.7.9.25 `cp.async.bulk`, §9.7.13.15 `mbarrier`).

use cuda_std::shared::SharedAddr;
use cuda_std::{bulk_copy, mbarrier};

/// Stages of `chunk_bytes` each. One thread fills them in turn, and all its readers drain them in the same order.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    barriers: SharedAddr,
    data: SharedAddr,
    chunk_bytes: u32,
    stages: u32,
    stage: u32,
    parity: u32,
}

impl Ring {
    /// A ring with its mbarriers at `barriers` and its stages at `data`.
    #[inline(always)]
    pub(crate) fn new(barriers: SharedAddr, data: SharedAddr, chunk_bytes: u32, stages: u32) -> Self {
        Ring {
            barriers,
            data,
            chunk_bytes,
            stages,
            stage: 0,
            parity: 0,
        }
    }

    /// Readies the mbarriers. One thread does it, before any other use and ordered before the other readers'.
    ///
    /// # Safety
    ///
    /// The barriers lie in a part of shared memory that nothing else uses, and one thread calls it, once.
    #[inline(always)]
    pub(crate) unsafe fn init(&self) {
        // SAFETY: the caller vouches for the barriers' place and the one thread; the fence comes next.
        unsafe { self.init_unfenced() };
        mbarrier::fence_init();
    }

    /// [`Ring::init`] but for the fence, where other mbarriers are readied with these.
    ///
    /// # Safety
    ///
    /// The barriers lie in a part of shared memory that nothing else uses, and one thread calls it, once. Then it calls
    /// [`mbarrier::fence_init`].
    #[inline(always)]
    pub(crate) unsafe fn init_unfenced(&self) {
        for stage in 0..self.stages {
            // SAFETY: the barriers lie in this ring's own part of shared memory, and nobody has used them yet.
            unsafe { mbarrier::init(self.barriers + stage * 8, 1) };
        }
    }

    /// Announces `bytes` for `stage`, which [`Ring::copy`] then brings.
    ///
    /// # Safety
    ///
    /// The ring is initialised, every reader has left the stage, and one thread announces it once for a turn.
    #[inline(always)]
    pub(crate) unsafe fn expect(&self, stage: u32, bytes: u32) {
        // SAFETY: `init` came before.
        unsafe { mbarrier::arrive_expect_tx(self.barriers + stage * 8, bytes) };
    }

    /// Starts a copy of `bytes` from global `from` to `offset` of `stage`.
    ///
    /// # Safety
    ///
    /// The bytes are announced for the stage. `from` is readable, `from` and `offset` are 16-byte aligned, and `bytes`
    /// is a multiple of 16 that the stage has room for.
    #[inline(always)]
    pub(crate) unsafe fn copy(&self, stage: u32, offset: u32, from: u64, bytes: u32) {
        let to = self.data + stage * self.chunk_bytes + offset;
        // SAFETY: the source is readable and the stage free, its bytes are announced, and all is 16-byte aligned.
        unsafe { bulk_copy::global_to_shared(to, from, bytes, self.barriers + stage * 8) };
    }

    /// The stage that is read now.
    #[inline(always)]
    pub(crate) fn stage(&self) -> u32 {
        self.stage
    }

    /// Waits until the bytes of the present stage have landed and returns where they lie.
    ///
    /// # Safety
    ///
    /// The ring is initialised, and what the stage waits for has been announced or will be.
    #[inline(always)]
    pub(crate) unsafe fn wait(&self) -> SharedAddr {
        // SAFETY: `init` came before.
        unsafe { mbarrier::wait_parity(self.barriers + self.stage * 8, self.parity) };
        self.data + self.stage * self.chunk_bytes
    }

    /// Goes on to the next stage.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.stage += 1;
        if self.stage == self.stages {
            self.stage = 0;
            self.parity ^= 1;
        }
    }
}
