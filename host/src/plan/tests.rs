use super::*;
use crate::suites::Suite;
use approx::assert_abs_diff_eq;
use kernels_gpu::instances::Loads;
use proptest::prelude::*;

fn request(n: usize, k: usize, m: usize) -> Request {
    Request::new(Op::Project, Format::Bf16, Shape::new(n, k).unwrap(), m)
}

fn router(format: Format, n: usize, k: usize, m: usize) -> Request {
    Request::new(Op::Route, format, Shape::new(n, k).unwrap(), m).row_major(true)
}

fn chosen(request: &Request) -> Plan {
    plan(request, &Device::H200).unwrap().unwrap()
}

fn name(request: &Request) -> &'static str {
    chosen(request).name()
}

#[test]
fn no_tokens_is_no_launch() {
    let request = request(16, 64, 0);
    let few = Kernel::Gemv(&Format::Bf16.gemvs()[0]);
    assert_eq!(plan(&request, &Device::H200).unwrap(), None);
    assert_eq!(plan_with(&few, &request, &Device::H200).unwrap(), None);
    assert!(kernels(&request, &Device::H200).is_empty());
    let list = List::new(&request, &Device::H200);
    assert!(list.candidates.is_empty() && list.to_string().contains("no launch"));
}

#[test]
fn measured_rows_are_what_is_planned() {
    for row in measured::built_in().rows() {
        let request = Request::new(row.op, row.format, row.shape, row.m);
        assert_eq!(chosen(&request).kernel, row.kernel, "{row:?}");
        let list = List::new(&request, &Device::H200);
        let first = list.candidates[0];
        assert_eq!((first.kernel, first.row), (row.kernel, Some(row)), "{list}");
        let source = if row.us.is_some() { "measured" } else { "proposed" };
        assert!(first.chosen && first.source() == source, "{list}");
    }
}

#[test]
fn every_muse_case_for_few_tokens_is_measured() {
    for case in Suite::Muse.cases().unwrap() {
        for format in [Format::Bf16, Format::Window12] {
            let request = Request::new(Op::Project, format, case.shape, case.m);
            let few = case.m <= FEW_TOKENS;
            // 2304 rows at 32 tokens are left to the model, which has a product with fewer bytes of x than any GEMV.
            let rows = few && (case.shape.n(), case.m) != (2304, 32);
            assert_eq!(
                Tables::current().rows(&request).any(|row| row.m >= case.m),
                rows,
                "{case:?} {format:?}"
            );
        }
    }
}

#[test]
fn tokens_between_measured_rows_take_the_next_row() {
    let of = |m| name(&request(8192, 1024, m).x(2, 1024).row_major(false));
    assert!(of(5) == of(8) && of(9) == of(16) && of(33) == of(32));
    let of = |m| name(&request(8192, 1024, m));
    assert_eq!((of(5), of(9), of(17)), (of(8), of(16), of(32)));
}

#[test]
fn unaligned_rows_of_x_take_narrow_loads() {
    for (x, k, stride) in [
        (2, 8192, 8192),
        (8, 8192, 8192),
        (0, 8191, 8191),
        (0, 8192, 8196),
        (0, 8192, 1 << 40),
    ] {
        let request = request(2304, k, 1).x(x, stride);
        assert!(name(&request).ends_with("x1"), "{request}");
    }
    // Rows that start where they should, but end elsewhere: the products' tensor copies take them, wide loads do not.
    let ragged = request(2304, 8191, 40).x(0, 8192);
    assert!(ragged.x_aligned && name(&ragged).starts_with("gemm_bf16_units_"));
    let list = List::new(&Request { m: 1, ..ragged }, &Device::H200);
    let wide = |candidate: &&Candidate| candidate.kernel.name().ends_with("x8") && candidate.us().is_some();
    assert_eq!(list.candidates.iter().find(wide), None);
    let aligned = request(2304, 8192, 1).x(32, 8200);
    assert!(name(&aligned).ends_with("x8"));
    let wide = chosen(&aligned).kernel;
    let err = plan_with(&wide, &aligned.x(2, 8192), &Device::H200).unwrap_err();
    assert!(err.to_string().contains("not aligned"), "{err}");
}

