//! Directives that speak to debuggers and optimisers: read, checked for form, and without effect.

use super::ParseError;
use super::cursor::Cursor;
use super::lexer::Kind;

/// `"text";` after `.pragma`
pub(super) fn pragma(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    cursor.list(';', string)
}

/// `number "path" [, number, number]` after `.file`
pub(super) fn file(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    cursor.integer("a file's number")?;
    string(cursor)?;
    while cursor.accept(',')? {
        cursor.integer("a file's time or size")?;
    }
    Ok(())
}

/// `file line column [, function_name label [+ n], inlined_at file line column]` after `.loc`
pub(super) fn location(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    position(cursor)?;
    while cursor.accept(',')? {
        match cursor.word("`function_name` or `inlined_at`")? {
            "function_name" => {
                cursor.word("a label")?;
                if cursor.accept('+')? {
                    cursor.integer("a number")?;
                }
            }
            "inlined_at" => position(cursor)?,
            _ => return cursor.unexpected("`function_name` or `inlined_at` before this"),
        }
    }
    Ok(())
}

/// `name { … }` after `.section`
pub(super) fn section(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    match cursor.peek().kind {
        Kind::Dot(_) | Kind::Word(_) => cursor.next()?,
        _ => return cursor.unexpected("a section's name"),
    };
    cursor.expect('{')?;
    loop {
        match cursor.peek().kind {
            Kind::Punct('}') => return cursor.next().map(drop),
            Kind::Punct('{') | Kind::End => return cursor.unexpected("the `}` that closes the section"),
            _ => cursor.next()?,
        };
    }
}

/// A label between sections, to which debugging sections refer.
pub(super) fn label(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    cursor.word("a label")?;
    cursor.expect(':')
}

fn string(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    match cursor.peek().kind {
        Kind::Str => cursor.next().map(drop),
        _ => cursor.unexpected("a string"),
    }
}

fn position(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    for what in ["a file's number", "a line", "a column"] {
        cursor.integer(what)?;
    }
    Ok(())
}
