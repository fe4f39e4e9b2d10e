//! Hostile input: PTX and safetensors that were cut, changed or made up. Errors, never panics, and nothing is harmed.

use hopper_cuda_driver::{Choice, select};
use hopper_proj::io::checkpoint::{Cast, Checkpoint};
use hopper_proj::plan;
use hopper_proj_tests::driver::{self, Module, OwnContext};
use hopper_proj_tests::shipped;
use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// One change to a text or a file.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize),
    Byte(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
    Insert(usize, &'static str),
}

/// What may be inserted: pieces of syntax, and numbers at the edges of every width.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    ";",
    ",",
    ".",
    "@",
    "%",
    "!",
    "_",
    "-",
    "+",
    "\"",
    "//",
    "/*",
    "*/",
    "\n",
    "0",
    "-1",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999999",
    "0x",
    "0xffffffffffffffffff",
    "0f7F800000",
    "0fzz",
    "1e999",
    ".reg .b32 %r<4294967295>;",
    ".reg .b32 %r<18446744073709551615>;",
    ".shared .align 3 .b8 s[18446744073709551615];",
    ".param .b8 p[4294967295]",
    ".maxntid 4294967295, 4294967295, 4294967295",
    ".visible .entry",
    ".global .u32 g[4294967295] = {1, 2};",
    ".v4",
    ".f64",
    "%tid.w",
    "bra $L__BB0_1;",
    "$L__BB0_1:",
    "call f, (1);",
    "\u{fffd}",
    "ß",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<usize>;
    let len = || 1usize..80;
    prop_oneof![
        1 => at().prop_map(Change::Cut),
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        3 => (at(), len()).prop_map(|(at, len)| Change::Remove(at, len)),
        2 => (at(), len()).prop_map(|(at, len)| Change::Repeat(at, len)),
        6 => (at(), prop::sample::select(PIECES)).prop_map(|(at, piece)| Change::Insert(at, piece)),
    ]
}

fn changed(whole: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for change in changes {
        let len = bytes.len().max(1);
        let range = |at: usize, n: usize| at % len..(at % len + n).min(bytes.len());
        match *change {
            Change::Cut(at) => bytes.truncate(at % len),
            Change::Byte(at, byte) => {
                if let Some(b) = bytes.get_mut(at % len) {
                    *b = byte;
                }
            }
            Change::Remove(at, n) if at % len < bytes.len() => drop(bytes.drain(range(at, n))),
            Change::Repeat(at, n) if at % len < bytes.len() => {
                let piece = bytes[range(at, n)].to_vec();
                bytes.splice(at % len..at % len, piece);
            }
            Change::Insert(at, piece) => drop(bytes.splice(at % len..at % len, piece.bytes()).collect::<Vec<_>>()),
            Change::Remove(..) | Change::Repeat(..) => {}
        }
    }
    bytes
}

/// Offers a module to the driver: taken, or refused with a code and words; the context lives on.
fn offer(ptx: &[u8]) -> Result<(), String> {
    let answer = Module::try_load(ptx);
    assert_eq!(driver::synchronize(), 0);
    match answer {
        Ok(module) => {
            module.unload();
            Ok(())
        }
        Err((code, words)) => {
            assert_eq!(code, 218, "{words}");
            assert!(!words.is_empty());
            Err(words)
        }
    }
}

fn emulated_context() -> OwnContext {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
    OwnContext::new()
}

/// A reader and a projection, in one module.
fn kernels() -> Vec<u8> {
    shipped(&["stream_read_sm90_w8s8b8", "gemv_bf16_sm90_w4c2s2g1n1r2x8"]).into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_ptx_is_taken_or_refused(changes in prop::collection::vec(change(), 1..6)) {
        let _context = emulated_context();
        // Both are fine; what is not is a panic, or a context that is harmed.
        let _ = offer(&changed(&kernels(), &changes));
    }

    /// Lines lost, doubled or moved, registers, numbers and labels mistaken for others: what still loads either runs or
    /// is stopped.
    #[test]
    fn changed_kernels_run_or_fault(changes in prop::collection::vec((any::<usize>(), any::<usize>(), 0..5u8), 1..4)) {
        let _ = run(&with_other_lines(&kernel(), &changes));
    }

    #[test]
    fn changed_safetensors_are_read_or_refused(changes in prop::collection::vec(change(), 1..5)) {
        let _ = read(&changed(&file(), &changes));
    }
}

const KERNEL: &str = "gemv_bf16_sm90_w4c2s2g1n1r2x8";

fn kernel() -> String {
    shipped(&[KERNEL])
}

