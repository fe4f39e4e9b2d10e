//! Sharded checkpoints.

use super::tests::{Scratch, bf16_bytes, packed, unpacked, values};
use super::*;
use crate::io::container::testing;

/// A checkpoint of two files, indexed as is usual.
fn sharded(scratch: &Scratch) -> String {
    let data = bf16_bytes(&values(32 * 64, false));
    let w: &[usize] = &[32, 64];
    scratch.write(
        "in/model-1.safetensors",
        &testing::file(None, &[("a", "BF16", w, &data), ("b", "I8", &[1], &[9])]),
    );
    scratch.write(
        "in/model-2.safetensors",
        &testing::file(
            Some(&[("format", "pt")]),
            &[("c", "BF16", w, &data), ("unlisted", "BF16", w, &data)],
        ),
    );
    let index = concat!(
        "{\n  \"metadata\": {\n    \"total_parameters\": 6145,\n    \"total_size\": 12289\n  },\n",
        "  \"weight_map\": {\n    \"a\": \"model-1.safetensors\",\n    \"b\": \"model-1.safetensors\",\n    \"c\": \"model-2.safetensors\"\n  },\n",
        "  \"note\": [1, 2]\n}\n"
    );
    scratch.write("in/model.safetensors.index.json", index.as_bytes());
    index.to_owned()
}

#[test]
fn a_sharded_checkpoint_is_restored() {
    let scratch = Scratch::new();
    let index = sharded(&scratch);
    packed(&scratch.path("in"), &scratch.path("packed"), PackOptions::default()).unwrap();
    let names = [
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
    ];
    assert_eq!(scratch.names("packed"), names);
    let text = std::fs::read_to_string(scratch.path("packed").join(names[2])).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["weight_map"]["c.window12.exceptions"], "model-2.safetensors");
    assert_eq!(json["weight_map"].as_object().unwrap().len(), 9);
    let data = |name: &str| {
        let bytes = std::fs::read(scratch.path("packed").join(name)).unwrap();
        Header::read(&bytes).unwrap().1.len() as u64
    };
    // As much as before, less what the files have lost.
    let lost = 3 * 4096 + 1 - (data(names[0]) + data(names[1]));
    assert_eq!(json["metadata"]["total_size"], 12289 - lost);
    assert_eq!(json["note"], serde_json::json!([1, 2]));
    // The index may be named instead of its folder.
    unpacked(&scratch.path("packed").join(names[2]), &scratch.path("back")).unwrap();
    for name in names {
        let (before, after) = (
            std::fs::read(scratch.path("in").join(name)),
            std::fs::read(scratch.path("back").join(name)),
        );
        assert!(before.unwrap() == after.unwrap(), "{name}");
    }
    assert_eq!(
        std::fs::read_to_string(scratch.path("back").join(names[2])).unwrap(),
        index
    );
    let inspected = inspect(&scratch.path("packed"), &mut |_| {}).unwrap();
    let names: Vec<&str> = inspected.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "unlisted"]);
}

