//! What the behaviour tests in `tests/` share: an open device, random values, buffers between guard words, error
//! bounds.

pub mod chain;
pub mod driver;
pub mod exceptions;
pub mod gate;
pub mod product;
pub mod route;
pub mod router;
pub mod router_call;
pub mod statements;

use approx::abs_diff_ne;
use hopper_proj::formats::{PackFormat, Weights};
use hopper_proj::instances::{Family, Format, Gemv};
use hopper_proj::plan::Kernel;
use hopper_proj::raw::{self, Overlap};
use hopper_proj::{
    Buffer, DriverChoice, Element, Engine, EngineOptions, PrepareOptions, Projection, Result, RowMajorCopy, Shape,
    Stream, bf16, reference,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::sync::OnceLock;

/// Repeats a run: the number that a failed test has printed.
pub const SEED_VARIABLE: &str = "HOPPER_PROJ_TEST_SEED";

/// A file of the test data: in the folder that a variable names, else in this package's own.
pub fn data(name: &str) -> std::path::PathBuf {
    let own = || concat!(env!("CARGO_MANIFEST_DIR"), "/data").into();
    let named = std::env::var_os("HOPPER_PROJ_TEST_DATA").filter(|named| !named.is_empty());
    let folder: std::path::PathBuf = named.map_or_else(own, Into::into);
    folder.join(name)
}

/// Every byte of unwritten memory.
pub const UNWRITTEN: u8 = 0xff;
/// An unwritten BF16 value: a NaN that no kernel produces.
pub const POISON: u16 = u16::from_ne_bytes([UNWRITTEN; 2]);
/// Poisoned values before and after every buffer. Odd, so that `y` starts at no multiple of 4 bytes.
pub const GUARD: usize = 37;

/// Random values, others in every run. The seed is printed, which cargo shows where a test fails.
#[derive(Debug)]
pub struct Values(StdRng);

impl Values {
    /// A source of values for one test.
    pub fn fresh() -> Self {
        let seed = match std::env::var(SEED_VARIABLE) {
            Ok(given) if !given.is_empty() => given.parse().expect("a seed is a number"),
            _ => rand::random(),
        };
        println!("{SEED_VARIABLE}={seed} repeats this run");
        Values(StdRng::seed_from_u64(seed))
    }

    /// The same values in every run.
    pub fn fixed(seed: u64) -> Self {
        Values(StdRng::seed_from_u64(seed))
    }

    /// `len` values between -1 and 1.
    pub fn bf16(&mut self, len: usize) -> Vec<bf16> {
        (0..len)
            .map(|_| bf16::from_f32(self.0.random_range(-1.0..1.0)))
            .collect()
    }

    /// `len` values of 24 significant bits between -1 and 1.
    pub fn fp32(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.0.random_range(-1.0f32..1.0)).collect()
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end.max(1))
    }

    /// `len` words of any bits.
    pub fn words(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.0.random()).collect()
    }
}

/// Options for calls of any number of tokens.
pub fn any_tokens() -> PrepareOptions {
    PrepareOptions::tokens(1..=usize::MAX)
}

/// BF16 weights on the device, for any number of tokens.
pub fn prepare(engine: &Engine, weights: &[bf16], shape: Shape) -> Result<Projection> {
    engine.prepare(Weights::bf16(weights, shape)?, &any_tokens())
}

/// [`prepare`] with a row-major copy.
pub fn prepare_row_major(engine: &Engine, weights: &[bf16], shape: Shape) -> Result<Projection> {
    engine.prepare(
        Weights::bf16(weights, shape)?,
        &any_tokens().row_major(RowMajorCopy::Keep),
    )
}

/// An open device and a stream on it.
#[derive(Debug)]
pub struct Device {
    /// The engine, current on the thread that asked for the device.
    pub engine: Engine,
    /// A stream of its own.
    pub stream: Stream,
}

impl Device {
    /// The driver that the run has: as `HOPPER_PROJ_DEVICE` says, else a GPU where there is one, else the emulated
    /// device.
    pub fn of_the_run() -> Self {
        Self::open(EngineOptions::from_environment_or(DriverChoice::Auto).expect("the variable names a driver"))
    }

