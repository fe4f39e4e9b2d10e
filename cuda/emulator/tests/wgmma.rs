//! Matrix products of warpgroups: every shape, layout and source of A against the products of single elements.

mod support;

use approx::abs_diff_eq;
use half::bf16;
use ptx_emulator::Counters;
use ptx_emulator::num::dot_bf16;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{Run, memory, module, ptx, read_u32, write_u32};

const ROWS: usize = 64;
const THREADS: usize = 128;

/// How a matrix lies in shared memory: bytes of a row of its swizzle, 16 for none; neighbours along M or N side by
/// side.
#[derive(Clone, Copy, Debug)]
struct Layout {
    row: usize,
    transposed: bool,
}

const K_MAJOR: Layout = Layout {
    row: 128,
    transposed: false,
};

impl Layout {
    const ALL: [usize; 4] = [16, 32, 64, 128];

    /// "Leading" and "stride" byte offsets of a matrix of `k` elements along K.
    fn offsets(self, k: usize) -> (usize, usize) {
        match (self.row, self.transposed) {
            (16, _) => (128, 16 * k),
            (row, false) => (0, 8 * row),
            (row, true) => (row * k, 8 * row),
        }
    }

    /// Where an element lies before the swizzle, in a matrix of `length` × `k`.
    fn plain(self, length: usize, k: usize, (mn, at): (usize, usize)) -> usize {
        let (leading, stride) = self.offsets(k);
        match (self.row, self.transposed) {
            (16, false) => mn / 8 * stride + mn % 8 * 16 + at / 8 * leading + at % 8 * 2,
            (16, true) => mn / 8 * stride + mn % 8 * 2 + at / 8 * leading + at % 8 * 16,
            (row, false) => 2 * at / row * row * length + mn * row + 2 * at % row,
            (row, true) => 2 * mn / row * leading + 2 * mn % row + at / 8 * stride + at % 8 * row,
        }
    }

    /// Where it lies with the swizzle, in memory that starts at a multiple of 1024 bytes.
    fn place(self, length: usize, k: usize, element: (usize, usize)) -> usize {
        let plain = self.plain(length, k, element);
        // Pieces of 16 bytes change places within their row, by what numbers the lines of 128 bytes.
        let moved = (plain / 16 % 8) ^ (plain / 128 % (self.row / 16));
        plain / 128 * 128 + moved * 16 + plain % 16
    }

    fn bytes(self, length: usize, k: usize) -> usize {
        // Whole rows.
        let across = self.row / 2;
        let (length, k) = match self.transposed {
            true => (length.next_multiple_of(across), k),
            false => (length, k.next_multiple_of(across)),
        };
        (length * k * 2).next_multiple_of(1024)
    }

    /// The descriptor of step `step`, less the address of the matrix.
    fn descriptor(self, length: usize, k: usize, step: usize) -> u64 {
        let (leading, stride) = self.offsets(k);
        let mode = match self.row {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0u64,
        };
        let start = self.plain(length, k, (0, 16 * step)) as u64;
        mode << 62 | (stride as u64 / 16) << 32 | (leading as u64 / 16) << 16 | (start / 16)
    }
}

/// A product: A is 64 × k, B k × n.
#[derive(Clone, Copy, Debug)]
struct Case {
    n: usize,
    k: usize,
    /// None for registers.
    a: Option<Layout>,
    b: Layout,
    negate: [bool; 2],
    /// Whether the first step adds to what the accumulators held.
    add: bool,
}

impl Case {
    fn new(n: usize, k: usize) -> Self {
        Case {
            n,
            k,
            a: Some(K_MAJOR),
            b: K_MAJOR,
            negate: [false; 2],
            add: true,
        }
    }

    /// Bytes of A in shared memory; B follows.
    fn a_bytes(&self) -> usize {
        self.a.map_or(0, |a| a.bytes(ROWS, self.k))
    }

    fn image_bytes(&self) -> usize {
        self.a_bytes() + self.b.bytes(self.n, self.k)
    }

