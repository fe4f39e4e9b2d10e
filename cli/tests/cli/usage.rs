//! Exit codes and error lines: 2 for usage, 1 with one `error:` line for anything else.

use crate::common::{Tensor, error_line, hopper_proj, write};

#[test]
fn usage_errors_exit_with_2() {
    let cases: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["info", "--plan", "1,2"],
        &["info", "--plan", "16,64,0"],
        &["info", "--plan", "16,64,1", "--format", "fp8"],
        &["info", "--plan", "16,64,1", "--op", "multiply"],
        &["info", "--format", "bf16"],
        &["info", "--row-major"],
        &["tune"],
        &["tune", "--out", "t", "--shape", "1,2"],
        &["tune", "--out", "t", "--shape", "1,2,0"],
        &["tune", "--out", "t", "--suite", "large"],
        &["bench", "--peers", "p.csv"],
        &["bench", "--from", "f.csv"],
        &["bench", "--from", "f.csv", "--plot", "p.svg", "--json"],
        &["verify", "--suite", "large"],
        &["verify", "--device", "tpu"],
        &["verify", "--seed", "-1"],
        &["bench", "--mode", "fast"],
        &["pack", "in"],
        &["pack", "in", "out", "--format", "nvfp4"],
        &["pack", "in", "out", "--only", "("],
        &["pack", "in", "out", "--cast", "f32"],
        &["unpack", "in"],
        &["route", "--weights", "w", "--x", "x", "--out", "y"],
        &[
            "route",
            "--weights",
            "w",
            "--x",
            "x",
            "--out",
            "y",
            "--config",
            "c",
            "--format",
            "fp8",
        ],
        &["inspect"],
        &["project", "--weights", "w"],
        &["project", "--weights", "w", "--x", "x", "--out", "y", "--rows", "5..5"],
        &["project", "--weights", "w", "--x", "x", "--out", "y", "--cols", "3"],
        &["project", "--weights", "w", "--x", "x", "--out", "y", "--cast", "f16"],
        // Every projection adds in a fixed order: only routers have the choice.
        &["project", "--weights", "w", "--x", "x", "--out", "y", "--deterministic"],
        &[
            "project",
            "--weights",
            "w",
            "--x",
            "x",
            "--out",
            "y",
            "--format",
            "int4",
        ],
    ];
    for args in cases {
        let output = hopper_proj(args).assert().code(2).get_output().clone();
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_version_succeed() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["project", "--help"],
        &["route", "--help"],
        &["verify", "--help"],
        &["pack", "--help"],
        &["unpack", "--help"],
        &["inspect", "--help"],
        &["bench", "--help"],
        &["tune", "--help"],
    ] {
        hopper_proj(args).assert().success();
    }
}

#[test]
fn help_says_what_is_written_and_kept() {
    let overwritten = "overwritten, unless";
    for (command, words) in [
        ("project", "row-major"),
        ("project", overwritten),
        ("route", overwritten),
        ("pack", overwritten),
        ("unpack", overwritten),
        ("unpack", "not the layout of the file"),
        ("inspect", overwritten),
        ("bench", overwritten),
        ("tune", overwritten),
    ] {
        let output = hopper_proj(&[command, "--help"])
            .assert()
            .success()
            .get_output()
            .clone();
        let text = String::from_utf8(output.stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(words), "{command}: {text}");
    }
}

#[test]
fn what_is_not_there_yet_says_what_is() {
    let line = error_line(&[
        "project",
        "--weights",
        "w",
        "--x",
        "x",
        "--out",
        "y",
        "--format",
        "nvfp4",
    ]);
    assert!(line.contains("nvfp4") && line.contains("window12"), "{line}");
}

/// What `info` says against a variable's value.
fn refusal(variable: &str, value: &str) -> String {
    let run = hopper_proj(&["info"]).env(variable, value).assert().code(1);
    String::from_utf8(run.get_output().stderr.clone()).unwrap()
}

#[test]
fn an_unknown_driver_in_the_environment_is_named() {
    let stderr = refusal("HOPPER_PROJ_DEVICE", "tpu");
    assert!(
        stderr.contains("tpu") && stderr.contains("HOPPER_PROJ_DEVICE"),
        "{stderr}"
    );
}

