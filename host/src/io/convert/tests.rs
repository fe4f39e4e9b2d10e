use super::*;
use crate::formats::window12::{self, PackedTensors};
use crate::formats::{Loss, PackFormat};
use crate::io::FileError;
use crate::io::checkpoint::Cast;
use crate::io::container::testing;
use crate::{Error, bf16};
use proptest::prelude::*;
use std::path::PathBuf;

/// Values like those of a trained layer, or of any exponent where `wild`.
pub(super) fn values(len: usize, wild: bool) -> Vec<f32> {
    let mut state = len as u64 + 1;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..len)
        .map(|_| match wild {
            true => f32::from_bits(random() & !0x7f80_0000 | (random() % 254) << 23),
            false => ((0..8).map(|_| random() as f32 / 2f32.powi(32)).sum::<f32>() - 4.0) * 0.02,
        })
        .collect()
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub(super) fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect()
}

/// A folder and what is in it.
pub(super) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(super) fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(super) fn packed(input: &Path, output: &Path, options: PackOptions<'_>) -> Result<Report<PackedTensor>> {
    pack(input, output, &options, &mut |_| {})
}

pub(super) fn unpacked(input: &Path, output: &Path) -> Result<Report<UnpackedTensor>> {
    unpack(input, output, &mut |_| {})
}

fn always(format: PackFormat) -> PackOptions<'static> {
    PackOptions {
        format,
        ..PackOptions::default()
    }
}

/// A file of everything that a checkpoint may hold: the data in another order than the header, and metadata amidst.
fn motley() -> Vec<u8> {
    let tame = bf16_bytes(&values(64 * 128, false));
    let wild = bf16_bytes(&values(40 * 100, true));
    let single = f32_bytes(&values(32 * 64, false));
    let file = testing::file(
        Some(&[("format", "pt"), ("a \"key\"", "ünïcode\n")]),
        &[
            ("layer.weight", "BF16", &[64, 128], &tame),
            ("layer.bias", "BF16", &[64], &tame[..128]),
            ("odd", "I8", &[3], &[1, 2, 3]),
            ("wild", "BF16", &[40, 100], &wild),
            ("conv", "BF16", &[2, 2, 2], &tame[..16]),
            ("empty", "BF16", &[0, 7], &[]),
            ("single", "F32", &[32, 64], &single),
            ("tiny", "BF16", &[1, 1], &tame[..2]),
            ("scalar", "F64", &[], &[7; 8]),
        ],
    );
    let (mut header, data) = Header::read(&file).unwrap();
    let (_, pairs) = header.metadata.unwrap();
    header.metadata = Some((3, pairs));
    header.tensors.rotate_left(4);
    header.tensors.swap(1, 5);
    [header.to_bytes(), data.to_vec()].concat()
}

#[test]
fn unpacking_restores_the_file() {
    let scratch = Scratch::new();
    let original = motley();
    let input = scratch.write("in.safetensors", &original);
    for (format, packs) in [
        (PackFormat::Auto, &["layer.weight"][..]),
        (PackFormat::Window12, &["layer.weight", "wild", "tiny"]),
        (PackFormat::Bf16, &[]),
    ] {
        let (there, back) = (scratch.path("packed"), scratch.path("back"));
        let report = packed(&input, &there, always(format)).unwrap();
        let is_packed = |t: &&PackedTensor| matches!(t.outcome, Outcome::Packed(_));
        let names: Vec<&str> = report
            .tensors
            .iter()
            .filter(is_packed)
            .map(|t| t.name.as_str())
            .collect();
        assert_eq!(names, packs, "in the order of the data");
        assert_eq!(report.tensors.len(), 9);
        assert_eq!(report.output_bytes, std::fs::metadata(&there).unwrap().len());
        assert_eq!(report.input_bytes, original.len() as u64);
        let report = unpacked(&there, &back).unwrap();
        assert_eq!(report.tensors.iter().filter(|t| t.was_packed).count(), packs.len());
        assert_eq!(report.tensors.len(), 9);
        assert!(std::fs::read(&back).unwrap() == original, "{format:?}");
    }
    assert_eq!(scratch.names(""), ["back", "in.safetensors", "packed"]);
}

