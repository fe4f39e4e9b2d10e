//! A router on a device, ready for tokens.

use super::context::OpenDevice;
use super::engine::Engine;
use super::raw::{Overlap, Queue, RouteCall, RouterMemory, Workspace};
use super::row_major::Rows;
use super::{Result, cust_error, upload};
use crate::formats::device::Stored;
use crate::formats::{self, split::Split};
use crate::gate::{ConfigError, Gate, RouterConfig};
use crate::instances::Format;
use crate::plan::{self, FEW_TOKENS, Kernel, Op, Plan, Request, Workload, route_workspace};
use crate::{Error, Shape};
use cust::memory::{DeviceBuffer, DeviceCopy, DeviceSlice};
use cust::stream::Stream;
use half::bf16;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A router's weights, row-major `[experts, K]`. What they are is what is computed with.
#[derive(Debug, Clone, Copy)]
pub enum RouterWeights<'a> {
    /// FP32, as two BF16 terms each, or as three: see [`RouterOptions::terms`].
    Fp32(&'a [f32]),
    /// BF16.
    Bf16(&'a [bf16]),
}

/// How to prepare a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouterOptions {
    /// Tokens of one launch, at most: the workspace is made for so many. A call with more of them is several launches.
    pub max_tokens: usize,
    /// Whether equal tokens get equal bits in every run and whatever the tokens around them are. Otherwise, beyond 32
    /// tokens the order in which sums are added may differ from run to run, and with it their last bits.
    pub deterministic: bool,
    /// BF16 terms per FP32 weight: 2, which keeps 17 bits or more of each, or 3, which keeps all 24.
    pub terms: usize,
}

impl Default for RouterOptions {
    fn default() -> Self {
        RouterOptions {
            max_tokens: 1024,
            deterministic: false,
            terms: 2,
        }
    }
}

impl RouterOptions {
    /// Sets [`RouterOptions::max_tokens`].
    #[must_use]
    pub fn max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// Sets [`RouterOptions::deterministic`].
    #[must_use]
    pub fn deterministic(mut self) -> Self {
        self.deterministic = true;
        self
    }

    /// Sets [`RouterOptions::terms`].
    #[must_use]
    pub fn terms(mut self, terms: usize) -> Self {
        self.terms = terms;
        self
    }
}

/// Hidden states to route.
#[derive(Debug, Clone, Copy)]
pub struct Tokens<'a> {
    x: &'a DeviceSlice<u16>,
    m: usize,
    stride: Option<usize>,
    mask: Option<&'a DeviceSlice<u8>>,
}

impl<'a> Tokens<'a> {
    /// `m` tokens of K values, BF16 bit patterns, one after the other.
    pub fn new(x: &'a DeviceSlice<u16>, m: usize) -> Self {
        Tokens {
            x,
            m,
            stride: None,
            mask: None,
        }
    }

    /// Says how many elements lie between the starts of two tokens: K or more.
    #[must_use]
    pub fn stride(mut self, stride: usize) -> Self {
        self.stride = Some(stride);
        self
    }

    /// Says which tokens are there: one byte each, not zero for a token, zero for padding, which gets ids of -1 and
    /// weights of 0.
    #[must_use]
    pub fn mask(mut self, mask: &'a DeviceSlice<u8>) -> Self {
        self.mask = Some(mask);
        self
    }
}

/// Where experts and their weights go.
#[derive(Debug)]
pub struct Choices<'a> {
    /// Ids of the chosen experts, `[m, top_k]`, best first; -1 for padding.
    pub ids: &'a mut DeviceSlice<i32>,
    /// Their weights, `[m, top_k]`.
    pub weights: &'a mut DeviceSlice<f32>,
    /// The logits before any bias, `[m, experts]`, if they are wanted.
    pub logits: Option<&'a mut DeviceSlice<f32>>,
}

/// A router in device memory, with its workspace. It may be dropped on any thread.
///
/// Its calls must follow each other on one stream, or otherwise in order, since they share the workspace: calls that
/// run at the same time give wrong results, and may leave the workspace so that later calls do, too. A stream of its
/// own takes a router of its own.
#[derive(Debug)]
pub struct Router {
    device: Arc<OpenDevice>,
    memory: ManuallyDrop<Memory>,
    shape: Shape,
    gate: Gate,
    max_tokens: usize,
}

/// What is freed with the router.
#[derive(Debug)]
struct Memory {
    packed: Box<dyn Stored>,
    rows: Option<Rows>,
    factors: Option<DeviceBuffer<f32>>,
    bias: Option<DeviceBuffer<f32>>,
    sums: DeviceBuffer<f32>,
    shared_sums: Option<DeviceBuffer<f32>>,
    counters: DeviceBuffer<u32>,
}

