//! `mma.sync` in every type and shape: fragments as the ISA lays them out, sums exact where they fit, cut off where
//! they do not.

#[path = "../support/mod.rs"]
mod support;

mod places;

use half::{bf16, f16};
use places::{place_in_a, place_in_b, place_in_c, width};
use ptx_emulator::num::{Element, Format, Int, Product, Sum, mma_m16n8k16_bf16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{Run, memory, module, ptx};

/// A type of A or B: its name, its bits, how small integers are written in it, and the largest one that it holds.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bits: usize,
    write: fn(i32) -> u64,
    range: (i32, i32),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "f16",
        bits: 16,
        write: |v| f16::from_f32(v as f32).to_bits().into(),
        range: (-32, 32),
    },
    Kind {
        name: "bf16",
        bits: 16,
        write: |v| bf16::from_f32(v as f32).to_bits().into(),
        range: (-32, 32),
    },
    Kind {
        name: "tf32",
        bits: 32,
        write: |v| (v as f32).to_bits().into(),
        range: (-32, 32),
    },
    Kind {
        name: "e4m3",
        bits: 8,
        write: |v| small_float(v, 3, 7),
        range: (-15, 15),
    },
    Kind {
        name: "e5m2",
        bits: 8,
        write: |v| small_float(v, 2, 15),
        range: (-7, 7),
    },
    Kind {
        name: "f64",
        bits: 64,
        write: |v| f64::from(v).to_bits(),
        range: (-32, 32),
    },
    Kind {
        name: "s8",
        bits: 8,
        write: |v| v as u8 as u64,
        range: (-128, 127),
    },
    Kind {
        name: "u8",
        bits: 8,
        write: |v| v as u8 as u64,
        range: (0, 255),
    },
    Kind {
        name: "s4",
        bits: 4,
        write: |v| v as u64 & 15,
        range: (-8, 7),
    },
    Kind {
        name: "u4",
        bits: 4,
        write: |v| v as u64 & 15,
        range: (0, 15),
    },
];

/// A small integer in an 8-bit format.
fn small_float(value: i32, fraction: u32, bias: u32) -> u64 {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let exponent = magnitude.ilog2();
    let significand = (magnitude << fraction >> exponent) & ((1 << fraction) - 1);
    u64::from(value < 0) << 7 | u64::from((exponent + bias) << fraction | significand)
}

fn kind(name: &str) -> Kind {
    *KINDS.iter().find(|kind| kind.name == name).unwrap()
}

