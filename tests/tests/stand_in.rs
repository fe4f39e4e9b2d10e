//! The library against a stand-in for NVIDIA's driver, which logs what it is asked for.

use hopper_cuda_stand_in::{Call, StandIn};
use hopper_proj::formats::Weights;
use hopper_proj::{DriverChoice, Engine, EngineOptions, PrepareOptions, bf16};
use hopper_proj_tests::shape;

/// Runs the test of this name in a process that has the library on loan, and returns the calls that it made.
fn calls(stand_in: &StandIn, test: &str) -> Vec<Call> {
    let output = stand_in.test(test).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    stand_in.calls().unwrap()
}

#[test]
fn weights_are_prepared_without_a_gpu() {
    if StandIn::is_loaned() {
        let engine = Engine::new(EngineOptions::on(DriverChoice::Cuda)).unwrap();
        let weights = vec![bf16::ONE; 64 * 256];
        let weights = Weights::bf16(&weights, shape(64, 256)).unwrap();
        let projection = engine.prepare(weights, &PrepareOptions::tokens(1..=8)).unwrap();
        assert_eq!(projection.shape(), shape(64, 256));
        return;
    }
    let calls = calls(&StandIn::new().unwrap(), "weights_are_prepared_without_a_gpu");
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
