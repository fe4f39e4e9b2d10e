//! Which driver a process ends up with, and what reaches the caller from a driver that is not ours. Each case is a
//! process of its own, since a process chooses once; a stand-in for NVIDIA's library lets the cases run on any machine.

use hopper_cuda_driver::{Choice, behind_unknown, fallback, ffi, select, selected};
use hopper_cuda_stand_in::StandIn;
use std::error::Error;
use std::process::Command;

/// What a case's process does, in order, printing one line for each.
fn act(step: &str) -> String {
    let show = |result: Result<_, hopper_cuda_driver::SelectError>| match result {
        Ok(selected) => format!("{selected}"),
        Err(error) => format!("error: {error}"),
    };
    match step.split_once(':') {
        Some(("select", choice)) => show(choice.parse().and_then(select)),
        _ if step == "selected" => show(selected()),
        Some(("otherwise", choice)) => match choice.parse().and_then(Choice::from_environment_or) {
            Ok(choice) => choice.to_string(),
            Err(error) => format!("error: {error}"),
        },
        _ if step == "fallback" => fallback().map_or("none".into(), ToString::to_string),
        _ if step == "behind-unknown" => behind_unknown().to_string(),
        // SAFETY: takes a number.
        _ if step == "init" => unsafe { ffi::cuInit(0) }.to_string(),
        _ if step == "version" => {
            let mut version = 0;
            // SAFETY: writes one number.
            let code = unsafe { ffi::cuDriverGetVersion(&mut version) };
            format!("{code} {version}")
        }
        // SAFETY: takes nothing.
        _ if step == "synchronize" => unsafe { ffi::cuCtxSynchronize() }.to_string(),
        _ if step == "launch-ex" => {
            let null = std::ptr::null_mut();
            // SAFETY: nulls are allowed, and refused.
            unsafe { ffi::cuLaunchKernelEx(std::ptr::null(), null, null.cast(), null.cast()) }.to_string()
        }
        _ if step == "tensor-map" => {
            let mut map = ffi::CUtensorMap::default();
            let address = std::ptr::without_provenance_mut(3);
            // SAFETY: a place for a map, and arrays of one value.
            let code = unsafe { ffi::cuTensorMapEncodeTiled(&mut map, 1, 2, address, &4, &5, &6, &7, 8, 9, 1, 2) };
            let encoded = map.opaque[15];
            // SAFETY: a place for a map.
            let replaced = unsafe { ffi::cuTensorMapReplaceAddress(&mut map, address) };
            format!("{code} {encoded} {replaced} {}", map.opaque[15])
        }
        // SAFETY: a null is allowed, and refused.
        _ if step == "later" => unsafe { ffi::cuModuleGetLoadingMode(std::ptr::null_mut()) }.to_string(),
        // SAFETY: a null is allowed, and refused.
        _ if step == "stream" => unsafe { ffi::cuStreamCreate(std::ptr::null_mut(), 0) }.to_string(),
        _ if step == "words" => {
            let mut text = std::ptr::null();
            // SAFETY: writes one pointer, to a string that lives for ever.
            match unsafe { ffi::cuGetErrorString(100, &mut text) } {
                // SAFETY: success, so the pointer is that of a string.
                0 => unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned(),
                code => code.to_string(),
            }
        }
        _ => panic!("no such step: {step}"),
    }
}

/// The library that a case finds under NVIDIA's name.
#[derive(Clone, Copy, PartialEq)]
enum Library {
    /// One that is none of ours.
    Foreign,
    /// One that carries our marker.
    Ours,
    /// A file that is no library.
    Broken,
    /// None at all, unless the machine has NVIDIA's.
    Missing,
}
use Library::{Broken, Foreign, Missing, Ours};

struct Case {
    name: &'static str,
    from: Library,
    variables: &'static [(&'static str, &'static str)],
    /// Steps, and how the line that each prints begins.
    steps: &'static [(&'static str, &'static str)],
    /// How the one line on stderr begins; empty where there is none.
    says: &'static str,
}

const AUTO: (&str, &str) = ("HOPPER_PROJ_DEVICE", "auto");
const CUDA: (&str, &str) = ("HOPPER_PROJ_DEVICE", "cuda");
const NOT_READY: (&str, &str) = ("FAKE_CODE_cuInit", "802");

