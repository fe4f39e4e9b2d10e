//! The routers for few tokens by raw launches: logits against FP64, the same bits however a token comes along,
//! workspaces left as they were.

use hopper_cuda_driver::{Choice, emulated, select};
use hopper_proj::RouterConfig;
use hopper_proj::bf16;
use hopper_proj::instances::{Format, Gemv, Score, routes};
use hopper_proj::reference;
use hopper_proj_tests::driver::{Module, OwnContext};
use hopper_proj_tests::route::{Call, RawRouter};
use hopper_proj_tests::{Values, shape, shipped};

const SEEDS: u64 = 20;

const FORMATS: [Format; 3] = [Format::Bf16, Format::Bf16x2, Format::Bf16x3];

/// The relative L2 error that a format's logits may show for FP32 weights.
fn bound(format: Format) -> f64 {
    match format {
        Format::Bf16 => 4e-3,
        Format::Bf16x2 => 5e-6,
        _ => 1e-6,
    }
}

fn emulator() -> OwnContext {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
    emulated::set_seed(None);
    OwnContext::new()
}

fn weights(values: &mut Values, len: usize) -> Vec<f32> {
    let word = |w: u32| (f64::from(w) / f64::from(u32::MAX) * 2.0 - 1.0) as f32;
    values.words(len).into_iter().map(word).collect()
}

/// The L2 error beside what logits of such operands come to: √K products of ordinary size. A single logit may cancel to
/// nothing.
fn relative_error(found: &[f32], x: &[bf16], w: &[f32], (n, k): (usize, usize)) -> f64 {
    let m = x.len() / k;
    let exact = reference::logits(x, w, shape(n, k), m).unwrap();
    let x: Vec<bf16> = x.iter().map(|x| bf16::from_f32(x.to_f32().abs())).collect();
    let w: Vec<f32> = w.iter().map(|w| w.abs()).collect();
    let sizes = reference::logits(&x, &w, shape(n, k), m).unwrap();
    let sum = |squares: &mut dyn Iterator<Item = f64>| squares.map(|v| v * v).sum::<f64>();
    let off = sum(&mut found.iter().zip(&exact).map(|(&f, e)| f64::from(f) - e));
    (off / sum(&mut sizes.iter().map(|size| size / (k as f64).sqrt()))).sqrt()
}

fn check(instance: &'static Gemv, (n, k): (usize, usize), tokens: &[usize], factor: f32, values: &mut Values) {
    let _context = emulator();
    let mut w = weights(values, n * k);
    w.iter_mut().for_each(|w| *w *= factor);
    let most = tokens.iter().copied().max().unwrap_or_default();
    let router = RawRouter::new(instance, &w, (n, k), most);
    for &m in tokens {
        let x = values.bf16(m * k);
        let found = router.run(&x, m, Call::default()).logits;
        let error = relative_error(&found, &x, &w, (n, k));
        println!(
            "{} {n} × {k}, m = {m}, weights × {factor:e}: {error:.2e}",
            instance.name
        );
        // Few results of few terms can all have rounded the same way.
        let allowed = bound(instance.format) * if found.len() < 64 { 4.0 } else { 1.0 };
        assert!(error < allowed, "{}: {n} × {k}, m = {m}: {error:e}", instance.name);
        assert_eq!(found.len(), m * n);
    }
}

#[test]
fn logits_agree_with_fp64_at_the_edges() {
    let mut values = Values::fresh();
    for instance in routes() {
        let columns = if instance.x_values == 8 {
            [8, 136, 1000]
        } else {
            [7, 129, 1001]
        };
        for (n, k) in [1, 15, 40].into_iter().zip(columns) {
            check(
                instance,
                (n, k),
                &[1, instance.tokens(), instance.tokens() + 3],
                1.0,
                &mut values,
            );
        }
    }
}

#[test]
fn logits_keep_their_bits_at_any_scale() {
    let mut values = Values::fresh();
    for format in FORMATS {
        for factor in [2f32.powi(-100), 2f32.powi(100)] {
            check(&format.routes()[0], (20, 512), &[3], factor, &mut values);
        }
    }
}

