//! The text of a table of measurements.

use super::Measurement;
use crate::instances::{Format, gemms, gemvs, routes};
use crate::plan::gemm::{CLUSTERS, MAX_SLICES, runs_in};
use crate::plan::{Division, FORMATS, Kernel, Op};
use crate::{Error, Result, Shape};
use std::fmt;

const COLUMNS: &str = "gpu,date,source,op,format,n,k,m,instance,cluster,slices,us";
const COUNT: usize = 12;

pub(super) fn fault(from: &str, line: usize, problem: String) -> Error {
    Error::Table {
        from: from.to_owned(),
        line,
        problem,
    }
}

pub(super) fn parse(from: &str, text: &str) -> Result<Vec<Measurement>> {
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines = text.lines().map(str::trim_ascii).zip(1..);
    let mut lines = lines.filter(|(line, _)| says(line));
    let columns = || format!("a table starts with a line of its columns, `{COLUMNS}`");
    match lines.next() {
        Some((COLUMNS, _)) => {}
        Some((other, at)) => return Err(fault(from, at, format!("`{}` was found; {}", cut(other), columns()))),
        None => return Err(fault(from, 1, format!("there are no lines; {}", columns()))),
    }
    lines
        .map(|(line, at)| row(line).map_err(|problem| fault(from, at, problem)))
        .collect()
}

/// What a message shows of a text: files can be anything.
fn cut(text: &str) -> String {
    const SHOWN: usize = 80;
    let shown: String = text.chars().take(SHOWN).collect();
    let shown = shown.escape_debug().to_string();
    if text.chars().nth(SHOWN).is_some() {
        format!("{shown}…")
    } else {
        shown
    }
}

fn row(line: &str) -> std::result::Result<Measurement, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim_ascii).collect();
    let Ok([gpu, date, source, op, format, n, k, m, instance, cluster, slices, us]) = <[&str; COUNT]>::try_from(fields)
    else {
        let given = line.split(',').count();
        return Err(format!("it has {given} fields; a row has {COUNT}: {COLUMNS}"));
    };
    if gpu.is_empty() || source.is_empty() {
        return Err("`gpu` or `source` is empty; a row says where it comes from".to_owned());
    }
    if !is_date(date) {
        return Err(format!("`date` is `{}`; it must be a day, as YYYY-MM-DD", cut(date)));
    }
    let named = |what: &str, given: &str, allowed: &[&str]| {
        let place = allowed.iter().position(|name| *name == given);
        place.ok_or_else(|| {
            format!(
                "`{what}` is `{}`; it must be one of: {}",
                cut(given),
                allowed.join(", ")
            )
        })
    };
    let op = Op::ALL[named("op", op, &Op::ALL.map(Op::name))?];
    let format = FORMATS[named("format", format, &FORMATS.map(Format::name))?];
    let (n, k) = (number("n", n, usize::MAX)?, number("k", k, usize::MAX)?);
    Ok(Measurement {
        gpu: gpu.to_owned(),
        date: date.to_owned(),
        source: source.to_owned(),
        op,
        format,
        shape: Shape::new(n, k).map_err(|err| err.to_string())?,
        m: number("m", m, u32::MAX as usize)?,
        kernel: kernel(op, format, instance, [cluster, slices])?,
        us: time(us)?,
    })
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && (text.bytes().enumerate()).all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

fn number(what: &str, text: &str, most: usize) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "`{what}` is `{}`; it must be a whole number from 1 to {most}",
            cut(text)
        )),
    }
}

fn time(text: &str) -> std::result::Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(us) if us.is_finite() && us > 0.0 => Ok(Some(us)),
        _ => Err(format!(
            "`us` is `{}`; it must be a number of microseconds above 0, or empty where there is no time",
            cut(text)
        )),
    }
}

/// The kernel of that name, if it does `op` on weights of `format`.
fn kernel(op: Op, format: Format, name: &str, division: [&str; 2]) -> std::result::Result<Kernel, String> {
    let few = gemvs().chain(routes()).map(Kernel::Gemv);
    let many = gemms().map(|instance| Kernel::Gemm(Division::whole(instance)));
    let Some(kernel) = few.chain(many).find(|kernel| kernel.name() == name) else {
        return Err(format!(
            "`{}` is no kernel of this build; `hopper-proj info` lists them",
            cut(name)
        ));
    };
    if (kernel.op(), kernel.format()) != (op, format) {
        return Err(format!(
            "{name} does not serve `{}` with {} weights",
            op.name(),
            format.name()
        ));
    }
    let Kernel::Gemm(whole) = kernel else {
        return match division {
            ["", ""] => Ok(kernel),
            _ => Err(format!(
                "`cluster` or `slices` is given; {name} says them itself: leave both empty"
            )),
        };
    };
    let cluster = number("cluster", division[0], usize::MAX)?;
    if !runs_in(whole.instance, cluster) {
        let allowed: Vec<usize> = CLUSTERS
            .into_iter()
            .filter(|&size| runs_in(whole.instance, size))
            .collect();
        return Err(format!(
            "`cluster` is {cluster}; for {name} it must be one of {allowed:?}"
        ));
    }
    Ok(Kernel::Gemm(Division {
        cluster,
        slices: number("slices", division[1], MAX_SLICES)?,
        ..whole
    }))
}

pub(super) fn write(rows: &[Measurement], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{COLUMNS}")?;
    for row in rows {
        let (cluster, slices) = match row.kernel {
            Kernel::Gemv(_) => (String::new(), String::new()),
            Kernel::Gemm(division) => (division.cluster.to_string(), division.slices.to_string()),
        };
        // What is no time is none; what takes next to nothing takes what three places can tell from it.
        let time = row.us.filter(|us| us.is_finite() && *us > 0.0);
        let us = time.map_or(String::new(), |us| format!("{:.3}", us.max(0.001)));
        let (n, k, m) = (row.shape.n(), row.shape.k(), row.m);
        writeln!(
            f,
            "{},{},{},{},{},{n},{k},{m},{},{cluster},{slices},{us}",
            plain(&row.gpu),
            plain(&row.date),
            plain(&row.source),
            row.op.name(),
            row.format.name(),
            row.kernel.name()
        )?;
    }
    Ok(())
}

/// A text as a field can hold it.
fn plain(text: &str) -> String {
    let words = text.split(|c: char| c == ',' || c == '#' || c.is_control());
    let words: Vec<&str> = words.map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        "unknown".to_owned()
    } else {
        words.join(" ")
    }
}
