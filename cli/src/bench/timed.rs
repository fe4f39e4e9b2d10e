//! Times on a GPU. Each call is captured in a graph once per copy of the weights, with enough copies that every call
//! finds the L2 cache cold; a figure is the median over replays of replay time / calls.

use super::{Meter, Row, Subject};
use crate::args::Mode;
use crate::error::Result;
use hopper_proj::instances::STREAM_READ;
use hopper_proj::raw::Overlap;
use hopper_proj::{Buffer, Engine, Stream};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

/// Bytes of weights that a graph goes through: an order of magnitude more than the L2 cache holds.
const POOL: usize = 640 << 20;
/// Calls in a graph at most; only layers far smaller than those worth timing reach it.
const MOST_COPIES: usize = 1024;
const WARM_UPS: usize = 3;
const REPLAYS: usize = 25;

/// How a mode's launches follow each other.
pub(super) fn overlap(mode: Mode) -> Overlap {
    match mode {
        // A chain is what a decode step is: the library's own way to launch.
        Mode::Pdl | Mode::Chain => Overlap::Programmatic,
        Mode::Graph => Overlap::None,
    }
}

/// The protocol, in words.
pub(crate) fn protocol(mode: Mode) -> String {
    let edges = match mode {
        Mode::Graph => "launched one after the other",
        Mode::Pdl => "launched by programmatic dependent launch",
        Mode::Chain => "each on the result of the one before, launched by programmatic dependent launch",
    };
    format!(
        "µs per call, median of {REPLAYS} replays of a CUDA graph over at least {} MB of distinct weights (cold L2), {edges}",
        POOL >> 20
    )
}

/// Copies of weights of so many bytes that a graph goes through.
pub(crate) fn copies(bytes: usize) -> usize {
    POOL.div_ceil(bytes.max(1)).clamp(2, MOST_COPIES)
}

/// Measures, and remembers the floors.
pub(super) struct Clock {
    mode: Mode,
    stream: Stream,
    readers: Readers,
}

impl Clock {
    pub(super) fn new(engine: &Engine, mode: Mode) -> Result<Self> {
        Ok(Clock {
            mode,
            stream: engine.stream()?,
            readers: Readers::default(),
        })
    }
}

impl Meter for Clock {
    fn heading(&self) -> String {
        format!(
            "{}; floor: only reading the same bytes\n\
             {:<24} {:<16} {:>4} {:>6} {:>8} {:>8} {:>6} {:>6}  instance",
            protocol(self.mode),
            "what",
            "layer",
            "m",
            "MB",
            "us",
            "floor",
            "ratio",
            "TB/s"
        )
    }

    fn copies(&self, bytes: usize) -> usize {
        copies(bytes)
    }

    fn measure(&mut self, engine: &Engine, subject: &mut dyn Subject, row: &mut Row) -> Result<()> {
        let (overlap, calls) = (overlap(self.mode), subject.copies());
        let us = per_call(engine, &self.stream, calls, |stream| {
            (0..calls).try_for_each(|copy| subject.queue(engine, copy, stream, overlap))
        })?;
        let bytes: Vec<usize> = subject.launches().iter().map(|launch| launch.bytes).collect();
        let floor = self.readers.floor(engine, &bytes, calls, &self.stream, overlap)?;
        row.timed(us, floor, REPLAYS);
        Ok(())
    }

    fn show(&self, row: &Row) -> String {
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
        format!(
            "{:<24} {:<16} {:>4} {:>6.1} {:>8.2} {:>8.2} {:>6.3} {:>6.2}  {}",
            row.what,
            row.layer,
            row.m,
            row.bytes as f64 / 1e6,
            number(row.us),
            number(row.floor_us),
            number(row.ratio),
            number(row.tb_per_s),
            row.instance
        )
    }
}

/// Readers of memory: the floor that calls are compared with.
#[derive(Default)]
struct Readers {
    /// Words to read, of no meaning.
    data: Option<Buffer<u32>>,
    /// Microseconds, by the bytes of a call's launches.
    known: HashMap<Vec<usize>, f64>,
}

