//! The shipped kernels with one step taken out of their PTX: every step is needed, and the emulator says so.

use hopper_cuda_driver::{Choice, emulated, select};
use hopper_proj::instances::formats::bf16::GEMV_BF16;
use hopper_proj::instances::{Gemv, GemvArgs, STREAM_READ, StreamRead, StreamReadArgs};
use hopper_proj::{bf16, formats, plan};
use hopper_proj_tests::driver::{self, Launch, Module, OwnContext};
use hopper_proj_tests::{Values, bits, check, shape, shipped, statements};

const M: usize = 5;
/// What is wrong must be found in any interleaving: as the machine's cores have it, and as a seed does.
const SEEDS: [Option<u64>; 2] = [None, Some(1)];

/// Two layers, the second behind the first, for one cluster of an instance.
struct Chain {
    instance: &'static Gemv,
    n: usize,
    k: usize,
    x: Vec<bf16>,
    w: Vec<bf16>,
    v: Vec<bf16>,
}

impl Chain {
    /// Every warp gets one chunk of columns more than its ring has stages.
    fn new(instance: &'static Gemv, values: &mut Values) -> Self {
        let (n, k) = (
            instance.rows(),
            instance.k_slices() * 64 * instance.groups * (instance.stages + 1),
        );
        let [x, w, v] = [M * k, n * k, n * n].map(|len| values.bf16(len));
        Chain {
            instance,
            n,
            k,
            x,
            w,
            v,
        }
    }

    /// Runs y = x · Wᵀ with the kernel of this text in a new context, then z = y · Vᵀ right behind it; the code and the
    /// story, or y and z.
    fn run(&self, ptx: &str, seed: Option<u64>) -> Result<[Vec<bf16>; 2], (u32, String)> {
        let _context = OwnContext::new();
        emulated::set_seed(seed);
        let instance = self.instance;
        let function = Module::load(ptx).function(instance.name);
        let bytes = |values: &[bf16]| -> Vec<u8> { bits(values).iter().flat_map(|v| v.to_le_bytes()).collect() };
        let packed = |w: &[bf16], k| driver::memory(&bytes(&formats::bf16::pack(w, shape(self.n, k)).unwrap()));
        let x = driver::memory(&bytes(&self.x));
        let [y, z] = [(); 2].map(|()| driver::memory(&vec![0xff; M * self.n * 2]));
        for (x, weights, y, k) in [
            (x, packed(&self.w, self.k), y, self.k),
            (y, packed(&self.v, self.n), z, self.n),
        ] {
            let args = GemvArgs {
                x,
                x_stride: k as u64,
                weights,
                y,
                m: M as u32,
                n: self.n as u32,
                k: k as u32,
                y_fp32: 0,
            };
            let launch = Launch {
                grid: [instance.cluster as u32, 1],
                threads: instance.threads() as u32,
                cluster: instance.cluster as u32,
                shared: instance.shared_bytes() as u32,
                overlaps: true,
            };
            // SAFETY: every projection takes `GemvArgs`.
            match unsafe { launch.run(function, &args) } {
                0 => {}
                code => return Err((code, emulated::last_fault().unwrap_or_default())),
            }
        }
        let read = |address| {
            let bytes = driver::read(address, M * self.n * 2);
            let bytes = bytes.map_err(|code| (code, emulated::last_fault().unwrap_or_default()))?;
            let pairs = bytes.as_chunks().0.iter();
            Ok(pairs.map(|&pair| bf16::from_le_bytes(pair)).collect())
        };
        Ok([read(y)?, read(z)?])
    }

    /// Fails unless a run of this text fails as it must, in every interleaving: with one of these codes, and a story of
    /// one of these kinds.
    fn must_fail(&self, ptx: &str, without: &str, codes: &[u32], kinds: &[&str]) {
        let name = self.instance.name;
        for seed in SEEDS {
            match self.run(ptx, seed) {
                Ok(_) => panic!("{name} runs without {without}, and nobody complains (seed {seed:?})"),
                Err((code, story)) => assert!(
                    codes.contains(&code) && kinds.iter().any(|kind| story.starts_with(kind)) && story.contains(name),
                    "{name} without {without}, seed {seed:?}: {} {story}",
                    driver::name(code)
                ),
            }
        }
    }
}

/// The text with one statement replaced: of those that start with this mnemonic the `which`-th, from the last backwards
/// where negative.
fn replaced(text: &str, mnemonic: &str, which: isize, to: &str) -> String {
    let places = statements::places(text, mnemonic);
    let index = if which < 0 {
        places.len().wrapping_add_signed(which)
    } else {
        which as usize
    };
    let place = places
        .get(index)
        .unwrap_or_else(|| panic!("the kernel has no `{mnemonic}` number {which}"));
    statements::replaced(text, vec![place.clone()], to)
}

fn without(text: &str, mnemonic: &str, which: isize) -> String {
    replaced(text, mnemonic, which, "")
}

const LAUNCH_TIMEOUT: u32 = 702;
const LAUNCH_FAILED: u32 = 719;

