//! What can be wrong with a file: each message says what was given, what is allowed and what to do.

use super::convert::ConvertError;
use crate::formats;
use std::path::PathBuf;

/// Why a file cannot be read, written or converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
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

    /// An output in the place of an input.
    #[error(
        "the output {} is the same as the input {}, which it would overwrite: choose another name for the output",
        output.display(),
        input.display()
    )]
    OutputIsInput {
        /// The output.
        output: PathBuf,
        /// The input.
        input: PathBuf,
    },

    /// An input that is no regular file.
    #[error("{} is {what}: name a safetensors file, which is mapped into memory", path.display())]
    NotRegular {
        /// Which.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },

    /// An output that is a link to nothing.
    #[error(
        "the output {} is a link to {}, which is not there: remove the link, or name the file that is meant",
        path.display(),
        to.display()
    )]
    DanglingLink {
        /// The output.
        path: PathBuf,
        /// What the link says.
        to: PathBuf,
    },

    /// A file that is not a safetensors file.
    #[error("{} is not a readable safetensors file: {reason}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// An output that no reader would open.
    #[error("cannot write {}: as a safetensors file it could not be read again: {reason}", path.display())]
    Unreadable {
        /// The output.
        path: PathBuf,
        /// What would be wrong with it.
        reason: String,
    },

    /// A tensor name that the file does not hold, or a name needed and not given.
    #[error("{}: {problem}; {}", path.display(), list(*dimensions, candidates))]
    NoTensor {
        /// Which file.
        path: PathBuf,
        /// What was asked for.
        problem: String,
        /// The dimensions of the tensor that was asked for.
        dimensions: usize,
        /// The tensors of so many dimensions that the file holds.
        candidates: Vec<String>,
    },

    /// A tensor that is not a vector.
    #[error("{}: tensor `{name}` has shape {shape:?}; a vector of one dimension is needed", path.display())]
    NotVector {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },

    /// A vector of a type that it cannot have.
    #[error("{}: tensor `{name}` is {given}; it must be {allowed}", path.display())]
    VectorDtype {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// Its type as the file spells it.
        given: String,
        /// What is allowed.
        allowed: &'static str,
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

    /// A file with such a matrix.
    #[error("{}: packed tensor `{name}`: {fault}", path.display())]
    PackedTensor {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// What is wrong with it.
        fault: Box<formats::Fault>,
    },

    /// A file whose packed matrices cannot be found.
    #[error("{}: {fault}", path.display())]
    PackedFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        fault: formats::FileFault,
    },

    /// A checkpoint that cannot be converted.
    #[error(transparent)]
    Convert(#[from] ConvertError),
}

/// The candidates of an error message, cut where there are many.
fn list(dimensions: usize, names: &[String]) -> String {
    const SHOWN: usize = 12;
    let kind = if dimensions == 1 {
        "one-dimensional"
    } else {
        "two-dimensional"
    };
    match names.len() {
        0 => format!("it holds no {kind} tensor"),
        len if len <= SHOWN => format!("its {kind} tensors are: {}", names.join(", ")),
        len => format!(
            "its {kind} tensors include: {} … ({} more)",
            names[..SHOWN].join(", "),
            len - SHOWN
        ),
    }
}