/// What is kept and how x lies say which kind of kernel it is.
#[test]
fn each_way_to_keep_weights_has_its_kernels() {
    for (format, row_major, x, m, start) in [
        (Format::Bf16, false, 0, 1, "gemv_bf16_"),
        (Format::Bf16, false, 2, 32, "gemv_bf16_"),
        (Format::Bf16, false, 0, 33, "gemm_bf16_units_"),
        (Format::Bf16, false, 2, 33, "gemv_bf16_"),
        (Format::Bf16, true, 0, 1, "gemv_bf16_"),
        (Format::Bf16, true, 2, 32, "gemv_bf16_"),
        (Format::Bf16, true, 0, 33, "gemm_bf16_sm90_"),
        (Format::Bf16, true, 2, 33, "gemm_bf16_plain_"),
        (Format::Window12, false, 0, 1, "gemv_window12_"),
        (Format::Window12, false, 0, 8192, "gemm_window12_"),
        (Format::Window12, false, 2, 8192, "gemv_window12_"),
        // Another format's copy is of no use.
        (Format::Window12, true, 2, 33, "gemv_window12_"),
    ] {
        let request = Request::new(Op::Project, format, Shape::new(512, 640).unwrap(), m);
        let request = request.x(x, 640).row_major(row_major);
        assert!(name(&request).starts_with(start), "{request}: {}", name(&request));
    }
}

#[test]
fn a_router_takes_the_smallest_gemv_that_holds_its_tokens_and_a_product_beyond() {
    for format in [Format::Bf16, Format::Bf16x2, Format::Bf16x3] {
        let base = router(format, 256, 8192, 1);
        for (tokens, blocks) in [(1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4)] {
            let wide = Request { m: tokens, ..base };
            // Wherever else x lies, one instance serves all.
            for (request, blocks, loads) in [(wide, blocks, "x8"), (wide.x(2, 8192), 4, "x1")] {
                let name = name(&request);
                let start = format!("route_{}_sm90_w8c8", format.name());
                assert!(
                    name.starts_with(&start) && name.contains(&format!("n{blocks}r")),
                    "{name}"
                );
                assert!(name.ends_with(loads), "{name}");
            }
        }
        let loads = |request: &Request| match chosen(request).kernel {
            Kernel::Gemm(division) => Some(division.instance.loads),
            Kernel::Gemv(_) => None,
        };
        let many = Request { m: 33, ..base };
        assert_eq!(loads(&many), Some(Loads::Tma));
        assert_eq!(loads(&many.x(2, 8192)), Some(Loads::Masked));
        // Where the order of sums is to stay, a GEMV walks.
        let fixed = chosen(&Request { m: 1000, ..base }.row_major(false));
        assert!(
            matches!(fixed.kernel, Kernel::Gemv(_)) && fixed.grid[1] == 32,
            "{fixed:?}"
        );
    }
}

#[test]
fn what_nothing_serves_is_refused_in_words() {
    for (op, format) in [
        (Op::Route, Format::Window12),
        (Op::Project, Format::Bf16x2),
        (Op::Project, Format::Bf16x3),
    ] {
        let request = Request::new(op, format, Shape::new(256, 8192).unwrap(), 1);
        let message = plan(&request, &Device::H200).unwrap_err().to_string();
        assert!(message.contains("reads weights of this format"), "{message}");
        let list = List::new(&request, &Device::H200);
        assert_eq!(list.chosen(), None);
        assert!(list.candidates.iter().all(|candidate| candidate.us().is_none()));
    }
}

#[test]
fn launches_beyond_the_grid_are_refused() {
    // A walk has a tile of 32 tokens for each CTA along y, a product of up to 256 along z.
    let walk = request(16, 64, 65_535 * 32).x(2, 64);
    chosen(&walk);
    chosen(&request(16, 64, 65_535 * 256));
    let n = u32::MAX as usize;
    chosen(&request(n, 64, 65_535 * 32));
    chosen(&request(n, 64, 1));
    for beyond in [
        Request { m: walk.m + 1, ..walk },
        request(16, 64, 65_535 * 256 + 1),
        request(16, 64, usize::MAX),
    ] {
        let err = plan(&beyond, &Device::H200).unwrap_err();
        assert!(matches!(err, Error::Grid { .. }), "{err}");
        let few = Kernel::Gemv(&Format::Bf16.gemvs()[14]);
        let err = plan_with(
            &few,
            &Request {
                m: usize::MAX,
                ..beyond
            },
            &Device::H200,
        )
        .unwrap_err();
        assert!(matches!(err, Error::Grid { .. }), "{err}");
    }
}