#[test]
fn a_file_without_metadata_is_restored_without() {
    let scratch = Scratch::new();
    let data = bf16_bytes(&values(32 * 64, false));
    for metadata in [None, Some(&[][..])] {
        let original = testing::file(metadata, &[("w", "BF16", &[32, 64], &data)]);
        let input = scratch.write("in", &original);
        packed(&input, &scratch.path("packed"), always(PackFormat::Window12)).unwrap();
        unpacked(&scratch.path("packed"), &scratch.path("back")).unwrap();
        assert!(std::fs::read(scratch.path("back")).unwrap() == original);
    }
}

#[test]
fn a_packed_file_is_what_the_library_packs() {
    let scratch = Scratch::new();
    let input = scratch.write("in", &motley());
    packed(&input, &scratch.path("packed"), always(PackFormat::Window12)).unwrap();
    let bytes = std::fs::read(scratch.path("packed")).unwrap();
    let tensors = PackedTensors::read(&bytes).unwrap();
    let original = crate::io::checkpoint::Checkpoint::open(&input).unwrap();
    for name in ["layer.weight", "wild", "tiny"] {
        let matrix = original.matrix(Some(name)).unwrap();
        let expected = window12::pack(&matrix.to_bf16(None).unwrap(), matrix.shape().unwrap()).unwrap();
        assert_eq!(tensors.get(name).unwrap(), expected, "{name}");
    }
    // Other readers see four ordinary tensors.
    let plain = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(plain.tensor("layer.weight.window12").unwrap().shape(), [4, 2, 1536]);
    assert_eq!(plain.tensor("layer.weight.window12.starts").unwrap().shape(), [5]);
    assert_eq!(plain.len(), 9 + 3 * 3);
}

#[test]
fn what_is_not_packed_has_a_reason() {
    let scratch = Scratch::new();
    let input = scratch.write("in", &motley());
    let outcome = |options: PackOptions<'_>, name: &str| {
        let report = packed(&input, &scratch.path("packed"), options).unwrap();
        report.tensors.into_iter().find(|t| t.name == name).unwrap()
    };
    assert_eq!(outcome(PackOptions::default(), "layer.bias").outcome, Outcome::NoMatrix);
    assert_eq!(outcome(PackOptions::default(), "conv").outcome, Outcome::NoMatrix);
    assert_eq!(outcome(PackOptions::default(), "empty").outcome, Outcome::NoMatrix);
    assert_eq!(outcome(PackOptions::default(), "single").outcome, Outcome::NeedsCast);
    for (name, reason) in [
        ("wild", "weights are exceptions"),
        ("tiny", "bits per weight with padding"),
    ] {
        let left = outcome(PackOptions::default(), name).outcome;
        assert!(
            matches!(&left, Outcome::Left(told) if told.contains(reason)),
            "{left:?}"
        );
    }
    assert_eq!(outcome(always(PackFormat::Bf16), "layer.weight").outcome, Outcome::Bf16);
    let only = |name: &str| name == "layer.weight";
    let some = PackOptions {
        only: Some(&only),
        ..always(PackFormat::Window12)
    };
    assert_eq!(outcome(some, "wild").outcome, Outcome::NotChosen);
    assert!(matches!(outcome(some, "layer.weight").outcome, Outcome::Packed(_)));
    let none = PackOptions {
        only: Some(&|_| false),
        ..PackOptions::default()
    };
    let err = packed(&input, &scratch.path("none"), none).unwrap_err();
    assert!(
        matches!(err, Error::File(FileError::Convert(ConvertError::NoneChosen { .. }))),
        "{err}"
    );
    assert!(!scratch.path("none").exists());
}

