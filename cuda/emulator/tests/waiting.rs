//! CTAs that wait for one that starts after all others are given their time: that is slow, and no deadlock.

mod support;

use ptx_emulator::{FaultKind, Limits};
use support::{Run, leaves, refuses};

/// Every CTA but the last waits until that one has said so, and counts itself then.
const LAST: &str = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; add.u32 %r1, %r1, 1; mov.u32 %r3, %tid.x;
    setp.ne.u32 %p1, %r3, 0; @%p1 ret; setp.eq.u32 %p2, %r1, %r2; @%p2 bra SAY;
    WAIT: ld.acquire.gpu.global.u32 %r4, [%out]; setp.eq.u32 %p3, %r4, 0; @%p3 bra WAIT;
    red.add.relaxed.gpu.global.u32 [%out+4], 1; ret;
    SAY: st.release.gpu.global.u32 [%out], 1;";

fn impatient(grid: u32, idle_instructions: u64) -> Run<'static> {
    let mut run = Run::new("k").grid(grid);
    run.limits = Limits {
        idle_instructions,
        ..Limits::default()
    };
    run
}

/// All the CTAs together spin for many times as long as a launch may that stands still.
#[test]
fn all_wait_for_the_last_one() {
    leaves(&[1, 59], LAST, &impatient(60, 100_000));
}

#[test]
fn where_all_have_started_and_wait_none_will_end() {
    let nobody = LAST.replace("SAY: st.release.gpu.global.u32 [%out], 1;", "SAY: bra SAY;");
    refuses(FaultKind::Deadlock, "nothing visible", &nobody, &impatient(20, 100_000));
}