#[test]
fn logits_agree_with_fp64_for_a_whole_router() {
    let mut values = Values::fresh();
    for format in FORMATS {
        check(&format.routes()[0], (256, 8192), &[1, 8], 1.0, &mut values);
    }
    check(wide(Format::Bf16x2, 4), (256, 8192), &[32], 1.0, &mut values);
}

/// The instance of a format with so many token blocks, for aligned x.
fn wide(format: Format, token_blocks: usize) -> &'static Gemv {
    let name = format!("route_{}_sm90_w8c8s2g1n{token_blocks}r1x8", format.name());
    routes().find(|i| i.name == name).expect("an instance of the table")
}

/// A gate that looks at everything.
fn config(experts: usize, values: &mut Values) -> RouterConfig {
    RouterConfig::new(Score::Sigmoid, 6)
        .bias(weights(values, experts))
        .groups(4, 3)
        .renormalize()
        .scale(2.5)
}

#[test]
fn a_token_has_the_same_bits_alone_and_in_any_company() {
    let mut values = Values::fresh();
    let (n, k, m) = (20, 72, 256);
    let (w, x) = (weights(&mut values, n * k), values.bf16(m * k));
    let config = config(n, &mut values);
    let call = Call {
        config: Some(&config),
        logits: true,
        ..Call::default()
    };
    let tokens = [0, 9, 31, 100, 255];
    for format in FORMATS {
        let mut expected: Option<Vec<_>> = None;
        for instance in format.routes() {
            let _context = emulator();
            let router = RawRouter::new(instance, &w, (n, k), m);
            let all = router.run(&x, m, call);
            let each: Vec<_> = tokens.iter().map(|&token| all.token(token, m)).collect();
            for (&token, each) in tokens.iter().zip(&each) {
                let alone = router.run(&x[token * k..][..k], 1, call);
                assert_eq!(alone.bits(), each.bits(), "{}: token {token} alone", instance.name);
            }
            for seed in [None, Some(1), Some(2)] {
                emulated::set_seed(seed);
                let few = router.run(&x[..32 * k], 32, call);
                for (&token, each) in tokens.iter().zip(&each).filter(|&(&token, _)| token < 32) {
                    assert_eq!(
                        few.token(token, 32).bits(),
                        each.bits(),
                        "{}: token {token} of 32, seed {seed:?}",
                        instance.name
                    );
                }
            }
            for (each, expected) in each.iter().zip(expected.get_or_insert_with(|| each.clone())) {
                assert_eq!(each.bits(), expected.bits(), "{}", instance.name);
            }
        }
    }
}

#[test]
fn calls_on_one_workspace_give_the_first_calls_bits() {
    const CALLS: u64 = 50;
    let mut values = Values::fresh();
    let (n, k, m) = (30, 136, 9);
    let (w, x) = (weights(&mut values, n * k), values.bf16(m * k));
    let config = RouterConfig::new(Score::Softmax, 8);
    let call = Call {
        config: Some(&config),
        logits: true,
        ..Call::default()
    };
    for token_blocks in [1, 2] {
        let _context = emulator();
        let router = RawRouter::new(wide(Format::Bf16x2, token_blocks), &w, (n, k), m);
        let first = router.run(&x, m, call);
        for seed in 0..CALLS {
            emulated::set_seed(Some(seed));
            assert_eq!(router.run(&x, m, call).bits(), first.bits(), "call {seed}");
            // Other numbers of tokens in between leave nothing behind.
            router.run(
                &x[..k],
                1,
                Call {
                    config: Some(&config),
                    ..Call::default()
                },
            );
        }
    }
}

/// The CTA that comes last takes the gate, whichever it is.
#[test]
fn every_instance_agrees_bit_for_bit_under_twenty_seeds() {
    let mut values = Values::fresh();
    let (n, k) = (24, 136);
    for instance in routes() {
        let _context = emulator();
        let (w, m) = (weights(&mut values, n * k), instance.tokens());
        let x = values.bf16(m * k);
        let router = RawRouter::new(instance, &w, (n, k), m);
        let config = config(n, &mut values);
        let call = Call {
            config: Some(&config),
            logits: true,
            ..Call::default()
        };
        let first = router.run(&x, m, call);
        for seed in 0..SEEDS {
            emulated::set_seed(Some(seed));
            let again = router.run(&x, m, call);
            assert_eq!(again.bits(), first.bits(), "{}, seed {seed}", instance.name);
        }
    }
}

