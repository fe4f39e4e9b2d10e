//! What is measured: calls, each on any of several copies of its weights.

use crate::error::Result;
use crate::inputs::Inputs;
use hopper_proj::plan::Plan;
use hopper_proj::raw::{Overlap, RowMajor};
use hopper_proj::{Buffer, Engine, Projection, Stream, bf16};
use hopper_proj::{Choices, Router, Tokens};

/// A call at one number of tokens.
pub(super) trait Subject {
    /// Copies of the weights.
    fn copies(&self) -> usize;
    /// What a call launches.
    fn launches(&self) -> &[Launch];
    /// Queues a call on one copy.
    fn queue(&mut self, engine: &Engine, copy: usize, stream: &Stream, overlap: Overlap) -> hopper_proj::Result<()>;
    /// The memory that a call on the first copy touches.
    fn memory(&self) -> Vec<Memory>;
}

/// One launch of a call.
pub(super) struct Launch {
    /// The kernel, or a word that there is none.
    pub(super) kernel: &'static str,
    /// The bytes of weights that it reads, padding and exceptions included.
    pub(super) bytes: usize,
}

impl Launch {
    /// The launch of a plan over weights that are kept packed, in so many bytes, and perhaps row-major.
    fn of(plan: Option<&Plan>, packed: usize, rows: Option<&RowMajor>) -> Self {
        let rows = rows.filter(|_| plan.is_some_and(|plan| plan.kernel.reads_rows()));
        Launch {
            kernel: plan.map_or("none", Plan::name),
            bytes: rows.map_or(packed, RowMajor::bytes),
        }
    }

    /// The launch of a projection of `m` tokens.
    fn project(engine: &Engine, projection: &Projection, x: &Buffer<bf16>, m: usize) -> Result<Self> {
        let plan = engine.plan(projection, x, m)?;
        Ok(Launch::of(plan.as_ref(), projection.bytes(), projection.row_major()))
    }
}

/// A part of the memory that a call touches.
pub(super) struct Memory {
    pub(super) name: &'static str,
    /// Of its allocations.
    pub(super) addresses: Vec<u64>,
    /// Bytes that must be moved at the least.
    pub(super) least: usize,
    /// Whether writes are what is counted; else reads are.
    pub(super) written: bool,
}

impl Memory {
    fn read(name: &'static str, addresses: Vec<u64>, least: usize) -> Self {
        Memory {
            name,
            addresses,
            least,
            written: false,
        }
    }

    fn written(name: &'static str, addresses: Vec<u64>, least: usize) -> Self {
        Memory {
            name,
            addresses,
            least,
            written: true,
        }
    }
}

/// Device memory that no kernel has written yet.
pub(super) fn blank(engine: &Engine, len: usize) -> Result<Buffer<bf16>> {
    Ok(engine.upload(&vec![bf16::NAN; len])?)
}

/// Every allocation of packed weights.
fn weights_of(projection: &Projection) -> Vec<u64> {
    let mut addresses = projection.weights().addresses();
    addresses.extend(projection.row_major().map(RowMajor::address));
    addresses
}

/// Independent projections.
pub(super) struct Dense<'a> {
    copies: &'a [Projection],
    m: usize,
    x: Buffer<bf16>,
    y: Buffer<bf16>,
    launch: [Launch; 1],
}

impl<'a> Dense<'a> {
    pub(super) fn new(engine: &Engine, copies: &'a [Projection], m: usize, inputs: &mut Inputs) -> Result<Self> {
        let shape = copies[0].shape();
        let x = engine.upload(&inputs.x(m * shape.k()))?;
        Ok(Dense {
            copies,
            m,
            launch: [Launch::project(engine, &copies[0], &x, m)?],
            x,
            y: blank(engine, m * shape.n())?,
        })
    }
}

impl Subject for Dense<'_> {
    fn copies(&self) -> usize {
        self.copies.len()
    }

    fn launches(&self) -> &[Launch] {
        &self.launch
    }

    fn queue(&mut self, engine: &Engine, copy: usize, stream: &Stream, overlap: Overlap) -> hopper_proj::Result<()> {
        engine.project_overlapping(&self.copies[copy], &self.x, self.m, &mut self.y, stream, overlap)
    }

    fn memory(&self) -> Vec<Memory> {
        let (x, y) = (&self.x, &self.y);
        vec![
            Memory::read("weights", weights_of(&self.copies[0]), self.launch[0].bytes),
            Memory::read("x", vec![x.address()], x.len() * 2),
            Memory::written("y", vec![y.address()], y.len() * 2),
        ]
    }
}

/// Pairs of projections, each on the result of the one before: down to fewer values and up again.
pub(super) struct Chain<'a> {
    down: &'a [Projection],
    up: &'a [Projection],
    m: usize,
    wide: Buffer<bf16>,
    narrow: Buffer<bf16>,
    launches: [Launch; 2],
}

