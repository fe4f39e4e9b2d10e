//! The verdict over the machine code, and the table that shows it.

use std::fmt;
use std::time::Duration;

use super::listing::{Listing, MachineEntry};
use super::occupancy::{Occupancy, occupancy};
use super::ptxas_log::{EntryUsage, PtxasLog};
use super::timeline::Timeline;
use crate::spec::{EntrySpec, SassPromise};

/// What the machine code of every entry came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One row for each entry of the table that was assembled, in the table's order.
    pub rows: Vec<Row>,
    /// Everything that breaks a promise.
    pub findings: Vec<SassFinding>,
    /// User and system time that the assembler took, where the system tells.
    pub assembly: Option<Duration>,
}

/// One entry's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The entry's symbol.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Registers that the table allows.
    pub max_registers: u32,
    /// Dynamic shared memory of a launch, in bytes.
    pub dynamic_shared: u32,
    /// Static shared memory, in bytes.
    pub static_shared: u32,
    /// CTAs per SM.
    pub occupancy: Occupancy,
    /// Matrix instructions in each main loop.
    pub matrix: Vec<u32>,
    /// 128-bit loads from shared memory in each main loop.
    pub wide_loads: Vec<u32>,
    /// How long a warp takes from place to place.
    pub timeline: Timeline,
}

/// A promise that the machine code breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SassFinding {
    /// The entry; none for the module.
    pub entry: Option<String>,
    /// What is wrong.
    pub fault: SassFault,
}

/// What can be wrong with machine code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SassFault {
    /// The table's entry was not assembled, or not disassembled.
    #[error("the {by} says nothing of it; rebuild the PTX from the table")]
    Missing {
        /// Which tool's output lacks it.
        by: &'static str,
    },
    /// Registers went to memory.
    #[error(
        "{stores} bytes of spill stores and {loads} of spill loads, none is allowed; use fewer live values or allow more registers"
    )]
    Spills {
        /// Bytes stored.
        stores: u32,
        /// Bytes loaded.
        loads: u32,
    },
    /// Local variables went to memory.
    #[error("{bytes} bytes of stack, none is allowed; an array that no loop unrolled away is the usual cause")]
    Stack {
        /// Bytes of a thread.
        bytes: u32,
    },
    /// More registers than the table allows.
    #[error("{used} registers, the table allows {allowed}")]
    Registers {
        /// Registers used.
        used: u32,
        /// Registers allowed.
        allowed: u32,
    },
    /// Fewer CTAs fit on an SM than the table says.
    #[error("{found} CTAs fit on an SM (no more for want of {limit:?}), the table promises {promised}")]
    Occupancy {
        /// CTAs that fit.
        found: u32,
        /// CTAs that should.
        promised: u32,
        /// What keeps more out.
        limit: super::occupancy::Limit,
    },
    /// ptxas warned.
    #[error("ptxas: {text}")]
    Warning {
        /// Its words.
        text: String,
    },
    /// Too many integer instructions in a main loop.
    #[error("{found} integer instructions in a main loop, the table allows {allowed}")]
    Integers {
        /// How many there are.
        found: u32,
        /// How many may be.
        allowed: u32,
    },
    /// An instruction that may not occur.
    #[error("{found} × {mnemonic}, which the table forbids")]
    Forbidden {
        /// The mnemonic.
        mnemonic: String,
        /// How many there are.
        found: u32,
    },
    /// Too few of a promised instruction.
    #[error("{found} × {mnemonic} {place}, the table promises at least {at_least}", place = if *in_main_loop { "in a main loop" } else { "in all" })]
    TooFew {
        /// The promised mnemonic.
        mnemonic: String,
        /// How many there are.
        found: u32,
        /// How many were promised.
        at_least: u32,
        /// Whether they were promised for the main loop.
        in_main_loop: bool,
    },
}

/// Holds what the tools said against the table.
pub fn check(table: &[EntrySpec], log: &PtxasLog, listing: &Listing) -> Report {
    let mut report = Report::default();
    let warnings = log
        .warnings
        .iter()
        .map(|text| SassFault::Warning { text: text.clone() });
    report
        .findings
        .extend(warnings.map(|fault| SassFinding { entry: None, fault }));
    for spec in table {
        let mut faults = Vec::new();
        let usage = log.entries.iter().find(|usage| usage.name == spec.name);
        let code = listing.entries.iter().find(|code| code.name == spec.name);
        match usage {
            None => faults.push(SassFault::Missing { by: "assembler" }),
            Some(usage) => {
                let row = row(spec, usage, code);
                faults.extend(resource_faults(spec, usage, row.occupancy));
                report.rows.push(row);
            }
        }
        match code {
            None => faults.push(SassFault::Missing { by: "disassembly" }),
            Some(code) => {
                faults.extend(spec.sass.iter().filter_map(|promise| broken(promise, code)));
                faults.extend(spec.forbidden.iter().filter_map(|mnemonic| forbidden(mnemonic, code)));
                faults.extend(integers(spec, code));
            }
        }
        let found = faults.into_iter().map(|fault| SassFinding {
            entry: Some(spec.name.clone()),
            fault,
        });
        report.findings.extend(found);
    }
    report
}

