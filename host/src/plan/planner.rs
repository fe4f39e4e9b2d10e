//! Plans for one device, each made once and remembered.

use super::measured::Tables;
use super::{Case, Device, FEW_TOKENS, Kernel, Op, Plan, Request, Verdict, plan_from, plan_with};
use crate::instances::{Family, Format, Gemm};
use crate::{Result, Shape};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock};

/// Requests that are remembered, at most. A server sees some layers at some batch sizes: a few thousand requests.
const REMEMBERED: usize = 1 << 14;

/// Makes plans for one device and remembers them.
///
/// The tables of measurements are those of the moment in which the planner was made: no later table changes its plans.
#[derive(Debug)]
pub struct Planner {
    tables: Tables,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    device: Device,
    plans: HashMap<Request, Option<Plan>>,
}

/// All requests of one weight matrix: any x for a range of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The operation.
    pub op: Op,
    /// The weights' format.
    pub format: Format,
    /// The weights' shape.
    pub shape: Shape,
    /// Whether a row-major copy of the weights is kept: see [`Request::row_major`].
    pub row_major: bool,
    /// Tokens of a call. Calls with `m = 0` need no kernel and are always allowed.
    pub m: RangeInclusive<usize>,
}

impl Workload {
    /// The requests for `m` tokens: with rows of x that are 16-byte aligned, and with others.
    fn requests(&self, m: usize) -> [Request; 2] {
        [true, false].map(|x_aligned| Request {
            x_aligned,
            ..Request::new(self.op, self.format, self.shape, m).row_major(self.row_major)
        })
    }
}

impl Planner {
    /// A planner for a device, with the tables of measurements that are in use now.
    pub fn new(device: Device) -> Self {
        let state = State {
            device,
            plans: HashMap::new(),
        };
        Planner {
            tables: Tables::current(),
            state: RwLock::new(state),
        }
    }

    /// The device, without the kernels that were found to be miscompiled on it.
    pub fn device(&self) -> Device {
        self.read(|state| state.device)
    }

    /// The plan for a request, as [`plan`](super::plan()) makes it.
    pub fn plan(&self, request: &Request) -> Result<Option<Plan>> {
        match self.read(|state| state.plans.get(request).copied()) {
            Some(plan) => Ok(plan),
            None => self.new_plan(request),
        }
    }

    #[cold]
    fn new_plan(&self, request: &Request) -> Result<Option<Plan>> {
        let device = self.device();
        #[cfg(feature = "cuda")]
        super::explain::show(request, &device, self.tables);
        let plan = plan_from(request, &device, self.tables)?;
        self.write(|state| {
            // A kernel may have been found to be miscompiled since: a plan that could name it is not kept.
            if state.device == device {
                if state.plans.len() >= REMEMBERED {
                    state.plans.clear();
                }
                state.plans.insert(*request, plan);
            }
        });
        Ok(plan)
    }

    /// The launch of one given kernel for a request, as [`plan_with`] makes it.
    pub fn plan_with(&self, kernel: &Kernel, request: &Request) -> Result<Option<Plan>> {
        plan_with(kernel, request, &self.device())
    }

    /// Takes kernels out of every later plan: those whose self-test failed on the device.
    pub fn exclude(&self, miscompiled: impl IntoIterator<Item = &'static Gemm>) {
        self.write(|state| {
            for instance in miscompiled {
                state.device.miscompiled.insert(instance);
                state.plans.clear();
            }
        });
    }

