//! `bench` and `tune` without a GPU: counts, and drawings of what is given. Every time in here is made up.

use crate::common::{error_line, hopper_proj};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const COLUMNS: &str = "what,layer,m,bytes,us,instance,floor_us,ratio";
/// What others took, as it is recorded.
const PEERS: &str =
    "what,layer,m,bytes,us\ncublas,wide,1,4000,7.25\nprototype_x,wide,1,4000,6.5\ncublas,other,1,4000,9.5\n";

fn stdout(args: &[&str]) -> String {
    String::from_utf8(hopper_proj(args).assert().success().get_output().stdout.clone()).unwrap()
}

/// Writes a file and gives its path as text.
fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn check_counts(rows: &Value, whats: &[&str]) {
    let rows = rows.as_array().unwrap();
    let found: BTreeSet<&str> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(found, whats.iter().copied().collect());
    for row in rows {
        for time in ["us", "floor_us", "ratio", "tb_per_s", "floor_tb_per_s", "replays"] {
            assert!(row[time].is_null(), "{row}");
        }
        let buffers = row["counts"]["buffers"].as_array().unwrap();
        assert!(buffers.len() >= 3, "{row}");
        for buffer in buffers {
            assert!(buffer["bytes"].as_u64() >= buffer["minimum_bytes"].as_u64(), "{row}");
            assert!(
                buffer["sectors"].as_u64() >= buffer["minimum_sectors"].as_u64(),
                "{row}"
            );
        }
        let counts = &row["counts"];
        for count in ["load_conflicts", "store_conflicts"] {
            assert!(counts[count].is_u64(), "{row}");
        }
        assert!(counts["instructions"].as_u64().unwrap() > 0, "{row}");
    }
}

#[test]
fn projections_and_routers_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    let text = stdout(&["bench", "--suite", "small", "--json", "--csv", csv.to_str().unwrap()]);
    let rows: Value = serde_json::from_str(&text).unwrap();
    let whats = [
        "project_pdl_bf16",
        "project_pdl_bf16rows",
        "project_pdl_window12",
        "logits_pdl_f32",
        "route_pdl_f32",
    ];
    check_counts(&rows, &whats);
    let csv = std::fs::read_to_string(csv).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    let rows = rows.as_array().unwrap();
    assert_eq!(lines.clone().count(), rows.len());
    for (line, row) in lines.zip(rows) {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields.len(), 8, "{line}");
        assert_eq!(
            (fields[0], fields[1]),
            (row["what"].as_str().unwrap(), row["layer"].as_str().unwrap())
        );
        assert_eq!((fields[4], fields[6], fields[7]), ("", "", ""), "no time is made up");
        assert_eq!(fields[5], row["instance"].as_str().unwrap());
    }
}

#[test]
fn each_mode_runs_and_says_what_it_leaves_out() {
    for (mode, whats) in [
        (
            "graph",
            &[
                "project_graph_bf16",
                "project_graph_bf16rows",
                "project_graph_window12",
                "logits_graph_f32",
                "route_graph_f32",
            ][..],
        ),
        ("chain", &["pair_chain_bf16", "pair_chain_window12"]),
    ] {
        let rows = stdout(&["bench", "--suite", "small", "--mode", mode, "--json"]);
        check_counts(&serde_json::from_str(&rows).unwrap(), whats);
    }
    let text = stdout(&["bench", "--suite", "small", "--mode", "chain"]);
    assert!(
        text.contains("times need a GPU") && text.contains("one call each"),
        "{text}"
    );
    assert!(text.contains("down+up") && text.contains("× least"), "{text}");
}

