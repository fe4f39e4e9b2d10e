//! Planted faults: a few lines of PTX that do one wrong thing each. Every one must come back through the driver API as
//! CUDA's own code, end its context and no other, and be told of in full. Always on the emulator: a GPU would not
//! notice most of them.

use hopper_cuda_driver::{emulated, ffi};
use hopper_proj_tests::driver::{self, Launch, Module, OwnContext, emulated_device};

const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_TIMEOUT: u32 = 702;
const MISALIGNED_ADDRESS: u32 = 716;
const LAUNCH_FAILED: u32 = 719;
const INVALID_PTX: u32 = 218;

/// Bytes of the buffer that every kernel gets.
const BUFFER: usize = 1024;
/// Every launch: four CTAs of two warps.
const LAUNCH: Launch = Launch {
    grid: [4, 1],
    threads: 64,
    cluster: 1,
    shared: 4096,
    overlaps: false,
};

/// Launches a kernel of this file's.
fn launch(launch: Launch, module: Module, kernel: &str, buffer: u64) {
    // SAFETY: each of them takes one address.
    assert_eq!(unsafe { launch.run(module.function(kernel), &buffer) }, 0, "{kernel}");
}

/// A kernel around `body`. What is wrong is done by thread 37 of CTA 2, for which `%mine` holds; `%one` is thread 5 of
/// the same CTA. `%buffer` and `%shared` are addresses of global and shared memory, the latter with `%barrier` at its
/// start.
fn kernel(name: &str, body: &str) -> String {
    format!(
        "
.visible .entry {name}(.param .u64 {name}_buffer)
{{
    .reg .pred %mine, %one, %both, %p, %q;
    .reg .b32 %thread, %cta, %shared, %barrier, %there, %a, %b, %c, %d;
    .reg .f32 %f, %g, %h, %i;
    .reg .b64 %buffer, %far;
    ld.param.u64 %buffer, [{name}_buffer];
    mov.u32 %thread, %tid.x;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %barrier, dynamic;
    add.u32 %shared, %barrier, 128;
    setp.eq.u32 %mine, %thread, 37;
    setp.eq.and.u32 %mine, %cta, 2, %mine;
    setp.eq.u32 %one, %thread, 5;
    setp.eq.and.u32 %one, %cta, 2, %one;
    or.pred %both, %mine, %one;
{body}
    ret;
}}
"
    )
}

fn text(kernels: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 dynamic[];\n{}",
        kernels
    )
}

/// What must be told of a fault.
struct Expected {
    code: u32,
    /// The kind, as the story begins.
    kind: &'static str,
    /// Where it must be said to have happened; the line is one that ends in `MARK`.
    at: &'static str,
}

const MARK: &str = "// here";
const MINE: &str = "CTA (2, 0, 0), warp 1, lane 5";
/// Either of two warps may be the one that comes second.
const THAT_CTA: &str = "CTA (2, 0, 0)";

const fn expected(code: u32, kind: &'static str, at: &'static str) -> Option<Expected> {
    Some(Expected { code, kind, at })
}

/// Starts a bulk copy of 128 bytes to `%shared`, by the thread for which `%mine` holds.
const COPY: &str = "
    @!%mine bra DONE;
    mbarrier.init.shared::cta.b64 [%barrier], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%shared], [%buffer], 128, [%barrier]; // {copy}
";
/// Waits for that copy.
const WAIT: &str = "
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%barrier], 0;
    @!%p bra WAIT;
";
const CLUSTER_BARRIER: &str = "
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
";

