//! How often the busiest warp goes through each line of the shipped PTX, in calls that stand for what a kernel does.
//!
//! `cargo xtask sass` reads the output, lines of `entry,case,line,count`. PTX lines are those of the family's file.

use hopper_cuda_driver::emulated;
use hopper_proj::instances::{Family, Format, Gemv, gemms, gemvs, routes};
use hopper_proj::{RouterConfig, Score, bf16, raw};
use hopper_proj_tests::driver::{Module, OwnContext, emulated_device};
use hopper_proj_tests::product::{Division, Operands, Product};
use hopper_proj_tests::route::{Call, RawRouter};
use hopper_proj_tests::{Device, Values, lead, shape};

/// One full tile of tokens, with a chunk of K for each warp.
const TILE: &str = "tile";
/// The same, with eight exceptions for each warp: weights beyond a packed format's palette.
const EXCEPTIONS: &str = "exceptions";
/// Columns of the routers whose gates are counted: enough for the weights to be random.
const GATE_K: usize = 512;

/// Gates for one token: experts, those chosen, groups, and those kept.
const GATES: [(&str, [usize; 4]); 3] = [
    ("gate_256_8_groups", [256, 8, 8, 4]),
    ("gate_256", [256, 8, 1, 1]),
    ("gate_1024", [1024, 32, 1, 1]),
];

/// Prints what the launches since the last call were counted to have done in an entry.
fn print(entry: &str, case: &str) {
    let counters = emulated::take_counters();
    for (line, count) in counters.lines.get(entry).into_iter().flatten() {
        println!("{entry},{case},{line},{count}");
    }
}

/// Columns that give every warp a chunk.
fn columns(instance: &Gemv) -> usize {
    64 * instance.groups * instance.k_slices()
}

/// Weights of which a palette of seven high bytes beside zero holds all but `exceptions`, which lie in random places.
fn weights(values: &mut Values, len: usize, exceptions: usize) -> Vec<bf16> {
    let power = |exponent: usize| bf16::from_bits((exponent as u16) << 7);
    let mut weights: Vec<bf16> = (0..len).map(|i| power(112 + i % 14)).collect();
    let mut left = exceptions;
    while left > 0 {
        let weight = &mut weights[values.below(len)];
        if *weight != power(140) {
            *weight = power(140);
            left -= 1;
        }
    }
    weights
}

fn gemv_tiles(values: &mut Values) {
    let device = Device::emulated();
    emulated::count_lines(true);
    for instance in gemvs() {
        let (n, k, m) = (instance.rows(), columns(instance), instance.tokens());
        for (case, exceptions) in [(TILE, 0), (EXCEPTIONS, 8 * instance.k_slices())] {
            let projection = device.prepare(instance.format, &weights(values, n * k, exceptions), shape(n, k));
            emulated::take_counters();
            device
                .project(Some(instance), &projection, &values.bf16(m * k), lead(instance), m)
                .expect("a projection");
            if case == TILE || instance.format == Format::Window12 {
                print(instance.name, case);
            }
        }
    }
}

fn route_tiles_and_gates(values: &mut Values) {
    for instance in routes() {
        let module = Module::load(raw::ptx(instance.family));
        let mut run = |(experts, k): (usize, usize), m: usize, config: Option<&RouterConfig>, case: &str| {
            let router = RawRouter::with_module(module, instance, &values.fp32(experts * k), (experts, k), m);
            emulated::take_counters();
            let call = Call {
                config,
                ..Call::default()
            };
            router.run(&values.bf16(m * k), m, call);
            print(instance.name, case);
        };
        run((instance.rows(), columns(instance)), instance.tokens(), None, TILE);
        for (case, [experts, top_k, groups, kept]) in GATES {
            let config = RouterConfig::new(Score::Sigmoid, top_k)
                .renormalize()
                .groups(groups, kept);
            run((experts, GATE_K), 1, Some(&config), case);
        }
        module.unload();
    }
}

fn product_tiles(values: &mut Values) {
    for family in Family::ALL {
        let instances: Vec<_> = gemms().filter(|instance| instance.family == family).collect();
        if instances.is_empty() {
            continue;
        }
        let module = Module::load(raw::ptx(family));
        for instance in instances {
            let cluster = 2;
            let (n, k) = (instance.rows() * instance.multicast, 64 * instance.groups * cluster);
            let m = instance.tokens();
            let operands = Operands {
                m,
                n,
                k,
                x: values.bf16(m * k),
                terms: (0..instance.terms).map(|_| values.bf16(n * k)).collect(),
                factors: (instance.terms > 1).then(|| vec![1.0; n]),
            };
            let division = Division {
                cluster,
                ..Division::NONE
            };
            let product = Product::new(module.function(instance.name), instance, &operands, division);
            emulated::take_counters();
            product.call().expect("a product");
            print(instance.name, TILE);
        }
        module.unload();
    }
}

fn main() {
    let mut values = Values::fixed(1);
    gemv_tiles(&mut values);
    emulated_device();
    let _context = OwnContext::new();
    emulated::count_lines(true);
    route_tiles_and_gates(&mut values);
    product_tiles(&mut values);
}
