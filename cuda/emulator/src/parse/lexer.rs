//! Splits PTX text into tokens.

use super::ParseError;
use super::cursor::fail;

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) line: u32,
    /// Byte offsets of the token in the text.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind<'t> {
    /// An identifier, which may start with `%`, `_` or `$`.
    Word(&'t str),
    /// A dot and the name after it, without the dot: a directive, a type, a part of an opcode.
    Dot(&'t str),
    Int(u64),
    /// Bits of a single-precision constant.
    F32(u32),
    /// Bits of a double-precision constant.
    F64(u64),
    /// A string without its quotes.
    Str,
    /// Any other ASCII character that PTX gives a meaning.
    Punct(char),
    /// The end of the text.
    End,
}

const PUNCTUATION: &[u8] = b"{}()[]<>,;:=+-*/!@|~&^";

/// The characters of the text, one token at a time.
pub(super) struct Lexer<'t> {
    text: &'t str,
    position: usize,
    line: u32,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Lexer {
            text,
            position: 0,
            line: 1,
        }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        fail(self.line, message)
    }

    /// The byte `ahead` of the current position, 0 past the end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.position + ahead).copied().unwrap_or(0)
    }

    /// Moves over the bytes that satisfy `accept` and returns them.
    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'t str {
        let rest = &self.text[self.position..];
        let length = rest.bytes().position(|b| !accept(b)).unwrap_or(rest.len());
        self.position += length;
        &rest[..length]
    }

    /// Moves past `end`, or fails with `what` was left open.
    fn skip_past(&mut self, end: &str, what: &str) -> Result<(), ParseError> {
        let rest = &self.text[self.position..];
        let Some(length) = rest.find(end) else {
            return self.error(format!("{what} has no closing {end}"));
        };
        let skipped = &rest[..length + end.len()];
        self.line = self
            .line
            .saturating_add(skipped.bytes().filter(|&b| b == b'\n').count() as u32);
        self.position += skipped.len();
        Ok(())
    }

    fn skip_blanks(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.line = self.line.saturating_add(1);
                    self.position += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.position += 1,
                (b'/', b'/') => {
                    self.take_while(|b| b != b'\n');
                }
                (b'/', b'*') => {
                    self.position += 2;
                    self.skip_past("*/", "the comment")?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The next token; [`Kind::End`] for ever once the text is used up.
    pub(super) fn next(&mut self) -> Result<Token<'t>, ParseError> {
        self.skip_blanks()?;
        let (line, start) = (self.line, self.position);
        let kind = match self.byte(0) {
            _ if start == self.text.len() => Kind::End,
            b'0'..=b'9' => self.number()?,
            b'.' => {
                self.position += 1;
                match self.dotted() {
                    "" => return self.error("a dot must be followed by a name"),
                    name => Kind::Dot(name),
                }
            }
            b'"' => {
                self.position += 1;
                self.skip_past("\"", "the string")?;
                Kind::Str
            }
            b if is_word_start(b) => {
                self.position += 1;
                self.take_while(is_word);
                Kind::Word(&self.text[start..self.position])
            }
            b if PUNCTUATION.contains(&b) => {
                self.position += 1;
                Kind::Punct(char::from(b))
            }
            _ => {
                let found = self.text[start..].chars().next().unwrap_or_default();
                return self.error(format!("unexpected character {found:?}"));
            }
        };
        Ok(Token {
            kind,
            line,
            start,
            end: self.position,
        })
    }

    /// The name after a dot; `::` joins its parts.
    fn dotted(&mut self) -> &'t str {
        let start = self.position;
        self.take_while(is_word);
        while self.position > start && self.byte(0) == b':' && self.byte(1) == b':' && is_word(self.byte(2)) {
            self.position += 2;
            self.take_while(is_word);
        }
        &self.text[start..self.position]
    }

    fn number(&mut self) -> Result<Kind<'t>, ParseError> {
        let start = self.position;
        let kind = match (self.byte(0), self.byte(1)) {
            (b'0', b'x' | b'X') => self.prefixed(16).map(Kind::Int),
            (b'0', b'b' | b'B') => self.prefixed(2).map(Kind::Int),
            (b'0', b'f' | b'F') => self.float_bits(8).map(|bits| Kind::F32(bits as u32)),
            (b'0', b'd' | b'D') => self.float_bits(16).map(Kind::F64),
            _ => self.decimal(),
        };
        if matches!(kind, Some(Kind::Int(_))) && self.byte(0) == b'U' {
            self.position += 1;
        }
        match kind {
            Some(kind) if !is_word(self.byte(0)) => Ok(kind),
            _ => {
                self.take_while(is_word);
                let number = shorten(&self.text[start..self.position]);
                self.error(format!(
                    "{number} is not a number that PTX allows, or takes more than 64 bits"
                ))
            }
        }
    }

    /// Digits after a two-character prefix.
    fn prefixed(&mut self, radix: u32) -> Option<u64> {
        self.position += 2;
        let digits = self.take_while(|b| char::from(b).is_digit(radix));
        u64::from_str_radix(digits, radix).ok()
    }

    /// Exactly `digits` hexadecimal digits after a two-character prefix.
    fn float_bits(&mut self, digits: usize) -> Option<u64> {
        self.position += 2;
        let found = self.take_while(|b| b.is_ascii_hexdigit());
        (found.len() == digits)
            .then(|| u64::from_str_radix(found, 16).ok())
            .flatten()
    }

    /// A decimal or octal integer, or a decimal fraction.
    fn decimal(&mut self) -> Option<Kind<'t>> {
        let start = self.position;
        let digits = self.take_while(|b| b.is_ascii_digit());
        let fraction = self.byte(0) == b'.' && self.byte(1).is_ascii_digit();
        if fraction {
            self.position += 1;
            self.take_while(|b| b.is_ascii_digit());
        }
        let exponent = self.byte(0).eq_ignore_ascii_case(&b'e');
        if exponent {
            self.position += 1;
            if matches!(self.byte(0), b'+' | b'-') {
                self.position += 1;
            }
            if self.take_while(|b| b.is_ascii_digit()).is_empty() {
                return None;
            }
        }
        if fraction || exponent {
            let value: f64 = self.text[start..self.position].parse().ok()?;
            return Some(Kind::F64(value.to_bits()));
        }
        let radix = if digits.len() > 1 && digits.starts_with('0') {
            8
        } else {
            10
        };
        u64::from_str_radix(digits, radix).ok().map(Kind::Int)
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

