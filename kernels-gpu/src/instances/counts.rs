//! How often barriers, warp-wide and atomic instructions occur.

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident: $mnemonic:literal;)*) => {
        /// How often each barrier, warp-wide and atomic instruction occurs in the PTX of an entry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $field: usize,)*
        }

        impl Counts {
            /// None of them.
            pub const NONE: Self = Counts { $($field: 0,)* };

            /// Both together.
            pub const fn plus(self, other: Self) -> Self {
                Counts { $($field: self.$field + other.$field,)* }
            }

            /// Each with the beginning of its mnemonic. One that is not listed may not occur.
            pub fn list(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$(($mnemonic, self.$field)),*].into_iter()
            }
        }
    };
}

counts! {
    /// Barriers of the CTA.
    bar_sync: "bar.sync";
    /// Barriers of the CTA that reduce a predicate.
    bar_red: "bar.red";
    /// Barriers of a warp.
    bar_warp_sync: "bar.warp.sync";
    /// Arrivals at the cluster's barrier.
    cluster_arrive: "barrier.cluster.arrive";
    /// Waits at the cluster's barrier.
    cluster_wait: "barrier.cluster.wait";
    /// Matrix instructions of a warp.
    mma_sync: "mma.sync";
    /// Loads of matrix fragments.
    ldmatrix: "ldmatrix.sync";
    /// Matrix instructions of a warpgroup.
    wgmma: "wgmma.mma_async.sync";
    /// Fences before matrix instructions of a warpgroup.
    wgmma_fence: "wgmma.fence.sync";
    /// Groups of matrix instructions of a warpgroup.
    wgmma_commit: "wgmma.commit_group.sync";
    /// Waits for groups of matrix instructions of a warpgroup.
    wgmma_wait: "wgmma.wait_group.sync";
    /// Exchanges between lanes.
    shfl_sync: "shfl.sync";
    /// Reductions over a warp's lanes.
    redux_sync: "redux.sync";
    /// Elections of a lane.
    elect_sync: "elect.sync";
    /// Votes of a warp's lanes.
    vote_sync: "vote.sync";
    /// Atomic operations with an answer.
    atom: "atom";
    /// Atomic operations without.
    red: "red";
}