    /// The emulated device, whatever the run has.
    pub fn emulated() -> Self {
        Self::open(EngineOptions::on(DriverChoice::Emulated))
    }

    fn open(options: EngineOptions) -> Self {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        let engine = ENGINE.get_or_init(|| Engine::new(options).expect("a device opens"));
        engine.make_current().expect("a context can be made current");
        let stream = engine.stream().expect("a stream");
        Device {
            engine: engine.clone(),
            stream,
        }
    }

    /// Weights in a format of choice, on the device.
    pub fn prepare(&self, format: Format, weights: &[bf16], shape: Shape) -> Projection {
        let format = match format {
            Format::Bf16 => PackFormat::Bf16,
            Format::Window12 => PackFormat::Window12,
            Format::Bf16x2 | Format::Bf16x3 => panic!("{} weights are for routers", format.name()),
        };
        let weights = Weights::bf16(weights, shape).expect("as many weights as the shape says");
        self.engine
            .prepare(weights, &any_tokens().format(format))
            .expect("weights go to the device")
    }

    /// `values` in device memory, behind `lead` NaNs and before others, which a kernel must not let into its results.
    pub fn fenced(&self, values: &[bf16], lead: usize) -> Buffer<bf16> {
        let nan = [bf16::NAN; GUARD];
        let fenced = [&nan[..lead], values, &nan].concat();
        self.engine.upload(&fenced).expect("an upload")
    }

    /// Runs one projection and returns `y`, having made sure that nothing around it was written.
    ///
    /// `x` starts `lead` values behind the start of an allocation. `instance` runs where it is given, else what `plan`
    /// chooses.
    pub fn project(
        &self,
        instance: Option<&'static Gemv>,
        projection: &Projection,
        x: &[bf16],
        lead: usize,
        m: usize,
    ) -> Result<Vec<bf16>> {
        let x = self.fenced(x, lead);
        let x = x.slice(lead..x.len() - GUARD)?;
        let len = m * projection.shape().n();
        let mut whole = self.engine.upload(&vec![bf16::from_bits(POISON); len + 2 * GUARD])?;
        let y = whole.slice_mut(GUARD..GUARD + len)?;
        match instance {
            None => self.engine.project(projection, x, m, y, &self.stream)?,
            Some(instance) => {
                let plan = self.engine.plan_by(&Kernel::Gemv(instance), projection, x, m)?;
                let overlap = Overlap::Programmatic;
                self.engine
                    .project_as(plan.as_ref(), projection, x, m, y, &self.stream, overlap)?;
            }
        }
        let whole = self.engine.download(&whole, &self.stream)?;
        let untouched = |values: &[bf16]| values.iter().all(|v| v.to_bits() == POISON);
        assert!(
            untouched(&whole[..GUARD]) && untouched(&whole[GUARD + len..]),
            "values around y were written"
        );
        let y = whole[GUARD..GUARD + len].to_vec();
        assert!(
            y.iter().all(|v| v.to_bits() != POISON),
            "a value of y was not written, or is a NaN that no instruction makes"
        );
        Ok(y)
    }
}

/// Where the first value of an `x` must not and need not lie for an instance: wide loads want multiples of 16 bytes,
/// narrow ones take any address.
pub fn lead(instance: &Gemv) -> usize {
    if instance.x_values == 8 { 8 } else { 1 }
}

/// A shape that the test itself has chosen.
pub fn shape(n: usize, k: usize) -> Shape {
    Shape::new(n, k).expect("a shape within bounds")
}

/// Unwritten memory for so many values.
pub fn poisoned(len: usize) -> Buffer<bf16> {
    there(&vec![bf16::from_bits(POISON); len])
}

/// Values in the memory of the run's device.
pub fn there<T: Element>(values: &[T]) -> Buffer<T> {
    Device::of_the_run().engine.upload(values).expect("memory")
}

/// The values that device memory holds; what writes them has been waited for.
pub fn here<T: Element>(values: &Buffer<T>) -> Vec<T> {
    let device = Device::of_the_run();
    device.engine.download(values, &device.stream).expect("a download")
}

