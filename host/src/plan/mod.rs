//! From a shape to a kernel instance and its launch: pure functions over tables, with no device in sight.
//!
//! For an operation, a format of weights, a shape, a number of tokens and a [`Device`], every compiled instance is
//! either rejected with a [`Reason`] or given a cost in microseconds. Where the shape and the batch size were
//! [measured], the fastest instance is taken. Elsewhere a small model of the device gives the costs: bytes over
//! bandwidth, waves of CTAs, the overhead of a call; and the cheapest wins, of two equally cheap ones the one that
//! stands first in the table of instances. [`List`] shows all of that, and [`plan`](plan()) is the one choice that
//! every call makes: up to 32 tokens mostly a GEMV, beyond a matrix product, over row-major weights where these are
//! kept, else over the packed ones; and where x lies so that no product can load it, a GEMV that walks the tokens.

mod clusters;
mod device;
#[cfg(feature = "cuda")]
pub mod explain;
mod gemm;
mod gemv;
mod kernel;
mod list;
pub mod measured;
mod planner;
mod reason;
mod traffic;
mod workspace;

pub use clusters::{Clusters, Waves};
pub use device::{Device, DriverFacts, Miscompiled};
pub use gemm::MAX_SLICES;
pub use kernel::{Division, FORMATS, Kernel, Op, Plan};
pub use list::{Candidate, List};
pub use planner::{Planner, Workload};
pub use reason::Reason;
pub use workspace::{WorkspaceSize, route_workspace};

use crate::{Error, Result, Shape};
use kernels_gpu::instances::{Format, Gemm, Gemv, gemms, gemvs, routes};
use measured::{Measurement, Tables};
use std::fmt;

/// Up to so many tokens, a GEMV reads every weight once.
pub const FEW_TOKENS: usize = 32;

/// Where rows of x start that 16-byte loads and tensor copies take, in bytes.
pub(crate) const ROW_ALIGN: u64 = 16;
/// How far apart rows of x may be that tensor copies take, in bytes.
const MAX_STRIDE: u64 = 1 << 40;

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// The weights' format.
    pub format: Format,
    /// The weights' shape.
    pub shape: Shape,
    /// Tokens: rows of x.
    pub m: usize,
    /// Whether every row of x starts at a multiple of 16 bytes; see [`Request::x`].
    pub x_aligned: bool,
    /// Whether a row-major copy of the weights is kept, for matrix products. A router whose results must not depend on
    /// the tokens around them has none: GEMVs add up a token's logits in the same order always.
    pub row_major: bool,
}

impl Request {
    /// A request for rows of x one after the other from a multiple of 16 bytes on, and weights that are packed alone.
    pub fn new(op: Op, format: Format, shape: Shape, m: usize) -> Self {
        let request = Request {
            op,
            format,
            shape,
            m,
            x_aligned: true,
            row_major: false,
        };
        request.x(0, shape.k())
    }

    /// The request for an `x` that starts at this device address, its rows `stride` elements apart.
    #[must_use]
    pub fn x(self, address: u64, stride: usize) -> Self {
        let bytes = (stride as u64).saturating_mul(2);
        let x_aligned = address.is_multiple_of(ROW_ALIGN) && bytes.is_multiple_of(ROW_ALIGN) && bytes < MAX_STRIDE;
        Request { x_aligned, ..self }
    }

    /// The request where a row-major copy of the weights is kept, or is not.
    #[must_use]
    pub fn row_major(self, row_major: bool) -> Self {
        Request { row_major, ..self }
    }

    /// Whether all of x, up to the last columns, can be loaded in pieces of 16 bytes.
    fn x_wide(&self) -> bool {
        self.x_aligned && self.shape.k().is_multiple_of(gemv::WIDE_X)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = if self.x_aligned { "16-byte" } else { "2-byte" };
        write!(
            f,
            "{} {} {} weights{} at m = {} with {rows} aligned rows of x",
            self.op.name(),
            self.shape,
            self.format.name(),
            if self.row_major { ", row-major too," } else { "" },
            self.m
        )
    }
}

