//! Operands: registers, constants, addresses, vectors, names.

use super::ParseError;
use super::ast::{AddrBase, Address, Operand, RegId, Special};
use super::cursor::{Cursor, fail};
use super::lexer::Kind;
use super::scope::{Meaning, Scopes};

/// Threads of a warp, the value of PTX's constant `WARP_SZ`.
const WARP_SIZE: i64 = 32;
/// Most elements of a vector operand: the largest matrix fragment has 128 registers.
const MAX_ELEMENTS: usize = 256;

/// What an operand turned out to be.
pub(super) enum Parsed<'t> {
    Operand(Operand),
    /// A name not declared so far: a label that may still come.
    Name(&'t str),
    /// A `.branchtargets` list, by its number.
    Targets(usize),
}

/// Whether a name is a prefix and a number below `count`.
fn numbered(name: &str, prefix: &str, count: u32) -> bool {
    let number = name.strip_prefix(prefix).and_then(|digits| digits.parse::<u32>().ok());
    number.is_some_and(|number| number < count)
}

/// Reads operands where `scopes` says what names mean and `is_global` knows the module's variables.
pub(super) struct Operands<'a, 't> {
    pub(super) cursor: &'a mut Cursor<'t>,
    pub(super) scopes: &'a Scopes<'t>,
    pub(super) is_global: &'a dyn Fn(&str) -> bool,
}

