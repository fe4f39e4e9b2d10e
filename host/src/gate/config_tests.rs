use super::*;

fn gate(json: &str, experts: usize) -> Result<Gate> {
    RouterConfig::from_json(json)?.gate(experts)
}

#[test]
fn a_short_configuration_has_the_defaults() {
    let config = RouterConfig::from_json(r#"{"score": "softmax", "top_k": 4}"#).unwrap();
    assert_eq!(config, RouterConfig::new(Score::Softmax, 4));
    let gate = config.gate(64).unwrap();
    assert_eq!(
        (gate.groups, gate.groups_kept, gate.scale, gate.bias),
        (1, 1, 1.0, None)
    );
}

#[test]
fn a_full_configuration_is_read_and_written() {
    let text = r#"{"score": "sqrt_softplus", "top_k": 2, "bias": [0.5, -1, 2, 3e-3], "bias_on": "logits", "groups": 2, "groups_kept": 1,
        "renormalize": true, "softmax_over_topk": false, "scale": 2.5, "token_mask": "f:t", "logits": true}"#;
    let config = RouterConfig::from_json(text).unwrap();
    assert_eq!(config.bias, Some(Bias::Numbers(vec![0.5, -1.0, 2.0, 3e-3])));
    assert_eq!(
        (config.bias_on, config.groups_kept, config.logits),
        (BiasOn::Logits, Some(1), true)
    );
    let again = RouterConfig::from_json(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(again, config);
    let built = RouterConfig::new(Score::SqrtSoftplus, 2).bias_on_logits(vec![0.5, -1.0, 2.0, 3e-3]);
    assert_eq!(
        built.groups(2, 1).renormalize().scale(2.5).gate(4).unwrap(),
        config.gate(4).unwrap()
    );
}

#[test]
fn the_scores_have_their_names() {
    for (name, score) in [
        ("softmax", Score::Softmax),
        ("sigmoid", Score::Sigmoid),
        ("sqrt_softplus", Score::SqrtSoftplus),
        ("identity", Score::Identity),
    ] {
        assert_eq!(
            gate(&format!(r#"{{"score": "{name}", "top_k": 1}}"#), 2).unwrap().score,
            score
        );
    }
}

#[test]
fn what_is_not_json_of_the_right_form_is_refused_in_words() {
    for (text, words) in [
        ("", "EOF"),
        ("[]", "it is a list"),
        (r#" ["softmax", 2]"#, "it is a list"),
        ("null", "router configuration"),
        (r#"{"score": {"softmax": null}, "top_k": 1}"#, "expected a string"),
        (r#"{"score": 3, "top_k": 1}"#, "expected a string"),
        (
            r#"{"score": "softmax", "top_k": 1, "bias_on": {"logits": null}}"#,
            "expected a string",
        ),
        ("{}", "missing field `score`"),
        (r#"{"score": "softmax"}"#, "missing field `top_k`"),
        (
            r#"{"score": "tanh", "top_k": 1}"#,
            "unknown variant `tanh`, expected one of `softmax`",
        ),
        (r#"{"score": "softmax", "top_k": -1}"#, "-1"),
        (r#"{"score": "softmax", "top_k": 1.5}"#, "1.5"),
        (
            r#"{"score": "softmax", "top_k": 1, "topk": 1}"#,
            "unknown field `topk`, expected one of `score`, `top_k`, `bias`",
        ),
        (r#"{"score": "softmax", "top_k": 1, "top_k": 1}"#, "duplicate field"),
        (
            r#"{"score": "softmax", "top_k": 1, "bias": 3}"#,
            "list of numbers, or \"FILE:TENSOR\"",
        ),
        (
            r#"{"score": "softmax", "top_k": 1, "bias_on": "scores"}"#,
            "`selection` or `logits`",
        ),
        (
            r#"{"score": "softmax", "top_k": 1, "scale": NaN}"#,
            "router configuration",
        ),
    ] {
        let err = RouterConfig::from_json(text).unwrap_err().to_string();
        assert!(err.contains(words), "{text}: {err}");
    }
}

#[test]
fn what_no_gate_can_do_is_refused_with_what_it_can() {
    let base = |top_k| RouterConfig::new(Score::Softmax, top_k);
    for (config, experts, words) in [
        (base(1), 0, "1 to 1024"),
        (base(1), 1025, "1 to 1024"),
        (base(0), 8, "of 8 experts, 1 to 8"),
        (base(9), 8, "of 8 experts, 1 to 8"),
        (base(33), 1024, "of 1024 experts, 1 to 32"),
        (base(1).groups(0, 0), 8, "between 1 and 32 and divide the 8"),
        (base(1).groups(3, 1), 8, "between 1 and 32 and divide the 8"),
        (base(1).groups(64, 1), 64, "between 1 and 32"),
        (base(1).groups(4, 0), 8, "1 to 4 can be kept"),
        (base(1).groups(4, 5), 8, "1 to 4 can be kept"),
        (base(3).groups(4, 1), 8, "hold 2 experts"),
        (base(2).softmax_over_topk(), 8, "renormalize gives the same"),
        (base(2).scale(f32::NAN), 8, "finite"),
        (base(2).scale(f32::INFINITY), 8, "finite"),
        (
            base(2).bias(vec![0.0; 7]),
            8,
            "7 numbers; it needs one for each of the 8",
        ),
        (base(2).bias(vec![0.0, f32::NAN]), 2, "NaN for expert 1"),
        (
            base(2).bias_on_logits(vec![f32::NEG_INFINITY, 0.0]),
            2,
            "-inf for expert 0",
        ),
    ] {
        let err = config.gate(experts).unwrap_err().to_string();
        assert!(err.contains(words), "{config:?}: {err}");
    }
    let overflow = r#"{"score": "softmax", "top_k": 1, "bias": [1e39, 0]}"#;
    assert!(gate(overflow, 2).unwrap_err().to_string().contains("inf for expert 0"));
    let place = r#"{"score": "softmax", "top_k": 1, "bias": "file:tensor"}"#;
    assert!(gate(place, 2).unwrap_err().to_string().contains("`file:tensor`"));
}

#[test]
fn the_widest_gates_are_allowed() {
    RouterConfig::new(Score::Identity, 32)
        .softmax_over_topk()
        .gate(1024)
        .unwrap();
    RouterConfig::new(Score::Sigmoid, 32).groups(32, 1).gate(1024).unwrap();
    RouterConfig::new(Score::Sigmoid, 1).gate(1).unwrap();
    for (experts, top_k) in [(144, 6), (384, 10), (384, 16)] {
        RouterConfig::new(Score::Sigmoid, top_k)
            .scale(2.5)
            .gate(experts)
            .unwrap();
    }
}