#[test]
fn without_the_reset_of_its_counter_a_second_call_finishes_nothing() {
    const RESET: &str = "st.relaxed.gpu.global.b32";
    let mut values = Values::fresh();
    let (n, k, m) = (30, 64, 3);
    let (w, x) = (weights(&mut values, n * k), values.bf16(m * k));
    let config = RouterConfig::new(Score::Sigmoid, 4);
    let call = Call {
        config: Some(&config),
        ..Call::default()
    };
    let instance = wide(Format::Bf16x2, 1);
    let _context = emulator();
    let whole = shipped(&[instance.name]);
    assert_eq!(whole.matches(RESET).count(), 1, "one counter is reset");
    let expected = RawRouter::new(instance, &w, (n, k), m).run(&x, m, call);
    let broken = Module::load(&whole.replace(RESET, "//"));
    let router = RawRouter::with_module(broken, instance, &w, (n, k), m);
    assert_eq!(router.try_run(&x, m, call).unwrap().bits(), expected.bits());
    assert!(!router.counters_are_zero());
    let second = router.try_run(&x, m, call).unwrap();
    assert!(
        second.weights.iter().all(|w| w.is_nan()),
        "weights that nobody was to write"
    );
}

#[test]
fn logits_are_what_the_gate_saw() {
    let mut values = Values::fresh();
    let (n, k, m) = (33, 72, 5);
    let (w, x) = (weights(&mut values, n * k), values.bf16(m * k));
    let config = RouterConfig::new(Score::Sigmoid, 4).bias_on_logits(weights(&mut values, n));
    for instance in routes() {
        let _context = emulator();
        let router = RawRouter::new(instance, &w, (n, k), m);
        let alone = router.run(&x, m, Call::default());
        let mut call = Call {
            config: Some(&config),
            logits: true,
            ..Call::default()
        };
        let with_gate = router.run(&x, m, call);
        assert_eq!(with_gate.token(0, 1).bits().0, alone.bits().0, "{}", instance.name);
        call.logits = false;
        let without_logits = router.run(&x, m, call);
        assert_eq!(
            (&without_logits.ids, &without_logits.weights),
            (&with_gate.ids, &with_gate.weights)
        );
        call.mask = Some(&[1, 0, 255, 0, 1]);
        let masked = router.run(&x, m, call);
        for token in 0..m {
            let (masked, whole) = (masked.token(token, m), without_logits.token(token, m));
            if token % 2 == 1 && token < 4 {
                assert_eq!((masked.ids, masked.weights), (vec![-1; 4], vec![0.0; 4]));
            } else {
                assert_eq!(masked.bits(), whole.bits(), "{}: token {token}", instance.name);
            }
        }
    }
}

/// What a gate costs, as the emulator counts it. A token that is masked out is joined and read like any other, and not
/// scored.
#[test]
fn a_gate_costs_few_instructions() {
    const TOKENS: usize = 8;
    let mut values = Values::fixed(5);
    let (n, k) = (256, 512);
    let (w, x) = (weights(&mut values, n * k), values.bf16(TOKENS * k));
    let config = RouterConfig::new(Score::Sigmoid, 8)
        .bias(weights(&mut values, n))
        .renormalize();
    let _context = emulator();
    let router = RawRouter::new(wide(Format::Bf16x2, 1), &w, (n, k), TOKENS);
    let cost = |config, mask| {
        let call = Call {
            config,
            mask,
            ..Call::default()
        };
        emulated::take_counters();
        router.run(&x, TOKENS, call);
        emulated::take_counters().total_instructions() / TOKENS as u64
    };
    let logits = cost(None, None);
    let joined = cost(Some(&config), Some(&[0; TOKENS]));
    let gated = cost(Some(&config), None);
    println!("instructions of warps per token: {logits} for the logits");
    println!(
        "{} more to join and read them, {} more to score and choose",
        joined - logits,
        gated - joined
    );
    // PTX counts moves that the machine code has no need of.
    assert!(gated - joined < 600, "{} instructions", gated - joined);
}
