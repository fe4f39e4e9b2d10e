//! Why NVIDIA's driver does not serve, and what helps.

use crate::codes::{self, Code};
use crate::real::LIBRARY;
use std::fmt;

/// Compute capability, major and minor.
pub type Capability = (i32, i32);

/// The compute capability of Hopper, which the emulated device has.
pub const HOPPER: Capability = (9, 0);

/// Why NVIDIA's driver does not serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// Its library is not there.
    #[error("{LIBRARY} is not installed")]
    NotInstalled,
    /// Its library is there, and does not load.
    #[error("{LIBRARY} does not load: {reason}")]
    NotLoaded {
        /// What the system says.
        reason: String,
    },
    /// Its library lacks a function that every driver has.
    #[error("{LIBRARY} has no {symbol}")]
    Incomplete {
        /// The function.
        symbol: &'static str,
    },
    /// The library found under its name is this emulated driver.
    #[error("the {LIBRARY} found first is this emulated driver, not NVIDIA's")]
    Emulated,
    /// The library found under its name leads back to this program's own symbols.
    #[error("{LIBRARY} leads back to this program's own symbols")]
    Circular,
    /// It is there and answers an error.
    #[error("NVIDIA's driver does not start: {call} answers {}", codes::describe(*code))]
    Failed {
        /// The function.
        call: &'static str,
        /// What it answered.
        code: u32,
    },
    /// It is there, and has no device.
    #[error("NVIDIA's driver reports no device")]
    NoDevice,
    /// It is there, and none of its devices is a Hopper GPU.
    #[error(
        "NVIDIA's driver has no device of compute capability 9.0; it has {}",
        Listed(capabilities)
    )]
    NoHopper {
        /// What its devices are.
        capabilities: Vec<Capability>,
    },
}

struct Listed<'a>(&'a [Capability]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (major, minor)) in self.0.iter().enumerate() {
            write!(f, "{}{major}.{minor}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What helps against a code with which a driver refuses to start, or to load PTX. The words stand after a semicolon.
const ADVICE: &[(u32, &str)] = &[
    (
        34,
        "that is the CUDA toolkit's stub, for linking alone: take its folder `stubs` off the library path",
    ),
    (
        46,
        "another process may hold the device for itself: end it, or allow several (`nvidia-smi --compute-mode=0`)",
    ),
    (
        101,
        "see which devices CUDA_VISIBLE_DEVICES names, and `nvidia-smi -L` lists",
    ),
    (
        221,
        "the driver's compiler, libnvidia-ptxjitcompiler.so.1, is missing: install it, in the driver's version (in a \
         container, the capability `compute` brings it)",
    ),
    (222, "the driver is older than the PTX: install a newer driver"),
    (
        223,
        "the driver may not compile PTX, and the kernels are PTX: unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT",
    ),
    (
        802,
        "start NVIDIA's fabric manager, in the driver's version (`systemctl start nvidia-fabricmanager`), and wait until \
         `nvidia-smi -q` calls the fabric's state `Completed`",
    ),
    (
        803,
        "the kernel module and libcuda.so.1 are of different versions, as after an update: reboot, or reload the module \
         `nvidia`",
    ),
    (
        804,
        "the package of forward compatibility does not serve this GPU: take its folder `compat` off the library path, \
         or install a newer driver",
    ),
    (805, MPS),
    (806, MPS),
    (807, MPS),
    (808, MPS),
    (809, MPS),
    (810, MPS),
    (
        999,
        "see what `nvidia-smi` and `dmesg` say: the module `nvidia_uvm` may not be loaded (`modprobe nvidia_uvm`), or \
         the GPU needs a reset or the machine a reboot",
    ),
];

const MPS: &str = "see what NVIDIA's MPS control daemon logs (nvidia-cuda-mps-control), or stop it";

/// What helps against a code of the driver's that says that something is amiss with the machine; nothing where a code
/// may mean many things.
pub fn advice(code: u32) -> Option<&'static str> {
    let found = ADVICE.iter().find(|(number, _)| *number == code);
    found.map(|(_, words)| *words)
}

impl Unavailable {
    /// Whether a machine without a GPU looks like this: a program that takes the emulator instead need not say so.
    /// Everything else means that there is a driver, and that something is amiss.
    pub fn is_expected(&self) -> bool {
        matches!(self, Unavailable::NotInstalled | Unavailable::NoDevice)
    }

