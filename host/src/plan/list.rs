//! Every instance with its verdict, as people read it.

use super::measured::{Measurement, Tables};
use super::{Case, Device, Kernel, Reason, Request, Verdict, Waves};
use std::fmt;

/// One instance on a [`List`]; a matrix product in the division that is taken, or else in its cheapest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The kernel.
    pub kernel: Kernel,
    /// What the model makes of it.
    pub verdict: Verdict,
    /// The measurement that counts before the model's cost.
    pub row: Option<&'static Measurement>,
    /// Whether it is the one that [`plan`](super::plan()) takes.
    pub chosen: bool,
}

impl Candidate {
    /// Microseconds per call, measured or else by the model, unless the kernel is rejected.
    pub fn us(&self) -> Option<f64> {
        let Verdict::Cost(cost) = self.verdict else { return None };
        Some(self.row.and_then(|row| row.us).unwrap_or(cost))
    }

    /// Why the kernel is rejected, if it is.
    pub fn reason(&self) -> Option<Reason> {
        match self.verdict {
            Verdict::Cost(_) => None,
            Verdict::Rejected(reason) => Some(reason),
        }
    }

    /// Where the verdict comes from: `measured`, `proposed` by a row that nobody has timed, `model`, or `rejected`.
    pub fn source(&self) -> &'static str {
        match (self.verdict, self.row) {
            (Verdict::Rejected(_), _) => "rejected",
            (_, Some(row)) if row.us.is_some() => "measured",
            (_, Some(_)) => "proposed",
            (_, None) => "model",
        }
    }

    /// The order of a list: what is taken, what could be, and what is rejected, first what is so by choice.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let us = |candidate: &Self| candidate.us().unwrap_or(f64::INFINITY);
        (other.chosen.cmp(&self.chosen))
            .then(us(self).total_cmp(&us(other)))
            .then(self.reason().cmp(&other.reason()))
    }

    /// Whether it says more about its instance than another division does.
    fn goes_before(&self, other: &Self) -> bool {
        let rank = |candidate: &Self| (candidate.chosen, candidate.row.is_some());
        match rank(self).cmp(&rank(other)) {
            std::cmp::Ordering::Equal => self.us().is_some_and(|us| other.us().is_none_or(|least| us < least)),
            order => order.is_gt(),
        }
    }
}

/// All compiled instances for a request: what is taken first, then what could be by its cost, then what is rejected.
/// `to_string` shows it, and only counts the kernels that are for something else.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// The request.
    pub request: Request,
    /// The device.
    pub device: Device,
    /// The instances; none where there are no tokens and so no launch.
    pub candidates: Vec<Candidate>,
}

impl List {
    /// The list for a request. Where [`plan`](super::plan()) refuses it, nothing on it is chosen.
    pub fn new(request: &Request, device: &Device) -> Self {
        Self::with_tables(request, device, Tables::current())
    }

    /// [`List::new`] with these tables of measurements.
    pub(super) fn with_tables(request: &Request, device: &Device, tables: Tables) -> Self {
        let mut list = List {
            request: *request,
            device: *device,
            candidates: Vec::new(),
        };
        if request.m == 0 {
            return list;
        }
        let case = Case::new(request, device, tables);
        let (chosen, row) = case.choice().ok().unzip();
        let row = row.flatten();
        // Rows for another number of tokens than that of the one that speaks for the choice did not take part in it.
        let row_of = |kernel: &Kernel| {
            let mut rows = tables
                .rows(request)
                .filter(|other| row.is_some_and(|row| row.m == other.m));
            rows.find(|row| row.kernel == *kernel)
        };
        for (kernel, verdict) in case.candidates() {
            let candidate = Candidate {
                kernel,
                verdict,
                row: row_of(&kernel),
                chosen: chosen == Some(kernel),
            };
            match list.candidates.last_mut() {
                Some(last) if last.kernel.name() == kernel.name() => {
                    if candidate.goes_before(last) {
                        *last = candidate;
                    }
                }
                _ => list.candidates.push(candidate),
            }
        }
        list.candidates.sort_by(Candidate::order);
        list
    }

    /// What [`plan`](super::plan()) takes, if it takes anything.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.chosen)
    }
}

/// Why kernels are rejected that are only counted where people read a list.
const OTHERS: [Reason; 2] = [Reason::Format, Reason::Op];

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        writeln!(f, "plan for {}", self.request)?;
        writeln!(
            f,
            "  on {} multiprocessors, {:.2} TB/s, {} MiB of L2; at one CTA on each, {} clusters of 8 at a time ({})",
            device.multiprocessors,
            device.stream * device.multiprocessors as f64 / 1e6,
            device.l2_bytes >> 20,
            device.clusters_at_a_time(8, 1),
            device.clusters
        )?;
        if self.candidates.is_empty() {
            return writeln!(f, "  no tokens, so no launch");
        }
        writeln!(f, "  {:>9}  {:<8}  instance", "µs", "by")?;
        let is_other = |candidate: &&Candidate| candidate.reason().is_some_and(|reason| OTHERS.contains(&reason));
        for candidate in self.candidates.iter().filter(|candidate| !is_other(candidate)) {
            let mark = if candidate.chosen { '*' } else { ' ' };
            let us = candidate.us().map_or("-".to_owned(), |us| format!("{us:.2}"));
            write!(f, "{mark} {us:>9}  {:<8}  ", candidate.source())?;
            if let Some(reason) = candidate.reason() {
                writeln!(f, "{}: {reason}", candidate.kernel.name())?;
                continue;
            }
            write!(f, "{}", candidate.kernel)?;
            if let Some(waves) = Waves::new(&candidate.kernel, &self.request, device) {
                write!(f, " in {waves}")?;
            }
            match candidate.row {
                None => writeln!(f)?,
                Some(row) => writeln!(
                    f,
                    " ({} on {}, {}, for {} tokens{})",
                    row.source,
                    row.gpu,
                    row.date,
                    row.m,
                    if row.us.is_some() { "" } else { "; not timed" }
                )?,
            }
        }
        for reason in OTHERS {
            let others = self
                .candidates
                .iter()
                .filter(|candidate| candidate.reason() == Some(reason));
            writeln!(
                f,
                "  {:>9}  {:<8}  each of {} others: {reason}",
                "-",
                "rejected",
                others.count()
            )?;
        }
        if self.chosen().is_none() {
            writeln!(f, "  no kernel serves it")?;
        }
        Ok(())
    }
}
