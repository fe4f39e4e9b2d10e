//! `route`: hidden states to expert ids and weights, from files.

use crate::args::{Route, RouteFormat};
use crate::error::{Error, Result};
use crate::inputs::{activations, file_and_tensor};
use crate::{device, output};
use hopper_proj::io::checkpoint::{Checkpoint, Matrix, Routed, write_routed};
use hopper_proj::{Bias, Choices, Router, RouterConfig, RouterOptions, RouterWeights, Tokens};
use hopper_proj::{Dtype, Engine, Shape, bf16};
use std::borrow::Cow;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

/// Tokens of one launch, at most. More of them are several launches.
const MAX_TOKENS: usize = 4096;

pub(crate) fn run(args: &Route) -> Result<()> {
    let can = "routes with F32 and BF16 weights: leave --format out, or pass f32 or bf16";
    let format = args.format.map(|asked| asked.known(can)).transpose()?;
    let (config, bias_file) = read_config(&args.config)?;
    let mask = config.token_mask.as_deref().map(Path::new).map(file_and_tensor);
    let mask = mask.transpose()?;
    let (file, tensor) = file_and_tensor(&args.operands.weights)?;
    let (x_file, x_tensor) = file_and_tensor(&args.operands.x)?;
    let named = bias_file.iter().chain(mask.iter().map(|(file, _)| file));
    let inputs = [&args.config, &file, &x_file].into_iter().chain(named);
    output::check(&args.out, inputs.map(|path| &**path))?;
    let weights_file = Checkpoint::open(file)?;
    let matrix = weights_file.matrix(tensor.as_deref())?;
    let weights = Weights::read(&matrix, format)?;
    let shape = matrix.shape()?;
    // The whole configuration is checked before anything is computed.
    let gate = config.gate(shape.n())?;
    let x_file = Checkpoint::open(x_file)?;
    let x = activations(&x_file, x_tensor.as_deref())?;
    if x.cols() != shape.k() {
        return Err(Error::Columns {
            given: x.cols(),
            needed: shape.k(),
            weights: format!("are {shape}"),
            hint: "pass matching files",
        });
    }
    let (m, top_k) = (x.rows(), gate.top_k());
    let mask = mask.map(|(file, tensor)| read_mask(file, tensor.as_deref(), m));
    let mask = mask.transpose()?;

    let engine = device::open(args.device)?;
    let mut options = RouterOptions::default().max_tokens(m.clamp(1, MAX_TOKENS));
    options.deterministic = args.deterministic;
    let router = Router::prepare(&engine, weights.borrow(), shape, &config, options)?;
    let results = compute(&engine, &router, &x.to_bf16(None)?, m, mask.as_deref(), config.logits)?;
    let logits = results.logits.as_deref().map(|logits| (shape.n(), logits));
    let (ids, weights) = (&results.ids, &results.weights);
    write_routed(
        &args.out,
        &Routed {
            m,
            top_k,
            ids,
            weights,
            logits,
        },
    )?;
    let mut out = stdout().lock();
    writeln!(out, "{}", device::line(engine.device()))?;
    let also = if logits.is_some() {
        format!(" and logits [{m}, {}]", shape.n())
    } else {
        String::new()
    };
    writeln!(
        out,
        "topk_ids and topk_weights [{m}, {top_k}]{also} for x [{m}, {}] by {} → {}",
        shape.k(),
        results.instance,
        args.out.display()
    )?;
    Ok(())
}