#[test]
fn recorded_times_are_drawn_beside_peers() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        "# gpu: A made-up GPU",
        "# driver: 1.2.3",
        "# cuda: 4.5",
        "# date: 2001-02-03",
        "# protocol: none, these are no measurements",
        COLUMNS,
        "project_pdl_bf16,wide,1,4000,3.75,k,2.5,1.5",
        "project_pdl_window12,wide,1,3000,2.875,k,2.25,1.3",
        "project_pdl_bf16,wide,16,4000,4.125,k,2.5,1.65",
        "route_pdl_f32,router<8>,1,4000,5.5,k,2.5,2.2",
    ];
    let ours = file(folder.path(), "ours.csv", &rows.join("\n"));
    let peers = file(folder.path(), "peers.csv", PEERS);
    let plot = folder.path().join("plot.svg");
    let plot = plot.to_str().unwrap();
    // No device is opened: one that is not there does not matter.
    hopper_proj(&["bench", "--from", &ours, "--peers", &peers, "--plot", plot])
        .env("HOPPER_PROJ_DEVICE", "cuda")
        .assert()
        .success();
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for words in [
        "hopper-proj on A made-up GPU, driver 1.2.3, CUDA 4.5, 2001-02-03",
        "peers on GPU not recorded",
        "none, these are no measurements",
        "our projection, BF16 (pdl)",
        "our projection, 12-bit (pdl)",
        "our router with gate, FP32 (pdl)",
        "cuBLAS",
        "floor: only reading",
        "µs per call",
        "tokens (m)",
        "router&lt;8&gt;",
    ] {
        assert!(svg.contains(words), "{words} is not in {svg}");
    }
    // Figures stand on the bars of what was measured, and on no others: not of prototypes, nor of layers that are not
    // ours.
    for (figure, count) in [
        ("3.8", 1),
        ("2.9", 1),
        ("4.1", 1),
        ("5.5", 1),
        ("7.2", 1),
        ("6.5", 0),
        ("9.5", 0),
    ] {
        let found = svg.lines().filter(|line| line.trim() == figure).count();
        assert_eq!(found, count, "{figure}");
    }
}

#[test]
fn what_cannot_be_drawn_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let plot = plot.to_str().unwrap();
    let draw = |from: &str| error_line(&["bench", "--from", from, "--plot", plot]);
    assert!(draw("/no/such/file").contains("/no/such/file"));
    let counted = file(
        folder.path(),
        "counted.csv",
        &format!("{COLUMNS}\nproject_pdl_bf16,o,1,4000,,k,,\n"),
    );
    let line = draw(&counted);
    assert!(line.contains("no times") && line.contains("counted.csv"), "{line}");
    let broken = file(
        folder.path(),
        "broken.csv",
        &format!("{COLUMNS}\nproject_pdl_bf16,o,1\n"),
    );
    assert!(draw(&broken).contains("line 2"));
    let drawn = |rows: &str| draw(&file(folder.path(), "rows.csv", &format!("{COLUMNS}\n{rows}")));
    // A scale from one to the other has no end.
    let line = drawn("a,o,1,1,1e-320,k,,\na,o,2,1,1e308,k,,\n");
    assert!(
        line.contains("line 2: `us` must be a number of microseconds from 0.001"),
        "{line}"
    );
    let line = drawn("a,o,1,1,5,k,,\nb,o,1,1,5,k,,\na,o,1,1,6,k,,\n");
    assert!(line.contains("`a` of `o` at m = 1 twice"), "{line}");
    let many = |row: fn(usize) -> String| drawn(&(0..100).map(row).collect::<String>());
    for (row, words) in [
        (
            (|i| format!("a,l{i},1,1,5,k,,\n")) as fn(usize) -> String,
            "more than 64 layers",
        ),
        (|i| format!("a{i},o,1,1,5,k,,\n"), "more than 64 kinds of rows"),
        (|i| format!("a,o,{i},1,5,k,,\n"), "more than 64 numbers of tokens"),
    ] {
        let line = many(row);
        assert!(line.contains(words), "{line}");
    }
    let line = error_line(&["bench", "--suite", "small", "--plot", plot]);
    assert!(
        line.contains("need a GPU") && line.contains(": leave out --plot and --record") && line.contains("--from"),
        "{line}"
    );
    let records = folder.path().join("record");
    let line = error_line(&["bench", "--suite", "small", "--record", records.to_str().unwrap()]);
    assert!(line.contains("need a GPU"), "{line}");
    assert!(!records.exists() && !Path::new(plot).exists());
}