    fn text(&self) -> String {
        let Case { n, k, .. } = *self;
        let (held, image) = (n / 2, self.image_bytes());
        let each = |f: &dyn Fn(usize) -> String| (0..held).map(f).collect::<String>();
        let all: Vec<String> = (0..held).map(|i| format!("%f{i}")).collect();
        let mut text = format!(
            ".visible .entry k(.param .u64 out, .param .u64 image, .param .u64 left) {{
             .reg .pred %p<4>; .reg .b32 %r<64>; .reg .f32 %f<{held}>; .reg .b64 %d<16>;
             mov.u32 %r1, %tid.x; mov.u32 %r2, smem; ld.param.u64 %d1, [image];
             shl.b32 %r3, %r1, 4;
             COPY: setp.ge.u32 %p1, %r3, {image}; @%p1 bra COPIED; cvt.u64.u32 %d2, %r3; add.u64 %d2, %d2, %d1;
             ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%d2]; add.u32 %r8, %r2, %r3; st.shared.v4.u32 [%r8], {{%r4, %r5, %r6, %r7}};
             add.u32 %r3, %r3, 2048; bra COPY;
             COPIED: fence.proxy.async.shared::cta; bar.sync 0;
             ld.param.u64 %d3, [out]; mul.wide.u32 %d4, %r1, {}; add.u64 %d3, %d3, %d4;
             ld.param.u64 %d5, [left]; mul.wide.u32 %d6, %r1, {}; add.u64 %d5, %d5, %d6;
             shr.u32 %r9, %r2, 4; cvt.u64.u32 %d7, %r9;\n",
            4 * held,
            k,
        );
        text += &each(&|i| format!("ld.global.f32 %f{i}, [%d3+{}];\n", 4 * i));
        for i in 0..k / 4 {
            if self.a.is_none() {
                text += &format!("ld.global.u32 %r{}, [%d5+{}];\n", 16 + i, 4 * i);
            }
        }
        text += "wgmma.fence.sync.aligned;\n";
        for step in 0..k / 16 {
            let add = u32::from(self.add || step > 0);
            let [sign_a, sign_b] = self.negate.map(|negate| if negate { -1 } else { 1 });
            let b = self.b.descriptor(self.n, k, step) + self.a_bytes() as u64 / 16;
            let (a, transposed) = match self.a {
                Some(a) => {
                    text += &format!("add.u64 %d8, %d7, {};\n", a.descriptor(ROWS, k, step));
                    ("%d8".to_owned(), format!("{}, ", u32::from(a.transposed)))
                }
                None => {
                    let regs: Vec<String> = (0..4).map(|i| format!("%r{}", 16 + 4 * step + i)).collect();
                    (format!("{{{}}}", regs.join(", ")), String::new())
                }
            };
            text += &format!(
                "add.u64 %d9, %d7, {b};
                 {{ .reg .pred p; setp.ne.b32 p, {add}, 0;
                 wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{}}}, {a}, %d9, p, {sign_a}, {sign_b}, {transposed}{}; }}\n",
                all.join(", "),
                u32::from(self.b.transposed)
            );
        }
        text += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
        text += &each(&|i| format!("st.global.f32 [%d3+{}], %f{i};\n", 4 * i));
        ptx(&(text + "ret;\n}\n")).replace(".align 128 .b8 smem", ".align 1024 .b8 smem")
    }

    /// Runs it on random matrices and compares every bit.
    fn check(&self, seed: u64) -> Counters {
        let Case { n, k, .. } = *self;
        let mut random = StdRng::seed_from_u64(seed);
        let mut matrix = |count: usize| -> Vec<u16> {
            let mut element = || bf16::from_f32(random.random_range(-2.0f32..2.0)).to_bits();
            (0..count).map(|_| element()).collect()
        };
        let (a, b) = (matrix(ROWS * k), matrix(n * k));
        let before: Vec<f32> = (0..ROWS * n).map(|_| random.random_range(-4.0f32..4.0)).collect();
        let mut image = vec![0u8; self.image_bytes()];
        let mut put = |layout: Layout, base: usize, length: usize, values: &[u16]| {
            for mn in 0..length {
                for at in 0..k {
                    let place = base + layout.place(length, k, (mn, at));
                    image[place..place + 2].copy_from_slice(&values[mn * k + at].to_le_bytes());
                }
            }
        };
        if let Some(layout) = self.a {
            put(layout, 0, ROWS, &a);
        }
        put(self.b, self.a_bytes(), n, &b);

        let memory = memory();
        let image_at = memory.allocate(image.len() as u64).unwrap();
        memory.write(image_at, &image).unwrap();
        let fragment: Vec<u32> = (0..THREADS)
            .flat_map(|thread| (0..k / 4).map(move |i| (thread, i)))
            .map(|(thread, i)| {
                let (lane, row) = (thread % 32, thread / 32 * 16);
                let row = row + lane / 4 + i % 2 * 8;
                let at = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
                u32::from(a[row * k + at]) | u32::from(a[row * k + at + 1]) << 16
            })
            .collect();
        let left = memory.allocate(fragment.len() as u64 * 4).unwrap();
        write_u32(&memory, left, &fragment);
        let place = |thread: usize, i: usize| {
            let lane = thread % 32;
            (
                thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8,
                i / 4 * 8 + lane % 4 * 2 + i % 2,
            )
        };
        let held = n / 2;
        let elements: Vec<(usize, usize)> = (0..THREADS)
            .flat_map(|thread| (0..held).map(move |i| place(thread, i)))
            .collect();
        let out = memory.allocate(elements.len() as u64 * 4).unwrap();
        let given: Vec<u32> = elements
            .iter()
            .map(|&(row, column)| before[row * n + column].to_bits())
            .collect();
        write_u32(&memory, out, &given);

        let mut run = Run::new("k").block(THREADS as u32).shared(self.image_bytes() as u32);
        run.seed = Some(seed);
        let (_, counters) = (run.u64(out).u64(image_at).u64(left).on(&module(&self.text()), &memory))
            .unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let results = read_u32(&memory, out, elements.len());
        let flip = if self.negate[0] != self.negate[1] { 0x8000 } else { 0 };
        for (&(row, column), &result) in elements.iter().zip(&results) {
            let mut expected = if self.add { before[row * n + column] } else { 0.0 };
            let mut exact = f64::from(expected);
            for step in 0..k / 16 {
                let left: [u16; 16] = std::array::from_fn(|i| a[row * k + 16 * step + i] ^ flip);
                let right: [u16; 16] = std::array::from_fn(|i| b[column * k + 16 * step + i]);
                expected = dot_bf16(&left, &right, expected);
                let value = |bits: u16| bf16::from_bits(bits).to_f64();
                exact += (left.iter().zip(&right))
                    .map(|(&x, &y)| value(x) * value(y))
                    .sum::<f64>();
            }
            assert_eq!(result, expected.to_bits(), "{self:?}: row {row}, column {column}");
            assert!(
                abs_diff_eq!(f64::from(f32::from_bits(result)), exact, epsilon = 1e-4),
                "{self:?}: {exact}"
            );
        }
        counters
    }
}

