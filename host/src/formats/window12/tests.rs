use super::*;
use crate::Error;
use kernels_gpu::formats::window12::place_in_window12;
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS};
use proptest::prelude::*;

pub(super) fn shape(n: usize, k: usize) -> Shape {
    Shape::new(n, k).unwrap()
}

pub(super) fn bits(weights: &[bf16]) -> Vec<u16> {
    weights.iter().map(|w| w.to_bits()).collect()
}

/// Weights made of bit patterns, by a rule.
pub(super) fn weights(shape: Shape, rule: impl Fn(usize) -> u16) -> Vec<bf16> {
    (0..shape.n() * shape.k()).map(|i| bf16::from_bits(rule(i))).collect()
}

/// Scrambles a number.
fn scramble(i: usize) -> u64 {
    let mut v = (i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    v = (v ^ v >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    v = (v ^ v >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ v >> 31
}

/// Sums of twelve uniform values: near enough to a normal distribution.
pub(super) fn normal(i: usize) -> u16 {
    let sum: f32 = (0..12)
        .map(|j| (scramble(12 * i + j) >> 40) as f32 / (1u32 << 24) as f32)
        .sum();
    bf16::from_f32((sum - 6.0) * 0.02).to_bits()
}

/// The weights as the specification reads them, one by one.
pub(super) fn specified(packed: &Packed<'_>) -> Vec<u16> {
    let (n, k) = (packed.shape().n(), packed.shape().k());
    let groups = units(n, k).1;
    let mut weights = Vec::new();
    for row in 0..n {
        let of_row = &packed.exceptions()[packed.starts()[row / 16] as usize..packed.starts()[row / 16 + 1] as usize];
        for column in 0..k {
            let at = place_in_window12(row % UNIT_ROWS, column % UNIT_K);
            let unit = (row / UNIT_ROWS * groups + column / UNIT_K) * WINDOW12_UNIT_BYTES;
            let unit = &packed.units()[unit..unit + WINDOW12_UNIT_BYTES];
            let code = u32::from_le_bytes(unit[at.code..at.code + 4].try_into().unwrap());
            let high = packed.palette()[(code >> at.index & 7) as usize] | ((code >> at.sign & 1) << 7) as u8;
            let stored = u16::from_le_bytes([unit[at.low], high]);
            let exception = of_row.iter().find(|e| (e.row(), e.column()) == (row % 16, column));
            weights.push(exception.map_or(stored, |e| {
                assert_eq!(stored, 0, "the place of an exception holds +0");
                e.value().to_bits()
            }));
        }
    }
    weights
}

/// Packs, checks the packed form against the specification and its own rules, and unpacks.
fn round_trip(weights: &[bf16], shape: Shape) -> Packed<'static> {
    let packed = pack(weights, shape).unwrap();
    check(&packed, weights);
    let estimate = Histogram::of(weights).estimate(shape).unwrap();
    assert_eq!(estimate.palette(), packed.palette());
    assert_eq!(estimate.exceptions() as usize, packed.exceptions().len());
    assert_eq!(estimate.bytes() as usize, packed.bytes());
    assert_eq!(estimate.bits_per_weight(), packed.bits_per_weight());
    packed
}

fn check(packed: &Packed<'_>, weights: &[bf16]) {
    assert_eq!(packed.validate(), Ok(()));
    assert_eq!(specified(packed), bits(weights));
    assert_eq!(bits(&unpack(packed).unwrap()), bits(weights));
    assert_eq!(Histogram::of_packed(packed), Histogram::of(weights));
}

#[test]
fn every_bit_pattern_comes_back() {
    for (n, k) in [(256, 256), (1, 65_536), (65_536, 1), (65, 1009)] {
        round_trip(&weights(shape(n, k), |i| i as u16), shape(n, k));
    }
}

#[test]
fn uniform_matrices_have_no_exceptions() {
    for pattern in [0, 0x8000, 0x0001, 0x7fc0, 0xffff, 0x7f80, 0xff80, 0x3f80, 0x8042] {
        let shape = shape(33, 129);
        assert!(
            round_trip(&weights(shape, |_| pattern), shape).exceptions().is_empty(),
            "{pattern:#x}"
        );
    }
    // All NaNs, of every payload.
    let shape = shape(32, 64);
    let nans = weights(shape, |i| 0x7f81 | (i as u16 & 0x7f) | (i as u16) << 15);
    assert!(round_trip(&nans, shape).exceptions().is_empty());
}

#[test]
fn odd_shapes_come_back() {
    for (n, k) in [
        (1, 1),
        (1, 64),
        (16, 1),
        (1, 1000),
        (1000, 1),
        (17, 65),
        (15, 63),
        (16, 64),
        (33, 200),
        (5, 4099),
    ] {
        round_trip(&weights(shape(n, k), |i| scramble(i) as u16), shape(n, k));
        round_trip(&weights(shape(n, k), normal), shape(n, k));
    }
}

#[test]
fn any_share_of_exceptions_comes_back() {
    const COMMON: u16 = 0x3c00;
    let palette = [0, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f, 0x40];
    let shape = shape(50, 333);
    for (share, percent) in [(0, 0), (1, 10), (50, 50), (100, 100)] {
        let rule = |i: usize| match scramble(i) % 100 < percent {
            true => 0x4200 | scramble(i) as u16 & 0x80ff,
            false => COMMON | scramble(i) as u16 & 0x80ff,
        };
        let weights = weights(shape, rule);
        let packed = pack_with(&weights, shape, palette).unwrap();
        check(&packed, &weights);
        let found = packed.exceptions().len() * 100 / weights.len();
        assert!(found >= share && (share > 0) == (found > 0), "{found} %");
    }
}

#[test]
fn a_palette_is_the_most_frequent_high_bytes() {
    // Seven high bytes more often than others; 0 is always there, and lower ones win where none is more frequent.
    let frequent = [0x7f, 0x03, 0x40, 0x3f, 0x3e, 0x11, 0x7e];
    let weights: Vec<bf16> = frequent
        .iter()
        .flat_map(|&high| [high, high, high + 1])
        .map(|high| bf16::from_bits(high << 8 | 0x8055))
        .collect();
    let histogram = Histogram::of(&weights);
    assert_eq!(histogram.palette(), [0, 0x03, 0x11, 0x3e, 0x3f, 0x40, 0x7e, 0x7f]);
    assert_eq!(Histogram::of(&[bf16::NAN]).palette(), [0, 1, 2, 3, 4, 5, 6, 0x7f]);
    assert_eq!(Histogram::of(&[]).palette(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(Histogram::of(&[bf16::ONE]).counts()[127], 1);
    for bad in [
        [1, 2, 3, 4, 5, 6, 7, 8],
        [0, 1, 1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 4, 5, 6, 0x80],
    ] {
        assert!(pack_with(&[bf16::ONE], shape(1, 1), bad).is_err());
    }
}

#[test]
fn normal_weights_take_at_most_12_06_bits() {
    let shape = shape(128, 4096);
    let packed = round_trip(&weights(shape, normal), shape);
    assert!(packed.bits_per_weight() <= 12.06, "{}", packed.bits_per_weight());
    assert!(!packed.exceptions().is_empty(), "a normal distribution has some");
}

#[test]
fn a_real_layer_comes_back() {
    let folder = std::env::var("HOPPER_PROJ_TEST_DATA");
    let folder = folder.ok().filter(|folder| !folder.is_empty());
    let folder = folder.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data").to_owned());
    let path = format!("{folder}/minilm-l6-v2-slice.safetensors");
    let file = crate::io::checkpoint::Checkpoint::open(path).unwrap();
    let matrix = file.matrix(None).unwrap();
    let weights = matrix.to_bf16(Some(crate::io::checkpoint::Cast::Bf16)).unwrap();
    let packed = round_trip(&weights, matrix.shape().unwrap());
    assert!(packed.bits_per_weight() <= 12.06, "{}", packed.bits_per_weight());
    assert_eq!(Histogram::of(&weights).estimate(packed.shape()).unwrap().pays(), Ok(()));
}

#[test]
fn auto_packs_what_gets_smaller() {
    let verdict = |weights: Vec<bf16>, shape: Shape| Histogram::of(&weights).estimate(shape).unwrap().pays();
    let square = shape(256, 256);
    assert_eq!(verdict(weights(square, normal), square), Ok(()));
    assert_eq!(
        verdict(weights(square, |_| 0), square),
        Ok(()),
        "zeros take a palette entry"
    );
    // Any exponent.
    let any = verdict(weights(square, |i| scramble(i) as u16), square);
    assert!(matches!(any, Err(Leave::Exceptions { .. })), "{any:?}");
    let said = any.unwrap_err().to_string();
    assert!(said.contains("65536 weights") && said.contains("1 in 1000"), "{said}");
    // Padding from 1 row to 16.
    let narrow = verdict(weights(shape(1, 256), |_| 0), shape(1, 256));
    assert!(
        matches!(narrow, Err(Leave::Bits { bits }) if bits > 190.0),
        "{narrow:?}"
    );
    assert!(narrow.unwrap_err().to_string().contains("bits per weight"));
}

#[test]
fn an_exception_is_what_kernels_read() {
    let ours = Exception::new(bf16::from_bits(0xabcd), 7, 0x1234_5678);
    let theirs = kernels_gpu::formats::window12::Exception {
        value: 0xabcd,
        row: 7,
        column: 0x1234_5678,
    };
    assert_eq!(size_of_val(&ours), size_of_val(&theirs));
    let [a, b] = theirs.value.to_le_bytes();
    let [c, d] = theirs.row.to_le_bytes();
    let [e, f, g, h] = theirs.column.to_le_bytes();
    assert_eq!(bytemuck::bytes_of(&ours), [a, b, c, d, e, f, g, h]);
    assert_eq!(std::mem::offset_of!(kernels_gpu::formats::window12::Exception, row), 2);
    assert_eq!(
        std::mem::offset_of!(kernels_gpu::formats::window12::Exception, column),
        4
    );
    assert_eq!(
        (ours.value().to_bits(), ours.row(), ours.column()),
        (0xabcd, 7, 0x1234_5678)
    );
    let packed = pack(&[bf16::ONE], shape(1, 1)).unwrap();
    assert_eq!(bytemuck::cast::<_, [u8; 8]>(packed.palette_words()), packed.palette());
}

#[test]
fn wrong_lengths_are_refused() {
    assert!(matches!(pack(&[bf16::ONE; 14], shape(3, 5)), Err(Error::Length { .. })));
    let vast = shape(u32::MAX as usize, u32::MAX as usize);
    assert!(matches!(pack(&[bf16::ONE; 14], vast), Err(Error::TooLarge { .. })));
    assert!(Histogram::of(&[]).estimate(vast).is_err());
}

/// Weights of which one in eight is an exception, or so.
pub(super) fn with_exceptions(shape: Shape) -> Vec<bf16> {
    weights(shape, |i| {
        if scramble(i).is_multiple_of(8) {
            scramble(i + 1) as u16
        } else {
            normal(i)
        }
    })
}

#[test]
fn slices_are_cut_at_units_only() {
    let packed = pack(&with_exceptions(shape(40, 200)), shape(40, 200)).unwrap();
    let refused = |rows, columns| match packed.slice(rows, columns) {
        Err(Error::SliceAlignment { what, to, .. }) => (what, to),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Some(8..32), None), ("rows", 16));
    assert_eq!(refused(Some(16..39), None), ("rows", 16));
    assert_eq!(refused(None, Some(32..64)), ("columns", 64));
    assert_eq!(refused(None, Some(64..199)), ("columns", 64));
    let backwards = std::ops::Range { start: 32, end: 16 };
    for rows in [16..16, 16..41, backwards, 48..64] {
        assert!(matches!(packed.slice(Some(rows), None), Err(Error::Slice { .. })));
    }
    assert_eq!(packed.slice(None, None).unwrap(), packed);
    assert_eq!(packed.slice(Some(0..40), Some(0..200)).unwrap(), packed);
}

fn slice_of(weights: &[bf16], k: usize, rows: &std::ops::Range<usize>, columns: &std::ops::Range<usize>) -> Vec<bf16> {
    rows.clone()
        .flat_map(|row| weights[row * k..][columns.clone()].to_vec())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn packing_and_unpacking_are_inverse(n in 1usize..80, k in 1usize..300, seed in any::<usize>(), percent in 0u64..=100) {
        let shape = shape(n, k);
        let rule = |i: usize| {
            let random = scramble(i.wrapping_add(seed));
            if random >> 32 & 0x7f < percent { random as u16 } else { normal(i) }
        };
        round_trip(&weights(shape, rule), shape);
    }

    #[test]
    fn slices_equal_slices_of_the_unpacked(n in 1usize..100, k in 1usize..400, cuts in any::<[prop::sample::Index; 4]>()) {
        let whole = shape(n, k);
        let weights = with_exceptions(whole);
        let packed = pack(&weights, whole).unwrap();
        let range = |len: usize, to: usize, a: &prop::sample::Index, b: &prop::sample::Index| {
            let bounds: Vec<usize> = (0..len).step_by(to).chain([len]).collect();
            let first = a.index(bounds.len() - 1);
            let last = first + 1 + b.index(bounds.len() - 1 - first);
            bounds[first]..bounds[last]
        };
        let (rows, columns) = (range(n, 16, &cuts[0], &cuts[1]), range(k, 64, &cuts[2], &cuts[3]));
        let slice = packed.slice(Some(rows.clone()), Some(columns.clone())).unwrap();
        prop_assert_eq!(slice.shape(), shape(rows.len(), columns.len()));
        check(&slice, &slice_of(&weights, k, &rows, &columns));
        // A slice of a slice, as of rows in one process and columns in another.
        let rows_only = packed.slice(Some(rows), None).unwrap();
        prop_assert_eq!(rows_only.slice(None, Some(columns)).unwrap(), slice);
    }
}