impl<'t> Operands<'_, 't> {
    /// Any operand.
    pub(super) fn operand(&mut self) -> Result<Parsed<'t>, ParseError> {
        let operand = match self.cursor.peek().kind {
            Kind::Punct('{') => self.vector()?,
            Kind::Punct('[') => self.address()?,
            Kind::Punct('!') => {
                self.cursor.next()?;
                Operand::NotReg(self.register()?)
            }
            Kind::Punct('(') => {
                return self
                    .cursor
                    .unexpected("an operand: computed constants are not supported");
            }
            Kind::Word(name) => return self.named(name),
            _ => self.constant()?,
        };
        Ok(Parsed::Operand(operand))
    }

    /// `(a, b, …)` of a call.
    pub(super) fn list(&mut self) -> Result<Operand, ParseError> {
        self.cursor.expect('(')?;
        let mut list = Vec::new();
        if !self.cursor.accept(')')? {
            loop {
                let line = self.cursor.peek().line;
                match self.operand()? {
                    Parsed::Operand(
                        operand @ (Operand::Reg(_)
                        | Operand::Int(_)
                        | Operand::F32(_)
                        | Operand::F64(_)
                        | Operand::Special(_)
                        | Operand::Symbol { .. }
                        | Operand::Discard),
                    ) => list.push(operand),
                    _ => return fail(line, "calls pass registers, constants and `.param` variables"),
                }
                if !self.cursor.accept(',')? {
                    self.cursor.expect(')')?;
                    break;
                }
            }
        }
        Ok(Operand::List(list))
    }

    /// A number, perhaps negated.
    fn constant(&mut self) -> Result<Operand, ParseError> {
        let negative = self.cursor.accept('-')?;
        let constant = match self.cursor.peek().kind {
            Kind::Int(value) if negative => Operand::Int((value as i64).wrapping_neg()),
            Kind::Int(value) => Operand::Int(value as i64),
            Kind::F32(bits) => Operand::F32(bits ^ (u32::from(negative) << 31)),
            Kind::F64(bits) => Operand::F64(bits ^ (u64::from(negative) << 63)),
            _ => return self.cursor.unexpected("an operand"),
        };
        self.cursor.next()?;
        Ok(constant)
    }

    /// An operand that starts with an identifier.
    fn named(&mut self, name: &'t str) -> Result<Parsed<'t>, ParseError> {
        let line = self.cursor.peek().line;
        let meaning = self.scopes.find(self.scopes.current(), name);
        self.cursor.next()?;
        let operand = match meaning {
            Some(Meaning::Register(register)) => match self.second_destination()? {
                Some(second) => Operand::Pair(Some(register), second),
                None => Operand::Reg(register),
            },
            Some(Meaning::Variable(unique)) => self.symbol(unique)?,
            Some(Meaning::Label(target)) => Operand::Label(target),
            Some(Meaning::Targets(list)) => return Ok(Parsed::Targets(list)),
            Some(Meaning::Callees) => return fail(line, format!("{name} says what is called, and is no operand")),
            None if name == "_" => match self.second_destination()? {
                Some(second) => Operand::Pair(None, second),
                None => Operand::Discard,
            },
            None if name == "WARP_SZ" => Operand::Int(WARP_SIZE),
            // Registers of the driver (but two) and of performance monitors, of which there are none: they read as
            // zero.
            None if numbered(name, "%envreg", 32) && Special::from_name(name).is_none() => Operand::Int(0),
            None if numbered(name, "%pm", 8) || numbered(name.trim_end_matches("_64"), "%pm", 8) => Operand::Int(0),
            None if name.starts_with('%') => Operand::Special(self.special(name, line)?),
            None if (self.is_global)(name) => self.symbol(name.to_owned())?,
            None => return Ok(Parsed::Name(name)),
        };
        Ok(Parsed::Operand(operand))
    }

    /// What follows `|`, if it is next.
    fn second_destination(&mut self) -> Result<Option<Option<RegId>>, ParseError> {
        if !self.cursor.accept('|')? {
            return Ok(None);
        }
        if self.cursor.peek().kind == Kind::Word("_") {
            self.cursor.next()?;
            return Ok(Some(None));
        }
        Ok(Some(Some(self.register()?)))
    }

    fn symbol(&mut self, name: String) -> Result<Operand, ParseError> {
        Ok(Operand::Symbol {
            name,
            offset: self.offset()?,
        })
    }

    /// A declared register.
    pub(super) fn register(&mut self) -> Result<RegId, ParseError> {
        if let Kind::Word(name) = self.cursor.peek().kind
            && let Some(Meaning::Register(register)) = self.scopes.find(self.scopes.current(), name)
        {
            self.cursor.next()?;
            return Ok(register);
        }
        self.cursor.unexpected("a declared register")
    }

    /// A special register whose first part has been taken.
    fn special(&mut self, name: &str, line: u32) -> Result<Special, ParseError> {
        let whole = match self.cursor.peek().kind {
            Kind::Dot(axis) => {
                self.cursor.next()?;
                format!("{name}.{axis}")
            }
            _ => name.to_owned(),
        };
        match Special::from_name(&whole) {
            Some(special) => Ok(special),
            None => fail(
                line,
                format!("{whole} is neither a declared register nor a special register known here"),
            ),
        }
    }

    /// `{a, b, …}`
    fn vector(&mut self) -> Result<Operand, ParseError> {
        Ok(Operand::Vector(self.elements()?))
    }

    fn elements(&mut self) -> Result<Vec<Operand>, ParseError> {
        self.cursor.expect('{')?;
        let mut elements = Vec::new();
        loop {
            elements.push(self.element()?);
            if elements.len() > MAX_ELEMENTS {
                return self
                    .cursor
                    .unexpected(&format!("at most {MAX_ELEMENTS} elements in braces"));
            }
            if !self.cursor.accept(',')? {
                self.cursor.expect('}')?;
                return Ok(elements);
            }
        }
    }

    fn element(&mut self) -> Result<Operand, ParseError> {
        let line = self.cursor.peek().line;
        let Kind::Word(name) = self.cursor.peek().kind else {
            return self.constant();
        };
        match self.named(name)? {
            Parsed::Operand(operand @ (Operand::Reg(_) | Operand::Special(_) | Operand::Int(_) | Operand::Discard)) => {
                Ok(operand)
            }
            _ => fail(
                line,
                format!("{name} cannot be an element of a vector: it is not a declared register"),
            ),
        }
    }

    /// `[base + offset]` or `[map + offset, {c0, …}]`
    fn address(&mut self) -> Result<Operand, ParseError> {
        self.cursor.expect('[')?;
        let address = self.base_and_offset()?;
        if self.cursor.accept(',')? {
            let coordinates = self.elements()?;
            self.cursor.expect(']')?;
            return Ok(Operand::Tensor {
                map: address,
                coordinates,
            });
        }
        self.cursor.expect(']')?;
        Ok(Operand::Address(address))
    }

    fn base_and_offset(&mut self) -> Result<Address, ParseError> {
        let base = match self.cursor.peek().kind {
            Kind::Int(value) => {
                self.cursor.next()?;
                return Ok(Address {
                    base: AddrBase::Absolute,
                    offset: value as i64,
                });
            }
            Kind::Word(name) => match self.scopes.find(self.scopes.current(), name) {
                Some(Meaning::Register(register)) => AddrBase::Reg(register),
                Some(Meaning::Variable(unique)) => AddrBase::Symbol(unique),
                None if (self.is_global)(name) => AddrBase::Symbol(name.to_owned()),
                _ => {
                    return self
                        .cursor
                        .unexpected("a declared register, variable or parameter in the address");
                }
            },
            _ => {
                return self
                    .cursor
                    .unexpected("a register, variable, parameter or number in the address");
            }
        };
        self.cursor.next()?;
        Ok(Address {
            base,
            offset: self.offset()?,
        })
    }

    /// `+ n`, `- n`, `+ -n`, or nothing.
    fn offset(&mut self) -> Result<i64, ParseError> {
        let plus = self.cursor.accept('+')?;
        let negative = self.cursor.accept('-')?;
        if !plus && !negative {
            return Ok(0);
        }
        let line = self.cursor.peek().line;
        let magnitude = self.cursor.integer("a number of bytes")?;
        match i64::try_from(magnitude) {
            Ok(offset) => Ok(if negative { -offset } else { offset }),
            Err(_) => fail(line, format!("offset {magnitude} is too large")),
        }
    }
}
