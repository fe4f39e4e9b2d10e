//! Declarations of variables and parameters.

use super::ParseError;
use super::ast::{Param, Pointer, Space, Type, Var};
use super::cursor::{Cursor, fail};
use super::lexer::Kind;

/// Largest variable in bytes: more than any device has.
const MAX_VARIABLE: u64 = 1 << 40;
/// Largest alignment in bytes that a declaration may ask for.
const MAX_ALIGN: u64 = 1 << 16;
/// Bytes of parameters that one kernel may take.
const MAX_PARAMS: u32 = 32764;

/// What stands between a space and the first name: alignment and element type.
struct Element {
    align: u32,
    ty: Type,
    /// 2 or 4 for a vector.
    lanes: u32,
}

/// Declares each variable of a statement such as `.shared .align 16 .b8 a[64], b[32];`, the space already taken.
pub(super) fn variables<'t>(
    cursor: &mut Cursor<'t>,
    space: Space,
    external: bool,
    mut declare: impl FnMut(&'t str, Var) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let element = element(cursor)?;
    cursor.list(';', |cursor| {
        let line = cursor.peek().line;
        let name = cursor.word("a variable's name")?;
        let bytes = element.ty.bytes() * element.lanes;
        let mut size = dimensions(cursor, bytes)?;
        let (mut init, mut pointers) = (Vec::new(), Vec::new());
        if cursor.accept('=')? {
            if !matches!(space, Space::Global | Space::Const) {
                return fail(
                    line,
                    format!("{name}: only .global and .const variables may have an initial value"),
                );
            }
            initial_values(cursor, element.ty, size, &mut init, &mut pointers)?;
            size = size.max(init.len() as u64);
        }
        if size == 0 && !external {
            return fail(
                line,
                format!("{name} has no size: only .extern variables may leave it out"),
            );
        }
        declare(
            name,
            Var {
                name: name.to_owned(),
                space,
                align: element.align,
                size,
                external,
                init,
                pointers,
                line,
            },
        )
    })
}

/// `[.align N] [.v2|.v4] .type`
fn element(cursor: &mut Cursor<'_>) -> Result<Element, ParseError> {
    managed(cursor)?;
    let align = if cursor.accept_dot("align")? {
        Some(alignment(cursor)?)
    } else {
        None
    };
    managed(cursor)?;
    let lanes = match cursor.peek().kind {
        Kind::Dot("v2") => 2,
        Kind::Dot("v4") => 4,
        _ => 1,
    };
    if lanes > 1 {
        cursor.next()?;
    }
    let ty = memory_type(cursor)?;
    Ok(Element {
        align: align.unwrap_or(ty.bytes() * lanes),
        ty,
        lanes,
    })
}

/// `.attribute(.managed)`, if it is next: managed memory is like any other here.
fn managed(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    if cursor.accept_dot("attribute")? {
        cursor.expect('(')?;
        if !cursor.accept_dot("managed")? {
            return cursor.unexpected("`.managed`");
        }
        cursor.expect(')')?;
    }
    Ok(())
}

fn alignment(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    let line = cursor.peek().line;
    match cursor.integer("a number after .align")? {
        align if align.is_power_of_two() && align <= MAX_ALIGN => Ok(align as u32),
        align => fail(
            line,
            format!("alignment {align} is not a power of two up to {MAX_ALIGN}"),
        ),
    }
}

/// A type, as `.reg` and variables name it.
pub(super) fn data_type(cursor: &mut Cursor<'_>) -> Result<Type, ParseError> {
    let Kind::Dot(name) = cursor.peek().kind else {
        return cursor.unexpected("a type");
    };
    let Some(ty) = Type::from_name(name) else {
        return cursor.unexpected("a type that this emulator knows");
    };
    cursor.next()?;
    Ok(ty)
}

fn memory_type(cursor: &mut Cursor<'_>) -> Result<Type, ParseError> {
    let line = cursor.peek().line;
    match data_type(cursor)? {
        Type::Pred => fail(line, "predicates cannot live in memory"),
        ty => Ok(ty),
    }
}

/// The bytes of `[2][3]`-like dimensions; 0 if the first is left out.
fn dimensions(cursor: &mut Cursor<'_>, element_bytes: u32) -> Result<u64, ParseError> {
    let mut size = u64::from(element_bytes);
    while cursor.accept('[')? {
        let line = cursor.peek().line;
        if cursor.accept(']')? {
            size = 0;
            continue;
        }
        let count = cursor.integer("an array's length")?;
        cursor.expect(']')?;
        match size.checked_mul(count) {
            Some(bytes) if bytes <= MAX_VARIABLE => size = bytes,
            _ => {
                return fail(
                    line,
                    format!("an array of {count} elements is larger than {MAX_VARIABLE} bytes"),
                );
            }
        }
    }
    Ok(size)
}