/// At most the first 60 characters, for messages about text that may be of any length.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Result<Vec<Kind<'_>>, ParseError> {
        let mut lexer = Lexer::new(text);
        let mut found = Vec::new();
        loop {
            match lexer.next()?.kind {
                Kind::End => return Ok(found),
                kind => found.push(kind),
            }
        }
    }

    #[test]
    fn reads_every_spelling_of_a_number() {
        let cases = [
            ("0", Kind::Int(0)),
            ("017", Kind::Int(15)),
            ("42U", Kind::Int(42)),
            ("0xfFU", Kind::Int(255)),
            ("0b101", Kind::Int(5)),
            ("18446744073709551615", Kind::Int(u64::MAX)),
            ("0f3F800000", Kind::F32(1f32.to_bits())),
            ("0dBFF0000000000000", Kind::F64((-1f64).to_bits())),
            ("1.5", Kind::F64(1.5f64.to_bits())),
            ("2e3", Kind::F64(2000f64.to_bits())),
            ("1.25e-2", Kind::F64(0.0125f64.to_bits())),
        ];
        for (text, kind) in cases {
            assert_eq!(kinds(text), Ok(vec![kind]), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_number() {
        for text in [
            "18446744073709551616",
            "0x",
            "0b2",
            "0f3F80",
            "0f3F8000000",
            "09",
            "1e",
            "12ab",
            "0x1.5",
            "3UU",
        ] {
            let found = kinds(text);
            assert!(found.is_err() || text == "0x1.5", "{text}: {found:?}");
        }
        // A dot after an integer starts a name of its own, which no statement accepts there.
        assert_eq!(kinds("0x1.5"), Ok(vec![Kind::Int(1), Kind::Dot("5")]));
    }

    #[test]
    fn splits_opcodes_at_their_dots_and_keeps_double_colons() {
        let expected = ["global", "L1::no_allocate", "L2::256B", "v4", "b32"].map(Kind::Dot);
        let found = kinds("ld.global.L1::no_allocate.L2::256B.v4.b32").unwrap();
        assert_eq!(found[0], Kind::Word("ld"));
        assert_eq!(found[1..], expected);
    }

    #[test]
    fn counts_lines_through_comments_and_strings() {
        let mut lexer = Lexer::new("// one\n/* two\n three */ \"four\n\" x");
        assert_eq!(lexer.next().unwrap().kind, Kind::Str);
        assert_eq!(lexer.next().unwrap().line, 4);
    }

    #[test]
    fn names_what_is_left_open_or_unknown() {
        for (text, part) in [
            ("/* x", "comment"),
            ("\"x", "string"),
            ("mov é", "'é'"),
            (". x", "dot"),
            ("a # b", "'#'"),
        ] {
            let error = kinds(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}
