//! Measurements: how fast an instance was, for which shape, on which GPU. They are data: a table that is part of the
//! library, and one of the user's own, which goes before it.
//!
//! A table is text, a row a line, with the columns `gpu,date,source,op,format,n,k,m,instance,cluster,slices,us`:
//!
//! | column | meaning |
//! |---|---|
//! | `gpu`, `date`, `source` | where the row comes from: the GPU's name, the day as YYYY-MM-DD, what made it |
//! | `op` | `project` or `route` |
//! | `format` | the weights' format, as [`Format::name`] spells it |
//! | `n`, `k`, `m` | rows and columns of W, tokens |
//! | `instance` | the kernel, as `hopper-proj info` spells it |
//! | `cluster`, `slices` | for matrix products, CTAs per cluster and slices of K; empty for others: the name says it |
//! | `us` | microseconds per call; empty where nobody has timed it: the row is then a proposal |
//!
//! Fields hold no commas and are not quoted. Empty lines and lines that start with `#` say nothing. The first other
//! line names the columns.
//!
//! A request takes the rows of its operation, format and shape with the next number of tokens at or above its own; of
//! these the fastest that fits it, and one without a time only where there is none with one. Products for more than 32
//! tokens do not count for 32 or fewer.

mod text;

use super::{FEW_TOKENS, Kernel, Op, Request};
use crate::instances::Format;
use crate::io::FileError;
use crate::{Error, Result, Shape};
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

/// Names a file with a table that goes before the library's own.
pub const TABLE_VARIABLE: &str = "HOPPER_PROJ_PLAN";

/// Bytes of a table's text, at most.
const LONGEST: u64 = 16 << 20;

static BUILT_IN: LazyLock<Table> =
    LazyLock::new(|| Table::parse("the library's own measurements", include_str!("built_in.csv")).unwrap_or_default());
static OWN: OnceLock<Table> = OnceLock::new();

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The GPU's name.
    pub gpu: String,
    /// The day, as YYYY-MM-DD.
    pub date: String,
    /// What made the row.
    pub source: String,
    /// The operation.
    pub op: Op,
    /// The weights' format.
    pub format: Format,
    /// The weights' shape.
    pub shape: Shape,
    /// Tokens.
    pub m: usize,
    /// The kernel.
    pub kernel: Kernel,
    /// Microseconds per call, if it was timed.
    pub us: Option<f64>,
}

/// What a request and the rows for it have in common.
type Key = (Op, Format, Shape);

/// The order of a table: rows of one key stand together, by tokens and then by time.
fn order((op, format, shape): Key) -> (Op, Format, usize, usize) {
    (op, format, shape.n(), shape.k())
}

impl Measurement {
    fn order(&self) -> (Op, Format, usize, usize) {
        order((self.op, self.format, self.shape))
    }
}

/// Measurements, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    rows: Vec<Measurement>,
}

impl Table {
    /// A table of these rows, in whatever order.
    pub fn new(mut rows: Vec<Measurement>) -> Self {
        // Rows that nobody has timed come last among their like. The order of equals is kept.
        let time = |row: &Measurement| row.us.unwrap_or(f64::INFINITY);
        rows.sort_by(|a, b| {
            let keys = (a.order(), a.m).cmp(&(b.order(), b.m));
            keys.then_with(|| time(a).total_cmp(&time(b)))
        });
        Table { rows }
    }

    /// Reads a table's text; `from` is what errors call it. [`to_string`](ToString::to_string) writes it.
    pub fn parse(from: &str, text: &str) -> Result<Self> {
        text::parse(from, text).map(Table::new)
    }

    /// Reads a table from a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |source| FileError::Io {
            verb: "read",
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        let from = path.display().to_string();
        if bytes.len() as u64 > LONGEST {
            return Err(text::fault(
                &from,
                1,
                format!("the file is longer than {LONGEST} bytes"),
            ));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Table::parse(&from, text),
            Err(err) => {
                let line = 1 + bytes[..err.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
                Err(text::fault(&from, line, "it is not UTF-8 text".to_owned()))
            }
        }
    }

    /// The rows, in the order of operation, format, shape, tokens and time.
    pub fn rows(&self) -> &[Measurement] {
        &self.rows
    }

    /// The rows of one operation, format and shape.
    fn of(&self, key: Key) -> &[Measurement] {
        let start = self.rows.partition_point(|row| row.order() < order(key));
        let end = self.rows.partition_point(|row| row.order() <= order(key));
        &self.rows[start..end]
    }

    /// The rows for a request, in the order in which they count: those of the next number of tokens first. Beyond the
    /// measured numbers of tokens, what was measured for the most of them can walk.
    pub(super) fn rows_for(&self, request: &Request) -> impl Iterator<Item = &Measurement> {
        let rows = self.of((request.op, request.format, request.shape));
        let from = rows.partition_point(|row| row.m < request.m);
        // Who has timed products for a prefill has not compared them with what a decode step would take.
        let of_its_kind = move |row: &&Measurement| {
            row.m <= FEW_TOKENS || request.m > FEW_TOKENS || matches!(row.kernel, Kernel::Gemv(_))
        };
        let walks = rows.chunk_by(|a, b| a.m == b.m).rev().flatten();
        let walks = walks.filter(|row| matches!(row.kernel, Kernel::Gemv(_)));
        rows[from..].iter().filter(of_its_kind).chain(walks)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(&self.rows, f)
    }
}

/// The table that is part of the library.
pub fn built_in() -> &'static Table {
    &BUILT_IN
}

/// The user's own table, if there is one: of [`use_table`], or of [`TABLE_VARIABLE`].
pub fn own() -> Option<&'static Table> {
    OWN.get()
}

/// Has the plans of every engine that is opened later look here first. The first table stands: another is refused.
pub fn use_table(table: Table) -> Result<()> {
    OWN.set(table).map_err(|_| Error::SecondTable)
}

/// [`use_table`] with the file that [`TABLE_VARIABLE`] names, if it names one and there is no table yet. Loading the
/// kernels does this.
pub fn use_environment() -> Result<()> {
    let Some(path) = std::env::var_os(TABLE_VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    if OWN.get().is_none() {
        // If another thread was sooner, its table is this one or the caller's own.
        let _ = OWN.set(Table::read(path).map_err(|fault| Error::VariableTable {
            name: TABLE_VARIABLE,
            fault: Box::new(fault),
        })?);
    }
    Ok(())
}

/// The tables of one moment, in the order in which they are asked: the user's own, then the library's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables {
    own: Option<&'static Table>,
    built_in: &'static Table,
}

impl Tables {
    /// Those in use now.
    pub(super) fn current() -> Self {
        Tables {
            own: own(),
            built_in: built_in(),
        }
    }

    /// The rows for a request, in the order in which they count.
    pub(super) fn rows(self, request: &Request) -> impl Iterator<Item = &'static Measurement> {
        let tables = self.own.into_iter().chain([self.built_in]);
        tables.flat_map(move |table| table.rows_for(request))
    }
}

#[cfg(test)]
mod tests;