/// Costs are numbers, and the launch legal, whatever the sizes and whatever a driver tells of its device.
#[test]
fn the_largest_sizes_and_the_strangest_devices_get_plans() {
    let most = u32::MAX as usize;
    let told = [0, 1, usize::MAX].map(|number| DriverFacts {
        multiprocessors: Some(number),
        clock: Some(number),
        memory_clock: Some(number),
        bus_bits: Some(number),
        l2_bytes: Some(number),
        clusters: None,
    });
    for device in told.iter().map(Device::described) {
        for (n, k) in [(most, most), (most, 1), (1, most), (1, 1)] {
            for m in [1, 32, 33, 65_535 * 32] {
                for &(op, format) in ALL {
                    let n = if op == Op::Route { n.min(1024) } else { n };
                    let request = Request::new(op, format, Shape::new(n, k).unwrap(), m).x(0, k.next_multiple_of(8));
                    for request in [request, request.x(2, k), request.row_major(true)] {
                        let plan = plan(&request, &device).unwrap().unwrap();
                        let list = List::new(&request, &device);
                        assert_eq!(
                            list.chosen().map(|chosen| chosen.kernel),
                            Some(plan.kernel),
                            "{request}"
                        );
                        let costs = list.candidates.iter().filter_map(Candidate::us);
                        assert!(costs.clone().count() > 0 && costs.clone().all(|us| us > 0.0), "{list}");
                    }
                }
            }
        }
    }
}

/// The cost of a GEMV over weights of more bytes than 64 bits count is that of their bytes.
#[test]
fn weights_beyond_64_bits_of_bytes_cost_what_they_weigh() {
    let gemv = &Format::Bf16.gemvs()[0];
    let cost = |n| gemv::cost(gemv, &request(n, u32::MAX as usize, 1), &Device::H200);
    let ratio = cost(u32::MAX as usize) / cost(1 << 31);
    assert_abs_diff_eq!(ratio, 2.0, epsilon = 0.01);
}

/// A GEMV loads x for every 64 rows, a product for more of them. Where that counts, and no measurement speaks, the
/// product is taken.
#[test]
fn up_to_32_tokens_costs_decide() {
    let start = |request: Request| name(&request).split("_sm90").next().unwrap();
    for (format, few, many) in [
        (Format::Bf16, "gemv_bf16", "gemm_bf16_units"),
        (Format::Window12, "gemv_window12", "gemm_window12"),
    ] {
        let of = |m| Request {
            format,
            ..request(14336, 4096, m)
        };
        assert_eq!([start(of(1)), start(of(8)), start(of(32))], [few, few, many]);
        let list = List::new(&of(16), &Device::H200);
        let of_kind = |kind| {
            list.candidates
                .iter()
                .any(|c| c.us().is_some() && c.kernel.name().starts_with(kind))
        };
        assert!(of_kind(few) && of_kind(many), "{list}");
    }
}

/// What a router gives few tokens does not hang on how many there are.
#[test]
fn up_to_32_tokens_of_a_router_products_are_miscompiled_for_their_order() {
    let list = List::new(&router(Format::Bf16x2, 256, 8192, 32), &Device::H200);
    let products = list
        .candidates
        .iter()
        .filter(|c| c.kernel.name().starts_with("route_bf16x2_sm90_w4"));
    let reasons: Vec<_> = products.map(Candidate::reason).collect();
    assert!(
        reasons.len() == 2 && reasons.iter().all(|&reason| reason == Some(Reason::FixedOrder)),
        "{list}"
    );
}