fn row(spec: &EntrySpec, usage: &EntryUsage, code: Option<&MachineEntry>) -> Row {
    let in_loops = |wanted: &str| code.map(|code| code.count_in_main_loops(wanted)).unwrap_or_default();
    let added = |a: Vec<u32>, b: Vec<u32>| a.into_iter().zip(b).map(|(a, b)| a + b).collect();
    let shared = spec.shared_bytes.saturating_add(usage.static_shared);
    Row {
        name: spec.name.clone(),
        registers: usage.registers,
        max_registers: spec.max_registers,
        dynamic_shared: spec.shared_bytes,
        static_shared: usage.static_shared,
        occupancy: occupancy(spec.threads, usage.registers, shared),
        matrix: added(in_loops("HMMA"), in_loops("HGMMA")),
        wide_loads: in_loops("LDS.128"),
        timeline: code.map(MachineEntry::timeline).unwrap_or_default(),
    }
}

fn resource_faults(spec: &EntrySpec, usage: &EntryUsage, occupancy: Occupancy) -> Vec<SassFault> {
    let mut faults = Vec::new();
    if usage.spill_stores > 0 || usage.spill_loads > 0 {
        faults.push(SassFault::Spills {
            stores: usage.spill_stores,
            loads: usage.spill_loads,
        });
    }
    if usage.stack_bytes > 0 {
        faults.push(SassFault::Stack {
            bytes: usage.stack_bytes,
        });
    }
    if usage.registers > spec.max_registers {
        faults.push(SassFault::Registers {
            used: usage.registers,
            allowed: spec.max_registers,
        });
    }
    if occupancy.ctas < spec.min_ctas {
        let Occupancy { ctas: found, limit } = occupancy;
        faults.push(SassFault::Occupancy {
            found,
            promised: spec.min_ctas,
            limit,
        });
    }
    faults
}

fn forbidden(mnemonic: &str, code: &MachineEntry) -> Option<SassFault> {
    let found = code.count(mnemonic);
    (found > 0).then(|| SassFault::Forbidden {
        mnemonic: mnemonic.to_owned(),
        found,
    })
}

/// The main loop with the most integer instructions, where that is more than allowed.
fn integers(spec: &EntrySpec, code: &MachineEntry) -> Option<SassFault> {
    let allowed = spec.max_integers_in_main_loop?;
    let found = code.integers_in_main_loops().into_iter().max().unwrap_or(0);
    (found > allowed).then_some(SassFault::Integers { found, allowed })
}

/// A promise for the main loop must hold in every one, and there must be one.
fn broken(promise: &SassPromise, code: &MachineEntry) -> Option<SassFault> {
    let found = if promise.in_main_loop {
        code.count_in_main_loops(&promise.mnemonic)
            .into_iter()
            .min()
            .unwrap_or(0)
    } else {
        code.count(&promise.mnemonic)
    };
    (found < promise.at_least).then(|| SassFault::TooFew {
        mnemonic: promise.mnemonic.clone(),
        found,
        at_least: promise.at_least,
        in_main_loop: promise.in_main_loop,
    })
}

impl fmt::Display for SassFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "{entry}: {}", self.fault),
            None => write!(f, "{}", self.fault),
        }
    }
}

