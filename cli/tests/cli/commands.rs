//! Whole runs on the emulated device.

use crate::common::{Tensor, error_line, hopper_proj, read, write};
use serde_json::Value;

fn stdout(args: &[&str]) -> String {
    String::from_utf8(hopper_proj(args).assert().success().get_output().stdout.clone()).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

#[test]
fn info_names_the_device_and_the_kernels() {
    let info = json(&["info", "--json"]);
    assert_eq!(info["device"], "emulated");
    assert_eq!(info["capability"], "9.0");
    assert!(
        info["kernels"]
            .as_array()
            .unwrap()
            .iter()
            .any(|name| name.as_str().unwrap().starts_with("gemv_bf16_sm90_"))
    );
    let text = stdout(&["info"]);
    assert!(text.contains("(emulated)"));
}

/// Small whole numbers, so that the FP32 sums are exact and the expected values are exact in BF16.
fn weight(i: usize) -> f32 {
    (i % 5) as f32 - 2.0
}

fn x_value(i: usize) -> f32 {
    (i % 3) as f32 - 1.0
}

fn expected(rows: std::ops::Range<usize>, cols: std::ops::Range<usize>, width: usize, m: usize) -> Vec<f32> {
    let k = cols.len();
    let y = |t: usize, r: usize| {
        cols.clone()
            .enumerate()
            .map(|(j, c)| x_value(t * k + j) * weight(r * width + c))
            .sum()
    };
    (0..m)
        .flat_map(|t| rows.clone().map(move |r| (t, r)))
        .map(|(t, r)| y(t, r))
        .collect()
}

#[test]
fn project_computes_whole_matrices_and_slices() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("y.safetensors");
    let out = out.to_str().unwrap();
    let f32s = write(
        folder.path(),
        "w32.safetensors",
        &[Tensor::f32("layer", [20, 72], weight)],
    );
    let bf16s = write(
        folder.path(),
        "w16.safetensors",
        &[
            Tensor::bf16("a", [1, 1], weight),
            Tensor::bf16("layer", [20, 72], weight),
        ],
    );
    let x = write(folder.path(), "x.safetensors", &[Tensor::bf16("x", [3, 72], x_value)]);
    let narrow = write(
        folder.path(),
        "narrow.safetensors",
        &[Tensor::bf16("x", [3, 33], x_value)],
    );
    let named = format!("{bf16s}:layer");

    let text = stdout(&["project", "--weights", &named, "--x", &x, "--out", out]);
    assert!(text.contains("emulated") && text.contains("gemv_bf16_sm90_"), "{text}");
    assert_eq!(read(out), (vec![3, 20], expected(0..20, 0..72, 72, 3)));

    stdout(&[
        "project",
        "--weights",
        &f32s,
        "--x",
        &x,
        "--out",
        out,
        "--cast",
        "bf16",
        "--rows",
        "3..20",
    ]);
    assert_eq!(read(out), (vec![3, 17], expected(3..20, 0..72, 72, 3)));

    stdout(&[
        "project",
        "--weights",
        &named,
        "--x",
        &narrow,
        "--out",
        out,
        "--cols",
        "7..40",
        "--format",
        "bf16",
        "--seed",
        "3",
    ]);
    assert_eq!(read(out), (vec![3, 20], expected(0..20, 7..40, 72, 3)));
}

/// Beyond 32 tokens, BF16 weights are kept row-major too, be it asked for or found to be best.
#[test]
fn weights_that_stay_bf16_run_the_same_kernel_however_that_came_about() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("y").to_str().unwrap().to_owned();
    let wild = |i: usize| 2f32.powi((i * 37 % 200) as i32 - 100);
    let w = write(folder.path(), "w", &[Tensor::bf16("w", [48, 128], wild)]);
    let x = write(folder.path(), "x", &[Tensor::bf16("x", [33, 128], x_value)]);
    let run = |format: &str| {
        let text = stdout(&["project", "--weights", &w, "--x", &x, "--out", &out, "--format", format]);
        (text, std::fs::read(&out).unwrap())
    };
    let (auto, bf16) = (run("auto"), run("bf16"));
    assert!(bf16.0.contains("by gemm_bf16_sm90_"), "{}", bf16.0);
    assert!(auto == bf16, "{} / {}", auto.0, bf16.0);
}

