//! `sass`: the machine code of the checked-in PTX against the kernels' table.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use cuda_builder::NvvmArch;
use cuda_builder::sass::{PTXAS_WHEELS, Tools, inspect};
use kernels_gpu::instances::Family;

use crate::line_counts::{Calls, Figures};
use crate::{paths, table, timeline};

/// Prints a table for each assembler and family, then what the assembler took for each; fails if one breaks a promise,
/// or if the record of timelines, which is the newest wheel's, is not what the machine code takes. `with_timeline`
/// shows the timelines and writes the record.
pub(crate) fn run(with_timeline: bool) -> Result<()> {
    let target = paths::root().join("target");
    let mut broken = 0;
    let (mut stale, mut slow) = (Vec::new(), Vec::new());
    let calls = Calls::count()?;
    for (at, tools) in Tools::find(&target.join("cuda-tools"))?.iter().enumerate() {
        println!("{}", tools.origin);
        let mut times = Vec::new();
        let mut figures: Vec<Figures> = Vec::new();
        let is_recorded = tools.origin.contains(PTXAS_WHEELS[0].version);
        for family in Family::ALL {
            let folder = target.join("sass").join(at.to_string()).join(family.name());
            let entries = table::entries_of(family);
            let report = inspect(&paths::ptx(family), NvvmArch::Compute90a, &entries, tools, &folder)?;
            println!("\n{}\n{report}", family.name());
            println!("machine code: {}", folder.join("kernels.sass").display());
            for finding in &report.findings {
                println!("{finding}");
            }
            broken += report.findings.len();
            times.push((family, entries.len(), report.assembly));
            if is_recorded {
                figures.extend(calls.figures(family, report.rows, tools, &folder)?);
            }
        }
        if is_recorded && with_timeline {
            timeline::show(&figures)?;
        } else if is_recorded {
            stale = timeline::stale(&figures)?;
        }
        if is_recorded {
            slow = timeline::over_budget(&figures);
        }
        println!("\n{}", time_table(&times));
    }
    if !stale.is_empty() {
        stale.iter().for_each(|line| println!("{line}"));
        bail!(
            "{} figures of {} are not what the machine code takes: run `cargo xtask sass --timeline`, look at what has changed, and commit the file",
            stale.len(),
            timeline::record().display()
        );
    }
    if !slow.is_empty() {
        slow.iter().for_each(|line| println!("{line}"));
        bail!("{} entries take longer than their budgets allow", slow.len());
    }
    if broken > 0 {
        bail!("the machine code breaks {broken} promises of the table");
    }
    Ok(())
}

/// Prints the timelines of one family's entries, by the newest assembler.
pub(crate) fn one_family(name: &str) -> Result<()> {
    let Some(family) = Family::ALL.into_iter().find(|family| family.name() == name) else {
        let names = Family::ALL.map(|family| family.name()).join(", ");
        bail!("no family is called {name}; there are {names}");
    };
    let target = paths::root().join("target");
    let tools = Tools::find(&target.join("cuda-tools"))?;
    let newest = tools.first().context("no assembler was found")?;
    let folder = target.join("sass/one").join(name);
    let report = inspect(
        &paths::ptx(family),
        NvvmArch::Compute90a,
        &table::entries_of(family),
        newest,
        &folder,
    )?;
    println!("{report}");
    report.findings.iter().for_each(|finding| println!("{finding}"));
    timeline::print(&Calls::count()?.figures(family, report.rows, newest, &folder)?);
    println!("\nmachine code: {}", folder.join("kernels.sass").display());
    Ok(())
}

/// Processor time that the assembler took for each family: about what a driver takes that loads it for the first time.
fn time_table(times: &[(Family, usize, Option<Duration>)]) -> String {
    let seconds = |time: Option<Duration>| time.map_or("?".to_owned(), |time| format!("{:.1}", time.as_secs_f64()));
    let mut lines = vec![format!("{:16} {:>8} {:>13}", "family", "entries", "assembler/s")];
    for &(family, entries, time) in times {
        lines.push(format!("{:16} {entries:>8} {:>13}", family.name(), seconds(time)));
    }
    let entries: usize = times.iter().map(|(_, entries, _)| entries).sum();
    let total = times.iter().map(|&(_, _, time)| time).sum();
    lines.push(format!("{:16} {entries:>8} {:>13}\n", "all", seconds(total)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_listed_and_added() {
        let time = |millis| Some(Duration::from_millis(millis));
        let times = [(Family::GemvBf16, 17, time(1500)), (Family::GemmBf16, 10, time(2500))];
        let table = time_table(&times);
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1..],
            [
                ["gemv_bf16", "17", "1.5"],
                ["gemm_bf16", "10", "2.5"],
                ["all", "27", "4.0"]
            ]
        );
        assert!(time_table(&[(Family::GemvBf16, 17, None)]).contains('?'));
    }
}
