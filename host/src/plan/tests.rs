use super::*;
use crate::suites::Suite;
use proptest::prelude::*;

fn request(n: usize, k: usize, m: usize) -> Request {
    Request::new(Format::Bf16, Shape::new(n, k).unwrap(), m, 0)
}

fn request_for(format: Format, n: usize, k: usize, m: usize) -> Request {
    Request {
        format,
        ..request(n, k, m)
    }
}

fn chosen(n: usize, k: usize, m: usize) -> &'static str {
    plan(&request(n, k, m)).unwrap().unwrap().instance.name
}

#[test]
fn measured_rows_are_what_is_planned() {
    for row in measured::built_in().rows() {
        let request = request_for(row.format, row.shape.n(), row.shape.k(), row.m);
        assert_eq!(
            plan(&request).unwrap().unwrap().instance.name,
            row.kernel.name(),
            "{row:?}"
        );
    }
}

#[test]
fn every_muse_case_is_measured() {
    for case in Suite::Muse.cases().unwrap() {
        for format in [Format::Bf16, Format::Window12] {
            let request = request_for(format, case.shape.n(), case.shape.k(), case.m);
            assert!(measured::gemv(&request).is_some(), "{case:?} {format:?}");
        }
    }
}

#[test]
fn tokens_between_measured_rows_take_the_next_row() {
    assert_eq!(chosen(2304, 8192, 5), chosen(2304, 8192, 8));
    assert_eq!(chosen(2304, 8192, 9), chosen(2304, 8192, 16));
    assert_eq!(chosen(2304, 8192, 33), chosen(2304, 8192, 32));
    assert_eq!(chosen(2304, 8192, 1000), chosen(2304, 8192, 32));
}

#[test]
fn no_tokens_is_no_launch() {
    assert_eq!(plan(&request(16, 64, 0)).unwrap(), None);
    assert_eq!(plan_with(&Format::Bf16.gemvs()[0], &request(16, 64, 0)).unwrap(), None);
}

#[test]
fn unaligned_rows_of_x_take_narrow_loads() {
    let shape = Shape::new(2304, 8192).unwrap();
    for (x, k_shape) in [(2, shape), (8, shape), (0, Shape::new(2304, 8191).unwrap())] {
        let plan = plan(&Request::new(Format::Bf16, k_shape, 1, x)).unwrap().unwrap();
        assert_eq!(plan.instance.x_values, 1, "{x}");
    }
    assert_eq!(
        plan(&Request::new(Format::Bf16, shape, 1, 32))
            .unwrap()
            .unwrap()
            .instance
            .x_values,
        8
    );
    let wide = instance(chosen(2304, 8192, 1)).unwrap();
    let err = plan_with(wide, &Request::new(Format::Bf16, shape, 1, 2)).unwrap_err();
    assert!(err.to_string().contains("not aligned"), "{err}");
}

#[test]
fn launches_beyond_the_grid_are_refused() {
    for (n, m) in [(16, 65_535 * 32 + 1), (16, usize::MAX)] {
        let err = plan(&request(n, 64, m)).unwrap_err();
        assert!(matches!(err, Error::Grid { .. }), "{err}");
    }
    plan(&request(u32::MAX as usize, 64, 65_535 * 32)).unwrap();
}

/// Short of work, the cost model must not leave warps without any: a K of few groups takes few K slices.
#[test]
fn small_k_takes_few_slices() {
    for k in [1usize, 64, 128, 256] {
        for m in [1, 16, 32] {
            let (n, groups) = (8192, k.div_ceil(64));
            let aligned = Request {
                format: Format::Bf16,
                shape: Shape::new(n, k).unwrap(),
                m,
                x_aligned: true,
            };
            let instance = plan(&aligned).unwrap().unwrap().instance;
            assert!(instance.k_slices() <= groups.max(8), "{} at k = {k}", instance.name);
        }
    }
}

proptest! {
    #[test]
    fn any_shape_gets_a_legal_launch(
        packed: bool, n in 1usize..40_000, k in 1usize..40_000, m in 1usize..2_000, x in 0u64..64
    ) {
        let format = if packed { Format::Window12 } else { Format::Bf16 };
        let request = Request::new(format, Shape::new(n, k).unwrap(), m, x * 2);
        let plan = plan(&request).unwrap().unwrap();
        let instance = plan.instance;
        prop_assert_eq!(unfit(instance, &request), None);
        prop_assert_eq!(plan.grid[0] % plan.cluster[0], 0);
        prop_assert!(plan.grid[0] as usize / instance.cluster * instance.rows() >= n);
        prop_assert!(plan.grid[1] as usize * instance.tokens() >= m);
        prop_assert!(plan.block[0] <= 1024 && plan.shared_bytes <= 227 * 1024);
        // No token block is launched that a smaller instance would have spared.
        prop_assert!(instance.tokens() <= 8 || instance.tokens() < 2 * m);
    }

    #[test]
    fn a_rejected_instance_is_never_chosen(n in 1usize..10_000, k in 1usize..10_000, m in 1usize..64) {
        let request = request(n, k, m);
        let chosen = plan(&request).unwrap().unwrap().instance;
        let verdicts: Vec<_> = candidates(&request).collect();
        let costs: Vec<f64> = verdicts.iter().filter_map(|(_, v)| if let Verdict::Cost(c) = v { Some(*c) } else { None }).collect();
        prop_assert!(costs.iter().all(|c| c.is_finite() && *c > 0.0));
        if measured::gemv(&request).is_none() {
            let (_, verdict) = verdicts.iter().find(|(i, _)| *i == chosen).unwrap();
            prop_assert_eq!(*verdict, Verdict::Cost(costs.iter().copied().fold(f64::INFINITY, f64::min)));
        }
    }
}
