//! Self-tests of the kernels that a driver's compiler may get wrong.
//!
//! ptxas before 13.3 can give registers of a running `wgmma`'s first operand to something else, and it is part of the
//! driver: what is launched is not what was tested. So each kernel over packed units multiplies one small matrix when
//! its family is loaded. All values are whole numbers and every sum is below 2²⁴, so there is one right result, to the
//! last bit.

use super::families::Loaded;
use super::launch::Queue;
use super::operands::{Operands, Output};
use super::project::{self, Launch};
use super::{CUfunction, Overlap};
use crate::device::{Allocation, Result, Setup};
use crate::formats::device::Stored;
use crate::formats::store_for_self_test;
use crate::plan::{Division, Kernel, Planner};
use crate::{Error, Shape, bf16};
use hopper_cuda_driver::emulated;
use kernels_gpu::instances::{Family, Gemm, packed_gemms};

/// Columns: several stages, so that registers are used again while the tensor cores are at work.
const COLUMNS: usize = 256;
/// Tokens: more than the GEMVs take.
const TOKENS: usize = 40;

/// A whole number of eight bits and a sign.
fn weight(row: usize, column: usize) -> i32 {
    ((row * 173 + column * 37 + row * column) % 511) as i32 - 255
}

/// A whole number of four bits and a sign.
fn activation(token: usize, column: usize) -> i32 {
    ((token * 11 + column * 7 + token * column) % 31) as i32 - 15
}

fn matrix(rows: usize, value: impl Fn(usize, usize) -> i32) -> Vec<bf16> {
    let value = |at: usize| bf16::from_f32(value(at / COLUMNS, at % COLUMNS) as f32);
    (0..rows * COLUMNS).map(value).collect()
}

fn expected(token: usize, row: usize) -> f32 {
    let products = (0..COLUMNS).map(|column| weight(row, column) * activation(token, column));
    products.sum::<i32>() as f32
}

/// Rows of all CTAs that share x.
fn rows_of(instance: &Gemm) -> usize {
    instance.multicast * instance.rows()
}

/// The operands of a family's self-tests, in the current context.
///
/// They are made before the lock is taken under which a family is loaded: packing waits for threads of a pool, which
/// may themselves wait for that lock.
pub(super) struct SelfTests {
    x: Allocation,
    of_instances: Vec<SelfTest>,
}

/// One kernel's self-test.
struct SelfTest {
    instance: &'static Gemm,
    weights: Box<dyn Stored>,
    shape: Shape,
}

impl SelfTests {
    /// `None` for a family that has no kernels with self-tests.
    pub(super) fn new(family: Family, setup: &Setup) -> Result<Option<Self>> {
        let tested: Vec<&Gemm> = packed_gemms().filter(|instance| instance.family == family).collect();
        if tested.is_empty() {
            return Ok(None);
        }
        let self_test = |instance: &'static Gemm| {
            // A kernel with fewer rows takes the first row blocks.
            let shape = Shape::new(rows_of(instance), COLUMNS)?;
            let format = Kernel::Gemm(Division::whole(instance)).format();
            Ok(SelfTest {
                instance,
                weights: store_for_self_test(setup, format, &matrix(shape.n(), weight), shape)?,
                shape,
            })
        };
        Ok(Some(SelfTests {
            x: setup.upload(UPLOAD, &matrix(TOKENS, activation))?,
            of_instances: tested.into_iter().map(self_test).collect::<Result<_>>()?,
        }))
    }

    /// The kernels whose results are not the right ones. The family has been loaded into the current context.
    pub(super) fn failures(&self, loaded: &Loaded, planner: &Planner, setup: &Setup) -> Result<Vec<&'static Gemm>> {
        let mut failed = Vec::new();
        for SelfTest {
            instance,
            weights,
            shape,
        } in &self.of_instances
        {
            let kernel = Kernel::Gemm(Division::whole(instance));
            let function = loaded.function(kernel.index()).ok_or_else(|| not_loaded(instance))?;
            let y = emulated::uncounted(|| run(setup, function, kernel, planner, &self.x, &**weights, *shape))?;
            let right = (0..TOKENS * shape.n()).map(|at| expected(at / shape.n(), at % shape.n()));
            if !y.into_iter().eq(right) {
                failed.push(*instance);
            }
        }
        Ok(failed)
    }
}

const UPLOAD: &str = "upload the operands of a self-test";

fn not_loaded(instance: &Gemm) -> Error {
    Error::NotLoaded {
        kernel: instance.name,
        family: instance.family.name(),
    }
}

/// The result of one kernel, poisoned before.
fn run(
    setup: &Setup,
    function: CUfunction,
    kernel: Kernel,
    planner: &Planner,
    x: &Allocation,
    weights: &dyn Stored,
    shape: Shape,
) -> Result<Vec<f32>> {
    let mut result = vec![f32::NAN; TOKENS * shape.n()];
    let y = setup.upload(UPLOAD, &result)?;
    let operands = Operands {
        x: x.address(),
        x_stride: COLUMNS,
        m: TOKENS,
        shape,
        weights: weights.weights(),
        row_major: None,
        y: Output::Fp32(y.address()),
    };
    if let Some(plan) = &planner.plan_with(&kernel, &operands.request())? {
        let queue = Queue {
            stream: setup.stream().cast(),
            overlap: Overlap::None,
        };
        // SAFETY: the function was loaded into the current context, whose memory the operands are; the copy below waits
        // for the launch on the same stream.
        unsafe { project::project(Launch { function, plan, queue }, &operands)? };
    }
    setup.download("read the result of a self-test", &y, &mut result)?;
    Ok(result)
}