#[test]
fn casts_round_and_say_what_they_lose() {
    let scratch = Scratch::new();
    // Exact, exact, inexact, a NaN, too large; and infinite as it was.
    let singles = [1.0, -0.0, 1.001, f32::NAN, f32::MAX, f32::INFINITY];
    let halves: Vec<u8> = [1.0, 2049.0]
        .iter()
        .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
        .collect();
    let bytes = testing::file(
        None,
        &[
            ("single", "F32", &[2, 3], &f32_bytes(&singles)),
            ("half", "F16", &[1, 2], &halves),
            ("vector", "F32", &[6], &f32_bytes(&singles)),
        ],
    );
    let input = scratch.write("in", &bytes);
    let expected: Vec<u16> = singles.iter().map(|&v| bf16::from_f32(v).to_bits()).collect();
    for format in [PackFormat::Auto, PackFormat::Bf16, PackFormat::Window12] {
        let options = PackOptions {
            cast: Some(Cast::Bf16),
            ..always(format)
        };
        let report = packed(&input, &scratch.path("packed"), options).unwrap();
        let cast: Vec<Option<Loss>> = report.tensors.iter().map(|t| t.cast).collect();
        let lost = |rounded, overflowed| Some(Loss { rounded, overflowed });
        assert_eq!(cast, [lost(2, 1), lost(0, 0), None]);
        unpacked(&scratch.path("packed"), &scratch.path("back")).unwrap();
        let file = crate::io::checkpoint::Checkpoint::open(scratch.path("back")).unwrap();
        let matrix = file.matrix(Some("single")).unwrap();
        assert_eq!(matrix.dtype(), Dtype::Bf16);
        let bits: Vec<u16> = matrix.to_bf16(None).unwrap().iter().map(|v| v.to_bits()).collect();
        assert_eq!(bits, expected);
        let back = std::fs::read(scratch.path("back")).unwrap();
        assert_eq!(
            safetensors::SafeTensors::deserialize(&back)
                .unwrap()
                .tensor("vector")
                .unwrap()
                .dtype(),
            safetensors::Dtype::F32
        );
    }
}

/// Ahead of the data stands the header that is there, and nothing that might have been.
#[test]
fn a_header_takes_the_room_that_it_needs() {
    let scratch = Scratch::new();
    let (small, large) = (bf16_bytes(&values(4 * 8, false)), bf16_bytes(&values(64 * 128, false)));
    let names: Vec<String> = (0..500).map(|i| format!("layers.{i}.lora_A.weight")).collect();
    let mut tensors: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "BF16", &[4, 8][..], &*small))
        .collect();
    let left = testing::file(None, &tensors);
    let input = scratch.write("small", &left);
    packed(&input, &scratch.path("left"), PackOptions::default()).unwrap();
    assert!(
        std::fs::read(scratch.path("left")).unwrap() == left,
        "none is packed, so nothing is new"
    );

    tensors.push(("large", "BF16", &[64, 128], &large));
    let input = scratch.write("both", &testing::file(None, &tensors));
    packed(&input, &scratch.path("one"), PackOptions::default()).unwrap();
    let bytes = std::fs::read(scratch.path("one")).unwrap();
    let (header, data) = Header::read(&bytes).unwrap();
    assert_eq!(header.tensors.len(), 504);
    let json = &bytes[8..bytes.len() - data.len()];
    assert!(json.len() - json.trim_ascii_end().len() < 8);
}

/// What no reader would open is not written.
#[test]
fn a_header_too_long_to_be_read_is_refused() {
    let scratch = Scratch::new();
    let data = bf16_bytes(&values(16 * 64, false));
    // It becomes four tensors and is named in the metadata once more.
    let name = "n".repeat(21_000_000);
    let original = testing::file(None, &[(&name, "BF16", &[16, 64], &data)]);
    let input = scratch.write("in", &original);
    let err = packed(&input, &scratch.path("out"), always(PackFormat::Window12)).unwrap_err();
    assert!(
        matches!(err, Error::File(FileError::Convert(ConvertError::HeaderTooLong { length, .. })) if length > MOST_HEADER),
        "{err:.200}"
    );
    assert!(err.to_string().contains("--only"), "{err}");
    assert_eq!(scratch.names(""), ["in"]);
    // As it is it can be read, and written again.
    packed(&input, &scratch.path("same"), always(PackFormat::Bf16)).unwrap();
    assert!(std::fs::read(scratch.path("same")).unwrap() == original);
}

#[test]
fn names_must_not_clash() {
    let scratch = Scratch::new();
    let data = bf16_bytes(&values(32 * 64, false));
    let bytes = testing::file(
        None,
        &[("w", "BF16", &[32, 64], &data), ("w.window12.starts", "U8", &[1], &[0])],
    );
    let input = scratch.write("in", &bytes);
    let err = packed(&input, &scratch.path("out"), PackOptions::default()).unwrap_err();
    assert!(
        matches!(&err, Error::File(FileError::Convert(ConvertError::NameTaken { name, taken, .. })) if name == "w" && taken == "w.window12.starts"),
        "{err}"
    );
    // Where nothing is packed, every tensor keeps its name.
    packed(&input, &scratch.path("out"), always(PackFormat::Bf16)).unwrap();
    unpacked(&scratch.path("out"), &scratch.path("back")).unwrap();
    assert!(std::fs::read(scratch.path("back")).unwrap() == bytes);
}

