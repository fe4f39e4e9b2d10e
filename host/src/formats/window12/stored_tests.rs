use super::*;
use crate::bf16;
use crate::formats::window12::{pack, unpack};
use crate::io::container::testing;
use proptest::prelude::*;

/// The parts of a file with one packed matrix of 20 × 70, which the tests then damage.
struct Parts {
    metadata: Vec<(&'static str, String)>,
    tensors: Vec<(String, &'static str, Vec<usize>, Vec<u8>)>,
}

fn weights() -> Vec<bf16> {
    (0..1400u32)
        .map(|i| bf16::from_bits((i.wrapping_mul(40_503) >> 3) as u16))
        .collect()
}

impl Parts {
    fn new() -> Self {
        let shape = Shape::new(20, 70).unwrap();
        let packed = pack(&weights(), shape).unwrap();
        assert!(packed.exceptions().len() > 100);
        let mut record = Record::new(false);
        record.insert("w", shape);
        let tensor = |part: Part| {
            let bytes = match part {
                Part::Units => packed.units().to_vec(),
                Part::Palette => packed.palette().to_vec(),
                Part::Starts => bytemuck::cast_slice(packed.starts()).to_vec(),
                Part::Exceptions => bytemuck::cast_slice(packed.exceptions()).to_vec(),
            };
            (
                part.name("w"),
                part.dtype().0,
                part.shape(shape, packed.exceptions().len()),
                bytes,
            )
        };
        Parts {
            metadata: vec![("format", "pt".to_owned()), (METADATA_KEY, record.to_json())],
            tensors: Part::ALL.map(tensor).to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let metadata: Vec<_> = self.metadata.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let tensors: Vec<_> = self
            .tensors
            .iter()
            .map(|(n, d, s, b)| (n.as_str(), *d, s.as_slice(), b.as_slice()))
            .collect();
        testing::file(Some(&metadata), &tensors)
    }

    fn damaged(damage: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut parts = Self::new();
        damage(&mut parts);
        parts.bytes()
    }
}

#[test]
fn a_packed_matrix_is_found_wherever_it_lies() {
    // Behind data of any length, so that no part of it is aligned.
    for lead in [0, 1, 3, 8] {
        let file = Parts::damaged(|p| {
            p.tensors
                .insert(0, ("lead".to_owned(), "U8", vec![lead], vec![7; lead]))
        });
        let tensors = PackedTensors::read(&file).unwrap();
        assert_eq!(tensors.names().collect::<Vec<_>>(), ["w"]);
        let packed = tensors.get("w").unwrap();
        let (back, expected) = (unpack(&packed).unwrap(), weights());
        assert!(
            back.iter()
                .map(|w| w.to_bits())
                .eq(expected.iter().map(|w| w.to_bits()))
        );
    }
}

#[test]
fn a_file_without_a_record_has_no_packed_matrix() {
    for file in [testing::file(None, &[]), Parts::damaged(|p| p.metadata.truncate(1))] {
        let tensors = PackedTensors::read(&file).unwrap();
        assert_eq!(tensors.names().count(), 0);
        assert_eq!(tensors.get("w").unwrap_err(), Fault::NotPacked { name: "w".to_owned() });
    }
}

#[test]
fn every_fault_of_a_file_is_told() {
    let refused = |damage: fn(&mut Parts)| PackedTensors::read(&Parts::damaged(damage)).unwrap_err();
    let record = |p: &mut Parts, json: &str| p.metadata[1].1 = json.to_owned();
    assert!(matches!(PackedTensors::read(&[0; 5]), Err(FileFault::Container { .. })));
    for (damage, reason) in [
        ((|p| p.metadata[1].1.push('}')) as fn(&mut Parts), "trailing"),
        (|p| p.metadata.push(p.metadata[1].clone()), "two of them"),
        (
            |p| p.metadata[1].1 = r#"{"version":1,"tensors":{"w":[20]}}"#.to_owned(),
            "length",
        ),
        (
            |p| p.metadata[1].1 = r#"{"version":1,"tensors":{"w":[20,-70]}}"#.to_owned(),
            "-70",
        ),
        (
            |p| p.metadata[1].1 = r#"{"version":1,"tensors":{},"x":0}"#.to_owned(),
            "unknown field",
        ),
        (|p| p.metadata[1].1 = r#"{"tensors":{}}"#.to_owned(), "version"),
    ] {
        match refused(damage) {
            FileFault::Record { reason: given } => assert!(given.contains(reason), "{given} / {reason}"),
            other => panic!("{other}"),
        }
    }
    let later = Parts::damaged(|p| record(p, r#"{"version":2,"matrices":[]}"#));
    assert_eq!(
        PackedTensors::read(&later).unwrap_err(),
        FileFault::Version { given: 2 }
    );
    let twice = Parts::damaged(|p| p.tensors.push(("w".to_owned(), "U8", vec![1], vec![0])));
    assert_eq!(
        PackedTensors::read(&twice).unwrap_err(),
        FileFault::Twice { name: "w".to_owned() }
    );
}

#[test]
fn every_fault_of_a_part_is_told() {
    let refused = |damage: &dyn Fn(&mut Parts)| {
        let file = Parts::damaged(|p| damage(p));
        PackedTensors::read(&file).unwrap().get("w").unwrap_err()
    };
    for (i, part) in Part::ALL.into_iter().enumerate() {
        let name = part.name("w");
        assert_eq!(
            refused(&|p| drop(p.tensors.remove(i))),
            Fault::MissingPart { part: name.clone() }
        );
        let (dtype, size) = part.dtype();
        let other = ["I8", "F32", "F64"][size.ilog2() as usize / 2 + usize::from(size == 8)];
        match refused(&|p| p.tensors[i].1 = other) {
            Fault::PartType { part, given, needed } => {
                assert_eq!((part, &*given, needed), (name.clone(), other, dtype))
            }
            fault => panic!("{fault}"),
        }
        match refused(&|p| p.tensors[i].2.push(1)) {
            Fault::PartShape { part, .. } => assert_eq!(part, name),
            fault => panic!("{fault}"),
        }
    }
    let recorded =
        |n: u64, k: u64| refused(&|p| p.metadata[1].1 = format!(r#"{{"version":1,"tensors":{{"w":[{n},{k}]}}}}"#));
    assert_eq!(recorded(0, 70), Fault::Shape { n: 0, k: 70 });
    assert_eq!(recorded(20, 1 << 32), Fault::Shape { n: 20, k: 1 << 32 });
    assert_eq!(
        recorded(u64::MAX, u64::MAX),
        Fault::Shape {
            n: u64::MAX,
            k: u64::MAX
        }
    );
    for (n, k) in [(20, 129), (33, 70), (u64::from(u32::MAX), u64::from(u32::MAX))] {
        assert!(matches!(recorded(n, k), Fault::PartShape { .. }), "{n} {k}");
    }
    // A shape that fits the parts, but not what is in them.
    assert!(matches!(
        recorded(20, 69),
        Fault::ExceptionColumn { .. } | Fault::Padding { .. }
    ));
    assert_eq!(refused(&|p| p.tensors[1].3[0] = 9), Fault::PaletteZero { given: 9 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_do_harm(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), in_header: bool, cut in prop::option::of(any::<prop::sample::Index>())) {
        let mut file = Parts::new().bytes();
        let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let reach = if in_header { header } else { file.len() };
        for (at, byte) in damage {
            file[at.index(reach)] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        use_all(&file);
    }

    #[test]
    fn no_other_bytes_do_harm(file in prop::collection::vec(any::<u8>(), 0..200)) {
        use_all(&file);
        use_all(&[&(file.len() as u64).to_le_bytes(), &*file].concat());
    }
}

/// Whatever can be done with a file.
fn use_all(file: &[u8]) {
    let Ok(tensors) = PackedTensors::read(file) else { return };
    for name in tensors.names() {
        if let Ok(packed) = tensors.get(name) {
            let (n, k) = (packed.shape().n(), packed.shape().k());
            assert_eq!(unpack(&packed).unwrap().len(), n * k);
            assert!(packed.slice(Some(n / 16 * 16 % n..n), Some(k / 64 * 64 % k..k)).is_ok());
        }
    }
}
