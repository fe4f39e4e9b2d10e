//! A shipped router with one step taken out of its PTX: every step is needed, and the emulator says so.

use hopper_cuda_driver::emulated;
use hopper_proj::instances::{Format, Gemv};
use hopper_proj::reference::gate;
use hopper_proj::{RouterConfig, Score, bf16};
use hopper_proj_tests::driver::{Module, OwnContext, emulated_device};
use hopper_proj_tests::route::{Call, RawRouter};
use hopper_proj_tests::statements::{places, replaced};
use hopper_proj_tests::{Values, shipped};

/// More tokens than a CTA's gate has room for at a time with this many experts.
const M: usize = 32;
const EXPERTS: usize = 520;
const K: usize = 72;

/// Steps that need not be found one by one, each by its mnemonic and number, with the reason why the kernel is right
/// without it, or why nobody can tell.
const SPARED: &[(&str, usize, &str)] = &[
    ("bar.warp.sync", 2, LOADS_TOGETHER),
    ("bar.warp.sync", 3, LOADS_TOGETHER),
    (
        "bar.warp.sync",
        4,
        "a token's warp comes together ahead of its loads; the CTA's barrier orders memory",
    ),
    ("bar.warp.sync", 5, LOADS_TOGETHER),
    ("bar.warp.sync", 7, LOADS_TOGETHER),
    ("bar.warp.sync", 9, LOADS_TOGETHER),
    ("bar.warp.sync", 11, LOADS_TOGETHER),
    ("bar.warp.sync", 12, LOADS_TOGETHER),
    ("bar.warp.sync", 13, LOADS_TOGETHER),
    ("bar.warp.sync", 15, LOADS_TOGETHER),
    (
        "bar.sync",
        1,
        "orders the stores of a CTA's sums before its count: here one warp has stored them all, and the emulator keeps \
         no books of lanes for global memory",
    ),
    (
        "fence.proxy.async",
        0,
        "fence.mbarrier_init ahead of it is enough for the emulator, as for CUTLASS; the ISA asks for both",
    ),
];
const LOADS_TOGETHER: &str = "keeps ptxas from moving loads apart, and orders nothing";

/// What orders memory or threads.
const MNEMONICS: [&str; 6] = [
    "bar.warp.sync",
    "bar.sync",
    "bar.red",
    "fence.mbarrier_init",
    "fence.proxy.async",
    "barrier.cluster",
];

struct Case {
    instance: &'static Gemv,
    weights: Vec<f32>,
    x: Vec<bf16>,
    configs: [RouterConfig; 2],
}

impl Case {
    fn new(values: &mut Values) -> Self {
        let tile = |i: &&Gemv| i.tokens() == M && i.x_values == 8;
        let all = |score| RouterConfig::new(score, 6).groups(4, 3);
        Case {
            instance: Format::Bf16
                .routes()
                .iter()
                .find(tile)
                .expect("routers have such a tile"),
            weights: values.fp32(EXPERTS * K),
            x: values.bf16(M * K),
            configs: [
                all(Score::Sigmoid).bias(values.fp32(EXPERTS)).renormalize(),
                all(Score::Softmax).bias(values.fp32(EXPERTS)),
            ],
        }
    }

    /// Runs the kernel of this text by both gates; what is wrong, if anything is.
    fn run(&self, ptx: &str, seed: Option<u64>) -> Result<(), String> {
        self.configs.iter().try_for_each(|config| {
            let _context = OwnContext::new();
            emulated::set_seed(seed);
            let module = Module::load(ptx);
            let router = RawRouter::with_module(module, self.instance, &self.weights, (EXPERTS, K), M);
            let call = Call {
                config: Some(config),
                logits: true,
                ..Call::default()
            };
            let routed = router
                .try_run(&self.x, M, call)
                .map_err(|(code, story)| format!("{code}: {story}"))?;
            let gate = config.gate(EXPERTS).map_err(|err| err.to_string())?;
            gate::check(&routed.ids, &routed.weights, &routed.logits, &gate, None).map(drop)
        })
    }
}

#[test]
fn every_step_of_a_router_is_needed() {
    emulated_device();
    let case = Case::new(&mut Values::fresh());
    let whole = shipped(&[case.instance.name]);
    case.run(&whole, None).unwrap();
    let mut spared = Vec::new();
    for mnemonic in MNEMONICS {
        for (number, place) in places(&whole, mnemonic).into_iter().enumerate() {
            if SPARED.iter().any(|&(of, at, _)| (of, at) == (mnemonic, number)) {
                spared.push(place);
            } else {
                let found = case.run(&replaced(&whole, vec![place], ""), None);
                assert!(found.is_err(), "nobody misses `{mnemonic}` number {number}");
            }
        }
    }
    assert_eq!(spared.len(), SPARED.len(), "a step that is spared is not there");
    // They change nothing, all together, in any interleaving: else a list by numbers would hide what has moved.
    let rest = replaced(&whole, spared, "");
    for seed in [None, Some(1), Some(2)] {
        case.run(&rest, seed)
            .unwrap_or_else(|wrong| panic!("what is spared is needed, seed {seed:?}: {wrong}"));
    }
    let fences = ["fence.mbarrier_init", "fence.proxy.async"]
        .iter()
        .flat_map(|fence| places(&whole, fence))
        .collect();
    assert!(
        case.run(&replaced(&whole, fences, ""), None).is_err(),
        "nobody misses both fences of the mbarriers"
    );
}
