//! Why a build failed.

use std::path::PathBuf;

use crate::finish::FinishError;

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
    #[error("cannot finish the compiled PTX: {0}")]
    Finish(#[from] FinishError),
}

impl BuildError {
    /// For `map_err`: wraps a system error with what was being done to which file.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }
}

/// The variable that may name a folder with the library source.
pub const LIBRARY_SOURCE_VARIABLE: &str = "CUDA_BUILDER_RUST_SRC";

/// Why there is no usable library source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// None of the three ways led to a source.
    #[error(
        "no library source for the GPU target; any one of these three gives it:\n\
         1. the toolchain's component rust-src: nothing is at `{}`\n\
         2. the variable {LIBRARY_SOURCE_VARIABLE}, naming a folder with the source of Rust {release}: it is not set\n\
         3. `rustup component add rust-src`, which this build has just tried: {rustup}",
        toolchain.display()
    )]
    Missing {
        /// Where the toolchain's own source would be.
        toolchain: PathBuf,
        /// The compiler's version.
        release: String,
        /// Why rustup could not help.
        rustup: String,
    },
    /// The variable names a folder that is no library source.
    #[error(
        "{LIBRARY_SOURCE_VARIABLE} is `{}`, which holds no Rust library source ({missing} is not there); give the folder \
         `library` of rust-src, or the folder above it", folder.display()
    )]
    NotASource {
        /// The folder given.
        folder: PathBuf,
        /// What was looked for in vain.
        missing: String,
    },
    /// The variable names a source of another version.
    #[error(
        "{LIBRARY_SOURCE_VARIABLE} is `{}`, the library source of Rust {found}, but the compiler is {release}; give the source \
         of the same version", folder.display()
    )]
    OtherVersion {
        /// The folder given.
        folder: PathBuf,
        /// The version of the source.
        found: String,
        /// The compiler's version.
        release: String,
    },
}
