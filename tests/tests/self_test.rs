//! Kernels that a driver's compiler has got wrong: they are found when they are loaded, and not used.

use hopper_proj::instances::formats::window12::WINDOW12_PACKED_GEMM;
use hopper_proj::instances::{Family, Format, Gemm, packed_gemms};
use hopper_proj::plan::{Division, Kernel};
use hopper_proj::raw::SelfTestSize;
use hopper_proj::{Counters, DriverChoice, Engine, EngineOptions, Projection, Shape, bf16, raw};
use hopper_proj_tests::exceptions::weights;
use hopper_proj_tests::{Values, any_tokens, bits, check, shape};
use std::sync::{Mutex, PoisonError};

/// Held by a test while it runs: the device's counters are of all of them.
static TURN: Mutex<()> = Mutex::new(());

/// The shipped PTX of a family, in which kernels take two registers of weights for each other.
fn sabotaged(family: Family, kernels: &[&Gemm]) -> &'static str {
    let mut ptx = raw::ptx(family).to_owned();
    for kernel in kernels {
        let entry = ptx.find(&format!(".entry {}(", kernel.name)).expect("a shipped kernel");
        let product = entry + ptx[entry..].find("wgmma.mma_async").expect("a matrix product");
        // The second braces hold the fragment of weights.
        let sums = product + ptx[product..].find('{').expect("sums");
        let fragment = sums + 1 + ptx[sums + 1..].find('{').expect("a fragment") + 1;
        let end = fragment + ptx[fragment..].find('}').expect("its end");
        let registers: Vec<&str> = ptx[fragment..end].split(',').map(str::trim).collect();
        let [a, b, c, d] = registers[..] else {
            panic!("{registers:?}");
        };
        let changed = format!("{b}, {a}, {c}, {d}");
        ptx.replace_range(fragment..end, &changed);
    }
    String::leak(ptx)
}

fn engine(kernels: &[&Gemm]) -> Engine {
    let ptx = Vec::leak(
        Family::ALL
            .into_iter()
            .filter(|&family| kernels.iter().any(|kernel| kernel.family == family))
            .map(|family| {
                let of_family: Vec<&Gemm> = kernels
                    .iter()
                    .filter(|kernel| kernel.family == family)
                    .copied()
                    .collect();
                (family, sabotaged(family, &of_family))
            })
            .collect(),
    );
    // SAFETY: in the shipped text, two registers change places: every access stays where it was.
    let options = unsafe { EngineOptions::on(DriverChoice::Emulated).with_ptx(ptx) };
    Engine::new(options).expect("kernels that can be loaded")
}

fn miscompiled(engine: &Engine) -> Vec<&'static str> {
    engine.kernels().miscompiled().map(|instance| instance.name).collect()
}

/// The kernel that serves `m` tokens, and its results.
fn project(engine: &Engine, weights: &[bf16], shape: Shape, x: &[bf16], m: usize) -> (&'static str, Vec<bf16>) {
    let packed = hopper_proj::formats::window12::pack(weights, shape).unwrap();
    engine.take_counters().unwrap();
    let projection: Projection = engine.prepare(packed.clone(), &any_tokens()).unwrap();
    assert_eq!(engine.take_counters().unwrap(), Some(Counters::default()));
    assert_eq!(projection.format(), Format::Window12);
    let stream = engine.stream().unwrap();
    let x = engine.upload(x).unwrap();
    let mut y = engine.upload(&vec![bf16::from_bits(u16::MAX); m * shape.n()]).unwrap();
    engine.project(&projection, &x, m, &mut y, &stream).unwrap();
    engine.synchronize(&stream).unwrap();
    let kernel = engine.kernel(&projection, &x, m).unwrap().unwrap();
    (kernel, engine.download(&y, &stream).unwrap())
}

#[test]
fn a_kernel_that_fails_its_self_test_is_not_used_and_results_stay_right() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut values = Values::fresh();
    let (shape, m) = (shape(300, 1000), 100);
    let (w, x) = (weights(&mut values, 300 * 1000, 1e-3), values.bf16(m * 1000));

    let whole = engine(&[]);
    let (best, y) = project(&whole, &w, shape, &x, m);
    assert_eq!(miscompiled(&whole), [""; 0]);
    check(&y, &x, &w, shape, m).unwrap();
    let chosen = packed_gemms()
        .find(|i| i.name == best)
        .expect("a kernel over packed units");

    // What the self-test guards against: the kernel answers, and wrongly.
    let wounded = engine(&[chosen]);
    let (second, y) = project(&wounded, &w, shape, &x, m);
    assert_eq!(miscompiled(&wounded), [best]);
    assert_ne!(second, best);
    assert!(packed_gemms().any(|i| i.name == second));
    check(&y, &x, &w, shape, m).unwrap();

    // With none left, tokens walk over the weights.
    let all: Vec<&Gemm> = WINDOW12_PACKED_GEMM.iter().collect();
    let without = engine(&all);
    let (last, y) = project(&without, &w, shape, &x, m);
    assert_eq!(miscompiled(&without), all.iter().map(|i| i.name).collect::<Vec<_>>());
    assert!(last.starts_with("gemv_window12"), "{last}");
    check(&y, &x, &w, shape, m).unwrap();

    // Engines know their own kernels alone.
    let (again, same) = project(&whole, &w, shape, &x, m);
    assert_eq!(again, best);
    assert_eq!(bits(&same), bits(&project(&whole, &w, shape, &x, m).1));
}

/// What a GPU multiplies, over many tiles and stages, here for a device of few multiprocessors: the sums that are
/// expected are right there too, and one kernel that is wrong is found.
#[test]
fn a_self_test_that_fills_a_device_has_the_right_sums() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let smallest = |format: Format| {
        packed_gemms()
            .filter(|&instance| Kernel::Gemm(Division::whole(instance)).format() == format)
            .min_by_key(|instance| instance.rows() * instance.tokens() * instance.multicast)
            .expect("a kernel over packed units")
    };
    for instance in [Format::Bf16, Format::Window12].map(smallest) {
        let size = SelfTestSize::filling(5, instance);
        assert_ne!(size, SelfTestSize::smallest(instance));
        for (kernels, passes) in [(&[][..], true), (&[instance], false)] {
            let engine = engine(kernels);
            engine.kernels().load(instance.family).unwrap();
            assert_eq!(
                engine.kernels().self_test(instance, size).unwrap(),
                passes,
                "{}",
                instance.name
            );
        }
    }
}
