//! Tokens with one token of lookahead, and the small pieces of grammar that everything shares.

use super::ParseError;
use super::lexer::{Kind, Lexer, Token, shorten};

pub(super) struct Cursor<'t> {
    lexer: Lexer<'t>,
    current: Token<'t>,
    /// Where the token before the current one ended.
    previous_end: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self, ParseError> {
        let mut lexer = Lexer::new(text);
        let current = lexer.next()?;
        Ok(Cursor {
            lexer,
            current,
            previous_end: 0,
        })
    }

    /// The next token, which stays.
    pub(super) fn peek(&self) -> Token<'t> {
        self.current
    }

    /// The next token, taken.
    pub(super) fn next(&mut self) -> Result<Token<'t>, ParseError> {
        let token = self.current;
        self.previous_end = token.end;
        self.current = self.lexer.next()?;
        Ok(token)
    }

    /// Where the token taken last ended.
    pub(super) fn end(&self) -> usize {
        self.previous_end
    }

    /// The text from `start` to the end of the token taken last.
    pub(super) fn text_since(&self, start: usize) -> &'t str {
        self.lexer.text().get(start..self.previous_end).unwrap_or_default()
    }

    /// An error about the next token.
    pub(super) fn unexpected<T>(&self, expected: &str) -> Result<T, ParseError> {
        let found = match self.current.kind {
            Kind::End => "the end of the text".to_owned(),
            _ => shorten(&self.lexer.text()[self.current.start..self.current.end]),
        };
        fail(self.current.line, format!("expected {expected}, found {found}"))
    }

    /// Takes the punctuation if it is next.
    pub(super) fn accept(&mut self, punct: char) -> Result<bool, ParseError> {
        let found = self.current.kind == Kind::Punct(punct);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, punct: char) -> Result<(), ParseError> {
        if self.accept(punct)? {
            Ok(())
        } else {
            self.unexpected(&format!("`{punct}`"))
        }
    }

    /// Takes the dotted name if it is next.
    pub(super) fn accept_dot(&mut self, name: &str) -> Result<bool, ParseError> {
        let found = self.current.kind == Kind::Dot(name);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    /// An identifier.
    pub(super) fn word(&mut self, what: &str) -> Result<&'t str, ParseError> {
        let Kind::Word(word) = self.current.kind else {
            return self.unexpected(what);
        };
        self.next()?;
        Ok(word)
    }

    /// An unsigned integer.
    pub(super) fn integer(&mut self, what: &str) -> Result<u64, ParseError> {
        let Kind::Int(value) = self.current.kind else {
            return self.unexpected(what);
        };
        self.next()?;
        Ok(value)
    }

    /// An unsigned integer of 32 bits.
    pub(super) fn integer32(&mut self, what: &str) -> Result<u32, ParseError> {
        let line = self.current.line;
        let value = self.integer(what)?;
        u32::try_from(value).or_else(|_| fail(line, format!("{value} is too large for {what}")))
    }

    /// Comma-separated items up to and including `close`; at least one.
    pub(super) fn list(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<(), ParseError>,
    ) -> Result<(), ParseError> {
        loop {
            item(self)?;
            if !self.accept(',')? {
                return self.expect(close);
            }
        }
    }

    /// One to three comma-separated numbers, as launch bounds are written; those left out are 1.
    pub(super) fn dimensions(&mut self, directive: &str) -> Result<[u32; 3], ParseError> {
        let what = format!("a number after .{directive}");
        let mut sizes = [1; 3];
        for (axis, size) in sizes.iter_mut().enumerate() {
            if axis > 0 && !self.accept(',')? {
                break;
            }
            *size = self.integer32(&what)?;
        }
        Ok(sizes)
    }
}

/// An error at a line.
pub(super) fn fail<T>(line: u32, message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError {
        line,
        message: message.into(),
        repeated: None,
    })
}
