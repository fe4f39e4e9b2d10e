//! Compiles the library twice, with the marker of the emulated driver and without, so that whatever depends on this
//! crate carries both.

use std::env::var_os;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=library");
    println!("cargo::rustc-check-cfg=cfg(marked)");
    let variable = |name: &str| var_os(name).ok_or_else(|| format!("cargo sets {name}"));
    let out = PathBuf::from(variable("OUT_DIR")?);
    for (file, marked) in [("foreign", false), ("marked", true)] {
        let mut compiler = Command::new(variable("RUSTC")?);
        compiler.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-O"]);
        compiler
            .args(["--check-cfg=cfg(marked)", "--target"])
            .arg(variable("TARGET")?);
        compiler.arg("library/main.rs").arg("-o").arg(out.join(file));
        if marked {
            compiler.arg("--cfg=marked");
        }
        if let Some(linker) = var_os("RUSTC_LINKER") {
            compiler.arg("-C").arg(format!("linker={}", linker.display()));
        }
        let status = compiler.status()?;
        if !status.success() {
            return Err(format!("the stand-in library does not build: {status}").into());
        }
    }
    Ok(())
}
