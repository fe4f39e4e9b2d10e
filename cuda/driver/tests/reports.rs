//! What the emulated driver says on request. Each case is a process of its own, since the variables are read once.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::error::Error;
use std::ffi::CStr;
use std::process::Command;
use std::ptr::{null, null_mut};

/// The answer to an input of a kind for a new linker.
fn add_to_linker(kind: u32, text: &CStr) -> u32 {
    let none = null_mut::<u32>();
    let mut link = null_mut();
    ok!(cuLinkCreate_v2(0, none, none.cast(), &mut link));
    let (text, size) = (text.as_ptr().cast_mut().cast(), text.count_bytes());
    code!(cuLinkAddData_v2(link, kind, text, size, null(), 0, none, none.cast()))
}

/// What a case's process does.
fn act(what: &str) {
    start();
    match what {
        "fault" => {
            let _context = Context::new();
            let kernel = kernel_of(CHAIN, "patient");
            assert_eq!(launch_on(null_mut(), &[], kernel, 4096), SUCCESS);
            assert_eq!(code!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
        }
        "race" => {
            let _context = Context::new();
            let kernel = kernel_of(include_str!("ptx/faults.ptx"), "race");
            assert_eq!(
                launch(
                    &CUlaunchConfig {
                        blockDimX: 64,
                        ..config(1, 64)
                    },
                    kernel,
                    &[]
                ),
                SUCCESS
            );
            assert_eq!(code!(cuCtxSynchronize()), LAUNCH_FAILED);
        }
        "leak" => {
            // Kept until the process ends.
            let context = std::mem::ManuallyDrop::new(Context::new());
            assert!(!context.0.is_null());
            let _: CUdeviceptr = get!(cuMemAlloc_v2(1234));
            handle!(cuMemAllocHost_v2(77));
            handle!(cuStreamCreate(0));
            load(CHAIN);
        }
        "no leak" => {
            let _context = Context::new();
            let address = get!(cuMemAlloc_v2(1234));
            ok!(cuMemFree_v2(address));
        }
        "unsupported" => {
            let _context = Context::new();
            assert_eq!(code!(cuTexObjectCreate(&mut 0, null(), null(), null())), NOT_SUPPORTED);
            assert_eq!(code!(cuArray3DCreate_v2(&mut null_mut(), null())), NOT_SUPPORTED);
            assert_eq!(add_to_linker(0, c".version 8.0"), NOT_SUPPORTED);
        }
        "bad modules" => {
            let _context = Context::new();
            let image = |text: &CStr| text.as_ptr().cast();
            let (mut module, none) = (null_mut(), null_mut::<u32>());
            assert_eq!(
                code!(cuModuleLoadData(&mut module, image(c".version 8.0\nloaded"))),
                INVALID_PTX
            );
            assert_eq!(
                code!(cuModuleLoadDataEx(
                    &mut module,
                    image(c"\n\nwith options"),
                    0,
                    none.cast(),
                    none.cast()
                )),
                INVALID_PTX
            );
            assert_eq!(
                code!(cuModuleLoadData(&mut module, image(c"\x7fELF\x02\x01\x01"))),
                NO_BINARY_FOR_GPU
            );
            let mut library = null_mut();
            assert_eq!(
                code!(cuLibraryLoadData(
                    &mut library,
                    image(c"\n\n\nlibrary"),
                    none,
                    none.cast(),
                    0,
                    none,
                    none.cast(),
                    0
                )),
                INVALID_PTX
            );
            assert_eq!(add_to_linker(1, c"\n\n\n\nlinker"), INVALID_PTX);
            assert_eq!(add_to_linker(0, c"cubin"), NOT_SUPPORTED);
        }
        _ => panic!("no such case: {what}"),
    }
}

/// The variable, what the process does, and what is said in one line, each.
const CASES: &[(&str, &str, &[&[&str]])] = &[
    (
        "HOPPER_PROJ_FAULTS",
        "fault",
        &[&[
            "access out of bounds",
            "kernel `patient`",
            "PTX line",
            "CTA (0, 0, 0)",
            "warp 0",
            "lane 0",
        ]],
    ),
    (
        "HOPPER_PROJ_FAULTS",
        "race",
        &[&["race", "kernel `race`", "PTX line", "warp", "line "]],
    ),
    (
        "HOPPER_PROJ_FAULTS",
        "bad modules",
        &[
            &["refused (218)", "PTX line 2:", "loaded"],
            &["refused (218)", "PTX line 3:", "with"],
            &["refused (209)", "binary", "PTX text"],
            &["refused (218)", "PTX line 4:", "library"],
            &["refused (218)", "PTX line 5:", "linker"],
            &["refused (801)", "links PTX alone"],
        ],
    ),
    (
        "HOPPER_PROJ_LEAKS",
        "leak",
        &[
            &["not freed: context"],
            &["not freed: stream"],
            &["not freed: module"],
            &["not freed: device memory 1234 bytes at 0x"],
            &["not freed: host memory 77 bytes at 0x"],
            &["5 things were not freed"],
        ],
    ),
    ("HOPPER_PROJ_LEAKS", "no leak", &[&["0 things were not freed"]]),
    (
        "HOPPER_PROJ_DRIVER_LOG",
        "unsupported",
        &[
            &["cuTexObjectCreate is not served by the emulated driver, however it is called"],
            &["cuArray3DCreate_v2 is not served by the emulated driver, however it is called"],
            &["cuLinkAddData_v2 is not supported as it was called"],
        ],
    ),
];

fn check(said: &str, lines: &[&[&str]]) -> Result<(), String> {
    for words in lines {
        if !said.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return Err(format!("no line with {words:?} in:\n{said}"));
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(what) = std::env::args().skip_while(|argument| argument != "act").nth(1) {
        act(&what);
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    for (at, (variable, what, lines)) in CASES.iter().enumerate() {
        let file = folder.path().join(at.to_string());
        let run = |value: Option<&std::ffi::OsStr>| -> Result<String, Box<dyn Error>> {
            let mut command = Command::new(std::env::current_exe()?);
            for (variable, ..) in CASES {
                command.env_remove(variable);
            }
            command.args(["act", what]).envs(value.map(|value| (variable, value)));
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                Ok(said)
            } else {
                Err(format!("{what}: {} {said}", output.status).into())
            }
        };
        let named = |error| format!("{variable}, {what}: {error}");
        check(&run(Some("stderr".as_ref()))?, lines).map_err(named)?;
        let silent = run(Some(file.as_os_str()))? + &run(None)?;
        if silent.contains("hopper-cuda-driver") {
            return Err(named(format!("said to nobody who asked: {silent}")).into());
        }
        check(&std::fs::read_to_string(file)?, lines).map_err(named)?;
        println!("{variable}, {what} ... ok");
    }
    Ok(())
}
