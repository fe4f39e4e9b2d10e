//! `pack`, `unpack` and `inspect` as a script sees them.

use crate::common::{Scratch, Tensor, error_line, hopper_proj, write};
use crate::interrupts::{Killed, await_parts, endless, packing, parts};
use serde_json::Value;
use std::path::{Path, PathBuf};

const LAYER: &str = "encoder.layer.0.intermediate.dense.weight";

fn stdout(args: &[&str]) -> String {
    let output = hopper_proj(args).assert().success().get_output().clone();
    assert!(output.stderr.is_empty(), "no progress where the output is piped");
    String::from_utf8(output.stdout).unwrap()
}

/// A file with a slice of a real layer.
fn slice() -> String {
    let folder = std::env::var("HOPPER_PROJ_TEST_DATA");
    let folder = folder.unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data").to_owned());
    format!("{folder}/minilm-l6-v2-slice.safetensors")
}

fn inspect(path: &str) -> Vec<Value> {
    serde_json::from_str(&stdout(&["inspect", path, "--json"])).unwrap()
}

/// Values of four exponents.
fn tame(i: usize) -> f32 {
    [0.5, -0.25, 1.0, 0.125][i * 7 % 4]
}

/// Values of many exponents.
fn wild(i: usize) -> f32 {
    2f32.powi((i * 37 % 200) as i32 - 100)
}

#[test]
fn a_file_comes_back_as_it_was() {
    let scratch = Scratch::new();
    let input = write(
        scratch.path(),
        "in",
        &[
            Tensor::bf16("a", [48, 128], tame),
            Tensor::bf16("b", [48, 128], wild),
            Tensor::f32("c", [3, 3], tame),
        ],
    );
    let (there, back) = (scratch.name("packed"), scratch.name("back"));
    for (options, packs) in [
        (&[][..], &["a"][..]),
        (&["--format", "window12"], &["a", "b"]),
        (&["--format", "window12", "--only", "^b$"], &["b"]),
        (&["--format", "bf16"], &[]),
    ] {
        let told = stdout(&[&["pack", &input, &there], options].concat());
        for name in ["a", "b"] {
            let mark = if packs.contains(&name) { "packed" } else { "left  " };
            assert!(told.contains(&format!("{mark} {name} [48, 128] BF16: ")), "{told}");
        }
        let reason = if options.contains(&"--only") {
            "--only"
        } else {
            "--cast bf16"
        };
        let c = told.lines().find(|line| line.starts_with("left   c [3, 3] F32: "));
        assert!(c.is_some_and(|line| line.contains(reason)), "{told}");
        assert!(told.contains(&format!("packed {} of 3 tensors", packs.len())), "{told}");
        let told = stdout(&["unpack", &there, &back]);
        assert!(
            told.contains(&format!("unpacked {} of 3 tensors", packs.len())),
            "{told}"
        );
        assert!(
            std::fs::read(&input).unwrap() == std::fs::read(&back).unwrap(),
            "{options:?}"
        );
    }
}

#[test]
fn real_weights_are_rounded_on_request_and_then_kept() {
    let scratch = Scratch::new();
    let (rounded, there, back) = (scratch.name("rounded"), scratch.name("packed"), scratch.name("back"));
    let told = stdout(&["pack", &slice(), &there]);
    assert!(
        told.contains("packed 0 of 2 tensors"),
        "FP32 is never rounded unasked: {told}"
    );
    let told = stdout(&["pack", &slice(), &rounded, "--cast", "bf16", "--format", "bf16"]);
    assert!(
        told.contains("rounded to BF16 (") && told.contains("0 became infinite"),
        "{told}"
    );
    let told = stdout(&["pack", &slice(), &there, "--cast", "bf16"]);
    assert!(
        told.contains(&format!("packed {LAYER} [256, 384] F32, rounded to BF16")),
        "{told}"
    );
    assert!(told.contains("packed 1 of 2 tensors"), "{told}");
    stdout(&["unpack", &there, &back]);
    let plain = scratch.name("plain");
    stdout(&["unpack", &rounded, &plain]);
    assert!(std::fs::read(&plain).unwrap() == std::fs::read(&back).unwrap());
}

#[test]
fn inspect_tells_what_is_packed_and_why_not() {
    let scratch = Scratch::new();
    let input = write(
        scratch.path(),
        "in",
        &[
            Tensor::bf16("a", [48, 128], tame),
            Tensor::bf16("b", [48, 128], wild),
            Tensor::f32("c", [3, 3], tame),
        ],
    );
    let rows = inspect(&input);
    assert_eq!(rows.len(), 3);
    let row = |rows: &[Value], name: &str| rows.iter().find(|row| row["name"] == name).unwrap().clone();
    let (a, b, c) = (row(&rows, "a"), row(&rows, "b"), row(&rows, "c"));
    assert_eq!(
        (&a["format"], &a["bits_per_weight"], &a["left"]),
        (&"plain".into(), &16.0.into(), &Value::Null)
    );
    assert!(b["left"].as_str().unwrap().contains("exceptions"), "{b}");
    assert!(c["left"].as_str().unwrap().contains("F32"), "{c}");
    // Four values: 2^-3, 2^-2, 2^-1 and 1, of equal frequency.
    assert_eq!(
        a["exponents"],
        serde_json::json!([[124, 1536], [125, 1536], [126, 1536], [127, 1536]])
    );
    assert_eq!(a["palette"], serde_json::json!([0, 1, 2, 3, 4, 5, 62, 63]));

    let packed = scratch.name("packed");
    stdout(&["pack", &input, &packed, "--format", "window12"]);
    let rows = inspect(&packed);
    assert_eq!(rows.len(), 3, "a packed matrix is one tensor");
    let b = row(&rows, "b");
    assert_eq!(
        (&b["format"], &b["dtype"], &b["shape"]),
        (&"window12".into(), &"BF16".into(), &serde_json::json!([48, 128]))
    );
    let (exceptions, bits) = (
        b["exceptions"].as_u64().unwrap(),
        b["bits_per_weight"].as_f64().unwrap(),
    );
    assert!(exceptions > 1000 && bits > 20.0, "{b}");
    assert_eq!(bits * 6144.0 / 8.0, (3 * 2 * 1536 + 8 + 4 * 8 + exceptions * 8) as f64);

    let svg = scratch.name("exponents.svg");
    let text = stdout(&["inspect", &packed, "--plot", &svg]);
    assert!(text.contains("a BF16 [48, 128]: window12, 12.0"), "{text}");
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.matches("<rect").count() > 100 + 4, "a bar per exponent");
}

