//! Trials of kernels that the driver's compiler may have got wrong.
//!
//! ptxas before 13.3 can give registers of a running `wgmma`'s first operand to something else, and it is part of the driver: what is
//! launched is not what was tested. So each kernel over packed units multiplies one small matrix when it is loaded. All values are whole
//! numbers and every sum is below 2²⁴, so there is one right result, to the last bit.

use super::{CUdeviceptr, Kernels, Output, Overlap, Product, Weights};
use crate::device::{Result, cust_error};
use crate::plan::{Division, Kernel, LeftOut, plan_with};
use crate::weights::{bf16 as packing, window12};
use crate::{Shape, bf16};
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy};
use hopper_cuda_driver::emulated;
use kernels_gpu::instances::{Format, Gemm, STARTS_AFTER, unit_gemms};
use kernels_gpu::layout::PALETTE;

/// Columns: several stages, so that registers are used again while the tensor cores are at work.
const COLUMNS: usize = 256;
/// Tokens: more than the kernels for few take.
const TOKENS: usize = 40;
/// Lacks the numbers 1 and -1, which are exceptions then.
const LACKING_ONE: [u8; PALETTE] = [0, 1, 2, 3, 64, 65, 66, 67];

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

fn upload<T: DeviceCopy>(values: &[T]) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::from_slice(values).map_err(|err| cust_error("upload what kernels are tried with", err))
}

/// Rows of all CTAs that share x.
fn rows_of_cluster(instance: &Gemm) -> usize {
    instance.sharing * instance.rows()
}

/// The operands in device memory. A kernel with fewer rows takes the first row blocks.
struct Operands {
    x: DeviceBuffer<u16>,
    bf16: DeviceBuffer<u16>,
    window12: DeviceBuffer<u8>,
    starts: DeviceBuffer<u64>,
    exceptions: DeviceBuffer<u64>,
    palette: [u32; 2],
    rows: usize,
}

impl Operands {
    fn new(rows: usize) -> Result<Self> {
        let (weights, shape) = (matrix(rows, weight), Shape::new(rows, COLUMNS)?);
        let packed = window12::pack_with(&weights, shape, LACKING_ONE)?;
        let exceptions: Vec<u64> = packed.exceptions().iter().map(|exception| exception.word()).collect();
        let end = [exceptions.len() as u64; STARTS_AFTER - 1];
        Ok(Operands {
            x: upload(bytemuck::cast_slice(&matrix(TOKENS, activation)))?,
            bf16: upload(bytemuck::cast_slice(&packing::pack(&weights, shape)?))?,
            window12: upload(packed.units())?,
            starts: upload(&[packed.starts(), &end].concat())?,
            exceptions: upload(&exceptions)?,
            palette: packed.palette_words(),
            rows,
        })
    }

    fn weights(&self, format: Format) -> Weights {
        match format {
            Format::Window12 => Weights::Window12 {
                units: self.window12.as_device_ptr().as_raw(),
                starts: self.starts.as_device_ptr().as_raw(),
                exceptions: self.exceptions.as_device_ptr().as_raw(),
                palette: self.palette,
            },
            _ => Weights::Bf16 {
                units: self.bf16.as_device_ptr().as_raw(),
            },
        }
    }

    /// Rows of which an instance multiplies as many as a cluster does.
    fn rows_for(&self, instance: &Gemm) -> usize {
        rows_of_cluster(instance).min(self.rows)
    }

    fn x(&self) -> CUdeviceptr {
        self.x.as_device_ptr().as_raw()
    }
}

/// The instances whose results are not the right ones.
pub(super) fn failures(kernels: &Kernels) -> Result<LeftOut> {
    let rows = unit_gemms().map(rows_of_cluster).max().unwrap_or(1);
    let right: Vec<f32> = (0..TOKENS * rows).map(|at| expected(at / rows, at % rows)).collect();
    let operands = Operands::new(rows)?;
    let mut left_out = LeftOut::NONE;
    for instance in unit_gemms() {
        let y = emulated::uncounted(|| run(kernels, &operands, instance))?;
        let of_instance = right.chunks(rows).flat_map(|row| &row[..operands.rows_for(instance)]);
        if !y.iter().eq(of_instance) {
            left_out.insert(instance);
        }
    }
    Ok(left_out)
}

/// The result of one instance, poisoned before.
fn run(kernels: &Kernels, operands: &Operands, instance: &'static Gemm) -> Result<Vec<f32>> {
    let shape = Shape::new(operands.rows_for(instance), COLUMNS)?;
    let kernel = Kernel::Gemm(Division::whole(instance));
    let mut result = vec![f32::NAN; TOKENS * shape.n()];
    let y = upload(&result)?;
    let product = Product {
        x: operands.x(),
        x_stride: COLUMNS,
        m: TOKENS,
        shape,
        weights: operands.weights(kernel.format()),
        row_major: None,
        y: Output::Fp32(y.as_device_ptr().as_raw()),
    };
    let plan = plan_with(&kernel, &product.request(), kernels.device())?;
    let plan = plan.ok_or_else(|| super::unknown(instance.name))?;
    // SAFETY: the kernels were loaded into the current context, whose memory the operands are; the copy below waits for the launch on the
    // default stream.
    unsafe { kernels.launch(&plan, &product, std::ptr::null_mut(), Overlap::None)? };
    y.copy_to(&mut result[..])
        .map_err(|err| cust_error("try a kernel", err))?;
    Ok(result)
}