/// A text with lines changed, each change by where, by what, and how.
fn with_other_lines(text: &str, changes: &[(usize, usize, u8)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let body = lines.iter().position(|line| line.contains(".reg")).unwrap_or_default();
    for &(at, other, how) in changes {
        let len = lines.len() - body;
        let (at, other) = (body + at % len, body + other % len);
        match how {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[other].clone()),
            2 => lines.swap(at, other),
            3 => {
                // One digit of a register, a number or a label.
                let digits: Vec<usize> = lines[at]
                    .match_indices(|c: char| c.is_ascii_digit())
                    .map(|(at, _)| at)
                    .collect();
                if let Some(&place) = digits.get(other % digits.len().max(1)) {
                    lines[at].replace_range(place..=place, &(other % 10).to_string());
                }
            }
            _ => {
                // The operands of another instruction.
                let split = |line: &str| {
                    line.trim_start()
                        .split_once([' ', '\t'])
                        .map(|(a, b)| (a.to_owned(), b.to_owned()))
                };
                if let (Some((opcode, _)), Some((_, operands))) = (split(&lines[at]), split(&lines[other])) {
                    lines[at] = format!("{opcode} {operands}");
                }
            }
        }
    }
    lines.join("\n")
}

/// Runs the kernel of a text, for no longer than a sound kernel of this size needs.
fn run(ptx: &str) -> Result<(), String> {
    use ptx_emulator::{Launch, Limits, Memory, Options};
    let module = ptx_emulator::Module::parse(ptx).map_err(|err| err.to_string())?;
    let instance = plan::instance(KERNEL).unwrap();
    let memory = Memory::new(1 << 20);
    let (n, k, m) = (32, 8 * 64 * 3, 3);
    let [x, weights, y] = [m * k, n * k, m * n].map(|len| memory.allocate(2 * len as u64).unwrap());
    let words = [x, k as u64, weights, y, m as u64 | (n as u64) << 32, k as u64];
    let params: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let launch = Launch {
        entry: KERNEL,
        grid: [instance.cluster as u32, 1, 1],
        block: [instance.threads() as u32, 1, 1],
        cluster: [instance.cluster as u32, 1, 1],
        dynamic_shared: instance.shared_bytes() as u32,
        params: &params,
        overlaps: None,
    };
    let options = Options {
        seed: Some(1),
        limits: Limits {
            idle_instructions: 20_000,
            total_instructions: 100_000,
        },
        ..Options::default()
    };
    let outcome = ptx_emulator::launch(&module, &memory, &launch, &options);
    outcome.map(drop).map_err(|err| err.to_string())
}

#[test]
fn the_unchanged_kernel_runs_within_its_limits() {
    run(&kernel()).unwrap();
}

/// Whether all braces are closed, and no more than comments and white space follows the last one.
fn ends_between_entries(text: &[u8]) -> bool {
    let count = |brace| text.iter().filter(|&&byte| byte == brace).count();
    let Some(last) = text.iter().rposition(|&byte| byte == b'}') else {
        return false;
    };
    let mut lines = text[last + 1..].split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    count(b'{') == count(b'}') && lines.all(|line| line.is_empty() || line.starts_with(b"//"))
}

#[test]
fn ptx_cut_anywhere_is_refused() {
    let _context = emulated_context();
    let whole = kernels();
    offer(&whole).unwrap();
    // Behind the last brace nothing is missing.
    let end = whole.iter().rposition(|&byte| byte == b'}').unwrap();
    let find = |word: &[u8]| whole.windows(word.len()).position(|w| w == word).unwrap();
    // Between the two lies text that is whole without what follows; so is what ends between two entries, in nothing but
    // comments.
    for at in (0..find(b".target")).chain((find(b".entry")..end).step_by(61)) {
        let text = &whole[..at];
        if ends_between_entries(text) {
            continue;
        }
        assert!(
            offer(text).is_err(),
            "cut at {at}: …{}",
            String::from_utf8_lossy(&text[at.saturating_sub(60)..])
        );
    }
}

