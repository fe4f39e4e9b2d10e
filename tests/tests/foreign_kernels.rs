//! Kernels of others between a router's calls. A file of its own, as the last of them ends the device's context; on the
//! emulator, which tells a race that need not happen.

use hopper_proj::reference::gate;
use hopper_proj::{Choices, Router, RouterConfig, Score, Tokens};
use hopper_proj::{Error, Result};
use hopper_proj_tests::driver::{Launch, Module};
use hopper_proj_tests::{Device, Values, here, there};

const EXPERTS: usize = 24;
const K: usize = 256;

/// What a kernel of someone else's may be: it touches nothing of the router's.
const FOREIGN: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry ends()
{
    ret;
}
.visible .entry waits()
{
    griddepcontrol.wait;
    ret;
}
";

/// The router, a foreign kernel, the router once more; and whether both calls gave what they should.
fn between(
    device: &Device,
    router: &Router,
    values: &mut Values,
    m: usize,
    kernel: &str,
    overlaps: bool,
) -> Result<()> {
    let x = device.engine.upload(&values.bf16(m * K))?;
    // Results of their own for each call: the router's workspace is all that they share.
    let mut calls = [0; 2].map(|_| {
        (
            there(&vec![-9i32; m * 2]),
            there(&vec![f32::NAN; m * 2]),
            there(&vec![f32::NAN; m * EXPERTS]),
        )
    });
    let foreign = Module::load(FOREIGN).function(kernel);
    let launch = Launch {
        grid: [1, 1],
        threads: 32,
        cluster: 1,
        shared: 0,
        overlaps,
    };
    for (call, (ids, weights, logits)) in calls.iter_mut().enumerate() {
        let choices = Choices::new(ids, weights).logits(logits);
        router.route(Tokens::new(&x, m), choices, &device.stream)?;
        if call == 0 {
            // SAFETY: the kernel takes nothing.
            let code = unsafe { launch.run_in(device.stream.handle().cast(), [1, 1, 1], foreign, &[]) };
            assert_eq!(code, 0);
        }
    }
    device.engine.synchronize(&device.stream)?;
    for (ids, weights, logits) in &calls {
        gate::check(&here(ids), &here(weights), &here(logits), router.gate(), None).unwrap();
    }
    Ok(())
}

#[test]
fn a_foreign_kernel_between_calls_must_wait_or_not_overlap() {
    let (device, mut values) = (Device::emulated(), Values::fresh());
    let weights = values.fp32(EXPERTS * K);
    let router = device.fp32_router(&weights, EXPERTS, &RouterConfig::new(Score::Softmax, 2));
    for m in [3, 40] {
        for (kernel, overlaps) in [("ends", false), ("waits", false), ("waits", true)] {
            between(&device, &router, &mut values, m, kernel, overlaps)
                .unwrap_or_else(|err| panic!("{kernel}, {overlaps}, m = {m}: {err}"));
        }
    }
    let err = between(&device, &router, &mut values, 3, "ends", true).unwrap_err();
    let Error::Device { story: Some(story), .. } = &err else {
        panic!("{err}");
    };
    println!("{story}");
    assert!(story.to_string().contains("griddepcontrol.wait"), "{story}");
}