#[test]
fn a_request_says_how_x_lies() {
    let request = router(Format::Bf16x2, 256, 8192, 3).row_major(true);
    assert_eq!(
        request.to_string(),
        "route 256 × 8192 bf16x2 weights, row-major too, at m = 3 with 16-byte aligned rows of x"
    );
    let odd = Request::new(Op::Project, Format::Bf16, Shape::new(16, 8).unwrap(), 1).x(2, 8);
    assert!(
        odd.to_string()
            .ends_with("bf16 weights at m = 1 with 2-byte aligned rows of x")
    );
    // Strides of 2^40 bytes are too long for a tensor map.
    assert!(request.x(16, (1 << 39) - 8).x_aligned && !request.x(16, 1 << 39).x_aligned);
    assert!(!request.x(8, 8192).x_aligned && !request.x(16, 8193).x_aligned);
}

#[test]
fn kernels_are_found_by_their_names() {
    for gemv in gemvs() {
        assert_eq!(instance(gemv.name), Some(gemv));
    }
    assert_eq!(instance("gemv"), None);
}

#[test]
fn a_kernel_says_its_division() {
    let division = |cluster, slices| {
        let whole = Division::whole(
            gemms()
                .find(|gemm| gemm.op == Op::Route && gemm.loads == Loads::Tma)
                .unwrap(),
        );
        Kernel::Gemm(Division {
            cluster,
            slices,
            ..whole
        })
    };
    let behind_name = |kernel: Kernel| kernel.to_string().strip_prefix(kernel.name()).unwrap().to_owned();
    assert_eq!(behind_name(division(1, 1)), "");
    assert_eq!(behind_name(division(2, 1)), ", clusters of 2");
    assert_eq!(behind_name(division(1, 2)), ", 2 slices of K");
    assert_eq!(behind_name(division(4, 8)), ", clusters of 4, 8 slices of K");
    assert!(division(1, 1).reads_rows() && division(1, 1).is_compiled());
    for (at, gemv) in Format::Bf16.gemvs().iter().enumerate() {
        let kernel = Kernel::Gemv(gemv);
        assert_eq!(
            (kernel.index(), kernel.slices(), kernel.cluster()),
            (at, 1, gemv.cluster)
        );
        assert_eq!(behind_name(kernel), "");
        assert!(!kernel.reads_rows() && kernel.is_compiled());
    }
    for gemm in gemms() {
        let kernel = Kernel::Gemm(Division::whole(gemm));
        assert_eq!((kernel.index(), kernel.min_ctas()), (gemm.index, gemm.min_ctas));
        assert_eq!(kernel.reads_rows(), !matches!(gemm.loads, Loads::Packed(_)));
    }
}

#[test]
fn advice_is_what_a_plan_may_overrule() {
    let advice = [
        Reason::EmptyBlocks,
        Reason::SmallBlocks,
        Reason::Walks,
        Reason::NarrowLoads,
    ];
    assert!(advice.into_iter().all(Reason::is_advice));
    let facts = [Reason::Unaligned, Reason::Format, Reason::Op, Reason::Unknown];
    assert!(!facts.into_iter().any(Reason::is_advice));
}

/// Short of work, the cost model must not leave warps without any: a K of few groups takes few K slices.
#[test]
fn small_k_takes_few_slices() {
    for k in [8usize, 64, 128, 256] {
        for m in [1, 16, 32] {
            let (name, slices) = match chosen(&request(8192, k, m)).kernel {
                Kernel::Gemv(instance) => (instance.name, instance.k_slices()),
                Kernel::Gemm(division) => (division.instance.name, division.cluster * division.slices),
            };
            assert!(slices <= k.div_ceil(64).max(8), "{name} at k = {k}");
        }
    }
}

#[test]
fn fewer_multiprocessors_take_fewer_ctas() {
    let request = router(Format::Bf16x2, 256, 8192, 128);
    let ctas = |device: &Device| -> u32 { plan(&request, device).unwrap().unwrap().grid.iter().product() };
    let few = Device {
        multiprocessors: 16,
        ..Device::H200
    };
    assert!(ctas(&few) < ctas(&Device::H200));
}