#[test]
fn an_index_that_leads_astray_is_refused() {
    let scratch = Scratch::new();
    sharded(&scratch);
    let refused = |index: &str| {
        let path = scratch.write("in/model.safetensors.index.json", index.as_bytes());
        let err = packed(&path, &scratch.path("out"), PackOptions::default())
            .unwrap_err()
            .to_string();
        assert!(!scratch.path("out").exists(), "{err}");
        err
    };
    for (index, reason) in [
        (
            "version https://git-lfs.github.com/spec/v1\n",
            "it is a Git LFS pointer",
        ),
        ("<!DOCTYPE html>", "it is a web page"),
        ("[]", "expected an object"),
        ("{}", "no `weight_map`"),
        (r#"{"weight_map":{},"weight_map":{}}"#, "twice"),
        (r#"{"weight_map":{"a":1}}"#, "string"),
        (r#"{"weight_map":{"a":"x","a":"x"}}"#, "twice"),
        (r#"{"weight_map":{"a":"../model-1.safetensors"}}"#, "no plain file name"),
        (r#"{"weight_map":{"a":"/etc/passwd"}}"#, "no plain file name"),
        (r#"{"weight_map":{"a":""}}"#, "no plain file name"),
        (r#"{"weight_map":{"a":"missing.safetensors"}}"#, "missing.safetensors"),
        (r#"{"weight_map":{"z":"model-1.safetensors"}}"#, "`z` is not in"),
        (
            r#"{"weight_map":{"a":"model-1.safetensors","a.window12":"model-2.safetensors","c":"model-2.safetensors"}}"#,
            "a.window12",
        ),
    ] {
        let err = refused(index);
        assert!(err.contains(reason), "{err} / {reason}");
    }
}

#[test]
fn the_output_must_be_of_the_inputs_kind() {
    let scratch = Scratch::new();
    sharded(&scratch);
    let (folder, file) = (scratch.path("in"), scratch.path("in/model-1.safetensors"));
    let refused = |input: &Path, output: &Path| packed(input, output, PackOptions::default()).unwrap_err().to_string();
    assert!(refused(&folder, &file).contains("is no folder"));
    assert!(refused(&file, &folder).contains("is a folder"));
    assert!(refused(&folder, &scratch.path("in/../in")).contains("choose another name"));
    assert!(refused(&scratch.path(""), &scratch.path("out")).contains("no model.safetensors.index.json"));
    assert!(refused(&file, Path::new("/dev/null")).contains("no regular file"));
    assert!(refused(&scratch.path("missing"), &scratch.path("out")).contains("missing"));
    assert!(refused(&file, &scratch.path("no/such/folder")).contains("cannot create"));
    assert_eq!(scratch.names("in").len(), 3);
}

/// Every command reads all headers against the index before it does anything.
#[test]
fn an_index_and_its_files_must_fit_whatever_is_done_with_them() {
    let scratch = Scratch::new();
    let mut seen = 0;
    let mut refused = |words: &str| {
        // Two folders that are not there.
        let (input, out) = (scratch.path("in"), scratch.path("new/out"));
        let mut told = |_| seen += 1;
        let options = PackOptions::default();
        for err in [
            pack(&input, &out, &options, &mut told).unwrap_err(),
            unpack(&input, &out, &mut told).unwrap_err(),
            inspect(&input, &mut told).unwrap_err(),
            files(&input).unwrap_err(),
        ] {
            assert!(err.to_string().contains(words), "{err} / {words}");
        }
        assert_eq!(seen, 0, "nothing was begun");
        assert_eq!(scratch.names(""), ["in"]);
    };
    let index = sharded(&scratch);
    let write = |index: String| scratch.write("in/model.safetensors.index.json", index.as_bytes());
    write(index.replace("\"c\"", "\"z\""));
    refused("tensor `z` is not in `model-2.safetensors`: fetch the index and its files anew");
    write(index.replace("\"c\"", "\"z\"").replace("\"b\"", "\"y\""));
    refused("tensor `y` is not in `model-1.safetensors` (nor are 1 more): ");
    write(index.replace("\"b\": \"model-1", "\"b\": \"model-2"));
    refused("tensor `b` is not in `model-2.safetensors` but in `model-1.safetensors`: ");
    write(index.replace("\"c\": \"model-2", "\"c\": \"model-3"));
    refused("its file `model-3.safetensors` is not there: fetch what is missing");
    write(index.clone());
    scratch.write("in/model-2.safetensors", b"<html>");
    refused("model-2.safetensors is not a readable safetensors file: it is a web page");
}

/// What an index lacks, readers of it do not see; so it is kept.
#[test]
fn tensors_that_the_index_lacks_are_kept() {
    let scratch = Scratch::new();
    let index = sharded(&scratch);
    // The second file has a tensor of the first again.
    let data = bf16_bytes(&values(32 * 64, false));
    let again = testing::file(
        None,
        &[("c", "BF16", &[32, 64], &data), ("a", "BF16", &[32, 64], &data)],
    );
    scratch.write("in/model-2.safetensors", &again);
    packed(&scratch.path("in"), &scratch.path("packed"), PackOptions::default()).unwrap();
    unpacked(&scratch.path("packed"), &scratch.path("back")).unwrap();
    assert!(std::fs::read(scratch.path("back/model-2.safetensors")).unwrap() == again);
    let back = std::fs::read_to_string(scratch.path("back/model.safetensors.index.json")).unwrap();
    assert_eq!(back, index);
}

#[test]
fn what_a_later_header_tells_is_told_before_any_file_is_made() {
    let scratch = Scratch::new();
    sharded(&scratch);
    let data = bf16_bytes(&values(32 * 64, false));
    let clash = testing::file(
        None,
        &[("c", "BF16", &[32, 64], &data), ("c.window12", "U8", &[1], &[0])],
    );
    scratch.write("in/model-2.safetensors", &clash);
    let watch = &mut |_| panic!("it has begun");
    let err = pack(
        &scratch.path("in"),
        &scratch.path("out"),
        &PackOptions::default(),
        watch,
    )
    .unwrap_err();
    assert!(err.to_string().contains("would become `c.window12`"), "{err}");
    assert_eq!(scratch.names(""), ["in"]);
}
