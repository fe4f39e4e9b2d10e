//! Functions and calls.

use super::ast::{Formal, Function, Operand, RegId};
use super::cursor::{Cursor, fail};
use super::entry::Body;
use super::lexer::Kind;
use super::scope::{Meaning, Scopes};
use super::variable::{data_type, parameter};
use super::{Budget, ParseError, debug};

/// Reads a function, defined or only declared; `.func` has been taken. `name_it` is told its name before the body is
/// read, since it may call itself.
pub(super) fn function<'t>(
    cursor: &mut Cursor<'t>,
    budget: &mut Budget,
    is_global: &dyn Fn(&str) -> bool,
    name_it: impl FnOnce(&'t str, u32) -> Result<(), ParseError>,
) -> Result<Function, ParseError> {
    let mut function = Function::default();
    let mut scopes = Scopes::new();
    let mut registers = Vec::new();
    if cursor.peek().kind == Kind::Punct('(') {
        function.returns = formals(cursor, &mut scopes, &mut registers)?;
    }
    function.line = cursor.peek().line;
    let name = cursor.word("a function's name")?;
    function.name = name.to_owned();
    name_it(name, function.line)?;
    if cursor.peek().kind == Kind::Punct('(') {
        function.params = formals(cursor, &mut scopes, &mut registers)?;
    }
    loop {
        match cursor.peek().kind {
            Kind::Punct(';') => {
                cursor.next()?;
                return Ok(function);
            }
            Kind::Punct('{') => {
                cursor.next()?;
                break;
            }
            Kind::Dot("noreturn" | "abi_preserve" | "abi_preserve_control" | "unique") => {
                cursor.next()?;
                if let Kind::Int(_) = cursor.peek().kind {
                    cursor.next()?;
                }
            }
            Kind::Dot("pragma") => {
                cursor.next()?;
                debug::pragma(cursor)?;
            }
            _ => return cursor.unexpected("`;` or the function's body in braces"),
        }
    }
    let named = |name: &str| name == function.name || is_global(name);
    let mut body = Body::new(cursor, budget, &named, scopes);
    body.registers = registers;
    body.statements()?;
    body.resolve_labels()?;
    let (registers, shared, local, insts) = (body.registers, body.shared, body.local, body.insts);
    Ok(Function {
        registers,
        shared,
        local,
        body: Some(insts),
        ..function
    })
}

/// `(.param .b32 a, .reg .u32 b, …)`
fn formals<'t>(
    cursor: &mut Cursor<'t>,
    scopes: &mut Scopes<'t>,
    registers: &mut Vec<super::Type>,
) -> Result<Vec<Formal>, ParseError> {
    cursor.expect('(')?;
    let mut formals = Vec::new();
    if cursor.accept(')')? {
        return Ok(formals);
    }
    cursor.list(')', |cursor| {
        let line = cursor.peek().line;
        if cursor.accept_dot("reg")? {
            let ty = data_type(cursor)?;
            if ty.bits() < 8 || ty.bits() > 64 {
                return fail(line, format!("parameters of type .{ty} are not supported"));
            }
            let name = cursor.word("a parameter's name")?;
            let id = RegId(registers.len() as u32);
            registers.push(ty);
            formals.push(Formal::Register(id));
            // In declarations names may be left out.
            return if name == "_" {
                Ok(())
            } else {
                scopes.declare(name, Meaning::Register(id), line)
            };
        }
        let mut params = Vec::new();
        let name = parameter(cursor, &mut params)?;
        formals.extend(params.pop().map(Formal::Memory));
        if name == "_" {
            Ok(())
        } else {
            // The first of its name, it keeps it.
            scopes.declare_variable(name, false, line).map(drop)
        }
    })?;
    Ok(formals)
}

/// What follows `.calltargets` or `.callprototype`: checked for form. What is called must fit anyway.
pub(super) fn callees(cursor: &mut Cursor<'_>, list: &str) -> Result<(), ParseError> {
    if list == "calltargets" {
        return cursor.list(';', |cursor| cursor.word("a function's name").map(drop));
    }
    let mut scopes = Scopes::new();
    if cursor.peek().kind == Kind::Punct('(') {
        formals(cursor, &mut scopes, &mut Vec::new())?;
    }
    cursor.word("`_`")?;
    if cursor.peek().kind == Kind::Punct('(') {
        formals(cursor, &mut scopes, &mut Vec::new())?;
    }
    while let Kind::Dot("noreturn" | "abi_preserve" | "abi_preserve_control") = cursor.peek().kind {
        cursor.next()?;
        if let Kind::Int(_) = cursor.peek().kind {
            cursor.next()?;
        }
    }
    cursor.expect(';')
}

/// The operands of a call: what it returns, what is called, what it takes.
pub(super) fn call(body: &mut Body<'_, '_>) -> Result<Vec<Operand>, ParseError> {
    let mut returns = Operand::List(Vec::new());
    if body.cursor.peek().kind == Kind::Punct('(') {
        returns = body.operands().list()?;
        body.cursor.expect(',')?;
    }
    let line = body.cursor.peek().line;
    let target = match body.operands().operand()? {
        super::operand::Parsed::Operand(target @ (Operand::Reg(_) | Operand::Symbol { .. })) => target,
        _ => return fail(line, "a call names a declared function, or a register with its address"),
    };
    let mut takes = Operand::List(Vec::new());
    let mut more = body.cursor.accept(',')?;
    if more && body.cursor.peek().kind == Kind::Punct('(') {
        takes = body.operands().list()?;
        more = body.cursor.accept(',')?;
    }
    if more {
        let line = body.cursor.peek().line;
        let name = body.cursor.word("a prototype, or a list of functions")?;
        if body.scopes.find(body.scopes.current(), name) != Some(Meaning::Callees) {
            return fail(line, "expected a `.callprototype` or `.calltargets` declared before");
        }
    }
    Ok(vec![returns, target, takes])
}