/// What each instance is rejected for, and that a list says so.
#[test]
fn lists_give_every_instance_a_cost_or_a_reason() {
    let request = Request::new(Op::Project, Format::Window12, Shape::new(4096, 8192).unwrap(), 128);
    let list = List::new(&request, &Device::H200);
    let instances = gemvs().count() + routes().count() + gemms().count();
    assert_eq!(list.candidates.len(), instances);
    let text = list.to_string();
    let is_other = |reason| matches!(reason, Some(Reason::Format | Reason::Op));
    let others = list
        .candidates
        .iter()
        .filter(|candidate| is_other(candidate.reason()))
        .count();
    assert_eq!(text.lines().count(), instances - others + 3 + 2, "{text}");
    for (start, reason) in [
        ("gemv_window12_", Reason::Walks),
        ("gemv_bf16_", Reason::Format),
        ("route_bf16x2_", Reason::Op),
        ("gemm_bf16_plain_", Reason::Format),
    ] {
        let mut of = list.candidates.iter().filter(|c| c.kernel.name().starts_with(start));
        assert!(of.all(|candidate| candidate.reason() == Some(reason)), "{text}");
        assert!(text.contains(&reason.to_string()), "{text}");
    }
    let costs: Vec<f64> = list.candidates.iter().map_while(Candidate::us).collect();
    assert!(costs.len() > 2 && costs.is_sorted(), "{costs:?}");
    assert!(list.candidates[0].chosen && text.contains("* "), "{text}");
    let rejected: Vec<Reason> = list.candidates.iter().filter_map(Candidate::reason).collect();
    assert_eq!(rejected.len() + costs.len(), instances);
    assert!(rejected.is_sorted());
}

const ALL: &[(Op, Format)] = &[
    (Op::Route, Format::Bf16),
    (Op::Route, Format::Bf16x2),
    (Op::Route, Format::Bf16x3),
    (Op::Project, Format::Bf16),
    (Op::Project, Format::Window12),
];
const ROUTERS: &[(Op, Format)] = ALL.split_at(3).0;

fn any_request(kinds: &'static [(Op, Format)]) -> impl Strategy<Value = Request> {
    let side =
        |most: usize| prop_oneof![1 => Just(1), 4 => 1..=most, 4 => (0..=most.ilog2()).prop_map(|bits| 1 << bits)];
    let kinds = prop::sample::select(kinds);
    let lies = (0u64..16, 0usize..16, prop::bool::ANY);
    (kinds, side(40_000), side(40_000), side(8192), lies).prop_map(|((op, format), n, k, m, (x, gap, row_major))| {
        // A router has up to 1024 experts.
        let n = if op == Op::Route { 1 + (n - 1) % 1024 } else { n };
        let shape = Shape::new(n, k).unwrap();
        Request::new(op, format, shape, m)
            .x(2 * x, k + gap)
            .row_major(row_major)
    })
}

