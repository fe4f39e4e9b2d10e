use super::*;
use kernels_gpu::instances::{GEMM, PLAIN_GEMM};
use proptest::prelude::*;

fn request(purpose: Purpose, terms: usize, (n, k): (usize, usize), m: usize) -> GemmRequest {
    GemmRequest {
        purpose,
        terms,
        shape: Shape::new(n, k).unwrap(),
        m,
        loads: Loads::Tensor,
        multiprocessors: 132,
        max_slices: MAX_SLICES,
        left_out: LeftOut::NONE,
    }
}

fn chosen(request: &GemmRequest) -> GemmPlan {
    gemm(request).unwrap().unwrap()
}

fn ctas(plan: &GemmPlan) -> usize {
    plan.grid.iter().map(|&side| side as usize).product()
}

#[test]
fn no_tokens_is_no_launch() {
    let request = request(Purpose::Route, 2, (256, 8192), 0);
    assert_eq!(gemm(&request).unwrap(), None);
    let division = Division {
        instance: &GEMM[0],
        cluster: 1,
        slices: 1,
    };
    assert_eq!(gemm_with(&division, &request).unwrap(), None);
}

/// A router has few rows: only a split of K keeps the device busy.
#[test]
fn the_router_fills_the_device() {
    for terms in 1..=3 {
        for m in [33, 64, 128, 256, 1000] {
            let plan = chosen(&request(Purpose::Route, terms, (256, 8192), m));
            assert!((64..=264).contains(&ctas(&plan)), "{m}: {plan:?}");
            assert_eq!(plan.serial, plan.slices == 1);
        }
    }
}

#[test]
fn a_layer_without_a_workspace_is_split_over_clusters_alone() {
    for (n, k) in [(2304, 8192), (8192, 1024), (4096, 8192), (8192, 4096)] {
        for m in [33, 128, 256] {
            let mut request = request(Purpose::Product, 1, (n, k), m);
            request.max_slices = 1;
            let plan = chosen(&request);
            assert!(plan.slices == 1 && plan.serial, "{plan:?}");
            assert!(ctas(&plan) >= 64, "{plan:?}");
        }
    }
}

#[test]
fn fewer_multiprocessors_take_fewer_ctas() {
    let mut request = request(Purpose::Route, 2, (256, 8192), 128);
    let many = ctas(&chosen(&request));
    request.multiprocessors = 16;
    assert!(ctas(&chosen(&request)) < many);
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let base = request(Purpose::Route, 2, (256, 8192), 64);
    let route = |terms| {
        GEMM.iter()
            .find(|i| i.purpose == Purpose::Route && i.terms == terms)
            .unwrap()
    };
    let product = GEMM.iter().find(|i| i.purpose == Purpose::Product).unwrap();
    let with = |instance, cluster, slices| Division {
        instance,
        cluster,
        slices,
    };
    for (division, words) in [
        (with(product, 1, 1), "another purpose"),
        (with(route(3), 1, 1), "another number of terms"),
        (with(&PLAIN_GEMM[2], 1, 1), "in another way"),
        (with(route(2), 3, 1), "clusters of 1, 2, 4 or 8"),
        (with(route(2), 1, 0), "1 to 16 slices"),
        (with(route(2), 1, 17), "1 to 16 slices"),
    ] {
        let err = gemm_with(&division, &base).unwrap_err().to_string();
        assert!(err.contains(words), "{err}");
    }
    let alone = GemmRequest { max_slices: 1, ..base };
    assert!(
        gemm_with(&with(route(2), 8, 2), &alone)
            .unwrap_err()
            .to_string()
            .contains("no workspace")
    );
    let four = GemmRequest { terms: 4, ..base };
    assert!(
        gemm(&four)
            .unwrap_err()
            .to_string()
            .contains("every compiled instance is rejected")
    );
    let huge = GemmRequest { m: usize::MAX, ..base };
    assert!(matches!(gemm(&huge).unwrap_err(), Error::Grid { .. }));
}

/// A product over packed units.
fn over_units(format: Format, (n, k): (usize, usize), m: usize) -> GemmRequest {
    GemmRequest {
        loads: Loads::Units(format),
        max_slices: 1,
        ..request(Purpose::Product, 1, (n, k), m)
    }
}