    /// The driver's own code, where it gave one.
    pub fn code(&self) -> Option<u32> {
        match self {
            Unavailable::Failed { code, .. } => Some(*code),
            Unavailable::NoDevice => Some(Code::NO_DEVICE.0),
            _ => None,
        }
    }

    /// The name of [`Unavailable::code`], if it is one that this version knows.
    pub fn code_name(&self) -> Option<&'static str> {
        codes::name(self.code()?)?.to_str().ok()
    }

    /// What helps, in a few words.
    pub fn advice(&self) -> &'static str {
        match self {
            Unavailable::NotInstalled => "install NVIDIA's driver",
            Unavailable::NotLoaded { .. } | Unavailable::Incomplete { .. } => "install NVIDIA's driver again",
            Unavailable::Emulated | Unavailable::Circular => "take its folder off the library path",
            Unavailable::Failed { code, .. } => advice(*code).unwrap_or("see what `nvidia-smi` and `dmesg` say"),
            Unavailable::NoDevice => "see which devices `nvidia-smi -L` lists and CUDA_VISIBLE_DEVICES names",
            Unavailable::NoHopper { .. } => "use a machine with a Hopper GPU",
        }
    }

    /// The line for a program that computes on the emulated device in place of a GPU.
    pub fn in_place(&self) -> String {
        format!("{self}: {}; the device is emulated in its place", self.advice())
    }

    /// What a C caller is told.
    pub(crate) fn as_code(&self) -> Code {
        self.code().map_or(Code::NO_DEVICE, Code)
    }

    /// From the loader's words for a library that it did not load. A library that needs one which is missing does not
    /// load either, and the words name that one.
    pub(crate) fn of_loader(words: String) -> Self {
        let missing = ["no such file", "os error 126"]
            .iter()
            .any(|end| words.to_lowercase().contains(end));
        // glibc, musl and macOS name the file that is missing.
        let named = words.contains(LIBRARY) || cfg!(windows);
        let others = words.split(|c: char| c.is_whitespace() || ":(),'".contains(c));
        let other = others
            .filter(|word| word.contains(".so"))
            .any(|word| !word.ends_with(LIBRARY));
        if missing && named && !other {
            Unavailable::NotInstalled
        } else {
            Unavailable::NotLoaded { reason: words }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(windows))]
    fn a_library_that_is_there_is_not_taken_for_missing() {
        for missing in [
            "libcuda.so.1: cannot open shared object file: No such file or directory",
            "Error loading shared library libcuda.so.1: No such file or directory",
            "dlopen(libcuda.so.1, 0x0005): tried: 'libcuda.so.1' (no such file), '/usr/lib/libcuda.so.1' (no such file)",
        ] {
            assert_eq!(Unavailable::of_loader(missing.into()), Unavailable::NotInstalled);
        }
        for there in [
            "/usr/lib/libcuda.so.1: file too short",
            "/usr/lib/libcuda.so.1: invalid ELF header",
            "libnvidia-vm.so.2: cannot open shared object file: No such file or directory",
            "Error loading shared library libnvidia-vm.so.2: No such file or directory (needed by /usr/lib/libcuda.so.1)",
            "libcuda.so.1: cannot open shared object file: Permission denied",
        ] {
            let reason = there.to_owned();
            assert_eq!(Unavailable::of_loader(there.into()), Unavailable::NotLoaded { reason });
        }
    }

    #[test]
    fn what_helps_is_found_by_code() {
        assert!(ADVICE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(ADVICE.iter().all(|(code, _)| codes::name(*code).is_some()));
        let failed = |code| Unavailable::Failed { call: "cuInit", code };
        assert!(failed(802).advice().contains("nvidia-fabricmanager"));
        assert!(failed(803).advice().contains("reboot"));
        assert!(failed(46).advice().contains("--compute-mode=0"));
        assert!(failed(3).advice().contains("nvidia-smi"));
        assert_eq!(failed(802).code_name(), Some("CUDA_ERROR_SYSTEM_NOT_READY"));
        assert_eq!(failed(12345).code_name(), None);
    }
}