fn any_device() -> impl Strategy<Value = Device> {
    (1usize..200, 0.1f64..3.0, prop::collection::vec(0usize..64, 0..8)).prop_map(|(multiprocessors, rate, left)| {
        let mut miscompiled = Miscompiled::NONE;
        // Kernels over packed units have self-tests.
        let units = || gemms().filter(|i| matches!(i.loads, Loads::Packed(_)));
        left.into_iter()
            .for_each(|at| miscompiled.insert(units().nth(at % units().count()).unwrap()));
        Device {
            multiprocessors,
            stream: Device::H200.stream * rate,
            miscompiled,
            ..Device::H200
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// By no kernel more tokens cost less.
    #[test]
    fn more_tokens_cost_no_less(request in any_request(ALL), more in 1usize..300, device in any_device(), at in any::<prop::sample::Index>()) {
        let all = kernels(&request, &device);
        let kernel = at.get(&all);
        let cost = |request: &Request| match kernel {
            Kernel::Gemv(instance) => gemv::cost(instance, request, &device),
            Kernel::Gemm(division) => gemm::cost(division, request, &device),
        };
        let (few, many) = (cost(&request), cost(&Request { m: request.m + more, ..request }));
        prop_assert!(few <= many * (1.0 + 1e-12), "{}: {} µs for {} tokens, {} µs for {} more", kernel, few, request.m, many, more);
    }

    /// No shape is refused, and what is launched is within the limits of a Hopper GPU and covers the result.
    #[test]
    fn any_request_gets_a_legal_launch(request in any_request(ALL), device in any_device()) {
        let plan = plan(&request, &device).unwrap().unwrap();
        let (n, k, m) = (request.shape.n(), request.shape.k(), request.m);
        prop_assert!(plan.block[0] <= 1024 && plan.shared_bytes <= 227 * 1024);
        prop_assert!(plan.grid[0] <= i32::MAX as u32 && plan.grid[1] <= 65_535 && plan.grid[2] <= 65_535);
        prop_assert_eq!(plan.grid[0] % plan.cluster[0], 0);
        prop_assert!([1, 2, 4, 8].contains(&plan.cluster[0]));
        let tiles = (plan.grid[0] / plan.cluster[0]) as usize;
        match plan.kernel {
            Kernel::Gemv(i) => {
                prop_assert!(tiles == n.div_ceil(i.rows()) && plan.grid[1] as usize * i.tokens() >= m);
                prop_assert_eq!(plan.grid[2], 1);
                prop_assert!(i.x_values == 1 || request.x_wide());
                // No token block is launched that a smaller instance would have spared.
                let like_it = gemv::instances(&request).iter().filter(|other| other.x_values == i.x_values);
                let smaller = like_it.map(Gemv::tokens).filter(|&tokens| tokens < i.tokens());
                prop_assert!(smaller.max().is_none_or(|tokens| tokens < m));
            }
            Kernel::Gemm(Division { instance: i, cluster, slices }) => {
                prop_assert!(tiles * i.multicast == i.row_tiles(n) && plan.grid[2] as usize * i.tokens() >= m);
                let for_few = request.op == Op::Project && i.loads != Loads::Masked;
                prop_assert!((m > FEW_TOKENS || for_few) && !device.miscompiled.contains(i));
                prop_assert_eq!((plan.cluster[0] as usize, plan.grid[1] as usize), (cluster, slices));
                let parts = i.parts(cluster) * slices;
                prop_assert!(cluster.is_multiple_of(i.multicast) && (parts == 1 || parts <= k.div_ceil(64)));
                prop_assert!(slices == 1 || request.op == Op::Route);
                prop_assert_eq!(plan.serial(), slices == 1);
                prop_assert!(i.loads == Loads::Masked || request.x_aligned);
                prop_assert!(matches!(i.loads, Loads::Packed(_)) || request.row_major);
            }
        }
        prop_assert_eq!((plan.kernel.op(), plan.kernel.format()), (request.op, request.format));
        prop_assert_eq!(plan_with(&plan.kernel, &request, &device).unwrap(), Some(plan));
    }

    /// The list's choice is the plan, and its order and the model's are one.
    #[test]
    fn a_list_and_a_plan_agree(request in any_request(ALL), device in any_device()) {
        let plan = plan(&request, &device).unwrap().unwrap();
        let list = List::new(&request, &device);
        let chosen = list.chosen().unwrap();
        prop_assert_eq!(chosen.kernel, plan.kernel);
        prop_assert_eq!(list.candidates.iter().filter(|c| c.chosen).count(), 1);
        prop_assert!(list.candidates.iter().filter_map(Candidate::us).all(|us| us.is_finite() && us > 0.0));
        let by_model = kernels(&request, &device);
        prop_assert!(by_model.contains(&plan.kernel));
        if Tables::current().rows(&request).next().is_none() {
            prop_assert_eq!(by_model[0], plan.kernel);
            let us = |candidate: &Candidate| candidate.us().unwrap_or(f64::INFINITY);
            prop_assert!(list.candidates.iter().all(|other| us(chosen) <= us(other)));
        }
    }

    /// A router's workspace serves every launch up to its tokens.
    #[test]
    fn a_workspace_serves_every_launch_up_to_its_tokens(request in any_request(ROUTERS), at in 0f64..1.0, device in any_device()) {
        let most = request.m;
        let size = route_workspace(request.format, request.shape, most, request.row_major).unwrap();
        let request = Request { m: 1 + (at * (most - 1) as f64) as usize, ..request };
        let plan = plan(&request, &device).unwrap().unwrap();
        prop_assert_eq!(size.sums, most * request.shape.n());
        match plan.kernel {
            Kernel::Gemv(instance) => prop_assert!(instance.counters(request.m) <= size.counters),
            Kernel::Gemm(_) => {
                prop_assert!((plan.grid[0] * plan.grid[2]) as usize <= size.counters);
                prop_assert_eq!(size.shared_sums, size.sums);
            }
        }
    }
}
