//! The models of cost, one figure of the device at a time: all else is free.

use super::traffic::Traffic;
use super::{Clusters, Device, Division, Op, Reason, Request, gemm, gemv};
use crate::Shape;
use approx::assert_relative_eq;
use kernels_gpu::instances::{FALLBACK_GEMM, Format, Gemm, Gemv, gemms, gemvs, routes};

/// A device on which nothing takes time. No clock is that of an H200, so that none is left out.
const FREE: Device = Device {
    launch: 0.0,
    stream: f64::INFINITY,
    in_flight: 1.0,
    l2: f64::INFINITY,
    port: f64::INFINITY,
    x_loads: f64::INFINITY,
    shared: f64::INFINITY,
    dsmem: f64::INFINITY,
    products: f64::INFINITY,
    fill: 0.0,
    pipeline: 0.0,
    cta: 0.0,
    token_block: 0.0,
    decode: 0.0,
    reduction: 0.0,
    join: 0.0,
    slice: 0.0,
    choice: 0.0,
    clock: 0.5,
    clusters: Clusters::ANYWHERE,
    ..Device::H200
};

fn request(op: Op, format: Format, (n, k, m): (usize, usize, usize)) -> Request {
    Request::new(op, format, Shape::new(n, k).unwrap(), m)
}

fn named<T>(mut of: impl Iterator<Item = &'static T>, name: fn(&T) -> &'static str, wanted: &str) -> &'static T {
    of.find(|instance| name(instance) == wanted).expect(wanted)
}

fn a_gemv(name: &str) -> &'static Gemv {
    named(gemvs().chain(routes()), |gemv| gemv.name, name)
}

fn a_gemm(name: &str) -> &'static Gemm {
    named(gemms().chain(FALLBACK_GEMM), |gemm| gemm.name, name)
}

/// A device that differs from [`FREE`] in a figure, and what a launch then takes.
type Case = (fn(Device) -> Device, f64);

fn check(cost: impl Fn(&Device) -> f64, cases: &[Case]) {
    assert_eq!(cost(&FREE), 0.0);
    for (at, (with, expected)) in cases.iter().enumerate() {
        assert_relative_eq!(cost(&with(FREE)), *expected, max_relative = 1e-12);
        println!("case {at} holds");
    }
}

/// [`check`] of a product on devices whose clock is so fast that permuting is free.
fn check_but_for_permuting(division: &Division, request: &Request, cases: &[Case]) {
    let cost = |device: &Device| {
        let device = Device {
            clock: f64::INFINITY,
            ..*device
        };
        gemm::cost(division, request, &device)
    };
    check(cost, cases);
}

#[test]
fn what_a_gemv_moves_is_counted() {
    // 40 tiles of 32 rows, the last of 8; 65 groups of 64 columns, 17 for a CTA; 160 CTAs on 132 multiprocessors.
    let instance = a_gemv("gemv_bf16_sm90_w8c4s2g1n1r2x8");
    let request = request(Op::Project, Format::Bf16, (1256, 4104, 5));
    let cta_weights = 17.0 * 2.0 * 2048.0;
    let ring = 8.0 * 2.0 * 2.0 * 2048.0;
    let weights = 79.0 * 65.0 * 2048.0;
    let cases: [Case; 12] = [
        (|d| Device { launch: 3.0, ..d }, 3.0),
        (
            |d| Device {
                stream: 2.0,
                in_flight: 1e9,
                ..d
            },
            2.0 * cta_weights / (2.0 * (2.0 * ring / 1e9)),
        ),
        (|d| Device { stream: 2.0, ..d }, weights / 132.0 / 2.0),
        (|d| Device { l2: 2.0, ..d }, 160.0 * cta_weights / 132.0 / 2.0),
        (|d| Device { port: 2.0, ..d }, 2.0 * cta_weights / 2.0),
        (|d| Device { x_loads: 2.0, ..d }, 2.0 * (1026.0 * 5.0 * 2.0) / 2.0),
        (
            |d| Device { shared: 2.0, ..d },
            2.0 * 2.0 * (8.0 * 32.0 * 8.0 * 4.0) / 2.0,
        ),
        (|d| Device { dsmem: 2.0, ..d }, 2.0 * (32.0 * 8.0 * 4.0) * 0.75 / 2.0),
        (|d| Device { reduction: 3.0, ..d }, 3.0 * 2.0),
        (|d| Device { cta: 3.0, ..d }, 2.0 * 3.0),
        (|d| Device { token_block: 3.0, ..d }, 3.0),
        (
            |d| Device {
                fill: 3.0,
                decode: 3.0,
                join: 3.0,
                choice: 3.0,
                slice: 3.0,
                pipeline: 3.0,
                products: 1e-9,
                ..d
            },
            0.0,
        ),
    ];
    check(|device| gemv::cost(instance, &request, device), &cases);
}