const CASES: &[Case] = &[
    Case {
        name: "without a choice NVIDIA's driver serves",
        from: Foreign,
        variables: &[("FAKE_DEVICES", "8.0")],
        steps: &[("version", "0 12080"), ("selected", "cuda"), ("fallback", "none")],
        says: "",
    },
    Case {
        name: "without a choice a program is not emulated by accident",
        from: Foreign,
        variables: &[("HOPPER_PROJ_DEVICE", ""), NOT_READY],
        steps: &[
            ("init", "802"),
            ("init", "802"),
            (
                "selected",
                "error: no CUDA device can be used: NVIDIA's driver does not start: cuInit answers system not yet \
                 initialized (CUDA_ERROR_SYSTEM_NOT_READY, 802); start NVIDIA's fabric manager",
            ),
            ("select:auto", "emulated"),
            ("init", "0"),
        ],
        says: "hopper-cuda-driver: no CUDA device can be used: NVIDIA's driver does not start: cuInit answers system \
               not yet initialized (CUDA_ERROR_SYSTEM_NOT_READY, 802); start NVIDIA's fabric manager",
    },
    Case {
        name: "auto takes a driver that has a Hopper GPU",
        from: Foreign,
        variables: &[AUTO],
        steps: &[
            ("version", "0 12080"),
            ("selected", "cuda"),
            ("select:cuda", "cuda"),
            ("select:auto", "cuda"),
        ],
        says: "",
    },
    Case {
        name: "auto takes it whichever of its devices that is",
        from: Foreign,
        variables: &[AUTO, ("FAKE_DEVICES", "8.0,9.0")],
        steps: &[("init", "0"), ("selected", "cuda"), ("fallback", "none")],
        says: "",
    },
    Case {
        name: "auto passes over a driver without a Hopper GPU, and says so",
        from: Foreign,
        variables: &[AUTO, ("FAKE_DEVICES", "8.0,10.0")],
        steps: &[
            ("init", "0"),
            ("selected", "emulated"),
            (
                "fallback",
                "NVIDIA's driver has no device of compute capability 9.0; it has 8.0, 10.0",
            ),
        ],
        says: "hopper-cuda-driver: NVIDIA's driver has no device of compute capability 9.0; it has 8.0, 10.0: use a \
               machine with a Hopper GPU; the device is emulated in its place",
    },
    Case {
        name: "auto passes over a driver that does not start, and says so",
        from: Foreign,
        variables: &[AUTO, NOT_READY],
        steps: &[
            ("init", "0"),
            ("init", "0"),
            ("selected", "emulated"),
            (
                "fallback",
                "NVIDIA's driver does not start: cuInit answers system not yet initialized \
                 (CUDA_ERROR_SYSTEM_NOT_READY, 802)",
            ),
        ],
        says: "hopper-cuda-driver: NVIDIA's driver does not start: cuInit answers system not yet initialized \
               (CUDA_ERROR_SYSTEM_NOT_READY, 802): start NVIDIA's fabric manager",
    },
    Case {
        name: "auto passes over one that breaks later, and says so",
        from: Foreign,
        variables: &[AUTO, ("FAKE_CODE_cuDeviceGetCount", "999")],
        steps: &[
            ("init", "0"),
            (
                "fallback",
                "NVIDIA's driver does not start: cuDeviceGetCount answers unknown error",
            ),
        ],
        says: "hopper-cuda-driver: NVIDIA's driver does not start: cuDeviceGetCount answers unknown error \
               (CUDA_ERROR_UNKNOWN, 999): see what `nvidia-smi` and `dmesg` say",
    },
    Case {
        name: "a program that can ask is told nothing unasked",
        from: Foreign,
        variables: &[AUTO, ("FAKE_CODE_cuInit", "46")],
        steps: &[
            ("selected", "emulated"),
            (
                "fallback",
                "NVIDIA's driver does not start: cuInit answers CUDA-capable device(s)",
            ),
            ("init", "0"),
        ],
        says: "",
    },
    Case {
        name: "auto is emulated in silence where there is no library",
        from: Missing,
        variables: &[AUTO],
        steps: &[("init", "0"), ("fallback", "libcuda.so.1 is not installed")],
        says: "",
    },
    Case {
        name: "auto says that a library does not load",
        from: Broken,
        variables: &[AUTO],
        steps: &[("init", "0"), ("fallback", "libcuda.so.1 does not load: ")],
        says: "hopper-cuda-driver: libcuda.so.1 does not load: ",
    },
    Case {
        name: "codes that cust lacks reach only callers of newer functions, and are kept",
        from: Foreign,
        variables: &[
            ("FAKE_CODE_cuCtxSynchronize", "46"),
            ("FAKE_CODE_cuLaunchKernelEx", "912"),
        ],
        steps: &[
            ("behind-unknown", "0"),
            ("synchronize", "999"),
            ("behind-unknown", "46"),
            ("launch-ex", "912"),
            ("behind-unknown", "912"),
        ],
        says: "",
    },
    Case {
        name: "tensor maps are made by the driver in use",
        from: Foreign,
        variables: &[],
        steps: &[("tensor-map", "0 12345678912 0 3")],
        says: "",
    },
    Case {
        name: "a function that the driver lacks is not found",
        from: Foreign,
        variables: &[],
        steps: &[("later", "500"), ("later", "500")],
        says: "",
    },
    Case {
        name: "the variable chooses the emulated driver",
        from: Foreign,
        variables: &[("HOPPER_PROJ_DEVICE", "emulated")],
        steps: &[
            ("version", "0 13000"),
            ("stream", "3"),
            ("init", "0"),
            ("stream", "201"),
            ("selected", "emulated"),
            ("fallback", "none"),
        ],
        says: "",
    },
    Case {
        name: "a call wins over the variable",
        from: Foreign,
        variables: &[CUDA],
        steps: &[("select:emulated", "emulated"), ("version", "0 13000")],
        says: "",
    },
    Case {
        name: "the variable wins over a program's default",
        from: Foreign,
        variables: &[CUDA],
        steps: &[("otherwise:emulated", "cuda")],
        says: "",
    },
    Case {
        name: "an empty variable does not",
        from: Foreign,
        variables: &[("HOPPER_PROJ_DEVICE", "")],
        steps: &[("otherwise:emulated", "emulated"), ("otherwise:auto", "auto")],
        says: "",
    },
    Case {
        name: "the first use decides",
        from: Foreign,
        variables: &[],
        steps: &[
            ("init", "0"),
            (
                "select:emulated",
                "error: the driver `emulated` was asked for, but this process already uses `cuda`",
            ),
            ("version", "0 12080"),
        ],
        says: "",
    },
    Case {
        name: "auto passes over a driver without a device in silence",
        from: Foreign,
        variables: &[AUTO, ("FAKE_DEVICES", "")],
        steps: &[
            (
                "select:cuda",
                "error: no CUDA device can be used: NVIDIA's driver reports no device; see which devices",
            ),
            ("init", "0"),
            ("selected", "emulated"),
        ],
        says: "",
    },
    Case {
        name: "auto passes over a driver that finds no device as it starts in silence",
        from: Foreign,
        variables: &[AUTO, ("FAKE_CODE_cuInit", "100")],
        steps: &[("init", "0"), ("fallback", "NVIDIA's driver reports no device")],
        says: "",
    },
    Case {
        name: "where NVIDIA's driver alone will do, the advice fits the code",
        from: Foreign,
        variables: &[("FAKE_CODE_cuInit", "803")],
        steps: &[(
            "select:cuda",
            "error: no CUDA device can be used: NVIDIA's driver does not start: cuInit answers system has unsupported \
             display driver / cuda driver combination (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803); the kernel module and \
             libcuda.so.1 are of different versions",
        )],
        says: "",
    },
    Case {
        name: "where NVIDIA's driver alone will do, calls fail and say why",
        from: Broken,
        variables: &[CUDA],
        steps: &[
            ("init", "100"),
            ("words", "no CUDA-capable device is detected"),
            (
                "selected",
                "error: no CUDA device can be used: libcuda.so.1 does not load",
            ),
            ("select:emulated", "emulated"),
            ("init", "0"),
        ],
        says: "hopper-cuda-driver: no CUDA device can be used: libcuda.so.1 does not load",
    },
    Case {
        name: "a word that names no driver is refused",
        from: Foreign,
        variables: &[("HOPPER_PROJ_DEVICE", "gpu")],
        steps: &[
            ("init", "1"),
            (
                "selected",
                "error: `gpu` names no driver; say `auto`, `cuda` or `emulated`",
            ),
            ("select:tpu", "error: `tpu` names no driver"),
        ],
        says: "hopper-cuda-driver: `gpu` names no driver",
    },
    Case {
        name: "this driver does not take itself for NVIDIA's",
        from: Ours,
        variables: &[AUTO],
        steps: &[
            (
                "select:cuda",
                "error: no CUDA device can be used: the libcuda.so.1 found first is this emulated driver",
            ),
            ("selected", "emulated"),
        ],
        says: "",
    },
];

