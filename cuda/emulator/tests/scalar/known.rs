//! Whether every form of 32 or 64 bits that the emulator knows is among those that are compared with references.

use std::collections::HashSet;

use ptx_emulator::Module;

use super::grid::Form;
use super::support::ptx;
use super::{bits, comparisons, conversions, floats, integers, packed};

/// Names, qualifiers of which one of each group may follow, types, and operands, in which `D` stands for registers of
/// the first type and `A` for those of the last.
struct Family {
    names: &'static [&'static str],
    groups: &'static [&'static [&'static str]],
    types: &'static [&'static [&'static str]],
    operands: &'static [&'static str],
}

/// Types of 32 and 64 bits.
const TYPES: &[&str] = &["u32", "s32", "b32", "f32", "u64", "s64", "b64", "f64"];
/// What conversions lead to.
const ANY: &[&str] = &[
    "u8", "s8", "u16", "s16", "f16", "bf16", "u32", "s32", "f32", "u64", "s64", "f64", "tf32", "f16x2", "bf16x2",
    "e4m3x2", "e5m2x2",
];
const ROUNDING: &[&str] = &["", "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"];
const APPROXIMATE: &[&str] = &["", "approx", "full", "rn", "rz", "rm", "rp"];
const HALF: &[&str] = &["", "lo", "hi", "wide"];
const FTZ: &[&str] = &["", "ftz"];
const SAT: &[&str] = &["", "sat"];
const CC: &[&str] = &["", "cc"];
const RELU: &[&str] = &["", "relu"];
const COMPARISON: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];
const LOGIC: &[&str] = &["", "and", "or", "xor"];
const ONE: &[&str] = &["%D0, %A1", "%r0, %A1"];
const TWO: &[&str] = &["%D0, %A1, %A2", "%d0, %r1, %r2"];
const THREE: &[&str] = &["%D0, %A1, %A2, %A3", "%d0, %r1, %r2, %d3"];

macro_rules! families {
    ($($names:tt [$($group:expr),*] [$($types:expr),*] $operands:expr;)*) => {
        &[$(Family { names: &$names, groups: &[$($group),*], types: &[$($types),*], operands: $operands }),*]
    };
}

