//! Equal calls give equal bits, whatever the interleaving of warps, CTAs and copies.

use hopper_proj::DriverInUse;
use hopper_proj::instances::{Gemv, gemvs};
use hopper_proj_tests::{Device, Values, bits, check, lead, shape};

const SEEDS: u64 = 20;

/// A shape with more than one cluster along N and along m, of which the last is ragged, and with rings that go round:
/// two more groups of columns per warp than a ring has stages, for as many warps as time allows.
fn small(instance: &Gemv) -> (usize, usize, usize) {
    const MOST_GROUPS: usize = 16;
    let groups = (instance.k_slices() * (instance.stages + 2)).min(MOST_GROUPS);
    (instance.rows() + 5, 64 * groups - 24, instance.tokens() + 1)
}

#[test]
fn twenty_seeds_agree_bit_for_bit() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let emulated = device.engine.device().driver == DriverInUse::Emulated;
    if !emulated {
        println!("a GPU has no seeds: calls are repeated instead");
    }
    for instance in gemvs() {
        let (n, k, m) = small(instance);
        let shape = shape(n, k);
        let (w, x) = (values.bf16(n * k), values.bf16(m * k));
        let projection = device.prepare(instance.format, &w, shape);
        let run = |seed| {
            hopper_cuda_driver::emulated::set_seed(seed);
            let y = device.project(Some(instance), &projection, &x, lead(instance), m);
            y.unwrap_or_else(|err| panic!("{} with seed {seed:?}: {err}", instance.name))
        };
        let unordered = run(None);
        check(&unordered, &x, &w, shape, m).unwrap_or_else(|wrong| panic!("{}: {wrong}", instance.name));
        for seed in 0..SEEDS {
            assert_eq!(
                bits(&run(Some(seed))),
                bits(&unordered),
                "{} with seed {seed}",
                instance.name
            );
        }
    }
}