#[test]
fn a_packed_file_is_not_packed_again() {
    let scratch = Scratch::new();
    let input = scratch.write("in", &motley());
    packed(&input, &scratch.path("once"), PackOptions::default()).unwrap();
    let err = packed(&scratch.path("once"), &scratch.path("twice"), PackOptions::default()).unwrap_err();
    assert!(
        matches!(err, Error::File(FileError::Convert(ConvertError::AlreadyPacked { .. }))),
        "{err}"
    );
    // What is not packed is unpacked as it is.
    unpacked(&input, &scratch.path("back")).unwrap();
    assert!(std::fs::read(scratch.path("back")).unwrap() == motley());
}

#[test]
fn a_failure_halfway_leaves_nothing() {
    let scratch = Scratch::new();
    let input = scratch.write("in", &motley());
    packed(&input, &scratch.path("packed"), always(PackFormat::Window12)).unwrap();
    let mut bytes = std::fs::read(scratch.path("packed")).unwrap();
    let (header, data) = Header::read(&bytes).unwrap();
    let ahead = bytes.len() - data.len();
    let palette = header
        .tensors
        .iter()
        .find(|t| t.name == "tiny.window12.palette")
        .unwrap()
        .range
        .start;
    bytes[ahead + palette] = 1;
    let damaged = scratch.write("damaged", &bytes);
    let err = unpacked(&damaged, &scratch.path("out")).unwrap_err();
    assert!(
        matches!(&err, Error::File(FileError::PackedTensor { name, .. }) if name == "tiny"),
        "{err}"
    );
    assert!(
        err.to_string().contains("damaged") && err.to_string().contains("palette"),
        "{err}"
    );
    assert_eq!(scratch.names(""), ["damaged", "in", "packed"]);
}

#[test]
fn nothing_has_the_output_name_before_the_end() {
    let scratch = Scratch::new();
    let input = scratch.write("in", &motley());
    let output = scratch.path("out");
    let mut seen = Vec::new();
    pack(&input, &output, &PackOptions::default(), &mut |progress| {
        assert!(!output.exists());
        assert_eq!(scratch.names("").len(), 2, "the part and the input");
        seen.push(progress);
    })
    .unwrap();
    let last = seen.last().unwrap();
    assert_eq!(last.done, last.total);
    assert!(seen.is_sorted_by_key(|progress| progress.done));
    assert_eq!(scratch.names(""), ["in", "out"]);
}

#[test]
fn inspecting_tells_of_every_tensor() {
    let scratch = Scratch::new();
    let input = scratch.write("in", &motley());
    packed(&input, &scratch.path("packed"), always(PackFormat::Window12)).unwrap();
    let before = inspect(&input, &mut |_| {}).unwrap();
    let after = inspect(&scratch.path("packed"), &mut |_| {}).unwrap();
    assert_eq!(before.len(), 9);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            (&before.name, &before.dtype, &before.shape),
            (&after.name, &after.dtype, &after.shape)
        );
        match (&before.stored, &after.stored) {
            (Stored::Matrix { packed, .. }, Stored::Packed(told)) => {
                assert_eq!(packed, told);
                assert_eq!(told.bytes, after.bytes);
            }
            (before, after) => assert_eq!(before, after),
        }
    }
}

