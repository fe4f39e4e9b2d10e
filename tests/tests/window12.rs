//! 12-bit weights give what BF16 weights give, to the order of the sums, however many of them the palette lacks.

use approx::abs_diff_eq;
use hopper_proj::formats::window12;
use hopper_proj::instances::Format;
use hopper_proj::{DriverInUse, Projection, Shape, bf16};
use hopper_proj_tests::exceptions::weights;
use hopper_proj_tests::{Device, Values, any_tokens, shape, there};

/// Shares of the weights that the palette lacks.
const RATES: [f64; 5] = [0.0, 1e-4, 1e-2, 0.5, 1.0];
const SEEDS: u64 = 20;
/// How far two orders of FP32 sums may lead apart, relative to the result's norm.
const TOLERANCE: f64 = 1e-6;

/// `[m, N]` before any rounding to BF16; every value is written.
fn fp32(device: &Device, projection: &Projection, x: &[bf16], m: usize) -> Vec<f32> {
    let engine = &device.engine;
    let x = engine.upload(x).unwrap();
    let mut y = there(&vec![f32::NAN; m * projection.shape().n()]);
    engine.project_fp32(projection, &x, m, &mut y, &device.stream).unwrap();
    engine.download(&y, &device.stream).unwrap()
}

fn apart(a: &[f32], b: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let norm: f64 = b.iter().map(|&b| square(f64::from(b))).sum();
    let difference: f64 = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
        .sum();
    (difference / norm).sqrt()
}

#[test]
fn packed_weights_equal_plain_ones_to_the_order_of_sums() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let emulated = device.engine.device().driver == DriverInUse::Emulated;
    for rate in RATES {
        // Exceptions cost the emulator a hundred times what other weights do.
        let shape = if rate < 0.1 { shape(70, 328) } else { shape(20, 136) };
        let w = weights(&mut values, shape.n() * shape.k(), rate);
        let packed = window12::pack(&w, shape).unwrap();
        let found = packed.exceptions().len() as f64 / w.len() as f64;
        let expected = if rate == 1.0 { 0.72 } else { rate };
        assert!(
            abs_diff_eq!(found, expected, epsilon = 0.02 + 0.05 * rate),
            "{rate}: {found} of the weights are exceptions"
        );
        let plain = device.prepare(Format::Bf16, &w, shape);
        let packed = device.engine.prepare(packed.clone(), &any_tokens()).unwrap();
        for m in 1..=33 {
            let x = values.bf16(m * shape.k());
            hopper_cuda_driver::emulated::set_seed(None);
            let right = fp32(&device, &plain, &x, m);
            let first = fp32(&device, &packed, &x, m);
            let error = apart(&first, &right);
            assert!(error <= TOLERANCE, "rate {rate}, m = {m}: {error:e} apart");
            // A GPU has no seeds: a few repetitions must do.
            let repetitions = if emulated { SEEDS } else { 3 };
            for seed in 0..repetitions {
                hopper_cuda_driver::emulated::set_seed(Some(seed));
                let again = fp32(&device, &packed, &x, m);
                let same = first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "rate {rate}, m = {m}, seed {seed}");
            }
        }
    }
}

/// Every weight an exception: a palette that lacks all of them.
#[test]
fn a_matrix_of_exceptions_alone_is_right() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let shape = shape(37, 136);
    let w = weights(&mut values, shape.n() * shape.k(), 0.0);
    let packed = window12::pack_with(&w, shape, [0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(packed.exceptions().len(), w.len());
    let packed = device.engine.prepare(packed.clone(), &any_tokens()).unwrap();
    let plain = device.prepare(Format::Bf16, &w, shape);
    for m in [1, 9, 32, 33] {
        let x = values.bf16(m * shape.k());
        let error = apart(&fp32(&device, &packed, &x, m), &fp32(&device, &plain, &x, m));
        assert!(error <= TOLERANCE, "m = {m}: {error:e} apart");
    }
}

/// Slices of a packed matrix project like slices of the plain one.
#[test]
fn a_slice_of_a_packed_matrix_projects_without_being_decoded() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let whole: Shape = shape(80, 320);
    let w = weights(&mut values, whole.n() * whole.k(), 0.05);
    let packed = window12::pack(&w, whole).unwrap();
    let (rows, columns, m) = (16..64, 64..256, 5);
    let slice = packed.slice(Some(rows.clone()), Some(columns.clone())).unwrap();
    let cut: Vec<bf16> = (w.chunks(whole.k()).skip(rows.start).take(rows.len()))
        .flat_map(|row| &row[columns.clone()])
        .copied()
        .collect();
    let x = values.bf16(m * columns.len());
    let packed = device.engine.prepare(slice.clone(), &any_tokens()).unwrap();
    let plain = device.prepare(Format::Bf16, &cut, shape(rows.len(), columns.len()));
    let error = apart(&fp32(&device, &packed, &x, m), &fp32(&device, &plain, &x, m));
    assert!(error <= TOLERANCE, "{error:e} apart");
}
