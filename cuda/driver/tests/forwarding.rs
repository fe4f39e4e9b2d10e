//! Which driver a process ends up with, and what reaches the caller from a driver that is not ours. Each case is a
//! process of its own, since a process chooses once; a stand-in for NVIDIA's library lets the cases run on any machine.

use hopper_cuda_driver::{ffi, select, selected};
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
}
use Library::{Broken, Foreign, Ours};

struct Case {
    name: &'static str,
    from: Library,
    variables: &'static [(&'static str, &'static str)],
    /// Steps, and how the line that each prints begins.
    steps: &'static [(&'static str, &'static str)],
}

const CASES: &[Case] = &[
    Case {
        name: "auto takes a driver that has a device",
        from: Foreign,
        variables: &[],
        steps: &[
            ("version", "0 12080"),
            ("selected", "cuda"),
            ("select:cuda", "cuda"),
            ("select:auto", "cuda"),
        ],
    },
    Case {
        name: "codes that cust lacks reach only callers of newer functions",
        from: Foreign,
        variables: &[
            ("FAKE_CODE_cuCtxSynchronize", "912"),
            ("FAKE_CODE_cuLaunchKernelEx", "912"),
        ],
        steps: &[("synchronize", "999"), ("launch-ex", "912")],
    },
    Case {
        name: "tensor maps are made by the driver in use",
        from: Foreign,
        variables: &[],
        steps: &[("tensor-map", "0 12345678912 0 3")],
    },
    Case {
        name: "a function that the driver lacks is not found",
        from: Foreign,
        variables: &[],
        steps: &[("later", "500"), ("later", "500")],
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
        ],
    },
    Case {
        name: "a call wins over the variable",
        from: Foreign,
        variables: &[("HOPPER_PROJ_DEVICE", "cuda")],
        steps: &[("select:emulated", "emulated"), ("version", "0 13000")],
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
    },
    Case {
        name: "a driver without a device is passed over",
        from: Foreign,
        variables: &[("FAKE_DEVICES", "")],
        steps: &[
            (
                "select:cuda",
                "error: no CUDA device can be used: NVIDIA's driver reports no device",
            ),
            ("selected", "emulated"),
        ],
    },
    Case {
        name: "a driver that does not start is passed over",
        from: Foreign,
        variables: &[("FAKE_CODE_cuInit", "803")],
        steps: &[
            (
                "select:cuda",
                "error: no CUDA device can be used: NVIDIA's driver does not start: \
                 system has unsupported display driver / cuda driver combination (803)",
            ),
            ("init", "0"),
            ("selected", "emulated"),
        ],
    },
    Case {
        name: "where NVIDIA's driver alone will do, calls fail and say why",
        from: Broken,
        variables: &[("HOPPER_PROJ_DEVICE", "cuda")],
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
    },
    Case {
        name: "this driver does not take itself for NVIDIA's",
        from: Ours,
        variables: &[],
        steps: &[
            (
                "select:cuda",
                "error: no CUDA device can be used: the libcuda.so.1 found first is this emulated driver",
            ),
            ("selected", "emulated"),
        ],
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
            // A code stands alone; an error's message may go on.
            if start.starts_with("error") {
                line.starts_with(start)
            } else {
                line == start
            }
        });
    if output.status.success() && as_expected {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "expected {:#?}, saw {lines:#?} ({}) {errors}",
        case.steps, output.status
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
    ];
    for case in CASES {
        let (_, library) = libraries
            .iter()
            .find(|(library, _)| *library == case.from)
            .ok_or("a library")?;
        check(case, library).map_err(|error| format!("{}: {error}", case.name))?;
        println!("{} ... ok", case.name);
    }
    Ok(())
}