fn check(case: &Case, library: &StandIn) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    library
        .lend_to(&mut command)
        .arg("steps")
        .args(case.steps.iter().map(|(step, _)| step))
        .envs(case.variables.iter().copied());
    let output = command.output()?;
    let printed = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = printed.lines().collect();
    let as_expected = lines.len() == case.steps.len()
        && lines.iter().zip(case.steps).all(|(line, (_, start))| {
            // A code or a name stands alone; a message may go on.
            if start.contains(' ') && !start.starts_with('0') {
                line.starts_with(start)
            } else {
                line == start
            }
        });
    let said = String::from_utf8_lossy(&output.stderr);
    let says_so = said.starts_with(case.says) && said.lines().count() == usize::from(!case.says.is_empty());
    if output.status.success() && as_expected && says_so {
        return Ok(());
    }
    Err(format!(
        "expected {:#?}, saw {lines:#?} ({}); expected `{}`, saw `{said}`",
        case.steps, output.status, case.says
    )
    .into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "steps") {
        arguments[1..].iter().for_each(|step| println!("{}", act(step)));
        return Ok(());
    }
    let libraries = [
        (Foreign, StandIn::new()?),
        (Ours, StandIn::marked()?),
        (Broken, StandIn::broken()?),
        (Missing, StandIn::missing()?),
    ];
    // SAFETY: NVIDIA's library may be loaded by any program.
    let installed = unsafe { libloading::Library::new("libcuda.so.1") }.is_ok();
    for case in CASES {
        if case.from == Missing && installed {
            println!("{} ... not here, where the library is installed", case.name);
            continue;
        }
        let (_, library) = libraries
            .iter()
            .find(|(library, _)| *library == case.from)
            .ok_or("a library")?;
        check(case, library).map_err(|error| format!("{}: {error}", case.name))?;
        println!("{} ... ok", case.name);
    }
    Ok(())
}