const FAMILIES: &[Family] = families! {
    ["add", "sub", "addc", "subc"] [ROUNDING, FTZ, SAT, CC] [TYPES] TWO;
    ["mul", "mul24"] [ROUNDING, HALF, FTZ, SAT, CC] [TYPES] TWO;
    ["mad", "madc", "mad24", "fma"] [ROUNDING, HALF, FTZ, SAT, CC, RELU] [TYPES] THREE;
    ["div", "rem"] [APPROXIMATE, FTZ, SAT] [TYPES] TWO;
    ["rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"] [APPROXIMATE, FTZ, SAT] [TYPES] ONE;
    ["abs", "neg", "not", "cnot", "popc", "clz", "brev"] [FTZ, SAT] [TYPES] ONE;
    ["bfind"] [&["", "shiftamt"]] [TYPES] ONE;
    ["min", "max"] [FTZ, &["", "NaN"], &["", "xorsign.abs"], RELU] [TYPES] &["%D0, %A1, %A2", "%D0, %A1, %A2, %A3"];
    ["and", "or", "xor", "copysign"] [&[""]] [TYPES] TWO;
    ["sad"] [&[""]] [TYPES] THREE;
    ["testp"] [&["finite", "infinite", "number", "notanumber", "normal", "subnormal"]] [TYPES] &["%p0, %A1"];
    ["shl", "shr"] [&[""]] [TYPES] &["%A0, %A1, %r2"];
    ["shf"] [&["l", "r"], &["", "clamp", "wrap"]] [TYPES] &["%A0, %A1, %A2, %r3"];
    ["szext", "bmsk"] [&["", "clamp", "wrap"]] [TYPES] &["%A0, %A1, %r2"];
    ["bfe"] [&[""]] [TYPES] &["%A0, %A1, %r2, %r3"];
    ["bfi"] [&[""]] [TYPES] &["%A0, %A1, %A2, %r2, %r3"];
    ["fns"] [&[""]] [TYPES] THREE;
    ["prmt"] [&["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]] [TYPES] THREE;
    ["lop3"] [&["", "and", "or", "xor"]] [TYPES] &["%r0, %r1, %r2, %r3, 6", "%r0|%p0, %r1, %r2, %r3, 6, %p1"];
    ["dp4a", "dp2a"] [&["", "lo", "hi"]] [TYPES, TYPES] &["%r0, %r1, %r2, %r3"];
    ["setp"] [COMPARISON, LOGIC, FTZ] [TYPES] &["%p2|%p3, %A1, %A2", "%p2|%p3, %A1, %A2, %p1"];
    ["set"] [COMPARISON, LOGIC, FTZ] [TYPES, TYPES] &["%D0, %A1, %A2", "%D0, %A1, %A2, %p1"];
    ["selp"] [&[""]] [TYPES] &["%A0, %A1, %A2, %p1"];
    ["slct"] [FTZ] [TYPES, TYPES] &["%D0, %D1, %D2, %A3"];
    ["cvt"] [ROUNDING, FTZ, SAT, &["", "satfinite"], RELU] [ANY, TYPES] &["%D0, %A1", "%D0, %A1, %A2"];
    ["cvt"] [&["pack.sat"]] [&["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"], &["s32"], &["", "b32"]]
        &["%r0, %r1, %r2", "%r0, %r1, %r2, %r3"];
};

/// What qualifiers and types make of a name, in whatever order they stand.
fn key(opcode: &str) -> String {
    let mut parts: Vec<&str> = opcode.split('.').filter(|part| !part.is_empty()).collect();
    let is_type = |part: &&str| {
        ANY.contains(part) || TYPES.contains(part) || part.starts_with(['u', 's', 'b']) && part.len() == 2
    };
    // Types keep their order, and stand behind the rest.
    let (types, mut rest): (Vec<&str>, Vec<&str>) = parts.drain(1..).partition(is_type);
    rest.sort_unstable();
    [&parts[..], &rest, &types].concat().join(".")
}

/// Every way to take one of each.
fn products(groups: &[&[&'static str]]) -> Vec<Vec<&'static str>> {
    groups.iter().fold(vec![Vec::new()], |before, group| {
        let with = |before: &Vec<&'static str>| {
            group
                .iter()
                .map(|&last| [&before[..], &[last]].concat())
                .collect::<Vec<_>>()
        };
        before.iter().flat_map(with).collect()
    })
}

fn register(ty: &str) -> &'static str {
    match ty {
        _ if ty.ends_with("64") => "d",
        "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => "h",
        _ => "r",
    }
}

/// Every opcode of a family that the emulator takes.
fn taken(family: &Family) -> Vec<String> {
    let mut found = Vec::new();
    for (name, types) in family
        .names
        .iter()
        .flat_map(|name| products(family.types).into_iter().map(move |types| (name, types)))
    {
        for qualifiers in products(family.groups) {
            let parts = [&[*name][..], &qualifiers, &types].concat();
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let opcode = parts.join(".");
            let known = family.operands.iter().any(|operands| {
                let operands = operands.replace("%D", &format!("%{}", register(types[0])));
                let operands = operands.replace("%A", &format!("%{}", register(types[types.len() - 1])));
                let text = format!(
                    ".entry k() {{ .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %d<4>; {opcode} {operands}; }}"
                );
                Module::parse(&ptx(&text)).is_ok()
            });
            if known {
                found.push(opcode);
            }
        }
    }
    found
}

#[test]
fn every_form_is_compared() {
    let lists: [fn() -> Vec<Form<'static>>; 6] = [
        bits::all,
        comparisons::all,
        conversions::all,
        floats::all,
        integers::all,
        packed::all,
    ];
    let mut compared = HashSet::new();
    for text in lists.iter().flat_map(|list| list()).flat_map(|form| form.texts) {
        for instruction in text.split(';') {
            let opcode = instruction.split_whitespace().find(|word| !word.starts_with('@'));
            compared.extend(opcode.map(key));
        }
    }
    let known: Vec<String> = FAMILIES.iter().flat_map(taken).collect();
    let missing: Vec<&String> = known.iter().filter(|opcode| !compared.contains(&key(opcode))).collect();
    assert!(
        missing.is_empty(),
        "{} of {} forms: {missing:?}",
        missing.len(),
        known.len()
    );
    assert!(known.len() > 2000, "{}", known.len());
}
