//! `sass --timeline`: what each entry's instructions take, beside the checked-in record.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use cuda_builder::sass::{Timeline, latencies};
use kernels_gpu::instances::{self, Format};

use crate::line_counts::Figures;
use crate::paths;

/// The columns of the record, and where each stands in a row.
type Column = (&'static str, fn(&Figures) -> Option<u32>);

const COLUMNS: [Column; 14] = [
    ("registers", |entry| Some(entry.row.registers)),
    ("first_copy", |entry| entry.row.timeline.first_copy),
    ("wait", |entry| entry.row.timeline.wait),
    ("chunk", |entry| entry.row.timeline.chunk),
    ("refill", |entry| entry.row.timeline.refill),
    ("rest", |entry| entry.rest),
    ("epilogue", |entry| entry.epilogue),
    ("exceptions", |entry| entry.exceptions),
    ("gate_256_8_groups", |entry| entry.gates[0]),
    ("gate_256", |entry| entry.gates[1]),
    ("gate_1024", |entry| entry.gates[2]),
    ("fences_ahead", |entry| Some(entry.row.timeline.fences[0])),
    ("fences_in_loops", |entry| Some(entry.row.timeline.fences[1])),
    ("fences_elsewhere", |entry| Some(entry.row.timeline.fences[2])),
];

/// What the figures are, and what they leave out.
const LEGEND: &str = "\
cycles of one warp, from the assembler's stall counts and scoreboards and from assumed latencies (below), not from a GPU:
  first_copy, wait   from the start to the first bulk copy or TMA load, to griddepcontrol.wait
  chunk              a round of the loop that multiplies, in steady state
  refill             a round of the producer's loop, in steady state
  rest               from griddepcontrol.wait to the end, with a full tile of tokens and a chunk of K for each warp; no gate
  epilogue           the part of that behind the main loop
  exceptions         what eight weights per warp that units leave out add to that
  gate_…             from the atomic operation that elects a CTA to its end, for one token: 256 experts in
                     8 groups of which 4 are kept, 256 without groups (8 chosen each), 1024 (32 chosen); sigmoid, renormalised
  fences             GPU-wide fences and invalidations of L1: ahead of the wait, in loops, elsewhere
branches take the longer way. For rest and gate_…, loops go round, and blocks are left out, as the emulator counts for the
busiest warp; elsewhere every loop counts once. What it cannot see: DRAM, contention, clocks, other warps, the tensor cores' own time.";

/// The record's place.
pub(crate) fn record() -> PathBuf {
    paths::root().join("benchmarks/record/sass.csv")
}

/// All rows as the record has them.
fn csv(entries: &[Figures]) -> String {
    let mut text = String::from("instance");
    for (name, _) in COLUMNS {
        let _ = write!(text, ",{name}");
    }
    for entry in entries {
        let _ = write!(text, "\n{}", entry.row.name);
        for (_, value) in COLUMNS {
            let value = value(entry).map_or(String::new(), |value| value.to_string());
            let _ = write!(text, ",{value}");
        }
    }
    text + "\n"
}

/// A record's lines by their instance.
fn lines(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let rows = text.lines().skip(1).filter_map(|line| line.split_once(','));
    rows.map(|(name, values)| (name, values.split(',').collect())).collect()
}

/// What has changed from one record to another, a line for each figure.
fn differences(before: &str, after: &str) -> Vec<String> {
    let (before, after) = (lines(before), lines(after));
    let mut found = Vec::new();
    for (name, values) in &after {
        let Some(old) = before.get(name) else {
            found.push(format!("{name}: new"));
            continue;
        };
        for (at, (column, _)) in COLUMNS.iter().enumerate() {
            let [was, is] = [old, values].map(|values| values.get(at).copied().unwrap_or_default());
            if was != is {
                let said = |value: &str| {
                    if value.is_empty() {
                        "none".to_owned()
                    } else {
                        value.to_owned()
                    }
                };
                found.push(format!("{name}: {column} {} → {}", said(was), said(is)));
            }
        }
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    found.extend(gone.map(|name| format!("{name}: gone")));
    found
}

/// Prints the timelines of entries.
pub(crate) fn print(entries: &[Figures]) {
    let width = entries.iter().map(|entry| entry.row.name.len()).max().unwrap_or(0);
    print!("{:width$}", "instance");
    COLUMNS.iter().for_each(|(name, _)| print!(" {name:>17}"));
    println!();
    for entry in entries {
        print!("{:width$}", entry.row.name);
        for (_, value) in COLUMNS {
            print!(
                " {:>17}",
                value(entry).map_or("-".to_owned(), |value| value.to_string())
            );
        }
        println!();
    }
}

/// Prints the timelines of all entries and how they differ from the record, which they then replace.
pub(crate) fn show(entries: &[Figures]) -> Result<()> {
    println!("{LEGEND}\n");
    print(entries);
    println!("\nassumed latencies:");
    for (mnemonic, cycles, basis) in latencies() {
        println!("  {mnemonic:14} {cycles:>4}  {basis}");
    }
    let (path, now) = (record(), csv(entries));
    let before = fs::read_to_string(&path).unwrap_or_default();
    let changed = differences(&before, &now);
    println!("\n{} figures differ from {}", changed.len(), path.display());
    changed.iter().for_each(|line| println!("  {line}"));
    if before != now {
        fs::write(&path, now).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Cycles to `griddepcontrol.wait` that a GEMV may take: the prologue is not hidden where the preceding kernel ends
/// early.
const GEMV_WAIT: u32 = 410;
/// The same for routers.
const ROUTE_WAIT: u32 = 410;

/// The same for 12-bit weights, which look up their exceptions.
const WINDOW12_WAIT: u32 = 450;
/// Cycles that eight exceptions of a warp may take.
const EXCEPTIONS: u32 = 600;

/// Cycles of a GEMV's epilogue for eight tokens. More tokens have more sums: 16 and 32 take up to 1,000 and 1,400.
const EPILOGUE: u32 = 900;

/// Cycles that a product's producer may take for a chunk: less than the memory takes to bring one.
const REFILL: u32 = 250;

/// What takes longer than it may, a line each; `timeline` gives an instance's.
fn beyond_budget(timeline: impl Fn(&str) -> Option<Timeline>) -> Vec<String> {
    let of_format = |format| match format {
        Format::Window12 => WINDOW12_WAIT,
        _ => GEMV_WAIT,
    };
    let prologues = instances::gemvs()
        .map(|gemv| (gemv.name, of_format(gemv.format)))
        .chain(instances::routes().map(|gemv| (gemv.name, ROUTE_WAIT)));
    let mut beyond = Vec::new();
    let mut compare = |name: &str, what: &str, taken: Option<u32>, allowed: u32| {
        if let Some(taken) = taken.filter(|&taken| taken > allowed) {
            beyond.push(format!("{name}: {taken} {what}, {allowed} are allowed"));
        }
    };
    for (name, allowed) in prologues {
        let wait = timeline(name).and_then(|timeline| timeline.wait);
        compare(name, "cycles to griddepcontrol.wait", wait, allowed);
    }
    for name in instances::gemms().map(|gemm| gemm.name) {
        let timeline = timeline(name).unwrap_or_default();
        compare(name, "cycles for a refill by the producer", timeline.refill, REFILL);
        compare(name, "GPU-wide fences in loops", Some(timeline.fences[1]), 0);
    }
    beyond
}

/// [`beyond_budget`] of all entries, and exceptions and epilogues that take too long.
pub(crate) fn over_budget(entries: &[Figures]) -> Vec<String> {
    let of = |name: &str| entries.iter().find(|entry| entry.row.name == name);
    let mut beyond = beyond_budget(|name| of(name).map(|entry| entry.row.timeline.clone()));
    for gemv in instances::gemvs().filter(|gemv| gemv.token_blocks == 1) {
        let epilogue = of(gemv.name).and_then(|entry| entry.epilogue);
        if let Some(taken) = epilogue.filter(|&taken| taken > EPILOGUE) {
            beyond.push(format!(
                "{}: {taken} cycles behind the main loop, {EPILOGUE} are allowed",
                gemv.name
            ));
        }
    }
    for entry in entries {
        if let Some(taken) = entry.exceptions.filter(|&taken| taken > EXCEPTIONS) {
            let name = &entry.row.name;
            beyond.push(format!(
                "{name}: {taken} cycles for eight exceptions of a warp, {EXCEPTIONS} are allowed"
            ));
        }
    }
    beyond
}

/// How the record differs from what the entries take now.
pub(crate) fn stale(entries: &[Figures]) -> Result<Vec<String>> {
    let path = record();
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(differences(&text, &csv(entries)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_beyond_the_budget() {
        let all = |wait, refill, fences| {
            beyond_budget(|_| {
                Some(Timeline {
                    wait: Some(wait),
                    refill,
                    fences: [1, fences, 1],
                    ..Timeline::default()
                })
            })
        };
        assert_eq!(all(GEMV_WAIT, Some(REFILL), 0), [""; 0]);
        let slow = all(GEMV_WAIT + 1, None, 0);
        assert_eq!(slow.len(), 17 + 12, "{slow:?}");
        assert!(slow[0].contains("411 cycles"), "{slow:?}");
        assert_eq!(all(GEMV_WAIT + 1, None, 0).len(), 17 + 12);
        assert_eq!(all(WINDOW12_WAIT + 1, None, 0).len(), 17 + 12 + 16);
        let products = instances::gemms().count();
        assert_eq!(all(1, Some(REFILL + 1), 0).len(), products);
        assert_eq!(all(1, None, 1).len(), products);
    }

    #[test]
    fn a_change_is_shown_by_figure() {
        let head =
            "instance,registers,first_copy,wait,chunk,refill,rest,fences_ahead,fences_in_loops,fences_elsewhere\n";
        let before = format!("{head}a,50,1,2,3,,5,0,0,1\nb,1,1,1,1,1,1,0,0,0\n");
        let after = format!("{head}a,50,1,4,3,6,5,0,0,1\nc,1,1,1,1,1,1,0,0,0\n");
        assert_eq!(
            differences(&before, &after),
            ["a: wait 2 → 4", "a: refill none → 6", "c: new", "b: gone"]
        );
        assert_eq!(differences(&after, &after), [""; 0]);
    }
}
