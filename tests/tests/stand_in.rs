//! The library against a stand-in for NVIDIA's driver, which logs what it is asked for.

use hopper_cuda_stand_in::StandIn;
use hopper_proj::formats::Weights;
use hopper_proj::{DriverChoice, Engine, EngineOptions, PrepareOptions, Projection, Result, bf16};
use hopper_proj_tests::shape;
use std::ops::RangeInclusive;

/// Runs the test of this name in a process that has the library on loan, and returns what it printed.
fn run(stand_in: &StandIn, test: &str, variables: &[(&str, &str)]) -> String {
    let output = stand_in.test(test).envs(variables.iter().copied()).output().unwrap();
    let (printed, said) = (
        String::from_utf8(output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{variables:?}: {printed:?} {said}");
    printed.unwrap()
}

/// Opens an engine and prepares weights on it, for calls of so many tokens.
fn prepare(options: EngineOptions, tokens: RangeInclusive<usize>) -> Result<(Engine, Projection)> {
    let engine = Engine::new(options)?;
    let weights = vec![bf16::ONE; 64 * 256];
    let weights = Weights::bf16(&weights, shape(64, 256))?;
    let projection = engine.prepare(weights, &PrepareOptions::tokens(tokens))?;
    assert_eq!(projection.shape(), shape(64, 256));
    Ok((engine, projection))
}

/// Prints what becomes of that.
fn show(options: Result<EngineOptions>) {
    match options.and_then(|options| prepare(options, 1..=8)) {
        Ok((engine, _)) => println!("{:?}", engine.device()),
        Err(err) => println!("error: {err}"),
    }
}

const DEFAULT: &str = "what_an_engine_does_unless_told_otherwise";

/// What a driver answers, and what the engine's error says of it, or what it says of its device.
#[test]
fn what_an_engine_does_unless_told_otherwise() {
    if StandIn::is_loaned() {
        return show(Ok(EngineOptions::default()));
    }
    for (variables, expected) in [
        (&[][..], &["driver: Cuda, fallback: None", "stand-in 0 (sm_90)"][..]),
        // The first Hopper GPU, wherever it stands.
        (&[("FAKE_DEVICES", "8.0,9.0")], &["driver: Cuda", "stand-in 1 (sm_90)"]),
        (
            &[("FAKE_DEVICES", "8.0,10.0")],
            &["error: stand-in 0 (sm_80) has compute capability 8.0; the kernels are for Hopper, 9.0"],
        ),
        // The emulator computes for those alone who ask for it.
        (
            &[("FAKE_CODE_cuInit", "802")],
            &[
                "error: no CUDA device can be used: NVIDIA's driver does not start: cuInit answers",
                "(CUDA_ERROR_SYSTEM_NOT_READY, 802); start NVIDIA's fabric manager",
                "choose `emulated` or `auto` (the variable HOPPER_PROJ_DEVICE takes these words)",
            ],
        ),
        (
            &[("HOPPER_PROJ_DEVICE", ""), ("FAKE_CODE_cuInit", "46")],
            &[
                "error: no CUDA device can be used",
                "--compute-mode=0",
                "HOPPER_PROJ_DEVICE",
            ],
        ),
        (
            &[("HOPPER_PROJ_DEVICE", "emulated")],
            &["driver: Emulated, fallback: None"],
        ),
        (
            &[("HOPPER_PROJ_DEVICE", "auto"), ("FAKE_CODE_cuInit", "999")],
            &["driver: Emulated, fallback: Some(Failed { call: \"cuInit\", code: 999 })"],
        ),
        // The oldest driver, and the one before it.
        (&[("FAKE_VERSION", "12010")], &["cuda: (12, 1)"]),
        (
            &[("FAKE_VERSION", "12000")],
            &[
                "error: the driver serves CUDA 12.0; the kernels need 12.1, ",
                "install a newer driver",
            ],
        ),
        // The driver's own codes and words, also of those calls that `cust` makes.
        (
            &[("FAKE_CODE_cuDevicePrimaryCtxRetain", "46")],
            &[
                "error: failed to open the device's primary context: stand-in words of 46 (CUDA error 46)",
                "--compute-mode=0",
            ],
        ),
        (
            &[("FAKE_CODE_cuMemAlloc_v2", "2")],
            &["stand-in words of 2 (CUDA error 2)"],
        ),
        (
            &[
                ("FAKE_CODE_cuModuleLoadDataEx", "223"),
                ("FAKE_CODE_cuGetErrorString", "1"),
            ],
            &[
                "error: failed to load the kernels: PTX JIT compilation was disabled (CUDA error 223)",
                "unset CUDA_DISABLE_PTX_JIT",
            ],
        ),
        (
            &[("FAKE_CODE_cuModuleLoadDataEx", "221")],
            &["(CUDA error 221)", "libnvidia-ptxjitcompiler.so.1"],
        ),
        (
            &[("FAKE_CODE_cuModuleLoadDataEx", "222"), ("FAKE_VERSION", "12010")],
            &[
                "(CUDA error 222): the PTX is of version 8.1, which needs a driver for CUDA 12.1, ",
                "and this driver serves CUDA 12.1: install a newer driver",
            ],
        ),
        (&[("FAKE_CODE_cuModuleLoadDataEx", "12345")], &["(CUDA error 12345)"]),
    ] {
        let stand_in = StandIn::new().unwrap();
        let printed = run(&stand_in, DEFAULT, variables);
        let missing: Vec<_> = expected.iter().filter(|words| !printed.contains(**words)).collect();
        assert!(missing.is_empty(), "{variables:?}: {missing:?} is not in {printed}");
    }
}

#[test]
fn a_program_may_prefer_to_be_emulated() {
    const TEST: &str = "a_program_may_prefer_to_be_emulated";
    if StandIn::is_loaned() {
        return show(EngineOptions::from_environment_or(DriverChoice::Auto));
    }
    for (variables, expected) in [
        (
            &[("FAKE_CODE_cuInit", "802")][..],
            "driver: Emulated, fallback: Some(Failed",
        ),
        (
            &[("FAKE_DEVICES", "8.0")],
            "fallback: Some(NoHopper { capabilities: [(8, 0)] })",
        ),
        (&[("FAKE_DEVICES", "8.0,9.0")], "stand-in 1 (sm_90)"),
        (
            &[("FAKE_CODE_cuInit", "802"), ("HOPPER_PROJ_DEVICE", "cuda")],
            "error: no CUDA device can be used",
        ),
    ] {
        let printed = run(&StandIn::new().unwrap(), TEST, variables);
        assert!(printed.contains(expected), "{variables:?}: {printed}");
    }
}

#[test]
fn a_driver_that_counts_no_clusters_leaves_an_estimate_that_says_so() {
    const TEST: &str = "a_driver_that_counts_no_clusters_leaves_an_estimate_that_says_so";
    if StandIn::is_loaned() {
        let engine = Engine::new(EngineOptions::on(DriverChoice::Cuda)).unwrap();
        let device = engine.kernels().device();
        println!("{} {}", device.clusters_at_a_time(8, 1), device.clusters);
        return;
    }
    let estimate = "16 an estimate without GPCs, as the driver does not say";
    for (variables, expected) in [
        // The stand-in counts one.
        (&[][..], "1 as the driver says"),
        (&[("FAKE_CODE_cuOccupancyMaxActiveClusters", "500")], estimate),
        (&[("FAKE_CODE_cuModuleLoadData", "222")], estimate),
    ] {
        let stand_in = StandIn::new().unwrap();
        let printed = run(&stand_in, TEST, variables);
        assert!(printed.contains(expected), "{variables:?}: {printed}");
        let calls = stand_in.calls().unwrap();
        let count = |name| calls.iter().filter(|call| call.name == name && call.code == 0).count();
        assert_eq!(count("cuModuleLoadData"), count("cuModuleUnload"));
    }
}

#[test]
fn weights_are_prepared_without_a_gpu() {
    const TEST: &str = "weights_are_prepared_without_a_gpu";
    if StandIn::is_loaned() {
        prepare(EngineOptions::on(DriverChoice::Cuda), 1..=8).unwrap();
        return;
    }
    let stand_in = StandIn::new().unwrap();
    run(&stand_in, TEST, &[]);
    let calls = stand_in.calls().unwrap();
    let log: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    println!("{}", log.join("\n"));
    assert!(calls.iter().all(|call| call.code == 0), "{calls:?}");
    for name in [
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuModuleGetFunction",
        "cuFuncLoad",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ] {
        assert!(log.contains(&name), "{name} is not in {log:?}");
    }
    let count = |name| log.iter().filter(|&&call| call == name).count();
    assert_eq!(count("cuMemAlloc_v2"), count("cuMemFree_v2"));
}

#[test]
fn a_call_is_captured_without_a_gpu() {
    const TEST: &str = "a_call_is_captured_without_a_gpu";
    if StandIn::is_loaned() {
        // More tokens, so that kernels with self-tests are loaded: launches do nothing, so these all fail.
        let (engine, projection) = prepare(EngineOptions::on(DriverChoice::Cuda), 1..=100).unwrap();
        let (x, mut y) = (
            engine.upload(&[bf16::ONE; 256]).unwrap(),
            engine.upload(&[bf16::ZERO; 64]).unwrap(),
        );
        let stream = engine.stream().unwrap();
        let call = || engine.project(&projection, &x, 1, &mut y, &stream);
        engine.capture(&stream, call).unwrap();
        return;
    }
    let stand_in = StandIn::new().unwrap();
    run(&stand_in, TEST, &[]);
    let calls = stand_in.calls().unwrap();
    assert!(calls.iter().all(|call| call.code == 0), "{calls:?}");
    let place = |name| calls.iter().rposition(|call| call.name == name).unwrap();
    let (begin, end) = (place("cuStreamBeginCapture_v2"), place("cuStreamEndCapture"));
    let launches: Vec<_> = calls[begin..end]
        .iter()
        .filter(|call| call.name == "cuLaunchKernelEx")
        .collect();
    assert_eq!(launches.len(), 1, "{:?}", &calls[begin..end]);
    assert_eq!(launches[0].number("stream"), calls[begin].number("stream"));
}
