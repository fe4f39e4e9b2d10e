//! Matrix products as Hopper's tensor cores compute them.
//!
//! Each element of the result is one sum of sixteen products and an addend. The products are exact; products and addend
//! are aligned to the largest exponent among them, cut off 25 bits below it, added exactly, and the sum is cut off to
//! binary32. That is the model that P. Xie, Y. Wang, F. Yang and M. Yang found by experiment ("MMA-Sim: Bit-Accurate
//! Reference Model of Tensor Cores and Matrix Cores", arXiv:2511.10909); it is still to be held against results
//! recorded on hardware.
//!
//! Its fine print: a zero or subnormal factor counts with the smallest normal exponent, so even a product of zero takes
//! part in the choice of the largest exponent; a sum of zero is +0; a sum too large is infinite; every NaN is
//! 0x7fffffff.

use super::lanes::Vectors;

/// Bits kept below the largest exponent.
pub(super) const KEPT_BITS: i32 = 25;
/// The NaN of every NaN result.
const NAN: u32 = 0x7fff_ffff;
const BIAS: i32 = 127;
/// Fraction bits of binary64 that binary32 lacks.
const DROPPED_BITS: u32 = 52 - 23;

/// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32` for a whole warp: per lane the registers of A, B and C, in the
/// order of the PTX ISA's fragments.
pub fn mma_m16n8k16_bf16(a: &[[u32; 4]; 32], b: &[[u32; 2]; 32], c: &[[f32; 4]; 32]) -> [[f32; 4]; 32] {
    let mut columns = [[0u16; 8]; 16];
    for (lane, registers) in b.iter().enumerate() {
        // Each group of four lanes holds a column.
        let (group, pair) = (lane / 4, lane % 4 * 2);
        for (half, &register) in registers.iter().enumerate() {
            columns[pair + 8 * half][group] = register as u16;
            columns[pair + 8 * half + 1][group] = (register >> 16) as u16;
        }
    }
    let mut sums = unpack_sums(|lane, i| c[lane][i]);
    multiply_tile_bf16(&unpack_rows(a), &columns, &mut sums);
    let mut d = [[0.0; 4]; 32];
    pack_sums(&sums, |lane, i, sum| d[lane][i] = sum);
    d
}

/// The rows of A of which each lane holds four registers in the order of the PTX ISA's fragment of `m16n8k16`.
pub fn unpack_rows(a: &[[u32; 4]; 32]) -> [[u16; 16]; 16] {
    let mut rows = [[0u16; 16]; 16];
    for (lane, registers) in a.iter().enumerate() {
        let (group, pair) = (lane / 4, lane % 4 * 2);
        for (i, &register) in registers.iter().enumerate() {
            let (half, side) = (i % 2, i / 2);
            let row = &mut rows[group + 8 * half];
            row[pair + 8 * side] = register as u16;
            row[pair + 8 * side + 1] = (register >> 16) as u16;
        }
    }
    rows
}

/// A tile of C or D from the fragment of `m16n8k16`, given by lane and register.
#[inline]
pub fn unpack_sums(fragment: impl Fn(usize, usize) -> f32) -> [[f32; 8]; 16] {
    let mut sums = [[0f32; 8]; 16];
    for lane in 0..32 {
        for i in 0..4 {
            sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = fragment(lane, i);
        }
    }
    sums
}