impl<'a> Chain<'a> {
    pub(super) fn new(
        engine: &Engine,
        down: &'a [Projection],
        up: &'a [Projection],
        m: usize,
        inputs: &mut Inputs,
    ) -> Result<Self> {
        let shape = down[0].shape();
        let wide = engine.upload(&inputs.x(m * shape.k()))?;
        let narrow = blank(engine, m * shape.n())?;
        let launches = [
            Launch::project(engine, &down[0], &wide, m)?,
            Launch::project(engine, &up[0], &narrow, m)?,
        ];
        Ok(Chain {
            down,
            up,
            m,
            wide,
            narrow,
            launches,
        })
    }
}

impl Subject for Chain<'_> {
    fn copies(&self) -> usize {
        self.down.len().min(self.up.len())
    }

    fn launches(&self) -> &[Launch] {
        &self.launches
    }

    fn queue(&mut self, engine: &Engine, copy: usize, stream: &Stream, overlap: Overlap) -> hopper_proj::Result<()> {
        let Chain {
            down,
            up,
            m,
            wide,
            narrow,
            ..
        } = self;
        engine.project_overlapping(&down[copy], &*wide, *m, &mut *narrow, stream, overlap)?;
        engine.project_overlapping(&up[copy], &*narrow, *m, &mut *wide, stream, overlap)
    }

    fn memory(&self) -> Vec<Memory> {
        let (wide, narrow) = (&self.wide, &self.narrow);
        let values = vec![wide.address(), narrow.address()];
        let bytes = (wide.len() + narrow.len()) * 2;
        let weights = [weights_of(&self.down[0]), weights_of(&self.up[0])].concat();
        vec![
            Memory::read(
                "weights",
                weights,
                self.launches.iter().map(|launch| launch.bytes).sum(),
            ),
            Memory::read("x", values.clone(), bytes),
            Memory::written("y", values, bytes),
        ]
    }
}

/// A router: the whole gate, or its logits alone.
pub(super) struct Routing<'a> {
    copies: &'a [Router],
    m: usize,
    x: Buffer<bf16>,
    ids: Buffer<i32>,
    weights: Buffer<f32>,
    /// Given where they alone are asked for.
    logits: Option<Buffer<f32>>,
    launch: [Launch; 1],
}

impl<'a> Routing<'a> {
    pub(super) fn new(
        engine: &Engine,
        copies: &'a [Router],
        m: usize,
        logits_alone: bool,
        inputs: &mut Inputs,
    ) -> Result<Self> {
        let (shape, chosen) = (copies[0].shape(), m * copies[0].gate().top_k());
        let logits = logits_alone.then(|| engine.upload(&vec![f32::NAN; m * shape.n()]));
        let (router, x) = (&copies[0], engine.upload(&inputs.x(m * shape.k()))?);
        let plan = router.plan(Tokens::new(&x, m))?;
        Ok(Routing {
            copies,
            m,
            launch: [Launch::of(plan.as_ref(), router.unit_bytes(), router.memory().rows)],
            x,
            ids: engine.upload(&vec![i32::MIN; chosen])?,
            weights: engine.upload(&vec![f32::NAN; chosen])?,
            logits: logits.transpose()?,
        })
    }
}

impl Subject for Routing<'_> {
    fn copies(&self) -> usize {
        self.copies.len()
    }

    fn launches(&self) -> &[Launch] {
        &self.launch
    }

    fn queue(&mut self, _: &Engine, copy: usize, stream: &Stream, overlap: Overlap) -> hopper_proj::Result<()> {
        let (router, tokens) = (&self.copies[copy], Tokens::new(&self.x, self.m));
        if let Some(logits) = &mut self.logits {
            return router.logits_by(None, tokens, logits, stream, overlap);
        }
        let choices = Choices::new(&mut self.ids, &mut self.weights);
        router.route_overlapping(tokens, choices, stream, overlap)
    }

    fn memory(&self) -> Vec<Memory> {
        let memory = self.copies[0].memory();
        let rows = memory.rows.map(|rows| rows.address());
        let weights = memory.weights.addresses().into_iter().chain(rows).collect();
        let result = match &self.logits {
            Some(logits) => Memory::written("logits", vec![logits.address()], logits.len() * 4),
            None => {
                let parts = vec![self.ids.address(), self.weights.address()];
                Memory::written("choices", parts, (self.ids.len() + self.weights.len()) * 4)
            }
        };
        let sums = vec![memory.workspace.sums, memory.workspace.shared_sums];
        vec![
            Memory::read("weights", weights, self.launch[0].bytes),
            Memory::read("x", vec![self.x.address()], self.x.len() * 2),
            result,
            Memory::written("sums", sums, 0),
        ]
    }
}