#[test]
fn a_gemv_over_packed_weights_decodes_and_one_of_four_token_blocks_loads_more() {
    let instance = a_gemv("gemv_window12_sm90_w4c1s2g1n4r4x8");
    let request = request(Op::Project, Format::Window12, (64, 64, 33));
    let cases: [Case; 4] = [
        (|d| Device { decode: 3.0, ..d }, 3.0),
        (|d| Device { token_block: 3.0, ..d }, 4.0 * 3.0),
        // Two tiles of tokens, each on a multiprocessor of its own.
        (|d| Device { x_loads: 2.0, ..d }, 64.0 * 32.0 * 2.0 / 2.0),
        (
            |d| Device {
                reduction: 3.0,
                dsmem: 1e-9,
                ..d
            },
            0.0,
        ),
    ];
    check(|device| gemv::cost(instance, &request, device), &cases);
}

#[test]
fn terms_are_not_decoded() {
    let instance = a_gemv("route_bf16x2_sm90_w8c8s2g1n1r1x8");
    let request = request(Op::Route, Format::Bf16x2, (16, 64, 1));
    check(
        |device| gemv::cost(instance, &request, device),
        &[(|d| Device { decode: 3.0, ..d }, 0.0)],
    );
}

#[test]
fn a_product_streams_its_terms_through_its_ring() {
    let instance = a_gemm("route_bf16x2_sm90_w4s4g1n8");
    let request = request(Op::Route, Format::Bf16x2, (64, 8192, 64)).row_major(true);
    let tile = 2.0 * 64.0 * 128.0;
    let cases: [Case; 2] = [
        (|d| Device { stream: 2.0, ..d }, 64.0 * 8192.0 * 4.0 / 132.0 / 2.0),
        // A ring of four stages, and less in flight than its bytes.
        (
            |d| Device {
                stream: 2.0,
                in_flight: 1e9,
                ..d
            },
            128.0 * tile / (2.0 * (4.0 * tile / 1e9)),
        ),
    ];
    check(
        |device| gemm::cost(&Division::whole(instance), &request, device),
        &cases,
    );
}

