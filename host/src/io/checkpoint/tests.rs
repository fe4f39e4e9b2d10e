use super::*;
use crate::formats::PackFormat;
use crate::io::convert::{self, PackOptions};
use crate::{Shape, bf16};
use proptest::prelude::*;
use std::ops::Range;

/// A file that lives as long as the value.
struct Scratch(tempfile::NamedTempFile);

impl Scratch {
    fn new(bytes: &[u8]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Scratch(file)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open(&self) -> Result<Checkpoint> {
        Checkpoint::open(self.path())
    }
}

/// A safetensors file from its header text and its data, whatever they say.
fn file(header: &str, data: &[u8]) -> Scratch {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    Scratch::new(&bytes)
}

fn tensor(name: &str, dtype: &str, shape: &str, from: usize, to: usize) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn the_only_matrix_needs_no_name() {
    let header = format!(
        "{{{},{}}}",
        tensor("bias", "F32", "[2]", 0, 8),
        tensor("w", "F32", "[2,3]", 8, 32)
    );
    let file = file(&header, &floats(&[9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let open = file.open().unwrap();
    assert_eq!(open.matrix_names(), ["w"]);
    let w = open.matrix(None).unwrap();
    assert_eq!((w.rows(), w.cols(), w.dtype()), (2, 3, Dtype::F32));
    let values: Vec<f32> = w
        .to_bf16(Some(Cast::Bf16))
        .unwrap()
        .iter()
        .map(|v| v.to_f32())
        .collect();
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let part = w.slice(Some(1..2), Some(1..3)).unwrap();
    let values: Vec<f32> = part
        .to_bf16(Some(Cast::Bf16))
        .unwrap()
        .iter()
        .map(|v| v.to_f32())
        .collect();
    assert_eq!(values, [5.0, 6.0]);
    let inner = part.slice(None, Some(1..2)).unwrap();
    assert_eq!(inner.to_bf16(Some(Cast::Bf16)).unwrap()[0].to_f32(), 6.0);
}

#[test]
fn several_matrices_need_a_name_and_the_error_lists_them() {
    let header = format!(
        "{{{},{}}}",
        tensor("b", "BF16", "[1,2]", 0, 4),
        tensor("a", "BF16", "[2,1]", 4, 8)
    );
    let file = file(&header, &[0; 8]);
    let open = file.open().unwrap();
    let err = open.matrix(None).unwrap_err().to_string();
    assert!(err.contains("name one as FILE:TENSOR") && err.contains("a, b"), "{err}");
    let err = open.matrix(Some("c")).unwrap_err().to_string();
    assert!(err.contains("no tensor `c`") && err.contains("a, b"), "{err}");
    assert_eq!(
        open.matrix(Some("a")).unwrap().shape().unwrap(),
        Shape::new(2, 1).unwrap()
    );
}

#[test]
fn casts_happen_on_request_only() {
    let header = format!(
        "{{{},{}}}",
        tensor("f32", "F32", "[1,1]", 0, 4),
        tensor("f16", "F16", "[1,1]", 4, 6)
    );
    let file = file(&header, &[0; 6]);
    let open = file.open().unwrap();
    assert!(matches!(
        open.matrix(Some("f32")).unwrap().to_bf16(None),
        Err(Error::Fp32Weights)
    ));
    assert!(matches!(
        open.matrix(Some("f16")).unwrap().to_bf16(None),
        Err(Error::NeedsCast { given: Dtype::F16 })
    ));
    assert!(open.matrix(Some("f16")).unwrap().to_bf16(Some(Cast::Bf16)).is_ok());
}

#[test]
fn other_types_and_other_ranks_are_named() {
    let header = format!(
        "{{{},{}}}",
        tensor("i", "I32", "[1,1]", 0, 4),
        tensor("v", "F32", "[1]", 4, 8)
    );
    let file = file(&header, &[0; 8]);
    let open = file.open().unwrap();
    let err = open.matrix(Some("i")).unwrap_err().to_string();
    assert!(err.contains("`i` is I32"), "{err}");
    let err = open.matrix(Some("v")).unwrap_err().to_string();
    assert!(err.contains("shape [1]"), "{err}");
}

/// Types that take no whole bytes are in good files too.
#[test]
fn a_type_that_is_not_read_is_told_from_a_broken_file() {
    let types = ["F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "I64", "C64"];
    let sizes = [4, 6, 6, 8, 64, 64];
    for (dtype, bits) in types.into_iter().zip(sizes) {
        let bytes = 4 * bits / 8;
        let (matrix, vector) = (
            tensor("w", dtype, "[2,2]", 0, bytes),
            tensor("b", dtype, "[4]", bytes, 2 * bytes),
        );
        let file = file(&format!("{{{matrix},{vector}}}"), &vec![0; 2 * bytes]);
        let open = file.open().unwrap();
        let err = open.matrix(None).unwrap_err();
        assert!(
            matches!(&err, Error::File(FileError::UnknownDtype { given, .. }) if given == dtype),
            "{err}"
        );
        let vector = open.vector(None).unwrap();
        for err in [vector.to_f32().unwrap_err(), vector.to_mask().unwrap_err()] {
            assert!(
                matches!(&err, Error::File(FileError::VectorDtype { given, .. }) if given == dtype),
                "{err}"
            );
        }
    }
}

#[test]
fn a_vector_gives_what_its_type_holds() {
    let header = [
        tensor("f32", "F32", "[2]", 0, 8),
        tensor("f16", "F16", "[2]", 8, 12),
        tensor("bf16", "BF16", "[2]", 12, 16),
        tensor("u8", "U8", "[3]", 16, 19),
        tensor("bool", "BOOL", "[1]", 19, 20),
    ];
    let halves = [0x00, 0x3c, 0x00, 0xc0];
    let truncated = [0x80, 0x3f, 0x00, 0xc0];
    let data = [&floats(&[1.0, -2.0])[..], &halves, &truncated, &[7, 0, 1], &[1]].concat();
    let file = file(&format!("{{{}}}", header.join(",")), &data);
    let open = file.open().unwrap();
    let vector = |name| open.vector(Some(name)).unwrap();
    for name in ["f32", "f16", "bf16"] {
        assert_eq!(vector(name).to_f32().unwrap(), [1.0, -2.0], "{name}");
        assert!(vector(name).to_mask().is_err(), "{name}");
    }
    assert_eq!(vector("u8").to_mask().unwrap(), [7, 0, 1]);
    assert_eq!(vector("bool").to_mask().unwrap(), [1]);
    assert!(vector("u8").to_f32().is_err());
}

#[test]
fn weights_are_found_packed_or_not() {
    let header = [tensor("a", "BF16", "[2,3]", 0, 12), tensor("b", "F32", "[1,1]", 12, 16)];
    let plain = file(&format!("{{{}}}", header.join(",")), &[1; 16]);
    let one = file(&format!("{{{}}}", header[0]), &[1; 12]);
    let folder = tempfile::tempdir().unwrap();
    let [packed, alone] = [&plain, &one].map(|file| {
        let path = folder.path().join("packed");
        let options = PackOptions {
            format: PackFormat::Window12,
            ..PackOptions::default()
        };
        convert::pack(file.path(), &path, &options, &mut |_| {}).unwrap();
        Checkpoint::open(path).unwrap()
    });
    let plain = plain.open().unwrap();
    let values = |weights: Weights<'_>| weights.to_bf16(Some(Cast::Bf16)).unwrap().into_owned();
    let expected = values(plain.weights(Some("a")).unwrap());
    for (file, name) in [(&packed, Some("a")), (&alone, Some("a")), (&alone, None)] {
        let weights = file.weights(name).unwrap();
        assert!(matches!(weights, Weights::Window12(_)), "{name:?}");
        assert_eq!(values(weights), expected);
    }
    assert_eq!(values(packed.weights(Some("b")).unwrap()).len(), 1);
    for (file, name) in [
        (&plain, None),
        (&plain, Some("c")),
        (&packed, None),
        (&packed, Some("c")),
    ] {
        let err = file.weights(name).unwrap_err();
        assert!(
            matches!(err, Error::File(FileError::NoTensor { .. })),
            "{name:?}: {err}"
        );
    }
    // Parts of packed weights are none to choose among.
    let err = packed.weights(None).unwrap_err().to_string();
    assert!(err.ends_with("its two-dimensional tensors are: a, b"), "{err}");
}

/// Which of the two would be read is nobody's guess.
#[test]
fn two_tensors_of_one_name_are_refused() {
    let twice = [tensor("w", "BF16", "[2]", 0, 4), tensor("w", "BF16", "[2]", 4, 8)];
    // One way to write a name is as good as another.
    let spelled = [twice[0].clone(), twice[1].replace('w', "\\u0077")];
    for header in [twice, spelled] {
        let file = file(&format!("{{{}}}", header.join(",")), &[0; 8]);
        let err = file.open().err().expect("it is refused").to_string();
        let path = file.path().display().to_string();
        assert!(err.contains("two tensors `w`") && err.contains(&path), "{err}");
    }
}

#[test]
fn slices_are_checked() {
    let file = file(&format!("{{{}}}", tensor("w", "BF16", "[2,3]", 0, 12)), &[0; 12]);
    let open = file.open().unwrap();
    let w = open.matrix(None).unwrap();
    let backwards = Range {
        start: usize::MAX,
        end: 1,
    };
    for range in [0..3, 2..2, 2..3, 0..usize::MAX, backwards] {
        let err = w.clone().slice(Some(range.clone()), None).unwrap_err();
        assert!(
            matches!(
                err,
                Error::Slice {
                    what: "rows",
                    len: 2,
                    ..
                }
            ),
            "{range:?}: {err}"
        );
    }
    assert!(w.clone().slice(None, Some(0..4)).is_err());
    assert_eq!(w.slice(Some(1..2), Some(0..3)).unwrap().rows(), 1);
}

#[test]
fn unaligned_data_is_read_all_the_same() {
    // A header of odd length puts the data at an odd address.
    let text = format!("{{{}}} ", tensor("w", "BF16", "[2,1]", 0, 4));
    let header = if text.len().is_multiple_of(2) {
        format!("{text} ")
    } else {
        text
    };
    let file = file(&header, &[0x80, 0x3f, 0x00, 0x40]);
    let open = file.open().unwrap();
    let matrix = open.matrix(None).unwrap();
    let values = matrix.to_bf16(None).unwrap();
    assert_eq!(*values, [bf16::from_f32(1.0), bf16::from_f32(2.0)]);
}

#[test]
fn an_empty_matrix_is_no_weights() {
    let file = file(&format!("{{{}}}", tensor("w", "BF16", "[0,3]", 0, 0)), &[]);
    let open = file.open().unwrap();
    let w = open.matrix(None).unwrap();
    assert!(w.to_bf16(None).unwrap().is_empty());
    assert!(matches!(w.shape(), Err(Error::Shape { n: 0, k: 3 })));
}

#[test]
fn a_result_replaces_the_file_it_came_from() {
    let values = [bf16::from_f32(1.5), bf16::from_f32(-2.0)];
    let file = Scratch::new(b"old");
    write_bf16(file.path(), "y", 1, 2, &values).unwrap();
    let open = file.open().unwrap();
    write_bf16(file.path(), "y", 2, 1, &values).unwrap();
    assert_eq!(open.matrix(Some("y")).unwrap().to_bf16(None).unwrap().as_ref(), values);
    assert_eq!(file.open().unwrap().matrix(None).unwrap().rows(), 2);
    assert!(write_bf16(file.path(), "y", 2, 2, &values).is_err());
    let nowhere = std::env::temp_dir().join("hopper-proj-no-such-folder/y.safetensors");
    assert!(matches!(
        write_bf16(&nowhere, "y", 2, 1, &values),
        Err(Error::File(FileError::Io { verb: "write", .. }))
    ));
}

#[test]
fn a_result_that_could_not_be_read_again_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("y");
    for name in ["__metadata__".to_owned(), "n".repeat(100_000_000)] {
        let err = write_bf16(&path, &name, 1, 1, &[bf16::ONE]).unwrap_err();
        assert!(matches!(err, Error::File(FileError::Unreadable { .. })), "{err:.200}");
        assert!(!path.exists());
    }
}

#[test]
fn hostile_files_are_errors() {
    let huge = u64::MAX.to_le_bytes();
    for bytes in [
        &b""[..],
        b"short",
        &huge,
        b"\x02\0\0\0\0\0\0\0{",
        b"\x02\0\0\0\0\0\0\0\xff\xff",
        b"\x02\0\0\0\0\0\0\0[]",
    ] {
        let file = Scratch::new(bytes);
        let err = file.open().err().unwrap_or_else(|| panic!("{bytes:?} was accepted"));
        assert!(matches!(err, Error::File(FileError::Format { .. })), "{bytes:?}: {err}");
    }
    for header in [
        // Data past the end, in the wrong order, of the wrong length, of a size that overflows.
        tensor("w", "BF16", "[2,3]", 0, 13),
        tensor("w", "BF16", "[2,3]", 12, 0),
        tensor("w", "BF16", "[2,2]", 0, 12),
        tensor("w", "BF16", "[18446744073709551615,18446744073709551615]", 0, 12),
        tensor("w", "BF17", "[2,3]", 0, 12),
        tensor("w", "BF16", "[-2,3]", 0, 12),
    ] {
        let file = file(&format!("{{{header}}}"), &[0; 12]);
        assert!(file.open().is_err(), "{header}");
    }
    assert!(matches!(
        Checkpoint::open("/no/such/file"),
        Err(Error::File(FileError::Io { verb: "open", .. }))
    ));
    assert!(Checkpoint::open(std::env::temp_dir()).is_err());
}

proptest! {
    #[test]
    fn damaged_files_never_panic(at in 0usize..120, byte in any::<u8>(), cut in 0usize..120) {
        let header = format!("{{{}}}", tensor("w", "F16", "[2,3]", 0, 12));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&[1; 12]);
        let len = bytes.len();
        bytes[at % len] = byte;
        bytes.truncate(len - cut % 8 * usize::from(cut > 60));
        let file = Scratch::new(&bytes);
        if let Ok(open) = file.open() && let Ok(w) = open.matrix(None) {
            let values = w.to_bf16(Some(Cast::Bf16)).unwrap();
            prop_assert_eq!(values.len(), w.rows() * w.cols());
        }
    }
}