#[test]
fn a_sharded_checkpoint_goes_from_folder_to_folder() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("in");
    std::fs::create_dir(&folder).unwrap();
    write(&folder, "1.safetensors", &[Tensor::bf16("a", [48, 128], tame)]);
    write(&folder, "2.safetensors", &[Tensor::bf16("b", [48, 128], tame)]);
    let index = r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
    let index_path = folder.join("model.safetensors.index.json");
    std::fs::write(&index_path, index).unwrap();
    let (there, back) = (scratch.name("packed"), scratch.name("back"));
    let told = stdout(&["pack", index_path.to_str().unwrap(), &there]);
    assert!(told.contains("packed 2 of 2 tensors"), "{told}");
    assert_eq!(inspect(&there).len(), 2);
    stdout(&["unpack", &there, &back]);
    for name in ["1.safetensors", "2.safetensors"] {
        let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
        assert!(read(&folder) == read(Path::new(&back)), "{name}");
    }
    let restored: Value =
        serde_json::from_slice(&std::fs::read(Path::new(&back).join("model.safetensors.index.json")).unwrap()).unwrap();
    assert_eq!(restored, serde_json::from_str::<Value>(index).unwrap());
}

/// What one command refuses, the others do, in the same words.
#[test]
fn commands_agree_on_an_index() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("in");
    std::fs::create_dir(&folder).unwrap();
    write(&folder, "1.safetensors", &[Tensor::bf16("a", [48, 128], tame)]);
    write(&folder, "2.safetensors", &[Tensor::bf16("b", [48, 128], tame)]);
    let (folder, out) = (folder.to_str().unwrap(), scratch.name("new/out"));
    for (map, words) in [
        (
            r#"{"a":"1.safetensors","z":"2.safetensors"}"#,
            "tensor `z` is not in `2.safetensors`",
        ),
        (
            r#"{"a":"1.safetensors","b":"3.safetensors"}"#,
            "its file `3.safetensors` is not there",
        ),
    ] {
        let index = format!(r#"{{"weight_map":{map}}}"#);
        std::fs::write(format!("{folder}/model.safetensors.index.json"), index).unwrap();
        let commands = [
            &["inspect", folder][..],
            &["pack", folder, &out],
            &["unpack", folder, &out],
        ];
        let lines = commands.map(error_line);
        assert!(lines[0].contains(words), "{}", lines[0]);
        assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
        assert!(!scratch.path().join("new").exists());
    }
}

#[test]
fn failures_are_one_line_and_leave_nothing() {
    let scratch = Scratch::new();
    let input = write(scratch.path(), "in", &[Tensor::bf16("a", [48, 128], tame)]);
    let (packed, out) = (scratch.name("packed"), scratch.name("out"));
    stdout(&["pack", &input, &packed]);
    let mut bytes = std::fs::read(&packed).unwrap();
    let garbage = scratch.name("garbage");
    std::fs::write(&garbage, [0xff; 64]).unwrap();
    let folder = scratch.path().to_str().unwrap();
    assert!(error_line(&["pack", "/no/such/file", &out]).contains("/no/such/file"));
    assert!(error_line(&["pack", &garbage, &out]).contains("not a readable safetensors file"));
    assert!(error_line(&["pack", &packed, &out]).contains("packed already"));
    assert!(error_line(&["pack", &input, &out, "--only", "z"]).contains("--only"));
    assert!(error_line(&["pack", folder, &out]).contains("index"));
    assert!(error_line(&["unpack", &packed, folder]).contains("is a folder"));
    assert!(error_line(&["unpack", &packed, "/no/such/folder/out"]).contains("cannot create"));
    assert!(error_line(&["inspect", &garbage]).contains("not a readable safetensors file"));
    assert!(error_line(&["inspect", &input, "--plot", "/no/such/folder/p.svg"]).contains("p.svg"));
    // The first byte of the palette, behind 3 × 2 units.
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[data + 6 * 1536] = 1;
    let damaged = scratch.name("damaged");
    std::fs::write(&damaged, bytes).unwrap();
    for command in [&["unpack", &damaged, &out][..], &["inspect", &damaged]] {
        let line = error_line(command);
        assert!(line.contains("`a`") && line.contains("palette"), "{line}");
    }
    assert!(!Path::new(&out).exists());
    assert_eq!(parts(scratch.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_run_leaves_nothing_that_looks_whole() {
    let scratch = Scratch::new();
    let (input, out) = (scratch.path().join("in"), scratch.path().join("out"));
    endless(&input);
    let mut child = Killed(packing(&input, &out).spawn().unwrap());
    await_parts(&mut child.0, scratch.path(), 1);
    drop(child);
    assert!(!out.exists());
    assert_eq!(parts(scratch.path()).len(), 1);
    // The next run does not mind.
    let small = write(scratch.path(), "small", &[Tensor::bf16("a", [48, 128], tame)]);
    stdout(&["pack", &small, out.to_str().unwrap()]);
}