#[test]
fn what_should_not_serve_is_told_by_its_reason() {
    let reason =
        |name: &str, request: &Request, by_rows: bool| gemm::unwise(&Division::whole(a_gemm(name)), request, by_rows);
    let [few, many] = [32, 33].map(|m| request(Op::Project, Format::Bf16, (4096, 8192, m)));
    let units = "gemm_bf16_units_sm90_w8s4g1n8";
    let (wide, sharing) = ("gemm_bf16_units_sm90_w4s4g1n16", "gemm_bf16_units_sm90_w8s6g1n16h2");
    assert_eq!([few, many].map(|request| reason(units, &request, false)), [None; 2]);
    let of_wide = [few, many].map(|request| reason(wide, &request, false));
    assert_eq!(of_wide, [Some(Reason::EmptyBlocks), None]);
    let of_sharing = [few, many].map(|request| reason(sharing, &request, false));
    assert_eq!(of_sharing, [Some(Reason::LittleToShare), None]);
    assert_eq!(reason(units, &many, true), Some(Reason::RowMajorKept));
    let plain = FALLBACK_GEMM[0].name;
    assert_eq!(reason(plain, &few, false), Some(Reason::FewTokens));
    assert_eq!(reason(plain, &many, false), Some(Reason::NarrowLoads));
    assert_eq!(reason(plain, &many.x(2, 8192), false), None);

    // As many parts as there are groups of columns, and one more.
    let parts = |cluster, k| {
        let division = Division {
            cluster,
            ..Division::whole(a_gemm(units))
        };
        gemm::unwise(&division, &request(Op::Project, Format::Bf16, (4096, k, 33)), false)
    };
    assert_eq!(
        [parts(1, 1), parts(2, 65), parts(2, 64)],
        [None, None, Some(Reason::ShortK)]
    );

    let reason = |name: &str, request: &Request, tokens| gemv::unwise(a_gemv(name), request, false, tokens);
    let (eight, one) = ("gemv_bf16_sm90_w4c2s2g1n2r4x8", "gemv_bf16_sm90_w4c2s2g1n2r4x1");
    let unaligned = few.x(2, 8192);
    assert_eq!(reason(eight, &few, Some(16)), None);
    assert_eq!(reason(one, &few, Some(16)), Some(Reason::NarrowLoads));
    assert_eq!(reason(one, &unaligned, Some(16)), None);
    assert_eq!(reason(eight, &few, Some(32)), Some(Reason::SmallBlocks));
    assert_eq!(reason(eight, &few, Some(8)), Some(Reason::EmptyBlocks));
    assert_eq!(gemv::unwise(a_gemv(eight), &many, true, None), Some(Reason::Walks));
    assert_eq!(gemv::unwise(a_gemv(eight), &few, true, Some(16)), None);
}

#[test]
fn a_router_for_few_tokens_joins_and_chooses() {
    let instance = a_gemv("route_bf16x2_sm90_w8c8s2g1n4r1x8");
    let cost = |m: usize| {
        let request = request(Op::Route, Format::Bf16x2, (256, 8192, m));
        move |device: &Device| gemv::cost(instance, &request, device)
    };
    let cases: [Case; 2] = [
        (|d| Device { join: 3.0, ..d }, 3.0),
        // A CTA's share is four tokens, of eight warps one each.
        (|d| Device { choice: 3.0, ..d }, 3.0),
    ];
    check(cost(32), &cases);
    check(cost(1), &cases);
}

#[test]
fn what_a_product_moves_and_multiplies_is_counted() {
    // 8 tiles of 128 rows in clusters of two; 33 groups, 17 for a CTA; 2 tiles of 64 tokens: 32 CTAs, one each.
    let instance = a_gemm("gemm_window12_sm90_w8s5g1n8");
    let division = Division {
        cluster: 2,
        ..Division::whole(instance)
    };
    let request = request(Op::Project, Format::Window12, (1000, 2112, 70));
    let cta_weights = 17.0 * 8.0 * 1536.0;
    let cta_x = 17.0 * 64.0 * 128.0;
    let sums = 64.0 * 132.0 * 4.0;
    let cases: [Case; 11] = [
        (|d| Device { launch: 3.0, ..d }, 3.0),
        (|d| Device { pipeline: 3.0, ..d }, 3.0),
        (|d| Device { decode: 3.0, ..d }, 3.0),
        (|d| Device { stream: 2.0, ..d }, 1000.0 * 2112.0 * 1.5 / 132.0 / 2.0),
        (|d| Device { l2: 2.0, ..d }, 32.0 * (cta_weights + cta_x) / 132.0 / 2.0),
        (|d| Device { port: 2.0, ..d }, (cta_weights + cta_x) / 2.0),
        (|d| Device { products: 2.0, ..d }, 17.0 * 128.0 * 64.0 * 64.0 / 2.0),
        (|d| Device { shared: 2.0, ..d }, 2.0 * sums / 2.0),
        (|d| Device { dsmem: 2.0, ..d }, sums / 2.0 / 2.0),
        (|d| Device { reduction: 3.0, ..d }, 3.0),
        (
            |d| Device {
                token_block: 3.0,
                join: 3.0,
                slice: 3.0,
                choice: 3.0,
                x_loads: 1e-9,
                fill: 3.0,
                ..d
            },
            0.0,
        ),
    ];
    // What it takes to bring units into the order of K is a figure of the format's, and depends on the clock alone.
    let unit = crate::formats::permute_unit_us(Format::Window12);
    let permuted = |clock: f64| 17.0 * 8.0 * unit / clock;
    for clock in [0.5, 1.0] {
        let device = Device { clock, ..FREE };
        assert_relative_eq!(
            gemm::cost(&division, &request, &device),
            permuted(clock),
            max_relative = 1e-12
        );
    }
    check_but_for_permuting(&division, &request, &cases);
}

