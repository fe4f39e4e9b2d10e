//! Plans, as `info` lists them and as the library shows them when a variable asks for it.

use crate::common::{Tensor, error_line, hopper_proj, write};
use serde_json::Value;

fn stdout(args: &[&str]) -> String {
    let all = [&["info", "--plan"], args].concat();
    String::from_utf8(hopper_proj(&all).assert().success().get_output().stdout.clone()).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[args, &["--json"]].concat())).unwrap()
}

/// The chosen instances of a list.
fn chosen(list: &Value) -> Vec<&Value> {
    let instances = list["instances"].as_array().unwrap().iter();
    instances.filter(|instance| instance["chosen"] == true).collect()
}

#[test]
fn a_list_has_every_kernel_with_a_cost_or_a_reason() {
    let text = stdout(&["4096,8192,128", "--format", "window12"]);
    let marked: Vec<&str> = text.lines().filter(|line| line.starts_with("* ")).collect();
    assert!(marked.len() == 1 && marked[0].contains("gemm_window12_"), "{text}");
    let list = json(&["4096,8192,128", "--format", "window12"]);
    let sizes = ["op", "format", "n", "k", "m"].map(|key| list[key].to_string());
    assert_eq!(sizes.join(" "), r#""project" "window12" 4096 8192 128"#);
    assert_eq!(
        (&list["device"], &list["multiprocessors"]),
        (&Value::from("emulated"), &Value::from(132))
    );
    let instances = list["instances"].as_array().unwrap();
    let info = hopper_proj(&["info", "--json"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let info: Value = serde_json::from_slice(&info).unwrap();
    for name in info["kernels"].as_array().unwrap() {
        let count = instances
            .iter()
            .filter(|instance| instance["instance"] == *name)
            .count();
        let is_reader = name.as_str().unwrap().starts_with("stream_");
        assert_eq!(count, if is_reader { 0 } else { 1 }, "{name}");
        // Those for another format or operation are only counted in the text.
        let is_listed = name.as_str().unwrap().contains("_window12_");
        assert_eq!(text.contains(name.as_str().unwrap()), is_listed, "{name}: {text}");
    }
    for instance in instances {
        let rejected = instance["by"] == "rejected";
        assert_eq!(
            (instance["us"].is_null(), instance["reason"].is_string()),
            (rejected, rejected),
            "{instance}"
        );
    }
}

/// The emulated device's GPCs, its driver's answers and the plan's waves are one.
#[test]
fn gpcs_decide_how_many_clusters_run_at_a_time() {
    let planned = |gpcs: &str| {
        let args = ["info", "--plan", "4096,8192,128", "--json"];
        let output = hopper_proj(&args).env("HOPPER_PROJ_GPCS", gpcs).assert().success();
        serde_json::from_slice::<Value>(&output.get_output().stdout).unwrap()
    };
    for (gpcs, multiprocessors, eights) in [
        ("", 132, 16),
        ("18,18,18,16,16,16,16,14", 132, 15),
        ("16,16,16,16,16,18,16", 114, 14),
    ] {
        let list = planned(gpcs);
        assert_eq!(list["multiprocessors"], multiprocessors, "{gpcs}");
        assert_eq!(list["clusters_by"], "as the driver says");
        let instances = list["instances"].as_array().unwrap();
        let shared = instances
            .iter()
            .filter(|one| one["cluster"] == 8 && one["waves"].is_u64());
        let of_one = shared.filter(|one| one["clusters_at_a_time"] == eights);
        let count = of_one.inspect(|one| {
            let number = |key: &str| one[key].as_u64().unwrap();
            assert_eq!(
                number("waves"),
                number("clusters").div_ceil(number("clusters_at_a_time"))
            );
        });
        assert!(count.count() > 0, "{list}");
        let [one] = chosen(&list)[..] else { panic!("{list}") };
        assert_eq!(one["waves"], 1, "{one}");
    }
    let text = stdout(&["4096,8192,128"]);
    assert!(
        text.contains("16 clusters of 8 at a time (as the driver says)"),
        "{text}"
    );
    let marked = text.lines().find(|line| line.starts_with("* ")).unwrap();
    assert!(marked.contains(" clusters, 1 wave"), "{marked}");
    let refused = hopper_proj(&["info"]).env("HOPPER_PROJ_GPCS", "16,19").assert().code(1);
    let line = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(
        line.contains("HOPPER_PROJ_GPCS is `16,19`; it takes 1 to 8 numbers"),
        "{line}"
    );
}

#[test]
fn what_is_asked_for_decides() {
    for (args, kernel, by) in [
        (&["2304,8192,16"][..], "gemv_bf16_", "proposed"),
        (&["2304,8192,64"], "gemm_bf16_units_", "model"),
        (&["2304,8192,64", "--row-major"], "gemm_bf16_sm90_", "model"),
        (
            &["2304,8192,64", "--row-major", "--unaligned"],
            "gemm_bf16_plain_",
            "model",
        ),
        (&["48,96,64", "--unaligned"], "gemv_bf16_", "model"),
        (&["256,8192,8", "--op", "route"], "route_bf16x2_sm90_w8", "model"),
        (
            &["256,8192,128", "--op", "route", "--format", "bf16"],
            "route_bf16_sm90_w4",
            "model",
        ),
        (
            &["256,8192,128", "--op", "route", "--row-major=false"],
            "route_bf16x2_sm90_w8",
            "model",
        ),
    ] {
        let list = json(args);
        let [one] = chosen(&list)[..] else { panic!("{list}") };
        assert!(
            one["instance"].as_str().unwrap().starts_with(kernel) && one["by"] == by,
            "{args:?}: {one}"
        );
    }
    assert!(!stdout(&["2304,8192,16"]).contains("no kernel serves it"));
    let refused = ["info", "--plan", "256,8192,8", "--op", "route", "--format", "window12"];
    let output = hopper_proj(&refused).assert().code(1).get_output().clone();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(!out.contains("* ") && out.contains("rejected"), "{out}");
    assert!(out.ends_with("\n  no kernel serves it\n"), "{out}");
    assert!(err.contains("no router reads"), "{err}");
    let line = error_line(&["info", "--plan", "4294967296,1,1"]);
    assert!(line.contains("4294967296"), "{line}");
}

#[test]
fn plans_are_shown_once_where_a_variable_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let w = write(folder.path(), "w", &[Tensor::bf16("w", [20, 72], |_| 1.0)]);
    let x = write(folder.path(), "x", &[Tensor::bf16("x", [3, 72], |_| 1.0)]);
    let run = |value: &str| {
        let args = [
            "project",
            "--weights",
            &w,
            "--x",
            &x,
            "--out",
            &name("y"),
            "--format",
            "bf16",
        ];
        let output = hopper_proj(&args).env("HOPPER_PROJ_EXPLAIN", value).assert().success();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&output.get_output().stdout), text(&output.get_output().stderr))
    };
    for off in ["", "0"] {
        assert_eq!(run(off).1, "");
    }
    let (out, shown) = run("1");
    // The command asks for the kernel's name besides, but one plan is shown once.
    assert_eq!(shown.matches("plan for ").count(), 1, "{shown}");
    assert!(
        shown.starts_with("plan for project 20 × 72 bf16 weights at m = 3 "),
        "{shown}"
    );
    let marked = shown.lines().find(|line| line.starts_with("* ")).unwrap();
    let kernel = marked.split_whitespace().nth(3).unwrap();
    assert!(out.contains(kernel), "{out}{shown}");
}
