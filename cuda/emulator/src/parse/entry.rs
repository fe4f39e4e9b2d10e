//! Kernels: header, statements, and the labels that are known only at the end.

use super::ast::{Entry, EntrySource, Inst, Operand, RegId, Space, Type, Var};
use super::cursor::{Cursor, fail};
use super::lexer::{Kind, Token, shorten};
use super::operand::{Operands, Parsed};
use super::scope::{Meaning, ScopeId, Scopes};
use super::variable::{data_type, parameter, variables};
use super::{Budget, ParseError, debug};

/// A name that must turn out to be a label.
struct Pending<'t> {
    name: &'t str,
    scope: ScopeId,
    line: u32,
}

/// A kernel or function while it is being read.
pub(super) struct Body<'a, 't> {
    pub(super) cursor: &'a mut Cursor<'t>,
    budget: &'a mut Budget,
    is_global: &'a dyn Fn(&str) -> bool,
    pub(super) scopes: Scopes<'t>,
    pub(super) registers: Vec<Type>,
    pub(super) shared: Vec<Var>,
    pub(super) local: Vec<Var>,
    pub(super) insts: Vec<Inst>,
    /// Operands that are labels: which instruction's, which operand.
    labels: Vec<(usize, usize, Pending<'t>)>,
    /// Operands that are `.branchtargets` lists: which instruction's, which operand, which list.
    target_uses: Vec<(usize, usize, usize)>,
    targets: Vec<Vec<Pending<'t>>>,
}

/// Reads a kernel; `.entry` has been taken.
pub(super) fn entry<'t>(
    cursor: &mut Cursor<'t>,
    budget: &mut Budget,
    is_global: &dyn Fn(&str) -> bool,
) -> Result<Entry, ParseError> {
    let line = cursor.peek().line;
    let name = cursor.word("a kernel's name")?;
    let mut entry = Entry {
        name: name.to_owned(),
        line,
        ..Entry::default()
    };
    let mut scopes = Scopes::new();
    let mut source = EntrySource::default();
    source.parameters.start = match cursor.peek() {
        token if token.kind == Kind::Punct('(') => token.start,
        _ => cursor.end(),
    };
    if cursor.accept('(')? && !cursor.accept(')')? {
        cursor.list(')', |cursor| {
            let line = cursor.peek().line;
            let name = parameter(cursor, &mut entry.params)?;
            if is_global(name) {
                return fail(
                    line,
                    format!("parameter {name} has the name of a variable of the module"),
                );
            }
            scopes.declare_variable(name, false, line).map(drop)
        })?;
    }
    source.parameters.end = cursor.end();
    source.directives = cursor.end()..cursor.end();
    if cursor.peek().kind != Kind::Punct('{') {
        source.directives.start = cursor.peek().start;
        header(cursor, &mut entry)?;
        source.directives.end = cursor.end();
    }
    source.body.start = cursor.peek().start;
    cursor.expect('{')?;
    let mut body = Body::new(cursor, budget, is_global, scopes);
    body.statements()?;
    body.resolve_labels()?;
    source.body.end = body.cursor.end();
    Ok(Entry {
        source,
        registers: body.registers,
        shared: body.shared,
        local: body.local,
        body: body.insts,
        ..entry
    })
}

/// The directives between parameters and body, up to the opening brace.
fn header(cursor: &mut Cursor<'_>, entry: &mut Entry) -> Result<(), ParseError> {
    while cursor.peek().kind != Kind::Punct('{') {
        let Kind::Dot(directive) = cursor.peek().kind else {
            return cursor.unexpected("the kernel's body in braces");
        };
        match directive {
            "maxntid" | "reqntid" | "reqnctapercluster" | "minnctapersm" | "maxnreg" | "maxclusterrank"
            | "explicitcluster" | "pragma" => cursor.next()?,
            _ => return cursor.unexpected("a directive for kernels that this emulator knows"),
        };
        let what = "a number after the directive";
        match directive {
            "maxntid" => entry.max_threads = Some(cursor.dimensions(directive)?),
            "reqntid" => entry.required_threads = Some(cursor.dimensions(directive)?),
            "reqnctapercluster" => entry.required_cluster = Some(cursor.dimensions(directive)?),
            "minnctapersm" => entry.min_ctas = Some(cursor.integer32(what)?),
            "maxnreg" => entry.max_registers = Some(cursor.integer32(what)?),
            "maxclusterrank" => entry.max_cluster_rank = Some(cursor.integer32(what)?),
            "explicitcluster" => entry.explicit_cluster = true,
            _ => debug::pragma(cursor)?,
        }
    }
    Ok(())
}