/// A name, CTAs per cluster, what the kernel does, and what is wrong with it; nothing is wrong with some, which stand
/// beside those that differ from them by one step.
fn cases() -> Vec<(&'static str, u32, String, Option<Expected>)> {
    let copy = |then: &str| COPY.replace("// {copy}", "") + then + "\nDONE:";
    let bounds = |at| expected(ILLEGAL_ADDRESS, "access out of bounds", at);
    let misaligned = || expected(MISALIGNED_ADDRESS, "misaligned access", MINE);
    let race = || expected(LAUNCH_FAILED, "shared-memory race between warps", THAT_CTA);
    let copies = |at| expected(LAUNCH_FAILED, "misuse of an asynchronous copy", at);
    let partial = |at| expected(LAUNCH_FAILED, "aligned instruction in a partly active warp", at);
    let one = |text: &str| text.to_owned();
    vec![
        ("nothing wrong", 1, one("@%mine st.global.u32 [%buffer+1020], %thread;"), None),
        ("read past the end", 1, one("@%mine ld.global.u32 %a, [%buffer+1024]; // here"), bounds(MINE)),
        ("write past the end", 1, one("@%mine st.global.u32 [%buffer+1024], %thread; // here"), bounds(MINE)),
        ("write before the start", 1, one("@%mine st.global.u8 [%buffer+-1], %thread; // here"), bounds(MINE)),
        ("read at null", 1, one("mov.u64 %far, 0;\n@%mine ld.global.u32 %a, [%far]; // here"), bounds(MINE)),
        (
            "atomic past the end",
            1,
            one("@%mine atom.global.add.u32 %a, [%buffer+1024], 1; // here"),
            bounds(MINE),
        ),
        ("shared write past the end", 1, one("@%mine st.shared.u32 [%barrier+4096], %thread; // here"), bounds(MINE)),
        ("shared read past the end", 1, one("@%mine ld.shared.u32 %a, [%barrier+4096]; // here"), bounds(MINE)),
        (
            "bulk copy past the end",
            1,
            copy("").replace("[%buffer], 128, [%barrier];", "[%buffer+912], 128, [%barrier]; // here"),
            bounds(MINE),
        ),
        ("misaligned read", 1, one("@%mine ld.global.u32 %a, [%buffer+2]; // here"), misaligned()),
        (
            "misaligned vector write",
            1,
            one("@%mine st.shared.v4.u32 [%shared+8], {%thread, %thread, %thread, %thread}; // here"),
            misaligned(),
        ),
        (
            "misaligned bulk copy",
            1,
            copy("").replace("[%buffer], 128, [%barrier];", "[%buffer+8], 128, [%barrier]; // here"),
            misaligned(),
        ),
        (
            "uninitialised shared memory",
            1,
            one("@%mine ld.shared.u32 %a, [%shared]; // here"),
            expected(LAUNCH_FAILED, "shared memory read before it was written", MINE),
        ),
        ("two warps write one word", 1, one("@%both st.shared.u32 [%shared], %thread; // here"), race()),
        (
            "one warp writes what another reads",
            1,
            one(
                "@%one st.shared.u32 [%shared], %thread;
                bar.sync 0;
                @%one st.shared.u32 [%shared], %thread; // here
                @%mine ld.shared.u32 %a, [%shared]; // here",
            ),
            race(),
        ),
        (
            "a barrier between a write and a read",
            1,
            one(
                "@%one st.shared.u32 [%shared], %thread;
                bar.sync 0;
                @%mine ld.shared.u32 %a, [%shared];
                bar.sync 0;
                @%one st.shared.u32 [%shared], %thread;",
            ),
            None,
        ),
        ("atomics of two warps on one word", 1, one("@%one st.shared.u32 [%shared], %thread; bar.sync 0; @%both atom.shared.add.u32 %a, [%shared], 1;"), None),
        ("destination read in flight", 1, copy("ld.shared.u32 %a, [%shared]; // here"), copies(MINE)),
        ("destination written in flight", 1, copy("st.shared.u32 [%shared], %thread; // here"), copies(MINE)),
        (
            "two copies to one destination",
            1,
            copy(
                "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%barrier], 16;
                cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%shared+112], [%buffer], 16, [%barrier]; // here",
            ),
            copies(MINE),
        ),
        ("exit with a copy in flight", 1, COPY.replace("// {copy}", MARK) + "DONE: ret; // here", copies(THAT_CTA)),
        ("a copy that is waited for", 1, copy(&format!("{WAIT} ld.shared.u32 %a, [%shared+124]; st.shared.u32 [%shared], %a;")), None),
        (
            "another warp reads the copy without waiting",
            1,
            COPY.replace("// {copy}", "").replace("@!%mine bra DONE;", "@!%mine bra SYNC;")
                + WAIT
                + "SYNC: @%one ld.shared.u32 %a, [%shared]; // here",
            // Nothing orders the two: the read may come before, while or after the copy lands, and is wrong in each
            // case.
            expected(LAUNCH_FAILED, "", "CTA (2, 0, 0), warp 0, lane 5"),
        ),
        (
            "half a warp at a barrier",
            1,
            one("setp.ge.u32 %p, %thread, 37;\nsetp.ne.or.u32 %p, %cta, 2, %p;\n@%p bar.sync 0; // here"),
            partial(THAT_CTA),
        ),
        (
            "half a warp branches around a matrix product",
            1,
            one(
                "setp.lt.u32 %p, %thread, 37;
                mov.b32 %a, 0;
                mov.f32 %f, 0f00000000;
                @%p bra AROUND;
                mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f, %g, %h, %i}, {%a, %a, %a, %a}, {%a, %a}, {%f, %f, %f, %f}; // here
                AROUND:",
            ),
            partial("warp 1"),
        ),
        (
            "half a warp at a cluster barrier",
            2,
            one("setp.ne.u32 %p, %thread, 37;\n@%p barrier.cluster.arrive.aligned; // here\nbarrier.cluster.wait;"),
            partial("warp 1"),
        ),
        (
            "a barrier that one warp never reaches",
            1,
            one(
                "setp.lt.u32 %p, %thread, 32;
                @%p bra FIRST;
                bar.sync 1; // here
                bra DONE;
                FIRST: bar.sync 0; // here
                DONE:",
            ),
            expected(LAUNCH_TIMEOUT, "deadlock", "CTA"),
        ),
        (
            "an mbarrier that nothing completes",
            1,
            one(
                "@!%mine bra DONE;
                mbarrier.init.shared::cta.b64 [%barrier], 1;
                WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%barrier], 0; // here
                @!%p bra WAIT; // here
                DONE:",
            ),
            expected(LAUNCH_TIMEOUT, "deadlock", "CTA (2, 0, 0), warp 1"),
        ),
        (
            "a remote write before the cluster has started",
            2,
            one("mapa.shared::cluster.u32 %there, %shared, 1;\n@%mine st.shared::cluster.u32 [%there], %thread; // here"),
            expected(LAUNCH_FAILED, "remote access before the cluster has started", MINE),
        ),
        (
            "a remote write to a CTA that may have exited",
            2,
            format!(
                "mapa.shared::cluster.u32 %there, %shared, 1;
                {CLUSTER_BARRIER}
                @%mine st.shared::cluster.u32 [%there], %thread; // here
                ret; // here",
            ),
            expected(LAUNCH_FAILED, "remote access to a CTA that may have exited", ""),
        ),
        (
            "a remote write between two cluster barriers",
            2,
            format!(
                "mapa.shared::cluster.u32 %there, %shared, 1;
                {CLUSTER_BARRIER}
                @%mine st.shared::cluster.u32 [%there], %thread;
                {CLUSTER_BARRIER}",
            ),
            None,
        ),
        (
            "a wait on what is no mbarrier",
            1,
            one("st.shared.u64 [%barrier], 0;\n@%mine mbarrier.try_wait.parity.shared::cta.b64 %p, [%barrier], 0; // here").replace("st.shared.u64", "@%mine st.shared.u64"),
            expected(LAUNCH_FAILED, "misuse of an mbarrier", MINE),
        ),
        (
            "a bulk copy of a size that is no multiple of 16",
            1,
            copy("").replace("128, [%barrier];", "24, [%barrier]; // here"),
            misaligned(),
        ),
        (
            "a wait at a barrier without an arrival",
            1,
            one("@%mine barrier.cluster.wait; // here"),
            expected(LAUNCH_FAILED, "operands that the instruction does not allow", MINE),
        ),
        ("trap", 1, one("@%mine trap; // here"), expected(LAUNCH_FAILED, "trap", MINE)),
    ]
}

