//! Why a build failed.

use std::path::PathBuf;

use crate::finish::FinishError;
use crate::library_source::SourceError;

/// Why a kernel crate could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file or folder could not be read, written or made.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    File {
        /// What was being done to it.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The crate's folder holds no manifest.
    #[error("`{}` is no crate: give the folder that holds the kernel crate's Cargo.toml", path.display())]
    NotACrate {
        /// The folder given.
        path: PathBuf,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`: {source}; install it, or put it on PATH")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed ({status}):\n{stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// A program answered what this crate cannot read.
    #[error("`{command}` answered {answer:?}, which names no {wanted}")]
    Answer {
        /// The command line.
        command: String,
        /// What it printed.
        answer: String,
        /// What was looked for.
        wanted: &'static str,
    },
    /// The library source for the GPU target is missing or does not fit.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// `core` could not be built for the GPU target.
    #[error("cannot build `core` for {target} from `{}`: {reason}", source_dir.display())]
    Sysroot {
        /// The target.
        target: &'static str,
        /// The library source.
        source_dir: PathBuf,
        /// What the build said.
        reason: String,
    },
    /// The compiled PTX could not be finished.
    #[error("the compiled PTX does not fit the table of entries: {0}")]
    Finish(#[from] FinishError),
}

impl BuildError {
    /// For `map_err`: wraps a system error with what was being done to which file.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }
}