/// The bits of values, for exact comparisons.
pub fn bits(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Holds finite results against FP64, as a whole and one by one; says what is wrong.
///
/// One by one, a result may be off by half a unit in the last of BF16's eight places, and by what FP32 sums may lose
/// before that: each of the at most K/16 + 64 additions that a term goes through, one 2⁻²² of the sum of all
/// magnitudes, which leaves room for tensor cores that cut bits off instead of rounding.
pub fn check(y: &[bf16], x: &[bf16], w: &[bf16], shape: Shape, m: usize) -> std::result::Result<(), String> {
    let exact = reference::project(x, w, shape, m).map_err(|err| err.to_string())?;
    let magnitudes =
        |values: &[bf16]| -> Vec<bf16> { values.iter().map(|v| bf16::from_f32(v.to_f32().abs())).collect() };
    let total = reference::project(&magnitudes(x), &magnitudes(w), shape, m).map_err(|err| err.to_string())?;
    let steps = (shape.k().div_ceil(16) + 64) as f64;
    for (at, ((y, r), s)) in y.iter().zip(&exact).zip(&total).enumerate() {
        let accumulated = steps * s * 2f64.powi(-22);
        let allowed = (r.abs() + accumulated) * 2f64.powi(-8) + accumulated + f64::from(f32::MIN_POSITIVE);
        // Not equal where y is NaN.
        if abs_diff_ne!(y.to_f64(), *r, epsilon = allowed) {
            let (token, row) = (at / shape.n(), at % shape.n());
            return Err(format!(
                "{shape}, m = {m}: y[{token}, {row}] is {y}, exactly {r}: off by {:e}, of {allowed:e} allowed",
                (y.to_f64() - r).abs()
            ));
        }
    }
    // A handful of results can cancel to almost nothing, beside which no error is small.
    let error = reference::relative_error(y, &exact);
    if y.len() == exact.len() && (error <= reference::TOLERANCE || y.len() < 16) {
        Ok(())
    } else {
        Err(format!(
            "{shape}, m = {m}: {} results, relative error {error:e}",
            y.len()
        ))
    }
}

/// What stands before each kernel in the shipped PTX.
const EACH: &str = "\t// .globl\t";

/// The shipped PTX with these of its kernels alone, which are much sooner parsed than all.
pub fn shipped(kernels: &[&str]) -> String {
    let wanted = |part: &&str| kernels.iter().any(|name| part.starts_with(&format!("{name}\n")));
    let kept: Vec<&str> = parts().filter(wanted).collect();
    assert_eq!(kept.len(), kernels.len(), "the PTX has each of {kernels:?}");
    module(kept.into_iter())
}

/// All of the shipped PTX, as one module.
pub fn shipped_whole() -> String {
    module(parts())
}

/// These kernels as one module.
fn module<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let header = raw::ptx(Family::GemvBf16).split(EACH).next().unwrap_or_default();
    parts.fold(header.to_owned(), |text, part| text + EACH + part)
}

/// The text of each shipped kernel, from its name on.
fn parts() -> impl Iterator<Item = &'static str> {
    Family::ALL
        .into_iter()
        .flat_map(|family| raw::ptx(family).split(EACH).skip(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_sees_one_wrong_result() {
        let (mut values, shape, m) = (Values::fixed(7), shape(24, 130), 3);
        let (w, x) = (values.bf16(24 * 130), values.bf16(3 * 130));
        let exact = reference::project(&x, &w, shape, m).unwrap();
        let right: Vec<bf16> = exact.iter().map(|&v| bf16::from_f64(v)).collect();
        assert_eq!(check(&right, &x, &w, shape, m), Ok(()));
        for at in 0..right.len() {
            let mut wrong = right.clone();
            for bits in [right[at].to_bits() + 8, right[at].to_bits() - 8, POISON, 0x7f80] {
                wrong[at] = bf16::from_bits(bits);
                assert!(check(&wrong, &x, &w, shape, m).is_err(), "{at}: {bits:#x}");
            }
        }
        assert!(check(&right[1..], &x, &w, shape, m).is_err());
    }
}