    /// The families of all kernels that plans for a workload can name.
    ///
    /// Up to [`FEW_TOKENS`] tokens every plan is made. Beyond, whether a kernel may serve does not depend on the number
    /// of tokens, so one number stands for all, and every kernel that could be the cheapest counts.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](super::plan()), where no request of the workload can be served.
    pub fn families(&self, workload: &Workload) -> Result<BTreeSet<Family>> {
        let (start, end, device) = (*workload.m.start(), *workload.m.end(), self.device());
        let mut families = BTreeSet::new();
        let mut refused = None;
        for m in start.max(1)..=end.min(FEW_TOKENS) {
            for request in workload.requests(m) {
                // Not remembered: a plan is shown, where that is asked for, when a call needs it.
                match plan_from(&request, &device, self.tables) {
                    Ok(plan) => families.extend(plan.map(|plan| plan.kernel.family())),
                    Err(err) => refused = Some(err),
                }
            }
        }
        if end > FEW_TOKENS && start <= end {
            for request in workload.requests(start.max(FEW_TOKENS + 1)) {
                let case = Case::new(&request, &device, self.tables);
                let able = case.suited().filter(|(_, verdict)| matches!(verdict, Verdict::Cost(_)));
                families.extend(able.map(|(kernel, _)| kernel.family()));
                if let Err(err) = case.choice() {
                    refused = Some(err);
                }
            }
        }
        match refused {
            Some(err) if families.is_empty() => Err(err),
            _ => Ok(families),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    fn request(m: usize) -> Request {
        Request::new(Op::Project, Format::Bf16, Shape::new(4096, 8192).unwrap(), m)
    }

    fn workload(m: RangeInclusive<usize>) -> Workload {
        let Request { op, format, shape, .. } = request(1);
        Workload {
            op,
            format,
            shape,
            row_major: false,
            m,
        }
    }

    /// What a decoder compiles is what it waits for at its first start.
    #[test]
    fn a_decoder_needs_the_families_for_few_tokens_alone() {
        let families = [
            (Format::Bf16, [Family::GemvBf16, Family::GemmBf16Units]),
            (Format::Window12, [Family::GemvWindow12, Family::GemmWindow12]),
        ];
        let sizes = [
            1, 100, 256, 1024, 2304, 4096, 5120, 8192, 14_336, 20_480, 28_672, 129_280,
        ];
        for (format, allowed) in families {
            for multiprocessors in [132, 114, 78] {
                let planner = Planner::new(Device {
                    multiprocessors,
                    ..Device::H200
                });
                for (n, k) in sizes.iter().flat_map(|&n| sizes.map(|k| (n, k))) {
                    let workload = Workload {
                        format,
                        shape: Shape::new(n, k).unwrap(),
                        ..workload(1..=FEW_TOKENS)
                    };
                    let needed = planner.families(&workload).unwrap();
                    assert!(
                        needed.iter().all(|family| allowed.contains(family)),
                        "{n} × {k}: {needed:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_remembered_plan_is_the_one_that_was_made() {
        let planner = Planner::new(Device::H200);
        for m in [0, 1, 8, 33, 8, 1000, 0] {
            let expected = plan(&request(m), &Device::H200).unwrap();
            assert_eq!(planner.plan(&request(m)).unwrap(), expected, "m = {m}");
            let unaligned = request(m).x(2, 8192);
            let expected = plan(&unaligned, &Device::H200).unwrap();
            assert_eq!(planner.plan(&unaligned).unwrap(), expected, "m = {m}");
        }
    }

    #[test]
    fn no_more_plans_are_kept_than_there_is_room_for() {
        let planner = Planner::new(Device::H200);
        for m in 1..REMEMBERED + 10 {
            planner.state.write().unwrap().plans.insert(request(m), None);
        }
        planner.plan(&request(8)).unwrap();
        planner.plan(&request(REMEMBERED + 10)).unwrap();
        assert!(planner.read(|state| state.plans.len()) <= REMEMBERED);
    }

    #[test]
    fn a_miscompiled_kernel_leaves_the_plans_that_named_it() {
        let planner = Planner::new(Device::H200);
        let Some(Plan {
            kernel: Kernel::Gemm(division),
            ..
        }) = planner.plan(&request(128)).unwrap()
        else {
            panic!("128 tokens are a matrix product");
        };
        planner.exclude([division.instance]);
        let plan = planner.plan(&request(128)).unwrap().unwrap();
        assert_ne!(plan.name(), division.instance.name);
    }

    #[test]
    fn a_workload_has_the_families_of_all_its_plans() {
        let planner = Planner::new(Device::H200);
        for range in [1..=1, 1..=32, 1..=300, 40..=300, 0..=0] {
            let families = planner.families(&workload(range.clone())).unwrap();
            for m in range.clone() {
                for request in [request(m), request(m).x(2, 8192)] {
                    let plan = planner.plan(&request).unwrap();
                    assert!(
                        plan.is_none_or(|plan| families.contains(&plan.kernel.family())),
                        "m = {m}"
                    );
                }
            }
            assert_eq!(families.is_empty(), range == (0..=0));
        }
    }
}
