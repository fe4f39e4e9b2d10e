//! How much a self-test multiplies, and what: whole numbers whose every sum is exact in FP32.

use crate::bf16;
use hopper_cuda_driver::Selected;
use kernels_gpu::instances::Gemm;

/// Tokens of the smallest product: more than the GEMVs take.
const TOKENS: usize = 40;
/// Columns of the smallest product: several stages, so that registers are used again while the tensor cores are at
/// work.
const COLUMNS: usize = 256;
/// Columns of a product that fills the device.
const MANY_COLUMNS: usize = 4096;
/// Token tiles of a product that fills the device: some, so that weights, x and y are all small.
const TOKEN_TILES: usize = 8;
/// By how much the last of them falls short of a whole one.
const TOKENS_SHORT: usize = 24;

/// How much the self-test of a kernel multiplies: rows of weights, tokens and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfTestSize {
    pub(super) rows: usize,
    pub(super) tokens: usize,
    pub(super) columns: usize,
}

impl SelfTestSize {
    /// One that shows what goes wrong with the driver in use: on NVIDIA's, where it may depend on time, one that
    /// [fills](SelfTestSize::filling) the device; on the emulator, where it does not, the
    /// [smallest](SelfTestSize::smallest).
    pub fn new(driver: Selected, multiprocessors: usize, instance: &Gemm) -> Self {
        match driver {
            Selected::Cuda => Self::filling(multiprocessors, instance),
            Selected::Emulated => Self::smallest(instance),
        }
    }

    /// One cluster, over a few stages.
    pub fn smallest(instance: &Gemm) -> Self {
        SelfTestSize {
            rows: rows_of(instance),
            tokens: TOKENS,
            columns: COLUMNS,
        }
    }

    /// At least as many CTAs as so many multiprocessors hold at once, over many stages: each has others beside it that
    /// wait for the same memory and the same tensor cores.
    pub fn filling(multiprocessors: usize, instance: &Gemm) -> Self {
        let held = multiprocessors.max(1) * instance.min_ctas;
        SelfTestSize {
            rows: held.div_ceil(TOKEN_TILES * instance.multicast) * rows_of(instance),
            tokens: TOKEN_TILES * instance.tokens() - TOKENS_SHORT,
            columns: MANY_COLUMNS,
        }
    }
}

/// Rows of all CTAs that share x.
fn rows_of(instance: &Gemm) -> usize {
    instance.multicast * instance.rows()
}

/// Weights have eight bits and a sign, activations four and a sign.
const WEIGHTS: usize = 511;
const ACTIVATIONS: usize = 31;
/// Rows and tokens that differ: the rest repeat them, so that what is right is soon computed. As primes, they fall into
/// tiles and blocks in all ways.
const ROWS: usize = 251;
const DISTINCT_TOKENS: usize = 61;

const _: () = assert!(MANY_COLUMNS * (WEIGHTS / 2) * (ACTIVATIONS / 2) < 1 << 24);

fn weight(row: usize, column: usize) -> i32 {
    ((row * 173 + column * 37 + row * column) % WEIGHTS) as i32 - (WEIGHTS / 2) as i32
}

fn activation(token: usize, column: usize) -> i32 {
    ((token * 11 + column * 7 + token * column) % ACTIVATIONS) as i32 - (ACTIVATIONS / 2) as i32
}

/// The weights, `[rows, columns]`.
pub(super) fn weights(size: SelfTestSize) -> Vec<bf16> {
    matrix(size.rows, ROWS, size.columns, weight)
}

/// The activations, `[tokens, columns]`.
pub(super) fn activations(tokens: usize, columns: usize) -> Vec<bf16> {
    matrix(tokens, DISTINCT_TOKENS, columns, activation)
}

fn matrix(rows: usize, distinct: usize, columns: usize, value: fn(usize, usize) -> i32) -> Vec<bf16> {
    let mut matrix: Vec<bf16> = (0..rows.min(distinct) * columns)
        .map(|at| bf16::from_f32(value(at / columns, at % columns) as f32))
        .collect();
    for at in matrix.len()..rows * columns {
        matrix.push(matrix[at - distinct * columns]);
    }
    matrix
}

/// What is right, `[tokens, rows]`.
pub(super) struct Expected {
    rows: usize,
    sums: Vec<f32>,
}