#[test]
fn ptx_made_up_to_hurt_is_refused() {
    let _context = emulated_context();
    let module = |body: &str| format!(".version 8.0\n.target sm_90a\n.address_size 64\n{body}");
    let entry = |body: &str| module(&format!(".visible .entry k(.param .u64 p)\n{{\n{body}\nret;\n}}\n"));
    let deep = |open: &str, close: &str, n| open.repeat(n) + &close.repeat(n);
    for ptx in [
        String::new(),
        " ".repeat(100_000),
        "this is no PTX".into(),
        module("/* a comment without end"),
        module("\"a string without end"),
        module(&"{".repeat(100_000)),
        entry(&"{".repeat(100_000)),
        entry(&deep("(", ")", 100_000)),
        entry(&format!("mov.u32 %r1, {};", deep("(", ")", 100_000))),
        entry(&format!("mov.u32 %r1, {}1;", "-".repeat(100_000))),
        entry(&format!(
            ".reg .b32 %r<2>;\nld.global.u32 %r1, [{}];",
            "%r1+".repeat(50_000)
        )),
        entry(&format!("{} %r1;", "mov.".repeat(50_000))),
        entry(".reg .b32 %r<2>;\nmov.b32 %r1, 99999999999999999999999999;"),
        entry(".reg .b32 %r<2>;\nmov.b32 %r1, %r7;"),
        entry(".reg .b32 %r<2>;\nbra NOWHERE;"),
        entry("L:\nL:\nbra L;"),
        entry(".reg .b32 %r<4294967295>;\n.reg .b64 %r<4294967295>;"),
        entry(".shared .align 8 .b8 s[18446744073709551615];"),
        entry(".shared .align 8 .b8 s[9223372036854775807][9223372036854775807];"),
        entry(".shared .align 0 .b8 s[16];"),
        entry(".shared .align 3 .b8 s[16];"),
        module(".visible .entry k(.param .b8 p[4294967295], .param .b8 q[4294967295])\n{\nret;\n}"),
        module(".visible .entry k()\n.maxntid 4294967295, 4294967295, 4294967295\n.minnctapersm 4294967295\n{\n"),
        module(".visible .entry k()\n{\nret;\n}\n.visible .entry k()\n{\nret;\n}"),
        module(".global .align 8 .b8 g[18446744073709551615];"),
    ] {
        let head: String = ptx.chars().take(200).collect();
        assert!(offer(ptx.as_bytes()).is_err(), "{head}");
    }
    assert!(offer(b"\xff\xfe.version 8.0").is_err());
}

