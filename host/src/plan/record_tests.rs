//! The model of cost beside what was timed.

use super::gemv;
use super::{Clusters, Device, Op, Request};
use crate::Shape;
use kernels_gpu::instances::{Family, Format, Gemv};

/// Times of prototypes of the GEMVs, among others.
const RECORD: &str = include_str!("../../../benchmarks/record/h200/2026-11-29-peers.csv");
/// Shared memory of a multiprocessor, and what each CTA takes of it beside its own.
const SHARED: usize = 228 << 10;
const RESERVED: usize = 1 << 10;
/// Two times that differ by less say nothing of an order.
const APART: f64 = 1.03;

/// Rows and columns of the layers by their names and tokens.
fn shape(layer: &str, m: usize) -> (usize, usize) {
    match (layer, m) {
        ("qkv_gate", _) => (2304, 8192),
        ("o", _) => (8192, 1024),
        ("pooler", _) => (4096, 8192),
        ("unpooler_slice", _) => (1024, 4096),
        ("unpooler", _) => (8192, 4096),
        ("router_one_term", _) => (256, 8192),
        other => panic!("an unknown layer: {other:?}"),
    }
}

/// A prototype's GEMV: one row block per CTA.
fn prototype(format: Format, parameters: &str) -> Gemv {
    let numbers: Vec<usize> = parameters.split('_').map(|number| number.parse().unwrap()).collect();
    let &[warps, cluster, stages, groups, token_blocks] = numbers.as_slice() else {
        panic!("{parameters}");
    };
    let gemv = Gemv {
        name: "prototype",
        family: Family::GemvBf16,
        index: 0,
        op: Op::Project,
        format,
        warps,
        cluster,
        stages,
        groups,
        token_blocks,
        row_blocks: 1,
        x_values: 8,
        min_ctas: 1,
        max_registers: 64,
    };
    // Partial sums have a place of their own, those of the cluster too.
    let sums = (warps + if cluster > 1 { cluster } else { 0 }) * 512 * token_blocks;
    let shared = RESERVED + warps * gemv.ring_bytes() + sums;
    let min_ctas = (SHARED / (RESERVED + shared)).min(2048 / gemv.threads());
    Gemv { min_ctas, ..gemv }
}

/// A row of the record: what it is, what the model says, and the time, in microseconds.
fn rows() -> Vec<(String, f64, f64)> {
    // What GPCs the device had was not asked.
    let device = Device {
        clusters: Clusters::ANYWHERE,
        ..Device::H200
    };
    let prototypes = RECORD.lines().filter_map(|line| {
        let (name, rest) = line.split_once('[')?;
        let format = match name {
            "prototype_bf16" => Format::Bf16,
            "prototype_12bit" => Format::Window12,
            other => panic!("an unknown prototype: {other}"),
        };
        let (parameters, rest) = rest.split_once("],")?;
        let fields: Vec<&str> = rest.split(',').collect();
        let m = fields[1].parse().unwrap();
        let (n, k) = shape(fields[0], m);
        let request = Request::new(Op::Project, format, Shape::new(n, k).unwrap(), m);
        let cost = gemv::cost(&prototype(format, parameters), &request, &device);
        Some((line.to_owned(), cost, fields[3].parse().unwrap()))
    });
    prototypes.collect()
}

#[test]
fn costs_come_in_the_order_of_measured_times() {
    let rows = rows();
    let mut pairs = 0;
    for (slow, slow_cost, slow_us) in &rows {
        for (fast, fast_cost, fast_us) in &rows {
            if *slow_us > APART * fast_us {
                pairs += 1;
                assert!(slow_cost > fast_cost, "{slow}: {slow_cost:.2}; {fast}: {fast_cost:.2}");
            }
        }
    }
    assert_eq!((rows.len(), pairs), (48, 1100));
}

#[test]
fn costs_are_within_a_tenth_of_measured_times() {
    for (row, cost, us) in rows() {
        assert!((0.9..1.1).contains(&(cost / us)), "{row}: {cost:.2}");
    }
}