/// What is made of one kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It can serve the request, by the model in about this many microseconds.
    Cost(f64),
    /// It cannot, or should not.
    Rejected(Reason),
}

/// Chooses the kernel and the launch for a request. `m = 0` has no launch and gets none.
pub fn plan(request: &Request, device: &Device) -> Result<Option<Plan>> {
    plan_from(request, device, Tables::current())
}

/// [`plan`](plan()) with these tables of measurements.
fn plan_from(request: &Request, device: &Device, tables: Tables) -> Result<Option<Plan>> {
    if request.m == 0 {
        return Ok(None);
    }
    let (kernel, _) = Case::new(request, device, tables).choice()?;
    launch_of(kernel, request).map(Some)
}

/// The launch of one given kernel for a request, whether or not [`plan`](plan()) would choose it, as long as it gives
/// the right result.
pub fn plan_with(kernel: &Kernel, request: &Request, device: &Device) -> Result<Option<Plan>> {
    if request.m == 0 {
        return Ok(None);
    }
    let unknown = (!kernel.is_compiled()).then_some(Reason::Unknown);
    match unknown.or_else(|| Case::new(request, device, Tables::current()).unfit(kernel)) {
        Some(Reason::Grid) => Err(too_large(kernel, request)),
        Some(reason) => Err(refused(request, format!("{} {reason}", kernel.name()))),
        None => launch_of(*kernel, request).map(Some),
    }
}

/// Every kernel that can and should serve a request, in every division that is considered, the cheapest by the model
/// first.
pub fn kernels(request: &Request, device: &Device) -> Vec<Kernel> {
    if request.m == 0 {
        return Vec::new();
    }
    let case = Case::new(request, device, Tables::current());
    let costs = case.candidates().filter_map(|(kernel, verdict)| match verdict {
        Verdict::Cost(cost) => Some((kernel, cost)),
        Verdict::Rejected(_) => None,
    });
    let mut costs: Vec<_> = costs.collect();
    costs.sort_by(|a, b| a.1.total_cmp(&b.1));
    costs.into_iter().map(|(kernel, _)| kernel).collect()
}

/// The projection for few tokens of that name.
pub fn instance(name: &str) -> Option<&'static Gemv> {
    gemvs().find(|instance| instance.name == name)
}

fn launch_of(kernel: Kernel, request: &Request) -> Result<Plan> {
    Plan::of(kernel, request).map_err(|_| too_large(&kernel, request))
}

fn too_large(kernel: &Kernel, request: &Request) -> Error {
    Error::Grid {
        n: request.shape.n(),
        m: request.m,
        instance: kernel.name(),
    }
}

fn refused(request: &Request, reason: String) -> Error {
    Error::NoInstance {
        request: request.to_string(),
        reason,
    }
}

/// A request on a device, with what the verdicts on all kernels have in common.
struct Case<'a> {
    request: &'a Request,
    device: &'a Device,
    tables: Tables,
    /// Whether some matrix product can serve it.
    product: bool,
    /// Whether one over row-major weights can.
    by_rows: bool,
    /// Tokens at a time of the GEMVs that suit it.
    tokens: Option<usize>,
}

impl<'a> Case<'a> {
    fn new(request: &'a Request, device: &'a Device, tables: Tables) -> Self {
        let mut case = Case {
            request,
            device,
            tables,
            product: false,
            by_rows: false,
            tokens: gemv::suitable_tokens(request),
        };
        for instance in case.gemms() {
            let fits = case.unfit(&Kernel::Gemm(Division::whole(instance))).is_none();
            case.product |= fits;
            case.by_rows |= fits && instance.loads.reads_rows();
        }
        case
    }

    /// Why a kernel cannot serve the request, if it cannot.
    fn unfit(&self, kernel: &Kernel) -> Option<Reason> {
        let request = self.request;
        if kernel.op() != request.op {
            return Some(Reason::Op);
        }
        if kernel.format() != request.format {
            return Some(Reason::Format);
        }
        let reason = match kernel {
            Kernel::Gemv(instance) => gemv::unfit(instance, request),
            Kernel::Gemm(division) => {
                gemm::unfit(division.instance, request, self.device).or_else(|| gemm::unfit_division(division, request))
            }
        };
        let too_large = || {
            kernel
                .grid(request.m, request.shape.n())
                .is_none()
                .then_some(Reason::Grid)
        };
        reason.or_else(too_large)
    }

