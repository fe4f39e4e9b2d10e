use super::*;
use crate::plan::{Clusters, Kernel, Miscompiled, kernels, plan, plan_with};
use crate::{Error, Shape};
use approx::abs_diff_eq;
use kernels_gpu::instances::{FALLBACK_GEMM, Format, GEMM, gemms};

fn layer(format: Format, (n, k): (usize, usize), m: usize) -> Request {
    Request::new(Op::Project, format, Shape::new(n, k).unwrap(), m)
}

fn router(format: Format, m: usize) -> Request {
    Request::new(Op::Route, format, Shape::new(256, 8192).unwrap(), m).row_major(true)
}

fn chosen(request: &Request, device: &Device) -> Division {
    match plan(request, device).unwrap().unwrap().kernel {
        Kernel::Gemm(division) => division,
        Kernel::Gemv(instance) => panic!("{request}: {}", instance.name),
    }
}

fn ctas(request: &Request) -> u32 {
    plan(request, &Device::H200).unwrap().unwrap().grid.iter().product()
}

/// A router has few rows: only a split of K keeps the device busy.
#[test]
fn the_router_fills_the_device() {
    for format in [Format::Bf16, Format::Bf16x2, Format::Bf16x3] {
        for m in [33, 64, 128, 256, 1000] {
            let ctas = ctas(&router(format, m));
            assert!((64..=264).contains(&ctas), "{format:?} {m}: {ctas}");
        }
    }
}

