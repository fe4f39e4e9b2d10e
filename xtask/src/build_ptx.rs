//! `build-ptx`: kernels in, checked-in PTX out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cuda_builder::{CudaBuilder, NvvmArch};
use kernels_gpu::instances::Family;

use crate::{paths, split, table};

/// Builds the kernels; writes the checked-in files, or with `check` compares with them.
pub(crate) fn run(check: bool) -> Result<()> {
    let built = split::by_family(&paths::read(&builder().build()?)?)?;
    let folder = paths::ptx_folder();
    if !check {
        return write(&folder, &built);
    }
    let faults = faults(&folder, &built)?;
    if !faults.is_empty() {
        bail!(
            "{} is not what the kernels compile to; run `cargo xtask build-ptx` and commit it\n{}",
            folder.display(),
            faults.join("\n")
        );
    }
    println!(
        "{} files of {} are what the kernels compile to",
        built.len(),
        folder.display()
    );
    Ok(())
}

/// Writes a file for each family, and removes every other file.
fn write(folder: &Path, built: &[(Family, String)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for name in strays(folder)? {
        let path = folder.join(name);
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        println!("removed {}", path.display());
    }
    for (family, text) in built {
        let path = folder.join(paths::ptx_name(*family));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// What differs between the folder and what was built.
fn faults(folder: &Path, built: &[(Family, String)]) -> Result<Vec<String>> {
    let mut faults: Vec<String> = strays(folder)?
        .iter()
        .map(|name| format!("{name}: no family of kernels is called so"))
        .collect();
    for (family, text) in built {
        let name = paths::ptx_name(*family);
        let path = folder.join(&name);
        if !path.exists() {
            faults.push(format!("{name}: it is missing"));
        } else if let Some(difference) = first_difference(&paths::read(&path)?, text) {
            faults.push(format!("{name}: {difference}"));
        }
    }
    Ok(faults)
}

/// Names in the folder that are no family's file.
fn strays(folder: &Path) -> Result<Vec<String>> {
    let own = Family::ALL.map(paths::ptx_name);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !own.contains(&name) {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

fn builder() -> CudaBuilder {
    CudaBuilder::new(paths::root().join("kernels-gpu"))
        .arch(NvvmArch::Compute90a)
        .launch_bounds(table::entries())
}

/// The first line in which two texts differ, if their bytes differ at all.
fn first_difference(present: &str, built: &str) -> Option<String> {
    if present == built {
        return None;
    }
    let (mut old, mut new) = (present.split('\n'), built.split('\n'));
    let mut line = 0;
    loop {
        line += 1;
        match (old.next(), new.next()) {
            (Some(a), Some(b)) if a == b => {}
            (a, b) => {
                let shown = |side: Option<&str>| side.map_or("(ends here)".to_owned(), |text| format!("{text:?}"));
                return Some(format!(
                    "line {line}: checked in {}\n         compiled   {}",
                    shown(a),
                    shown(b)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn the_first_differing_line_is_shown_even_where_only_a_line_end_differs() {
        let shown = first_difference("a\nb\nc\n", "a\nB\nC\n").unwrap();
        assert!(
            shown.starts_with("line 2:") && shown.contains("\"b\"") && shown.contains("\"B\""),
            "{shown}"
        );
        let shown = first_difference("a\n", "a").unwrap();
        assert!(shown.contains("(ends here)"), "{shown}");
    }

    #[test]
    fn a_folder_must_hold_every_family_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let built: Vec<(Family, String)> = Family::ALL.iter().map(|&f| (f, format!("{}\n", f.name()))).collect();
        write(folder.path(), &built).unwrap();
        assert_eq!(faults(folder.path(), &built).unwrap(), [""; 0]);

        let file = |name: &str| folder.path().join(name);
        fs::write(file("kernels.ptx"), "").unwrap();
        fs::remove_file(file("gemm_bf16.ptx")).unwrap();
        fs::write(file("stream_read.ptx"), "changed\n").unwrap();
        let found = faults(folder.path(), &built).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        for (fault, words) in found.iter().zip([
            "kernels.ptx: no family",
            "gemm_bf16.ptx: it is missing",
            "stream_read.ptx: line 1",
        ]) {
            assert!(fault.contains(words), "{fault}");
        }

        write(folder.path(), &built).unwrap();
        assert_eq!(faults(folder.path(), &built).unwrap(), [""; 0]);
    }
}
