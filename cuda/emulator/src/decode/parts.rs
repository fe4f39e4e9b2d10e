//! An opcode's parts, taken one by one.

use crate::num::Rounding;
use crate::parse::{Inst as Source, Type};

/// What is left of an opcode.
pub(super) struct Parts<'a> {
    left: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Parts {
            left: source.opcode.iter().map(String::as_str).collect(),
        }
    }

    /// Takes the first part.
    pub(super) fn name(&mut self) -> &'a str {
        if self.left.is_empty() { "" } else { self.left.remove(0) }
    }

    /// Takes a part if it is there.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.any(&[name]).is_some()
    }

    /// Whether a part is there, which stays.
    pub(super) fn left_with(&self, name: &str) -> bool {
        self.left.contains(&name)
    }

    /// Takes the first part that is one of these.
    pub(super) fn any(&mut self, names: &[&str]) -> Option<&'a str> {
        let at = self.left.iter().position(|part| names.contains(part))?;
        Some(self.left.remove(at))
    }

    /// Takes a part that must be one of these.
    pub(super) fn one_of(&mut self, names: &[&str]) -> Result<&'a str, String> {
        self.any(names)
            .ok_or_else(|| format!("one of `.{}` is missing", names.join("`, `.")))
    }

    /// Takes the first type.
    pub(super) fn ty(&mut self) -> Result<Type, String> {
        let found = self
            .left
            .iter()
            .enumerate()
            .find_map(|(i, part)| Some((i, Type::from_name(part)?)));
        let (at, ty) = found.ok_or_else(|| "the type is missing".to_owned())?;
        self.left.remove(at);
        Ok(ty)
    }

    /// Takes a rounding to a format's precision, if one is there: `.rn` and its like.
    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        self.any(&["rn", "rz", "rm", "rp", "rna"]).and_then(Rounding::from_name)
    }

    /// Takes a rounding to an integral value, if one is there: `.rni` and its like.
    pub(super) fn integral_rounding(&mut self) -> Option<Rounding> {
        self.any(&["rni", "rzi", "rmi", "rpi"]).and_then(Rounding::from_name)
    }

    /// Takes all parts that start so.
    pub(super) fn drop_prefixed(&mut self, prefix: &str) {
        self.left.retain(|part| !part.starts_with(prefix));
    }

    /// The first part that nobody has taken.
    pub(super) fn end(&self) -> Result<(), &'a str> {
        self.left.first().map_or(Ok(()), |part| Err(part))
    }
}
