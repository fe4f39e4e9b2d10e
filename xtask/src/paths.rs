//! Where things lie in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kernels_gpu::instances::Family;

/// The repository's root: where cargo found this package just now, which need not be where it was compiled, since
/// checkouts may share a target folder.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let own = PathBuf::from(own);
    own.parent().map(Path::to_owned).unwrap_or(own)
}

/// The folder of the checked-in PTX.
pub(crate) fn ptx_folder() -> PathBuf {
    root().join("host/ptx")
}

/// The checked-in PTX of a family of kernels.
pub(crate) fn ptx(family: Family) -> PathBuf {
    ptx_folder().join(ptx_name(family))
}

/// What a family's PTX file is called.
pub(crate) fn ptx_name(family: Family) -> String {
    format!("{}.ptx", family.name())
}

/// A file's text.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
