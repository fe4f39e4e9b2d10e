use std::cmp::Ordering;

use ::approx::{abs_diff_eq, assert_abs_diff_eq};
use half::{bf16, f16};
use proptest::prelude::*;

use super::super::*;
use super::{ROUNDINGS, expected};

/// An exact value as a sum of two doubles, the second below half a unit in the last place of the first.
#[derive(Clone, Copy, Debug)]
struct Exact(f64, f64);

impl Exact {
    fn sum(a: f64, b: f64) -> Exact {
        let sum = a + b;
        let rest = sum - a;
        Exact(sum, (a - (sum - rest)) + (b - rest))
    }

    fn compare(self, other: f64) -> Ordering {
        self.0
            .total_cmp(&other)
            .then(self.1.total_cmp(&0.0))
            .then(Ordering::Equal)
    }
}

/// The binary32 neighbours of a finite exact value.
fn neighbours(exact: impl Fn(f64) -> Ordering, near: f32) -> [f32; 2] {
    match exact(near.into()) {
        Ordering::Equal => [near, near],
        Ordering::Greater => [near, near.next_up()],
        Ordering::Less => [near.next_down(), near],
    }
}

/// Checks a binary32 operation in every rounding. `exact` compares the exact result with a double.
fn check_f32(operation: impl Fn(Mode) -> u64, exact: impl Fn(f64) -> Ordering, near: f32) -> Result<(), TestCaseError> {
    let [down, up] = neighbours(&exact, near);
    prop_assume!(down.is_finite() && up.is_finite() && near != 0.0);
    let middle = (f64::from(down) + f64::from(up)) / 2.0;
    for rounding in ROUNDINGS {
        let result = f32::from_bits(operation(Mode::rounded(rounding)) as u32);
        let wanted = expected(rounding, [down, up], near < 0.0, exact(middle), down.to_bits() & 1 == 1);
        prop_assert_eq!(result, wanted, "{:?}: {:e} {:e}", rounding, result, wanted);
    }
    Ok(())
}

fn bits(value: f32) -> u64 {
    value.to_bits().into()
}

/// Any finite binary32, subnormals often, and often of an exponent near zero so that operands meet.
fn finite() -> impl Strategy<Value = f32> {
    let near_one = (0x3e00_0000u32..0x4200_0000, any::<bool>())
        .prop_map(|(bits, negative)| f32::from_bits(bits | u32::from(negative) << 31));
    let any = any::<u32>()
        .prop_map(f32::from_bits)
        .prop_filter("finite", |value| value.is_finite());
    let few_bits = (-64i32..64, -30i32..30).prop_map(|(value, exponent)| value as f32 * (exponent as f32).exp2());
    let small = (0u32..0x0100_0000).prop_map(f32::from_bits);
    prop_oneof![4 => near_one, 2 => any, 2 => few_bits, 1 => small]
}

/// The same result from exact integer arithmetic: `.satfinite` keeps the host's arithmetic out, and of results
/// changes only infinities.
const EXACT: Mode = Mode {
    finite: true,
    ..Mode::rounded(Rounding::Nearest)
};

