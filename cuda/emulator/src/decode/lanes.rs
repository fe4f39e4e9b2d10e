//! From functions on one lane to functions on all lanes.

use crate::program::{Lane1, Lane2, Lane3, Lane4, WARP};

pub(super) fn lanes1(f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Lane1 {
    Box::new(move |a, out| {
        for lane in 0..WARP {
            out[lane] = f(a[lane]);
        }
    })
}

pub(super) fn lanes2(f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Lane2 {
    Box::new(move |a, b, out| {
        for lane in 0..WARP {
            out[lane] = f(a[lane], b[lane]);
        }
    })
}

pub(super) fn lanes3(f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Lane3 {
    Box::new(move |a, b, c, out| {
        for lane in 0..WARP {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
    })
}

pub(super) fn lanes4(f: impl Fn(u64, u64, u64, u64) -> u64 + Send + Sync + 'static) -> Lane4 {
    Box::new(move |a, b, c, d, out| {
        for lane in 0..WARP {
            out[lane] = f(a[lane], b[lane], c[lane], d[lane]);
        }
    })
}

/// A function of 16-bit values, on both halves of 32-bit ones.
pub(super) fn on_halves<const N: usize>(values: [u64; N], f: impl Fn([u64; N]) -> u64) -> u64 {
    let low = f(values.map(|v| v & 0xffff)) & 0xffff;
    let high = f(values.map(|v| v >> 16 & 0xffff)) & 0xffff;
    high << 16 | low
}