impl<'a, 't> Body<'a, 't> {
    pub(super) fn new(
        cursor: &'a mut Cursor<'t>,
        budget: &'a mut Budget,
        is_global: &'a dyn Fn(&str) -> bool,
        scopes: Scopes<'t>,
    ) -> Self {
        Body {
            cursor,
            budget,
            is_global,
            scopes,
            registers: Vec::new(),
            shared: Vec::new(),
            local: Vec::new(),
            insts: Vec::new(),
            labels: Vec::new(),
            target_uses: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Every statement up to the brace that ends the body.
    pub(super) fn statements(&mut self) -> Result<(), ParseError> {
        loop {
            let token = self.cursor.peek();
            match token.kind {
                Kind::Punct('{') => {
                    self.cursor.next()?;
                    self.scopes.open(token.line)?;
                }
                Kind::Punct('}') => {
                    self.cursor.next()?;
                    if !self.scopes.close() {
                        return Ok(());
                    }
                }
                Kind::Punct(';') => {
                    self.cursor.next()?;
                }
                Kind::Punct('@') => {
                    self.cursor.next()?;
                    let negated = self.cursor.accept('!')?;
                    let predicate = self.operands().register()?;
                    if self.registers.get(predicate.0 as usize) != Some(&Type::Pred) {
                        return fail(token.line, "the guard of an instruction must be a predicate register");
                    }
                    let first = self.cursor.peek();
                    let word = self.cursor.word("an instruction after its guard")?;
                    self.instruction(word, first, Some((predicate, negated)))?;
                }
                Kind::Dot(directive) => {
                    self.directive(directive)?;
                }
                Kind::Word(word) => {
                    self.cursor.next()?;
                    if self.cursor.accept(':')? {
                        self.label(word, token.line)?;
                    } else {
                        self.instruction(word, token, None)?;
                    }
                }
                _ => return self.cursor.unexpected("a statement or `}`"),
            }
        }
    }

    pub(super) fn operands(&mut self) -> Operands<'_, 't> {
        Operands {
            cursor: self.cursor,
            scopes: &self.scopes,
            is_global: self.is_global,
        }
    }

    fn directive(&mut self, directive: &str) -> Result<(), ParseError> {
        let (space, external) = match directive {
            "reg" => {
                self.cursor.next()?;
                return self.register_declaration();
            }
            "pragma" => {
                self.cursor.next()?;
                return debug::pragma(self.cursor);
            }
            "loc" => {
                self.cursor.next()?;
                return debug::location(self.cursor);
            }
            "shared" => (Space::Shared, false),
            "local" => (Space::Local, false),
            "param" => (Space::Param, false),
            "extern" => (Space::Shared, true),
            _ => {
                return self
                    .cursor
                    .unexpected("a directive that this emulator knows inside a kernel");
            }
        };
        self.cursor.next()?;
        if external && !self.cursor.accept_dot("shared")? {
            return self.cursor.unexpected("`.shared` after `.extern` inside a kernel");
        }
        let (scopes, is_global) = (&mut self.scopes, self.is_global);
        // Variables by which calls pass values lie in local memory.
        let list = match space {
            Space::Shared => &mut self.shared,
            _ => &mut self.local,
        };
        variables(self.cursor, space, external, |name, var| {
            let unique = scopes.declare_variable(name, is_global(name), var.line)?;
            list.push(Var { name: unique, ..var });
            Ok(())
        })
    }

    /// `.reg .type a, %r<10>;`
    fn register_declaration(&mut self) -> Result<(), ParseError> {
        let ty = data_type(self.cursor)?;
        let (scopes, registers, budget) = (&mut self.scopes, &mut self.registers, &mut *self.budget);
        self.cursor.list(';', |cursor| {
            let line = cursor.peek().line;
            let name = cursor.word("a register's name")?;
            let range = cursor.accept('<')?;
            let count = if range {
                cursor.integer32("a number of registers")?
            } else {
                1
            };
            budget.registers.take(count as usize, line)?;
            let first = registers.len() as u32;
            registers.resize(registers.len() + count as usize, ty);
            if range {
                cursor.expect('>')?;
                scopes.declare_range(name, first, count, line)
            } else {
                scopes.declare(name, Meaning::Register(RegId(first)), line)
            }
        })
    }

    /// What follows `name:`.
    fn label(&mut self, name: &'t str, line: u32) -> Result<(), ParseError> {
        match self.cursor.peek().kind {
            Kind::Dot("branchtargets") => {
                self.cursor.next()?;
                let scope = self.scopes.current();
                let mut targets = Vec::new();
                self.cursor.list(';', |cursor| {
                    let line = cursor.peek().line;
                    targets.push(Pending {
                        name: cursor.word("a label")?,
                        scope,
                        line,
                    });
                    Ok(())
                })?;
                self.targets.push(targets);
                self.scopes
                    .declare(name, Meaning::Targets(self.targets.len() - 1), line)
            }
            Kind::Dot(list @ ("calltargets" | "callprototype")) => {
                self.cursor.next()?;
                super::function::callees(self.cursor, list)?;
                self.scopes.declare(name, Meaning::Callees, line)
            }
            _ => self.scopes.declare(name, Meaning::Label(self.insts.len()), line),
        }
    }

    /// The rest of an instruction whose first word has been taken.
    fn instruction(&mut self, word: &'t str, first: Token<'t>, guard: Option<(RegId, bool)>) -> Result<(), ParseError> {
        let line = first.line;
        self.budget.instructions.take(1, line)?;
        let mut opcode = vec![word.to_owned()];
        while let Kind::Dot(part) = self.cursor.peek().kind {
            self.cursor.next()?;
            opcode.push(part.to_owned());
        }
        let mut operands = Vec::new();
        if word == "call" {
            operands = super::function::call(self)?;
        } else if self.cursor.peek().kind != Kind::Punct(';') {
            loop {
                let line = self.cursor.peek().line;
                let (inst, operand) = (self.insts.len(), operands.len());
                operands.push(match self.operands().operand()? {
                    Parsed::Operand(operand) => operand,
                    Parsed::Name(name) => {
                        let pending = Pending {
                            name,
                            scope: self.scopes.current(),
                            line,
                        };
                        self.labels.push((inst, operand, pending));
                        Operand::Label(usize::MAX)
                    }
                    Parsed::Targets(list) => {
                        self.target_uses.push((inst, operand, list));
                        Operand::Labels(Vec::new())
                    }
                });
                if !self.cursor.accept(',')? {
                    break;
                }
            }
        }
        let text = squeeze(self.cursor.text_since(first.start));
        self.cursor.expect(';')?;
        self.insts.push(Inst {
            line,
            text,
            guard,
            opcode: opcode.into(),
            operands,
        });
        Ok(())
    }

    /// Gives every name that had to be a label its target, and every `.branchtargets` list its labels.
    pub(super) fn resolve_labels(&mut self) -> Result<(), ParseError> {
        for (inst, operand, pending) in &self.labels {
            self.insts[*inst].operands[*operand] = Operand::Label(resolve(&self.scopes, pending)?);
        }
        let mut lists = Vec::new();
        for targets in &self.targets {
            let list: Result<Vec<usize>, ParseError> =
                targets.iter().map(|pending| resolve(&self.scopes, pending)).collect();
            lists.push(list?);
        }
        for &(inst, operand, list) in &self.target_uses {
            let inst = &mut self.insts[inst];
            self.budget.targets.take(lists[list].len(), inst.line)?;
            inst.operands[operand] = Operand::Labels(lists[list].clone());
        }
        Ok(())
    }
}

fn resolve(scopes: &Scopes<'_>, pending: &Pending<'_>) -> Result<usize, ParseError> {
    match scopes.find(pending.scope, pending.name) {
        Some(Meaning::Label(target)) => Ok(target),
        _ => fail(pending.line, format!("{} is not declared", shorten(pending.name))),
    }
}

/// Blanks and comments between tokens reduced to single spaces.
fn squeeze(text: &str) -> Box<str> {
    let mut squeezed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let comment_end = match rest.get(..2) {
            Some("//") => Some("\n"),
            Some("/*") => Some("*/"),
            _ => None,
        };
        if let Some(end) = comment_end {
            // The lexer has seen the comment's end, so it is there unless the text itself ends.
            rest = rest.find(end).map_or("", |at| &rest[at + end.len()..]);
        } else {
            rest = &rest[first.len_utf8()..];
        }
        if comment_end.is_none() && !first.is_whitespace() {
            squeezed.push(first);
        } else if !squeezed.ends_with(' ') {
            squeezed.push(' ');
        }
    }
    squeezed.truncate(squeezed.trim_end().len());
    squeezed.into()
}
