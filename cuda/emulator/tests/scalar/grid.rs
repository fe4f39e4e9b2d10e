//! Runs forms of instructions on many inputs.

use std::sync::OnceLock;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::support::{Run, memory, module, ptx};

/// Random inputs of each form of 32 or 64 bits.
pub(super) const RANDOM: usize = 1_000_000;

/// Instructions on `%d1`…`%d3` (their lower parts in `%r1`…`%r3` and `%h1`…`%h3`; `%p1` is the lowest bit of `%d3`)
/// each of which writes `%d0`, `%r0`, `%h0` or `%p0`, and what they must deliver, one after the other.
pub(super) struct Form<'a> {
    pub(super) texts: Vec<String>,
    pub(super) expected: Box<Expected<'a>>,
}

type Expected<'a> = dyn Fn([u64; 3], &mut [u64]) + 'a;

/// One instruction.
pub(super) fn form<'a>(text: impl Into<String>, expected: impl Fn([u64; 3]) -> u64 + 'a) -> Form<'a> {
    forms(vec![text.into()], move |input| [expected(input)])
}

/// Instructions whose results are easier to tell together.
pub(super) fn forms<'a, const N: usize>(texts: Vec<String>, expected: impl Fn([u64; 3]) -> [u64; N] + 'a) -> Form<'a> {
    assert_eq!(texts.len(), N);
    Form {
        texts,
        expected: Box::new(move |input, out| out.copy_from_slice(&expected(input))),
    }
}

/// Threads of a launch, each of which takes every so manyeth input.
const THREADS: usize = 1 << 12;
/// Instructions of a kernel, about.
const INSTRUCTIONS: usize = 64;
/// What makes one number of a form's results: the last one, plus this times the one before, and so on. It is odd, so
/// that any one wrong result shows.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Runs every form on every input, and compares.
pub(super) fn check(forms: &[Form<'_>], inputs: &[[u64; 3]]) {
    let memory = memory();
    let table = memory.allocate((inputs.len() * 24) as u64).unwrap();
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    memory.write(table, &bytes).unwrap();
    drop(bytes);
    let mut rest = forms;
    while !rest.is_empty() {
        let mut instructions = 0;
        let full = |form: &Form<'_>| {
            instructions += form.texts.len();
            instructions > INSTRUCTIONS
        };
        let (now, later) = rest.split_at(rest.iter().position(full).unwrap_or(rest.len()).max(1));
        rest = later;
        let got = run(&kernel(now, false), &memory, table, inputs.len(), THREADS * now.len());
        let longest = now.iter().map(|form| form.texts.len()).max().unwrap_or(0);
        let mut out = vec![0; longest];
        let mut wanted = vec![0u64; THREADS * now.len()];
        for (sums, input) in (0..THREADS).cycle().zip(inputs) {
            for (form, sum) in now.iter().zip(&mut wanted[sums * now.len()..]) {
                let out = &mut out[..form.texts.len()];
                (form.expected)(*input, out);
                *sum = out
                    .iter()
                    .fold(*sum, |sum, &value| sum.wrapping_mul(FACTOR).wrapping_add(value));
            }
        }
        if let Some(at) = (0..got.len()).find(|&at| got[at] != wanted[at]) {
            explain(
                &now[at % now.len()],
                inputs.iter().skip(at / now.len()).step_by(THREADS).copied(),
            );
        }
    }
}

/// Finds out what is wrong with a form on some of these inputs.
fn explain(form: &Form<'_>, inputs: impl Iterator<Item = [u64; 3]>) -> ! {
    let memory = memory();
    let table = memory.allocate(24).unwrap();
    let text = kernel(std::slice::from_ref(form), true);
    for input in inputs {
        memory.write(table, &input.map(u64::to_le_bytes).concat()).unwrap();
        let got = run(&text, &memory, table, 1, THREADS * form.texts.len());
        let mut wanted = vec![0; form.texts.len()];
        (form.expected)(input, &mut wanted);
        for ((text, got), wanted) in form.texts.iter().zip(got).zip(wanted) {
            assert_eq!(got, wanted, "{text} on {input:x?} gives {got:#x}, not {wanted:#x}");
        }
    }
    panic!(
        "one of these gives different results together than alone: {:?}",
        form.texts
    );
}