#[test]
fn names_are_drawn_whatever_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let rows = format!("# gpu: \u{1}&<\n{COLUMNS}\nx\u{1b}[31m\"'&,<o>\u{fffe},1,1,5,k,3,1.7\n");
    let (ours, plot) = (file(folder.path(), "ours.csv", &rows), folder.path().join("plot.svg"));
    stdout(&["bench", "--from", &ours, "--plot", plot.to_str().unwrap()]);
    let svg = std::fs::read_to_string(plot).unwrap();
    for shown in ["on \u{fffd}&amp;&lt;", "x\u{fffd}[31m", "&lt;o&gt;\u{fffd}"] {
        assert!(svg.contains(shown), "{shown} is not in {svg}");
    }
    let unfit = |c: char| (c.is_control() && c != '\n') || c == '\u{fffe}';
    assert!(!svg.contains(unfit), "{svg}");
}

/// A long measurement must not end with nowhere to put it.
#[test]
fn where_nothing_can_be_written_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("no/such/file");
    let nowhere = nowhere.to_str().unwrap();
    for args in [
        ["bench", "--suite", "muse", "--csv", nowhere],
        ["tune", "--suite", "muse", "--out", nowhere],
        ["bench", "--suite", "muse", "--csv", folder.path().to_str().unwrap()],
    ] {
        let output = hopper_proj(&args).assert().code(1).get_output().clone();
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(
            line.starts_with("error: cannot write ") && output.stdout.is_empty(),
            "{line}"
        );
    }
}

#[test]
fn tuning_needs_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("table.csv");
    let out = out.to_str().unwrap();
    for more in [
        &[][..],
        &["--suite", "small"],
        &["--shape", "64,64,1", "--shape", "64,64,8"],
    ] {
        let line = error_line(&[&["tune", "--out", out], more].concat());
        assert!(line.contains("times need a GPU"), "{line}");
    }
    let line = error_line(&["tune", "--out", out, "--shape", "99999999999,1,1"]);
    assert!(line.contains("each side must lie between"), "{line}");
    assert!(!Path::new(out).exists());
}

/// A table that the variable names is what the plan follows; one that cannot be read is an error that names the line.
#[test]
fn a_table_of_ones_own_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let columns = "gpu,date,source,op,format,n,k,m,instance,cluster,slices,us";
    let row = |instance: &str| format!("{columns}\nA GPU,2001-02-03,made up,project,bf16,16,64,8,{instance},,,1.0\n");
    let kernel = "gemv_bf16_sm90_w16c2s2g1n1r2x8";
    let run = |table: &str| {
        let mut command = hopper_proj(&["bench", "--suite", "small", "--json"]);
        command.env("HOPPER_PROJ_PLAN", table);
        command.assert().get_output().clone()
    };
    let output = run(&file(folder.path(), "good.csv", &row(kernel)));
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let chosen = |m: u64| {
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["what"] == "project_pdl_bf16" && row["layer"] == "one_unit" && row["m"] == m);
        row.unwrap()["instance"].as_str().unwrap()
    };
    assert_eq!((chosen(1), chosen(8)), (kernel, kernel));
    assert_ne!(chosen(9), kernel);
    for (table, words) in [
        (
            file(folder.path(), "bad.csv", &row("gemv_bf16_sm90_w99")),
            "bad.csv, line 2: `gemv_bf16_sm90_w99`",
        ),
        ("/no/such/table".to_owned(), "cannot read /no/such/table"),
    ] {
        let output = run(&table);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            line.starts_with("error: HOPPER_PROJ_PLAN names") && line.contains(words),
            "{line}"
        );
    }
}
