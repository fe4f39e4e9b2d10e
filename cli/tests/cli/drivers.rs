//! Which driver computes, and what is said where it is not NVIDIA's.

use hopper_cuda_stand_in::StandIn;
use std::process::{Command, Output};

/// Runs the binary with a library under the name of NVIDIA's driver.
fn run(library: &StandIn, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("hopper-proj"));
    library.lend_to(&mut command).args(args);
    command.envs(variables.iter().copied()).output().unwrap()
}

const NOT_READY: (&str, &str) = ("FAKE_CODE_cuInit", "802");

#[test]
fn a_driver_that_does_not_start_is_named_in_one_line() {
    for (code, name, advice) in [
        ("802", "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        ("803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"),
        ("46", "CUDA_ERROR_DEVICE_UNAVAILABLE", "--compute-mode=0"),
        ("999", "CUDA_ERROR_UNKNOWN", "nvidia-smi"),
    ] {
        let library = StandIn::new().unwrap();
        let output = run(&library, &["info"], &[("FAKE_CODE_cuInit", code)]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for words in [
            "warning: ",
            &format!("({name}, {code})"),
            advice,
            "is emulated in its place",
        ] {
            assert!(said.contains(words), "{words} is not in {said}");
        }
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(&format!("({name}, {code})")), "{printed}");
        // Where NVIDIA's driver alone will do, the same is an error.
        let output = run(&library, &["info", "--device", "cuda"], &[("FAKE_CODE_cuInit", code)]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.starts_with("error: "), "{said}");
        assert!(
            said.contains(name) && said.contains(advice) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn scripts_find_why_no_gpu_is_used() {
    let library = StandIn::new().unwrap();
    let report = |variables: &[(&str, &str)]| {
        let output = run(&library, &["info", "--json"], variables);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let fallback = &report(&[NOT_READY])["fallback"];
    assert_eq!(fallback["code"], 802);
    assert_eq!(fallback["name"], "CUDA_ERROR_SYSTEM_NOT_READY");
    assert!(
        fallback["advice"].as_str().unwrap().contains("nvidia-fabricmanager"),
        "{fallback}"
    );
    let other = report(&[("FAKE_DEVICES", "8.0")]);
    assert_eq!(
        (other["device"].as_str(), &other["fallback"]["code"]),
        (Some("emulated"), &serde_json::Value::Null)
    );
    assert!(
        other["fallback"]["reason"].as_str().unwrap().ends_with("it has 8.0"),
        "{other}"
    );
    let none = report(&[("FAKE_DEVICES", "8.0,9.0")]);
    assert_eq!(
        (none["name"].as_str(), &none["fallback"]),
        (Some("stand-in 1 (sm_90)"), &serde_json::Value::Null)
    );
}

#[test]
fn nothing_is_said_where_there_is_nothing_to_say() {
    let library = StandIn::new().unwrap();
    for (args, variables) in [
        (&["info"][..], &[][..]),
        // No GPU, as on most machines.
        (&["info"], &[("FAKE_CODE_cuInit", "100")]),
        (&["info"], &[("FAKE_DEVICES", "")]),
        // The emulator is what was asked for.
        (&["info", "--device", "emulated"], &[NOT_READY]),
        (&["info"], &[NOT_READY, ("HOPPER_PROJ_DEVICE", "emulated")]),
    ] {
        let output = run(&library, args, variables);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{variables:?}: {output:?}"
        );
    }
}

#[test]
fn a_variable_that_is_empty_is_not_set() {
    let empty = ["DEVICE", "SEED", "PLAN", "EXPLAIN", "FAULTS", "LEAKS", "DRIVER_LOG"];
    let empty = empty.map(|name| format!("HOPPER_PROJ_{name}"));
    let empty: Vec<(&str, &str)> = empty.iter().map(|name| (name.as_str(), "")).collect();
    let library = StandIn::missing().unwrap();
    let output = run(&library, &["info"], &empty);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
