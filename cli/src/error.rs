//! What ends a command early.

use hopper_proj::Dtype;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Library(#[from] hopper_proj::Error),

    #[error("cannot write the output: {0}")]
    Output(io::Error),

    #[error("cannot write {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },

    #[error("cannot watch for signals that end the program: {0}")]
    Signals(io::Error),

    #[error("cannot draw the plot: {reason}")]
    Plot { reason: String },

    #[error("there is no file {given}: pass FILE, or FILE:TENSOR to name a tensor of it", given = given.display())]
    NoFile { given: PathBuf },

    #[error("--config: cannot read {}: {source}", path.display())]
    Config { path: PathBuf, source: io::Error },

    #[error(
        "{}: x is {given}; it must be BF16, as a call rounds none: save it with a library that has BF16, such as PyTorch \
         (`x.to(torch.bfloat16)`) or ml_dtypes with NumPy (`x.astype(ml_dtypes.bfloat16)`)",
        path.display()
    )]
    XDtype { path: PathBuf, given: Dtype },

    #[error("{}: x has one dimension; it must be [m, K]: reshape a single token to [1, K]", path.display())]
    XVector { path: PathBuf },

    #[error("x has {given} columns, but the weights {weights}; x must be [m, {needed}]: {hint}")]
    Columns {
        given: usize,
        needed: usize,
        weights: String,
        hint: &'static str,
    },

    #[error("{what} is not in this version, which {can}")]
    NotYet { what: String, can: String },

    #[error(
        "--format {asked} was asked for, but the weights are {given}, and a router computes with what is asked for, or not at all: {way}"
    )]
    RouteFormat {
        asked: &'static str,
        given: Dtype,
        way: &'static str,
    },

    #[error(
        "the token mask has {given} values, but x has {needed} tokens: pass one U8 or BOOL value per token, not zero for a token, zero for padding"
    )]
    Mask { given: usize, needed: usize },

    #[error("{}, line {line}: {problem}", path.display())]
    Measurements {
        path: PathBuf,
        line: usize,
        problem: String,
    },

    #[error("{} has no times to draw: record them with `bench --csv FILE` on a GPU", path.display())]
    NoTimesIn { path: PathBuf },

    #[error("times need a GPU, and this device is emulated: {what}")]
    NoTimes { what: &'static str },

    #[error("{failed} of {total} rows differ from FP64 by more than their tolerance")]
    Wrong { failed: usize, total: usize },
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl From<serde_json::Error> for Error {
    fn from(err: serde_json::Error) -> Self {
        Error::Output(err.into())
    }
}

impl From<io::Error> for Error {
    fn from(err: io::Error) -> Self {
        Error::Output(err)
    }
}

impl Error {
    /// Whether the reader of the output has gone away, as `head` does: an end like any other.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Error::Output(err) if err.kind() == io::ErrorKind::BrokenPipe)
    }
}
