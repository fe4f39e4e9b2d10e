//! Times on a GPU. Each call is captured in a graph once per copy of the weights, with enough copies that every call finds
//! the L2 cache cold; a figure is the median over replays of replay time / calls.

use super::{Meter, Row};
use crate::args::Mode;
use crate::error::Result;
use crate::inputs::Inputs;
use hopper_proj::convert::PackFormat;
use hopper_proj::cust::event::{Event, EventFlags};
use hopper_proj::cust::stream::Stream;
use hopper_proj::instances::FLOOR_READ;
use hopper_proj::raw::Overlap;
use hopper_proj::suites::Case;
use hopper_proj::{Engine, Projection, bf16, device_error, plan};

/// Bytes of weights that a graph goes through: an order of magnitude more than the L2 cache holds.
const POOL: usize = 640 << 20;
/// Calls in a graph at most; only layers far smaller than those worth timing reach it.
const MOST_COPIES: usize = 1024;
const WARM_UPS: usize = 3;
const REPLAYS: usize = 25;

pub(super) struct Clock {
    what: &'static str,
    overlap: Overlap,
}

impl Clock {
    pub(super) fn new(mode: Mode) -> Self {
        match mode {
            Mode::Pdl => Clock {
                what: "project_pdl",
                overlap: Overlap::Programmatic,
            },
            Mode::Graph | Mode::Chain => Clock {
                what: "project_graph",
                overlap: Overlap::None,
            },
        }
    }
}

impl Meter for Clock {
    fn heading(&self) -> String {
        format!(
            "µs per call, median of {REPLAYS} replays of a graph over {} MB of weights (cold L2); floor: only reading the same bytes\n\
             layer               m     MB       µs    floor  ratio   TB/s  instance",
            POOL >> 20
        )
    }

    fn layer(&self, engine: &Engine, cases: &[Case], done: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
        let Some(Case { shape, .. }) = cases.first() else {
            return Ok(());
        };
        let stream = engine.stream()?;
        let mut inputs = Inputs::new(0);
        let weights = inputs.weights(shape.n() * shape.k());
        for format in [PackFormat::Bf16, PackFormat::Window12] {
            let first = engine.prepare_as(&weights, *shape, format)?;
            let copies = POOL.div_ceil(first.bytes()).clamp(2, MOST_COPIES);
            let others = (1..copies).map(|_| Ok(engine.prepare_as(&weights, *shape, format)?));
            let copies = [Ok(first)].into_iter().chain(others).collect::<Result<Vec<_>>>()?;
            let floor = self.floor(engine, &copies, &stream)?;
            for case in cases {
                let x = engine.upload(&inputs.x(case.m * shape.k()))?;
                let mut y = engine.upload(&vec![bf16::NAN; case.m * shape.n()])?;
                let mut instance = "";
                let us = per_call(engine, &stream, copies.len(), || {
                    for projection in &copies {
                        let plan = plan(&engine.request(projection, &x, case.m))?;
                        instance = plan.map_or("", |plan| plan.instance.name);
                        engine.project_as(plan.as_ref(), projection, &x, case.m, &mut y, &stream, self.overlap)?;
                    }
                    Ok(())
                })?;
                let mut row = Row::new(self.what, &copies[0], case, instance);
                (row.us, row.floor_us, row.ratio) = (Some(us), Some(floor), Some(us / floor));
                done(row)?;
            }
        }
        Ok(())
    }

    fn show(&self, row: &Row) -> String {
        let (us, floor, ratio) = (
            row.us.unwrap_or(f64::NAN),
            row.floor_us.unwrap_or(f64::NAN),
            row.ratio.unwrap_or(f64::NAN),
        );
        let (mb, rate) = (row.bytes as f64 / 1e6, row.bytes as f64 / us / 1e6);
        format!(
            "{:<16} {:>4} {mb:>6.1} {us:>8.2} {floor:>8.2} {ratio:>6.3} {rate:>6.2}  {}",
            row.layer, row.m, row.instance
        )
    }
}

impl Clock {
    /// The best reader's time over the same copies.
    fn floor(&self, engine: &Engine, copies: &[Projection], stream: &Stream) -> Result<f64> {
        let mut best = f64::INFINITY;
        for floor in FLOOR_READ {
            let warps = engine.floor_ctas(floor) as usize * floor.warps;
            let mut out = engine.zeroed(warps)?;
            let us = per_call(engine, stream, copies.len(), || {
                for projection in copies {
                    engine.floor_read(floor, projection, &mut out, stream, self.overlap)?;
                }
                Ok(())
            })?;
            best = best.min(us);
        }
        Ok(best)
    }
}

/// Microseconds per call of what `record` queues.
fn per_call(
    engine: &Engine,
    stream: &Stream,
    calls: usize,
    record: impl FnOnce() -> hopper_proj::Result<()>,
) -> Result<f64> {
    let mut graph = engine.capture(stream, record)?;
    let event = || Event::new(EventFlags::DEFAULT).map_err(|err| device_error("create an event", err));
    let (start, end) = (event()?, event()?);
    let mut times = Vec::with_capacity(REPLAYS);
    for replay in 0..WARM_UPS + REPLAYS {
        start
            .record(stream)
            .map_err(|err| device_error("record an event", err))?;
        // SAFETY: the caller's buffers outlive this function, which ends after the last replay has.
        unsafe { graph.launch(stream) }?;
        end.record(stream).map_err(|err| device_error("record an event", err))?;
        engine.synchronize(stream)?;
        let ms = end
            .elapsed_time_f32(&start)
            .map_err(|err| device_error("read a time", err))?;
        if replay >= WARM_UPS {
            times.push(f64::from(ms) * 1e3 / calls as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
