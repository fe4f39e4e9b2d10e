//! Outputs: none takes the place of an input, whatever it is called; and other files may be overwritten.

use crate::common::{Scratch, Tensor, error_line, hopper_proj, read, write};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A folder in which nothing may change.
impl Scratch {
    fn write(&self, name: &str, tensor: Tensor<'_>) -> String {
        write(self.path(), name, &[tensor])
    }

    /// Every file below, with its bytes.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut folders = vec![self.path().to_owned()];
        let mut files = BTreeMap::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    files.insert(path, bytes);
                }
            }
        }
        files
    }

    /// The run is refused, names both files and changes nothing.
    fn check_refused(&self, args: &[&str], output: &str, input: &str) {
        let before = self.files();
        let line = error_line(args);
        let words = format!("the output {output} is the same as the input {input}, ");
        assert!(
            line.contains(&words) && line.contains("choose another name"),
            "{args:?}: {line}"
        );
        assert!(self.files() == before, "{args:?}");
    }

    /// Other ways to call a file of this folder.
    fn spellings(&self, file: &str) -> [String; 4] {
        let [link, hard] = ["link", "hard"].map(|kind| self.name(&format!("{file}.{kind}")));
        symlink(self.name(file), &link).unwrap();
        std::fs::hard_link(self.name(file), &hard).unwrap();
        [self.name(file), self.name(&format!("./{file}")), link, hard]
    }
}

fn ones(name: &'static str, shape: [usize; 2]) -> Tensor<'static> {
    Tensor::bf16(name, shape, |_| 1.0)
}

#[test]
fn results_never_take_the_place_of_their_inputs() {
    let scratch = Scratch::new();
    let (w, x) = (
        scratch.write("w", ones("w", [16, 8])),
        scratch.write("x", ones("x", [2, 8])),
    );
    let (named, config) = (format!("{w}:w"), scratch.text("c.json", "{}"));
    for out in scratch.spellings("w") {
        scratch.check_refused(&["project", "--weights", &named, "--x", &x, "--out", &out], &out, &w);
    }
    scratch.check_refused(&["project", "--weights", &w, "--x", &x, "--out", &x], &x, &x);
    let bias = Tensor::vector("b", safetensors::Dtype::F32, 16, vec![0; 64]);
    let mask = Tensor::vector("m", safetensors::Dtype::U8, 2, vec![1; 2]);
    let (bias, mask) = (scratch.write("b", bias), scratch.write("m", mask));
    let text = format!(r#"{{"score": "softmax", "top_k": 2, "bias": "{bias}:b", "token_mask": "{mask}:m"}}"#);
    std::fs::write(&config, text).unwrap();
    for out in [&w, &x, &config, &bias, &mask] {
        let args = ["route", "--weights", &w, "--x", &x, "--config", &config, "--out", out];
        scratch.check_refused(&args, out, out);
    }
}

#[test]
fn checkpoints_are_not_converted_onto_themselves() {
    let scratch = Scratch::new();
    let input = scratch.write("a", ones("w", [48, 128]));
    let packed = scratch.name("packed");
    hopper_proj(&["pack", &input, &packed]).assert().success();
    for out in scratch.spellings("a") {
        scratch.check_refused(&["pack", &input, &out, "--cast", "bf16"], &out, &input);
    }
    for out in scratch.spellings("packed") {
        scratch.check_refused(&["unpack", &packed, &out], &out, &packed);
        scratch.check_refused(&["inspect", &packed, "--plot", &out], &out, &packed);
    }

    // A folder: the same one, and others that have its shards or its index by links.
    let folder = scratch.path().join("in");
    std::fs::create_dir(&folder).unwrap();
    let shard = write(&folder, "1.safetensors", &[ones("w", [48, 128])]);
    let index = folder.join("model.safetensors.index.json").to_str().unwrap().to_owned();
    std::fs::write(&index, r#"{"weight_map":{"w":"1.safetensors"}}"#).unwrap();
    let folder = folder.to_str().unwrap();
    let link = scratch.name("link");
    symlink(folder, &link).unwrap();
    for command in ["pack", "unpack"] {
        scratch.check_refused(&[command, folder, folder], folder, folder);
        scratch.check_refused(&[command, folder, &link], &link, folder);
        scratch.check_refused(&[command, &index, folder], folder, folder);
    }
    std::fs::remove_file(link).unwrap();
    for (name, original) in [("1.safetensors", &shard), ("model.safetensors.index.json", &index)] {
        let other = scratch.name(&format!("has-{name}"));
        std::fs::create_dir(&other).unwrap();
        let there = format!("{other}/{name}");
        symlink(original, &there).unwrap();
        scratch.check_refused(&["pack", folder, &other], &there, original);
        scratch.check_refused(&["inspect", folder, "--plot", &there], &there, original);
    }
}

#[test]
fn drawings_and_tables_do_not_take_the_place_of_what_they_are_made_of() {
    let scratch = Scratch::new();
    let rows = "what,layer,m,bytes,us\nproject_pdl_bf16,o,1,4000,7.25\n";
    let (ours, peers) = (scratch.text("ours", rows), scratch.text("peers", rows));
    scratch.check_refused(&["bench", "--from", &ours, "--plot", &ours], &ours, &ours);
    let plot = scratch.name("plot");
    let drawn = ["bench", "--from", &ours, "--peers", &peers, "--plot"];
    for out in scratch.spellings("peers") {
        scratch.check_refused(&[&drawn[..], &[&out]].concat(), &out, &peers);
    }
    let csv = ["bench", "--suite", "small", "--peers", &peers, "--plot", &plot, "--csv"];
    scratch.check_refused(&[&csv[..], &[&peers]].concat(), &peers, &peers);
    // The table that plans follow is read too.
    let table = scratch.text("table", "");
    for args in [["tune", "--out", &table], ["bench", "--csv", &table]] {
        let run = hopper_proj(&args).env("HOPPER_PROJ_PLAN", &table).assert().code(1);
        let line = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(line.contains(&format!("is the same as the input {table}, ")), "{line}");
        assert_eq!(std::fs::read_to_string(&table).unwrap(), "");
    }
}

/// As `cp` does; and a link stays one.
#[test]
fn files_that_are_no_inputs_are_overwritten() {
    let scratch = Scratch::new();
    let w = scratch.write("w", ones("w", [16, 8]));
    let (x, old) = (scratch.write("x", ones("x", [2, 8])), scratch.text("old", "old"));
    let link = scratch.name("link");
    symlink(&old, &link).unwrap();
    let run = |args: &[&str]| {
        hopper_proj(args).assert().success();
        assert!(Path::new(&link).is_symlink(), "{args:?}");
        assert_eq!(scratch.files().len(), 4, "{args:?}");
        std::fs::read(&old).unwrap()
    };
    run(&["project", "--weights", &w, "--x", &x, "--out", &link]);
    assert_eq!(read(&old), (vec![2, 16], vec![8.0; 32]));
    assert!(run(&["unpack", &w, &link]) == std::fs::read(&w).unwrap());
    assert!(run(&["inspect", &w, "--plot", &link]).starts_with(b"<svg"));
}
