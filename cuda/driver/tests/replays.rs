//! Many replays of a long capture. A file of its own: it measures the process's memory.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::emulated;
use hopper_cuda_driver::ffi::*;

#[test]
fn a_thousand_launches_are_replayed_with_the_same_bits() {
    let _context = Context::new();
    emulated::set_seed(Some(1));
    let (stream, patient, sum) = (
        handle!(cuStreamCreate(0)),
        kernel_of(CHAIN, "patient"),
        upload(&[0_u32]),
    );
    let pdl = [CUlaunchAttribute::programmatic_serialization()];
    let before = emulated::live();
    let graph = capture(stream, || {
        (0..1000).for_each(|_| assert_eq!(launch_on(stream, &pdl, patient, sum), SUCCESS));
    });
    assert_eq!(edges(graph).iter().filter(|(_, _, kind)| *kind == 1).count(), 999);
    let exec = executable(graph);
    ok!(cuGraphDestroy(graph));
    let mut used = Vec::new();
    for replay in 0..1000 {
        ok!(cuMemsetD32Async(sum, replay, 1, stream));
        ok!(cuGraphLaunch(exec, stream));
        let (mut result, mut free, mut total) = (0_u32, 0, 0);
        ok!(cuMemcpyDtoHAsync_v2((&raw mut result).cast(), sum, 4, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(result, 1000 + replay);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        used.push((total - free, resident()));
    }
    let ((device, host), (device_after, host_after)) = (used[99], used[999]);
    assert_eq!(device, device_after);
    assert!(
        host_after <= host + (8 << 20),
        "{host} bytes of the host's, then {host_after}"
    );
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(emulated::live(), before, "nothing is left over");
}

/// Bytes of the host's memory that the process holds.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = pages
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}
