//! Counts by the lines of the PTX text.

mod support;

use ptx_emulator::Counters;
use support::{Run, memory, module};

/// Warp i goes round the loop i + 1 times, of which one lane takes a detour in every round.
const KERNEL: &str = "\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() {
.reg .pred %p<3>;
.reg .b32 %r<4>;
mov.u32 %r0, %tid.x;
shr.u32 %r1, %r0, 5;
and.b32 %r2, %r0, 31;
$round:
setp.eq.u32 %p1, %r2, 0;
@%p1 bra $detour;
$back:
sub.s32 %r1, %r1, 1;
setp.ge.s32 %p0, %r1, 0;
@%p0 bra $round;
ret;
$detour:
mov.u32 %r3, 1;
bra $back;
}
";

fn line(text: &str) -> u32 {
    KERNEL.lines().position(|line| line.starts_with(text)).unwrap() as u32 + 1
}

fn counters(count_lines: bool, seed: Option<u64>) -> Counters {
    let mut four_warps = Run::new("k").grid(3).block(128);
    (four_warps.seed, four_warps.count_lines) = (seed, count_lines);
    let (_, counters) = four_warps.on(&module(KERNEL), &memory()).unwrap();
    counters
}

#[test]
fn the_busiest_warp_counts() {
    for seed in [None, Some(1), Some(2)] {
        let counters = counters(true, seed);
        let lines = &counters.lines["k"];
        assert_eq!(lines[&line("mov.u32 %r0")], 1, "{lines:?}");
        assert_eq!(lines[&line("setp.eq")], 4, "{lines:?}");
        assert_eq!(lines[&line("mov.u32 %r3")], 4, "{lines:?}");
        // The sum over all warps of three CTAs.
        assert_eq!(counters.count("setp.eq"), 3 * (1 + 2 + 3 + 4));
    }
}

#[test]
fn lines_are_counted_where_that_is_asked_for() {
    let (with, without) = (counters(true, Some(1)), counters(false, Some(1)));
    assert!(without.lines.is_empty());
    assert_eq!(with.instructions, without.instructions);
}

#[test]
fn several_launches_keep_the_busiest_warp() {
    let mut sum = counters(true, Some(1));
    sum.add(&counters(true, Some(2)));
    assert_eq!(sum.lines["k"][&line("setp.eq")], 4);
}
