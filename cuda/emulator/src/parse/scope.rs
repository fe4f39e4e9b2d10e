//! What names mean, scope by scope. Inner declarations hide outer ones; registers, variables and labels share one
//! set of names.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::ParseError;
use super::ast::RegId;
use super::cursor::fail;

/// How deep blocks may nest.
const MAX_DEPTH: u32 = 32;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    Register(RegId),
    /// A variable or parameter, under the name that the syntax tree gives it.
    Variable(String),
    Label(usize),
    /// A `.branchtargets` list, by its number.
    Targets(usize),
    /// A `.callprototype` or `.calltargets` list.
    Callees,
}

/// A scope of one kernel, by its number; 0 is the kernel's outermost.
pub(super) type ScopeId = usize;

/// Registers declared together as `%r<count>`.
struct Range {
    first: u32,
    count: u32,
}

struct Scope {
    parent: Option<ScopeId>,
    depth: u32,
}

/// The names of one kernel.
pub(super) struct Scopes<'t> {
    scopes: Vec<Scope>,
    current: ScopeId,
    names: HashMap<(ScopeId, &'t str), Meaning>,
    ranges: HashMap<(ScopeId, &'t str), Range>,
    /// How many variables have taken a name so far, in order to tell them apart.
    uses: HashMap<&'t str, u32>,
}

impl<'t> Scopes<'t> {
    pub(super) fn new() -> Self {
        Scopes {
            scopes: vec![Scope { parent: None, depth: 0 }],
            current: 0,
            names: HashMap::new(),
            ranges: HashMap::new(),
            uses: HashMap::new(),
        }
    }

    pub(super) fn current(&self) -> ScopeId {
        self.current
    }

    /// Enters a new scope.
    pub(super) fn open(&mut self, line: u32) -> Result<(), ParseError> {
        let depth = self.scopes[self.current].depth + 1;
        if depth > MAX_DEPTH {
            return fail(line, format!("blocks nest deeper than {MAX_DEPTH}"));
        }
        self.scopes.push(Scope {
            parent: Some(self.current),
            depth,
        });
        self.current = self.scopes.len() - 1;
        Ok(())
    }

    /// Leaves the current scope; false if it is the outermost.
    pub(super) fn close(&mut self) -> bool {
        match self.scopes[self.current].parent {
            Some(parent) => {
                self.current = parent;
                true
            }
            None => false,
        }
    }

    pub(super) fn declare(&mut self, name: &'t str, meaning: Meaning, line: u32) -> Result<(), ParseError> {
        match self.names.entry((self.current, name)) {
            Slot::Vacant(slot) => {
                slot.insert(meaning);
                Ok(())
            }
            Slot::Occupied(_) => fail(line, format!("{name} is declared twice in one block")),
        }
    }

    /// Declares a variable and returns the name that the syntax tree gives it. `taken` says whether the module
    /// already has a variable of that name.
    pub(super) fn declare_variable(&mut self, name: &'t str, taken: bool, line: u32) -> Result<String, ParseError> {
        let uses = self.uses.entry(name).or_insert(u32::from(taken));
        *uses += 1;
        let unique = if *uses == 1 {
            name.to_owned()
        } else {
            format!("{name}#{uses}")
        };
        self.declare(name, Meaning::Variable(unique.clone()), line)?;
        Ok(unique)
    }

    /// Declares registers `prefix0`, `prefix1`, …
    pub(super) fn declare_range(
        &mut self,
        prefix: &'t str,
        first: u32,
        count: u32,
        line: u32,
    ) -> Result<(), ParseError> {
        match self.ranges.insert((self.current, prefix), Range { first, count }) {
            None => Ok(()),
            Some(_) => fail(line, format!("{prefix}<…> is declared twice in one block")),
        }
    }

    /// What `name` means in `scope`.
    pub(super) fn find(&self, scope: ScopeId, name: &str) -> Option<Meaning> {
        let mut scope = Some(scope);
        while let Some(id) = scope {
            if let Some(meaning) = self.names.get(&(id, name)) {
                return Some(meaning.clone());
            }
            if let Some(register) = self.find_in_range(id, name) {
                return Some(Meaning::Register(register));
            }
            scope = self.scopes[id].parent;
        }
        None
    }

    /// The register that `name` is if a range declares it: its prefix may itself end in digits.
    fn find_in_range(&self, scope: ScopeId, name: &str) -> Option<RegId> {
        if self.ranges.is_empty() {
            return None;
        }
        let digits = name.bytes().rev().take(10).take_while(u8::is_ascii_digit).count();
        (1..=digits).find_map(|length| {
            let (prefix, number) = name.split_at(name.len() - length);
            if length > 1 && number.starts_with('0') {
                return None;
            }
            let range = self.ranges.get(&(scope, prefix))?;
            let number: u32 = number.parse().ok()?;
            (number < range.count).then_some(RegId(range.first + number))
        })
    }
}