#[test]
fn every_width() {
    for n in (8..=256).step_by(8) {
        Case::new(n, 16).check(n as u64);
    }
}

#[test]
fn every_layout() {
    for row in Layout::ALL {
        for transposed in [false, true] {
            let layout = Layout { row, transposed };
            for k in [16, 64, 128] {
                let case = Case {
                    a: Some(layout),
                    ..Case::new(40, k)
                };
                case.check(k as u64);
                let case = Case {
                    b: layout,
                    ..Case::new(96, k)
                };
                case.check(k as u64);
            }
        }
    }
}

#[test]
fn a_in_registers() {
    for (n, k) in [(8, 16), (64, 64), (128, 128), (256, 32)] {
        let case = Case {
            a: None,
            ..Case::new(n, k)
        };
        case.check(3);
    }
}

#[test]
fn signs_and_fresh_accumulators() {
    for negate in [[false, true], [true, false], [true, true]] {
        for (a, add) in [(None, true), (Some(K_MAJOR), false)] {
            let case = Case {
                a,
                negate,
                add,
                ..Case::new(24, 32)
            };
            case.check(7);
        }
    }
}

#[test]
fn steps_are_counted_per_warp() {
    let counters = Case::new(128, 64).check(11);
    assert_eq!(counters.count("wgmma.mma_async.sync.aligned.m64n128k16"), 16);
    assert_eq!(counters.count("wgmma.fence"), 4);
    assert_eq!(counters.count("wgmma.commit_group"), 4);
    assert_eq!(counters.count("wgmma.wait_group"), 4);
}
