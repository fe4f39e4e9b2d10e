//! What calls launch is what lists of instances say. One test, as nothing else may use the device while a stream is
//! captured; nothing runs.

use hopper_cuda_driver::ffi;
use hopper_proj::cust::sys;
use hopper_proj::instances::Format;
use hopper_proj::plan::{Kernel, List, Plan};
use hopper_proj::{Choices, Router, RouterConfig, RouterOptions, RouterWeights, Score, Tokens};
use hopper_proj::{Engine, Projection, Request, Slice, bf16, plan};
use hopper_proj_tests::{Device, Values, prepare, prepare_row_major, shape};
use std::ptr::null_mut;

/// One captured launch.
#[derive(Debug, PartialEq)]
struct Launch {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
}

impl Launch {
    fn of(engine: &Engine, plan: &Plan) -> Self {
        Launch {
            function: engine.kernels().function(&plan.kernel).unwrap(),
            grid: plan.grid,
            block: plan.block,
            shared_bytes: plan.shared_bytes,
        }
    }
}

/// What a call launches, without running it.
fn launches(device: &Device, call: impl FnOnce() -> hopper_proj::Result<()>) -> Vec<Launch> {
    let stream = &device.stream;
    let mut found = Vec::new();
    let record = || {
        call()?;
        let (mut status, mut graph, mut count) = (0, null_mut(), 0);
        let (id, none, no_count) = (null_mut(), null_mut(), null_mut());
        // SAFETY: a live stream that is being captured, whose graph lives until then; each call writes what it is given
        // room for.
        unsafe {
            let stream = stream.handle().cast();
            let told = ffi::cuStreamGetCaptureInfo_v2(stream, &raw mut status, id, &raw mut graph, none, no_count);
            assert_eq!(told, 0);
            let (graph, done) = (graph.cast(), sys::CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuGraphGetNodes(graph, null_mut(), &raw mut count), done);
            let mut nodes = vec![null_mut(); count];
            assert_eq!(sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count), done);
            let launch = |&node: &sys::CUgraphNode| {
                let mut found = std::mem::zeroed::<sys::CUDA_KERNEL_NODE_PARAMS>();
                assert_eq!(sys::cuGraphKernelNodeGetParams(node, &raw mut found), done);
                Launch {
                    function: found.func,
                    grid: [found.gridDimX, found.gridDimY, found.gridDimZ],
                    block: [found.blockDimX, found.blockDimY, found.blockDimZ],
                    shared_bytes: found.sharedMemBytes,
                }
            };
            found = nodes.iter().map(launch).collect();
        }
        Ok(())
    };
    device.engine.capture(stream, record).unwrap();
    found
}

/// The plan of the kernel that a list marks, which says so itself.
fn listed(engine: &Engine, request: &Request) -> Plan {
    let device = engine.kernels().device();
    let list = List::new(request, &device);
    let marked: Vec<Kernel> = list.candidates.iter().filter(|c| c.chosen).map(|c| c.kernel).collect();
    let [kernel] = marked[..] else { panic!("{list}") };
    assert!(list.to_string().contains(&format!("{kernel}")), "{list}");
    plan::plan_with(&kernel, request, &device).unwrap().unwrap()
}

fn check_projection(device: &Device, projection: &Projection, x: Slice<'_, bf16>, m: usize) -> &'static str {
    let (engine, stream) = (&device.engine, &device.stream);
    let mut y = engine.zeroed(m * projection.shape().n()).unwrap();
    let plan = listed(engine, &engine.request(projection, x, m));
    let seen = launches(device, || engine.project(projection, x, m, &mut y, stream));
    assert_eq!(seen, [Launch::of(engine, &plan)], "{}, m = {m}", projection.shape());
    assert_eq!(engine.plan(projection, x, m).unwrap(), Some(plan));
    assert_eq!(engine.kernel(projection, x, m).unwrap(), Some(plan.name()));
    plan.name()
}

fn check_router(device: &Device, router: &Router, x: Slice<'_, bf16>, m: usize) -> &'static str {
    let (engine, stream) = (&device.engine, &device.stream);
    let top_k = router.gate().top_k();
    let mut ids = engine.zeroed(m * top_k).unwrap();
    let mut weights = engine.zeroed(m * top_k).unwrap();
    let tokens = Tokens::new(x, m);
    let plan = listed(engine, &router.request(tokens).unwrap());
    let seen = launches(device, || {
        let choices = Choices::new(&mut ids, &mut weights);
        router.route(tokens, choices, stream)
    });
    assert_eq!(seen.len(), m.div_ceil(router.max_tokens()));
    assert_eq!(seen[0], Launch::of(engine, &plan), "{}, m = {m}", router.shape());
    assert_eq!(router.plan(tokens).unwrap(), Some(plan));
    plan.name()
}

#[test]
fn a_call_launches_what_the_list_marks() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let engine = &device.engine;
    let mut names = Vec::new();
    for (n, k) in [(1, 1), (33, 129), (200, 640), (1024, 256), (16, 4096)] {
        let w = values.bf16(n * k);
        let ways = [
            prepare(engine, &w, shape(n, k)).unwrap(),
            prepare_row_major(engine, &w, shape(n, k)).unwrap(),
            device.prepare(Format::Window12, &w, shape(n, k)),
        ];
        for m in [1, 8, 9, 32, 33, 64, 200, 300] {
            let x = engine.upload(&values.bf16(m * k + 8)).unwrap();
            for lead in [0, 1, 8] {
                let x = x.slice(lead..lead + m * k).unwrap();
                names.extend(
                    ways.iter()
                        .map(|projection| check_projection(&device, projection, x, m)),
                );
            }
        }
    }
    for (experts, k) in [(8, 64), (65, 203), (256, 1024)] {
        let (fp32, bf16) = (values.fp32(experts * k), values.bf16(experts * k));
        let config = RouterConfig::new(Score::Softmax, 2);
        let options = RouterOptions::default().max_tokens(200);
        for (weights, options) in [
            (RouterWeights::Bf16(&bf16), options),
            (RouterWeights::Fp32(&fp32), options),
            (RouterWeights::Fp32(&fp32), options.terms(3)),
            (RouterWeights::Fp32(&fp32), options.deterministic()),
        ] {
            let router = Router::prepare(engine, weights, shape(experts, k), &config, options).unwrap();
            for m in [1, 9, 32, 33, 130, 200, 333] {
                let x = engine.upload(&values.bf16(m * k + 8)).unwrap();
                for lead in [0, 1] {
                    names.push(check_router(&device, &router, x.slice(lead..lead + m * k).unwrap(), m));
                }
            }
        }
    }
    // The requests were different enough to come to kernels of every kind.
    for kind in [
        "gemv_bf16_",
        "gemv_window12_",
        "gemm_bf16_sm90_",
        "gemm_bf16_plain_",
        "gemm_bf16_units_",
        "gemm_window12_",
        "route_bf16_sm90_w8",
        "route_bf16_sm90_w4",
        "route_bf16_plain_",
        "route_bf16x2_",
        "route_bf16x3_",
    ] {
        assert!(names.iter().any(|name| name.starts_with(kind)), "{kind}");
    }
}