/// The initial value after `=`: one number, or numbers in braces that may nest. `size` 0 means as many as there are.
fn initial_values(
    cursor: &mut Cursor<'_>,
    ty: Type,
    size: u64,
    bytes: &mut Vec<u8>,
    pointers: &mut Vec<Pointer>,
) -> Result<(), ParseError> {
    let mut depth = 0u32;
    loop {
        while cursor.accept('{')? {
            depth += 1;
        }
        let line = cursor.peek().line;
        if cursor.peek().kind != Kind::Punct('}') {
            match cursor.peek().kind {
                Kind::Word(_) => pointers.push(pointer(cursor, ty, bytes)?),
                _ => initial_value(cursor, ty, bytes)?,
            }
        }
        if size > 0 && bytes.len() as u64 > size {
            return fail(
                line,
                format!("more initial values than the {size} bytes of the variable hold"),
            );
        }
        while depth > 0 && cursor.accept('}')? {
            depth -= 1;
        }
        if depth == 0 {
            return Ok(());
        }
        if !cursor.accept(',')? {
            return cursor.unexpected("`,` or `}` in the initial value");
        }
    }
}

/// `name`, `name + 4` or `generic(name)`: an address. Variables' own addresses are generic ones here.
fn pointer(cursor: &mut Cursor<'_>, ty: Type, bytes: &mut Vec<u8>) -> Result<Pointer, ParseError> {
    let line = cursor.peek().line;
    if ty.bits() != 64 {
        return fail(line, format!("an address takes 64 bits and does not fit .{ty}"));
    }
    let mut name = cursor.word("the name of a variable or function")?;
    let generic = name == "generic" && cursor.accept('(')?;
    if generic {
        name = cursor.word("the name of a variable or function")?;
        cursor.expect(')')?;
    }
    let negative = cursor.accept('-')?;
    let mut offset = 0;
    if negative || cursor.accept('+')? {
        let line = cursor.peek().line;
        let bytes = cursor.integer("a number of bytes")?;
        let bytes = i64::try_from(bytes).or_else(|_| fail(line, format!("offset {bytes} is too large")))?;
        offset = if negative { -bytes } else { bytes };
    }
    let at = bytes.len() as u64;
    bytes.extend([0; 8]);
    Ok(Pointer {
        at,
        name: name.to_owned(),
        offset,
        line,
    })
}

fn initial_value(cursor: &mut Cursor<'_>, ty: Type, bytes: &mut Vec<u8>) -> Result<(), ParseError> {
    let negative = cursor.accept('-')?;
    let line = cursor.peek().line;
    let float = matches!(ty, Type::F32 | Type::F64);
    let bits = match (cursor.peek().kind, negative) {
        (Kind::Int(value), false) if !float => value,
        (Kind::Int(value), true) if !float => value.wrapping_neg(),
        (Kind::F32(bits), _) if ty == Type::F32 => u64::from(bits ^ (u32::from(negative) << 31)),
        (Kind::F64(bits), _) if float => {
            let value = f64::from_bits(bits ^ (u64::from(negative) << 63));
            if ty == Type::F64 {
                value.to_bits()
            } else {
                u64::from((value as f32).to_bits())
            }
        }
        _ => return cursor.unexpected(&format!("a number of type .{ty}")),
    };
    cursor.next()?;
    let width = ty.bytes() as usize;
    match bits.to_le_bytes().get(..width) {
        Some(value) => bytes.extend_from_slice(value),
        None => return fail(line, format!("initial values of type .{ty} are not supported")),
    }
    Ok(())
}

/// One parameter of a kernel, placed after those before it.
pub(super) fn parameter<'t>(cursor: &mut Cursor<'t>, params: &mut Vec<Param>) -> Result<&'t str, ParseError> {
    let start = cursor.peek().start;
    if !cursor.accept_dot("param")? {
        return cursor.unexpected("`.param`");
    }
    let element = element(cursor)?;
    // What a pointer parameter points at is a promise to the compiler, of no consequence for the launch.
    let mut points_into = None;
    if cursor.accept_dot("ptr")? {
        points_into = match cursor.peek().kind {
            Kind::Dot("global") => Some(Space::Global),
            Kind::Dot("const") => Some(Space::Const),
            Kind::Dot("shared") => Some(Space::Shared),
            Kind::Dot("local") => Some(Space::Local),
            _ => None,
        };
        if points_into.is_some() {
            cursor.next()?;
        }
        if cursor.accept_dot("align")? {
            alignment(cursor)?;
        }
    }
    let line = cursor.peek().line;
    let name = cursor.word("a parameter's name")?;
    let size = dimensions(cursor, element.ty.bytes() * element.lanes)?;
    let end = params.last().map_or(0, |last| last.offset + last.size);
    let offset = end.next_multiple_of(element.align);
    match u32::try_from(size) {
        Ok(0) => fail(line, format!("parameter {name} has no size")),
        Ok(size) if size <= MAX_PARAMS && offset <= MAX_PARAMS - size => {
            params.push(Param {
                name: name.to_owned(),
                size,
                align: element.align,
                offset,
                points_into,
                line,
                source: start..cursor.end(),
            });
            Ok(name)
        }
        _ => fail(
            line,
            format!("parameter {name} exceeds the {MAX_PARAMS} bytes of parameters that a kernel may take"),
        ),
    }
}