/// Weights in the type that they are stored and computed in.
enum Weights<'a> {
    Fp32(Cow<'a, [f32]>),
    Bf16(Cow<'a, [bf16]>),
}

impl<'a> Weights<'a> {
    /// A format of another type than the weights' is refused, not cast to.
    fn read(matrix: &'a Matrix<'_>, format: Option<RouteFormat>) -> Result<Self> {
        match (matrix.to_f32(), matrix.dtype(), format) {
            (Some(values), _, None | Some(RouteFormat::F32)) => Ok(Weights::Fp32(values)),
            (None, Dtype::Bf16, None | Some(RouteFormat::Bf16)) => Ok(Weights::Bf16(matrix.to_bf16(None)?)),
            (Some(_), _, Some(_)) => Err(Error::RouteFormat {
                asked: "bf16",
                given: Dtype::F32,
                way: "leave --format out to compute with them as they are; or round them first, with `hopper-proj pack IN OUT \
                      --format bf16 --cast bf16`",
            }),
            (None, Dtype::Bf16, Some(_)) => Err(Error::RouteFormat {
                asked: "f32",
                given: Dtype::Bf16,
                way: "leave --format out, or pass bf16: BF16 weights are computed with exactly",
            }),
            (None, given, _) => Err(hopper_proj::Error::RouterDtype { given }.into()),
        }
    }

    fn borrow(&self) -> RouterWeights<'_> {
        match self {
            Weights::Fp32(values) => RouterWeights::Fp32(values),
            Weights::Bf16(values) => RouterWeights::Bf16(values),
        }
    }
}

/// The configuration, with its bias read from where it says, which file is told too.
fn read_config(path: &Path) -> Result<(RouterConfig, Option<PathBuf>)> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Config {
        path: path.to_owned(),
        source,
    })?;
    let mut config = RouterConfig::from_json(&text)?;
    if let Some(Bias::Tensor(place)) = &config.bias {
        let (file, tensor) = file_and_tensor(Path::new(place))?;
        let numbers = Checkpoint::open(&file)?.vector(tensor.as_deref())?.to_f32()?;
        config.bias = Some(Bias::Numbers(numbers));
        return Ok((config, Some(file)));
    }
    Ok((config, None))
}

fn read_mask(file: PathBuf, tensor: Option<&str>, m: usize) -> Result<Vec<u8>> {
    let mask = Checkpoint::open(file)?.vector(tensor)?.to_mask()?;
    if mask.len() == m {
        Ok(mask)
    } else {
        Err(Error::Mask {
            given: mask.len(),
            needed: m,
        })
    }
}

/// What the device gave.
pub(crate) struct Results {
    pub(crate) ids: Vec<i32>,
    pub(crate) weights: Vec<f32>,
    pub(crate) logits: Option<Vec<f32>>,
    pub(crate) instance: &'static str,
}

/// Runs a router, if there are tokens.
pub(crate) fn compute(
    engine: &Engine,
    router: &Router,
    x: &[bf16],
    m: usize,
    mask: Option<&[u8]>,
    with_logits: bool,
) -> Result<Results> {
    let (top_k, experts) = (router.gate().top_k(), router.shape().n());
    // What is not written stays an id that no router gives, or a NaN.
    let mut results = Results {
        ids: Shape::filled("the ids", m, top_k, i32::MIN)?,
        weights: Shape::filled("the experts' weights", m, top_k, f32::NAN)?,
        logits: with_logits
            .then(|| Shape::filled("the logits", m, experts, f32::NAN))
            .transpose()?,
        instance: "no launch: m = 0",
    };
    if m == 0 {
        return Ok(results);
    }
    let stream = engine.stream()?;
    let x = engine.upload(x)?;
    let mask = mask.map(|mask| engine.upload(mask)).transpose()?;
    let mut ids = engine.upload(&results.ids)?;
    let mut weights = engine.upload(&results.weights)?;
    let mut logits = results
        .logits
        .as_deref()
        .map(|logits| engine.upload(logits))
        .transpose()?;
    let mut tokens = Tokens::new(&x, m);
    if let Some(mask) = &mask {
        tokens = tokens.mask(mask);
    }
    let mut choices = Choices::new(&mut ids, &mut weights);
    if let Some(logits) = &mut logits {
        choices = choices.logits(logits);
    }
    router.route(tokens, choices, &stream)?;
    results.ids = engine.download(&ids, &stream)?;
    results.weights = engine.download(&weights, &stream)?;
    results.logits = logits.map(|logits| engine.download(&logits, &stream)).transpose()?;
    if let Some(plan) = router.plan(tokens)? {
        results.instance = plan.name();
    }
    Ok(results)
}
