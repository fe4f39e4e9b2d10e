use super::*;
use approx::{abs_diff_eq, assert_abs_diff_eq, assert_abs_diff_ne};
use kernels_gpu::layout::place_in_unit;
use proptest::prelude::*;

fn shape(n: usize, k: usize) -> Shape {
    Shape::new(n, k).unwrap()
}

fn split(row: &[f32], terms: usize) -> Split {
    Split::new(row, shape(1, row.len()), terms).unwrap()
}

/// What the terms of weight `at` add up to, in the scale of the row.
fn sum(split: &Split, at: usize) -> f64 {
    let size = split.shape.n() * split.shape.k();
    split.terms[at..].iter().step_by(size).map(|term| term.to_f64()).sum()
}

fn factor(split: &Split, row: usize) -> f64 {
    f64::from(split.factors().map_or(1.0, |factors| factors[row]))
}

/// Holds every finite weight of a row against the promises.
fn check(row: &[f32]) {
    let largest = row.iter().filter(|r| r.is_finite()).fold(0f32, |m, r| m.max(r.abs()));
    for terms in 1..=MAX_TERMS {
        let split = split(row, terms);
        let factor = factor(&split, 0);
        assert!(
            (factor as f32).is_normal() || (factor as f32).is_subnormal(),
            "{factor:e}"
        );
        assert_eq!(factor.log2().fract(), 0.0);
        if (2f32.powi(-60)..2f32.powi(60)).contains(&largest) {
            assert_eq!(factor, 1.0);
        } else if largest > 0.0 {
            let scaled = f64::from(largest) / factor;
            let range = if largest < 1.0 {
                1.0..2.0
            } else {
                2f64.powi(60)..2f64.powi(61)
            };
            assert!(range.contains(&scaled), "{largest:e} comes to {scaled:e}");
        }
        let kept = [0.0, 2f64.powi(-8), 2f64.powi(-17), 0.0][terms];
        for (at, &r) in row.iter().enumerate() {
            if !r.is_finite() {
                let own = &split.terms[at..];
                assert_eq!(own[0].to_f32().is_nan(), r.is_nan());
                assert!(r.is_nan() || own[0].to_f32() == r);
                assert!(own.iter().step_by(row.len()).skip(1).all(|term| term.to_f32() == 0.0));
                continue;
            }
            let (exact, found) = (f64::from(r) / factor, sum(&split, at));
            let allowed = (kept * exact.abs()).max(2f64.powi(-133));
            assert!(
                abs_diff_eq!(found, exact, epsilon = allowed),
                "{r:e} as {terms} terms is {found:e}, not within {allowed:e} of {exact:e}"
            );
            if terms == 3 && exact.abs() >= 2f64.powi(-110) {
                assert_eq!(found, exact, "{r:e}");
            }
        }
    }
}

#[test]
fn rows_of_every_magnitude_keep_their_bits() {
    for exponent in -149..=127 {
        let unit = 2f64.powi(exponent);
        let row: Vec<f32> = [1.0, 1.999_999_9, -1.333_333_4, 1.003_906_25, 0.1, -0.0078, 0.0]
            .iter()
            .map(|v| (v * unit) as f32)
            .filter(|v| v.is_finite())
            .collect();
        check(&row);
        // Of two terms, 2⁻¹⁷ of the weight is more than may be lost, whatever the row's magnitude.
        let two = split(&row, 2);
        for (at, &r) in row.iter().enumerate() {
            let exact = f64::from(r) / factor(&two, 0);
            assert_abs_diff_eq!(sum(&two, at), exact, epsilon = 2f64.powi(-17) * exact.abs());
        }
        // One term loses more.
        let lossy = [(1.003 * unit) as f32];
        check(&lossy);
        let one = split(&lossy, 1);
        if exponent > -140 {
            let exact = 1.003 * unit;
            assert_abs_diff_ne!(f64::from(one.join()[0]), exact, epsilon = 2f64.powi(-17) * exact);
        }
    }
}

#[test]
fn a_row_of_extremes_keeps_what_matters_beside_its_largest() {
    check(&[f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), -1.0, 0.0, -0.0]);
    check(&[1.0, f32::MIN_POSITIVE, f32::from_bits(1), f32::INFINITY, f32::NAN]);
    check(&[
        f32::NEG_INFINITY,
        f32::NAN,
        f32::from_bits(3),
        f32::from_bits(0x8000_0007),
    ]);
    check(&[0.0, -0.0]);
    check(&[f32::NAN, f32::INFINITY]);
    assert_eq!(split(&[f32::MAX], 1).terms[0].to_f32(), 2f32.powi(61));
}