/// The results of a kernel, so many.
fn run(kernel: &str, memory: &ptx_emulator::Memory, table: u64, inputs: usize, results: usize) -> Vec<u64> {
    let out = memory.allocate(results as u64 * 8).unwrap();
    let mut launch = Run::new("k").grid(THREADS as u32 / 256).block(256);
    // It works for long before anybody sees something of it.
    launch.limits.idle_instructions = u64::MAX;
    launch
        .u64(table)
        .u64(out)
        .u32(inputs as u32)
        .on(&module(kernel), memory)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = vec![0; results * 8];
    memory.read(out, &mut bytes).unwrap();
    memory.free(out).unwrap();
    bytes
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// A kernel that delivers one number for each thread and form, or each result of each input.
fn kernel(forms: &[Form<'_>], each: bool) -> String {
    let (mut body, mut end) = (String::new(), String::new());
    for (i, form) in forms.iter().enumerate() {
        for (k, text) in form.texts.iter().enumerate() {
            let widened = [
                ("%d0", ""),
                ("%r0", "cvt.u64.u32 %d0, %r0;"),
                ("%h0", "cvt.u64.u16 %d0, %h0;"),
                ("%p0", "selp.b64 %d0, 1, 0, %p0;"),
            ];
            let (_, widen) = (widened.iter().find(|(name, _)| text.contains(name))).expect("a destination");
            let keep = if each {
                format!("st.global.u64 [%out+{}], %d0;", 8 * k)
            } else {
                format!("mad.lo.u64 %e{i}, %e{i}, %factor, %d0;")
            };
            body += &format!("{text} {widen} {keep}\n");
        }
        if !each {
            end += &format!("st.global.u64 [%out+{}], %e{i};\n", 8 * i);
        }
    }
    let results = if each { forms[0].texts.len() } else { forms.len() };
    ptx(&format!(
        ".visible .entry k(.param .u64 table, .param .u64 results, .param .u32 count) {{
         .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b64 %e<{INSTRUCTIONS}>;
         .reg .b32 %i, %n; .reg .b64 %at, %out, %factor;
         mov.u32 %i, %ctaid.x; shl.b32 %i, %i, 8; mov.u32 %r7, %tid.x; add.u32 %i, %i, %r7;
         ld.param.u32 %n, [count]; mov.b64 %factor, {FACTOR};
         ld.param.u64 %at, [table]; mul.wide.u32 %d7, %i, 24; add.u64 %at, %at, %d7;
         ld.param.u64 %out, [results]; mul.wide.u32 %d7, %i, {}; add.u64 %out, %out, %d7;
         NEXT: setp.ge.u32 %p7, %i, %n; @%p7 bra DONE;
         ld.global.u64 %d1, [%at]; ld.global.u64 %d2, [%at+8]; ld.global.u64 %d3, [%at+16];
         cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; cvt.u32.u64 %r3, %d3;
         cvt.u16.u64 %h1, %d1; cvt.u16.u64 %h2, %d2; cvt.u16.u64 %h3, %d3;
         and.b32 %r4, %r3, 1; setp.ne.u32 %p1, %r4, 0;
         {body} add.u32 %i, %i, {THREADS}; add.u64 %at, %at, {}; bra NEXT;
         DONE: {end} ret; }}",
        8 * results,
        24 * THREADS,
    ))
}

/// Every 16-bit value, with another of them beside it.
pub(super) fn all16() -> Vec<[u64; 3]> {
    let one = |value: u64| [value | (value ^ 0x5a5a) << 16, value.wrapping_mul(0x9e37) & 0xffff, 0];
    (0..=0xffff).map(one).collect()
}

/// Special values of every 16-bit format and of integers.
const SPECIAL16: [u64; 8] = [0, 0x8000, 1, 0x7fff, 0xffff, 0x3c00, 0xff80, 0x0400];

/// Every 16-bit value with every special one, either one first.
pub(super) fn pairs16() -> Vec<[u64; 3]> {
    pairs(&SPECIAL16)
}

/// Every 16-bit value with some special ones.
pub(super) fn few_pairs16() -> Vec<[u64; 3]> {
    pairs(&[0x8000, 0x7fff, 0xbc00, 0xff80])
}

fn pairs(special: &[u64]) -> Vec<[u64; 3]> {
    let with = |value: u64| {
        special.iter().map(move |&special| {
            let swapped = value >> 3 & 1 == 1;
            let (a, b) = if swapped { (value, special) } else { (special, value) };
            [a | b << 16, b | a << 16, value]
        })
    };
    (0..=0xffff_u64).flat_map(with).collect()
}

/// Random inputs: of any bits, near each other, of few bits, and special ones.
pub(super) fn wide() -> &'static [[u64; 3]] {
    static INPUTS: OnceLock<Vec<[u64; 3]>> = OnceLock::new();
    INPUTS.get_or_init(|| random(RANDOM))
}

/// Special values of 32- and 64-bit formats and of integers.
const SPECIAL: [u64; 43] = [
    0,
    1,
    2,
    31,
    32,
    33,
    63,
    64,
    0x7f,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x0080_0000,
    0x7f7f_ffff,
    0x3ff0_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x0010_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    0x7fff_ffff_ffff_ffff,
    // NaNs: quiet, signalling, of either sign.
    0x7fc0_0000,
    0x7f80_0001,
    0xffc1_2345,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    0xfff8_0000_1234_5678,
    // Negative infinity, the largest and the smallest numbers.
    0xfff0_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x8000_0001,
    0x8000_0000_0000_0001,
    // Halves, and where integers end.
    0x3f00_0000,
    0x4020_0000,
    0x3fe0_0000_0000_0000,
    0xc004_0000_0000_0000,
    0x4f00_0000,
    0x5f80_0000,
    0x41e0_0000_0000_0000,
    0x43e0_0000_0000_0000,
];

fn random(count: usize) -> Vec<[u64; 3]> {
    let mut random = StdRng::seed_from_u64(11);
    let mut one = |i: usize, k: usize| -> u64 {
        let value: u64 = random.random();
        match (i + k) % 8 {
            0 => SPECIAL[value as usize % SPECIAL.len()],
            // Few bits, so that results are exact or close calls.
            1 => value & 0xc3f8_0000_c3f8_0000,
            // Exponents near one in both widths, so that operands meet.
            2 | 3 => value & 0x81ff_ffff_81ff_ffff | 0x3e00_0000_3e00_0000,
            // Subnormals and small integers.
            4 => value & 0x800f_ffff_807f_ffff,
            5 => value & 0xff,
            _ => value,
        }
    };
    (0..count).map(|i| [one(i, 0), one(i / 8, 1), one(i / 64, 2)]).collect()
}