#[test]
fn tiles_for_few_tokens_count_those_that_there_are() {
    let instance = a_gemm("gemm_bf16_units_sm90_w8s4g1n8");
    let division = Division {
        cluster: 4,
        ..Division::whole(instance)
    };
    let request = request(Op::Project, Format::Bf16, (128, 4096, 8));
    let cases: [Case; 2] = [
        (|d| Device { port: 2.0, ..d }, 16.0 * (8.0 * 2048.0 + 8.0 * 128.0) / 2.0),
        (|d| Device { dsmem: 2.0, ..d }, 8.0 * 132.0 * 4.0 * 0.75 / 2.0),
    ];
    check_but_for_permuting(&division, &request, &cases);
}

#[test]
fn a_router_for_many_tokens_joins_its_slices_and_chooses_in_rounds() {
    let instance = a_gemm("route_bf16x2_sm90_w4s4g1n8");
    let cost = |cluster: usize, slices: usize| {
        let division = Division {
            instance,
            cluster,
            slices,
        };
        let request = request(Op::Route, Format::Bf16x2, (256, 8192, 256)).row_major(true);
        move |device: &Device| gemm::cost(&division, &request, device)
    };
    // 64 tokens for the five warps of a CTA, and 16 of them.
    check(cost(1, 1), &[(|d| Device { choice: 3.0, ..d }, 13.0 * 3.0)]);
    check(cost(4, 1), &[(|d| Device { choice: 3.0, ..d }, 4.0 * 3.0)]);
    check(
        cost(1, 1),
        &[(
            |d| Device {
                join: 3.0,
                slice: 5.0,
                ..d
            },
            3.0,
        )],
    );
    check(
        cost(1, 4),
        &[(
            |d| Device {
                join: 3.0,
                slice: 5.0,
                ..d
            },
            3.0 + 4.0 * 5.0,
        )],
    );
    // Both terms of four tiles of 64 rows, in each of the four tiles of tokens.
    let products = 4.0 * 4.0 * (64.0 * 64.0 * 8192.0 * 2.0);
    check(
        cost(1, 8),
        &[(|d| Device { products: 2.0, ..d }, products / 128.0 / 2.0)],
    );
}

#[test]
fn a_product_by_masked_loads_multiplies_at_half_the_rate() {
    let instance = &FALLBACK_GEMM[0];
    let request = request(Op::Project, Format::Bf16, (64, 64, 64)).row_major(true);
    let products = (instance.rows() * instance.tokens() * 64) as f64;
    let cost = |device: &Device| gemm::cost(&Division::whole(instance), &request, device);
    check(cost, &[(|d| Device { products: 2.0, ..d }, products)]);
}

/// Ten multiprocessors with round figures.
const SMALL: Device = Device {
    multiprocessors: 10,
    launch: 2.0,
    stream: 100.0,
    in_flight: 500.0,
    l2_bytes: 1 << 20,
    l2: 200.0,
    port: 300.0,
    shared: 40.0,
    dsmem: 25.0,
    fill: 3.0,
    cta: 0.5,
    decode: 0.25,
    reduction: 1.5,
    ..FREE
};

