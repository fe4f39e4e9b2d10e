//! `route` as a script sees it.

use crate::common::{Scratch, Tensor, error_line, hopper_proj, write};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

/// The logits of token t and expert e: none are equal, and all are exact in BF16.
fn logit(token: usize, expert: usize) -> f32 {
    ((expert * 5 + token * 3) % 12) as f32 / 4.0 - 1.0
}

const EXPERTS: usize = 12;
const TOKENS: usize = 3;

/// A router's weights in both types, tokens that each ask for one column of them, and configurations.
impl Scratch {
    fn weights(&self) -> (String, String) {
        let value = |i: usize| if i % 4 < TOKENS { logit(i % 4, i / 4) } else { 0.0 };
        let fp32 = write(self.path(), "w32", &[Tensor::f32("router", [EXPERTS, 4], value)]);
        let bf16 = [
            Tensor::bf16("other", [2, 2], |_| 1.0),
            Tensor::bf16("router", [EXPERTS, 4], value),
        ];
        (fp32, write(self.path(), "w16", &bf16) + ":router")
    }

    fn x(&self, tokens: usize) -> String {
        let one_hot = |i: usize| f32::from(u8::from(i % 4 == i / 4));
        write(self.path(), "x", &[Tensor::bf16("x", [tokens, 4], one_hot)])
    }

    fn config(&self, json: &str) -> String {
        self.text("gate.json", json)
    }
}

/// The tensors of a result: ids, weights and logits, each with its shape.
#[derive(Debug, PartialEq)]
struct Routed {
    ids: (Vec<usize>, Vec<i32>),
    weights: (Vec<usize>, Vec<f32>),
    logits: Option<(Vec<usize>, Vec<f32>)>,
}

fn read(path: &str) -> Routed {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str, dtype: Dtype| {
        let tensor = file.tensor(name).ok()?;
        assert_eq!(tensor.dtype(), dtype, "{name}");
        let words: Vec<[u8; 4]> = tensor.data().as_chunks().0.to_vec();
        Some((tensor.shape().to_vec(), words))
    };
    let floats =
        |(shape, words): (Vec<usize>, Vec<[u8; 4]>)| (shape, words.into_iter().map(f32::from_le_bytes).collect());
    let (shape, ids) = words("topk_ids", Dtype::I32).unwrap();
    Routed {
        ids: (shape, ids.into_iter().map(i32::from_le_bytes).collect()),
        weights: floats(words("topk_weights", Dtype::F32).unwrap()),
        logits: words("logits", Dtype::F32).map(floats),
    }
}

fn run(args: &[&str]) -> String {
    let output = hopper_proj(&[&["route"], args].concat())
        .assert()
        .success()
        .get_output()
        .clone();
    String::from_utf8(output.stdout).unwrap()
}

/// The two best of a token, with an offset per expert.
fn best_two(token: usize, bias: impl Fn(usize) -> f32) -> Vec<i32> {
    let mut experts: Vec<usize> = (0..EXPERTS).collect();
    let key = |e: usize| logit(token, e) + bias(e);
    experts.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
    experts[..2].iter().map(|&e| e as i32).collect()
}