#[test]
fn each_step_is_missed_for_what_it_does() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
    let chain = Chain::new(
        plan::instance("gemv_bf16_sm90_w4c2s2g1n1r2x8").unwrap(),
        &mut Values::fresh(),
    );
    let whole = shipped(&[chain.instance.name]);
    let (relaxed, wait) = ("barrier.cluster.arrive.relaxed.aligned", "barrier.cluster.wait.aligned");
    let sums_wait = "mbarrier.try_wait.parity.acquire.cluster";
    let sums = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32";
    let plain_store = {
        let place = statements::places(&whole, sums).swap_remove(0);
        let (operands, _) = whole[place][sums.len()..]
            .rsplit_once(',')
            .expect("an mbarrier comes last");
        format!("st.shared::cluster.v4.f32 {operands};")
    };
    let announced = "mbarrier.arrive.expect_tx";
    let few_bytes = {
        let place = statements::places(&whole, announced)
            .pop()
            .expect("the kernel announces its sums");
        let (announcement, _) = whole[place].rsplit_once(',').expect("the bytes come last");
        format!("{announcement}, 16;")
    };
    let misses_sums = [
        "shared memory read before it was written",
        "shared-memory race between warps",
        "misuse of an asynchronous copy",
        "remote access to a CTA that may have exited",
    ];
    for (step, ptx, kinds) in [
        (
            "the start of the cluster",
            without(&without(&whole, relaxed, 0), wait, 0),
            &["remote access before the cluster has started"][..],
        ),
        (
            "the wait for the cluster's sums",
            replaced(&whole, sums_wait, 0, "setp.eq.u32 p, 0, 0;"),
            &misses_sums,
        ),
        (
            "the order of stores behind the start of the cluster",
            without(&whole, wait, 0),
            &["remote access before the cluster has started", "misuse of an mbarrier"],
        ),
        (
            "most of the bytes of its sums",
            replaced(&whole, announced, -1, &few_bytes),
            &misses_sums,
        ),
        (
            "the asynchrony of its stores",
            replaced(&whole, sums, 0, &plain_store),
            &[
                "deadlock",
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
                "shared-memory race between warps",
                "shared memory read before it was written",
                "misuse of an asynchronous copy",
            ],
        ),
        (
            "the initialisation of a ring's first barrier",
            without(&whole, "mbarrier.init", 0),
            &["misuse of an mbarrier"],
        ),
    ] {
        // Who waits for ever fails in another way.
        let codes: &[u32] = match kinds.contains(&"deadlock") {
            true => &[LAUNCH_FAILED, LAUNCH_TIMEOUT],
            false => &[LAUNCH_FAILED],
        };
        chain.must_fail(&ptx, step, codes, kinds);
    }
}

/// Statements that order what different warps, launches or copies do; each occurrence of each must be there.
const ORDERING: [&str; 8] = [
    "mbarrier.init",
    "mbarrier.arrive.expect_tx",
    "cp.async.bulk",
    "st.async",
    "griddepcontrol.wait",
    "bar.sync",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
];

#[test]
fn no_ordering_statement_of_any_instance_can_go() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
    let mut values = Values::fresh();
    for instance in GEMV_BF16 {
        let chain = Chain::new(instance, &mut values);
        let whole = shipped(&[instance.name]);
        for seed in SEEDS {
            let [y, z] = chain.run(&whole, seed).unwrap();
            check(&y, &chain.x, &chain.w, shape(chain.n, chain.k), M).unwrap();
            check(&z, &y, &chain.v, shape(chain.n, chain.n), M).unwrap();
        }
        let mut tried = 0;
        for mnemonic in ORDERING {
            for which in 0..whole.matches(mnemonic).count() {
                let step = format!("`{mnemonic}` number {which}");
                let ptx = without(&whole, mnemonic, which as isize);
                chain.must_fail(&ptx, &step, &[LAUNCH_FAILED, LAUNCH_TIMEOUT], &[""]);
                tried += 1;
            }
        }
        assert!(tried >= 3 * instance.stages, "{}: {tried} statements", instance.name);
    }
}

/// Runs a reader of this text over more chunks than its ring has stages, in a new context, and once more right behind;
/// the code and the story where it fails.
fn read(floor: &'static StreamRead, ptx: &str, seed: Option<u64>) -> Result<(), (u32, String)> {
    let _context = OwnContext::new();
    emulated::set_seed(seed);
    let function = Module::load(ptx).function(floor.name);
    let bytes = (2 * floor.stages + 1) * floor.chunk_bytes();
    let args = StreamReadArgs {
        data: driver::memory(&vec![1; bytes]),
        bytes: bytes as u64,
        out: driver::memory(&vec![0; floor.warps * 4]),
    };
    let launch = Launch {
        grid: [1, 1],
        threads: floor.threads() as u32,
        cluster: 1,
        shared: floor.shared_bytes() as u32,
        overlaps: true,
    };
    for _ in 0..2 {
        // SAFETY: every reader takes `StreamReadArgs`.
        match unsafe { launch.run(function, &args) } {
            0 => {}
            code => return Err((code, emulated::last_fault().unwrap_or_default())),
        }
    }
    match driver::synchronize() {
        0 => Ok(()),
        code => Err((code, emulated::last_fault().unwrap_or_default())),
    }
}

#[test]
fn no_ordering_statement_of_any_reader_can_go() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
    for floor in STREAM_READ {
        let whole = shipped(&[floor.name]);
        for mnemonic in [
            "mbarrier.init",
            "mbarrier.arrive.expect_tx",
            "cp.async.bulk",
            "griddepcontrol.wait",
            "bar.sync",
        ] {
            for which in 0..whole.matches(mnemonic).count() {
                let ptx = without(&whole, mnemonic, which as isize);
                for seed in SEEDS {
                    read(floor, &whole, seed).unwrap();
                    let step = format!("{} without `{mnemonic}` number {which}, seed {seed:?}", floor.name);
                    let Err((code, story)) = read(floor, &ptx, seed) else {
                        panic!("{step} runs, and nobody complains");
                    };
                    assert!(
                        [LAUNCH_FAILED, LAUNCH_TIMEOUT].contains(&code) && story.contains(floor.name),
                        "{step}: {} {story}",
                        driver::name(code)
                    );
                }
            }
        }
    }
}
