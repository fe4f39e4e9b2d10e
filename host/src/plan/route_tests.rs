use super::*;
use proptest::prelude::*;

fn request(m: usize) -> RouteRequest {
    RouteRequest {
        format: Format::Bf16x2,
        shape: Shape::new(256, 8192).unwrap(),
        m,
        x_wide: true,
        loads: Loads::Tensor,
        many: true,
        multiprocessors: 132,
    }
}

fn name(request: &RouteRequest) -> &'static str {
    route(request).unwrap().unwrap().name()
}

#[test]
fn no_tokens_is_no_launch() {
    assert_eq!(route(&request(0)).unwrap(), None);
}

#[test]
fn few_tokens_take_the_smallest_gemv_that_holds_them() {
    for (tokens, blocks) in [(1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4)] {
        let name = name(&request(tokens));
        assert!(
            name.starts_with("route_bf16x2_sm90_w8c8") && name.contains(&format!("n{blocks}r")),
            "{tokens}: {name}"
        );
        assert!(name.ends_with("x8"));
    }
    let narrow = RouteRequest {
        x_wide: false,
        ..request(3)
    };
    assert!(name(&narrow).ends_with("x1"));
}

#[test]
fn many_tokens_take_a_matrix_product_unless_the_order_is_to_stay() {
    for format in [Format::Bf16, Format::Bf16x2, Format::Bf16x3] {
        let many = RouteRequest { format, ..request(33) };
        assert!(matches!(route(&many).unwrap(), Some(RoutePlan::Many(plan)) if plan.instance.loads == Loads::Tensor));
        let plain = RouteRequest {
            loads: Loads::Plain,
            ..many
        };
        assert!(name(&plain).contains("_plain_"));
        let fixed = RouteRequest {
            many: false,
            m: 1000,
            ..many
        };
        assert!(matches!(route(&fixed).unwrap(), Some(RoutePlan::Few(plan)) if plan.grid[1] == 32));
    }
}

#[test]
fn a_format_without_routers_is_refused() {
    let packed = RouteRequest {
        format: Format::Window12,
        ..request(1)
    };
    assert!(route(&packed).unwrap_err().to_string().contains("no router reads"));
}

proptest! {
    #[test]
    fn a_workspace_serves_every_launch_up_to_its_tokens(
        terms in 1usize..=3, n in 1usize..=1024, k in 1usize..10_000, max_tokens in 1usize..600, at in 0f64..1.0, x_wide: bool, many: bool, multiprocessors in 1usize..200
    ) {
        let format = [Format::Bf16, Format::Bf16x2, Format::Bf16x3][terms - 1];
        let shape = Shape::new(n, k).unwrap();
        let size = route_workspace(format, shape, max_tokens, many).unwrap();
        let m = 1 + (at * max_tokens as f64) as usize;
        let loads = if x_wide { Loads::Tensor } else { Loads::Plain };
        let plan = route(&RouteRequest { format, shape, m, x_wide, loads, many, multiprocessors }).unwrap().unwrap();
        prop_assert_eq!(size.sums, max_tokens * n);
        match plan {
            RoutePlan::Few(plan) => prop_assert!(plan.instance.counters(m) <= size.counters),
            RoutePlan::Many(plan) => {
                prop_assert!((plan.grid[0] * plan.grid[2]) as usize <= size.counters);
                prop_assert_eq!(size.shared_sums, size.sums);
                // Sums of several slices are shared: there is one of each.
                prop_assert!(plan.slices == 1 || !plan.serial);
            }
        }
    }
}
