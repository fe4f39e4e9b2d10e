use super::*;
use crate::sass::Listing;

/// An instruction's bits: stall, scoreboards for result and operands (7 for none), and those that it waits for.
fn bits(stall: u64, write: u64, read: u64, wait: u64) -> String {
    let high = stall << 41 | write << 46 | read << 49 | wait << 52;
    format!("/* 0x0000000000000000 */\n /* 0x{high:016x} */")
}

fn entry(code: &[(&str, String)]) -> MachineEntry {
    let lines = code
        .iter()
        .enumerate()
        .map(|(at, (text, bits))| match text.strip_suffix(':') {
            Some(label) => format!("{label}:\n"),
            None => format!("/*{:04x}*/ {text} ; {bits}\n", 16 * at),
        });
    let text = format!(".text.k:\n{}", lines.collect::<String>());
    Listing::parse(&text).entries.remove(0)
}

const LABEL: String = String::new();

#[test]
fn stalls_add_up_and_results_are_waited_for() {
    let code = entry(&[
        ("UMOV UR4, 0x1", bits(2, 7, 7, 0)),
        ("UBLKCP.S.G [UR4], [UR6], UR8", bits(3, 7, 0, 0)),
        ("LDS R4, [R2]", bits(1, 1, 7, 0)),
        ("ACQBULK", bits(1, 7, 7, 0b10)),
        ("MEMBAR.ALL.GPU", bits(6, 7, 7, 0)),
        ("EXIT", bits(5, 7, 7, 0)),
    ]);
    let timeline = code.timeline();
    assert_eq!(timeline.first_copy, Some(2));
    // The load is issued at 5, and its result is there 31 cycles later.
    assert_eq!(timeline.wait, Some(36));
    let all: crate::sass::Counts = [(1, 1)].into();
    assert_eq!(code.cycles_behind_wait(&all), Some(1 + 6 + 500));
    assert_eq!(timeline.fences, [0, 0, 1]);
}

#[test]
fn the_longer_way_counts() {
    let code = entry(&[
        ("@P0 BRA `(.L_else)", bits(1, 7, 7, 0)),
        ("IMAD R0, R1, R2, R3", bits(10, 7, 7, 0)),
        ("BRA `(.L_end)", bits(5, 7, 7, 0)),
        (".L_else:", LABEL),
        ("IMAD R0, R1, R2, R3", bits(4, 7, 7, 0)),
        (".L_end:", LABEL),
        ("ACQBULK", bits(1, 7, 7, 0)),
        ("EXIT", bits(5, 7, 7, 0)),
    ]);
    assert_eq!(code.timeline().wait, Some(16));
}

/// What one round leaves under way, the next one waits for.
#[test]
fn a_round_is_that_of_the_steady_state() {
    let code = entry(&[
        ("ACQBULK", bits(1, 7, 7, 0)),
        (".L_main:", LABEL),
        ("HMMA.16816.F32.BF16 R0, R4, R8, R0", bits(2, 7, 7, 0b1)),
        ("LDG.E.128 R4, [R2]", bits(3, 0, 7, 0)),
        ("CCTL.IVALL", bits(1, 7, 7, 0)),
        ("@P0 BRA `(.L_main)", bits(5, 7, 7, 0)),
        (".L_fill:", LABEL),
        ("UTMALDG.2D [UR8], [UR4]", bits(2, 7, 7, 0)),
        ("@P1 BRA `(.L_fill)", bits(5, 7, 7, 0)),
        ("EXIT", bits(5, 7, 7, 0)),
    ]);
    let timeline = code.timeline();
    // The load at cycle 2 of a round is waited for by the next one's product, at 292; the product's own 2 cycles
    // follow.
    assert_eq!(timeline.chunk, Some(292));
    assert_eq!(timeline.refill, Some(7));
    assert_eq!(timeline.fences, [0, 1, 0]);
}
