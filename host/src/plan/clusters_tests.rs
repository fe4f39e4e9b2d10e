use super::*;
use crate::plan::{FORMATS, Op, plan};
use crate::suites::Suite;
use crate::{Shape, instances};
use kernels_gpu::instances::Format;
use proptest::prelude::*;

/// GPCs of devices that are known: two of 132 multiprocessors, one of 114.
const GPCS: [&[u32]; 3] = [
    &[16, 16, 16, 16, 16, 18, 18, 16],
    &[18, 18, 18, 16, 16, 16, 16, 14],
    &[16, 16, 16, 16, 16, 18, 16],
];

fn device(gpcs: &[u32]) -> Device {
    Device {
        multiprocessors: gpcs.iter().sum::<u32>() as usize,
        clusters: Clusters::of_gpcs(gpcs),
        ..Device::H200
    }
}

/// Places clusters CTA by CTA into free places of multiprocessors of one GPC, until none fits: how many there are.
fn place(gpcs: &[u32], size: usize, ctas: usize) -> usize {
    let mut placed = 0;
    for &sms in gpcs {
        let mut free = vec![ctas; sms as usize];
        'clusters: loop {
            let before = free.clone();
            for _ in 0..size {
                // On the multiprocessor with the most room.
                match free.iter_mut().max() {
                    Some(room) if *room > 0 => *room -= 1,
                    _ => {
                        free = before;
                        break 'clusters;
                    }
                }
            }
            placed += 1;
        }
        assert!(free.iter().sum::<usize>() < size);
    }
    placed
}

/// Waves, by placing clusters one after the other: when none fits, all end and the next wave begins.
fn waves(gpcs: &[u32], size: usize, ctas: usize, clusters: usize) -> usize {
    let (mut left, mut waves) = (clusters, 0);
    while left > 0 {
        left -= place(gpcs, size, ctas).min(left);
        waves += 1;
    }
    waves
}

#[test]
fn known_devices_hold_what_they_do() {
    let eights = GPCS.map(|gpcs| device(gpcs).clusters_at_a_time(8, 1));
    assert_eq!(eights, [16, 15, 14]);
    assert_eq!(GPCS.map(|gpcs| device(gpcs).multiprocessors), [132, 132, 114]);
    // The table without a device is the smaller of those of its size.
    assert_eq!(Device::H200.clusters_at_a_time(8, 1), 15);
    for size in CLUSTERS {
        for ctas in 1..=MOST_CTAS {
            let least = GPCS[..2].iter().map(|gpcs| place(gpcs, size, ctas)).min();
            assert_eq!(
                Some(Device::H200.clusters_at_a_time(size, ctas)),
                least,
                "{size} {ctas}"
            );
        }
    }
}

#[test]
fn one_cluster_more_than_fit_makes_a_second_wave() {
    let h200 = Device::H200;
    assert_eq!([15, 16].map(|clusters| h200.on_busiest(clusters, 8, 1)), [1, 2]);
    // Where two CTAs fit on a multiprocessor, it runs beside others.
    assert_eq!(
        [15, 16, 31, 32].map(|clusters| h200.on_busiest(clusters, 8, 2)),
        [1, 2, 2, 3]
    );
    let waves = |clusters| Waves {
        size: 8,
        clusters,
        at_a_time: h200.clusters_at_a_time(8, 1),
    };
    assert_eq!([15, 16].map(|clusters| waves(clusters).count()), [1, 2]);
    assert_eq!(waves(16).to_string(), "16 clusters, 2 waves");
}

#[test]
fn a_driver_is_asked_for_each_size_and_each_number_of_ctas() {
    let mut asked = Vec::new();
    let clusters = Clusters::asked(|size, ctas| {
        asked.push((size, ctas));
        Ok::<_, ()>((100 * size + ctas) as u32)
    });
    let clusters = clusters.unwrap();
    assert_eq!(asked.len(), CLUSTERS.len() * MOST_CTAS);
    assert!(
        asked
            .iter()
            .all(|&(size, ctas)| clusters.held(size, ctas) == Some(100 * size + ctas))
    );
    assert_eq!(clusters.to_string(), "as the driver says");
    assert_eq!(Clusters::asked(|_, _| Err("no")), Err("no"));
    // No driver can speak of more clusters than multiprocessors hold CTAs for, and an estimate speaks of as many.
    for clusters in [clusters, Clusters::ANYWHERE] {
        let device = Device {
            clusters,
            ..Device::H200
        };
        assert_eq!(device.clusters_at_a_time(8, 1), 16);
    }
    assert!(Clusters::ANYWHERE.to_string().contains("estimate"));
}

