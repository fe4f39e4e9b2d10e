//! Matrix products whose CTAs share x: the bits of those that share none, for fewer bytes of x out of L2, and nothing
//! of what orders the CTAs can go.

use hopper_cuda_driver::emulated;
use hopper_proj::instances::{Gemm, Loads, gemms};
use hopper_proj::reference;
use hopper_proj_tests::driver::{Function, OwnContext, emulated_device};
use hopper_proj_tests::product::{Division, Failure, Operands, Product, chain, chain_sizes, clusters};
use hopper_proj_tests::statements::without;
use hopper_proj_tests::{Values, shape, shipped};

fn sharing() -> impl Iterator<Item = &'static Gemm> {
    gemms().filter(|instance| instance.multicast > 1)
}

/// The instance that differs in sharing nothing.
fn alone(instance: &Gemm) -> &'static Gemm {
    let like = |other: &&Gemm| {
        let named = Gemm {
            name: other.name,
            family: other.family,
            index: other.index,
            number: other.number,
            multicast: 1,
            ..*instance
        };
        **other == named
    };
    gemms().find(like).expect("an instance for one CTA")
}

fn operands(values: &mut Values, [m, n, k]: [usize; 3]) -> Operands {
    Operands {
        m,
        n,
        k,
        x: values.bf16(m * k),
        terms: vec![values.bf16(n * k)],
        factors: None,
    }
}

fn bits(product: &Product<'_>) -> Result<Vec<u32>, Failure> {
    product.call()?;
    Ok(product.y()?.into_iter().map(f32::to_bits).collect())
}

/// Odd rows and columns; rows of less than a tile, of incomplete groups of tiles, of several groups; tokens of less
/// than a CTA's part, and of several tiles.
fn sizes(values: &mut Values, instance: &Gemm) -> [[usize; 3]; 4] {
    let (rows, tokens) = (instance.rows(), instance.tokens());
    let k = |values: &mut Values| 2 * values.below(200) + 1;
    [
        [tokens / 2, rows / 2 - 1, k(values)],
        [
            tokens + 1 + values.below(tokens),
            rows + 1 + 2 * values.below(20),
            k(values),
        ],
        [tokens, (instance.multicast + 1) * rows - 1, k(values)],
        [33, 2 * instance.multicast * rows, k(values)],
    ]
}

#[test]
fn shared_tokens_give_the_same_bits() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in sharing() {
        let _context = OwnContext::new();
        let functions = [instance, alone(instance)].map(|instance| (Function::shipped(instance.name), instance));
        for (at, sizes) in sizes(&mut values, instance).into_iter().enumerate() {
            let operands = operands(&mut values, sizes);
            let parts = clusters(instance);
            let division = Division {
                cluster: parts[at % parts.len()],
                slices: [1, 1, 3, 2][at],
                serial: true,
                ..Division::NONE
            };
            let products = functions.map(|(function, instance)| Product::new(function, instance, &operands, division));
            let [shared, own] = &products;
            let y = bits(own).unwrap();
            let exact = reference::project(
                &operands.x,
                &operands.terms[0],
                shape(operands.n, operands.k),
                operands.m,
            );
            let y_fp32: Vec<f32> = y.iter().copied().map(f32::from_bits).collect();
            let error = reference::relative_error_fp32(&y_fp32, &exact.unwrap());
            assert!(error <= reference::LOGITS_GOAL, "{own:?}: {error:e}");
            for seed in [None, Some(1), Some(2)] {
                emulated::set_seed(seed);
                assert_eq!(
                    bits(shared).unwrap(),
                    y,
                    "{}, {sizes:?}, {division:?}, seed {seed:?}",
                    instance.name
                );
                assert!(shared.workspace_is_clean().unwrap());
            }
            emulated::set_seed(None);
        }
    }
}

