//! What it takes to bring weights and tiles of x into the multiprocessors and the sums out again, whichever kernel does
//! it.

use super::Device;

/// The bytes that a launch moves.
#[derive(Clone, Copy)]
pub(super) struct Traffic {
    /// CTAs of one tile of tokens.
    pub(super) row_ctas: usize,
    /// Tiles of tokens.
    pub(super) token_tiles: usize,
    /// CTAs of a cluster, which divide those of a tile.
    pub(super) cluster: usize,
    /// CTAs that fit on a multiprocessor.
    pub(super) min_ctas: usize,
    /// Bytes of all weights.
    pub(super) weights: f64,
    /// Bytes of weights that a CTA reads.
    pub(super) cta_weights: f64,
    /// Bytes of x that a CTA takes in as tiles.
    pub(super) cta_x: f64,
    /// CTAs that take them in together: each has read its part for all.
    pub(super) sharing: usize,
    /// Whether weights must be decoded.
    pub(super) decoded: bool,
    /// Bytes of weights that a CTA has room for.
    pub(super) ring: f64,
    /// CTAs of a cluster that reduce their sums together.
    pub(super) reducing: usize,
    /// Bytes of the partial sums that a CTA's warps leave in its shared memory.
    pub(super) sums: f64,
    /// Bytes of a CTA's sums once its warps' are added.
    pub(super) tile: f64,
}

impl Traffic {
    /// CTAs of the busiest multiprocessor.
    pub(super) fn on_busiest(&self, device: &Device) -> usize {
        device.on_busiest(self.clusters(), self.cluster, self.min_ctas)
    }

    /// Waves of clusters.
    pub(super) fn waves(&self, device: &Device) -> usize {
        let at_a_time = device.clusters_at_a_time(self.cluster, self.min_ctas);
        self.clusters().div_ceil(at_a_time)
    }

    fn clusters(&self) -> usize {
        (self.row_ctas / self.cluster).saturating_mul(self.token_tiles)
    }

    /// Microseconds until all has come in: the longest of
    ///
    /// * weights from memory, by its bandwidth;
    /// * weights into the busiest multiprocessor, which gets its bytes in flight once in the time that memory takes to
    ///   answer, and no more than its port takes in;
    /// * what all multiprocessors read from L2;
    /// * what the busiest one takes in, whoever has read it.
    pub(super) fn bring_in(&self, device: &Device) -> f64 {
        let multiprocessors = device.multiprocessors.max(1);
        // Tiles of tokens that run at different times read weights again, from memory where L2 does not hold them.
        let row_clusters = self.row_ctas / self.cluster;
        let at_a_time = device.clusters_at_a_time(self.cluster, self.min_ctas);
        let at_a_time = (at_a_time / row_clusters.max(1)).max(1);
        let held = self.weights <= device.l2_bytes as f64;
        let passes = if held { 1 } else { self.token_tiles.div_ceil(at_a_time) };
        let from_memory = passes as f64 * self.weights / (multiprocessors as f64 * device.stream);

        let ctas = self.on_busiest(device);
        // Those of the first tiles of tokens, all that run at a time; later ones find in L2 what it holds.
        let first = device
            .on_busiest(row_clusters, self.cluster, self.min_ctas)
            .max(self.min_ctas);
        let waiting = if held { ctas.min(first) } else { ctas };
        let in_flight = ctas.min(self.min_ctas) as f64 * self.cta_weights.min(self.ring) / device.in_flight;
        let answered = waiting as f64 * self.cta_weights / (device.stream * in_flight).min(device.port);

        let read = self.cta_weights + self.cta_x / self.sharing as f64;
        let all = self.row_ctas as f64 * self.token_tiles as f64;
        let through_l2 = all * read / (multiprocessors as f64 * device.l2);
        let taken_in = ctas as f64 * (self.cta_weights + self.cta_x) / device.port;
        from_memory.max(answered).max(through_l2).max(taken_in)
    }

    /// Microseconds that CTAs take to fill their rings while nothing else runs on the busiest multiprocessor: those of
    /// every wave but the first, whose time is the launch's, where one CTA runs at a time.
    pub(super) fn fill_again(&self, device: &Device) -> f64 {
        if self.min_ctas > 1 {
            return 0.0;
        }
        self.waves(device).saturating_sub(1) as f64 * device.fill
    }

    /// Microseconds in which the busiest multiprocessor's sums become results: warps' partial sums pass through shared
    /// memory, in and out, and a CTA sends the others of its cluster their shares of its tile.
    pub(super) fn bring_out(&self, device: &Device) -> f64 {
        let ctas = self.on_busiest(device) as f64;
        let sent = self.tile * (1.0 - 1.0 / self.reducing as f64);
        let doublings = (self.reducing as f64).log2();
        ctas * (2.0 * self.sums / device.shared + sent / device.dsmem) + device.reduction * doublings
    }

    /// Microseconds of all but the stream of weights and x.
    pub(super) fn around(&self, device: &Device) -> f64 {
        let decoded = if self.decoded { device.decode } else { 0.0 };
        let started = device.launch + self.on_busiest(device) as f64 * device.cta + self.fill_again(device);
        started + decoded + self.bring_out(device)
    }
}