/// Two CTAs on each of ten multiprocessors.
const TWENTY: Traffic = Traffic {
    row_ctas: 20,
    token_tiles: 1,
    min_ctas: 2,
    weights: 40_000.0,
    cta_weights: 2000.0,
    cta_x: 0.0,
    sharing: 1,
    decoded: false,
    ring: 500.0,
    cluster: 1,
    reducing: 1,
    sums: 80.0,
    tile: 100.0,
};

#[test]
fn what_comes_in_takes_the_longest_of_its_ways() {
    let with_x = Traffic {
        cta_x: 1000.0,
        ..TWENTY
    };
    let shared_x = Traffic { sharing: 4, ..with_x };
    let three_tiles = Traffic {
        token_tiles: 3,
        ..TWENTY
    };
    let cases = [
        // 40 KB at 1000 bytes a microsecond.
        (TWENTY, SMALL, 40.0),
        // A quarter of the bytes in flight; then half the rate is there for 4000 bytes.
        (Traffic { ring: 125.0, ..TWENTY }, SMALL, 80.0),
        // CTAs whose weights are less than their rings have less in flight.
        (
            Traffic {
                cta_weights: 125.0,
                ..TWENTY
            },
            Device { stream: 1.0, ..SMALL },
            4000.0,
        ),
        (TWENTY, Device { l2: 50.0, ..SMALL }, 80.0),
        (with_x, Device { l2: 50.0, ..SMALL }, 120.0),
        (shared_x, Device { l2: 50.0, ..SMALL }, 90.0),
        (TWENTY, Device { port: 25.0, ..SMALL }, 160.0),
        (shared_x, Device { port: 25.0, ..SMALL }, 240.0),
        // Three tiles of tokens get from L2 the weights that it holds, and from memory those that it does not.
        (three_tiles, SMALL, 60.0),
        (
            three_tiles,
            Device {
                l2_bytes: 39_999,
                ..SMALL
            },
            120.0,
        ),
        (
            three_tiles,
            Device {
                l2_bytes: 40_000,
                ..SMALL
            },
            60.0,
        ),
        // Half the rows: two tiles of tokens run at a time.
        (
            Traffic {
                row_ctas: 10,
                ..three_tiles
            },
            Device { l2_bytes: 0, ..SMALL },
            80.0,
        ),
        // Of six CTAs, two wait for memory at a time, and only the first two where L2 holds the weights.
        (
            three_tiles,
            Device {
                in_flight: 4000.0,
                ..SMALL
            },
            160.0,
        ),
        (
            three_tiles,
            Device {
                in_flight: 4000.0,
                l2_bytes: 0,
                ..SMALL
            },
            480.0,
        ),
    ];
    for (at, (traffic, device, expected)) in cases.into_iter().enumerate() {
        assert_eq!(traffic.bring_in(&device), expected, "case {at}");
    }
}

#[test]
fn what_is_around_the_stream_is_counted() {
    let alone = Traffic { min_ctas: 1, ..TWENTY };
    let clusters = Traffic { reducing: 4, ..TWENTY };
    assert_eq!([TWENTY, alone].map(|traffic| traffic.waves(&SMALL)), [1, 2]);
    assert_eq!([TWENTY, alone].map(|traffic| traffic.fill_again(&SMALL)), [0.0, 3.0]);
    assert_eq!(TWENTY.bring_out(&SMALL), 2.0 * 2.0 * 80.0 / 40.0);
    assert_eq!(clusters.bring_out(&SMALL), 8.0 + 2.0 * 75.0 / 25.0 + 2.0 * 1.5);
    assert_eq!(TWENTY.around(&SMALL), 2.0 + 2.0 * 0.5 + 8.0);
    assert_eq!(Traffic { decoded: true, ..alone }.around(&SMALL), 11.0 + 3.0 + 0.25);
}
