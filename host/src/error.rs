//! What can go wrong: each message says what was given, what is allowed and what to do.

use crate::Dtype;
use crate::formats;
use crate::gate::ConfigError;
use crate::io::FileError;
use std::ops::Range;
#[cfg(feature = "cuda")]
use std::ops::RangeInclusive;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that this crate refuses, and every failure of what lies below it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A weight matrix with an empty or an oversized side.
    #[error(
        "weights are {n} × {k}; each side must lie between 1 and {}: pass a non-empty matrix, or a slice of it",
        u32::MAX
    )]
    Shape {
        /// Rows given.
        n: usize,
        /// Columns given.
        k: usize,
    },

    /// A matrix whose size does not fit the address space.
    #[error("{what} of {rows} × {cols} elements does not fit in memory: split it into slices")]
    TooLarge {
        /// Which matrix.
        what: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        cols: usize,
    },

    /// A buffer whose length does not match its shape.
    #[error(
        "{what} holds {given} elements, but [{rows}, {cols}] needs exactly {needed}: pass a buffer, or a slice of one, of that length"
    )]
    Length {
        /// Which buffer.
        what: &'static str,
        /// Elements it holds.
        given: usize,
        /// Rows expected.
        rows: usize,
        /// Columns expected.
        cols: usize,
        /// Elements needed.
        needed: usize,
    },

    /// More tokens or rows of W than one launch can address.
    #[error(
        "m = {m} tokens times N = {n} rows of weights exceed what one launch of {instance} can address: \
         split x into calls of fewer rows, or W into slices"
    )]
    Grid {
        /// Tokens given.
        m: usize,
        /// Rows of W.
        n: usize,
        /// The kernel that was to be launched.
        instance: &'static str,
    },

    /// FP32 weights, which only the router kernels keep in full precision.
    #[error(
        "weights are F32; a projection computes with BF16 weights, and only a router keeps FP32 ones (`route`): \
         cast them to BF16 explicitly (`--cast bf16`), which rounds them to 8 significant bits"
    )]
    Fp32Weights,

    /// A number of BF16 terms that no weights are split into.
    #[error(
        "{given} BF16 terms per weight were asked for; weights are kept as 1, 2 or 3 terms: pass 2 for router weights in FP32"
    )]
    Terms {
        /// What was asked for.
        given: usize,
    },

    /// FP32 router weights asked for as a single BF16 term.
    #[error(
        "FP32 weights as one BF16 term would be BF16 weights: pass 2 terms, or 3; or cast the weights and prepare a BF16 router, which \
         rounds them to 8 significant bits"
    )]
    OneTerm,

    /// Tokens that reach past the end of x.
    #[error(
        "x holds {given} elements, but {m} tokens at a stride of {stride} need {needed}: pass a longer buffer, or fewer tokens"
    )]
    StridedLength {
        /// Elements that x holds.
        given: usize,
        /// Tokens.
        m: usize,
        /// Elements between two of them.
        stride: usize,
        /// Elements needed.
        needed: usize,
    },

    /// Router weights of a type that no router computes with.
    #[error(
        "router weights are {given}; a router computes with F32 or BF16 weights, as they are: convert the tensor to one of them"
    )]
    RouterDtype {
        /// The type found.
        given: Dtype,
    },

    /// Weights that would need a cast nobody asked for.
    #[error(
        "weights are {given}; this build computes with BF16 weights only: cast them explicitly (`--cast bf16`), which rounds them"
    )]
    NeedsCast {
        /// The type found.
        given: Dtype,
    },

    /// A format that this build does not know.
    #[error("there is no format `{given}`: choose {allowed}")]
    UnknownFormat {
        /// What was asked for.
        given: String,
        /// The formats there are.
        allowed: String,
    },

    /// Activations of a type other than BF16.
    #[error("{what} is {given}; it must be BF16: convert it before the call")]
    NotBf16 {
        /// Which tensor.
        what: &'static str,
        /// The type found, as its file spells it.
        given: String,
    },

    /// An address or a size that no kernel can take.
    #[error("{what} is {value:#x}, which must be a multiple of {to}: align the buffer")]
    Alignment {
        /// Which pointer or size.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What it must be a multiple of.
        to: u64,
    },

    /// A slice that reaches past the matrix, or is empty.
    #[error("{what} {}..{} of a matrix that has {len}; a slice A..B needs A < B ≤ {len}", range.start, range.end)]
    Slice {
        /// "rows" or "columns".
        what: &'static str,
        /// What was asked for.
        range: Range<usize>,
        /// How many there are.
        len: usize,
    },

    /// A slice of packed weights that no unit ends at.
    #[error(
        "{what} {}..{} of a packed matrix that has {len}; packed {what} are cut at multiples of {to}, or at the matrix's end",
        range.start,
        range.end
    )]
    SliceAlignment {
        /// "rows" or "columns".
        what: &'static str,
        /// What was asked for.
        range: Range<usize>,
        /// What the bounds must be multiples of.
        to: usize,
        /// How many there are.
        len: usize,
    },

    /// A packed matrix that breaks a rule of its format.
    #[error(transparent)]
    Packed(#[from] formats::Fault),

    /// A file that cannot be used.
    #[error(transparent)]
    File(#[from] FileError),

    /// A router configuration that cannot be used.
    #[error(transparent)]
    Gate(#[from] ConfigError),

    /// No kernel instance serves the request, or the one asked for does not.
    #[error("cannot serve {request}: {reason}; `plan::List` shows every instance with its verdict")]
    NoInstance {
        /// What was asked for.
        request: String,
        /// Why nothing fits.
        reason: String,
    },

    /// A table of measurements that cannot be used.
    #[error("{from}, line {line}: {problem}")]
    Table {
        /// The file, or whatever else the table comes from.
        from: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it, and what is allowed.
        problem: String,
    },

    /// A table that a variable of the environment names, and that cannot be used.
    #[error("{name} names a table of measurements that cannot be used: {fault}; name another, or unset {name}")]
    VariableTable {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        fault: Box<Error>,
    },

    /// A variable of the environment that holds none of its words.
    #[error("{name} is `{given}`; it must be {allowed}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// What it holds.
        given: String,
        /// What it may hold.
        allowed: &'static str,
    },

    /// A second table of measurements.
    #[error(
        "this process has a table of measurements of its own already, which plans may have been made with: pass one, before the first plan"
    )]
    SecondTable,

    /// An output that overlaps its input.
    #[cfg(feature = "cuda")]
    #[error(
        "{what} at {y:#x} overlaps x at {x:#x}: a kernel reads x while it writes its results, so pass separate buffers"
    )]
    Overlapping {
        /// Which result.
        what: &'static str,
        /// Where x starts.
        x: u64,
        /// Where the result starts.
        y: u64,
    },

    /// Tokens that lie closer together than they are long.
    #[error(
        "x has a stride of {given} elements, less than its {columns} columns: pass the distance between the starts of two tokens"
    )]
    Stride {
        /// The stride given.
        given: usize,
        /// Columns of x.
        columns: usize,
    },

    /// The driver asked for cannot serve.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Driver(#[from] hopper_cuda_driver::SelectError),

    /// A device that is not there.
    #[cfg(feature = "cuda")]
    #[error("device {ordinal} was asked for, but the driver has {count}: pass an ordinal below that")]
    NoDevice {
        /// Which device.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },

    /// A GPU of another architecture.
    #[cfg(feature = "cuda")]
    #[error(
        "{name} has compute capability {}.{}; the kernels are for Hopper, 9.0: choose a Hopper GPU, or the emulated device",
        capability.0,
        capability.1
    )]
    NotHopper {
        /// The device's name.
        name: String,
        /// Its compute capability.
        capability: (i32, i32),
    },

    /// A driver that is older than the kernels need.
    #[cfg(feature = "cuda")]
    #[error(
        "the driver serves CUDA {}.{}; the kernels need {}.{}, as the ptxas of an older driver serialises `wgmma`: \
         install a newer driver, or choose the emulated device",
        given.0,
        given.1,
        needed.0,
        needed.1
    )]
    OldDriver {
        /// The CUDA version that the driver serves, major and minor.
        given: (i32, i32),
        /// The oldest that will do.
        needed: (i32, i32),
    },

    /// A call on a thread where another context, or none, is current.
    #[cfg(feature = "cuda")]
    #[error(
        "the engine's context is not current on this thread: call `Engine::make_current` once on each thread that uses it"
    )]
    WrongContext,

    /// A projection used with an engine that did not prepare it.
    #[cfg(feature = "cuda")]
    #[error("this projection was prepared by another engine: prepare the weights with the engine that runs them")]
    ForeignProjection,

    /// Memory of another device's context.
    #[cfg(feature = "cuda")]
    #[error("{what} lies in the memory of another device: pass a buffer that the engine of this call has made")]
    ForeignBuffer {
        /// Which buffer.
        what: &'static str,
    },

    /// A stream of another device.
    #[cfg(feature = "cuda")]
    #[error("the stream is of another device: pass one that the engine of this call has made")]
    ForeignStream,

    /// A capture that [`Engine::capture`](crate::Engine::capture) did not begin.
    #[cfg(feature = "cuda")]
    #[error(
        "the stream is being captured, but not by `Engine::capture`, so nothing would order the router's calls when the graph is launched: \
         capture with `Engine::capture`, or call the router through `raw`"
    )]
    ForeignCapture,

    /// A router whose last call is on a stream that is being captured by now.
    #[cfg(feature = "cuda")]
    #[error(
        "the router's last call was queued on another stream, which is being captured now, and a capture cannot be waited for: \
         end the capture first, or use another router for this stream (`Router::with_own_workspace`)"
    )]
    RouterInCapture,

    /// A range that reaches past the end of a buffer.
    #[cfg(feature = "cuda")]
    #[error("the range {start}..{end} of a buffer of {len} values: a range A..B needs A ≤ B ≤ {len}")]
    BufferRange {
        /// The first value asked for.
        start: usize,
        /// The end of the range.
        end: usize,
        /// Values of the buffer.
        len: usize,
    },

    /// A number of tokens that a projection was not prepared for.
    #[cfg(feature = "cuda")]
    #[error(
        "the projection was prepared for m = {} to {} tokens, and this call has {m}: name a range that holds all numbers of tokens to come \
         (`PrepareOptions::m`)",
        prepared.start(),
        prepared.end()
    )]
    NotPrepared {
        /// Tokens of the call.
        m: usize,
        /// Those that the kernels were loaded for.
        prepared: RangeInclusive<usize>,
    },

    /// A range of tokens with no number in it.
    #[cfg(feature = "cuda")]
    #[error(
        "weights were to be prepared for m = {} to {} tokens, which is no number at all: name the least number of tokens first, \
         as in 1..=32 (`PrepareOptions::m`)",
        m.start(),
        m.end()
    )]
    EmptyTokenRange {
        /// The range.
        m: RangeInclusive<usize>,
    },

    /// A row-major copy of weights that have none.
    #[cfg(feature = "cuda")]
    #[error(
        "a row-major copy was asked for (`RowMajorCopy::Keep`) of {} weights; only BF16 weights have one: ask for that format \
         (`PackFormat::Bf16`), or for no copy, as packed weights serve any number of tokens",
        format.name()
    )]
    NoRowMajor {
        /// The format that the weights are kept in.
        format: crate::instances::Format,
    },

    /// A kernel that is not loaded.
    #[cfg(feature = "cuda")]
    #[error(
        "the kernel {kernel} is not loaded, and a launch loads nothing: load its family, {family}, ahead of the launch \
         (`Kernels::prepare`, `Kernels::load`, or `Engine::prepare`)"
    )]
    NotLoaded {
        /// The kernel.
        kernel: &'static str,
        /// Its family.
        family: &'static str,
    },

    /// A driver call that failed; on the emulated device, with the full story of the fault behind it, and on a GPU with
    /// what helps, where the code tells.
    #[cfg(feature = "cuda")]
    #[error("failed to {call}: {name} (CUDA error {code}){}", story.as_ref().map_or(String::new(), |story| format!(": {story}")))]
    Device {
        /// What was being done.
        call: &'static str,
        /// CUDA's result code, as the driver gave it.
        code: u32,
        /// What it means, in the driver's words.
        name: String,
        /// What the emulator, or the driver's compiler, has to say about it, or what helps.
        story: Option<String>,
    },
}
