//! Finds the source of Rust's own library, which the GPU target has no built copy of.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{BuildError, LIBRARY_SOURCE_VARIABLE, SourceError};
use crate::toolchain::{Toolchain, output_of};

/// The source of the standard library of the compiler that is active in `folder`, to build `core` from.
///
/// # Errors
///
/// Where there is no compiler, or no source of its version.
pub fn library_source(folder: &Path) -> Result<PathBuf, BuildError> {
    Ok(find(&Toolchain::active_in(folder)?)?)
}

/// The library source for `toolchain`: its own; else the folder that the variable names; else what rustup fetches.
pub(crate) fn find(toolchain: &Toolchain) -> Result<PathBuf, SourceError> {
    let named = env::var_os(LIBRARY_SOURCE_VARIABLE).filter(|value| !value.is_empty());
    let own = toolchain.sysroot().join("lib/rustlib/src/rust/library");
    find_among(&own, named.map(PathBuf::from).as_deref(), toolchain.release(), || {
        let mut rustup = std::process::Command::new("rustup");
        rustup.args(["component", "add", "rust-src"]);
        // rustup calls a toolchain by the name of its folder.
        if let Some(name) = toolchain.sysroot().file_name() {
            rustup.arg("--toolchain").arg(name);
        }
        output_of(rustup).map(drop).map_err(|error| error.to_string())
    })
}

fn find_among(
    own: &Path,
    named: Option<&Path>,
    release: &str,
    fetch: impl FnOnce() -> Result<(), String>,
) -> Result<PathBuf, SourceError> {
    if missing_in(own).is_none() {
        return Ok(own.to_owned());
    }
    if let Some(folder) = named {
        return check_named(folder, release);
    }
    let rustup = match fetch() {
        Ok(()) => match missing_in(own) {
            None => return Ok(own.to_owned()),
            Some(file) => format!("it ended well, yet {file} is not there"),
        },
        Err(reason) => reason,
    };
    Err(SourceError::Missing {
        toolchain: own.to_owned(),
        release: release.to_owned(),
        rustup,
    })
}

/// A folder from the variable: the library folder itself or the one above it, of the compiler's version.
fn check_named(folder: &Path, release: &str) -> Result<PathBuf, SourceError> {
    let below = folder.join("library");
    let library = if missing_in(&below).is_none() {
        below
    } else {
        folder.to_owned()
    };
    if let Some(missing) = missing_in(&library) {
        return Err(SourceError::NotASource {
            folder: folder.to_owned(),
            missing,
        });
    }
    let found = newest_stable_minor(&library.join("core/src"));
    // A nightly's source still has a placeholder where the coming release's number will stand, so only whole releases
    // can be told apart.
    if !release.contains('-') && Some(found) != minor_of(release) {
        return Err(SourceError::OtherVersion {
            folder: folder.to_owned(),
            found: format!("1.{found}"),
            release: release.to_owned(),
        });
    }
    Ok(library)
}

/// The first file that a library source needs and `library` lacks.
fn missing_in(library: &Path) -> Option<String> {
    ["Cargo.toml", "Cargo.lock", "core/src/lib.rs", "std/Cargo.toml"]
        .into_iter()
        .find(|file| !library.join(file).is_file())
        .map(str::to_owned)
}

fn minor_of(release: &str) -> Option<u32> {
    release.split('.').nth(1)?.parse().ok()
}

/// The release that a library source belongs to. No file says it; but every release stabilises something in `core`, and
/// the attribute says since when.
fn newest_stable_minor(folder: &Path) -> u32 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let newest = |path: &Path| {
        if path.is_dir() {
            return newest_stable_minor(path);
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(stable_since).max().unwrap_or(0)
    };
    entries.flatten().map(|entry| newest(&entry.path())).max().unwrap_or(0)
}

/// `#[stable(feature = "…", since = "1.95.0")]` → 95.
fn stable_since(line: &str) -> Option<u32> {
    let attribute = line.trim_start().strip_prefix("#[stable(")?;
    attribute.split_once("since = \"1.")?.1.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(folder: &Path, since: &str) {
        for file in ["Cargo.toml", "Cargo.lock", "core/src/lib.rs", "std/Cargo.toml"] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let attributes = format!(
            "#[stable(feature = \"a\", since = \"1.0.0\")]\n    #[stable(feature = \"b\", since = \"{since}\")]\n"
        );
        fs::write(folder.join("core/src/lib.rs"), attributes).unwrap();
    }

    #[test]
    fn the_toolchains_own_source_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let (own, named) = (folder.path().join("own"), folder.path().join("named"));
        source(&own, "1.95.0");
        source(&named, "1.95.0");
        let found = find_among(&own, Some(&named), "1.95.0", || panic!("rustup is not needed"));
        assert_eq!(found.unwrap(), own);
    }

    #[test]
    fn the_named_folder_may_be_the_library_or_the_folder_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library");
        source(&library, "1.95.0");
        for named in [folder.path(), &library] {
            let found = find_among(&folder.path().join("own"), Some(named), "1.95.0", || {
                panic!("rustup is not needed")
            });
            assert_eq!(found.unwrap(), library);
        }
    }

    #[test]
    fn a_named_source_of_another_version_or_none_at_all_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        source(folder.path(), "1.94.0");
        let error = check_named(folder.path(), "1.95.0").unwrap_err().to_string();
        assert!(
            error.contains("Rust 1.94") && error.contains("compiler is 1.95.0"),
            "{error}"
        );
        let empty = tempfile::tempdir().unwrap();
        let error = check_named(empty.path(), "1.95.0").unwrap_err().to_string();
        assert!(error.contains("Cargo.toml is not there"), "{error}");
    }

    #[test]
    fn rustup_comes_last_and_what_it_fetched_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        let found = find_among(&own, None, "1.95.0", || {
            source(&own, "1.95.0");
            Ok(())
        });
        assert_eq!(found.unwrap(), own);
    }

    #[test]
    fn a_missing_source_names_all_three_ways() {
        let own = Path::new("/nowhere/lib/rustlib/src/rust/library");
        let error = find_among(own, None, "1.95.0", || Err("no route to host".into())).unwrap_err();
        let text = error.to_string();
        for way in [
            "/nowhere/lib",
            LIBRARY_SOURCE_VARIABLE,
            "rustup component add rust-src",
            "no route",
        ] {
            assert!(text.contains(way), "{way} is missing in: {text}");
        }
    }

    #[test]
    fn the_active_toolchains_source_has_the_compilers_version() {
        let toolchain = Toolchain::active_in(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let library = find(&toolchain).unwrap();
        assert_eq!(check_named(&library, toolchain.release()).unwrap(), library);
    }
}