impl Readers {
    /// The best reader's time for calls whose launches read so many bytes, each call other ones.
    fn floor(
        &mut self,
        engine: &Engine,
        bytes: &[usize],
        calls: usize,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<f64> {
        if let Some(&known) = self.known.get(bytes) {
            return Ok(known);
        }
        // Readers take whole pieces of 16 bytes.
        let words: Vec<usize> = bytes.iter().map(|bytes| bytes.next_multiple_of(16) / 4).collect();
        let needed = words.iter().sum::<usize>() * calls;
        if self.data.as_ref().is_none_or(|data| data.len() < needed) {
            self.data = None;
            self.data = Some(noise(engine, needed, stream)?);
        }
        let Some(data) = &self.data else {
            return Ok(f64::NAN);
        };
        let mut best = f64::INFINITY;
        engine.prepare_readers()?;
        for reader in STREAM_READ {
            let mut out = engine.zeroed(engine.reader_ctas(reader) as usize * reader.warps)?;
            let us = per_call(engine, stream, calls, |stream| {
                let mut at = 0;
                for len in std::iter::repeat_n(&words, calls).flatten() {
                    let part = data.slice(at..at + len)?;
                    engine.stream_read_data(reader, part, &mut out, stream, overlap)?;
                    at += len;
                }
                Ok(())
            })?;
            best = best.min(us);
        }
        self.known.insert(bytes.to_vec(), best);
        Ok(best)
    }
}

/// Random words in device memory: a memory's speed may depend on what it holds.
fn noise(engine: &Engine, len: usize, stream: &Stream) -> Result<Buffer<u32>> {
    const PIECE: usize = 16 << 20;
    let mut random = StdRng::seed_from_u64(0);
    let piece: Vec<u32> = (0..PIECE.min(len)).map(|_| random.random()).collect();
    let mut data = engine.zeroed(len)?;
    for start in (0..len).step_by(PIECE) {
        let end = len.min(start + PIECE);
        engine.write(data.slice_mut(start..end)?, &piece[..end - start], stream)?;
    }
    Ok(data)
}

/// Microseconds per call of the `calls` that `record` queues.
pub(crate) fn per_call(
    engine: &Engine,
    stream: &Stream,
    calls: usize,
    record: impl FnOnce(&Stream) -> hopper_proj::Result<()>,
) -> Result<f64> {
    let mut graph = engine.capture(stream, || record(stream))?;
    let (start, end) = (engine.timing_event()?, engine.timing_event()?);
    let mut times = Vec::with_capacity(REPLAYS);
    for replay in 0..WARM_UPS + REPLAYS {
        stream.record(&start)?;
        // SAFETY: the caller's buffers outlive this function, which ends after the last replay has.
        unsafe { graph.launch(stream) }?;
        stream.record(&end)?;
        engine.synchronize(stream)?;
        let ms = end.milliseconds_since(&start)?;
        if replay >= WARM_UPS {
            times.push(f64::from(ms) * 1e3 / calls as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::super::{Dense, KEPT, prepared};
    use super::*;
    use crate::inputs::{DEVIATION, Inputs};
    use hopper_proj::{DriverChoice, EngineOptions, Shape};

    /// The emulated device replays as a GPU does, but has no times worth a look: what is checked is that all of it
    /// runs.
    #[test]
    fn graphs_of_calls_and_of_readers_are_replayed() {
        let engine = Engine::new(EngineOptions::on(DriverChoice::Emulated)).unwrap();
        let (shape, mut inputs) = (Shape::new(16, 65).unwrap(), Inputs::new(1));
        let weights = inputs.weights(16 * 65, DEVIATION);
        let copies = prepared(&engine, &weights, shape, &KEPT[2], 1..=32, |_| 2).unwrap();
        let mut subject = Dense::new(&engine, &copies, 3, &mut inputs).unwrap();
        let mut queued = Vec::new();
        let stream = engine.stream().unwrap();
        let us = per_call(&engine, &stream, 2, |stream| {
            (0..2).try_for_each(|copy| {
                queued.push(copy);
                subject.queue(&engine, copy, stream, Overlap::Programmatic)
            })
        });
        assert!(us.unwrap() >= 0.0);
        assert_eq!(queued, [0, 1], "captured once, replayed often");
        let mut readers = Readers::default();
        let bytes = [40, 16];
        (readers.floor(&engine, &bytes, 2, &stream, Overlap::Programmatic)).unwrap();
        assert_eq!(readers.known.keys().collect::<Vec<_>>(), [&bytes]);
        let words = readers.data.as_ref().unwrap().len();
        assert_eq!(
            words,
            2 * (48 + 16) / 4,
            "whole pieces of 16 bytes, for each call others"
        );
    }

    #[test]
    fn a_graph_goes_through_more_than_the_cache_holds() {
        for bytes in [1 << 20, 8_388_608, 67_108_864] {
            assert!(copies(bytes) * bytes >= 640 << 20);
        }
        assert_eq!((copies(0), copies(1 << 40)), (MOST_COPIES, 2));
    }
}