/// A count is known for every kernel.
#[test]
fn no_kernel_asks_for_more_ctas_or_other_clusters_than_are_counted() {
    for entry in instances::entries() {
        assert!(entry.min_ctas <= MOST_CTAS, "{}", entry.name);
        assert!(CLUSTERS.contains(&entry.cluster), "{}", entry.name);
    }
}

/// Every layer and router that must be fast, and slices of its rows or columns for two, four and eight GPUs.
fn muse() -> Vec<(Op, Shape)> {
    let layers = Suite::Muse
        .cases()
        .unwrap()
        .into_iter()
        .map(|case| (Op::Project, case.shape));
    let routers = (Suite::Muse.router_cases().unwrap().into_iter()).map(|case| (Op::Route, case.shape));
    let mut shapes: Vec<(Op, Shape)> = Vec::new();
    for (op, shape) in layers.chain(routers) {
        shapes.push((op, shape));
        if op == Op::Project {
            for gpus in [2, 4, 8] {
                shapes.push((op, Shape::new(shape.n() / gpus, shape.k()).unwrap()));
                shapes.push((op, Shape::new(shape.n(), shape.k() / gpus).unwrap()));
            }
        }
    }
    shapes.dedup();
    shapes
}

/// Each request that the suite makes, on each of the devices.
fn each_plan(mut see: impl FnMut(&[u32], &Device, &Request)) {
    for gpcs in GPCS {
        let device = device(gpcs);
        for (op, shape) in muse() {
            for format in FORMATS {
                let serves = match op {
                    Op::Project => matches!(format, Format::Bf16 | Format::Window12),
                    Op::Route => format != Format::Window12,
                };
                for m in [1, 8, 16, 32, 128, 256] {
                    for row_major in [false, true] {
                        if serves {
                            see(gpcs, &device, &Request::new(op, format, shape, m).row_major(row_major));
                        }
                    }
                }
            }
        }
    }
}

/// Where GPCs hold 15 or 14 clusters of eight, plans for the layers name every kernel that is there for that.
#[test]
fn kernels_of_twelve_warps_that_share_x_are_there_for_a_reason() {
    let mut unused: Vec<_> = instances::gemms()
        .filter(|i| i.warps == 12 && i.multicast > 1)
        .collect();
    assert_eq!(unused.len(), 1);
    each_plan(|_, device, request| {
        if let Kernel::Gemm(division) = plan(request, device).unwrap().unwrap().kernel {
            unused.retain(|instance| *instance != division.instance);
        }
    });
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn every_muse_plan_runs_in_the_waves_that_it_is_costed_with() {
    let mut count = 0;
    each_plan(|gpcs, device, request| {
        let plan = plan(request, device).unwrap().unwrap();
        let costed = Waves::new(&plan.kernel, request, device).unwrap();
        let (size, ctas) = (plan.cluster[0] as usize, plan.kernel.min_ctas());
        let clusters = plan.grid.iter().product::<u32>() as usize / size;
        assert_eq!((costed.size, costed.clusters), (size, clusters), "{request}");
        assert_eq!(
            costed.count(),
            waves(gpcs, size, ctas, clusters),
            "{request} on {gpcs:?}: {} in {costed}",
            plan.kernel
        );
        count += 1;
    });
    assert!(count > 500, "{count}");
}

proptest! {
    /// The counts are those of clusters that are placed one by one, and the busiest multiprocessor has what it must.
    #[test]
    fn counts_are_those_of_placed_clusters(
        gpcs in prop::collection::vec(1u32..=18, 1..=8),
        size in prop::sample::select(&CLUSTERS[..]),
        ctas in 1..=MOST_CTAS,
        clusters in 0usize..2000,
    ) {
        let device = device(&gpcs);
        let placed = place(&gpcs, size, ctas);
        prop_assert_eq!(device.clusters.held(size, ctas), Some(placed));
        prop_assert_eq!(device.clusters_at_a_time(size, ctas), placed.max(1));
        let busiest = device.on_busiest(clusters, size, ctas);
        prop_assert!(busiest * device.multiprocessors >= clusters * size);
        prop_assert!(device.on_busiest(clusters + 1, size, ctas) >= busiest);
        if size == 1 {
            prop_assert_eq!(busiest, clusters.div_ceil(device.multiprocessors));
        }
        if placed > 0 {
            let waves = waves(&gpcs, size, ctas, clusters);
            prop_assert_eq!(Waves { size, clusters, at_a_time: placed }.count(), waves);
            prop_assert!(busiest <= waves * ctas);
        }
    }
}