    fn verdict(&self, kernel: &Kernel) -> Verdict {
        let (request, device) = (self.request, self.device);
        let unwise = || match kernel {
            Kernel::Gemv(instance) => gemv::unwise(instance, request, self.product, self.tokens),
            Kernel::Gemm(division) => gemm::unwise(division, request, self.by_rows),
        };
        match self.unfit(kernel).or_else(unwise) {
            Some(reason) => Verdict::Rejected(reason),
            None => Verdict::Cost(match kernel {
                Kernel::Gemv(instance) => gemv::cost(instance, request, device),
                Kernel::Gemm(division) => gemm::cost(division, request, device),
            }),
        }
    }

    /// Every compiled kernel with its verdict, in the order of their tables; matrix products in every division that is
    /// considered, or undivided where all are rejected for one reason.
    fn candidates(&self) -> impl Iterator<Item = (Kernel, Verdict)> {
        let few = gemvs().chain(routes()).map(|instance| {
            let kernel = Kernel::Gemv(instance);
            (kernel, self.verdict(&kernel))
        });
        few.chain(gemms().flat_map(|instance| self.divisions(instance)))
    }

    /// The candidates that are for the request's operation and format: all that a choice looks at.
    fn suited(&self) -> impl Iterator<Item = (Kernel, Verdict)> {
        let few = gemv::instances(self.request).iter().map(|instance| {
            let kernel = Kernel::Gemv(instance);
            (kernel, self.verdict(&kernel))
        });
        few.chain(self.gemms().flat_map(|instance| self.divisions(instance)))
    }

    /// The matrix products for the request's operation and format.
    fn gemms(&self) -> impl Iterator<Item = &'static Gemm> + use<> {
        let (op, format) = (self.request.op, self.request.format);
        gemms().filter(move |instance| instance.op == op && Kernel::Gemm(Division::whole(instance)).format() == format)
    }

    fn divisions(&self, instance: &'static Gemm) -> impl Iterator<Item = (Kernel, Verdict)> {
        let whole = self.verdict(&Kernel::Gemm(Division::whole(instance)));
        let considered = match whole {
            Verdict::Cost(_) => usize::MAX,
            Verdict::Rejected(_) => 1,
        };
        gemm::divisions(instance, self.request.op)
            .take(considered)
            .map(|division| {
                let kernel = Kernel::Gemm(division);
                (kernel, self.verdict(&kernel))
            })
    }

    /// The kernel that is taken, and the row of a table that speaks for it, if one does.
    fn choice(&self) -> Result<(Kernel, Option<&'static Measurement>)> {
        let usable =
            |row: &&Measurement| row.kernel.is_compiled() && matches!(self.verdict(&row.kernel), Verdict::Cost(_));
        if let Some(row) = self.tables.rows(self.request).find(usable) {
            return Ok((row.kernel, Some(row)));
        }
        let mut best: Option<(Kernel, f64)> = None;
        let mut beyond = None;
        for (kernel, verdict) in self.suited() {
            match verdict {
                Verdict::Cost(cost) if best.is_none_or(|(_, least)| cost < least) => best = Some((kernel, cost)),
                Verdict::Rejected(Reason::Grid) => beyond = Some(kernel),
                _ => {}
            }
        }
        match (best, beyond) {
            (Some((kernel, _)), _) => Ok((kernel, None)),
            (None, Some(kernel)) => Err(too_large(&kernel, self.request)),
            (None, None) if gemv::instances(self.request).is_empty() => {
                let what = match self.request.op {
                    Op::Project => "projection",
                    Op::Route => "router",
                };
                Err(refused(self.request, format!("no {what} reads weights of this format")))
            }
            (None, None) => Err(refused(self.request, "every compiled instance is rejected".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod record_tests;

#[cfg(test)]
mod cost_tests;
