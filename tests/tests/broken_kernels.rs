//! The shipped kernels with one step taken out of their PTX: every step is needed, and the emulator says so.

use hopper_cuda_driver::{Choice, emulated, select};
use hopper_proj::instances::{Gemv, GemvArgs};
use hopper_proj::{bf16, plan, weights};
use hopper_proj_tests::driver::{self, Launch, Module, OwnContext};
use hopper_proj_tests::{Values, bits, check, shape, shipped};

/// A kernel with a cluster.
const KERNEL: &str = "gemv_bf16_sm90_w4c2s2g1n1r2x8";
/// One cluster of 32 rows; for each of its 8 warps more chunks of columns than its ring has stages. The result is the x of the second launch.
const N: usize = 32;
const K: usize = 8 * 64 * 3;
const M: usize = 5;

/// The text with one statement replaced: of those that start with this mnemonic the `which`-th, from the last backwards where negative.
fn replaced(text: &str, mnemonic: &str, which: isize, to: &str) -> String {
    let places: Vec<usize> = text.match_indices(mnemonic).map(|(at, _)| at).collect();
    let index = if which < 0 {
        places.len().wrapping_add_signed(which)
    } else {
        which as usize
    };
    let start = *places
        .get(index)
        .unwrap_or_else(|| panic!("the kernel has no `{mnemonic}` number {which}"));
    let end = start + text[start..].find(';').expect("a statement ends");
    format!("{}{to}{}", &text[..start], &text[end + 1..])
}

/// Runs y = x · Wᵀ, then z = (y as x) · Vᵀ right behind it; the code, and y and z where there are any.
fn run(ptx: &str, x: &[bf16], w: &[bf16], v: &[bf16]) -> Result<[Vec<bf16>; 2], (u32, String)> {
    let instance: &Gemv = plan::instance(KERNEL).unwrap();
    let function = Module::load(ptx).function(KERNEL);
    let bytes = |values: &[bf16]| bits(values).iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let packed = |w: &[bf16], n, k| driver::memory(&bytes(&weights::bf16::pack(w, shape(n, k)).unwrap()));
    let there = driver::memory(&bytes(x));
    let results = [(N, K), (N, N)].map(|(n, _)| driver::memory(&vec![0xff; M * n * 2]));
    let layers = [
        (there, packed(w, N, K), results[0], K),
        (results[0], packed(v, N, N), results[1], N),
    ];
    for (x, weights, y, k) in layers {
        let args = GemvArgs {
            x,
            weights,
            y,
            m: M as u32,
            n: N as u32,
            k: k as u32,
        };
        let launch = Launch {
            grid: [instance.cluster as u32, 1],
            threads: instance.threads() as u32,
            cluster: instance.cluster as u32,
            shared: instance.shared_bytes() as u32,
            overlaps: true,
        };
        // SAFETY: every projection takes `GemvArgs`.
        let code = unsafe { launch.run(function, &args) };
        if code != 0 {
            return Err((code, emulated::last_fault().unwrap_or_default()));
        }
    }
    let read = |address| -> Result<Vec<bf16>, u32> {
        let bytes = driver::read(address, M * N * 2)?;
        let pairs = bytes.as_chunks().0.iter();
        Ok(pairs.map(|&pair| bf16::from_le_bytes(pair)).collect())
    };
    let read = |address| read(address).map_err(|code| (code, emulated::last_fault().unwrap_or_default()));
    Ok([read(results[0])?, read(results[1])?])
}

#[test]
fn each_step_of_the_kernel_is_needed() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
    let mut values = Values::fresh();
    let (x, w, v) = (values.bf16(M * K), values.bf16(N * K), values.bf16(N * N));
    let whole = shipped(&[KERNEL]);

    let context = OwnContext::new();
    let [y, z] = run(&whole, &x, &w, &v).unwrap();
    check(&y, &x, &w, shape(N, K), M).unwrap();
    check(&z, &y, &v, shape(N, N), M).unwrap();
    drop(context);

    let without = |text: &str, step: &str, which| replaced(text, step, which, "");
    let (relaxed, arrive, wait) = (
        "barrier.cluster.arrive.relaxed.aligned",
        "barrier.cluster.arrive.aligned",
        "barrier.cluster.wait.aligned",
    );
    for (step, ptx, kinds) in [
        (
            "the start of the cluster",
            without(&without(&whole, relaxed, 0), wait, 0),
            &["remote access before the cluster has started"][..],
        ),
        (
            "the arrival of the cluster's sums",
            without(&without(&whole, arrive, -1), wait, -1),
            &[
                "shared memory read before it was written",
                "shared-memory race between warps",
                "remote access to a CTA that may have exited",
            ],
        ),
        (
            "the wait for the launch before",
            without(&whole, "griddepcontrol.wait", 0),
            &["read of an unfinished launch's result"],
        ),
        (
            "the wait for a chunk",
            replaced(&whole, "mbarrier.try_wait.parity", 0, "setp.eq.u32 p, 0, 0;"),
            &["misuse of an asynchronous copy"],
        ),
        (
            "the barrier between partial sums and their addition",
            without(&whole, "bar.sync", 0),
            &[
                "misuse of an asynchronous copy",
                "shared-memory race between warps",
                "shared memory read before it was written",
            ],
        ),
        (
            "the initialisation of a ring's first barrier",
            without(&whole, "mbarrier.init", 0),
            &["misuse of an mbarrier"],
        ),
    ] {
        let _context = OwnContext::new();
        match run(&ptx, &x, &w, &v) {
            Ok(_) => panic!("the kernel runs without {step}, and nobody complains"),
            Err((code, story)) => assert!(
                code == 719 && kinds.iter().any(|kind| story.starts_with(kind)) && story.contains(KERNEL),
                "without {step}: {} {story}",
                driver::name(code)
            ),
        }
    }
}