/// Holds the current context's fault against what was expected of it.
fn hold(case: &str, ptx: &str, kernel: &str, wrong: &Expected) {
    let code = driver::synchronize();
    let story = emulated::last_fault().unwrap_or_default();
    assert_eq!(code, wrong.code, "{case}: {} {story}", driver::name(code));
    // Sticky: work and memory alike are refused from here on, with the same code.
    let mut address = 0;
    // SAFETY: writes one address.
    assert_eq!(unsafe { ffi::cuMemAlloc_v2(&raw mut address, 4) }, wrong.code, "{case}");
    let lines = ptx
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim_end().ends_with(MARK));
    let lines: Vec<String> = lines.map(|(at, _)| format!("PTX line {} `", at + 1)).collect();
    assert!(!lines.is_empty(), "{case} marks no line");
    assert!(
        story.starts_with(wrong.kind)
            && story.contains(&format!("in kernel `{kernel}`"))
            && lines.iter().any(|line| story.contains(line))
            && story.contains(wrong.at)
            && ["warp ", "lane "].iter().all(|word| story.contains(word)),
        "{case}: expected {} at {lines:?}, {}; the story is: {story}",
        wrong.kind,
        wrong.at
    );
}

#[test]
fn each_fault_ends_its_own_context_and_is_told_of() {
    emulated_device();
    for (case, cluster, body, wrong) in cases() {
        let ptx = text(&kernel("planted", &body));
        // Found in any interleaving: as the machine's cores have it, and as seeds do.
        for seed in [None, Some(1), Some(2), Some(3)] {
            let _context = OwnContext::new();
            emulated::set_seed(seed);
            assert_eq!(
                emulated::last_fault(),
                None,
                "{case}: a new context starts without faults"
            );
            let buffer = driver::memory(&[0; BUFFER]);
            let module = Module::try_load(ptx.as_bytes());
            let module = module.unwrap_or_else(|(code, words)| panic!("{case}: PTX refused with {code}: {words}"));
            launch(Launch { cluster, ..LAUNCH }, module, "planted", buffer);
            match &wrong {
                Some(wrong) => hold(case, &ptx, "planted", wrong),
                None => assert_eq!(driver::synchronize(), 0, "{case}: {:?}", emulated::last_fault()),
            }
        }
    }
}

