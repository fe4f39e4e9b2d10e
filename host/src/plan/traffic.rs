//! What it takes to bring weights and x into the multiprocessors and the sums out again, whichever kernel does it.

use super::Device;

/// The bytes that a launch moves.
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
    /// Bytes of x that a CTA takes in.
    pub(super) cta_x: f64,
    /// CTAs that take them in together: each has read its part for all.
    pub(super) sharing: usize,
    /// Bytes of weights that a CTA has room for.
    pub(super) ring: f64,
    /// Bytes of a CTA's partial sums.
    pub(super) sums: f64,
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
    ///   answer;
    /// * weights and x that this multiprocessor reads, as fast as L2 serves it; L2 answers sooner than memory, in the
    ///   ratio of the rates;
    /// * weights and x that it takes in, whoever has read them: one may take in more than L2 can give to each of all.
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
        let weights = ctas as f64 * self.cta_weights;
        let answered = waiting as f64 * self.cta_weights / (device.stream * in_flight).min(device.l2);
        let x = ctas as f64 * self.cta_x;
        let through_l2 = (weights + x / self.sharing as f64) / (device.l2 * in_flight.min(1.0));
        let taken_in = (weights + x) / device.port;
        from_memory.max(answered).max(through_l2).max(taken_in)
    }

    /// Microseconds in which the partial sums of the CTAs that end last pass through shared memory, in and out.
    pub(super) fn bring_out(&self, device: &Device) -> f64 {
        let together = self.on_busiest(device).min(self.min_ctas);
        2.0 * together as f64 * self.sums / device.shared
    }
}