impl Expected {
    pub(super) fn new(size: SelfTestSize) -> Self {
        let (rows, tokens) = (size.rows.min(ROWS), size.tokens.min(DISTINCT_TOKENS));
        let table = |count: usize, value: fn(usize, usize) -> i32| -> Vec<i32> {
            let at = (0..count).flat_map(|row| (0..size.columns).map(move |column| (row, column)));
            at.map(|(row, column)| value(row, column)).collect()
        };
        let (weights, x) = (table(rows, weight), table(tokens, activation));
        let sum = |(x, w): (&[i32], &[i32])| x.iter().zip(w).map(|(x, w)| x * w).sum::<i32>() as f32;
        let pairs =
            (x.chunks_exact(size.columns)).flat_map(|x| weights.chunks_exact(size.columns).map(move |w| (x, w)));
        Expected {
            rows,
            sums: pairs.map(sum).collect(),
        }
    }

    /// Whether these are the right results, to the last bit.
    pub(super) fn is(&self, y: &[f32], size: SelfTestSize) -> bool {
        let tokens = self.sums.len() / self.rows;
        y.len() == size.tokens * size.rows
            && y.chunks_exact(size.rows).enumerate().all(|(token, y)| {
                let sums = &self.sums[token % tokens * self.rows..][..self.rows];
                y.iter().zip(sums.iter().cycle()).all(|(y, sum)| y == sum)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::plan::{Device, Division, Kernel, Op, Request, plan_with};
    use kernels_gpu::instances::packed_gemms;

    #[test]
    fn the_smallest_is_one_cluster() {
        for instance in packed_gemms() {
            let size = SelfTestSize::new(Selected::Emulated, 132, instance);
            let rows = instance.multicast * instance.rows();
            assert_eq!(
                (size.rows, size.tokens, size.columns),
                (rows, 40, 256),
                "{}",
                instance.name
            );
        }
    }

    #[test]
    fn a_gpu_is_filled_and_not_flooded() {
        let h200 = Device::default();
        for instance in packed_gemms() {
            for multiprocessors in [132, 114, 78, 16, 1] {
                let size = SelfTestSize::new(Selected::Cuda, multiprocessors, instance);
                let kernel = Kernel::Gemm(Division::whole(instance));
                let shape = Shape::new(size.rows, size.columns).unwrap();
                let request = Request::new(Op::Project, kernel.format(), shape, size.tokens);
                let plan = plan_with(&kernel, &request, &h200).unwrap().unwrap();
                let ctas: usize = plan.grid.iter().map(|&ctas| ctas as usize).product();
                let held = multiprocessors * instance.min_ctas;
                let name = instance.name;
                assert!(
                    ctas >= held && ctas < held + 8 * instance.multicast,
                    "{name}: {ctas} for {held}"
                );
                assert_eq!(size.columns, 4096, "{name}");
                // 128 MiB of operands and results at most.
                let bytes = 2 * (size.rows + size.tokens) * size.columns + 4 * size.rows * size.tokens;
                assert!(bytes < 128 << 20, "{name}: {bytes}");
            }
        }
        assert_eq!(SelfTestSize::filling(0, packed_gemms().next().unwrap()).tokens % 8, 0);
    }

    #[test]
    fn rows_and_tokens_repeat_and_each_value_counts() {
        let size = SelfTestSize {
            rows: 600,
            tokens: 130,
            columns: 7,
        };
        let (w, x) = (weights(size), activations(size.tokens, size.columns));
        let mut y: Vec<f32> = (0..size.tokens * size.rows)
            .map(|at| {
                let (token, row) = (at / size.rows, at % size.rows);
                let products = (0..7).map(|k| x[token * 7 + k].to_f32() * w[row * 7 + k].to_f32());
                products.sum()
            })
            .collect();
        let expected = Expected::new(size);
        assert!(expected.is(&y, size) && !expected.is(&y[1..], size));
        for at in [0, 250, 251, 599, 600, 61 * 600, y.len() - 1] {
            y[at] += 1.0;
            assert!(!expected.is(&y, size), "{at}");
            y[at] -= 1.0;
        }
        y[700] = f32::NAN;
        assert!(!expected.is(&y, size));
    }
}
