//! A router on a device, ready for tokens.

use super::Result;
use super::allocation::Allocation;
use super::buffer::{Slice, SliceMut};
use super::captures;
use super::context::OpenDevice;
use super::engine::Engine;
use super::raw::{Overlap, Queue, RouteCall, RouterMemory};
use super::router_state::RouterState;
use super::row_major::Rows;
use super::setup::Setup;
use super::stream::Stream;
use crate::formats::device::Stored;
use crate::formats::{self, split::Split};
use crate::gate::{ConfigError, Gate, RouterConfig};
use crate::instances::Format;
use crate::plan::{self, FEW_TOKENS, Kernel, Op, Plan, Request, Workload, route_workspace};
use crate::{Error, Shape};
use half::bf16;
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
    x: Slice<'a, bf16>,
    m: usize,
    stride: Option<usize>,
    mask: Option<Slice<'a, u8>>,
}

impl<'a> Tokens<'a> {
    /// `m` tokens of K values, one after the other.
    pub fn new(x: impl Into<Slice<'a, bf16>>, m: usize) -> Self {
        Tokens {
            x: x.into(),
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
    pub fn mask(mut self, mask: impl Into<Slice<'a, u8>>) -> Self {
        self.mask = Some(mask.into());
        self
    }
}

/// Where experts and their weights go.
#[derive(Debug)]
pub struct Choices<'a> {
    ids: SliceMut<'a, i32>,
    weights: SliceMut<'a, f32>,
    logits: Option<SliceMut<'a, f32>>,
}

impl<'a> Choices<'a> {
    /// For the ids of the chosen experts, `[m, top_k]`, best first, -1 for padding; and for their weights, `[m,
    /// top_k]`.
    pub fn new(ids: impl Into<SliceMut<'a, i32>>, weights: impl Into<SliceMut<'a, f32>>) -> Self {
        Choices {
            ids: ids.into(),
            weights: weights.into(),
            logits: None,
        }
    }

    /// For the logits before any bias, `[m, experts]`.
    #[must_use]
    pub fn logits(mut self, logits: impl Into<SliceMut<'a, f32>>) -> Self {
        self.logits = Some(logits.into());
        self
    }
}

/// A router in device memory, with its workspace. It may be dropped on any thread, and used on several.
///
/// Its calls share the workspace and therefore run one after the other: a call on another stream than the last one
/// first has its stream wait for that one (by an event). Captured calls run when their [`Graph`](crate::Graph) is
/// launched, which is ordered in the same way. Calls that should run at the same time take a router each:
/// [`Router::with_own_workspace`].
#[derive(Debug)]
pub struct Router {
    state: Arc<RouterState>,
    prepared: Arc<Prepared>,
    max_tokens: usize,
}

/// What does not change from call to call, shared by routers of the same weights.
#[derive(Debug)]
struct Prepared {
    packed: Box<dyn Stored>,
    rows: Option<Rows>,
    factors: Option<Allocation>,
    bias: Option<Allocation>,
    shape: Shape,
    gate: Gate,
    /// Dropped last: the memory is of its context.
    device: Arc<OpenDevice>,
}

impl Router {
    /// Splits and uploads weights, makes room for what calls need, and loads the kernels for up to
    /// [`RouterOptions::max_tokens`] tokens: calls allocate and load nothing. Slow, once per layer.
    ///
    /// What it starts is done when it returns. It works on a stream of its own, in the thread's relaxed capture mode,
    /// so captures on this thread and on others go on undisturbed.
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
        let setup = Setup::new()?;
        let upload = |values: &[f32]| setup.upload(CALL, values);
        let prepared = Prepared {
            packed: formats::bf16::store(&setup, &split.units()?, split.terms())?,
            rows: many.then(|| Rows::new(&setup, &split)).transpose()?,
            factors: split.factors().map(upload).transpose()?,
            bias: gate.bias.as_deref().map(upload).transpose()?,
            shape,
            gate,
            device: Arc::clone(device),
        };
        let state = RouterState::new(&setup, device, &size, many)?;
        setup.finish()?;
        device.kernels().prepare(&Workload {
            op: Op::Route,
            format,
            shape,
            row_major: many,
            m: 1..=options.max_tokens,
        })?;
        Ok(Router {
            state: Arc::new(state),
            prepared: Arc::new(prepared),
            max_tokens: options.max_tokens,
        })
    }

    /// A router of the same weights with a workspace of its own, so that its calls need not wait for those of this one.
    /// It allocates and waits, as [`Router::prepare`] does.
    pub fn with_own_workspace(&self) -> Result<Self> {
        let device = &self.prepared.device;
        device.check_current()?;
        let many = self.prepared.rows.is_some();
        let size = route_workspace(self.format(), self.shape(), self.max_tokens, many)?;
        let setup = Setup::new()?;
        let state = RouterState::new(&setup, device, &size, many)?;
        setup.finish()?;
        Ok(Router {
            state: Arc::new(state),
            prepared: Arc::clone(&self.prepared),
            max_tokens: self.max_tokens,
        })
    }

