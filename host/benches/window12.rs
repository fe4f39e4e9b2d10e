//! How fast weights and whole files are packed and unpacked: bytes of BF16 per second. Files are flushed to the disk,
//! whose speed is part of theirs.
//!
//! `cargo bench --package hopper-proj --bench window12`; `RAYON_NUM_THREADS` sets the number of threads.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use hopper_proj::formats::window12::{self, Histogram};
use hopper_proj::io::convert::{self, PackOptions};
use hopper_proj::{Shape, bf16};

/// One exception in so many weights, beyond those of the distribution.
const RARITY: &[Option<usize>] = &[None, Some(100), Some(2), Some(1)];

fn main() {
    divan::main();
}

fn shape() -> Shape {
    Shape::new(2304, 8192).expect("a shape")
}

/// Sums of twelve uniform values: near enough to a normal distribution of deviation 0.02.
fn weights(rarity: Option<usize>) -> Vec<bf16> {
    let mut state = 1u64;
    let mut uniform = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut normal = move || ((0..12).map(|_| uniform()).sum::<f32>() - 6.0) * 0.02;
    // Exponents that change from weight to weight, so that no palette holds them.
    let outlier = |i: usize| bf16::from_bits(((i * 40_503) as u16 >> 1) & 0x7fff);
    (0..shape().n() * shape().k())
        .map(|i| match rarity {
            Some(rarity) if i % rarity == 0 => outlier(i),
            _ => bf16::from_f32(normal()),
        })
        .collect()
}

fn bytes() -> BytesCount {
    BytesCount::new(shape().n() * shape().k() * 2)
}

#[divan::bench(sample_count = 10)]
fn histogram(bencher: Bencher) {
    let weights = weights(None);
    bencher
        .counter(bytes())
        .bench_local(|| Histogram::of(black_box(&weights)));
}

#[divan::bench(args = RARITY, sample_count = 10)]
fn pack(bencher: Bencher, rarity: Option<usize>) {
    let weights = weights(rarity);
    bencher
        .counter(bytes())
        .bench_local(|| window12::pack(black_box(&weights), shape()).expect("packed"));
}

#[divan::bench(args = RARITY, sample_count = 10)]
fn unpack(bencher: Bencher, rarity: Option<usize>) {
    let packed = window12::pack(&weights(rarity), shape()).expect("packed");
    bencher
        .counter(bytes())
        .bench_local(|| window12::unpack(black_box(&packed)).expect("unpacked"));
}

#[divan::bench(args = RARITY, sample_count = 10)]
fn validate(bencher: Bencher, rarity: Option<usize>) {
    let packed = window12::pack(&weights(rarity), shape()).expect("packed");
    let check = |p: &window12::Packed<'_>| {
        let (units, starts, exceptions) = (p.units().to_vec(), p.starts().to_vec(), p.exceptions().to_vec());
        (p.shape(), p.palette(), units, starts, exceptions)
    };
    bencher
        .counter(bytes())
        .with_inputs(|| check(&packed))
        .bench_local_values(|(shape, palette, units, starts, exceptions)| {
            window12::Packed::new(shape, palette, units, starts, exceptions).expect("valid")
        });
}

/// A folder with a file `in` of one matrix.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("in");
    hopper_proj::io::checkpoint::write_bf16(&path, "w", shape().n(), shape().k(), &weights(None)).expect("written");
    folder
}

#[divan::bench(sample_count = 10)]
fn pack_file(bencher: Bencher) {
    let folder = folder();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    let pack = || convert::pack(&input, &output, &PackOptions::default(), &mut |_| {}).expect("packed");
    bencher.counter(bytes()).bench_local(pack);
}

#[divan::bench(sample_count = 10)]
fn unpack_file(bencher: Bencher) {
    let folder = folder();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    convert::pack(&input, &output, &PackOptions::default(), &mut |_| {}).expect("packed");
    bencher
        .counter(bytes())
        .bench_local(|| convert::unpack(&output, &input, &mut |_| {}).expect("unpacked"));
}
