//! Counts of the emulator.

use super::{Meter, Row};
use crate::error::Result;
use crate::inputs::Inputs;
use hopper_proj::convert::PackFormat;
use hopper_proj::raw::Weights;
use hopper_proj::suites::Case;
use hopper_proj::{Engine, Projection, Traffic, bf16, plan};
use serde::Serialize;

/// What one launch was counted to do.
#[derive(Serialize)]
pub(super) struct Counts {
    buffers: [Buffer; 3],
    instructions: u64,
    load_conflicts: u64,
    store_conflicts: u64,
}

/// The global memory traffic of one buffer: reads of inputs, writes of the output.
#[derive(Serialize)]
struct Buffer {
    buffer: &'static str,
    bytes: u64,
    minimum_bytes: u64,
    sectors: u64,
    minimum_sectors: u64,
}

const SECTOR: u64 = 32;

impl Buffer {
    fn new(buffer: &'static str, bytes: u64, sectors: u64, minimum_bytes: usize) -> Self {
        let minimum_bytes = minimum_bytes as u64;
        Buffer {
            buffer,
            bytes,
            minimum_bytes,
            sectors,
            minimum_sectors: minimum_bytes.div_ceil(SECTOR),
        }
    }

    fn show(&self) -> String {
        let times = |value: u64, least: u64| value as f64 / least as f64;
        format!(
            "  {:<8} {:>11} bytes {:>7.2} × least {:>10} sectors {:>7.2} × least",
            self.buffer,
            self.bytes,
            times(self.bytes, self.minimum_bytes),
            self.sectors,
            times(self.sectors, self.minimum_sectors)
        )
    }
}

/// What a launch read of the weights' buffers, exceptions included.
fn weights_read(projection: &Projection, traffic: impl Fn(u64) -> Traffic) -> Buffer {
    let apart = match projection.weights() {
        Weights::Window12 { starts, exceptions, .. } => vec![starts, exceptions],
        _ => Vec::new(),
    };
    let all: Vec<Traffic> = apart.into_iter().chain([projection.pointer()]).map(traffic).collect();
    let bytes = all.iter().map(|t| t.read_bytes).sum();
    let sectors = all.iter().map(|t| t.read_sectors).sum();
    Buffer::new("weights", bytes, sectors, projection.bytes())
}

/// Runs each projection once and reads the counters.
pub(super) struct Counter;

impl Meter for Counter {
    fn heading(&self) -> String {
        "counts of one call each; the emulator keeps no time: times need a GPU".to_owned()
    }

    fn layer(&self, engine: &Engine, cases: &[Case], done: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
        let Some(Case { shape, .. }) = cases.first() else {
            return Ok(());
        };
        let stream = engine.stream()?;
        let mut inputs = Inputs::new(0);
        let weights = inputs.weights(shape.n() * shape.k());
        let formats =
            [PackFormat::Bf16, PackFormat::Window12].map(|format| engine.prepare_as(&weights, *shape, format));
        let projections = formats.into_iter().collect::<hopper_proj::Result<Vec<_>>>()?;
        for (case, projection) in cases.iter().flat_map(|case| projections.iter().map(move |p| (case, p))) {
            let x = engine.upload(&inputs.x(case.m * shape.k()))?;
            let mut y = engine.upload(&vec![bf16::NAN; case.m * shape.n()])?;
            let plan = plan(&engine.request(projection, &x, case.m))?;
            engine.take_counters()?;
            engine.project(projection, &x, case.m, &mut y, &stream)?;
            engine.synchronize(&stream)?;
            let counters = engine.take_counters()?.unwrap_or_default();
            let traffic = |address: u64| counters.traffic.get(&address).copied().unwrap_or_default();
            let read = |buffer, address, least| {
                let Traffic {
                    read_bytes,
                    read_sectors,
                    ..
                } = traffic(address);
                Buffer::new(buffer, read_bytes, read_sectors, least)
            };
            let written = traffic(y.as_device_ptr().as_raw());
            let mut row = Row::new("project", projection, case, plan.map_or("", |plan| plan.instance.name));
            row.counts = Some(Counts {
                buffers: [
                    weights_read(projection, traffic),
                    read("x", x.as_device_ptr().as_raw(), x.len() * 2),
                    Buffer::new("y", written.written_bytes, written.written_sectors, y.len() * 2),
                ],
                instructions: counters.total_instructions(),
                load_conflicts: counters.load_conflicts,
                store_conflicts: counters.store_conflicts,
            });
            done(row)?;
        }
        Ok(())
    }

    fn show(&self, row: &Row) -> String {
        let mut text = format!("{} m={} ({} × {}) {}", row.layer, row.m, row.n, row.k, row.instance);
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
