//! Packed matrices that break the rules.

use super::tests::{bits, normal, shape, specified, weights, with_exceptions};
use super::*;
use kernels_gpu::formats::window12::place_in_window12;
use proptest::prelude::*;

type Parts = (Shape, [u8; PALETTE], Vec<u8>, Vec<u64>, Vec<Exception>);

fn parts(packed: &Packed<'_>) -> Parts {
    let (units, starts, exceptions) = (
        packed.units().to_vec(),
        packed.starts().to_vec(),
        packed.exceptions().to_vec(),
    );
    (packed.shape(), packed.palette(), units, starts, exceptions)
}

/// The fault of a matrix of 20 × 70 with four exceptions, once it has been damaged.
fn fault(damage: impl FnOnce(&mut Parts)) -> Fault {
    let shape = shape(20, 70);
    let outliers = [(0, 3), (5, 3), (2, 69), (17, 0)].map(|(row, column)| row * 70 + column);
    let weights = weights(shape, |i| {
        if outliers.contains(&i) {
            0x4780
        } else {
            normal(i) & 0x80ff | 0x3c00
        }
    });
    let palette = [0, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f];
    let packed = pack_with(&weights, shape, palette).unwrap();
    assert_eq!(packed.starts(), [0, 3, 4]);
    let mut parts = parts(&packed);
    damage(&mut parts);
    let (shape, palette, units, starts, exceptions) = parts;
    let fault = Packed::new(shape, palette, units, starts, exceptions).unwrap_err();
    assert!(fault.to_string().len() > 20, "{fault}");
    fault
}

#[test]
fn every_rule_has_its_fault() {
    let exception = |value: u16, row, column| Exception::new(bf16::from_bits(value), row, column);
    let bit = |row: usize, k: usize| place_in_window12(row, k);
    let cases = [
        (fault(|p| p.1[0] = 1), Fault::PaletteZero { given: 1 }),
        (fault(|p| p.1[7] = 0xbf), Fault::PaletteRange { entry: 7, given: 0xbf }),
        (fault(|p| p.1[3] = 0x3a), Fault::PaletteOrder { entry: 3, given: 0x3a }),
        (
            fault(|p| p.2.truncate(6143)),
            Fault::Units {
                shape: shape(20, 70),
                given: 6143,
                needed: 6144,
            },
        ),
        (
            fault(|p| p.0 = shape(20, 140)),
            Fault::Units {
                shape: shape(20, 140),
                given: 6144,
                needed: 9216,
            },
        ),
        (
            fault(|p| p.3.clear()),
            Fault::Starts {
                shape: shape(20, 70),
                given: 0,
                needed: 3,
            },
        ),
        (
            fault(|p| p.3.push(4)),
            Fault::Starts {
                shape: shape(20, 70),
                given: 4,
                needed: 3,
            },
        ),
        (fault(|p| p.3[0] = 1), Fault::FirstStart { given: 1 }),
        (
            fault(|p| p.3[1] = 5),
            Fault::StartsOrder {
                row_block: 1,
                start: 5,
                end: 4,
            },
        ),
        (
            fault(|p| p.3[2] = u64::MAX),
            Fault::LastStart {
                given: u64::MAX,
                count: 4,
            },
        ),
        (fault(|p| p.4.truncate(3)), Fault::LastStart { given: 4, count: 3 }),
        (
            fault(|p| p.4[0] = exception(1, 16, 3)),
            Fault::ExceptionRow {
                at: 0,
                row: 16,
                row_block: 0,
                rows: 16,
            },
        ),
        (
            fault(|p| p.4[3] = exception(1, 4, 0)),
            Fault::ExceptionRow {
                at: 3,
                row: 4,
                row_block: 1,
                rows: 4,
            },
        ),
        (
            fault(|p| p.4[2] = exception(1, 2, 70)),
            Fault::ExceptionColumn {
                at: 2,
                column: 70,
                k: 70,
            },
        ),
        (fault(|p| p.4.swap(0, 1)), Fault::ExceptionOrder { at: 1, row_block: 0 }),
        (
            fault(|p| p.4[1] = p.4[0]),
            Fault::ExceptionOrder { at: 1, row_block: 0 },
        ),
        (fault(|p| p.4.swap(1, 2)), Fault::ExceptionOrder { at: 2, row_block: 0 }),
        (
            fault(|p| p.4[1] = exception(1, 6, 3)),
            Fault::ExceptionPlace {
                at: 1,
                row: 6,
                row_block: 0,
                column: 3,
            },
        ),
        (
            fault(|p| p.2[bit(5, 3).low] = 1),
            Fault::ExceptionPlace {
                at: 1,
                row: 5,
                row_block: 0,
                column: 3,
            },
        ),
        (
            fault(|p| p.2[bit(5, 3).code + bit(5, 3).sign as usize / 8] |= 1 << (bit(5, 3).sign % 8)),
            Fault::ExceptionPlace {
                at: 1,
                row: 5,
                row_block: 0,
                column: 3,
            },
        ),
        (
            fault(|p| p.2[bit(5, 3).code + bit(5, 3).index as usize / 8] |= 4 << (bit(5, 3).index % 8)),
            Fault::ExceptionPlace {
                at: 1,
                row: 5,
                row_block: 0,
                column: 3,
            },
        ),
        (
            fault(|p| p.2[1536 + bit(0, 6).low] = 1),
            Fault::Padding { row_block: 0, group: 1 },
        ),
        (
            fault(|p| p.2[3072 + bit(4, 0).low] = 1),
            Fault::Padding { row_block: 1, group: 0 },
        ),
        (
            fault(|p| p.2[4608 + bit(15, 63).low] = 1),
            Fault::Padding { row_block: 1, group: 1 },
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn damaged_parts_are_refused_or_harmless(
        n in 1usize..40, k in 1usize..140, damage in prop::collection::vec((0usize..5, any::<prop::sample::Index>(), any::<u64>()), 1..6),
    ) {
        let shape = shape(n, k);
        let (_, palette, mut units, mut starts, mut exceptions) = parts(&pack(&with_exceptions(shape), shape).unwrap());
        let mut palette = palette;
        for (part, at, value) in damage {
            match part {
                0 => palette[at.index(8)] = value as u8,
                1 => { let at = at.index(units.len()); units[at] ^= value as u8 }
                2 => { let at = at.index(starts.len()); starts[at] = value % 70 }
                3 if !exceptions.is_empty() => { let at = at.index(exceptions.len()); exceptions[at] = bytemuck::cast(value & 0x1ff_001f_ffff) }
                _ => exceptions.truncate(at.index(exceptions.len() + 1)),
            }
        }
        if let Ok(packed) = Packed::new(shape, palette, units, starts, exceptions) {
            let weights = unpack(&packed).unwrap();
            prop_assert_eq!(specified(&packed), bits(&weights));
            packed.slice(Some(0..n.min(16)), Some(0..k.min(64))).unwrap();
        }
    }
}