/// Each group of CTAs reads each of its tokens once, and weights are read as often as without.
#[test]
fn shared_tokens_leave_l2_once_per_group() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in sharing() {
        for tiles in [instance.multicast, instance.multicast + 1] {
            let (m, n, k) = (instance.tokens() + 9, tiles * instance.rows(), 128);
            let operands = operands(&mut values, [m, n, k]);
            let reads = |instance: &'static Gemm| {
                let _context = OwnContext::new();
                let division = Division {
                    cluster: 2,
                    ..Division::NONE
                };
                let product = Product::new(Function::shipped(instance.name), instance, &operands, division);
                let traffic = product.counted().unwrap().traffic;
                let of = |base: u64| traffic.get(&base).map_or(0, |traffic| traffic.read_bytes as usize);
                (of(product.x_memory()), of(product.weight_memory()))
            };
            let (shared, weights) = reads(instance);
            let (own, own_weights) = reads(alone(instance));
            let groups = tiles.div_ceil(instance.multicast);
            assert_eq!(
                (shared, own),
                (groups * m * k * 2, tiles * m * k * 2),
                "{}",
                instance.name
            );
            // Of tiles beyond the last row, packed weights are read as the last row block's.
            let spare = match instance.loads {
                Loads::Packed(format) => {
                    (groups * instance.multicast - tiles) * instance.rows() * k / 1024 * format.unit_bytes()
                }
                Loads::Tma | Loads::Masked => 0,
            };
            assert_eq!(
                weights,
                own_weights + m.div_ceil(instance.tokens()) * spare,
                "{}",
                instance.name
            );
        }
    }
}

/// Statements that order what CTAs that share x do.
const ORDERING: [&str; 7] = [
    "mbarrier.init",
    "mbarrier.arrive.expect_tx",
    "mbarrier.arrive.shared::cluster",
    "mbarrier.try_wait",
    "cp.async.bulk.tensor",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
];

/// What each breaks, and the kernel's text without it.
fn without_each_statement(whole: &str) -> Vec<(String, String)> {
    let each = |mnemonic: &'static str| {
        let count = whole.matches(mnemonic).count();
        assert!(count > 0, "the kernel has no {mnemonic}");
        (0..count).map(move |which| (format!("`{mnemonic}` number {which}"), without(whole, mnemonic, which)))
    };
    ORDERING.into_iter().flat_map(each).collect()
}

/// Whole meetings of the cluster, of which an arrival or a wait alone is missed by the other; and arrivals that release
/// nothing.
fn without_meetings_and_releases(whole: &str) -> Vec<(String, String)> {
    let count = |mnemonic: &str| whole.matches(mnemonic).count();
    assert_eq!((count("barrier.cluster.arrive"), count("barrier.cluster.wait")), (3, 3));
    let meetings = (0..3).map(|meeting| {
        let arrived = without(whole, "barrier.cluster.arrive", meeting);
        (
            format!("meeting {meeting}"),
            without(&arrived, "barrier.cluster.wait", meeting),
        )
    });
    let arrive = "mbarrier.arrive.shared::cluster";
    assert!(whole.contains(arrive));
    let relaxed = whole.replace(arrive, "mbarrier.arrive.relaxed.cluster.shared::cluster");
    let relaxed = ("the arrivals' release".to_owned(), relaxed);
    meetings.chain([relaxed]).collect()
}

#[test]
fn nothing_that_orders_the_sharers_can_go() {
    emulated_device();
    let mut values = Values::fresh();
    for (name, every_statement) in [
        ("gemm_bf16_sm90_w8s6g1n16h2", true),
        ("gemm_window12_sm90_w4s5g1n32h4", false),
    ] {
        let instance = sharing().find(|instance| instance.name == name).expect("an instance");
        let pair = chain_sizes(instance).map(|sizes| operands(&mut values, sizes));
        let whole = shipped(&[name]);
        let right = chain(&whole, instance, &pair, None).unwrap();
        assert_eq!(chain(&whole, instance, &pair, Some(1)).unwrap(), right);
        let mut broken = without_meetings_and_releases(&whole);
        if every_statement {
            broken.extend(without_each_statement(&whole));
        }
        for (at, (step, ptx)) in broken.into_iter().enumerate() {
            // What is wrong is found in any interleaving: as the machine's cores have it, and as a seed does.
            let seed = (at % 2 == 1).then_some(1);
            let Err((code, story)) = chain(&ptx, instance, &pair, seed) else {
                panic!("{name} runs without {step}, and nobody complains (seed {seed:?})");
            };
            assert!(
                story.contains(name),
                "{name} without {step}, seed {seed:?}: {code} {story}"
            );
        }
    }
}