/// A file with a matrix of each type that can be read, and one that cannot be.
fn file() -> Vec<u8> {
    let data = |len| vec![0x3c; len];
    let (bf, f, h, i, v) = (data(48), data(96), data(48), data(96), data(16));
    let views = [
        ("a", Dtype::BF16, vec![4, 6], &bf),
        ("b", Dtype::F32, vec![6, 4], &f),
        ("c", Dtype::F16, vec![3, 8], &h),
        ("d", Dtype::I32, vec![4, 6], &i),
        ("e", Dtype::BF16, vec![8], &v),
    ];
    let views = views.map(|(name, dtype, shape, data)| (name, TensorView::new(dtype, shape, data).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// The header and the data of a file.
fn parts(file: &[u8]) -> (String, Vec<u8>) {
    let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    (
        String::from_utf8(file[8..8 + len].to_vec()).unwrap(),
        file[8 + len..].to_vec(),
    )
}

/// A file of these parts, with the length of its header as it is, or as given.
fn assemble(header: &str, data: &[u8], len: Option<u64>) -> Vec<u8> {
    let len = len.unwrap_or(header.len() as u64);
    [&len.to_le_bytes(), header.as_bytes(), data].concat()
}

fn saved(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Reads all that a file offers, by every way; how many matrices there were, or the first refusal.
fn read(bytes: &[u8]) -> Result<usize, String> {
    let file = saved(bytes);
    let open = || -> hopper_proj::Result<usize> {
        let checkpoint = Checkpoint::open(file.path())?;
        let names = checkpoint.matrix_names();
        for name in ["", "e", "nothing"] {
            if let Err(err) = checkpoint.matrix(Some(name)) {
                assert!(!err.to_string().is_empty());
            }
        }
        if let Err(err) = checkpoint.matrix(None) {
            assert!(!err.to_string().is_empty());
        }
        for name in &names {
            let Ok(matrix) = checkpoint.matrix(Some(name)) else {
                continue;
            };
            for (rows, cols) in [
                (None, None),
                (Some(1..2), None),
                (None, Some(0..1)),
                (Some(3..usize::MAX), None),
                (None, Some(2..2)),
            ] {
                let Ok(part) = matrix.clone().slice(rows, cols) else {
                    continue;
                };
                let values = part.to_bf16(Some(Cast::Bf16))?;
                assert_eq!(values.len(), part.rows() * part.cols());
            }
        }
        Ok(names.len())
    };
    open().map_err(|err| err.to_string())
}

/// Files that must be refused when their matrices are read.
fn hostile_files() -> Vec<(&'static str, Vec<u8>)> {
    let whole = file();
    let (header, data) = parts(&whole);
    let edited = |from: &str, to: &str| {
        assert!(header.contains(from), "{header}");
        assemble(&header.replacen(from, to, 1), &data, None)
    };
    let mut files = vec![
        ("nothing", vec![]),
        ("half a length", whole[..5].to_vec()),
        ("no header", whole[..8].to_vec()),
        ("half a header", whole[..40].to_vec()),
        ("no data", whole[..8 + header.len()].to_vec()),
        ("one byte short", whole[..whole.len() - 1].to_vec()),
        ("one byte more", [&whole[..], &[0]].concat()),
        ("offsets back to front", edited("[0,96]", "[96,0]")),
        ("offsets past the end", edited("[0,96]", "[0,99999]")),
        ("offsets past all ends", edited("[0,96]", "[0,18446744073709551615]")),
        ("offsets that overlap", edited("[96,192]", "[0,96]")),
        ("a shape larger than its data", edited("[6,4]", "[7,4]")),
        (
            "a shape whose size overflows",
            edited("[6,4]", "[4294967296,4294967296]"),
        ),
        (
            "a shape of huge sides",
            edited("[6,4]", "[9223372036854775807,9223372036854775807]"),
        ),
        ("an unknown type", edited("\"F32\"", "\"F33\"")),
        ("a negative side", edited("[6,4]", "[-6,-4]")),
        ("not JSON", edited("{", "!")),
        ("brackets without end", assemble(&"[".repeat(100_000), &data, None)),
        ("braces without end", assemble(&"{\"a\":".repeat(100_000), &data, None)),
        (
            "not UTF-8",
            assemble(&header, &data, None)
                .iter()
                .map(|b| if *b == b'"' { 0xff } else { *b })
                .collect(),
        ),
    ];
    for len in [
        0,
        1,
        7,
        header.len() as u64 - 1,
        whole.len() as u64,
        100_000_001,
        1 << 63,
        u64::MAX,
    ] {
        files.push(("a header of another length", assemble(&header, &data, Some(len))));
    }
    files
}

#[test]
fn safetensors_made_up_to_hurt_are_refused() {
    assert_eq!(read(&file()), Ok(4));
    for (what, bytes) in hostile_files() {
        match read(&bytes) {
            Ok(_) => panic!("{what}: read"),
            Err(words) => assert!(words.contains("safetensors"), "{what}: {words}"),
        }
    }
}

/// The binary `hopper-proj`: the one that a variable names, where there is nothing to build one with; else built in
/// this run's profile, as `cargo test` for this package alone does not build it. It is built for the command line's own
/// tests, as `cargo test` for all packages has done already: to build the package would compile the library once more.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("HOPPER_PROJ_TEST_BINARY").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let mut folder = std::env::current_exe().unwrap();
    while folder.file_name().is_some_and(|name| name != "deps") {
        folder.pop();
    }
    folder.pop();
    let release: &[&str] = if folder.ends_with("release") {
        &["--release"]
    } else {
        &[]
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(["test", "--quiet", "--no-run", "--test", "cli"])
        .args(release)
        // Cargo has set it for this test. A cargo that finds it set takes it for a change, and builds everything once
        // more.
        .env_remove("CUDA_LIBRARY_PATH");
    let built = cargo
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.join(format!("hopper-proj{}", std::env::consts::EXE_SUFFIX))
}

#[test]
fn the_command_line_answers_hostile_files_with_one_line() {
    let (binary, folder, good) = (binary(), tempfile::tempdir().unwrap(), saved(&file()));
    let project = |weights: &Path, x: &Path| -> Output {
        let argument = |path: &Path| format!("{}:a", path.display());
        let mut command = Command::new(&binary);
        command.args(["project", "--device", "emulated", "--cast", "bf16", "--weights"]);
        command.arg(argument(weights)).arg("--x").arg(argument(x));
        command.arg("--out").arg(folder.path().join("y.safetensors"));
        command.output().unwrap()
    };
    let refused = |what: &str, output: Output| {
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{what}: {words}");
        assert!(
            words.starts_with("error: ") && words.trim_end().lines().count() == 1,
            "{what}: {words}"
        );
    };
    for (what, bytes) in hostile_files() {
        let bad = saved(&bytes);
        refused(what, project(bad.path(), good.path()));
        refused(what, project(good.path(), bad.path()));
    }
    assert!(
        !folder.path().join("y.safetensors").exists(),
        "a refused call writes nothing"
    );
}
