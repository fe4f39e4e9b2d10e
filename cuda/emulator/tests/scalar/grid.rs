//! Runs forms of instructions on many inputs.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::support::{Run, memory, module, ptx};

/// An instruction on `%d1`…`%d3` (their lower parts in `%r1`…`%r3` and `%h1`…`%h3`; `%p1` is the lowest bit of `%d3`) that writes
/// `%d0`, `%r0`, `%h0` or `%p0`, and what it must deliver.
pub(super) struct Form<'a> {
    pub(super) text: String,
    pub(super) expected: Box<dyn Fn([u64; 3]) -> u64 + 'a>,
}

pub(super) fn form<'a>(text: impl Into<String>, expected: impl Fn([u64; 3]) -> u64 + 'a) -> Form<'a> {
    Form {
        text: text.into(),
        expected: Box::new(expected),
    }
}

/// Inputs of a launch.
const LANES: usize = 1 << 15;
/// Forms of a kernel: each has a column of results.
const COLUMNS: usize = 8;

/// Runs every form on every input, and compares.
pub(super) fn check(forms: &[Form<'_>], inputs: impl Fn() -> Box<dyn Iterator<Item = [u64; 3]>>) {
    for forms in forms.chunks(COLUMNS) {
        let module = module(&kernel(forms));
        let memory = memory();
        let table = memory.allocate((LANES * 24) as u64).unwrap();
        let out = memory.allocate((LANES * 16 * forms.len().div_ceil(2)) as u64).unwrap();
        let mut inputs = inputs();
        loop {
            let batch: Vec<[u64; 3]> = inputs.by_ref().take(LANES).collect();
            if batch.is_empty() {
                break;
            }
            let bytes: Vec<u8> = batch.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
            memory.write(table, &bytes).unwrap();
            let threads = batch.len() as u32;
            Run::new("k")
                .grid(threads.div_ceil(256))
                .block(256)
                .u64(table)
                .u64(out)
                .u32(threads)
                .on(&module, &memory)
                .unwrap_or_else(|error| panic!("{error}"));
            let mut results = vec![0; LANES * 16];
            for (pair, forms) in forms.chunks(2).enumerate() {
                memory.read(out + (pair * LANES * 16) as u64, &mut results).unwrap();
                for (input, result) in batch.iter().zip(results.chunks_exact(16)) {
                    for (form, result) in forms.iter().zip(result.chunks_exact(8)) {
                        let got = u64::from_le_bytes(result.try_into().unwrap());
                        let wanted = (form.expected)(*input);
                        assert_eq!(
                            got, wanted,
                            "{} on {input:x?} gives {got:#x}, not {wanted:#x}",
                            form.text
                        );
                    }
                }
            }
        }
    }
}

fn kernel(forms: &[Form<'_>]) -> String {
    let mut body = String::new();
    for (column, form) in forms.iter().enumerate() {
        let widened = [
            ("%d0", ""),
            ("%r0", "cvt.u64.u32 %d0, %r0;"),
            ("%h0", "cvt.u64.u16 %d0, %h0;"),
            ("%p0", "selp.b64 %d0, 1, 0, %p0;"),
        ];
        let (_, widen) = widened
            .iter()
            .find(|(name, _)| form.text.contains(name))
            .expect("a destination");
        body += &format!("{} {widen} mov.b64 %e{}, %d0;\n", form.text, column % 2);
        // Two columns lie side by side, so that one store serves both.
        if column % 2 == 1 || column + 1 == forms.len() {
            body += &format!("st.global.v2.u64 [%out+{}], {{%e0, %e1}};\n", column / 2 * LANES * 16);
        }
    }
    ptx(&format!(
        ".visible .entry k(.param .u64 table, .param .u64 results, .param .u32 count) {{
         .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b64 %e<2>; .reg .b32 %i; .reg .b64 %at; .reg .b64 %out;
         mov.u32 %i, %ctaid.x; shl.b32 %i, %i, 8; mov.u32 %r7, %tid.x; add.u32 %i, %i, %r7;
         ld.param.u32 %r7, [count]; setp.ge.u32 %p7, %i, %r7; @%p7 ret;
         ld.param.u64 %at, [table]; mul.wide.u32 %d7, %i, 24; add.u64 %at, %at, %d7;
         ld.param.u64 %out, [results]; mul.wide.u32 %d7, %i, 16; add.u64 %out, %out, %d7;
         ld.global.u64 %d1, [%at]; ld.global.u64 %d2, [%at+8]; ld.global.u64 %d3, [%at+16];
         cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; cvt.u32.u64 %r3, %d3;
         cvt.u16.u64 %h1, %d1; cvt.u16.u64 %h2, %d2; cvt.u16.u64 %h3, %d3;
         and.b32 %r4, %r3, 1; setp.ne.u32 %p1, %r4, 0;
         {body} ret; }}"
    ))
}

/// Every 16-bit value, with another of them beside it.
pub(super) fn all16() -> Box<dyn Iterator<Item = [u64; 3]>> {
    Box::new((0..=0xffff).map(|value: u64| [value | (value ^ 0x5a5a) << 16, value.wrapping_mul(0x9e37) & 0xffff, 0]))
}

/// Special values of every 16-bit format and of integers.
const SPECIAL16: [u64; 8] = [0, 0x8000, 1, 0x7fff, 0xffff, 0x3c00, 0xff80, 0x0400];

/// Every 16-bit value with every special one, either one first.
pub(super) fn pairs16() -> Box<dyn Iterator<Item = [u64; 3]>> {
    pairs(&SPECIAL16)
}

/// Every 16-bit value with some special ones.
pub(super) fn few_pairs16() -> Box<dyn Iterator<Item = [u64; 3]>> {
    pairs(&[0x8000, 0x7fff, 0xbc00, 0xff80])
}

fn pairs(special: &'static [u64]) -> Box<dyn Iterator<Item = [u64; 3]>> {
    Box::new((0..=0xffff_u64).flat_map(|value| {
        special.iter().map(move |&special| {
            let swapped = value >> 3 & 1 == 1;
            let (a, b) = if swapped { (value, special) } else { (special, value) };
            [a | b << 16, b | a << 16, value]
        })
    }))
}

/// A million inputs: random, near each other, of few bits, and special.
pub(super) fn wide() -> Box<dyn Iterator<Item = [u64; 3]>> {
    random(1_000_000)
}

/// Special values of 32- and 64-bit formats and of integers.
const SPECIAL: [u64; 24] = [
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
];

pub(super) fn random(count: usize) -> Box<dyn Iterator<Item = [u64; 3]>> {
    let mut random = StdRng::seed_from_u64(11);
    let mut one = move |i: usize, k: usize| -> u64 {
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
    Box::new((0..count).map(move |i| [one(i, 0), one(i / 8, 1), one(i / 64, 2)]))
}
