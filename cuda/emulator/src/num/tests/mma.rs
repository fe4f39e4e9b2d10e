use ::approx::abs_diff_eq;
use half::bf16;
use proptest::prelude::*;

use super::super::lanes::Portable;
#[cfg(target_arch = "x86_64")]
use super::super::lanes::Sse2;
use super::super::mma::multiply_tile;
use super::super::*;

/// Element i of a lane's fragment, as the ISA numbers them: row and column in the matrix.
fn place_a(lane: usize, i: usize) -> (usize, usize) {
    let row = if matches!(i, 0 | 1 | 4 | 5) {
        lane / 4
    } else {
        lane / 4 + 8
    };
    (row, lane % 4 * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
}

fn place_b(lane: usize, i: usize) -> (usize, usize) {
    (lane % 4 * 2 + (i & 1) + if i >= 2 { 8 } else { 0 }, lane / 4)
}

fn place_c(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + if i >= 2 { 8 } else { 0 }, lane % 4 * 2 + (i & 1))
}

fn small(row: usize, column: usize, salt: usize) -> f32 {
    ((row * 7 + column * 13 + row * column * salt) % 41) as f32 - 20.0
}

#[test]
fn fragments_lie_as_the_isa_says() {
    let pack = |low: f32, high: f32| {
        u32::from(bf16::from_f32(high).to_bits()) << 16 | u32::from(bf16::from_f32(low).to_bits())
    };
    let a = |lane, i| {
        let (row, k) = place_a(lane, i);
        small(row, k, 3)
    };
    let b = |lane, i| {
        let (k, column) = place_b(lane, i);
        small(k, column, 5)
    };
    let c = |lane, i| {
        let (row, column) = place_c(lane, i);
        small(row, column, 11)
    };
    let a: [[u32; 4]; 32] =
        std::array::from_fn(|lane| std::array::from_fn(|r| pack(a(lane, 2 * r), a(lane, 2 * r + 1))));
    let b: [[u32; 2]; 32] =
        std::array::from_fn(|lane| std::array::from_fn(|r| pack(b(lane, 2 * r), b(lane, 2 * r + 1))));
    let c: [[f32; 4]; 32] = std::array::from_fn(|lane| std::array::from_fn(|i| c(lane, i)));
    let d = mma_m16n8k16_bf16(&a, &b, &c);
    for (lane, values) in d.iter().enumerate() {
        for (i, &value) in values.iter().enumerate() {
            let (row, column) = place_c(lane, i);
            let expected =
                small(row, column, 11) + (0..16).map(|k| small(row, k, 3) * small(k, column, 5)).sum::<f32>();
            assert_eq!(value, expected, "lane {lane}, element {i}");
        }
    }
}

/// One element from a list of products `(a, b)`, the rest zero.
fn dot(products: &[(f32, f32)], c: f32) -> f32 {
    let mut a = [0; 16];
    let mut b = [0; 16];
    for (i, &(x, y)) in products.iter().enumerate() {
        (a[i], b[i]) = (bf16::from_f32(x).to_bits(), bf16::from_f32(y).to_bits());
    }
    let mut rows = [[0; 16]; 16];
    rows[3] = a;
    let mut columns = [[0; 8]; 16];
    for (column, &b) in columns.iter_mut().zip(&b) {
        column[5] = b;
    }
    let mut sums = [[0.0; 8]; 16];
    sums[3][5] = c;
    multiply_tile_bf16(&rows, &columns, &mut sums);
    assert_eq!(sums[3][5].to_bits(), dot_bf16(&a, &b, c).to_bits());
    sums[3][5]
}

#[test]
fn the_model_cuts_where_it_says() {
    let tiny = |exponent: i32| 2f32.powi(exponent);
    // 25 bits below the largest exponent survive alignment, 23 the conversion to binary32.
    let half_unit = (tiny(-12), tiny(-12));
    assert_eq!(dot(&[half_unit; 2], 1.0), 1.0 + tiny(-23));
    assert_eq!(dot(&[half_unit; 1], 1.0), 1.0);
    assert_eq!(dot(&[(tiny(-12), tiny(-13)); 4], 1.0), 1.0 + tiny(-23));
    assert_eq!(dot(&[(tiny(-13), tiny(-13)); 8], 1.0), 1.0);
    // Cut off toward zero, on both sides.
    assert_eq!(dot(&[(-tiny(-12), tiny(-12))], 1.0), 1.0 - tiny(-24));
    assert_eq!(dot(&[(-tiny(-13), tiny(-13))], 1.0), 1.0);
    assert_eq!(dot(&[(tiny(-12), tiny(-12))], -1.0), -1.0 + tiny(-24));
    // Large products cancel, and have cut off the small ones first.
    let beside = |large: f32| dot(&[(large, 2048.0), (-large, 2048.0), (0.75, 1.0)], 0.5);
    assert_eq!(beside(4096.0), 0.75 + 0.5);
    assert_eq!(beside(8192.0), 0.5 + 0.5);
    assert_eq!(beside(16384.0), 0.0);
    // A zero factor takes part with the smallest exponent, so a huge partner hides small terms.
    assert_eq!(dot(&[(0.0, tiny(127))], tiny(-20)), tiny(-20));
    assert_eq!(dot(&[(0.0, tiny(127))], tiny(-25)), 0.0);
    // Signs of zero, overflow, subnormals.
    assert_eq!(dot(&[], -0.0).to_bits(), 0);
    assert_eq!(dot(&[(1.0, 1.0)], -1.0).to_bits(), 0);
    assert_eq!(dot(&[(tiny(127), 1.0), (tiny(127), 1.0)], 0.0), f32::INFINITY);
    assert_eq!(dot(&[(-tiny(127), tiny(127))], 0.0), f32::NEG_INFINITY);
    assert_eq!(dot(&[(tiny(-100), tiny(-49))], 0.0), f32::from_bits(1));
    assert_eq!(dot(&[(tiny(-100), -tiny(-50))], 0.0).to_bits(), 0);
}

