//! The arguments of the command line.

use crate::error::Error;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hopper_proj::Op;
use hopper_proj::formats::PackFormat;
use hopper_proj::formats::cast::Cast;
use hopper_proj::instances::Format;
use hopper_proj::plan::FORMATS;
use hopper_proj::suites::Suite;
use regex::Regex;
use std::ops::Range;
use std::path::PathBuf;

/// BF16 projections y = x · Wᵀ for Hopper GPUs, computed by the GPU or, where there is none, by an emulator that
/// executes the very PTX that the GPU would run.
#[derive(Debug, Parser)]
#[command(
    name = "hopper-proj",
    version,
    subcommand_required = true,
    arg_required_else_help = false
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say which device, which driver and which kernels this build has
    Info(Info),
    /// Compute y = x · Wᵀ from safetensors files
    Project(Project),
    /// Choose experts for hidden states: a router's logits and its whole gate, from safetensors files
    Route(Route),
    /// Write a checkpoint with its BF16 matrices at 12 bits per weight, losing nothing
    Pack(Pack),
    /// Restore a packed checkpoint: every tensor's bits and the header's metadata, but not the layout of the file
    Unpack(Unpack),
    /// Say how the weights of a checkpoint are stored, or what packing them would give
    Inspect(Inspect),
    /// Check every projection and router of a suite against FP64
    Verify(Verify),
    /// Time the projections and routers of a suite on a GPU, or count their memory traffic on the emulator
    Bench(Bench),
    /// Measure on a GPU which kernel is the fastest for each shape, and write a table that HOPPER_PROJ_PLAN can name
    Tune(Tune),
}

/// Where to compute.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DeviceArgs {
    /// Where to compute; `auto`, the default, takes the first Hopper GPU, else the emulator. Wins over
    /// HOPPER_PROJ_DEVICE
    #[arg(long, value_enum)]
    pub(crate) device: Option<DeviceChoice>,
    /// On the emulator, the interleaving of warps, CTAs and copies; where inputs are random, their seed too
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
    Auto,
    Cuda,
    Emulated,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print every kernel for N × K weights and M tokens instead: what it should cost, was measured to take, or is
    /// rejected for
    #[arg(long, value_name = "N,K,M", value_parser = sizes)]
    pub(crate) plan: Option<[usize; 3]>,
    /// What is planned
    #[arg(long, value_enum, default_value_t = PlanOp::Project, requires = "plan")]
    pub(crate) op: PlanOp,
    /// The format of its weights; for a router, bf16x2 unless said otherwise, and bf16 for a projection
    #[arg(long, value_parser = named(FORMATS.map(|format| (format.name(), format))), requires = "plan")]
    pub(crate) format: Option<Format>,
    /// Whether a row-major copy of the weights is kept beside the packed ones; as a rule for routers, unless they are
    /// deterministic, and not for projections
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", requires = "plan")]
    pub(crate) row_major: Option<bool>,
    /// Plan for rows of x that do not start at multiples of 16 bytes
    #[arg(long, requires = "plan")]
    pub(crate) unaligned: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanOp {
    Project,
    Route,
}

impl From<PlanOp> for Op {
    fn from(op: PlanOp) -> Self {
        match op {
            PlanOp::Project => Op::Project,
            PlanOp::Route => Op::Route,
        }
    }
}

/// What is multiplied by what.
#[derive(Debug, Args)]
pub(crate) struct Operands {
    /// The weights W, `[N, K]`, a router's F32 or BF16 `[experts, K]`; without `:TENSOR`, the file's only
    /// 2-D tensor
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub(crate) weights: PathBuf,
    /// The activations x, BF16 `[m, K]`
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub(crate) x: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Project {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) operands: Operands,
    /// Where to write `y`, BF16 `[m, N]`. An existing file is overwritten, unless it is an input
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// The form in which the weights are kept on the device. Beyond 32 tokens, weights that stay BF16 are kept
    /// row-major as well, which is what `info --plan N,K,M --row-major` shows
    #[arg(long, value_parser = asked(pack_formats()), default_value = PackFormat::Auto.name())]
    pub(crate) format: Asked<PackFormat>,
    /// Round F16 or F32 weights to this type
    #[arg(long, value_enum)]
    pub(crate) cast: Option<CastTo>,
    /// Use only these rows of W
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub(crate) rows: Option<Range<usize>>,
    /// Use only these columns of W; x is then `[m, B−A]`
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub(crate) cols: Option<Range<usize>>,
}