    /// Makes the workspace clean again, by work on a stream: after a launch that was cut off half way, counters and
    /// shared sums may be left so that every later call is wrong.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        self.prepared.device.check_current()?;
        stream.check_device(&self.prepared.device)?;
        self.state.reset(stream)
    }

    /// Queues the whole way from hidden states to expert ids and weights on a stream.
    ///
    /// Neither blocks, allocates, synchronises nor changes the current context, so it can be captured into a graph. It
    /// may start before the preceding kernel on the stream has ended, and streams in weights meanwhile; all else
    /// comes after. `m = 0` does nothing.
    ///
    /// As with [`Engine::project`], no launch on the stream since the last one that did not overlap may write the
    /// router's weights.
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
        let (m, top_k, device) = (tokens.m, self.prepared.gate.top_k, &self.prepared.device);
        device.check_memory("ids", ids.context())?;
        device.check_memory("weights", weights.context())?;
        Shape::check_len("ids", ids.len(), m, top_k)?;
        Shape::check_len("weights", weights.len(), m, top_k)?;
        if let Some(logits) = &logits {
            device.check_memory("logits", logits.context())?;
            Shape::check_len("logits", logits.len(), m, self.shape().n())?;
        }
        let call = RouteCall {
            ids: ids.address(),
            weights: weights.address(),
            logits: logits.map_or(0, |logits| logits.address()),
            ..self.call(&tokens)?
        };
        self.launch(None, Some(&self.prepared.gate), &call, stream, overlap)
    }

    /// Queues the logits alone, `[m, experts]` in FP32, as [`Router::route`] does; a mask has no say in them.
    pub fn logits<'a>(&self, tokens: Tokens<'_>, logits: impl Into<SliceMut<'a, f32>>, stream: &Stream) -> Result<()> {
        self.logits_by(None, tokens, logits, stream, Overlap::Programmatic)
    }

    /// [`Router::logits`] with a kernel of choice, if one is given, and a say in the overlap with the preceding kernel.
    pub fn logits_by<'a>(
        &self,
        kernel: Option<&Kernel>,
        tokens: Tokens<'_>,
        logits: impl Into<SliceMut<'a, f32>>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let logits = logits.into();
        self.prepared.device.check_memory("logits", logits.context())?;
        Shape::check_len("logits", logits.len(), tokens.m, self.shape().n())?;
        let call = RouteCall {
            logits: logits.address(),
            ..self.call(&tokens)?
        };
        self.launch(kernel, None, &call, stream, overlap)
    }

    /// What [`Router::route`] launches for these tokens; the first launch where there are several, `None` for no
    /// tokens.
    pub fn plan(&self, tokens: Tokens<'_>) -> Result<Option<Plan>> {
        self.prepared.device.kernels().plan(&self.request(tokens)?)
    }

    /// The kernels that [`Router::logits_by`] takes for these tokens and that make sense for them, those first that
    /// should be the fastest. Loads them all.
    pub fn kernels(&self, tokens: Tokens<'_>) -> Result<Vec<Kernel>> {
        self.prepared.device.check_current()?;
        let kernels = self.prepared.device.kernels();
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
        self.prepared.shape
    }

    /// How the weights are kept.
    pub fn format(&self) -> Format {
        self.prepared.packed.weights().format()
    }

    /// Bytes of the weights in the order that the kernels for few tokens stream, all terms and padding included.
    pub fn unit_bytes(&self) -> usize {
        self.prepared.packed.unit_bytes()
    }

    /// What is done with the logits.
    pub fn gate(&self) -> &Gate {
        &self.prepared.gate
    }

    /// Tokens of one launch, at most.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Where everything lies, for the [raw](crate::device::raw) layer.
    pub fn memory(&self) -> RouterMemory<'_> {
        let prepared = &*self.prepared;
        let address = |memory: &Option<Allocation>| memory.as_ref().map_or(0, Allocation::address);
        RouterMemory {
            shape: prepared.shape,
            weights: prepared.packed.weights(),
            rows: prepared.rows.as_ref().map(|rows| &rows.described),
            factors: address(&prepared.factors),
            bias: address(&prepared.bias),
            workspace: self.state.workspace(self.max_tokens),
        }
    }

    /// The call for these tokens, without results.
    fn call(&self, tokens: &Tokens<'_>) -> Result<RouteCall> {
        let Tokens { x, m, stride, mask } = *tokens;
        let device = &self.prepared.device;
        device.check_memory("x", x.context())?;
        let k = self.shape().k();
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
            device.check_memory("the token mask", mask.context())?;
            Shape::check_len("the token mask", mask.len(), m, 1)?;
        }
        Ok(RouteCall {
            x: x.address(),
            x_stride: stride.unwrap_or(k),
            m,
            token_mask: mask.map_or(0, |mask| mask.address()),
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
        let device = &self.prepared.device;
        device.check_current()?;
        stream.check_device(device)?;
        if call.m == 0 {
            return Ok(());
        }
        let memory = self.memory();
        let queue = Queue {
            stream: stream.handle(),
            overlap,
        };
        let unchanged = captures::unchanged();
        let _in_use = self.state.use_on(stream, &unchanged)?;
        // SAFETY: 1. the engine's context is current, and the stream is of it; 2. lengths were checked, the slices
        // borrow live buffers of the context, and freeing device memory waits for work that uses it; 3. the state
        // orders its users; 4. only `prepare` writes weights, by copies that have ended.
        unsafe { device.kernels().route_by(kernel, &memory, gate, call, queue) }
    }
}
