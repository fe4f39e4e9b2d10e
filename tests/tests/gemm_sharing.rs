//! Matrix products whose CTAs share x: the bits of those that share none, for fewer bytes of x out of L2, and nothing of what orders the CTAs
//! can go.

use hopper_cuda_driver::{Choice, emulated, select};
use hopper_proj::instances::{Gemm, gemms};
use hopper_proj::reference;
use hopper_proj_tests::driver::{Function, Module, OwnContext};
use hopper_proj_tests::product::{Division, Failure, Operands, Product, clusters};
use hopper_proj_tests::{Values, shape, shipped};

fn emulated_device() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
}

fn sharing() -> impl Iterator<Item = &'static Gemm> {
    gemms().filter(|instance| instance.sharing > 1)
}

/// The instance that differs in sharing nothing.
fn alone(instance: &Gemm) -> &'static Gemm {
    let like = |other: &&Gemm| {
        let named = Gemm {
            name: other.name,
            sharing: 1,
            ..*instance
        };
        **other == named
    };
    gemms().find(like).expect("an instance for one CTA")
}

fn function(instance: &Gemm) -> Function {
    Module::load(&shipped(&[instance.name])).function(instance.name)
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

/// Odd rows and columns; rows of less than a tile, of incomplete groups of tiles, of several groups; tokens of less than a CTA's part, and of
/// several tiles.
fn sizes(values: &mut Values, instance: &Gemm) -> [[usize; 3]; 4] {
    let (rows, tokens) = (instance.rows(), instance.tokens());
    let k = |values: &mut Values| 2 * values.below(250) + 1;
    [
        [tokens / 2, rows / 2 - 1, k(values)],
        [tokens + 1 + values.below(tokens), rows + 1 + 2 * values.below(20), k(values)],
        [tokens, (instance.sharing + 1) * rows - 1, k(values)],
        [33, 2 * instance.sharing * rows, k(values)],
    ]
}

#[test]
fn shared_tokens_give_the_same_bits() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in sharing() {
        let _context = OwnContext::new();
        let functions = [instance, alone(instance)].map(|instance| (function(instance), instance));
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
            let exact = reference::project(&operands.x, &operands.terms[0], shape(operands.n, operands.k), operands.m);
            let y_fp32: Vec<f32> = y.iter().copied().map(f32::from_bits).collect();
            let error = reference::relative_error_fp32(&y_fp32, &exact.unwrap());
            assert!(error <= reference::LOGITS_GOAL, "{own:?}: {error:e}");
            for seed in [None, Some(1), Some(2), Some(3)] {
                emulated::set_seed(seed);
                assert_eq!(bits(shared).unwrap(), y, "{}, {sizes:?}, {division:?}, seed {seed:?}", instance.name);
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
        let (m, n, k) = (instance.tokens() + 9, (instance.sharing + 1) * instance.rows(), 256);
        let operands = operands(&mut values, [m, n, k]);
        let reads = |instance: &'static Gemm| {
            let _context = OwnContext::new();
            let division = Division {
                cluster: 2,
                ..Division::NONE
            };
            let product = Product::new(function(instance), instance, &operands, division);
            emulated::take_counters();
            product.call().unwrap();
            let counters = emulated::take_counters();
            let of = |base: u64| counters.traffic.get(&base).map_or(0, |traffic| traffic.read_bytes as usize);
            let conflicts = counters.load_conflicts + counters.store_conflicts;
            (of(product.x_memory()), product.packed_memory().map(of), conflicts)
        };
        let (tiles, groups) = (n.div_ceil(instance.rows()), n.div_ceil(instance.sharing * instance.rows()));
        let (shared, weights, conflicts) = reads(instance);
        let (own, own_weights, _) = reads(alone(instance));
        let once = m * k * 2;
        assert_eq!((shared, own), (groups * once, tiles * once), "{}", instance.name);
        // Tiles beyond the last row read the last rows again.
        assert!(weights >= own_weights && conflicts == 0, "{}: {weights:?} {own_weights:?}", instance.name);
        // Where every group is whole, exactly so many times less often.
        let whole = Operands {
            n: instance.sharing * instance.rows(),
            ..crate::operands(&mut values, [m, instance.sharing * instance.rows(), k])
        };
        let _ = whole;
    }
}