#[test]
fn packed_weights_project_whole_and_in_slices_of_any_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (packed, out) = (name("packed"), name("y"));
    let w = write(
        folder.path(),
        "w",
        &[
            Tensor::bf16("a", [1, 1], weight),
            Tensor::bf16("layer", [40, 72], weight),
        ],
    );
    let x = write(folder.path(), "x", &[Tensor::bf16("x", [3, 72], x_value)]);
    let alone = name("alone");
    stdout(&["pack", &w, &packed, "--format", "window12", "--only", "^layer$"]);
    let one = write(folder.path(), "one", &[Tensor::bf16("layer", [40, 72], weight)]);
    stdout(&["pack", &one, &alone, "--format", "window12"]);
    let named = format!("{packed}:layer");
    for (weights, rows, format, kernel) in [
        (&named, None, "auto", "gemv_window12_sm90_"),
        (&alone, None, "window12", "gemv_window12_sm90_"),
        (&named, Some(16..40), "auto", "gemv_window12_sm90_"),
        (&named, Some(3..21), "window12", "gemv_window12_sm90_"),
        (&named, Some(3..21), "bf16", "gemv_bf16_sm90_"),
        (&format!("{w}:layer"), Some(3..21), "window12", "gemv_window12_sm90_"),
    ] {
        let range = rows.clone().unwrap_or(0..40);
        let bounds = format!("{}..{}", range.start, range.end);
        let mut args = vec![
            "project",
            "--weights",
            weights,
            "--x",
            &x,
            "--out",
            &out,
            "--format",
            format,
        ];
        if rows.is_some() {
            args.extend(["--rows", &bounds]);
        }
        let text = stdout(&args);
        assert!(text.contains(kernel), "{args:?}: {text}");
        assert_eq!(
            read(&out),
            (vec![3, range.len()], expected(range, 0..72, 72, 3)),
            "{args:?}"
        );
    }
    let line = error_line(&[
        "project",
        "--weights",
        &named,
        "--x",
        &x,
        "--out",
        &out,
        "--rows",
        "3..41",
    ]);
    assert!(line.contains("3..41"), "{line}");
}

#[test]
fn no_tokens_give_an_empty_result() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("y.safetensors");
    let out = out.to_str().unwrap();
    let w = write(folder.path(), "w.safetensors", &[Tensor::bf16("w", [5, 4], weight)]);
    let x = write(folder.path(), "x.safetensors", &[Tensor::bf16("x", [0, 4], x_value)]);
    stdout(&["project", "--weights", &w, "--x", &x, "--out", out]);
    assert_eq!(read(out), (vec![0, 5], vec![]));
}

#[test]
fn verify_reports_every_case_and_passes() {
    let rows = json(&["verify", "--suite", "small", "--json"]);
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 10);
    for row in rows {
        let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        for key in [
            "op",
            "layer",
            "m",
            "n",
            "k",
            "format",
            "device",
            "instance",
            "rel_error",
            "pass",
        ] {
            assert!(keys.contains(&key), "{row}");
        }
        assert_eq!(
            (&row["pass"], &row["device"]),
            (&Value::Bool(true), &Value::from("emulated")),
            "{row}"
        );
        let (op, kernel, format) = (&row["op"], row["instance"].as_str().unwrap(), &row["format"]);
        let tolerance = match op.as_str().unwrap() {
            "route" => {
                assert!(kernel.starts_with("route_bf16x2_") && format == "f32", "{row}");
                5e-6
            }
            _ => {
                // Beyond 32 tokens, x that tensor copies cannot fetch walks through the kernels for few.
                let starts: &[&str] = match (row["m"].as_u64().unwrap() > 32, format.as_str().unwrap()) {
                    (false, "bf16rows") => &["gemm_bf16_sm90_"],
                    (false, "bf16" | "window12") => &["gemv_", "gemm_bf16_units_", "gemm_window12_"],
                    (true, "bf16") => &["gemm_bf16_units_", "gemv_bf16_"],
                    (true, "bf16rows") => &["gemm_bf16_sm90_", "gemm_bf16_plain_"],
                    (true, "window12") => &["gemm_window12_", "gemv_window12_"],
                    _ => panic!("{row}"),
                };
                assert!(starts.iter().any(|start| kernel.starts_with(start)), "{row}");
                4e-3
            }
        };
        assert!(row["rel_error"].as_f64().unwrap() <= tolerance, "{row}");
    }
    for kept in ["bf16", "bf16rows", "window12"] {
        let is_so_for_many = |row: &&Value| row["format"] == kept && row["m"].as_u64().unwrap() > 32;
        assert!(rows.iter().any(|row| is_so_for_many(&row)), "{kept}");
    }
    let routed = rows.iter().filter(|row| row["op"] == "route");
    let sizes: Vec<u64> = routed.map(|row| row["m"].as_u64().unwrap()).collect();
    assert!(
        sizes.iter().any(|&m| m <= 32) && sizes.iter().any(|&m| m > 32),
        "{sizes:?}"
    );
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("hopper-proj"))
        .args(["info", "--device", "emulated"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