#[test]
fn what_is_left_out_is_not_chosen() {
    let mut request = over_units(Format::Window12, (4096, 8192), 128);
    let unit_gemms: Vec<&Gemm> = gemms().filter(|i| i.loads == request.loads).collect();
    for left in (1..=unit_gemms.len()).rev() {
        let chosen = chosen(&request).instance;
        assert!(!request.left_out.contains(chosen) && unit_gemms.contains(&chosen));
        request.left_out.insert(chosen);
        assert_eq!(request.left_out.iter().count(), unit_gemms.len() + 1 - left);
        let again = Division {
            instance: chosen,
            cluster: 1,
            slices: 1,
        };
        let refused = gemm_with(&again, &request).unwrap_err().to_string();
        assert!(refused.contains("wrong result"), "{refused}");
    }
    assert!(gemm(&request).is_err());
    assert!(gemm(&over_units(Format::Bf16, (4096, 8192), 128)).is_ok());
}

#[test]
fn fewer_bytes_of_weights_cost_less() {
    let cost = |format| {
        let request = over_units(format, (4096, 8192), 64);
        let costs = gemm_candidates(&request).filter_map(|(_, verdict)| match verdict {
            Verdict::Cost(cost) => Some(cost),
            Verdict::Rejected(_) => None,
        });
        costs.fold(f64::INFINITY, f64::min)
    };
    assert!(cost(Format::Window12) < 0.9 * cost(Format::Bf16));
}

#[test]
fn a_set_has_room_for_every_instance() {
    let mut all = LeftOut::NONE;
    gemms().for_each(|instance| all.insert(instance));
    assert!(all.iter().eq(gemms()));
}

proptest! {
    #[test]
    fn any_layer_gets_a_legal_launch_over_its_units(
        window12: bool, n in 1usize..20_000, k in 1usize..20_000, m in 33usize..10_000, multiprocessors in 1usize..200
    ) {
        let format = if window12 { Format::Window12 } else { Format::Bf16 };
        let request = GemmRequest { multiprocessors, ..over_units(format, (n, k), m) };
        let plan = chosen(&request);
        let i = plan.instance;
        prop_assert_eq!(i.loads, Loads::Units(format));
        prop_assert_eq!(plan.grid[0] as usize, n.div_ceil(i.rows()) * plan.cluster[0] as usize);
        prop_assert_eq!((plan.grid[1], plan.slices, plan.serial), (1, 1, true));
        prop_assert_eq!(plan.grid[2] as usize, m.div_ceil(i.tokens()));
        prop_assert!(plan.cluster[0] == 1 || plan.cluster[0] as usize <= k.div_ceil(64));
        prop_assert!(plan.shared_bytes <= 227 * 1024 && plan.block[0] <= 1024);
    }

    #[test]
    fn any_router_gets_a_legal_launch(
        terms in 1usize..=3, n in 1usize..=1024, k in 1usize..20_000, m in 1usize..5_000, plain: bool, multiprocessors in 1usize..200
    ) {
        let mut request = request(Purpose::Route, terms, (n, k), m);
        request.loads = if plain { Loads::Plain } else { Loads::Tensor };
        request.multiprocessors = multiprocessors;
        let plan = chosen(&request);
        let i = plan.instance;
        prop_assert_eq!((i.purpose, i.terms, i.loads), (Purpose::Route, terms, request.loads));
        prop_assert_eq!(plan.grid[0] as usize, n.div_ceil(i.rows()) * plan.cluster[0] as usize);
        prop_assert_eq!(plan.grid[1], plan.slices);
        prop_assert_eq!(plan.grid[2] as usize, m.div_ceil(i.tokens()));
        let workers = (plan.slices * plan.cluster[0]) as usize;
        prop_assert!(workers == 1 || workers <= k.div_ceil(64));
        prop_assert!(plan.shared_bytes <= 227 * 1024 && plan.block[0] <= 1024);
    }

    #[test]
    fn the_cheapest_is_chosen(terms in 1usize..=3, n in 1usize..=1024, k in 1usize..20_000, m in 1usize..2_000) {
        let request = request(Purpose::Route, terms, (n, k), m);
        let plan = chosen(&request);
        let mut least = f64::INFINITY;
        let mut own = f64::NAN;
        for (division, verdict) in gemm_candidates(&request) {
            if let Verdict::Cost(cost) = verdict {
                prop_assert!(cost.is_finite() && cost > 0.0);
                least = least.min(cost);
                if (division.instance, division.cluster as u32, division.slices as u32) == (plan.instance, plan.cluster[0], plan.slices) {
                    own = cost;
                }
            }
        }
        prop_assert_eq!(own, least);
    }
}