#[derive(Debug, Args)]
pub(crate) struct Route {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) operands: Operands,
    /// The gate: {"score": "softmax"|"sigmoid"|"sqrt_softplus"|"identity", "top_k": N} and more, see docs/router.md
    #[arg(long, value_name = "FILE.json")]
    pub(crate) config: PathBuf,
    /// Where to write `topk_ids`, I32 `[m, top_k]`, `topk_weights`, F32 `[m, top_k]`, and, if the gate asks for them,
    /// `logits`, F32 `[m, experts]`. An existing file is overwritten, unless it is an input
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// What to compute with: the weights' own type, which is the default. No other is ever used
    #[arg(long, value_parser = asked([("f32", RouteFormat::F32), ("bf16", RouteFormat::Bf16)]))]
    pub(crate) format: Option<Asked<RouteFormat>>,
    /// Give equal tokens equal bits, in every run and whatever the tokens around them are
    #[arg(long)]
    pub(crate) deterministic: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteFormat {
    F32,
    Bf16,
}

/// A format that may be asked for already, so that the answer says what this version has in its place.
const NOT_YET: &str = "nvfp4";

/// What is asked for by a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked<F> {
    Known(F),
    NotYet,
}

impl<F> Asked<F> {
    /// The format, or an error with what this version can do.
    pub(crate) fn known(self, can: impl Into<String>) -> Result<F, Error> {
        match self {
            Asked::Known(format) => Ok(format),
            Asked::NotYet => Err(Error::NotYet {
                what: format!("--format {NOT_YET}"),
                can: can.into(),
            }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CastTo {
    Bf16,
}

impl From<CastTo> for Cast {
    fn from(to: CastTo) -> Self {
        match to {
            CastTo::Bf16 => Cast::Bf16,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Pack {
    /// A safetensors file; or the index of a sharded checkpoint, or the folder that has it
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write; for a sharded checkpoint, a folder. Existing files are overwritten, unless they are inputs
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Which matrices to pack: those that it pays for, none (to cast only), or all
    #[arg(long, value_parser = named(pack_formats()), default_value = PackFormat::Auto.name())]
    pub(crate) format: PackFormat,
    /// Touch only the tensors whose names match; all others are copied as they are
    #[arg(long, value_name = "REGEX")]
    pub(crate) only: Option<Regex>,
    /// Round F16 and F32 matrices to this type, packed or not; without it they are copied as they are
    #[arg(long, value_enum)]
    pub(crate) cast: Option<CastTo>,
}

#[derive(Debug, Args)]
pub(crate) struct Unpack {
    /// What `pack` has written: a file; or the index of a sharded checkpoint, or the folder that has it
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// The file to write; for a sharded checkpoint, a folder. Existing files are overwritten, unless they are inputs
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A safetensors file, packed or not; or the index of a sharded checkpoint, or the folder that has it
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw how often each exponent occurs, matrix by matrix. An existing file is overwritten, unless it is an input
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Which projections
    #[arg(long, value_enum, default_value_t = SuiteName::Small)]
    pub(crate) suite: SuiteName,
    /// Print JSON: a list of {op, layer, m, n, k, format, device, instance, rel_error, pass}
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Which projections
    #[arg(long, value_enum, default_value_t = SuiteName::Muse)]
    pub(crate) suite: SuiteName,
    /// How calls follow each other: overlapping by programmatic dependent launch, plainly one after the other in a
    /// graph, or each fed by the one before
    #[arg(long, value_enum, default_value_t = Mode::Pdl)]
    pub(crate) mode: Mode,
    /// Write rows `what,layer,m,bytes,us,instance,floor_us,ratio`. An existing file is overwritten, unless it is an
    /// input
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw the times beside the floors. An existing file is overwritten, unless it is an input
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Draw the times of others too: rows `what,layer,m,bytes,us`
    #[arg(long, value_name = "FILE.csv", requires = "plot")]
    pub(crate) peers: Option<PathBuf>,
    /// Measure nothing: draw the rows of an earlier run
    #[arg(long, value_name = "FILE.csv", requires = "plot", conflicts_with_all = ["csv", "json", "record"])]
    pub(crate) from: Option<PathBuf>,
    /// Keep the rows, with what was measured where, when and how, as DIR/<gpu>/<date>-<mode>.csv, or under a further
    /// number where there is such a file
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The projections and routers of a suite; may be given with shapes, and is `muse` where neither is
    #[arg(long, value_enum)]
    pub(crate) suite: Vec<SuiteName>,
    /// A projection of N × K weights on M tokens
    #[arg(long, value_name = "N,K,M", value_parser = sizes)]
    pub(crate) shape: Vec<[usize; 3]>,
    /// Where to write the table. An existing file is overwritten, unless it is the one that HOPPER_PROJ_PLAN names
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Pdl,
    Graph,
    Chain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SuiteName {
    Muse,
    Small,
}

impl From<SuiteName> for Suite {
    fn from(name: SuiteName) -> Self {
        match name {
            SuiteName::Muse => Suite::Muse,
            SuiteName::Small => Suite::Small,
        }
    }
}

fn pack_formats() -> [(&'static str, PackFormat); PackFormat::ALL.len()] {
    PackFormat::ALL.map(|format| (format.name(), format))
}

/// A value by its name.
fn named<F: Clone + Send + Sync + 'static>(
    values: impl IntoIterator<Item = (&'static str, F)>,
) -> impl TypedValueParser<Value = F> {
    let values: Vec<(&str, F)> = values.into_iter().collect();
    let names = PossibleValuesParser::new(values.iter().map(|(name, _)| *name));
    names.try_map(move |given| {
        let mut values = values.iter();
        let found = values.find(|(name, _)| *name == given);
        found.map(|(_, value)| value.clone()).ok_or("it is no name of a value")
    })
}

/// A format by its name, or one that is not in this version.
fn asked<F: Clone + Send + Sync + 'static>(
    formats: impl IntoIterator<Item = (&'static str, F)>,
) -> impl TypedValueParser<Value = Asked<F>> {
    let known = formats.into_iter().map(|(name, format)| (name, Asked::Known(format)));
    named(known.chain([(NOT_YET, Asked::NotYet)]))
}

/// `N,K,M`. Whether such weights can be is known later.
fn sizes(text: &str) -> Result<[usize; 3], String> {
    let sizes: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
    match sizes.map(<[usize; 3]>::try_from) {
        Ok(Ok(sizes)) if !sizes.contains(&0) => Ok(sizes),
        _ => Err("a shape is N,K,M with whole numbers above 0, for example 4096,8192,16".to_owned()),
    }
}

/// `A..B`, half open. Whether it fits the matrix is known once the file is open.
fn range(text: &str) -> Result<Range<usize>, String> {
    let bounds = text
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    match bounds {
        Some(range) if range.start < range.end => Ok(range),
        _ => Err("a range is A..B with whole numbers A < B, for example 0..1024".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn shapes() {
        assert_eq!(sizes("4096,8192,16"), Ok([4096, 8192, 16]));
        for bad in [
            "",
            "1",
            "1,2",
            "1,2,3,4",
            "1,2,0",
            "a,b,c",
            "1,2,-3",
            "1, 2, 3",
            "99999999999999999999,1,1",
        ] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(range("0..1"), Ok(0..1));
        assert_eq!(range("12..4096"), Ok(12..4096));
        for bad in [
            "", "..", "1..", "..2", "2..2", "3..2", "-1..2", "1..=2", "a..b", "1...2", "1-2",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