/// The opposite of [`unpack_sums`].
#[inline]
pub fn pack_sums(sums: &[[f32; 8]; 16], mut fragment: impl FnMut(usize, usize, f32)) {
    for lane in 0..32 {
        for i in 0..4 {
            fragment(lane, i, sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
        }
    }
}

/// `sums += rows · columns`: A by rows, B as `[k][n]`. Every larger product along k = 16 is made of such tiles.
pub fn multiply_tile_bf16(rows: &[[u16; 16]; 16], columns: &[[u16; 8]; 16], sums: &mut [[f32; 8]; 16]) {
    #[cfg(target_arch = "x86_64")]
    {
        /// The same, compiled for processors with AVX2.
        #[target_feature(enable = "avx2")]
        fn with_avx2(rows: &[[u16; 16]; 16], columns: &[[u16; 8]; 16], sums: &mut [[f32; 8]; 16]) {
            multiply_tile::<super::lanes::Avx2>(rows, columns, sums);
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { with_avx2(rows, columns, sums) }
        } else {
            multiply_tile::<super::lanes::Sse2>(rows, columns, sums);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    multiply_tile::<super::lanes::Portable>(rows, columns, sums);
}

#[inline(always)]
pub(super) fn multiply_tile<V: Vectors>(rows: &[[u16; 16]; 16], columns: &[[u16; 8]; 16], sums: &mut [[f32; 8]; 16]) {
    let column_exponents = columns.map(|k| V::shorts(k.map(exponent)));
    let column_values = columns.map(|k| V::floats(k.map(value)));
    let finite_columns = largest_field(columns.as_flattened()) < EXPONENT_FIELD;
    let row_exponents = rows.map(|row| row.map(exponent));
    let row_values = rows.map(|row| row.map(value));
    for (i, (row, sums)) in rows.iter().zip(sums).enumerate() {
        let upper_halves = sums.map(|sum| (sum.to_bits() >> 16) as u16);
        let mut largest = V::shorts(upper_halves.map(exponent));
        for (&a, &b) in row_exponents[i].iter().zip(&column_exponents) {
            largest = V::max(largest, V::add_shorts(V::splat_short(a), b));
        }
        let largest = V::get_shorts(largest);
        let finite = finite_columns && largest_field(row).max(largest_field(&upper_halves)) < EXPONENT_FIELD;
        let fast = finite && largest.iter().fold(true, |all, &e| all & (e <= FAST_EXPONENTS.1));
        let results = if fast {
            multiply_row::<V>(&row_values[i], &column_values, &largest, sums)
        } else {
            [0.0; 8]
        };
        if fast && largest.iter().fold(true, |all, &e| all & (e >= FAST_EXPONENTS.0)) {
            *sums = results;
        } else {
            *sums = complete_row(row, columns, &largest, sums, (finite, fast), results);
        }
    }
}

/// Those elements of a row that could not be computed the fast way, and the results of the others.
#[cold]
fn complete_row(
    row: &[u16; 16],
    columns: &[[u16; 8]; 16],
    largest: &[i16; 8],
    sums: &[f32; 8],
    (finite, fast): (bool, bool),
    mut results: [f32; 8],
) -> [f32; 8] {
    let zero_row = is_zero(row.iter());
    for (n, result) in results.iter_mut().enumerate() {
        if fast && largest[n] >= FAST_EXPONENTS.0 {
            continue;
        }
        // Rows and columns of zeros, with which tiles are padded, need no thought.
        if !(finite && sums[n] == 0.0 && (zero_row || is_zero(columns.iter().map(|k| &k[n])))) {
            *result = dot_bf16(row, &columns.map(|k| k[n]), sums[n]);
        }
    }
    results
}

fn is_zero<'v>(values: impl Iterator<Item = &'v u16>) -> bool {
    values.fold(0, |any, value| any | value) & 0x7fff == 0
}

/// The smallest and largest exponent with which binary32 arithmetic computes an element exactly: a product below 2^-126
/// is then cut off to zero whether or not binary32 rounded it, and none reaches 2^128.
const FAST_EXPONENTS: (i16, i16) = (-100, 125);
/// All ones in a BF16 exponent: infinite or NaN.
const EXPONENT_FIELD: i16 = 0x7f80;

/// The largest exponent field of BF16 patterns, in place.
fn largest_field(patterns: &[u16]) -> i16 {
    patterns
        .iter()
        .fold(0, |largest, &bits| largest.max(bits as i16 & EXPONENT_FIELD))
}

/// Eight elements of a row: zero where the largest exponent is too small for [`FAST_EXPONENTS`]. No exponent may be too
/// large, and nothing infinite or NaN.
///
/// Scaled so that the last kept bit weighs one, a product is exact in binary32, and cutting it off is a conversion to
/// an integer.
#[inline(always)]
fn multiply_row<V: Vectors>(
    row: &[f32; 16],
    columns: &[V::Floats; 16],
    largest: &[i16; 8],
    sums: &[f32; 8],
) -> [f32; 8] {
    let scales = largest.map(|exponent| {
        // Where it is too small no product reaches 2^-98, and a scale of one makes them all zero.
        let scale = if exponent < FAST_EXPONENTS.0 {
            0
        } else {
            KEPT_BITS - i32::from(exponent)
        };
        f32::from_bits(((scale + BIAS) as u32) << 23)
    });
    let scales = V::floats(scales);
    // A scaled product is below (255/128)² · 2^25 < 2^27, and sixteen of them below 2^31.
    let mut totals = V::splat_int(0);
    for (&a, &b) in row.iter().zip(columns) {
        totals = V::add(totals, V::cut(V::times(V::times(V::splat_float(a), b), scales)));
    }
    let (totals, addends) = (
        V::get_ints(totals),
        V::get_ints(V::cut(V::times(V::floats(*sums), scales))),
    );
    std::array::from_fn(|n| {
        let total = f64::from(totals[n]) + f64::from(addends[n]);
        let exact = total * power_of_two(i32::from(largest[n]) - KEPT_BITS);
        // One kept bit weighs 2^-125 at least, so that nothing is subnormal in binary32.
        f64::from_bits(exact.to_bits() >> DROPPED_BITS << DROPPED_BITS) as f32
    })
}

/// One element of a product: sixteen products and an addend, with infinities and NaNs.
pub fn dot_bf16(a: &[u16; 16], b: &[u16; 16], c: f32) -> f32 {
    // In binary64 finite products cannot overflow, so what is infinite or NaN here is so because an input was.
    let plain = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(value(a)) * f64::from(value(b)))
        .sum::<f64>()
        + f64::from(c);
    if plain.is_nan() {
        return f32::from_bits(NAN);
    }
    if plain.is_infinite() {
        return plain as f32;
    }
    let mut terms = [(0i64, 0i32); 17];
    for (term, (&a, &b)) in terms.iter_mut().zip(a.iter().zip(b)) {
        // Seven fraction bits each.
        let exponent = i32::from(exponent(a)) + i32::from(exponent(b)) - 14;
        *term = (significand(a.into(), 7) * significand(b.into(), 7), exponent);
    }
    terms[16] = (
        significand(c.to_bits(), 23),
        i32::from(exponent((c.to_bits() >> 16) as u16)) - 23,
    );
    let largest = terms[..16]
        .iter()
        .map(|term| term.1 + 14)
        .fold(terms[16].1 + 23, i32::max);
    let total: i64 = terms
        .iter()
        .map(|&(significand, exponent)| cut(significand, exponent - (largest - KEPT_BITS)))
        .sum();
    cut_to_f32(total as f64 * power_of_two(largest - KEPT_BITS))
}

/// `significand · 2^exponent` without its fraction; the exponent is at most 11.
pub(super) fn cut(significand: i64, exponent: i32) -> i64 {
    if exponent >= 0 {
        significand << exponent
    } else {
        significand / (1i64 << (-exponent).min(62))
    }
}

/// The signed significand of a pattern with `fraction` fraction bits and eight exponent bits.
fn significand(bits: u32, fraction: u32) -> i64 {
    let hidden = i64::from(bits >> fraction & 0xff != 0) << fraction;
    let magnitude = i64::from(bits & ((1 << fraction) - 1)) | hidden;
    if bits >> (fraction + 8) & 1 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// The exponent of a BF16 pattern, that of subnormals and zero being the smallest normal one.
#[inline]
fn exponent(bits: u16) -> i16 {
    ((bits >> 7 & 0xff) as i16).max(1) - BIAS as i16
}

#[inline]
fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `2^exponent` for exponents from -1022 to 1023.
#[inline]
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Cut off to binary32; a zero is +0, and what is too large is infinite.
#[inline]
pub(super) fn cut_to_f32(exact: f64) -> f32 {
    if exact.abs() < f64::from(f32::MIN_POSITIVE) {
        let units = (exact * power_of_two(149)) as i32;
        return (f64::from(units) * power_of_two(-149)) as f32;
    }
    f64::from_bits(exact.to_bits() >> DROPPED_BITS << DROPPED_BITS) as f32
}