impl fmt::Display for Report {
    /// The table of rows; findings are not part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|row| row.name.len())
            .max()
            .unwrap_or(0)
            .max("instance".len());
        let heads = ["registers", "shared", "CTAs/SM", "limit", "matrix", "LDS.128"];
        let [registers, shared, ctas, limit, matrix, loads] = heads;
        writeln!(
            f,
            "{:width$} {registers:>9} {shared:>8} {ctas:>7} {limit:>9} {matrix:>7} {loads:>7}",
            "instance"
        )?;
        for row in &self.rows {
            let each = |counts: &[u32]| counts.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
            writeln!(
                f,
                "{:width$} {:>9} {:>8} {:>7} {:>9} {:>7} {:>7}",
                row.name,
                format!("{}/{}", row.registers, row.max_registers),
                row.dynamic_shared + row.static_shared,
                row.occupancy.ctas,
                format!("{:?}", row.occupancy.limit),
                each(&row.matrix),
                each(&row.wide_loads),
            )?;
        }
        write!(f, "(matrix instructions and 128-bit shared loads: per main loop)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::occupancy::Limit;

    fn listing() -> Listing {
        let code = ".text.k:\n.L_1:\n/*0000*/ LDS.128 R0 ;\n/*0010*/ HMMA.16816 R0 ;\n/*0020*/ @P0 BRA `(.L_1) ;\n/*0030*/ EXIT ;\n";
        Listing::parse(code)
    }

    fn log(usage: EntryUsage) -> PtxasLog {
        PtxasLog {
            entries: vec![EntryUsage {
                name: "k".into(),
                ..usage
            }],
            warnings: Vec::new(),
        }
    }

    fn table() -> Vec<EntrySpec> {
        let spec = EntrySpec::new("k", 256)
            .min_ctas(2)
            .max_registers(96)
            .shared_bytes(65_536);
        vec![
            spec.promise_in_main_loop("HMMA", 1)
                .promise_in_main_loop("LDS.128", 1)
                .promise("EXIT", 1),
        ]
    }

    fn faults(table: &[EntrySpec], log: &PtxasLog) -> Vec<SassFault> {
        check(table, log, &listing())
            .findings
            .into_iter()
            .map(|finding| finding.fault)
            .collect()
    }

    #[test]
    fn what_may_not_stand_is_found() {
        let [spec] = <[EntrySpec; 1]>::try_from(table()).unwrap();
        let registers = log(EntryUsage {
            registers: 96,
            ..Default::default()
        });
        let found = faults(&[spec.clone().forbid("LDS")], &registers);
        let mnemonic = "LDS".to_owned();
        assert_eq!(found, [SassFault::Forbidden { mnemonic, found: 1 }]);
        assert_eq!(faults(&[spec.forbid("LDS.64").forbid("BRA.U.ANY")], &registers), []);
    }

    #[test]
    fn kept_promises_have_no_findings_and_a_row() {
        let report = check(
            &table(),
            &log(EntryUsage {
                registers: 96,
                ..Default::default()
            }),
            &listing(),
        );
        assert_eq!(report.findings, []);
        let row = &report.rows[0];
        assert_eq!(
            (row.registers, row.occupancy.ctas, &row.matrix[..], &row.wide_loads[..]),
            (96, 2, &[1][..], &[1][..])
        );
        let text = report.to_string();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["k", "96/96", "65536", "2", "Registers", "1", "1"]
        );
    }

    #[test]
    fn integer_instructions_of_the_main_loop_have_a_bound() {
        let code = ".text.k:\n/*0000*/ IADD3 R1 ;\n.L_1:\n/*0010*/ LOP3.LUT R0 ;\n/*0020*/ IMAD.WIDE.U32 R2 ;\n\
                    /*0030*/ HMMA.16816 R0 ;\n/*0040*/ FADD R3 ;\n/*0050*/ @P0 BRA `(.L_1) ;\n/*0060*/ EXIT ;\n";
        let found = |allowed| {
            let table = [EntrySpec::new("k", 256).max_integers_in_main_loop(allowed)];
            let report = check(&table, &log(EntryUsage::default()), &Listing::parse(code));
            report
                .findings
                .into_iter()
                .map(|finding| finding.fault)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(2), []);
        assert_eq!(found(1), [SassFault::Integers { found: 2, allowed: 1 }]);
    }

    #[test]
    fn each_resource_can_break_a_promise() {
        let cases = [
            (
                EntryUsage {
                    registers: 97,
                    ..Default::default()
                },
                SassFault::Registers { used: 97, allowed: 96 },
            ),
            (
                EntryUsage {
                    registers: 90,
                    spill_stores: 4,
                    spill_loads: 8,
                    ..Default::default()
                },
                SassFault::Spills { stores: 4, loads: 8 },
            ),
            (
                EntryUsage {
                    registers: 90,
                    stack_bytes: 64,
                    ..Default::default()
                },
                SassFault::Stack { bytes: 64 },
            ),
            (
                EntryUsage {
                    registers: 90,
                    static_shared: 60_000,
                    ..Default::default()
                },
                SassFault::Occupancy {
                    found: 1,
                    promised: 2,
                    limit: Limit::Shared,
                },
            ),
        ];
        for (usage, fault) in cases {
            assert_eq!(faults(&table(), &log(usage)), [fault]);
        }
    }

    #[test]
    fn too_few_instructions_missing_entries_and_warnings_are_found() {
        let usage = EntryUsage {
            registers: 32,
            ..Default::default()
        };
        let more = vec![
            EntrySpec::new("k", 32)
                .promise_in_main_loop("HMMA", 2)
                .promise("HGMMA", 1),
        ];
        let too_few = |mnemonic: &str, found, at_least, in_main_loop| SassFault::TooFew {
            mnemonic: mnemonic.into(),
            found,
            at_least,
            in_main_loop,
        };
        assert_eq!(
            faults(&more, &log(usage.clone())),
            [too_few("HMMA", 1, 2, true), too_few("HGMMA", 0, 1, false)]
        );
        let other = [EntrySpec::new("other", 32)];
        let missing = ["assembler", "disassembly"].map(|by| SassFault::Missing { by });
        assert_eq!(faults(&other, &log(usage.clone())), missing);
        let mut warned = log(usage);
        warned.warnings.push("serialized".into());
        assert_eq!(
            faults(&[], &warned),
            [SassFault::Warning {
                text: "serialized".into()
            }]
        );
    }
}
