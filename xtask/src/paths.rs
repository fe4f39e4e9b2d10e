//! Where things lie in the repository.

use std::path::{Path, PathBuf};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The checked-in PTX.
pub(crate) fn ptx() -> PathBuf {
    root().join("host/ptx/kernels.ptx")
}