#[test]
fn ids_weights_and_logits_are_written() {
    let scratch = Scratch::new();
    let ((fp32, bf16), x, out) = (scratch.weights(), scratch.x(TOKENS), scratch.name("out"));
    let config = scratch.config(r#"{"score": "identity", "top_k": 2, "logits": true, "scale": 2.0}"#);
    for (weights, more, kernel) in [
        (&fp32, &[][..], "route_bf16x2_sm90_"),
        (
            &fp32,
            &["--format", "f32", "--deterministic", "--seed", "5"],
            "route_bf16x2_sm90_",
        ),
        (&bf16, &[], "route_bf16_sm90_"),
        (&bf16, &["--format", "bf16", "--device", "emulated"], "route_bf16_sm90_"),
    ] {
        let args = ["--weights", weights, "--x", &x, "--config", &config, "--out", &out];
        let text = run(&[&args, more].concat());
        assert!(
            text.contains(kernel) && text.contains("emulated") && text.contains("logits [3, 12]"),
            "{text}"
        );
        let routed = read(&out);
        let ids: Vec<i32> = (0..TOKENS).flat_map(|t| best_two(t, |_| 0.0)).collect();
        let weights: Vec<f32> = ids
            .iter()
            .enumerate()
            .map(|(at, &id)| 2.0 * logit(at / 2, id as usize))
            .collect();
        assert_eq!(routed.ids, (vec![TOKENS, 2], ids));
        assert_eq!(routed.weights, (vec![TOKENS, 2], weights));
        let logits: Vec<f32> = (0..TOKENS)
            .flat_map(|t| (0..EXPERTS).map(move |e| logit(t, e)))
            .collect();
        assert_eq!(routed.logits, Some((vec![TOKENS, EXPERTS], logits)));
    }
}

#[test]
fn bias_and_mask_come_from_files_too() {
    let scratch = Scratch::new();
    let ((fp32, _), x, out) = (scratch.weights(), scratch.x(TOKENS), scratch.name("out"));
    let bias = |e: usize| ((e * 7) % 12) as f32 / 2.0;
    let words = |bytes: fn(f32) -> Vec<u8>| (0..EXPERTS).flat_map(|e| bytes(bias(e))).collect::<Vec<u8>>();
    let fp32_bytes = words(|v| v.to_le_bytes().to_vec());
    let bf16_bytes = words(|v| v.to_le_bytes()[2..].to_vec());
    // What is exact in BF16 and lies between 1 and 8 has few bits: FP16 by hand.
    let fp16_bytes = words(|v| {
        let bits = v.to_bits();
        let half = if v == 0.0 {
            0
        } else {
            ((bits >> 13) - (112 << 10)) as u16
        };
        half.to_le_bytes().to_vec()
    });
    let extras = write(
        scratch.path(),
        "extras",
        &[
            Tensor::vector("b32", Dtype::F32, EXPERTS, fp32_bytes),
            Tensor::vector("b16", Dtype::BF16, EXPERTS, bf16_bytes),
            Tensor::vector("half", Dtype::F16, EXPERTS, fp16_bytes),
            Tensor::vector("mask", Dtype::U8, TOKENS, vec![9, 0, 1]),
            Tensor::vector("flags", Dtype::BOOL, TOKENS, vec![1, 0, 1]),
        ],
    );
    let numbers: Vec<f32> = (0..EXPERTS).map(bias).collect();
    let args = ["--weights", &fp32, "--x", &x, "--out", &out];
    let mut results = Vec::new();
    for (bias, mask) in [
        (format!("{numbers:?}"), "mask"),
        (format!("\"{extras}:b32\""), "flags"),
        (format!("\"{extras}:b16\""), "mask"),
        (format!("\"{extras}:half\""), "mask"),
    ] {
        let config = scratch.config(&format!(
            r#"{{"score": "identity", "top_k": 2, "bias": {bias}, "bias_on": "logits", "token_mask": "{extras}:{mask}"}}"#
        ));
        run(&[&args[..], &["--config", &config]].concat());
        results.push(read(&out));
    }
    let ids = [best_two(0, bias), vec![-1, -1], best_two(2, bias)].concat();
    assert_eq!(results[0].ids.1, ids);
    assert_eq!(results[0].weights.1[2..4], [0.0; 2]);
    assert_eq!(results[0].logits, None);
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn no_tokens_give_empty_results() {
    let scratch = Scratch::new();
    let ((fp32, _), x, out) = (scratch.weights(), scratch.x(0), scratch.name("out"));
    let config = scratch.config(r#"{"score": "softmax", "top_k": 4, "logits": true}"#);
    let text = run(&["--weights", &fp32, "--x", &x, "--config", &config, "--out", &out]);
    assert!(text.contains("no launch"), "{text}");
    let routed = read(&out);
    assert_eq!(
        (routed.ids, routed.weights),
        ((vec![0, 4], vec![]), (vec![0, 4], vec![]))
    );
    assert_eq!(routed.logits, Some((vec![0, EXPERTS], vec![])));
}

#[test]
fn what_cannot_be_routed_is_one_error_line() {
    let scratch = Scratch::new();
    let ((fp32, bf16), x, out) = (scratch.weights(), scratch.x(TOKENS), scratch.name("out"));
    let garbage = scratch.name("garbage");
    std::fs::write(&garbage, [0xff; 90]).unwrap();
    let odd = write(
        scratch.path(),
        "odd",
        &[
            Tensor::vector("short", Dtype::F32, 2, vec![0; 8]),
            Tensor::vector("ints", Dtype::I32, EXPERTS, vec![0; 4 * EXPERTS]),
            Tensor::vector("nibbles", Dtype::F4, EXPERTS, vec![0; EXPERTS / 2]),
            Tensor::vector("tokens", Dtype::U8, 2, vec![1; 2]),
            Tensor::f32("matrix", [3, 4], |_| 1.0),
            Tensor {
                name: "half",
                dtype: Dtype::F16,
                shape: vec![EXPERTS, 4],
                bytes: vec![0; EXPERTS * 8],
            },
            Tensor::bf16("wide", [2, 5], |_| 1.0),
            Tensor::bf16("many", [1025, 4], |_| 1.0),
        ],
    );
    let plain = r#"{"score": "softmax", "top_k": 2}"#;
    let with = |more: &str| format!(r#"{{"score": "softmax", "top_k": 2, {more}}}"#);
    let (named, name) = (
        |tensor: &str| format!("{odd}:{tensor}"),
        |key: &str, tensor: &str| with(&format!(r#""{key}": "{odd}:{tensor}""#)),
    );
    let fp32_path = fp32.as_str();
    for (weights, tokens, config, format, words) in [
        (
            fp32_path,
            &x,
            plain.to_owned(),
            Some("nvfp4"),
            "nvfp4 is not in this version",
        ),
        (
            fp32_path,
            &x,
            plain.to_owned(),
            Some("bf16"),
            "weights are F32, and a router computes with what is asked for",
        ),
        (&bf16, &x, plain.to_owned(), Some("f32"), "weights are BF16"),
        (
            &named("half"),
            &x,
            plain.to_owned(),
            None,
            "router weights are F16; a router computes with F32 or BF16",
        ),
        (
            &named("many"),
            &x,
            plain.to_owned(),
            None,
            "number of experts is 1025; a router has 1 to 1024",
        ),
        (
            &named("short"),
            &x,
            plain.to_owned(),
            None,
            "a matrix of two dimensions",
        ),
        (&garbage, &x, plain.to_owned(), None, "not a readable safetensors file"),
        (
            fp32_path,
            &garbage,
            plain.to_owned(),
            None,
            "not a readable safetensors file",
        ),
        (fp32_path, &named("wide"), plain.to_owned(), None, "x has 5 columns"),
        (fp32_path, &named("matrix"), plain.to_owned(), None, "x is F32"),
        (
            fp32_path,
            &x,
            with(r#""topk": 3"#),
            None,
            "unknown field `topk`, expected one of `score`, `top_k`",
        ),
        (
            fp32_path,
            &x,
            r#"{"score": "softmax", "top_k": 13}"#.to_owned(),
            None,
            "top_k is 13; of 12 experts, 1 to 12",
        ),
        (
            fp32_path,
            &x,
            "[".to_owned(),
            None,
            "router configuration cannot be read",
        ),
        (
            fp32_path,
            &x,
            with(r#""bias": [1, 2]"#),
            None,
            "2 numbers; it needs one for each of the 12",
        ),
        (fp32_path, &x, name("bias", "short"), None, "2 numbers"),
        (
            fp32_path,
            &x,
            name("bias", "ints"),
            None,
            "`ints` is I32; it must be F32, or BF16 or F16",
        ),
        (
            fp32_path,
            &x,
            name("bias", "nibbles"),
            None,
            "`nibbles` is F4; it must be F32, or BF16 or F16",
        ),
        (
            fp32_path,
            &x,
            name("token_mask", "nibbles"),
            None,
            "`nibbles` is F4; it must be U8 or BOOL",
        ),
        (fp32_path, &x, name("bias", "matrix"), None, "a vector of one dimension"),
        (
            fp32_path,
            &x,
            name("bias", "none"),
            None,
            "no tensor `none`; its one-dimensional tensors are: ints, nibbles, short, tokens",
        ),
        (fp32_path, &x, with(r#""bias": "nowhere:b""#), None, "no file nowhere:b"),
        (
            fp32_path,
            &x,
            name("token_mask", "tokens"),
            None,
            "mask has 2 values, but x has 3 tokens",
        ),
        (
            fp32_path,
            &x,
            name("token_mask", "short"),
            None,
            "`short` is F32; it must be U8 or BOOL, not zero for a token",
        ),
        (
            fp32_path,
            &x,
            with(&format!(r#""bias": "{garbage}:b""#)),
            None,
            "not a readable safetensors file",
        ),
    ] {
        let config = scratch.config(&config);
        let mut args = vec![
            "route",
            "--weights",
            weights,
            "--x",
            tokens,
            "--config",
            &config,
            "--out",
            &out,
        ];
        if let Some(format) = format {
            args.extend(["--format", format]);
        }
        let line = error_line(&args);
        assert!(line.contains(words), "{line}\ndoes not say: {words}");
    }
    let line = error_line(&[
        "route",
        "--weights",
        &fp32,
        "--x",
        &x,
        "--config",
        "/no/such",
        "--out",
        &out,
    ]);
    assert!(line.contains("--config: cannot read /no/such"), "{line}");
    std::fs::write(scratch.path().join("binary.json"), [0xff, 0xfe]).unwrap();
    let line = error_line(&[
        "route",
        "--weights",
        &fp32,
        "--x",
        &x,
        "--config",
        &scratch.name("binary.json"),
        "--out",
        &out,
    ]);
    assert!(line.contains("binary.json"), "{line}");
    assert!(!Path::new(&out).exists());
}
