//! The processor time that the programs run by this one have taken.

use std::fs;
use std::time::Duration;

/// Ticks per second in which Linux tells processor times (`USER_HZ`), on every architecture that it runs on here.
const TICKS_PER_SECOND: u64 = 100;

/// User and system time of all programs that this process has waited for; `None` where the system does not tell.
pub(super) fn of_children() -> Option<Duration> {
    parse(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// `cutime` and `cstime` of proc(5): the 16th and 17th field, of which the second is a name in parentheses that may
/// hold anything.
fn parse(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields
        .split_whitespace()
        .skip(13)
        .map(|field| field.parse::<u64>().ok());
    let sum = ticks.next()??.checked_add(ticks.next()??)?;
    Some(Duration::from_millis(sum.checked_mul(1000 / TICKS_PER_SECOND)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 130 0 0 0 11 12 250 31 20 0 1 0";
        assert_eq!(parse(stat), Some(Duration::from_millis(2810)));
        for cut in [
            "",
            "7 (a",
            "7 (a) S 1 2",
            "7 (a) S 1 7 7 0 -1 4194560 130 0 0 0 11 12 x 31 20",
        ] {
            assert_eq!(parse(cut), None, "{cut}");
        }
    }
}
