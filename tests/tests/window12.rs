//! 12-bit weights give what BF16 weights give, to the order of the sums, however many of them the palette lacks.

use approx::abs_diff_eq;
use hopper_proj::formats::window12;
use hopper_proj::instances::formats::window12::GEMV_WINDOW12;
use hopper_proj::instances::{Format, Gemv};
use hopper_proj::{DriverInUse, Projection, Shape, bf16};
use hopper_proj_tests::exceptions::weights;
use hopper_proj_tests::{Device, Values, any_tokens, bits, lead, shape, there};

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

/// The sums of products with exceptions alone, `[m, N]`: each warp's in their order, then the warps' of a CTA, then the
/// CTAs' of a cluster.
fn sums_of_exceptions(instance: &Gemv, packed: &window12::Packed<'_>, x: &[bf16], m: usize) -> Vec<f32> {
    let (n, k) = (packed.shape().n(), packed.shape().k());
    let workers = instance.k_slices() as u64;
    let mut y = vec![0f32; m * n];
    for first_block in (0..n.div_ceil(16)).step_by(instance.row_blocks) {
        let starts = packed.starts();
        let start = |block: usize| starts[block.min(starts.len() - 1)];
        let (begin, end) = (start(first_block), start(first_block + instance.row_blocks));
        let mut partial = vec![vec![0f32; m * n]; workers as usize];
        for worker in 0..workers {
            let bound = |worker: u64| begin + (end - begin) * worker / workers;
            for at in bound(worker)..bound(worker + 1) {
                let exception = packed.exceptions()[at as usize];
                let block = (first_block..first_block + instance.row_blocks)
                    .rfind(|&block| start(block) <= at)
                    .unwrap();
                let row = 16 * block + exception.row();
                for token in 0..m {
                    let x = x[token * k + exception.column()].to_f32();
                    partial[worker as usize][token * n + row] += exception.value().to_f32() * x;
                }
            }
        }
        let rows = 16 * first_block..(16 * (first_block + instance.row_blocks)).min(n);
        for (token, row) in (0..m).flat_map(|token| rows.clone().map(move |row| (token, row))) {
            let ctas = partial.chunks(instance.warps);
            let of_cta = ctas.map(|warps| warps.iter().fold(0f32, |sum, warp| sum + warp[token * n + row]));
            y[token * n + row] = match instance.cluster {
                1 => of_cta.sum(),
                _ => of_cta.fold(0f32, |sum, cta| sum + cta),
            };
        }
    }
    y
}

/// Small weights are lost beside large ones until these cancel, so that another order gives other bits.
#[test]
fn exceptions_are_added_in_their_order() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    for instance in GEMV_WINDOW12 {
        // So many exceptions for each warp, and up to one more; the last cluster has fewer.
        for each in [0, 1, 7, 8, 9, 31, 32, 33, 70] {
            let n = 2 * instance.rows() - 13;
            // As many columns as leave a quarter of the weights zero at least.
            let k = (2 * (each + 1) * instance.k_slices()).div_ceil(instance.rows()) + 3;
            let k = if instance.x_values == 8 {
                k.next_multiple_of(8)
            } else {
                k
            };
            let m = instance.tokens() - each % 3;
            let mut w = vec![bf16::ZERO; n * k];
            let mut left = each * instance.k_slices() + values.below(instance.k_slices());
            while left > 0 {
                let row = values.below(instance.rows());
                let weight = &mut w[row * k + values.below(k)];
                if *weight == bf16::ZERO {
                    let magnitude = [1.5, 2f32.powi(30)][values.below(2)];
                    *weight = bf16::from_f32([magnitude, -magnitude][values.below(2)]);
                    left -= 1;
                }
            }
            for weight in &mut w[instance.rows() * k..] {
                if values.below(9) == 0 {
                    *weight = bf16::from_f32(2f32.powi(30));
                }
            }
            let x: Vec<bf16> = (0..m * k).map(|_| [bf16::ONE, -bf16::ONE][values.below(2)]).collect();
            // A palette of high bytes that no weight but zero has.
            let packed = window12::pack_with(&w, shape(n, k), [0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
            let expected: Vec<bf16> = sums_of_exceptions(instance, &packed, &x, m)
                .into_iter()
                .map(bf16::from_f32)
                .collect();
            let on_device = device.engine.prepare(packed, &any_tokens()).unwrap();
            let y = device
                .project(Some(instance), &on_device, &x, lead(instance), m)
                .unwrap();
            let name = instance.name;
            assert_eq!(
                bits(&y),
                bits(&expected),
                "{name}: {each} exceptions for each warp, m = {m}"
            );
        }
    }
}