fn zeros<T: DeviceCopy + bytemuck::Zeroable>(len: usize) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::zeroed(len).map_err(|err| cust_error("allocate a router's workspace", err))
}

fn address<T: DeviceCopy>(buffer: Option<&DeviceBuffer<T>>) -> u64 {
    buffer.map_or(0, |buffer| buffer.as_device_ptr().as_raw())
}

impl Router {
    /// Splits and uploads weights, makes room for what calls need, and loads the kernels for up to
    /// [`RouterOptions::max_tokens`] tokens: calls allocate and load nothing. Slow, once per layer.
    ///
    /// It must not come while a stream is captured, on this thread or another: uploads and self-tests use the context's
    /// default stream.
    pub fn prepare(
        engine: &Engine,
        weights: RouterWeights<'_>,
        shape: Shape,
        config: &RouterConfig,
        options: RouterOptions,
    ) -> Result<Self> {
        let device = engine.open_device();
        device.check_current()?;
        let gate = config.gate(shape.n())?;
        if options.max_tokens == 0 {
            return Err(ConfigError::Value {
                what: "max_tokens",
                given: "0".to_owned(),
                allowed: "a workspace serves at least one token".to_owned(),
            }
            .into());
        }
        let split = match weights {
            RouterWeights::Bf16(weights) => Split::of_bf16(weights, shape)?,
            RouterWeights::Fp32(_) if options.terms == 1 => return Err(Error::OneTerm),
            RouterWeights::Fp32(weights) => Split::new(weights, shape, options.terms)?,
        };
        let format = split.format();
        let many = !options.deterministic && options.max_tokens > FEW_TOKENS;
        let size = route_workspace(format, shape, options.max_tokens, many)?;
        const CALL: &str = "upload a router";
        let memory = Memory {
            packed: formats::bf16::store(&split.units()?, split.terms())?,
            rows: many.then(|| Rows::new(&split)).transpose()?,
            factors: split.factors().map(|factors| upload(CALL, factors)).transpose()?,
            bias: gate.bias.as_deref().map(|bias| upload(CALL, bias)).transpose()?,
            sums: zeros(size.sums)?,
            shared_sums: many.then(|| zeros(size.shared_sums)).transpose()?,
            counters: zeros(size.counters)?,
        };
        device.kernels().prepare(&Workload {
            op: Op::Route,
            format,
            shape,
            row_major: many,
            m: 1..=options.max_tokens,
        })?;
        Ok(Router {
            device: Arc::clone(device),
            memory: ManuallyDrop::new(memory),
            shape,
            gate,
            max_tokens: options.max_tokens,
        })
    }

    /// Queues the whole way from hidden states to expert ids and weights on a stream.
    ///
    /// Neither blocks, allocates, synchronises nor changes the current context, so it can be captured into a graph. It
    /// may start before the preceding kernel on the stream has ended, and streams in weights meanwhile; all else
    /// comes after. `m = 0` does nothing.
    ///
    /// As with [`Engine::project`], buffers must outlive the launch, also those of which slices are passed.
    pub fn route(&self, tokens: Tokens<'_>, choices: Choices<'_>, stream: &Stream) -> Result<()> {
        self.route_overlapping(tokens, choices, stream, Overlap::Programmatic)
    }

    /// [`Router::route`] with a say in the overlap with the preceding kernel.
    pub fn route_overlapping(
        &self,
        tokens: Tokens<'_>,
        choices: Choices<'_>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let Choices { ids, weights, logits } = choices;
        let (m, top_k) = (tokens.m, self.gate.top_k);
        Shape::check_len("ids", ids.len(), m, top_k)?;
        Shape::check_len("weights", weights.len(), m, top_k)?;
        if let Some(logits) = &logits {
            Shape::check_len("logits", logits.len(), m, self.shape.n())?;
        }
        let call = RouteCall {
            ids: ids.as_device_ptr().as_raw(),
            weights: weights.as_device_ptr().as_raw(),
            logits: logits.map_or(0, |logits| logits.as_device_ptr().as_raw()),
            ..self.call(&tokens)?
        };
        self.launch(None, Some(&self.gate), &call, stream, overlap)
    }

    /// Queues the logits alone, `[m, experts]` in FP32, as [`Router::route`] does; a mask has no say in them.
    pub fn logits(&self, tokens: Tokens<'_>, logits: &mut DeviceSlice<f32>, stream: &Stream) -> Result<()> {
        self.logits_by(None, tokens, logits, stream, Overlap::Programmatic)
    }

