//! What can go wrong: each message says what was given, what is allowed and what to do.

use crate::Dtype;
use std::ops::Range;
use std::path::PathBuf;

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
        "weights are F32; this build computes with BF16 weights only, and FP32 weights come with router support: \
         cast them to BF16 explicitly (`--cast bf16`), which rounds them to 8 significant bits"
    )]
    Fp32Weights,

    /// Weights that would need a cast nobody asked for.
    #[error(
        "weights are {given}; this build computes with BF16 weights only: cast them explicitly (`--cast bf16`), which rounds them"
    )]
    NeedsCast {
        /// The type found.
        given: Dtype,
    },

    /// Activations of a type other than BF16.
    #[error("{what} is {given}; it must be BF16: convert it before the call")]
    NotBf16 {
        /// Which tensor.
        what: &'static str,
        /// The type found, as its file spells it.
        given: String,
    },

    /// A kernel pointer that no kernel can take.
    #[error("{what} is at address {address:#x}; BF16 data must start at a multiple of 2")]
    Alignment {
        /// Which pointer.
        what: &'static str,
        /// Its value.
        address: u64,
    },

    /// A file that cannot be opened, read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was being done: "open", "map", "write".
        verb: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A file that is not a safetensors file.
    #[error("{} is not a readable safetensors file: {reason}; it must be a complete file in the safetensors format", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A tensor name that the file does not hold, or a name needed and not given.
    #[error("{}: {problem}; {}", path.display(), list(candidates))]
    NoTensor {
        /// Which file.
        path: PathBuf,
        /// What was asked for.
        problem: String,
        /// The two-dimensional tensors that the file holds.
        candidates: Vec<String>,
    },

    /// A tensor that is not a matrix.
    #[error("{}: tensor `{name}` has shape {shape:?}; a matrix of two dimensions is needed", path.display())]
    NotMatrix {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },

    /// A tensor of a type that is neither BF16 nor castable to it.
    #[error("{}: tensor `{name}` is {given}; BF16, F16 and F32 can be read", path.display())]
    UnknownDtype {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// Its type as the file spells it.
        given: String,
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

    /// No kernel instance serves the request, or the one asked for does not.
    #[error("cannot serve {request}: {reason}; `plan::candidates` lists every instance with its verdict")]
    NoInstance {
        /// What was asked for.
        request: String,
        /// Why nothing fits.
        reason: String,
    },
}

/// The candidates of an error message, cut where there are many.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 12;
    match names.len() {
        0 => "it holds no two-dimensional tensor".to_owned(),
        len if len <= SHOWN => format!("its two-dimensional tensors are: {}", names.join(", ")),
        len => format!(
            "its two-dimensional tensors include: {} … ({} more)",
            names[..SHOWN].join(", "),
            len - SHOWN
        ),
    }
}
