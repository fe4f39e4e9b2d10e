//! Matrix products for many tokens: every compiled instance, in every division of the work, over ragged shapes.

use hopper_cuda_driver::{Choice, emulated, select};
use hopper_proj::instances::{GEMM, Gemm, Loads, PLAIN_GEMM, Purpose, gemms};
use hopper_proj::{bf16, reference};
use hopper_proj_tests::driver::OwnContext;
use hopper_proj_tests::product::{Division, Operands, Product};
use hopper_proj_tests::{Values, shape, shipped};

/// The relative error that FP32 results stay below.
const FP32_GOAL: f64 = 5e-6;

fn operands(values: &mut Values, instance: &Gemm, [m, n, k]: [usize; 3]) -> Operands {
    let terms = (0..instance.terms).map(|_| values.bf16(n * k)).collect();
    let factors = (instance.terms > 1).then(|| (0..n).map(|row| 2f32.powi(row as i32 % 7 - 3)).collect());
    Operands {
        m,
        n,
        k,
        x: values.bf16(m * k),
        terms,
        factors,
    }
}

fn exact(operands: &Operands) -> Vec<f64> {
    let Operands { m, n, k, .. } = *operands;
    let mut sums = vec![0.0; m * n];
    for term in &operands.terms {
        let part = reference::project(&operands.x, term, shape(n, k), m).unwrap();
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    if let Some(factors) = &operands.factors {
        for row in sums.chunks_mut(n) {
            row.iter_mut().zip(factors).for_each(|(sum, &factor)| *sum *= f64::from(factor));
        }
    }
    sums
}

fn tolerance(division: Division) -> f64 {
    if division.fp32 { FP32_GOAL } else { reference::TOLERANCE }
}

/// Holds the results of a call against FP64, and the workspace against what the next call expects.
fn check(product: &Product<'_>, exact: &[f64], division: Division) -> Vec<f32> {
    let y = product.y().unwrap();
    let error = reference::relative_error_fp32(&y, exact);
    assert!(error <= tolerance(division), "{product:?}: relative error {error:e}");
    assert!(product.workspace_is_clean().unwrap(), "{product:?} left its workspace changed");
    y
}

fn divisions(fp32: bool) -> impl Iterator<Item = Division> {
    let whole = [1, 2, 4, 8].map(|cluster| (cluster, 1, false));
    let sliced = [1, 2, 4, 8].into_iter().flat_map(|cluster| {
        (2..=4).flat_map(move |slices| [false, true].map(|serial| (cluster, slices, serial)))
    });
    whole.into_iter().chain(sliced).map(move |(cluster, slices, serial)| Division {
        cluster,
        slices,
        serial,
        fp32,
        ..Division::NONE
    })
}

fn emulated_device() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
}

#[test]
fn every_instance_in_every_division() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in gemms() {
        let ptx = shipped(&[instance.name]);
        for fp32 in [true, false] {
            let (m, n, k) = (33 + values.below(110), 1 + values.below(150), 1 + values.below(500));
            let operands = operands(&mut values, instance, [m, n, k]);
            let exact = exact(&operands);
            for division in divisions(fp32) {
                let _context = OwnContext::new();
                let product = Product::new(&ptx, instance, &operands, division);
                for _ in 0..2 {
                    product.call().unwrap();
                    check(&product, &exact, division);
                }
            }
        }
    }
}
