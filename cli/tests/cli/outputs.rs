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

/// Files that every command can work on, by name, and the arguments that end in an output.
struct Writers {
    scratch: Scratch,
    all: Vec<Vec<String>>,
}

impl Writers {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (w, x) = (
            scratch.write("w", ones("w", [16, 8])),
            scratch.write("x", ones("x", [2, 8])),
        );
        let config = scratch.text("c.json", r#"{"score": "softmax", "top_k": 2}"#);
        let csv = scratch.text("csv", "what,layer,m,bytes,us\nproject_pdl_bf16,o,1,4000,7.25\n");
        let all: [&[&str]; 6] = [
            &["pack", &w],
            &["unpack", &w],
            &["project", "--weights", &w, "--x", &x, "--out"],
            &["route", "--weights", &w, "--x", &x, "--config", &config, "--out"],
            &["inspect", &w, "--plot"],
            &["bench", "--from", &csv, "--plot"],
        ];
        let all = all.map(|args| args.iter().map(|&arg| arg.to_owned()).collect());
        Writers {
            all: all.into(),
            scratch,
        }
    }

    /// The arguments of each, with this output.
    fn onto<'a>(&'a self, output: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
        let with = move |args: &'a Vec<String>| args.iter().map(String::as_str).chain([output]).collect();
        self.all.iter().map(with)
    }
}

#[test]
fn files_that_are_no_inputs_are_overwritten() {
    let writers = Writers::new();
    let out = writers.scratch.name("out");
    for args in writers.onto(&out) {
        std::fs::write(&out, "old").unwrap();
        hopper_proj(&args).assert().success();
        assert!(std::fs::read(&out).unwrap() != b"old", "{args:?}");
    }
    hopper_proj(&writers.onto(&out).nth(2).unwrap()).assert().success();
    assert_eq!(read(&out), (vec![2, 16], vec![8.0; 32]));
}

/// A model hub keeps files in one folder, and links to them in the folders of revisions.
#[test]
fn a_link_gives_way_and_the_file_behind_stays() {
    let writers = Writers::new();
    let [blob, link] = ["blob", "link"].map(|name| writers.scratch.name(name));
    for args in writers.onto(&link) {
        std::fs::write(&blob, "shared").unwrap();
        symlink("blob", &link).unwrap();
        hopper_proj(&args).assert().success();
        assert_eq!(std::fs::read(&blob).unwrap(), b"shared", "{args:?}");
        assert!(!Path::new(&link).is_symlink(), "{args:?}");
        assert!(std::fs::metadata(&link).unwrap().len() > 100, "{args:?}");
        std::fs::remove_file(&link).unwrap();
    }
    // What would have been written is refused ahead of the work for it.
    let before = writers.scratch.files();
    symlink("nothing", &link).unwrap();
    let tables = [vec!["tune", "--out", &link], vec!["bench", "--csv", &link]];
    for args in writers.onto(&link).chain(tables) {
        let line = error_line(&args);
        assert!(
            line.contains(&format!("{link} is a link to nothing, which is not there")),
            "{line}"
        );
    }
    std::fs::remove_file(&link).unwrap();
    symlink(".", &link).unwrap();
    for args in writers.onto(&link) {
        let line = error_line(&args);
        assert!(
            line.contains(&link) && (line.contains("directory") || line.contains("folder")),
            "{line}"
        );
    }
    std::fs::remove_file(&link).unwrap();
    assert!(writers.scratch.files() == before);
}

#[test]
fn links_inside_the_folder_of_a_sharded_checkpoint_give_way() {
    let scratch = Scratch::new();
    let names = ["1.safetensors", "model.safetensors.index.json"];
    let [input, out] = ["in", "out"].map(|name| scratch.path().join(name));
    for folder in [&input, &out] {
        std::fs::create_dir(folder).unwrap();
    }
    write(&input, names[0], &[ones("w", [48, 128])]);
    std::fs::write(input.join(names[1]), r#"{"weight_map":{"w":"1.safetensors"}}"#).unwrap();
    for name in names {
        let blob = scratch.text(&format!("blob-{name}"), "shared");
        symlink(blob, out.join(name)).unwrap();
    }
    hopper_proj(&["pack", input.to_str().unwrap(), out.to_str().unwrap()])
        .assert()
        .success();
    for name in names {
        assert!(!out.join(name).is_symlink(), "{name}");
        let blob = std::fs::read(scratch.name(&format!("blob-{name}"))).unwrap();
        assert_eq!(blob, b"shared");
    }
    // A device in the place of a file is refused ahead of all work.
    let device = out.join(names[1]);
    std::fs::remove_file(&device).unwrap();
    symlink("/dev/null", &device).unwrap();
    let before = scratch.files();
    let line = error_line(&["pack", input.to_str().unwrap(), out.to_str().unwrap()]);
    assert!(line.contains("no regular file"), "{line}");
    assert!(scratch.files() == before && device.is_symlink());
}

#[test]
fn a_named_pipe_is_written_to() {
    let writers = Writers::new();
    let pipe = writers.scratch.name("pipe");
    let name = std::ffi::CString::new(pipe.clone()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // Conversions need a file in which they can go back.
    for args in writers.onto(&pipe).skip(2) {
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        hopper_proj(&args).assert().success();
        assert!(reader.join().unwrap().len() > 50, "{args:?}");
        assert!(!Path::new(&pipe).is_file() && !Path::new(&pipe).is_symlink());
    }
}

/// Nothing takes the name of a device, a pipe or an open file.
#[test]
fn what_is_no_regular_file_is_written_to() {
    let writers = Writers::new();
    let kind = |path: &str| Path::new(path).symlink_metadata().unwrap().file_type();
    let there: Vec<_> = ["/dev/null", "/dev/stdout"].map(kind).into();
    let null = writers.scratch.name("null");
    symlink("/dev/null", &null).unwrap();
    let redirected = writers.scratch.name("redirected");
    for (i, args) in writers.onto("/dev/null").enumerate() {
        let converts = i < 2;
        for output in ["/dev/null", &null] {
            let args = [&args[..args.len() - 1], &[output]].concat();
            let run = hopper_proj(&args).assert();
            if converts {
                let line = String::from_utf8(run.code(1).get_output().stderr.clone()).unwrap();
                assert!(line.contains("is no regular file; it must be one"), "{line}");
            } else {
                run.success();
            }
        }
        // A pipe, and a file that the shell has opened.
        let args = [&args[..args.len() - 1], &["/dev/stdout"]].concat();
        let piped = hopper_proj(&args).assert().get_output().clone();
        let status = std::process::Command::new(assert_cmd::cargo::cargo_bin("hopper-proj"))
            .env("HOPPER_PROJ_DEVICE", "emulated")
            .args(&args)
            .stdout(std::fs::File::create(&redirected).unwrap())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        let file = std::fs::read(&redirected).unwrap();
        assert_eq!(
            (piped.status.success(), status.success()),
            (!converts, !converts),
            "{args:?}"
        );
        assert!(file == piped.stdout, "{args:?}");
        assert!(converts == file.is_empty(), "{args:?}");
    }
    assert_eq!(["/dev/null", "/dev/stdout"].map(kind).to_vec(), there);
    assert!(kind(&null).is_symlink());
}
