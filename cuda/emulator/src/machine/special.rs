//! Special registers.

use super::cluster::Cluster;
use crate::parse::Special;
use crate::program::{Lanes, Mask, SHARED_BASE, WARP};

/// Multiprocessors of the device that is told of.
pub(super) const MULTIPROCESSORS: u32 = 132;

impl Cluster<'_> {
    pub(super) fn special(&mut self, w: usize, special: Special, d: u32, exec: Mask) {
        let warp = &self.warps[w];
        let (env, at, rank) = (self.env, self.ctas[warp.cta].at, warp.cta as u32);
        let [bx, by, _] = env.block;
        let first = warp.index * WARP as u32;
        let thread = |lane: usize| first + lane as u32;
        let in_cluster = [
            rank % env.cluster[0],
            rank / env.cluster[0] % env.cluster[1],
            rank / env.cluster[0] / env.cluster[1],
        ];
        let clusters: [u32; 3] = std::array::from_fn(|i| env.grid[i] / env.cluster[i]);
        let cluster_at: [u32; 3] = std::array::from_fn(|i| at[i] / env.cluster[i]);
        // Time is counted in instructions of the cluster.
        let clock = self.executed;
        let value: Lanes = std::array::from_fn(|lane| {
            let bit = 1u32 << lane;
            let narrow = match special {
                Special::TidX => thread(lane) % bx,
                Special::TidY => thread(lane) / bx % by,
                Special::TidZ => thread(lane) / bx / by,
                Special::NtidX => env.block[0],
                Special::NtidY => env.block[1],
                Special::NtidZ => env.block[2],
                Special::CtaidX => at[0],
                Special::CtaidY => at[1],
                Special::CtaidZ => at[2],
                Special::NctaidX => env.grid[0],
                Special::NctaidY => env.grid[1],
                Special::NctaidZ => env.grid[2],
                Special::ClusteridX => cluster_at[0],
                Special::ClusteridY => cluster_at[1],
                Special::ClusteridZ => cluster_at[2],
                Special::NclusteridX => clusters[0],
                Special::NclusteridY => clusters[1],
                Special::NclusteridZ => clusters[2],
                Special::ClusterCtaidX => in_cluster[0],
                Special::ClusterCtaidY => in_cluster[1],
                Special::ClusterCtaidZ => in_cluster[2],
                Special::ClusterNctaidX => env.cluster[0],
                Special::ClusterNctaidY => env.cluster[1],
                Special::ClusterNctaidZ => env.cluster[2],
                Special::ClusterCtarank => rank,
                Special::ClusterNctarank => env.ctas_per_cluster() as u32,
                Special::IsExplicitCluster => u32::from(env.ctas_per_cluster() > 1),
                Special::Laneid => lane as u32,
                Special::Warpid => warp.index,
                Special::Nwarpid => env.warps_per_cta() as u32,
                Special::Smid => {
                    ((self.index * self.ctas.len() as u64 + u64::from(rank)) % u64::from(MULTIPROCESSORS)) as u32
                }
                Special::Nsmid => MULTIPROCESSORS,
                Special::Gridid => env.id,
                Special::LanemaskEq => bit,
                Special::LanemaskLt => bit - 1,
                Special::LanemaskLe => bit | (bit - 1),
                Special::LanemaskGe => !(bit - 1),
                Special::LanemaskGt => !(bit | (bit - 1)),
                Special::Clock | Special::GlobaltimerLo => clock as u32,
                Special::ClockHi | Special::GlobaltimerHi => (clock >> 32) as u32,
                Special::Clock64 | Special::Globaltimer => return clock,
                Special::TotalSmemSize | Special::AggrSmemSize => env.shared_bytes(),
                Special::DynamicSmemSize => env.dynamic_shared,
                // The system's part of shared memory is what lies below the CTA's own.
                Special::ReservedSmemBegin | Special::ReservedSmem0 | Special::ReservedSmem1 => 0,
                Special::ReservedSmemEnd | Special::ReservedSmemCap => SHARED_BASE,
                // No launch here is a graph's own.
                Special::CurrentGraphExec => 0,
                Special::Envreg1 => (env.grid_workspace >> 32) as u32,
                Special::Envreg2 => env.grid_workspace as u32,
            };
            u64::from(narrow)
        });
        self.warps[w].write(d, exec, &value);
    }
}
