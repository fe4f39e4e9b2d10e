//! `build-ptx`: kernels in, checked-in PTX out.

use anyhow::{Result, bail};
use cuda_builder::{CudaBuilder, NvvmArch};

use crate::{paths, table};

/// Builds the kernels; writes the checked-in file, or with `check` compares with it.
pub(crate) fn run(check: bool) -> Result<()> {
    let checked_in = paths::ptx();
    if !check {
        let written = builder().copy_to(&checked_in).build()?;
        println!("wrote {}", written.display());
        return Ok(());
    }
    let built = paths::read(&builder().build()?)?;
    let present = paths::read(&checked_in)?;
    match first_difference(&present, &built) {
        None => println!("{} is what the kernels compile to", checked_in.display()),
        Some(difference) => bail!(
            "{} is not what the kernels compile to; run `cargo xtask build-ptx` and commit it\n{difference}",
            checked_in.display()
        ),
    }
    Ok(())
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
    use super::first_difference;

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
}
