//! Counts of the emulator.

use super::subjects::Memory;
use super::timed::overlap;
use super::{Meter, Row, Subject};
use crate::args::Mode;
use crate::error::Result;
use hopper_proj::{Counters, Engine, Traffic};
use serde::Serialize;

/// What one call was counted to do.
#[derive(Debug, Serialize)]
pub(super) struct Counts {
    buffers: Vec<Buffer>,
    instructions: u64,
    load_conflicts: u64,
    store_conflicts: u64,
}

/// The global memory traffic of one buffer: reads of inputs, writes of results.
#[derive(Debug, Serialize)]
struct Buffer {
    buffer: &'static str,
    bytes: u64,
    minimum_bytes: u64,
    sectors: u64,
    minimum_sectors: u64,
}

const SECTOR: u64 = 32;

impl Buffer {
    fn new(memory: &Memory, counters: &Counters) -> Self {
        let traffic = |address: &u64| counters.traffic.get(address).copied().unwrap_or_default();
        let (mut bytes, mut sectors) = (0, 0);
        for traffic in memory.addresses.iter().map(traffic) {
            let Traffic {
                read_bytes,
                read_sectors,
                written_bytes,
                written_sectors,
                ..
            } = traffic;
            bytes += if memory.written { written_bytes } else { read_bytes };
            sectors += if memory.written { written_sectors } else { read_sectors };
        }
        let minimum_bytes = memory.least as u64;
        Buffer {
            buffer: memory.name,
            bytes,
            minimum_bytes,
            sectors,
            minimum_sectors: minimum_bytes.div_ceil(SECTOR),
        }
    }

    fn show(&self) -> String {
        let times = |value: u64, least: u64| match least {
            0 => String::new(),
            least => format!("{:.2} × least", value as f64 / least as f64),
        };
        let line = format!(
            "  {:<8} {:>11} bytes {:>14} {:>10} sectors {:>14}",
            self.buffer,
            self.bytes,
            times(self.bytes, self.minimum_bytes),
            self.sectors,
            times(self.sectors, self.minimum_sectors)
        );
        line.trim_end().to_owned()
    }
}

/// Captures each call, replays it once and reads the counters.
pub(super) struct Counter {
    mode: Mode,
}

impl Counter {
    pub(super) fn new(mode: Mode) -> Self {
        Counter { mode }
    }
}

impl Meter for Counter {
    fn heading(&self) -> String {
        "counts of one call each, captured in a graph and replayed once, where a GPU would replay graphs of many calls; the emulator keeps no \
         time: times need a GPU".to_owned()
    }

    fn copies(&self, _: usize) -> usize {
        1
    }

    fn measure(&mut self, engine: &Engine, subject: &mut dyn Subject, row: &mut Row) -> Result<()> {
        let stream = engine.stream()?;
        let mut graph = engine.capture(&stream, || subject.queue(engine, 0, &stream, overlap(self.mode)))?;
        engine.take_counters()?;
        // SAFETY: the subject and its buffers outlive the graph's end, which is waited for here.
        unsafe { graph.launch(&stream) }?;
        engine.synchronize(&stream)?;
        let counters = engine.take_counters()?.unwrap_or_default();
        row.counts = Some(Counts {
            buffers: subject
                .memory()
                .iter()
                .map(|memory| Buffer::new(memory, &counters))
                .collect(),
            instructions: counters.total_instructions(),
            load_conflicts: counters.load_conflicts,
            store_conflicts: counters.store_conflicts,
        });
        Ok(())
    }

    fn show(&self, row: &Row) -> String {
        let mut text = format!(
            "{} {} m={} ({} × {}) {}",
            row.what, row.layer, row.m, row.n, row.k, row.instance
        );
        if let Some(counts) = &row.counts {
            for buffer in &counts.buffers {
                text += &format!("\n{}", buffer.show());
            }
            text += &format!(
                "\n  {} warp instructions; shared-memory bank conflicts: {} by loads, {} by stores",
                counts.instructions, counts.load_conflicts, counts.store_conflicts
            );
        }
        text
    }
}
