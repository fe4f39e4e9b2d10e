//! The comparisons of `set`, `setp` and `slct`.

use std::cmp::Ordering;

/// A comparison, for integers and floats alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    less: bool,
    equal: bool,
    greater: bool,
    unordered: bool,
}

/// Name, then what it says of less, equal, greater and unordered operands.
const COMPARISONS: &[(&str, [bool; 4])] = &[
    ("eq", [false, true, false, false]),
    ("ne", [true, false, true, false]),
    ("lt", [true, false, false, false]),
    ("le", [true, true, false, false]),
    ("gt", [false, false, true, false]),
    ("ge", [false, true, true, false]),
    // The unsigned spellings; that the operands are unsigned is said by the type.
    ("lo", [true, false, false, false]),
    ("ls", [true, true, false, false]),
    ("hi", [false, false, true, false]),
    ("hs", [false, true, true, false]),
    // True also where an operand is NaN.
    ("equ", [false, true, false, true]),
    ("neu", [true, false, true, true]),
    ("ltu", [true, false, false, true]),
    ("leu", [true, true, false, true]),
    ("gtu", [false, false, true, true]),
    ("geu", [false, true, true, true]),
    ("num", [true, true, true, false]),
    ("nan", [false, false, false, true]),
];

impl Comparison {
    /// The comparison that an opcode's qualifier names.
    pub fn from_name(name: &str) -> Option<Self> {
        let (_, [less, equal, greater, unordered]) = *COMPARISONS.iter().find(|(known, _)| *known == name)?;
        Some(Comparison {
            less,
            equal,
            greater,
            unordered,
        })
    }

    /// Whether it holds of operands in this order; `None` where one is NaN, as `partial_cmp` says.
    #[inline]
    pub fn holds(self, order: Option<Ordering>) -> bool {
        match order {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.unordered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_say_what_their_names_say() {
        let holds = |name: &str, a: f32, b: f32| Comparison::from_name(name).unwrap().holds(a.partial_cmp(&b));
        let nan = f32::NAN;
        for (name, pairs) in [
            ("eq", [(1., 1., true), (1., 2., false), (nan, nan, false)]),
            ("ne", [(1., 1., false), (1., 2., true), (nan, 1., false)]),
            ("neu", [(1., 1., false), (1., 2., true), (nan, 1., true)]),
            ("lt", [(1., 2., true), (2., 1., false), (nan, 1., false)]),
            ("geu", [(1., 2., false), (2., 2., true), (nan, 1., true)]),
            ("num", [(1., 2., true), (nan, 1., false), (1., nan, false)]),
            ("nan", [(1., 2., false), (nan, 1., true), (1., nan, true)]),
        ] {
            for (a, b, expected) in pairs {
                assert_eq!(holds(name, a, b), expected, "{name} {a} {b}");
            }
        }
        assert_eq!(Comparison::from_name("lo"), Comparison::from_name("lt"));
        assert_eq!(Comparison::from_name("xx"), None);
    }
}