    /// [`Router::logits`] with a kernel of choice, if one is given, and a say in the overlap with the preceding kernel.
    pub fn logits_by(
        &self,
        kernel: Option<&Kernel>,
        tokens: Tokens<'_>,
        logits: &mut DeviceSlice<f32>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        Shape::check_len("logits", logits.len(), tokens.m, self.shape.n())?;
        let call = RouteCall {
            logits: logits.as_device_ptr().as_raw(),
            ..self.call(&tokens)?
        };
        self.launch(kernel, None, &call, stream, overlap)
    }

    /// What [`Router::route`] launches for these tokens; the first launch where there are several, `None` for no
    /// tokens.
    pub fn plan(&self, tokens: Tokens<'_>) -> Result<Option<Plan>> {
        self.device.kernels().plan(&self.request(tokens)?)
    }

    /// The kernels that [`Router::logits_by`] takes for these tokens and that make sense for them, those first that
    /// should be the fastest. Loads them all.
    pub fn kernels(&self, tokens: Tokens<'_>) -> Result<Vec<Kernel>> {
        self.device.check_current()?;
        let kernels = self.device.kernels();
        let able = plan::kernels(&self.request(tokens)?, &kernels.device());
        able.iter().try_for_each(|kernel| kernels.load(kernel.family()))?;
        Ok(able)
    }

    /// What is planned for these tokens; for those of the first launch where there are several.
    pub fn request(&self, tokens: Tokens<'_>) -> Result<Request> {
        let mut call = self.call(&tokens)?;
        call.m = call.m.min(self.max_tokens);
        Ok(self.memory().request(&call))
    }

    /// Experts × columns.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How the weights are kept.
    pub fn format(&self) -> Format {
        self.memory.packed.weights().format()
    }

    /// Bytes of the weights in the order that the kernels for few tokens stream, all terms and padding included.
    pub fn unit_bytes(&self) -> usize {
        self.memory.packed.unit_bytes()
    }

    /// What is done with the logits.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Tokens of one launch, at most.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Where everything lies, for the [raw](crate::device::raw) layer.
    pub fn memory(&self) -> RouterMemory<'_> {
        let memory = &*self.memory;
        RouterMemory {
            shape: self.shape,
            weights: memory.packed.weights(),
            rows: memory.rows.as_ref().map(|rows| &rows.described),
            factors: address(memory.factors.as_ref()),
            bias: address(memory.bias.as_ref()),
            workspace: Workspace {
                sums: address(Some(&memory.sums)),
                shared_sums: address(memory.shared_sums.as_ref()),
                counters: address(Some(&memory.counters)),
                max_tokens: self.max_tokens,
            },
        }
    }

    /// The call for these tokens, without results.
    fn call(&self, tokens: &Tokens<'_>) -> Result<RouteCall> {
        let Tokens { x, m, stride, mask } = *tokens;
        let k = self.shape.k();
        match stride {
            None => Shape::check_len("x", x.len(), m, k)?,
            Some(stride) if stride < k => {
                return Err(Error::Stride {
                    given: stride,
                    columns: k,
                });
            }
            Some(stride) => {
                let needed = match m {
                    0 => 0,
                    m => Shape::area("x", m - 1, stride)?.saturating_add(k),
                };
                if x.len() < needed {
                    return Err(Error::StridedLength {
                        given: x.len(),
                        m,
                        stride,
                        needed,
                    });
                }
            }
        }
        if let Some(mask) = mask {
            Shape::check_len("the token mask", mask.len(), m, 1)?;
        }
        Ok(RouteCall {
            x: x.as_device_ptr().as_raw(),
            x_stride: stride.unwrap_or(k),
            m,
            token_mask: mask.map_or(0, |mask| mask.as_device_ptr().as_raw()),
            ids: 0,
            weights: 0,
            logits: 0,
        })
    }

    fn launch(
        &self,
        kernel: Option<&Kernel>,
        gate: Option<&Gate>,
        call: &RouteCall,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        self.device.check_current()?;
        let memory = self.memory();
        let queue = Queue {
            stream: stream.as_inner(),
            overlap,
        };
        // SAFETY: 1. the engine's context is current, which `stream` must belong to or the driver refuses the launch;
        // 2. lengths were checked, the slices are of live buffers up to here, and freeing device memory waits for work
        // that uses it; 3. calls at the same time harm the numbers alone, as the documentation says: every access stays
        // inside the workspace; 4. only `prepare` writes weights, by copies that have ended.
        unsafe { self.device.kernels().route_by(kernel, &memory, gate, call, queue) }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let Router { device, memory, .. } = self;
        // Freeing needs the context, which need not be current here.
        device.with_context(|| {
            // SAFETY: dropped once, here; not used after.
            unsafe { ManuallyDrop::drop(memory) }
        });
    }
}
