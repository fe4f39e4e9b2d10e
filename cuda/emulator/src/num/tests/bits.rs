use proptest::prelude::*;

use super::super::Int;
use super::super::bits::*;
use super::super::integer::*;

/// A bit of a value, 0 beyond its width.
fn bit(value: u64, at: u32) -> u64 {
    if at < 64 { value >> at & 1 } else { 0 }
}

#[test]
fn permutes_pick_the_bytes_of_the_isas_tables() {
    // Byte i of the pair is i, so a result spells which bytes were picked.
    let (a, b) = (0x0302_0100, 0x0706_0504);
    let rows: [(&str, [u32; 4]); 6] = [
        ("f4e", [0x0302_0100, 0x0403_0201, 0x0504_0302, 0x0605_0403]),
        ("b4e", [0x0506_0700, 0x0607_0001, 0x0700_0102, 0x0001_0203]),
        ("rc8", [0x0000_0000, 0x0101_0101, 0x0202_0202, 0x0303_0303]),
        ("ecl", [0x0302_0100, 0x0302_0101, 0x0302_0202, 0x0303_0303]),
        ("ecr", [0x0000_0000, 0x0101_0100, 0x0202_0100, 0x0302_0100]),
        ("rc16", [0x0100_0100, 0x0302_0302, 0x0100_0100, 0x0302_0302]),
    ];
    for (mode, results) in rows {
        let function = permute(mode).unwrap();
        for (selector, expected) in results.into_iter().enumerate() {
            assert_eq!(function(a, b, selector as u32 | 0xf0), expected, "{mode} {selector}");
        }
    }
    assert_eq!(permute("").unwrap()(a, b, 0x7210), 0x0702_0100);
    assert_eq!(prmt(0x80, 0x7F00, 0x8EC8), u32::from_be_bytes([0xff, 0, 0, 0xff]));
    assert!(permute("xyz").is_none());
}

#[test]
fn lop3_reads_its_table() {
    let (a, b, c) = (0xF0F0_1234, 0xCCCC_5678, 0xAAAA_9ABC);
    let table = |f: fn(u8, u8, u8) -> u8| f(0xF0, 0xCC, 0xAA);
    assert_eq!(lop3(a, b, c, table(|a, b, c| a & b | c)), a & b | c);
    assert_eq!(lop3(a, b, c, table(|a, b, c| a ^ b ^ c)), a ^ b ^ c);
    assert_eq!(lop3(a, b, c, table(|a, b, c| !(a | b) & c)), !(a | b) & c);
}

#[test]
fn widths_and_amounts_at_their_edges() {
    assert_eq!(shift_left(1, 31, 32), 1 << 31);
    assert_eq!(
        (shift_left(1, 32, 32), shift_left(1, 64, 64), shift_left(0xffff, 4, 16)),
        (0, 0, 0xfff0)
    );
    assert_eq!((shift_right(1 << 63, 63, 64), shift_right(u64::MAX, 32, 32)), (1, 0));
    assert_eq!(
        (
            shift_right_signed(0x8000_0000, 40, 32),
            shift_right_signed(0x8000, 4, 16)
        ),
        (0xffff_ffff, 0xf800)
    );
    assert_eq!(funnel_left(0x8000_0000, 1, 1, false), 3);
    assert_eq!(
        (
            funnel_left(5, 7, 32, true),
            funnel_left(5, 7, 32, false),
            funnel_left(5, 7, 99, true)
        ),
        (5, 7, 5)
    );
    assert_eq!(
        (
            funnel_right(5, 7, 32, true),
            funnel_right(5, 7, 32, false),
            funnel_right(0, 3, 1, false)
        ),
        (7, 5, 1 << 31)
    );
    assert_eq!(
        (extend_from(0x80, 8, true, true), extend_from(0x80, 8, true, false)),
        (0xffff_ff80, 0x80)
    );
    assert_eq!(
        (
            extend_from(u32::MAX, 0, true, true),
            extend_from(7, 32, true, true),
            extend_from(0x8000_0007, 32, false, true)
        ),
        (0, 7, 0)
    );
    assert_eq!(
        (
            mask(4, 4, false),
            mask(0, 32, true),
            mask(0, 32, false),
            mask(32, 4, true),
            mask(30, 9, true)
        ),
        (0xf0, u32::MAX, 0, 0, 3 << 30)
    );
    assert_eq!(
        (
            find_leading(0, 32, false, false),
            find_leading(u64::MAX, 64, true, false)
        ),
        (u32::MAX, u32::MAX)
    );
    assert_eq!(
        (
            find_leading(0x10, 32, false, false),
            find_leading(0x10, 32, false, true),
            find_leading(0xffff_fff0, 32, true, false)
        ),
        (4, 27, 3)
    );
    assert_eq!(
        (
            find_nth_set(0b1010, 1, 0),
            find_nth_set(0b1010, 0, 0),
            find_nth_set(0b1010, 0, 2),
            find_nth_set(0b1010, 3, -2)
        ),
        (1, u32::MAX, 3, 1)
    );
}

