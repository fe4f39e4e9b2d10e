//! What calls launch is what lists of instances say. One test, as nothing else may use the device while a stream is
//! captured; nothing runs.

use hopper_proj::cust::memory::{DeviceBuffer, DeviceSlice};
use hopper_proj::cust::stream::Stream;
use hopper_proj::cust::sys;
use hopper_proj::instances::Format;
use hopper_proj::plan::{Kernel, List, Plan};
use hopper_proj::{Choices, Router, RouterConfig, RouterOptions, RouterWeights, Score, Tokens};
use hopper_proj::{Engine, Projection, Request, plan};
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
fn launches(stream: &Stream, call: impl FnOnce()) -> Vec<Launch> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let (mut graph, mut count) = (null_mut(), 0);
    let done = sys::CUresult::CUDA_SUCCESS;
    // SAFETY: a live stream of the current context; each call writes what it is given room for, and the graph is
    // destroyed once.
    unsafe {
        assert_eq!(sys::cuStreamBeginCapture_v2(stream.as_inner(), mode), done);
        call();
        assert_eq!(sys::cuStreamEndCapture(stream.as_inner(), &raw mut graph), done);
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
        let found = nodes.iter().map(launch).collect();
        assert_eq!(sys::cuGraphDestroy(graph), done);
        found
    }
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

fn check_projection(device: &Device, projection: &Projection, x: &DeviceSlice<u16>, m: usize) -> &'static str {
    let (engine, stream) = (&device.engine, &device.stream);
    let mut y = DeviceBuffer::<u16>::zeroed(m * projection.shape().n()).unwrap();
    let plan = listed(engine, &engine.request(projection, x, m));
    let seen = launches(stream, || engine.project(projection, x, m, &mut y, stream).unwrap());
    assert_eq!(seen, [Launch::of(engine, &plan)], "{}, m = {m}", projection.shape());
    assert_eq!(engine.plan(projection, x, m).unwrap(), Some(plan));
    assert_eq!(engine.kernel(projection, x, m).unwrap(), Some(plan.name()));
    plan.name()
}

fn check_router(device: &Device, router: &Router, x: &DeviceSlice<u16>, m: usize) -> &'static str {
    let (engine, stream) = (&device.engine, &device.stream);
    let top_k = router.gate().top_k();
    let mut ids = DeviceBuffer::<i32>::zeroed(m * top_k).unwrap();
    let mut weights = DeviceBuffer::<f32>::zeroed(m * top_k).unwrap();
    let tokens = Tokens::new(x, m);
    let plan = listed(engine, &router.request(tokens).unwrap());
    let seen = launches(stream, || {
        let choices = Choices {
            ids: &mut ids,
            weights: &mut weights,
            logits: None,
        };
        router.route(tokens, choices, stream).unwrap();
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
                let x = x.index(lead..lead + m * k);
                names.extend(
                    ways.iter()
                        .map(|projection| check_projection(&device, projection, &x, m)),
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
                    names.push(check_router(&device, &router, &x.index(lead..lead + m * k), m));
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