fn soft_agrees(format: Format, native: u64, soft: u64) -> Result<(), TestCaseError> {
    let infinite = native & !format.sign_bit() == format.infinity();
    prop_assert_eq!(
        soft,
        if infinite { native - 1 } else { native },
        "{:x} {:x}",
        native,
        soft
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn f32_add_rounds_right(a in finite(), b in finite()) {
        let exact = Exact::sum(a.into(), b.into());
        check_f32(|mode| add(Format::F32, bits(a), bits(b), mode), |x| exact.compare(x), a + b)?;
        check_f32(|mode| sub(Format::F32, bits(a), bits(-b), mode), |x| exact.compare(x), a + b)?;
    }

    #[test]
    fn f32_mul_rounds_right(a in finite(), b in finite()) {
        let exact = f64::from(a) * f64::from(b);
        check_f32(|mode| mul(Format::F32, bits(a), bits(b), mode), |x| exact.total_cmp(&x), a * b)?;
    }

    #[test]
    fn f32_fma_rounds_right(a in finite(), b in finite(), c in finite()) {
        let exact = Exact::sum(f64::from(a) * f64::from(b), c.into());
        check_f32(|mode| fma(Format::F32, bits(a), bits(b), bits(c), mode), |x| exact.compare(x), a.mul_add(b, c))?;
    }

    #[test]
    fn f32_div_rounds_right(a in finite(), b in finite()) {
        prop_assume!(b != 0.0);
        // The quotient against x, as the dividend against x times the divisor, which is exact for x of 25 bits.
        let exact = |x: f64| {
            let order = f64::from(a).partial_cmp(&(x * f64::from(b))).unwrap();
            if b < 0.0 { order.reverse() } else { order }
        };
        check_f32(|mode| div(Format::F32, bits(a), bits(b), mode), exact, a / b)?;
    }

    #[test]
    fn f32_sqrt_rounds_right(a in finite()) {
        let a = a.abs();
        check_f32(|mode| sqrt(Format::F32, bits(a), mode), |x| f64::from(a).total_cmp(&(x * x)), a.sqrt())?;
    }

    #[test]
    fn f64_rounds_right(a in -1e100f64..1e100, b in 1e-90f64..1e90, c in -1e100f64..1e100) {
        let product = a * b;
        let cases: [(Exact, &dyn Fn(Mode) -> u64); 2] = [
            (Exact::sum(a, c), &|mode| add(Format::F64, a.to_bits(), c.to_bits(), mode)),
            (Exact(product, a.mul_add(b, -product)), &|mode| mul(Format::F64, a.to_bits(), b.to_bits(), mode)),
        ];
        for (Exact(near, rest), operation) in cases {
            prop_assume!(near != 0.0 && near.is_finite());
            let down = if rest < 0.0 { near.next_down() } else { near };
            let up = if rest > 0.0 { near.next_up() } else { near };
            let result = |rounding| f64::from_bits(operation(Mode::rounded(rounding)));
            prop_assert_eq!(result(Rounding::Down), down);
            prop_assert_eq!(result(Rounding::Up), up);
            prop_assert_eq!(result(Rounding::Zero), if near < 0.0 { up } else { down });
        }
    }

    /// The exact arithmetic agrees with the host's on every pattern, infinities and NaNs included.
    #[test]
    fn exact_arithmetic_agrees_with_the_hosts(a: u32, b: u32, c: u32, x: u64, y: u64, z: u64, close in -70i64..70) {
        let plain = Mode::default();
        let y_close = x.wrapping_add((close as u64) << 52);
        for (format, [a, b, c]) in [
            (Format::F32, [a.into(), b.into(), c.into()]),
            (Format::F32, [a.into(), (a ^ 0x8000_0000).wrapping_add(close as u32).into(), c.into()]),
            (Format::F64, [x, y, z]),
            (Format::F64, [x, y_close, z]),
        ] {
            soft_agrees(format, add(format, a, b, plain), add(format, a, b, EXACT))?;
            soft_agrees(format, sub(format, a, b, plain), sub(format, a, b, EXACT))?;
            soft_agrees(format, mul(format, a, b, plain), mul(format, a, b, EXACT))?;
            soft_agrees(format, div(format, a, b, plain), div(format, a, b, EXACT))?;
            soft_agrees(format, sqrt(format, a, plain), sqrt(format, a, EXACT))?;
            soft_agrees(format, fma(format, a, b, c, plain), fma(format, a, b, c, EXACT))?;
            let one = format.one();
            soft_agrees(format, fma(format, a, one, b, plain), fma(format, a, one, b, EXACT))?;
        }
    }

    /// Sums and products of 16-bit formats are exact in binary64, which the `half` crate rounds once.
    #[test]
    fn half_formats_round_once(a: u16, b: u16) {
        let (x, y) = (f16::from_bits(a).to_f64(), f16::from_bits(b).to_f64());
        for (exact, result) in [
            (x + y, add(Format::F16, a.into(), b.into(), Mode::default())),
            (x - y, sub(Format::F16, a.into(), b.into(), Mode::default())),
            (x * y, mul(Format::F16, a.into(), b.into(), Mode::default())),
        ] {
            let expected = if exact.is_nan() { 0x7fff } else { f16::from_f64(exact).to_bits() };
            prop_assert_eq!(result as u16, expected, "{:x} {:x}", a, b);
        }
        let (x, y) = (bf16::from_bits(a).to_f64(), bf16::from_bits(b).to_f64());
        let expected = if (x * y).is_nan() { 0x7fff } else { bf16::from_f64(x * y).to_bits() };
        prop_assert_eq!(mul(Format::Bf16, a.into(), b.into(), Mode::default()) as u16, expected);
    }
}

#[test]
fn zeros_and_infinities_have_the_signs_of_ieee_754() {
    let (zero, minus_zero, one) = (bits(0.0), bits(-0.0), bits(1.0));
    let infinity = bits(f32::INFINITY);
    for rounding in ROUNDINGS {
        let mode = Mode::rounded(rounding);
        let cancelled = if rounding == Rounding::Down { minus_zero } else { zero };
        assert_eq!(sub(Format::F32, one, one, mode), cancelled);
        assert_eq!(add(Format::F32, zero, minus_zero, mode), cancelled);
        assert_eq!(add(Format::F32, minus_zero, minus_zero, mode), minus_zero);
        assert_eq!(fma(Format::F32, one, one, bits(-1.0), mode), cancelled);
        assert_eq!(mul(Format::F32, minus_zero, one, mode), minus_zero);
        assert_eq!(mul(Format::F32, minus_zero, bits(-3.0), mode), zero);
        assert_eq!(div(Format::F32, one, minus_zero, mode), bits(f32::NEG_INFINITY));
        assert_eq!(div(Format::F32, bits(-1.0), infinity, mode), minus_zero);
        assert_eq!(sqrt(Format::F32, minus_zero, mode), minus_zero);
        assert_eq!(sub(Format::F32, infinity, infinity, mode), 0x7fff_ffff);
        assert_eq!(mul(Format::F32, infinity, zero, mode), 0x7fff_ffff);
        assert_eq!(sqrt(Format::F32, bits(-1.0), mode), 0x7fff_ffff);
        assert_eq!(rcp(Format::F32, zero, mode), infinity);
        let huge = bits(f32::MAX);
        let overflowed = match rounding {
            Rounding::Zero | Rounding::Down => huge,
            _ => infinity,
        };
        assert_eq!(add(Format::F32, huge, huge, mode), overflowed);
    }
    assert_eq!(div(Format::F64, 0, 0, Mode::default()), 0xfff8_0000_0000_0000);
    let payload = 0x7ff0_0000_0000_0123;
    assert_eq!(
        add(Format::F64, 1f64.to_bits(), payload, Mode::default()),
        payload | 1 << 51
    );
}

#[test]
fn qualifiers_act_on_inputs_and_results() {
    let tiny = bits(f32::from_bits(1));
    let flush = Mode {
        flush: true,
        ..Mode::default()
    };
    let saturate = Mode {
        saturate: true,
        ..Mode::default()
    };
    let relu = Mode {
        relu: true,
        ..Mode::default()
    };
    let one = bits(1.0);
    assert_eq!(add(Format::F32, tiny, 0, flush), 0);
    assert_eq!(mul(Format::F32, tiny | 1 << 31, one, flush), bits(-0.0));
    assert_eq!(mul(Format::F32, bits(f32::MIN_POSITIVE), bits(-0.5), flush), bits(-0.0));
    assert_eq!(div(Format::F32, one, tiny, flush), bits(f32::INFINITY));
    assert_eq!(add(Format::F32, one, one, saturate), one);
    assert_eq!(add(Format::F32, bits(-3.0), one, saturate), 0);
    assert_eq!(add(Format::F32, bits(0.25), bits(0.25), saturate), bits(0.5));
    assert_eq!(add(Format::F32, bits(f32::NAN), one, saturate), 0);
    assert_eq!(fma(Format::F16, 0xbc00, 0x3c00, 0, relu), 0);
    assert_eq!(fma(Format::F16, 0x7e00, 0x3c00, 0, relu), 0x7fff);
    assert_eq!(fma(Format::Bf16, 0x3f80, 0x3f80, 0x3f80, Mode::default()), 0x4000);
}

#[test]
fn min_and_max_order_zeros_and_pass_over_nans() {
    let (nan, one, two) = (bits(f32::NAN), bits(1.0), bits(2.0));
    let min = Selection::default();
    let max = Selection { largest: true, ..min };
    let strict = Selection { nan: true, ..max };
    let by_magnitude = Selection {
        xorsign_abs: true,
        ..max
    };
    let flush = Selection { flush: true, ..max };
    let cases = [
        (min, one, two, one),
        (max, one, two, two),
        (min, bits(-1.0), bits(-2.0), bits(-2.0)),
        (min, bits(0.0), bits(-0.0), bits(-0.0)),
        (max, bits(-0.0), bits(0.0), bits(0.0)),
        (min, nan, two, two),
        (max, one, nan, one),
        (max, nan, nan, 0x7fff_ffff),
        (strict, one, nan, 0x7fff_ffff),
        (strict, one, two, two),
        (by_magnitude, bits(-3.0), two, bits(-3.0)),
        (by_magnitude, bits(-3.0), bits(-2.0), bits(3.0)),
        (flush, bits(f32::from_bits(1)), bits(-1.0), 0),
    ];
    for (selection, a, b, expected) in cases {
        assert_eq!(
            select(Format::F32, a, b, selection),
            expected,
            "{selection:?} {a:x} {b:x}"
        );
    }
    assert_eq!(select(Format::Bf16, 0x3f80, 0xc000, max), 0x3f80);
    assert_eq!(neg(Format::F32, one, false), bits(-1.0));
    assert_eq!(abs(Format::F16, 0x8001, true), 0);
}

/// The accuracy that the ISA states, over all of a binade or interval, and its tables of special values.
#[test]
fn approximate_functions_are_as_accurate_as_stated() {
    use crate::num::approx::{Function, approximate, approximate_upper, div_approx};
    let value = |function, x: f32| f32::from_bits(approximate(function, Format::F32, bits(x), false) as u32);
    for step in 0..20_000 {
        let x = 0.5 + step as f32 / 5000.0;
        let wide = f64::from(x);
        for (function, exact) in [
            (Function::Ex2, wide.exp2()),
            (Function::Rcp, wide.recip()),
            (Function::Rsqrt, wide.sqrt().recip()),
            (Function::Sqrt, wide.sqrt()),
            (Function::Tanh, wide.tanh()),
        ] {
            let found = f64::from(value(function, x));
            assert!(
                abs_diff_eq!(found, exact, epsilon = 2f64.powi(-23) * exact),
                "{function:?} {x}: {found:e}, exactly {exact:e}"
            );
        }
        let near = step as f32 / 7000.0;
        for (function, exact) in [
            (Function::Sin, f64::from(near).sin()),
            (Function::Cos, f64::from(near).cos()),
        ] {
            assert!(
                abs_diff_eq!(f64::from(value(function, near)), exact, epsilon = 2f64.powf(-20.5)),
                "{function:?} {near}"
            );
        }
        assert!(
            abs_diff_eq!(
                f64::from(value(Function::Lg2, x)),
                wide.log2(),
                epsilon = 2f64.powi(-22)
            ),
            "lg2 {x}"
        );
    }
    let special = [
        (Function::Ex2, f32::NEG_INFINITY, 0.0),
        (Function::Ex2, 0.0, 1.0),
        (Function::Lg2, 0.0, f32::NEG_INFINITY),
        (Function::Rcp, -0.0, f32::NEG_INFINITY),
        (Function::Rcp, f32::INFINITY, 0.0),
        (Function::Rsqrt, -0.0, f32::NEG_INFINITY),
        (Function::Rsqrt, f32::INFINITY, 0.0),
        (Function::Sqrt, f32::INFINITY, f32::INFINITY),
        (Function::Cos, 0.0, 1.0),
        (Function::Tanh, f32::NEG_INFINITY, -1.0),
    ];
    for (function, x, expected) in special {
        assert_eq!(value(function, x), expected, "{function:?} {x}");
    }
    for (function, x) in [
        (Function::Lg2, -1.0),
        (Function::Sqrt, -1.0),
        (Function::Sin, f32::INFINITY),
        (Function::Ex2, f32::NAN),
    ] {
        assert_eq!(value(function, x).to_bits(), 0x7fff_ffff, "{function:?} {x}");
    }
    for (name, x, expected) in [
        ("ex2", 3.0, 8.0),
        ("lg2", 8.0, 3.0),
        ("rcp", 4.0, 0.25),
        ("rsqrt", 4.0, 0.5),
        ("sqrt", 4.0, 2.0),
    ] {
        assert_eq!(value(Function::from_name(name).unwrap(), x), expected, "{name}");
    }
    assert_eq!(Function::from_name("tan"), None);
    assert_eq!(approximate(Function::Ex2, Format::Bf16, 0x4000, false), 0x4080);
    assert_eq!(approximate(Function::Rcp, Format::F32, 1, true), bits(f32::INFINITY));
    let third = approximate_upper(Function::Rcp, 3f64.to_bits());
    assert_eq!(third as u32, 0);
    assert_abs_diff_eq!(f64::from_bits(third), 1.0 / 3.0, epsilon = 1e-6);
    assert_eq!(div_approx(bits(1.0), bits(1e38), false), 0);
    assert_eq!(div_approx(bits(f32::INFINITY), bits(-1e38), false), 0x7fff_ffff);
    assert_eq!(div_approx(bits(6.0), bits(-2.0), false), bits(-3.0));
}