#[test]
fn a_layer_is_split_over_clusters_alone() {
    for shape in [(2304, 8192), (8192, 1024), (4096, 8192), (8192, 4096)] {
        for m in [33, 128, 256] {
            for row_major in [false, true] {
                let request = layer(Format::Bf16, shape, m).row_major(row_major);
                let division = chosen(&request, &Device::H200);
                assert_eq!(division.slices, 1, "{division:?}");
                assert!(ctas(&request) >= 64, "{division:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let base = router(Format::Bf16x2, 64);
    let route = |terms| {
        let mut routes = GEMM.iter().filter(|i| i.op == Op::Route);
        routes.find(|i| i.terms == terms).unwrap()
    };
    let product = GEMM.iter().find(|i| i.op == Op::Project).unwrap();
    let with = |instance, cluster, slices| Division {
        instance,
        cluster,
        slices,
    };
    let sharing = GEMM.iter().find(|i| i.multicast > 1).unwrap();
    let units = layer(Format::Bf16, (256, 8192), 64);
    for (division, request, words) in [
        (with(product, 1, 1), base, "another operation"),
        (with(route(3), 1, 1), base, "another format"),
        (with(route(2), 3, 1), base, "clusters of 1, 2, 4 or 8 CTAs"),
        (with(route(2), 1, 0), base, "1 to 16 slices"),
        (with(route(2), 1, 17), base, "1 to 16 slices"),
        (with(route(2), 1, 1), base.row_major(false), "no copy is kept"),
        (with(route(2), 1, 1), base.x(2, 8192), "not aligned"),
        (with(product, 8, 2), units.row_major(true), "no workspace"),
        (
            with(sharing, 1, 1),
            units.row_major(true),
            "a multiple of those that share x",
        ),
        (with(&FALLBACK_GEMM[0], 1, 1), units, "no copy is kept"),
    ] {
        let refused = plan_with(&Kernel::Gemm(division), &request, &Device::H200);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    let foreign = Gemm {
        name: "gemm_bf16_sm90_w1s1g1n1",
        ..*product
    };
    let foreign = Kernel::Gemm(Division::whole(Box::leak(Box::new(foreign))));
    let message = plan_with(&foreign, &units, &Device::H200).unwrap_err().to_string();
    assert!(message.contains("no kernel of this build"), "{message}");
    let huge = Request { m: usize::MAX, ..base };
    let whole = Kernel::Gemm(Division::whole(route(2)));
    let refused = plan_with(&whole, &huge, &Device::H200).unwrap_err();
    assert!(matches!(refused, Error::Grid { .. }), "{refused}");
    // For fewer tokens, and wherever x lies, what should not be chosen still fits.
    for (kernel, request) in [
        (whole, Request { m: 3, ..base }),
        (Kernel::Gemm(Division::whole(&FALLBACK_GEMM[0])), units.row_major(true)),
        (Kernel::Gemv(&Format::Bf16.gemvs()[0]), units),
    ] {
        assert!(plan_with(&kernel, &request, &Device::H200).unwrap().is_some());
    }
}

#[test]
fn miscompiled_kernels_are_not_chosen() {
    let request = layer(Format::Window12, (4096, 8192), 128);
    let of_units = |i: &&Gemm| i.loads == Loads::Packed(Format::Window12);
    let all = gemms().filter(of_units).count();
    let mut miscompiled = Miscompiled::NONE;
    for left in 1..=all {
        let device = Device::H200.without(miscompiled);
        let instance = chosen(&request, &device).instance;
        assert!(of_units(&instance) && !miscompiled.contains(instance));
        miscompiled.insert(instance);
        assert_eq!(miscompiled.iter().count(), left);
        let again = Kernel::Gemm(Division::whole(instance));
        let refused = plan_with(&again, &request, &Device::H200.without(miscompiled));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("self-test"), "{message}");
    }
    // Then a GEMV walks; other formats are none the worse.
    let device = Device::H200.without(miscompiled);
    let walk = plan(&request, &device).unwrap().unwrap();
    assert!(walk.name().starts_with("gemv_window12_"), "{walk:?}");
    chosen(&layer(Format::Bf16, (4096, 8192), 128), &device);
}

#[test]
fn fewer_bytes_of_weights_cost_less() {
    // Where clusters may lie anywhere: how many fit depends on their size, which differs.
    let device = Device {
        clusters: Clusters::ANYWHERE,
        ..Device::H200
    };
    let cost = |format| {
        let request = layer(format, (4096, 8192), 64);
        super::cost(&chosen(&request, &device), &request, &device)
    };
    assert!(cost(Format::Window12) < 0.9 * cost(Format::Bf16));
}

/// Each of those that share x, and the instance that differs in that alone.
fn sharing() -> impl Iterator<Item = (&'static Gemm, &'static Gemm)> {
    gemms().filter(|i| i.multicast > 1).map(|i| {
        let alone = |other: &&Gemm| {
            Gemm {
                name: i.name,
                family: i.family,
                index: i.index,
                number: i.number,
                multicast: i.multicast,
                ..**other
            } == *i
                && other.multicast == 1
        };
        (i, gemms().find(alone).unwrap())
    })
}

/// Where L2 is the limit, a product takes as long as it takes to read its weights' tiles and its part of x.
#[test]
fn shared_tokens_leave_l2_once() {
    let slow = Device {
        l2: 1.0,
        multiprocessors: 1,
        ..Device::H200
    };
    for (instance, alone) in sharing() {
        let cost_of = |instance: &'static Gemm, tiles: usize| {
            let request = layer(Format::Bf16, (tiles * instance.rows(), 8192), instance.tokens());
            cost(&Division::whole(instance), &request, &slow)
        };
        let groups = 3 * instance.multicast;
        let ratio = cost_of(instance, groups) / cost_of(alone, groups);
        let (weights, x) = (instance.weight_tile_bytes() as f64, instance.x_tile_bytes() as f64);
        let expected = (weights + x / instance.multicast as f64) / (weights + x);
        assert!(
            abs_diff_eq!(ratio, expected, epsilon = 1e-3 * expected),
            "{}: {ratio}, not {expected}",
            instance.name
        );
        // Tiles that are there only to bring their part of x are not free.
        assert_eq!(
            cost_of(instance, groups - 1),
            cost_of(instance, groups),
            "{}",
            instance.name
        );
        assert!(cost_of(alone, groups - 1) < cost_of(alone, groups), "{}", instance.name);
    }
}

/// But each CTA takes in all of x that it multiplies.
#[test]
fn shared_tokens_arrive_in_each() {
    let narrow = Device {
        port: 1.0,
        multiprocessors: 1,
        ..Device::H200
    };
    for (instance, alone) in sharing() {
        let request = layer(
            Format::Bf16,
            (instance.multicast * instance.rows(), 8192),
            instance.tokens(),
        );
        let [shared, own] = [instance, alone].map(|i| cost(&Division::whole(i), &request, &narrow));
        assert!(
            abs_diff_eq!(shared, own, epsilon = 1e-3 * own),
            "{}: {shared} and {own}",
            instance.name
        );
    }
}

/// Beyond 64 tokens, the layers read more of x than of weights out of L2, unless they share it. A device's GPCs may
/// not hold all clusters at once that share it well, so this is one whose clusters lie anywhere.
#[test]
fn layers_of_many_tokens_share_x() {
    let device = Device {
        clusters: Clusters::ANYWHERE,
        ..Device::H200
    };
    for shape in [(8192, 1024), (4096, 8192), (8192, 4096)] {
        for m in [128, 256] {
            let request = layer(Format::Window12, shape, m);
            let division = chosen(&request, &device);
            assert!(division.instance.multicast > 1 && division.cluster.is_multiple_of(division.instance.multicast));
            let without = sharing().fold(Miscompiled::NONE, |mut miscompiled, (instance, _)| {
                miscompiled.insert(instance);
                miscompiled
            });
            let alone = chosen(&request, &device.without(without));
            let [shared, own] = [division, alone].map(|division| cost(&division, &request, &device));
            // With few columns and 128 tokens, what must come in is no longer what takes the time.
            let goal = if (shape.1, m) == (1024, 128) { 1.0 } else { 0.9 };
            assert!(shared < goal * own, "{request}: {shared} and {own}");
        }
    }
}

/// Weights that L2 holds are read from memory once; of others, each wave of token tiles reads them again.
#[test]
fn weights_beyond_l2_are_read_again() {
    let request = layer(Format::Bf16, (4096, 16384), 4096);
    let large = Device {
        l2_bytes: usize::MAX,
        ..Device::H200
    };
    // A memory so slow that nothing else counts.
    let slow = |device: &Device| Device { stream: 1.0, ..*device };
    let division = chosen(&request, &Device::H200);
    let (once, again) = (slow(&large), slow(&Device::H200));
    let ratio = cost(&division, &request, &again) / cost(&division, &request, &once);
    let waves = request.m.div_ceil(division.instance.tokens());
    assert!(ratio > 1.5 && ratio <= waves as f64, "{ratio}");
}

#[test]
fn kernels_are_sorted_by_cost() {
    let request = router(Format::Bf16x2, 128);
    let kernels = kernels(&request, &Device::H200);
    let costs = kernels.iter().map(|kernel| match kernel {
        Kernel::Gemm(division) => cost(division, &request, &Device::H200),
        Kernel::Gemv(_) => f64::NAN,
    });
    assert!(kernels.len() > 20 && costs.is_sorted());
}