#[test]
fn memory_that_was_freed_is_out_of_bounds() {
    emulated_device();
    let ptx = text(&kernel("planted", "@%mine ld.global.u32 %a, [%buffer]; // here"));
    let _context = OwnContext::new();
    let buffer = driver::memory(&[0; BUFFER]);
    // SAFETY: allocated just now, freed once.
    assert_eq!(unsafe { ffi::cuMemFree_v2(buffer) }, 0);
    launch(LAUNCH, Module::load(&ptx), "planted", buffer);
    let wrong = expected(ILLEGAL_ADDRESS, "access out of bounds", MINE);
    hold("freed memory", &ptx, "planted", &wrong.unwrap());
}

/// What one launch writes, the next may read at once only where the two do not overlap, or once it has waited.
#[test]
fn results_of_the_launch_before_are_read_after_the_wait() {
    emulated_device();
    let early = expected(LAUNCH_FAILED, "read of an unfinished launch's result", MINE);
    for (case, wait, overlaps, wrong) in [
        ("no overlap, no wait", "", false, None),
        ("overlap and wait", "griddepcontrol.wait;", true, None),
        ("overlap, no wait", "", true, early),
    ] {
        let ptx = text(
            &(kernel(
                "writes",
                "griddepcontrol.launch_dependents;\n@%mine st.global.u32 [%buffer+40], %thread;",
            ) + &kernel(
                "reads",
                &format!("{wait}\n@%mine ld.global.u32 %a, [%buffer+40]; // here"),
            )),
        );
        let _context = OwnContext::new();
        let buffer = driver::memory(&[0; BUFFER]);
        let module = Module::load(&ptx);
        for name in ["writes", "reads"] {
            launch(Launch { overlaps, ..LAUNCH }, module, name, buffer);
        }
        match wrong {
            Some(wrong) => hold(case, &ptx, "reads", &wrong),
            None => assert_eq!(driver::synchronize(), 0, "{case}: {:?}", emulated::last_fault()),
        }
    }
}

/// Which of two racing warps comes second, and is told of, is up to the interleaving, and that to the seed.
#[test]
fn a_seed_repeats_its_run() {
    emulated_device();
    let ptx = text(&kernel("planted", "@%both st.shared.u32 [%shared], %thread;"));
    let story = |seed| {
        let _context = OwnContext::new();
        emulated::set_seed(Some(seed));
        let buffer = driver::memory(&[0; BUFFER]);
        launch(LAUNCH, Module::load(&ptx), "planted", buffer);
        assert_eq!(driver::synchronize(), LAUNCH_FAILED);
        emulated::last_fault().unwrap()
    };
    let stories: Vec<String> = (0..20).map(story).collect();
    assert_eq!(stories, (0..20).map(story).collect::<Vec<_>>());
    assert!(
        stories.iter().any(|story| story.contains("warp 0, lane 5: writes")),
        "{stories:?}"
    );
    assert!(
        stories.iter().any(|story| story.contains("warp 1, lane 5: writes")),
        "{stories:?}"
    );
}

#[test]
fn an_unknown_instruction_is_refused_at_load_with_its_line() {
    emulated_device();
    let _context = OwnContext::new();
    for instruction in [
        "fma.rn.telepathic %f, %f, %f, %f;",
        "wobble.u32 %a, %b;",
        "ld.global.u32 %a;",
    ] {
        let ptx = text(&kernel("planted", &format!("{instruction} // here")));
        let line = 1 + ptx.lines().position(|line| line.trim_end().ends_with(MARK)).unwrap();
        let (code, words) = Module::try_load(ptx.as_bytes()).unwrap_err();
        assert_eq!(code, INVALID_PTX, "{instruction}: {words}");
        let opcode = instruction.split_whitespace().next().unwrap();
        assert!(
            words.contains(&format!("line {line}")) && (words.contains(opcode) || instruction.starts_with("ld")),
            "{instruction}: {words}"
        );
        assert_eq!(
            driver::synchronize(),
            0,
            "a refused module leaves the context as it was"
        );
    }
}