#[test]
fn infinities_and_nans_go_by_ieee_754() {
    let infinity = f32::INFINITY;
    assert_eq!(dot(&[(infinity, 2.0)], 1.0), infinity);
    assert_eq!(dot(&[(infinity, -2.0)], f32::NEG_INFINITY), f32::NEG_INFINITY);
    assert_eq!(dot(&[(1.0, 1.0)], infinity), infinity);
    for nan in [
        dot(&[(infinity, 0.0)], 1.0),
        dot(&[(infinity, 1.0), (infinity, -1.0)], 1.0),
        dot(&[(infinity, 1.0)], f32::NEG_INFINITY),
        dot(&[(f32::NAN, 1.0)], 1.0),
        dot(&[], f32::NAN),
    ] {
        assert_eq!(nan.to_bits(), 0x7fff_ffff);
    }
}

/// BF16 patterns of which tiles are made: of ordinary size, anything finite, zeros, and now and then anything at all.
fn pattern() -> impl Strategy<Value = u16> {
    prop_oneof![
        40 => (0x3c00u16..0x4200, any::<bool>()).prop_map(|(bits, negative)| bits | u16::from(negative) << 15),
        10 => 0u16..0x7f80,
        10 => Just(0),
        1 => any::<u16>(),
    ]
}

fn ordinary() -> impl Strategy<Value = u16> {
    (0x3c00u16..0x4200, any::<bool>()).prop_map(|(bits, negative)| bits | u16::from(negative) << 15)
}

fn tile(element: impl Strategy<Value = u16> + Clone) -> impl Strategy<Value = (Vec<u16>, Vec<u16>, Vec<u32>)> {
    let addend = (element.clone(), any::<u16>()).prop_map(|(high, low)| u32::from(high) << 16 | u32::from(low));
    (
        prop::collection::vec(element.clone(), 256),
        prop::collection::vec(element, 128),
        prop::collection::vec(prop_oneof![3 => addend, 1 => Just(0)], 128),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The fast way agrees bit for bit with the element-wise one, which works in integers.
    #[test]
    fn fast_tiles_agree_with_exact_elements((a, b, c) in prop_oneof![tile(ordinary().boxed()), tile(pattern().boxed())], zero_columns in 0usize..8) {
        let rows: [[u16; 16]; 16] = std::array::from_fn(|row| std::array::from_fn(|k| a[row * 16 + k]));
        let columns: [[u16; 8]; 16] = std::array::from_fn(|k| std::array::from_fn(|n| if n < zero_columns { 0 } else { b[k * 8 + n] }));
        let before: [[f32; 8]; 16] = std::array::from_fn(|row| std::array::from_fn(|n| f32::from_bits(c[row * 8 + n])));
        let mut sums = before;
        multiply_tile_bf16(&rows, &columns, &mut sums);
        // What the processor at hand is not given.
        let mut plain = before;
        multiply_tile::<Portable>(&rows, &columns, &mut plain);
        prop_assert_eq!(sums.map(|row| row.map(f32::to_bits)), plain.map(|row| row.map(f32::to_bits)));
        #[cfg(target_arch = "x86_64")]
        {
            let mut narrow = before;
            multiply_tile::<Sse2>(&rows, &columns, &mut narrow);
            prop_assert_eq!(sums.map(|row| row.map(f32::to_bits)), narrow.map(|row| row.map(f32::to_bits)));
        }
        for row in 0..16 {
            for n in 0..8 {
                let expected = dot_bf16(&rows[row], &columns.map(|k| k[n]), before[row][n]);
                prop_assert_eq!(sums[row][n].to_bits(), expected.to_bits(), "row {} column {}", row, n);
            }
        }
    }

    /// No element is off by more than what its seventeen cuts and the last one can take.
    #[test]
    fn elements_are_close_to_the_exact_sum((a, b, c) in tile(ordinary().boxed())) {
        let a: [u16; 16] = std::array::from_fn(|k| a[k]);
        let b: [u16; 16] = std::array::from_fn(|k| b[k]);
        let c = f32::from_bits(c[0]);
        let products: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| bf16::from_bits(a).to_f64() * bf16::from_bits(b).to_f64()).collect();
        let exact = products.iter().sum::<f64>() + f64::from(c);
        let largest = products.iter().map(|product| product.abs()).fold(f64::from(c.abs()), f64::max);
        let bound = 17.0 * largest * 2f64.powi(-25) + exact.abs() * 2f64.powi(-23);
        prop_assert!(abs_diff_eq!(f64::from(dot_bf16(&a, &b, c)), exact, epsilon = bound));
    }
}
