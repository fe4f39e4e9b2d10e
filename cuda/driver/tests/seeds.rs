//! Where a run's seed comes from: a call, else the environment. Each case is a process of its own, since the
//! environment is read once.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, SEED_VARIABLE, VARIABLE, emulated, select, selected, serve_as_library};
use std::error::Error;
use std::process::Command;

const WARPS: usize = 16;

/// What a case's process does, in order, printing one line for each.
fn act(step: &str) -> String {
    match step.split_once(':') {
        Some(("seed", "none")) => {
            emulated::set_seed(None);
            "none".into()
        }
        Some(("seed", seed)) => {
            emulated::set_seed(seed.parse().ok());
            seed.into()
        }
        _ if step == "library" => {
            serve_as_library();
            "library".into()
        }
        _ if step == "select" => match select(Choice::Emulated) {
            Ok(selected) => selected.to_string(),
            Err(error) => format!("error: {error}"),
        },
        _ if step == "selected" => match selected() {
            Ok(selected) => selected.to_string(),
            Err(error) => format!("error: {error}"),
        },
        _ if step == "init" => code!(cuInit(0)).to_string(),
        // Kept until the process ends.
        _ if step == "context" => (!std::mem::ManuallyDrop::new(Context::new()).0.is_null()).to_string(),
        _ if step == "order" => {
            let buffer = upload(&[0_u32; 1 + WARPS]);
            let kernel = kernel_of(include_str!("ptx/tickets.ptx"), "tickets");
            let config = config(1, 32 * WARPS as u32);
            assert_eq!(launch(&config, kernel, &[parameter(&buffer)]), SUCCESS);
            format!("{:?}", &download::<u32>(buffer, 1 + WARPS)[1..])
        }
        _ => panic!("no such step: {step}"),
    }
}

/// What the steps print in a process with the variable at a value, and what it says besides.
fn run(value: Option<&str>, steps: &[&str]) -> Result<(Vec<String>, String), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env_remove(SEED_VARIABLE).env(VARIABLE, "emulated");
    command.arg("steps").args(steps);
    let output = command.envs(value.map(|value| (SEED_VARIABLE, value))).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{value:?} {steps:?}: {} {errors}", output.status).into());
    }
    Ok((
        String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect(),
        errors,
    ))
}

/// The order in which warps come, in a process with the variable at a value, after some steps.
fn order(value: Option<&str>, steps: &[&str]) -> Result<String, Box<dyn Error>> {
    let (mut printed, errors) = run(value, &[steps, &["order"]].concat())?;
    if !errors.is_empty() {
        return Err(format!("{value:?} {steps:?} says {errors}").into());
    }
    Ok(printed.pop().unwrap_or_default())
}

fn main() -> Result<(), Box<dyn Error>> {
    let steps = std::env::args().skip_while(|argument| argument != "steps").skip(1);
    let printed: Vec<String> = steps.map(|step| act(&step)).collect();
    if !printed.is_empty() {
        println!("{}", printed.join("\n"));
        return Ok(());
    }
    // The orders of no seed and two seeds, as calls ask for them.
    let unseeded = order(None, &["context"])?;
    let one = order(None, &["context", "seed:1"])?;
    let two = order(None, &["context", "seed:2"])?;
    assert!(
        unseeded != one && unseeded != two && one != two,
        "{unseeded} {one} {two}"
    );
    for (value, steps, expected) in [
        (Some("1"), &["context"][..], &one),
        (Some("2"), &["context"], &two),
        (Some("2"), &["library", "context"], &two),
        (Some(""), &["context"], &unseeded),
        // A call goes before the variable, whenever it comes, and one that wants no seed does too.
        (Some("1"), &["context", "seed:2"], &two),
        (Some("1"), &["seed:2", "context"], &two),
        (Some("1"), &["context", "seed:none"], &unseeded),
        (Some("1"), &["seed:none", "context"], &unseeded),
    ] {
        assert_eq!(&order(value, steps)?, expected, "{value:?} {steps:?}");
    }
    println!("seeds of calls and of the environment ... ok");

    let refused = format!("{SEED_VARIABLE} is `some`; it takes a whole number from 0 to 18446744073709551615");
    let (printed, errors) = run(Some("some"), &["select", "init"])?;
    assert!(printed[0].starts_with(&format!("error: {refused}")), "{printed:?}");
    assert_eq!(printed[1], "1");
    let told_once = |errors: &str| {
        let start = format!("hopper-cuda-driver: {refused}");
        assert!(errors.starts_with(&start) && errors.lines().count() == 1, "{errors}");
    };
    // Whoever calls a C function sees a code alone: the rest is told, once.
    told_once(&errors);
    let (printed, errors) = run(Some("some"), &["library", "init", "init", "selected"])?;
    assert_eq!(printed[1..3], ["1", "1"]);
    assert!(printed[3].starts_with(&format!("error: {refused}")), "{printed:?}");
    told_once(&errors);
    println!("what is no seed ... ok");
    Ok(())
}