/// Rows of A, columns of A, type of A, type of B, type of C and D.
type Form = (usize, usize, &'static str, &'static str, &'static str);

const FORMS: &[Form] = &[
    (16, 8, "f16", "f16", "f32"),
    (16, 16, "f16", "f16", "f32"),
    (16, 8, "f16", "f16", "f16"),
    (16, 16, "f16", "f16", "f16"),
    (16, 8, "bf16", "bf16", "f32"),
    (16, 16, "bf16", "bf16", "f32"),
    (16, 4, "tf32", "tf32", "f32"),
    (16, 8, "tf32", "tf32", "f32"),
    (16, 16, "e4m3", "e4m3", "f32"),
    (16, 32, "e4m3", "e5m2", "f32"),
    (16, 32, "e5m2", "e4m3", "f16"),
    (16, 32, "e5m2", "e5m2", "f32"),
    (8, 4, "f64", "f64", "f64"),
    (16, 4, "f64", "f64", "f64"),
    (16, 8, "f64", "f64", "f64"),
    (16, 16, "f64", "f64", "f64"),
    (8, 16, "s8", "u8", "s32"),
    (16, 16, "u8", "u8", "s32"),
    (16, 32, "s8", "s8", "s32"),
    (16, 32, "u8", "s8", "s32"),
    (8, 32, "s4", "s4", "s32"),
    (16, 32, "u4", "s4", "s32"),
    (16, 64, "s4", "u4", "s32"),
];

fn name((rows, depth, a, b, sum): Form, satfinite: bool) -> String {
    let satfinite = if satfinite { ".satfinite" } else { "" };
    format!("mma.sync.aligned.m{rows}n8k{depth}.row.col{satfinite}.{sum}.{a}.{b}.{sum}")
}

/// A fragment's registers, lane by lane, each as 64 bits.
fn fragment(bits: usize, elements: usize, element: impl Fn(usize, usize) -> u64) -> Vec<u64> {
    let per = width(bits) / bits;
    let register = |lane: usize, r: usize| (0..per).fold(0, |all, i| all | element(lane, r * per + i) << (bits * i));
    (0..32)
        .flat_map(|lane| (0..elements / per).map(move |r| (lane, r)))
        .map(|(lane, r)| register(lane, r))
        .collect()
}

/// Runs one product on fragments that lie in memory, lane after lane.
fn run(form: Form, satfinite: bool, fragments: [&[u64]; 3]) -> Vec<u64> {
    let wide = form.4 == "f64";
    let (prefix, store) = if wide { ("d", "") } else { ("r", "cvt.u64.u32 %x, %v;") };
    let counts = fragments.map(|values| values.len() / 32);
    let mut next = 0;
    let mut lists = Vec::new();
    let mut body = String::new();
    for (i, count) in counts.into_iter().enumerate() {
        let names: Vec<String> = (0..count).map(|k| format!("%{prefix}{}", next + k)).collect();
        for (k, name) in names.iter().enumerate() {
            let load = if wide { "ld.global.u64" } else { "ld.global.u32" };
            body += &format!(
                "mad.wide.u32 %x, %lane, {}, %p{i}; {load} {name}, [%x+{}];\n",
                8 * count,
                8 * k
            );
        }
        next += count;
        lists.push(format!("{{{}}}", names.join(", ")));
    }
    let results: Vec<String> = (0..counts[2]).map(|k| format!("%{prefix}{}", next + k)).collect();
    body += &format!(
        "{} {{{}}}, {}, {}, {};\n",
        name(form, satfinite),
        results.join(", "),
        lists[0],
        lists[1],
        lists[2]
    );
    body += &format!("mad.wide.u32 %at, %lane, {}, %out;\n", 8 * counts[2]);
    for (k, result) in results.iter().enumerate() {
        let store = store.replace("%v", result);
        let value = if wide { result } else { "%x" };
        body += &format!("{store} st.global.u64 [%at+{}], {value};\n", 8 * k);
    }
    let text = ptx(&format!(
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 out) {{
         .reg .b32 %r<64>; .reg .b64 %d<64>; .reg .b64 %p<3>; .reg .b64 %x; .reg .b64 %at; .reg .b64 %out; .reg .b32 %lane;
         ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [c]; ld.param.u64 %out, [out];
         mov.u32 %lane, %laneid; {body} ret; }}"
    ));
    let (module, memory) = (module(&text), memory());
    let mut launch = Run::new("k");
    for values in fragments {
        let at = memory.allocate(8 * values.len() as u64).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        memory.write(at, &bytes).unwrap();
        launch = launch.u64(at);
    }
    let out = memory.allocate(8 * 32 * counts[2] as u64).unwrap();
    launch
        .u64(out)
        .on(&module, &memory)
        .unwrap_or_else(|error| panic!("{form:?}: {error}"));
    let mut bytes = vec![0; 8 * 32 * counts[2]];
    memory.read(out, &mut bytes).unwrap();
    bytes
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// A sum as C and D write it.
fn write_sum(ty: &str, value: i32) -> u64 {
    match ty {
        "f16" => f16::from_f32(value as f32).to_bits().into(),
        "f32" => (value as f32).to_bits().into(),
        "f64" => f64::from(value).to_bits(),
        _ => value as u32 as u64,
    }
}

#[test]
fn small_integers_multiply_exactly_in_every_form() {
    let mut random = StdRng::seed_from_u64(5);
    for &form in FORMS {
        let (rows, depth, a_name, b_name, sum) = form;
        let (of_a, of_b) = (kind(a_name), kind(b_name));
        // In F16 sums are exact up to 2048.
        let most = if sum == "f16" { 7 } else { i32::MAX };
        let mut pick = |kind: Kind| random.random_range(kind.range.0.max(-most)..=kind.range.1.min(most));
        let a: Vec<i32> = (0..rows * depth).map(|_| pick(of_a)).collect();
        let b: Vec<i32> = (0..depth * 8).map(|_| pick(of_b)).collect();
        let c: Vec<i32> = (0..rows * 8).map(|_| pick(kind("e4m3"))).collect();
        let fragments = [
            fragment(of_a.bits, rows * depth / 32, |lane, i| {
                let (row, column) = place_in_a(rows, of_a.bits, lane, i);
                (of_a.write)(a[row * depth + column])
            }),
            fragment(of_b.bits, depth * 8 / 32, |lane, i| {
                let (row, column) = place_in_b(of_b.bits, lane, i);
                (of_b.write)(b[row * 8 + column])
            }),
            fragment(sum_bits(sum), rows * 8 / 32, |lane, i| {
                let (row, column) = place_in_c(lane, i);
                write_sum(sum, c[row * 8 + column])
            }),
        ];
        let expected = fragment(sum_bits(sum), rows * 8 / 32, |lane, i| {
            let (row, column) = place_in_c(lane, i);
            let products = (0..depth).map(|k| a[row * depth + k] * b[k * 8 + column]);
            write_sum(sum, products.sum::<i32>() + c[row * 8 + column])
        });
        let got = run(form, false, [&fragments[0], &fragments[1], &fragments[2]]);
        assert_eq!(got, expected, "{}", name(form, false));
    }
}

fn sum_bits(sum: &str) -> usize {
    match sum {
        "f16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

#[test]
fn integer_sums_wrap_or_are_clamped() {
    let (ones, tops) = (vec![0x7f7f_7f7f_u64; 128], vec![0x7f7f_7f7f_u64; 64]);
    let c = vec![0x7fff_ff00_u64; 128];
    let form = (16, 32, "s8", "s8", "s32");
    let exact = 0x7fff_ff00_i64 + 32 * 127 * 127;
    assert!(run(form, true, [&ones, &tops, &c]).iter().all(|&d| d == 0x7fff_ffff));
    assert!(
        run(form, false, [&ones, &tops, &c])
            .iter()
            .all(|&d| d == exact as u32 as u64)
    );
    let c = vec![0x8000_0010_u64; 128];
    let negative = vec![0x8181_8181_u64; 128];
    assert!(
        run(form, true, [&negative, &tops, &c])
            .iter()
            .all(|&d| d == 0x8000_0000)
    );
}

/// The general code gives the bits that the code for BF16 gives, which has tests of its own.
#[test]
fn general_sums_agree_with_those_of_bf16() {
    let product = Product {
        rows: 16,
        depth: 16,
        a: Element::Float(Format::Bf16),
        b: Element::Float(Format::Bf16),
        sum: Sum::F32,
    };
    assert_eq!(product.registers(), [4, 2, 4]);
    let mut random = StdRng::seed_from_u64(9);
    for round in 0..200 {
        let mut pattern = || -> u32 {
            let bits: u32 = random.random();
            match round % 4 {
                0 => bits,
                1 => bits & 0x80ff_80ff | 0x3f00_3f00,
                2 => bits & 0x83ff_83ff | 0x3c00_3c00,
                _ => bits & 0x807f_ffff,
            }
        };
        let a: [[u32; 4]; 32] = std::array::from_fn(|_| std::array::from_fn(|_| pattern()));
        let b: [[u32; 2]; 32] = std::array::from_fn(|_| std::array::from_fn(|_| pattern()));
        let c: [[f32; 4]; 32] = std::array::from_fn(|_| std::array::from_fn(|_| f32::from_bits(pattern())));
        let expected = mma_m16n8k16_bf16(&a, &b, &c);
        let registers = |n: usize, value: &dyn Fn(usize, usize) -> u32| -> Vec<[u64; 32]> {
            (0..n)
                .map(|i| std::array::from_fn(|lane| value(lane, i).into()))
                .collect()
        };
        let got = product.multiply(
            &registers(4, &|lane, i| a[lane][i]),
            &registers(2, &|lane, i| b[lane][i]),
            &registers(4, &|lane, i| c[lane][i].to_bits()),
        );
        for (i, register) in got.iter().enumerate() {
            for lane in 0..32 {
                assert_eq!(
                    register[lane],
                    u64::from(expected[lane][i].to_bits()),
                    "round {round}, lane {lane}, {i}"
                );
            }
        }
    }
}

/// One row of A times one column of B, plus `c`.
fn sum_of(format: Format, sum: Sum, factors: &[(u64, u64)], c: u64) -> u64 {
    let bits = if format == Format::Tf32 { 32 } else { 16 };
    let depth = if bits == 32 { 8 } else { 16 };
    let element = Element::Float(format);
    let product = Product {
        rows: 16,
        depth,
        a: element,
        b: element,
        sum,
    };
    let per = 32 / bits;
    let fill = |values: Vec<u64>, registers: usize, rows: usize| -> Vec<[u64; 32]> {
        let mut fragment = vec![[0; 32]; registers];
        for (k, value) in values.into_iter().enumerate() {
            // Of the first row or column: the lanes of the first group, their registers four lanes' worth apart.
            let (register, lane, part) = (k / (4 * per) * rows, k / per % 4, k % per);
            fragment[register][lane] |= value << (bits * part);
        }
        fragment
    };
    let a = fill(factors.iter().map(|f| f.0).collect(), product.registers()[0], 2);
    let b = fill(factors.iter().map(|f| f.1).collect(), product.registers()[1], 1);
    let mut c_fragment = vec![[0; 32]; product.registers()[2]];
    c_fragment[0][0] = c;
    let mask = if sum == Sum::F16 { 0xffff } else { 0xffff_ffff };
    product.multiply(&a, &b, &c_fragment)[0][0] & mask
}

#[test]
fn sums_are_cut_off_and_specials_pass() {
    let h = |value: f32| u64::from(f16::from_f32(value).to_bits());
    let f = |value: f32| u64::from(value.to_bits());
    let one = (h(1.0), h(1.0));
    // 2^-24 beside 1 is within the 25 bits kept, but not within the 23 of the result.
    let tiny = (h(2f32.powi(-12)), h(2f32.powi(-12)));
    assert_eq!(
        sum_of(Format::F16, Sum::F32, &[one, tiny, tiny], f(0.0)),
        f(1.0 + 2f32.powi(-23))
    );
    assert_eq!(sum_of(Format::F16, Sum::F32, &[one, tiny], f(0.0)), f(1.0));
    // A negative addend too small to be kept changes nothing.
    let below = (h(2f32.powi(-13)), h(-2f32.powi(-13)));
    assert_eq!(sum_of(Format::F16, Sum::F32, &[one, below], f(0.0)), f(1.0));
    // In F16 the sum is rounded to nearest, ties to even.
    let ulp = (h(2f32.powi(-10)), h(1.0));
    let half_ulp = (h(2f32.powi(-11)), h(1.0));
    assert_eq!(sum_of(Format::F16, Sum::F16, &[one, half_ulp], 0), h(1.0));
    assert_eq!(
        sum_of(Format::F16, Sum::F16, &[one, ulp, half_ulp], 0),
        h(1.0 + 2f32.powi(-9))
    );
    assert_eq!(
        sum_of(Format::F16, Sum::F16, &[(h(60000.0), h(2.0))], 0),
        h(f32::INFINITY)
    );
    assert_eq!(sum_of(Format::F16, Sum::F16, &[(h(f32::INFINITY), h(0.0))], 0), 0x7fff);
    assert_eq!(
        sum_of(Format::F16, Sum::F32, &[(h(f32::INFINITY), h(-2.0))], f(1.0)),
        f(f32::NEG_INFINITY)
    );
    assert_eq!(sum_of(Format::F16, Sum::F32, &[one], f(f32::NAN)), 0x7fff_ffff);
    // Of TF32 the lower 13 bits do not count.
    assert_eq!(
        sum_of(Format::Tf32, Sum::F32, &[(f(1.0) | 0x1fff, f(3.0) | 0x1000)], f(0.5)),
        f(3.5)
    );
}

#[test]
fn products_know_their_registers() {
    let int = |bits, signed| Element::Integer(Int { bits, signed });
    let product = |rows, depth, a, sum| Product {
        rows,
        depth,
        a,
        b: a,
        sum,
    };
    let s32 = Sum::S32 { saturate: false };
    assert_eq!(product(8, 16, int(8, true), s32).registers(), [1, 1, 2]);
    assert_eq!(product(16, 64, int(4, false), s32).registers(), [4, 2, 4]);
    assert_eq!(
        product(16, 16, Element::Float(Format::F16), Sum::F16).registers(),
        [4, 2, 2]
    );
    assert_eq!(
        product(8, 4, Element::Float(Format::F64), Sum::F64).registers(),
        [1, 1, 2]
    );
}