/// The formats have one for tests: a matrix as bytes and a scale.
#[test]
fn matrices_that_come_in_a_format_stay_in_it() {
    let scratch = Scratch::new();
    let single = f32_bytes(&values(32 * 64, false));
    let original = testing::file(
        None,
        &[
            ("coded", "U8", &[2, 3], &[0, 1, 2, 3, 4, 5]),
            ("coded.scale", "F32", &[1, 1], &0.5f32.to_le_bytes()),
            ("plain", "F32", &[32, 64], &single),
        ],
    );
    let input = scratch.write("in", &original);
    let options = PackOptions {
        cast: Some(Cast::Bf16),
        ..always(PackFormat::Window12)
    };
    let report = packed(&input, &scratch.path("packed"), options).unwrap();
    let outcomes: Vec<&Outcome> = report.tensors.iter().map(|tensor| &tensor.outcome).collect();
    let stored = Outcome::Stored("bytes");
    assert!(
        matches!(&*outcomes, [values, scale, Outcome::Packed(_)] if [*values, *scale] == [&stored; 2]),
        "{outcomes:?}"
    );
    let report = unpacked(&scratch.path("packed"), &scratch.path("back")).unwrap();
    assert_eq!(report.tensors.iter().filter(|tensor| tensor.was_packed).count(), 1);

    for path in [&input, &scratch.path("packed"), &scratch.path("back")] {
        let told = inspect(path, &mut |_| {}).unwrap();
        assert_eq!(told.len(), 2);
        assert!(matches!(&told[0].stored, Stored::Packed(told) if told.format == "bytes"));
        assert_eq!(
            (&*told[0].name, &*told[0].shape, told[0].bytes),
            ("coded", &[2, 3][..], 10)
        );
        let file = crate::io::checkpoint::Checkpoint::open(path).unwrap();
        let weights = file.weights(Some("coded")).unwrap();
        let values = weights.to_bf16(None).unwrap();
        assert_eq!(*values, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5].map(bf16::from_f32));
        let err = file.weights(None).unwrap_err().to_string();
        assert!(err.ends_with("are: coded, plain"), "{err}");
    }
}

#[test]
fn large_and_wide_matrices_go_piece_by_piece() {
    let scratch = Scratch::new();
    // More than one piece of rows; and 16 rows that are more than one piece, cut along K.
    for shape in [[5000, 1001], [17, 270_001]] {
        let len = shape[0] * shape[1];
        let data: Vec<u8> = (0..2 * len).map(|i| ((i * 40_503) >> 7) as u8).collect();
        let original = testing::file(None, &[("w", "BF16", &shape, &data)]);
        let input = scratch.write("in", &original);
        packed(&input, &scratch.path("packed"), always(PackFormat::Window12)).unwrap();
        unpacked(&scratch.path("packed"), &scratch.path("back")).unwrap();
        assert!(std::fs::read(scratch.path("back")).unwrap() == original, "{shape:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_file_is_restored(
        tensors in prop::collection::vec((0usize..3, prop::collection::vec(1usize..50, 0..4), any::<u8>()), 0..6),
        metadata in prop::option::of(prop::collection::vec(".*", 0..3)),
        order in any::<u64>(),
        format in prop::sample::select(vec![PackFormat::Auto, PackFormat::Window12]),
    ) {
        let mut named = Vec::new();
        for (i, (dtype, mut shape, seed)) in tensors.into_iter().enumerate() {
            shape.truncate(if dtype == 0 { 2 } else { 3 });
            let bytes = shape.iter().product::<usize>() * [2, 1, 4][dtype];
            let data: Vec<u8> = (0..bytes).map(|j| ((j * 7919) >> 4) as u8 ^ seed).collect();
            named.push((format!("tensor {i}"), ["BF16", "U8", "F32"][dtype], shape, data));
        }
        let tensors: Vec<_> = named.iter().map(|(n, d, s, b)| (n.as_str(), *d, s.as_slice(), b.as_slice())).collect();
        let pairs: Option<Vec<(String, &str)>> = metadata.as_ref().map(|m| m.iter().enumerate().map(|(i, v)| (format!("k{i}"), v.as_str())).collect());
        let pairs: Option<Vec<(&str, &str)>> = pairs.as_ref().map(|p| p.iter().map(|(k, v)| (k.as_str(), *v)).collect());
        let file = testing::file(pairs.as_deref(), &tensors);
        let (mut header, data) = Header::read(&file).unwrap();
        let len = header.tensors.len().max(1);
        let shift = order as usize % len;
        header.tensors.rotate_left(shift.min(len - 1));
        let original = [header.to_bytes(), data.to_vec()].concat();
        let scratch = Scratch::new();
        let input = scratch.write("in", &original);
        packed(&input, &scratch.path("packed"), always(format)).unwrap();
        unpacked(&scratch.path("packed"), &scratch.path("back")).unwrap();
        prop_assert!(std::fs::read(scratch.path("back")).unwrap() == original);
    }
}
