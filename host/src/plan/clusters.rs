//! How many clusters a device holds at once. A cluster lies within a GPC, and GPCs have different numbers of
//! multiprocessors: what is left over in each of them serves no cluster.

use super::gemm::CLUSTERS;
use super::{Device, Kernel, Request};
use std::fmt;

/// CTAs on a multiprocessor that a count is known for. No kernel asks for more.
const MOST_CTAS: usize = 5;

/// Clusters that a device holds at once, by their size and by the CTAs that a multiprocessor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clusters {
    /// For each of [`CLUSTERS`], at one CTA on a multiprocessor and more.
    held: [[u32; MOST_CTAS]; CLUSTERS.len()],
    source: Source,
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The driver.
    Driver,
    /// The sizes of GPCs.
    Gpcs,
    /// Nobody.
    Estimate,
}

impl Clusters {
    /// The GPCs of an H100 or H200 that hold the fewest clusters of eight, of those with 132 multiprocessors that are
    /// known: 15 in place of 16.
    pub const H200: Clusters = Clusters::of_gpcs(&[18, 18, 18, 16, 16, 16, 16, 14]);

    /// The estimate for a device whose driver does not say: as if a cluster could lie anywhere, so at least as many as
    /// there are.
    pub const ANYWHERE: Clusters = Clusters {
        held: [[u32::MAX; MOST_CTAS]; CLUSTERS.len()],
        source: Source::Estimate,
    };

    /// Those of a device with GPCs of so many multiprocessors.
    pub const fn of_gpcs(gpcs: &[u32]) -> Self {
        let mut held = [[0; MOST_CTAS]; CLUSTERS.len()];
        let mut size = 0;
        while size < CLUSTERS.len() {
            let mut ctas = 0;
            while ctas < MOST_CTAS {
                let mut gpc = 0;
                while gpc < gpcs.len() {
                    held[size][ctas] += gpcs[gpc].saturating_mul(ctas as u32 + 1) / CLUSTERS[size] as u32;
                    gpc += 1;
                }
                ctas += 1;
            }
            size += 1;
        }
        Clusters {
            held,
            source: Source::Gpcs,
        }
    }

    /// What a driver says, which is asked for each size of clusters and each number of CTAs on a multiprocessor.
    ///
    /// # Errors
    ///
    /// Those of the driver, which end the questions.
    pub fn asked<E>(mut ask: impl FnMut(usize, usize) -> Result<u32, E>) -> Result<Self, E> {
        let mut clusters = Clusters {
            source: Source::Driver,
            ..Clusters::ANYWHERE
        };
        for (held, size) in clusters.held.iter_mut().zip(CLUSTERS) {
            for (held, ctas) in held.iter_mut().zip(1..) {
                *held = ask(size, ctas)?;
            }
        }
        Ok(clusters)
    }

    /// Clusters of `size` CTAs at `ctas` CTAs on a multiprocessor, where these are known.
    fn held(&self, size: usize, ctas: usize) -> Option<usize> {
        let row = CLUSTERS.iter().position(|&known| known == size)?;
        self.held[row].get(ctas.checked_sub(1)?).map(|&held| held as usize)
    }
}

impl fmt::Display for Clusters {
    /// Who says so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::Driver => "as the driver says",
            Source::Gpcs => "by the sizes of GPCs",
            Source::Estimate => "an estimate without GPCs, as the driver does not say",
        })
    }
}

impl Device {
    /// Clusters of `size` CTAs that run at a time, where a multiprocessor holds `ctas` CTAs: one at least.
    pub fn clusters_at_a_time(&self, size: usize, ctas: usize) -> usize {
        let anywhere = self.multiprocessors.max(1).saturating_mul(ctas) / size.max(1);
        let held = match size {
            0 | 1 => anywhere,
            _ => self.clusters.held(size, ctas).unwrap_or(usize::MAX).min(anywhere),
        };
        held.max(1)
    }

    /// CTAs of the busiest multiprocessor, of so many clusters: whole waves of `most` CTAs on each, and what is left,
    /// as few on each as it takes.
    pub(super) fn on_busiest(&self, clusters: usize, size: usize, most: usize) -> usize {
        let at_a_time = self.clusters_at_a_time(size, most);
        let (waves, left) = (clusters / at_a_time, clusters % at_a_time);
        let spread = (0..most).find(|&ctas| match ctas {
            0 => left == 0,
            _ => left <= self.clusters_at_a_time(size, ctas),
        });
        let placed = waves.saturating_mul(most).saturating_add(spread.unwrap_or(most));
        placed.max(clusters.saturating_mul(size).div_ceil(self.multiprocessors.max(1)))
    }
}

/// The clusters of a launch on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waves {
    /// CTAs of a cluster.
    pub size: usize,
    /// Clusters of the launch.
    pub clusters: usize,
    /// Those that run at a time.
    pub at_a_time: usize,
}

impl Waves {
    /// The clusters of a kernel's launch for a request; none where CUDA's limits do not allow the launch.
    pub fn new(kernel: &Kernel, request: &Request, device: &Device) -> Option<Self> {
        let grid = kernel.grid(request.m, request.shape.n())?;
        let ctas = grid
            .iter()
            .fold(1, |ctas: usize, &dim| ctas.saturating_mul(dim as usize));
        let size = kernel.cluster().max(1);
        Some(Waves {
            size,
            clusters: ctas / size,
            at_a_time: device.clusters_at_a_time(size, kernel.min_ctas()),
        })
    }

    /// Waves that the launch runs in.
    pub fn count(&self) -> usize {
        self.clusters.div_ceil(self.at_a_time.max(1))
    }
}

impl fmt::Display for Waves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let what = if self.size == 1 { "CTA" } else { "cluster" };
        let (clusters, waves) = (self.clusters, self.count());
        write!(
            f,
            "{clusters} {what}{}, {waves} wave{}",
            plural(clusters),
            plural(waves)
        )
    }
}

#[cfg(test)]
#[path = "clusters_tests.rs"]
mod tests;
