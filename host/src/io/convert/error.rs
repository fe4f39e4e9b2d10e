//! Why a checkpoint cannot be converted.

use crate::io::FileError;
use crate::io::container::MOST_HEADER;
use std::path::PathBuf;

/// What stands in the way of a conversion, beyond what can be wrong with a file or a packed tensor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The input has packed tensors already.
    #[error("{} is packed already: unpack it first", path.display())]
    AlreadyPacked {
        /// Which file.
        path: PathBuf,
    },
    /// A tensor would get the name of another.
    #[error("{}: tensor `{name}` would become `{taken}`, which is the name of another tensor: rename one of the two, or leave `{name}` out (`--only`)", path.display())]
    NameTaken {
        /// Which file, or which index.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The name that it would get.
        taken: String,
    },
    /// A folder without an index.
    #[error("{} has no model.safetensors.index.json: pass a safetensors file, an index, or a folder with such an index", path.display())]
    NoIndex {
        /// The folder.
        path: PathBuf,
    },
    /// An index that cannot be followed.
    #[error("{} is not a usable index of a sharded checkpoint: {reason}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An output that is not of the input's kind.
    #[error("the output {} is {given}; it must be {needed}", path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// What it is.
        given: &'static str,
        /// What it must be.
        needed: &'static str,
    },
    /// An output with so many tensors, or such long names, that no reader would open it.
    #[error(
        "the header of {} would have {length} bytes, and readers of safetensors open at most {MOST_HEADER}: convert \
         fewer of the tensors (`--only`), or divide the file into a sharded checkpoint first",
        path.display()
    )]
    HeaderTooLong {
        /// The output.
        path: PathBuf,
        /// Bytes of its header.
        length: u64,
    },
    /// A tensor whose values changed between two readings.
    #[error("the file changed while `{name}` was being made of it: let no other program write it meanwhile")]
    Changed {
        /// The part that would be wrong.
        name: String,
    },
    /// No tensor has a name that was asked for.
    #[error("{} has no tensor whose name was asked for: check the pattern (`--only`) against `inspect`", path.display())]
    NoneChosen {
        /// The checkpoint.
        path: PathBuf,
    },
}

impl From<ConvertError> for crate::Error {
    fn from(err: ConvertError) -> Self {
        FileError::from(err).into()
    }
}