#[test]
fn integer_arithmetic_at_its_edges() {
    let (signed, unsigned) = (
        Int { bits: 32, signed: true },
        Int {
            bits: 32,
            signed: false,
        },
    );
    let minus = |value: i64| value as u64;
    assert_eq!(div(7, 0, unsigned) as u32, u32::MAX);
    assert_eq!(
        (
            rem(7, 0, unsigned),
            div(minus(-7), 2, signed),
            rem(minus(-7), 2, signed)
        ),
        (7, minus(-3), minus(-1))
    );
    assert_eq!(div(0x8000_0000, 0xffff_ffff, signed) as u32, 0x8000_0000);
    assert_eq!(
        (
            mul_hi(
                u64::MAX,
                u64::MAX,
                Int {
                    bits: 64,
                    signed: false
                }
            ),
            mul_hi(minus(-1), 1, signed)
        ),
        (u64::MAX - 1, u64::MAX)
    );
    assert_eq!(product(0xffff_ffff, 2, signed) as i64, -2);
    assert_eq!(
        (
            sum_of_difference(3, 10, 1, unsigned),
            sum_of_difference(minus(-3), 10, 1, signed)
        ),
        (8, 14)
    );
    assert_eq!(
        (saturated(1 << 40), saturated(-(1 << 40)), saturated(-5)),
        (0x7fff_ffff, 0x8000_0000, -5i32 as u32)
    );
    assert_eq!(
        (product24(0xff_ffff, 2, true) as i64, product24(0xffff_ffff, 2, false)),
        (-2, 0x1ff_fffe)
    );
    assert_eq!(
        dot4(0xff01_0203, 0x0101_0101, 10, true, false) as i32,
        10 - 1 + 1 + 2 + 3
    );
    assert_eq!(
        (
            dot2(0xffff_0002, 0x0403_0201, 0, true, false, false) as i32,
            dot2(2, 0x0403_0201, 0, false, false, true)
        ),
        (0, 6)
    );
}

proptest! {
    #[test]
    fn prmt_follows_its_definition(a: u32, b: u32, selector: u32) {
        let bytes: Vec<u8> = a.to_le_bytes().into_iter().chain(b.to_le_bytes()).collect();
        let pick = |i: u32| {
            let nibble = selector >> (4 * i) & 0xf;
            let byte = bytes[(nibble & 7) as usize];
            match (nibble & 8, byte & 0x80) {
                (0, _) => byte,
                (_, 0) => 0,
                _ => 0xff,
            }
        };
        prop_assert_eq!(prmt(a, b, selector), u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)]));
    }

    #[test]
    fn lop3_follows_its_definition(a: u32, b: u32, c: u32, table: u8) {
        let expected = (0..32).fold(0u32, |result, at| {
            let row = bit(a.into(), at) * 4 + bit(b.into(), at) * 2 + bit(c.into(), at);
            result | (u32::from(table) >> row & 1) << at
        });
        prop_assert_eq!(lop3(a, b, c, table), expected);
    }

    /// Bit by bit, as the ISA defines `bfe` and `bfi`.
    #[test]
    fn fields_follow_their_definition(a: u64, into: u64, position in 0u32..300, length in 0u32..300, wide: bool, signed: bool) {
        let bits = if wide { 64 } else { 32 };
        let (a, into) = (a & u64::MAX >> (64 - bits), into & u64::MAX >> (64 - bits));
        let (at, count) = (position & 0xff, length & 0xff);
        let sign = if !signed || count == 0 { 0 } else { bit(a, (at + count - 1).min(bits - 1)) };
        let extracted = (0..bits).fold(0, |result, i| {
            let inside = i < count && at + i < bits;
            result | if inside { bit(a, at + i) } else { sign } << i
        });
        prop_assert_eq!(extract(a, position, length, bits, signed), extracted);
        let inserted = (0..bits).fold(0, |result, i| {
            let inside = (at..at + count).contains(&i);
            result | if inside { bit(a, i - at) } else { bit(into, i) } << i
        });
        prop_assert_eq!(insert(a, into, position, length, bits), inserted);
    }
}