/// Between BF16's neighbours lie 65536 FP32 numbers: the ones next to a tie show the rounding.
#[test]
fn the_first_term_is_the_nearest_value() {
    for low in [0x7fff, 0x8000, 0x8001, 0x8007, 0, 1, 0xffff] {
        for high in [0x3f80u32, 0x3f81, 0xc123, 0x4fff] {
            let r = f32::from_bits(high << 16 | low);
            let up = low > 0x8000 || low == 0x8000 && high % 2 == 1;
            assert_eq!(
                u32::from(split(&[r], 2).terms[0].to_bits()),
                high + u32::from(up),
                "{r:e}"
            );
        }
    }
}

#[test]
fn bf16_weights_are_their_own_term() {
    let weights: Vec<bf16> = (0..6 * 70u32)
        .map(|i| bf16::from_bits((i * 157) as u16 & 0x7eff))
        .collect();
    let split = Split::of_bf16(&weights, shape(6, 70)).unwrap();
    assert_eq!((split.terms(), split.factors()), (1, None));
    assert_eq!(split.units().unwrap(), packing::pack(&weights, shape(6, 70)).unwrap());
}

#[test]
fn units_hold_their_terms_one_after_the_other() {
    let (n, k) = (19, 130);
    let weights: Vec<f32> = (0..n * k).map(|i| 1.0 + i as f32 / 4096.0 + 1e-5).collect();
    let split = Split::new(&weights, shape(n, k), 3).unwrap();
    let (units, rows) = (split.units().unwrap(), split.rows().unwrap());
    assert_eq!((units.len(), rows.len()), (2 * 3 * 3 * UNIT_WEIGHTS, 3 * n * 136));
    for term in 0..3 {
        for row in 0..n {
            for column in 0..136 {
                let in_rows = rows[(term * n + row) * 136 + column];
                if column >= k {
                    assert_eq!(in_rows.to_bits(), 0);
                    continue;
                }
                let unit = (row / 16 * 3 + column / 64) * 3 + term;
                let in_units = units[unit * UNIT_WEIGHTS + place_in_unit(row % 16, column % 64)];
                assert_eq!(
                    (in_rows, in_units),
                    (split.terms[(term * n + row) * k + column], in_rows)
                );
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let two = shape(1, 2);
    for (result, words) in [
        (Split::new(&[1.0], two, 2), "needs exactly 2"),
        (Split::new(&[1.0; 2], two, 0), "1, 2 or 3"),
        (Split::new(&[1.0; 2], two, 4), "1, 2 or 3"),
        (Split::of_bf16(&[bf16::ONE], two), "needs exactly 2"),
        (
            Split::from_units(&[bf16::ONE; 1024], None, two, 2),
            "needs exactly 2048",
        ),
        (Split::from_units(&[], None, two, 4), "1, 2 or 3"),
        (Split::from_rows(&[bf16::ONE; 8], None, two, 2), "needs exactly 16"),
        (Split::from_rows(&[], None, two, 0), "1, 2 or 3"),
        (
            Split::from_rows(&[bf16::ONE; 8], Some(&[1.0; 2]), two, 1),
            "needs exactly 1",
        ),
    ] {
        let err = result.expect_err(words).to_string();
        assert!(err.contains(words), "{err}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_row_of_any_bits(bits in prop::collection::vec(any::<u32>(), 1..40)) {
        check(&bits.into_iter().map(f32::from_bits).collect::<Vec<_>>());
    }

    #[test]
    fn rows_of_one_magnitude(exponent in 0u32..255, mantissas in prop::collection::vec(any::<u32>(), 1..40)) {
        check(&mantissas.into_iter().map(|m| f32::from_bits(m & 0x807f_ffff | exponent << 23)).collect::<Vec<_>>());
    }

    #[test]
    fn three_terms_join_to_the_weights(exponent in 20u32..255, mantissas in prop::collection::vec(any::<u32>(), 6)) {
        let weights: Vec<f32> = mantissas.into_iter().map(|m| f32::from_bits(m & 0x807f_ffff | exponent << 23)).collect();
        prop_assume!(weights.iter().all(|w| w.is_finite()));
        let joined = Split::new(&weights, shape(2, 3), 3).unwrap().join();
        prop_assert!(joined.iter().map(|v| v.to_bits()).eq(weights.iter().map(|v| v.to_bits())));
    }

    #[test]
    fn both_orders_give_the_terms_back(n in 1usize..40, k in 1usize..150, terms in 1usize..=3, scale in -140i32..120, seed in any::<u32>()) {
        let value = |i: usize| f64::from((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed)) * 2f64.powi(scale - 32);
        let weights: Vec<f32> = (0..n * k).map(|i| value(i) as f32).collect();
        let split = Split::new(&weights, shape(n, k), terms).unwrap();
        let (units, rows) = (split.units().unwrap(), split.rows().unwrap());
        prop_assert_eq!(rows.len() % ROW_COLUMNS, 0);
        prop_assert_eq!(&Split::from_units(&units, split.factors(), shape(n, k), terms).unwrap(), &split);
        prop_assert_eq!(&Split::from_rows(&rows, split.factors(), shape(n, k), terms).unwrap(), &split);
    }
}