#[test]
fn a_word_that_is_no_seed_in_the_environment_is_named() {
    let stderr = refusal("HOPPER_PROJ_SEED", "some");
    assert!(
        stderr.starts_with("error: HOPPER_PROJ_SEED is `some`") && stderr.trim_end().lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn a_variable_that_asks_for_explanations_in_other_words_is_an_error() {
    let stderr = refusal("HOPPER_PROJ_EXPLAIN", "yes");
    assert!(
        stderr.starts_with("error: HOPPER_PROJ_EXPLAIN is `yes`") && stderr.trim_end().lines().count() == 1,
        "{stderr}"
    );
}

#[test]
fn the_flag_wins_over_the_environment() {
    hopper_proj(&["info", "--device", "emulated"])
        .env("HOPPER_PROJ_DEVICE", "tpu")
        .assert()
        .success();
}

/// Two files of a few bytes that say that they are long, and whose product no machine holds.
#[test]
fn a_product_that_does_not_fit_in_memory_is_one_error_line() {
    const SIDE: usize = 12_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tall.safetensors");
    let header = format!(
        r#"{{"t":{{"dtype":"BF16","shape":[{SIDE},1],"data_offsets":[0,{}]}}}}"#,
        2 * SIDE
    );
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    std::fs::write(&path, &bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((bytes.len() + 2 * SIDE) as u64).unwrap();
    let (tall, out) = (path.to_str().unwrap(), folder.path().join("y"));
    let line = error_line(&[
        "project",
        "--weights",
        tall,
        "--x",
        tall,
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(
        line.contains("y of 12000000 × 12000000 elements does not fit in memory"),
        "{line}"
    );
}

#[test]
fn bad_files_are_one_error_line() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.safetensors");
    std::fs::write(&garbage, [0xff; 100]).unwrap();
    let garbage = garbage.to_str().unwrap();
    let w = write(folder.path(), "w.safetensors", &[Tensor::bf16("w", [4, 6], |_| 1.0)]);
    let x = write(folder.path(), "x.safetensors", &[Tensor::bf16("x", [2, 5], |_| 1.0)]);
    let two = write(
        folder.path(),
        "two.safetensors",
        &[Tensor::bf16("a", [4, 5], |_| 1.0), Tensor::bf16("b", [4, 5], |_| 1.0)],
    );
    let wide = write(folder.path(), "f32.safetensors", &[Tensor::f32("w", [4, 5], |_| 1.0)]);
    let out = folder.path().join("y.safetensors");
    let out = out.to_str().unwrap();
    let run = |weights: &str, x: &str, more: &[&str]| {
        error_line(&[&["project", "--weights", weights, "--x", x, "--out", out], more].concat())
    };
    assert!(run("/no/such/file", &x, &[]).contains("/no/such/file"));
    assert!(run(garbage, &x, &[]).contains("not a readable safetensors file"));
    let line = run(&two, &x, &[]);
    assert!(line.contains("a, b") && line.contains("FILE:TENSOR"), "{line}");
    let line = run(&format!("{two}:c"), &x, &[]);
    assert!(line.contains("no tensor `c`"), "{line}");
    let line = run(&w, &x, &[]);
    assert!(
        line.contains("x has 5 columns") && line.contains("4 × 6") && line.contains("--cols"),
        "{line}"
    );
    let line = run(&w, &x, &["--cols", "2..7"]);
    assert!(line.contains("columns 2..7"), "{line}");
    let line = run(&w, &x, &["--rows", "4..5"]);
    assert!(line.contains("rows 4..5"), "{line}");
    let line = run(&wide, &x, &[]);
    assert!(line.contains("router") && line.contains("--cast bf16"), "{line}");
    let line = run(&two, &wide, &[]);
    assert!(line.contains("name one"), "{line}");
    let line = run(&format!("{two}:a"), &wide, &[]);
    assert!(
        line.contains("x is F32; it must be BF16") && line.contains("PyTorch") && line.contains("ml_dtypes"),
        "{line}"
    );
    let flat = Tensor::vector("x", safetensors::Dtype::BF16, 5, vec![0; 10]);
    let flat = write(folder.path(), "flat.safetensors", &[flat]);
    for x in [&flat, &format!("{flat}:x")] {
        let line = run(&format!("{two}:a"), x, &[]);
        assert!(
            line.contains("flat.safetensors") && line.contains("reshape a single token to [1, K]"),
            "{line}"
        );
    }
    let line = run(&format!("{two}:a"), &format!("{flat}:y"), &[]);
    assert!(line.contains("no tensor `y`"), "{line}");
    assert!(!std::path::Path::new(out).exists());
}

/// What a file is that is none of safetensors, wherever one is read.
#[test]
fn files_of_another_kind_are_called_by_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let w = write(folder.path(), "w", &[Tensor::bf16("w", [4, 6], |_| 1.0)]);
    let x = write(folder.path(), "x", &[Tensor::bf16("x", [2, 6], |_| 1.0)]);
    let (bad, config, out) = (name("bad"), name("config.json"), name("out"));
    let gate = |more: &str| format!(r#"{{"score": "softmax", "top_k": 2{more}}}"#);
    let (plain, biased) = (gate(""), gate(&format!(r#", "bias": "{bad}:b""#)));
    let masked = gate(&format!(r#", "token_mask": "{bad}""#));
    let route = |w, x| vec!["route", "--weights", w, "--x", x, "--config", &config, "--out", &out];
    let project = |w, x| vec!["project", "--weights", w, "--x", x, "--out", &out];
    let commands = [
        (&plain, project(&bad, &x)),
        (&plain, project(&w, &bad)),
        (&plain, route(&bad, &x)),
        (&plain, route(&w, &bad)),
        (&biased, route(&w, &x)),
        (&masked, route(&w, &x)),
        (&plain, vec!["inspect", &bad]),
        (&plain, vec!["pack", &bad, &out]),
        (&plain, vec!["unpack", &bad, &out]),
    ];
    let pickle = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".as_slice();
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc".as_slice();
    let whole = std::fs::read(&w).unwrap();
    for (bytes, words, advice) in [
        (
            b"version https://git-lfs.github.com/spec/v1\n".as_slice(),
            "Git LFS pointer",
            "git lfs pull",
        ),
        (b"<!DOCTYPE html>\n<html>", "web page", "download the file itself"),
        (b"<html lang=\"en\">", "web page", "download the file itself"),
        (gzip, "compressed with gzip", "unpack it first"),
        (b"PK\x03\x04\x14\0\0\0\x08\0", "zip archive", "save_file"),
        (pickle, "pickle", "save_file"),
        (b"GGUF\x03\0\0\0\0\0\0\0", "GGUF", "safetensors files of the same model"),
        (
            br#"{"weight_map":{"w":"1.safetensors"}}"#,
            "index of a sharded checkpoint",
            "files that it lists",
        ),
        (
            b"Entry not found",
            "begins with `Entry not found`",
            "download has failed",
        ),
        (&[0xff; 40], "another kind of file, or damaged", "100000000 at most"),
        (&whole[..whole.len() - 1], "bytes of data", "complete file"),
        (&whole[..20], "bytes, of which 12 are there", "complete file"),
        (b"", "it is empty", "complete file"),
    ] {
        std::fs::write(&bad, bytes).unwrap();
        for (gate, args) in &commands {
            std::fs::write(&config, gate).unwrap();
            let line = error_line(args);
            assert!(
                line.contains(&bad) && line.contains(words) && line.contains(advice),
                "{args:?}: {line}"
            );
            assert_eq!(
                line.contains("complete file"),
                advice == "complete file",
                "{args:?}: {line}"
            );
            assert!(!std::path::Path::new(&out).exists(), "{args:?}");
        }
    }
    std::fs::remove_file(&bad).unwrap();
    std::fs::create_dir(&bad).unwrap();
    for (gate, args) in &commands {
        std::fs::write(&config, gate).unwrap();
        let line = error_line(args);
        assert!(
            line.contains(&format!("{bad} is a folder: name a safetensors file"))
                || line.contains(&format!("{bad} has no model.safetensors.index.json")),
            "{args:?}: {line}"
        );
    }
}
