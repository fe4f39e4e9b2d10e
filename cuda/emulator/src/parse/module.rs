//! The module's own level: version, target, variables and kernels.

use std::collections::{HashMap, HashSet};

use super::ast::{Module, Space};
use super::cursor::{Cursor, fail};
use super::entry::entry;
use super::function::function;
use super::lexer::Kind;
use super::variable::variables;
use super::{Budget, ParseError, debug};

/// The names of the module's own level.
#[derive(Default)]
struct Names<'t> {
    /// Of kernels and variables.
    all: HashSet<&'t str>,
    /// Of variables and functions, which operands may name.
    variables: HashSet<&'t str>,
    /// Of functions, with their place among the module's.
    functions: HashMap<&'t str, usize>,
}

impl<'t> Names<'t> {
    fn declare(&mut self, name: &'t str, line: u32) -> Result<(), ParseError> {
        if self.all.insert(name) {
            Ok(())
        } else {
            fail(line, format!("{name} is declared twice"))
        }
    }
}

pub(super) fn module(text: &str) -> Result<Module, ParseError> {
    let mut cursor = Cursor::new(text)?;
    let mut module = Module::default();
    let mut budget = Budget::default();
    let mut names = Names::default();
    head(&mut cursor, &mut module)?;
    loop {
        let directive = match cursor.peek().kind {
            Kind::End => return Ok(module),
            Kind::Punct(';') => {
                cursor.next()?;
                continue;
            }
            Kind::Dot(directive) => directive,
            Kind::Word(_) => {
                debug::label(&mut cursor)?;
                continue;
            }
            _ => return cursor.unexpected("a directive that starts with a dot"),
        };
        match directive {
            "file" | "section" | "pragma" => {
                cursor.next()?;
                match directive {
                    "file" => debug::file(&mut cursor)?,
                    "section" => debug::section(&mut cursor)?,
                    _ => debug::pragma(&mut cursor)?,
                }
            }
            _ => declaration(&mut cursor, &mut module, &mut budget, &mut names)?,
        }
    }
}

/// `.version`, `.target` and `.address_size`, which come first and in this order.
fn head(cursor: &mut Cursor<'_>, module: &mut Module) -> Result<(), ParseError> {
    let line = cursor.peek().line;
    if !cursor.accept_dot("version")? {
        return cursor.unexpected("`.version`, with which every PTX module starts");
    }
    let version = match cursor.peek() {
        token if matches!(token.kind, Kind::F64(_)) => {
            cursor.next()?;
            cursor.text_since(token.start)
        }
        _ => return cursor.unexpected("a version such as 8.0"),
    };
    let parts = version
        .split_once('.')
        .map(|(major, minor)| (major.parse(), minor.parse()));
    let Some((Ok(major), Ok(minor))) = parts else {
        return fail(line, format!("{version} is not a version such as 8.0"));
    };
    module.version = (major, minor);
    if !cursor.accept_dot("target")? {
        return cursor.unexpected("`.target` after the version");
    }
    module.target = cursor.word("a target such as sm_90a")?.to_owned();
    while cursor.accept(',')? {
        cursor.word("a target's option")?;
    }
    let line = cursor.peek().line;
    if cursor.accept_dot("address_size")? {
        let bits = cursor.integer("64")?;
        if bits != 64 {
            return fail(line, format!("addresses of {bits} bits are not supported, only of 64"));
        }
    }
    Ok(())
}

/// A function, perhaps declared before.
fn declare_function<'t>(
    cursor: &mut Cursor<'t>,
    module: &mut Module,
    budget: &mut Budget,
    names: &mut Names<'t>,
) -> Result<(), ParseError> {
    let known = |name: &str| names.variables.contains(name);
    let mut own = None;
    let function = function(cursor, budget, &known, |name, line| {
        own = Some((name, line));
        match names.all.contains(name) && !names.functions.contains_key(name) {
            true => fail(line, format!("{name} is declared twice")),
            false => Ok(()),
        }
    })?;
    let Some((name, line)) = own else { return Ok(()) };
    match names.functions.get(name) {
        Some(&at) => match (&module.functions[at].body, &function.body) {
            (Some(_), Some(_)) => return fail(line, format!("{name} is defined twice")),
            (None, Some(_)) => module.functions[at] = function,
            _ => {}
        },
        None => {
            names.all.insert(name);
            names.variables.insert(name);
            names.functions.insert(name, module.functions.len());
            module.functions.push(function);
        }
    }
    Ok(())
}

/// A variable, kernel or function, with its linkage.
fn declaration<'t>(
    cursor: &mut Cursor<'t>,
    module: &mut Module,
    budget: &mut Budget,
    names: &mut Names<'t>,
) -> Result<(), ParseError> {
    let mut external = false;
    if let Kind::Dot(linkage @ ("visible" | "weak" | "common" | "extern")) = cursor.peek().kind {
        external = linkage == "extern";
        cursor.next()?;
    }
    let Kind::Dot(directive) = cursor.peek().kind else {
        return cursor.unexpected("a declaration");
    };
    let space = match directive {
        "global" => Space::Global,
        "const" => Space::Const,
        "shared" => Space::Shared,
        "entry" if !external => {
            cursor.next()?;
            let (name, line) = match cursor.peek() {
                token if let Kind::Word(name) = token.kind => (name, token.line),
                _ => return cursor.unexpected("a kernel's name"),
            };
            if let Err(mut error) = names.declare(name, line) {
                let same = module.entries.iter().find(|entry| entry.name == name);
                error.repeated = same.map(|entry| entry.name.clone());
                return Err(error);
            }
            let entry = entry(cursor, budget, &|name| names.variables.contains(name))?;
            module.entries.push(entry);
            return Ok(());
        }
        "tex" | "texref" | "samplerref" | "surfref" => {
            return cursor.unexpected("a kernel, a function or a variable: textures and surfaces are not supported");
        }
        "func" => {
            cursor.next()?;
            return declare_function(cursor, module, budget, names);
        }
        _ => return cursor.unexpected("a kernel, a function or a variable"),
    };
    cursor.next()?;
    let globals = &mut module.globals;
    variables(cursor, space, external, |name, var| {
        names.declare(name, var.line)?;
        names.variables.insert(name);
        globals.push(var);
        Ok(())
    })
}
