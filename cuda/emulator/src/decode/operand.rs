//! Operands: registers, constants, addresses.

use super::place::Symbol;
use super::{Decoder, Refusal, Result, Slot};
use crate::num::{self, Format, Mode};
use crate::parse::{self, AddrBase, Inst as Source, Operand, RegId, Type};
use crate::program::{
    Address, CONSTANT, FULL, FUNCTION_STRIDE, FUNCTION_WINDOW, Op, PARAM_WINDOW, PredSource, Reg, Relocation, Space,
    WARP,
};

/// The names of variables and parameters that an instruction mentions.
pub(super) fn names(source: &Source) -> impl Iterator<Item = &str> {
    source.operands.iter().filter_map(|operand| match operand {
        Operand::Symbol { name, .. } => Some(name.as_str()),
        Operand::Address(address) | Operand::Tensor { map: address, .. } => match &address.base {
            AddrBase::Symbol(name) => Some(name.as_str()),
            _ => None,
        },
        _ => None,
    })
}

impl Decoder<'_> {
    fn slot(&self, id: RegId) -> Result<Slot> {
        self.slots
            .get(id.0 as usize)
            .copied()
            .ok_or_else(|| "a register is not declared".into())
    }

    pub(super) fn pred_index(&self, id: RegId) -> Result<u32> {
        match self.slot(id)? {
            Slot { ty: Type::Pred, index } => Ok(index),
            Slot { ty, .. } => Err(format!("a predicate is wanted where a .{ty} register stands")),
        }
    }

    /// A register that is no predicate, and its width.
    pub(super) fn register(&self, id: RegId) -> Result<(Reg, u32)> {
        match self.slot(id)? {
            Slot { ty: Type::Pred, .. } => Err("a predicate stands where a register is wanted".into()),
            Slot { ty: Type::B128, .. } => Err("a register of 128 bits stands where a smaller one is wanted".into()),
            Slot { ty, index } => Ok((index, ty.bits())),
        }
    }

    /// The lower and the upper half of a register of 128 bits.
    pub(super) fn wide_register(&self, operand: &Operand) -> Result<[Reg; 2]> {
        match operand {
            Operand::Reg(id) => match self.slot(*id)? {
                Slot { ty: Type::B128, index } => Ok([index, index + 1]),
                Slot { ty, .. } => Err(format!("a .{ty} register stands where one of 128 bits is wanted")),
            },
            _ => Err("a register of 128 bits is wanted".into()),
        }
    }

    /// A register for a value on its way.
    pub(super) fn temporary(&mut self) -> Reg {
        self.registers += 1;
        self.registers - 1
    }

    pub(super) fn temporary_predicate(&mut self) -> u32 {
        self.predicates += 1;
        self.predicates - 1
    }

    /// A constant, as a register.
    pub(super) fn constant(&mut self, value: u64) -> Reg {
        let next = self.constants.len() as u32;
        let index = *self.constant_of.entry(value).or_insert(next);
        if index == next {
            self.constants.push([value; WARP]);
        }
        CONSTANT + index
    }

    /// The address of a variable plus an offset, as a register.
    fn symbol(&mut self, name: &str, offset: i64) -> Result<(Symbol, Reg)> {
        let symbol = *(self.symbols.iter())
            .find_map(|symbols| symbols.get(name))
            .ok_or_else(|| format!("`{name}` is not declared"))?;
        let reg = match symbol {
            Symbol::Local(at, _) if self.in_function => {
                let d = self.temporary();
                let offset = at.wrapping_add(offset as u64);
                self.ops.push(Op::FrameAddress { d, offset });
                d
            }
            Symbol::Function(number) => {
                let address = FUNCTION_WINDOW + u64::from(number) * FUNCTION_STRIDE;
                self.constant(address.wrapping_add(offset as u64))
            }
            Symbol::Shared(at) | Symbol::Local(at, _) | Symbol::Param(at) => {
                self.constant(at.wrapping_add(offset as u64))
            }
            Symbol::Variable(variable) => {
                let constant = self.constants.len() as u32;
                self.constants.push([0; WARP]);
                self.relocations.push(Relocation {
                    constant,
                    variable,
                    offset,
                });
                CONSTANT + constant
            }
        };
        Ok((symbol, reg))
    }

    /// The operands, which must be this many.
    pub(super) fn operands<'s, const N: usize>(&self, source: &'s Source) -> Result<[&'s Operand; N]> {
        let operands: Vec<&Operand> = source.operands.iter().collect();
        let given = operands.len();
        operands
            .try_into()
            .map_err(|_| format!("{N} operands are wanted, {given} are given"))
    }

    /// A destination of exactly so many bits.
    pub(super) fn target(&self, operand: &Operand, bits: u32) -> Result<Reg> {
        match operand {
            Operand::Reg(id) => match self.register(*id)? {
                (reg, width) if width == bits => Ok(reg),
                (_, width) => Err(format!("a destination of {width} bits where {bits} are written")),
            },
            _ => Err("the destination must be a register".into()),
        }
    }

    /// A destination of at least so many bits, and its width.
    pub(super) fn wide_target(&self, operand: &Operand, bits: u32) -> Result<(Reg, u32)> {
        match operand {
            Operand::Reg(id) => match self.register(*id)? {
                (reg, width) if width >= bits => Ok((reg, width)),
                (_, width) => Err(format!("a destination of {width} bits where {bits} are written")),
            },
            _ => Err("the destination must be a register".into()),
        }
    }

    /// A destination that may be `_`.
    pub(super) fn optional_target(&self, operand: &Operand, bits: u32) -> Result<Option<Reg>> {
        match operand {
            Operand::Discard => Ok(None),
            operand => self.target(operand, bits).map(Some),
        }
    }

    /// A source of a type: a register of exactly its width, a constant, a special register or a variable's address.
    pub(super) fn source(&mut self, operand: &Operand, ty: Type) -> Result<Reg> {
        let (reg, width) = self.any_source(operand, ty)?;
        if width != ty.bits() {
            return Err(format!("an operand of {width} bits where .{ty} wants {}", ty.bits()));
        }
        Ok(reg)
    }

    /// A source of at least a type's width, of which the low bits count.
    pub(super) fn wide_source(&mut self, operand: &Operand, ty: Type) -> Result<Reg> {
        let (reg, width) = self.any_source(operand, ty)?;
        if width < ty.bits() {
            return Err(format!("an operand of {width} bits where .{ty} wants {}", ty.bits()));
        }
        Ok(reg)
    }

    fn any_source(&mut self, operand: &Operand, ty: Type) -> Result<(Reg, u32)> {
        let bits = ty.bits();
        let value = match operand {
            Operand::Reg(id) => return self.register(*id),
            Operand::Int(value) => match format_of(ty) {
                // An integer literal in a floating-point instruction means its value.
                Some(format) => num::int_to_float(
                    *value as u64,
                    num::Int { bits: 64, signed: true },
                    format,
                    Mode::default(),
                ),
                None => *value as u64,
            },
            Operand::F32(value) => match format_of(ty) {
                Some(format) => num::float_to_float(u64::from(*value), Format::F32, format, Mode::default()),
                None => u64::from(*value),
            },
            Operand::F64(value) => match format_of(ty) {
                Some(format) => num::float_to_float(*value, Format::F64, format, Mode::default()),
                None => *value,
            },
            Operand::Special(special) => {
                let reg = self.temporary();
                self.ops.push(Op::Special(*special, reg));
                return Ok((reg, bits));
            }
            Operand::Symbol { name, offset } => {
                let (_, reg) = self.symbol(name, *offset)?;
                return Ok((reg, bits));
            }
            _ => return Err("a register or a constant is wanted".into()),
        };
        Ok((self.constant(low_bits(value, bits)), bits))
    }

    /// A predicate as a source.
    pub(super) fn pred_source(&self, operand: &Operand) -> Result<PredSource> {
        match operand {
            Operand::Reg(id) => Ok(PredSource {
                index: self.pred_index(*id)?,
                flip: 0,
            }),
            Operand::NotReg(id) => Ok(PredSource {
                index: self.pred_index(*id)?,
                flip: FULL,
            }),
            Operand::Int(value) => Ok(PredSource {
                index: 0,
                flip: if *value != 0 { FULL } else { 0 },
            }),
            _ => Err("a predicate is wanted".into()),
        }
    }

    pub(super) fn pred_target(&self, operand: &Operand) -> Result<u32> {
        match operand {
            Operand::Reg(id) => self.pred_index(*id),
            _ => Err("the destination must be a predicate".into()),
        }
    }

    /// The two destinations of `d|p`, or the one of `d`, first a register of so many bits and then a predicate.
    pub(super) fn target_and_pred(&self, operand: &Operand, bits: u32) -> Result<(Option<Reg>, Option<u32>)> {
        match operand {
            Operand::Pair(d, p) => {
                let d = d.map(|id| self.target(&Operand::Reg(id), bits)).transpose()?;
                let p = p.map(|id| self.pred_index(id)).transpose()?;
                Ok((d, p))
            }
            other => Ok((self.optional_target(other, bits)?, None)),
        }
    }

    /// An address operand in a space. Names of parameters and variables count in their own space.
    pub(super) fn address(&mut self, operand: &Operand, space: Space) -> Result<Address> {
        match operand {
            Operand::Address(address) => self.address_in(address, space),
            _ => Err("an address in brackets is wanted".into()),
        }
    }

    pub(super) fn address_in(&mut self, address: &parse::Address, space: Space) -> Result<Address> {
        let mut space = space;
        let (base, offset) = match &address.base {
            AddrBase::Reg(id) => match self.register(*id)? {
                (reg, 32 | 64) => (reg, address.offset),
                (_, width) => return Err(format!("an address register of {width} bits; 32 or 64 are wanted")),
            },
            AddrBase::Absolute => (self.constant(address.offset as u64), 0),
            AddrBase::Symbol(name) => {
                let (symbol, reg) = self.symbol(name, address.offset)?;
                let fits = match symbol {
                    Symbol::Shared(_) => matches!(space, Space::Shared | Space::Cluster),
                    // By `.param` variables functions and their callers pass values; these live in local memory too.
                    Symbol::Local(..) => matches!(space, Space::Local | Space::Param),
                    Symbol::Function(_) => false,
                    Symbol::Param(_) => space == Space::Param,
                    Symbol::Variable(_) => matches!(space, Space::Global | Space::Generic),
                };
                if !fits {
                    return Err(format!("`{name}` does not live in the instruction's state space"));
                }
                if let Symbol::Local(..) = symbol {
                    space = Space::Local;
                }
                (reg, 0)
            }
        };
        Ok(Address { space, base, offset })
    }

    /// The elements of a vector operand, or the one of a scalar; `None` for `_`.
    pub(super) fn elements<'s>(&self, operand: &'s Operand) -> Vec<&'s Operand> {
        match operand {
            Operand::Vector(elements) => elements.iter().collect(),
            other => vec![other],
        }
    }

    /// An integer that must be written as a constant.
    pub(super) fn literal(&self, operand: &Operand) -> Result<i64> {
        match operand {
            Operand::Int(value) => Ok(*value),
            _ => Err("a constant is wanted".into()),
        }
    }
}

/// The floating-point format of a type, if it is one of a single value.
pub(super) fn format_of(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16 => Format::F16,
        Type::Bf16 => Format::Bf16,
        Type::Tf32 => Format::Tf32,
        Type::F32 => Format::F32,
        Type::F64 => Format::F64,
        _ => return None,
    })
}

/// An integer or untyped type as an integer.
pub(super) fn int_of(ty: Type) -> Option<num::Int> {
    let signed = match ty {
        Type::S8 | Type::S16 | Type::S32 | Type::S64 => true,
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => false,
        Type::B8 | Type::B16 | Type::B32 | Type::B64 => false,
        _ => return None,
    };
    Some(num::Int {
        bits: ty.bits(),
        signed,
    })
}

/// The refusal of a type that an instruction does not have.
pub(super) fn no_type(ty: Type) -> Refusal {
    format!("type .{ty} is not supported here")
}

/// The low `bits` bits, of 1 to 64.
#[inline]
pub(super) fn low_bits(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

/// Where the window of a space starts among the generic addresses.
pub(super) fn window(space: Space) -> u64 {
    match space {
        Space::Shared | Space::Cluster => crate::program::SHARED_WINDOW,
        Space::Local => crate::program::LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Global | Space::Generic => 0,
    }
}
