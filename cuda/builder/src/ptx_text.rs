//! Reads just enough of PTX text: where entries begin and end, and which instructions they hold.

use std::ops::Range;

/// One `.entry` of a PTX module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its symbol.
    pub name: String,
    /// The parameter list, with its parentheses.
    pub parameters: Range<usize>,
    /// The performance directives between the parameter list and the body.
    pub directives: Range<usize>,
    /// The body, without its outermost braces.
    pub body: Range<usize>,
}

/// `text` with every comment blanked out: the same length and the same lines, so that offsets fit both.
pub fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (code, comment) = rest.split_at(at);
        out.push_str(code);
        let end = if comment.starts_with("//") {
            comment.find('\n').unwrap_or(comment.len())
        } else if let Some(inside) = comment.strip_prefix("/*") {
            inside.find("*/").map_or(comment.len(), |close| close + 4)
        } else {
            // A slash of its own is no comment.
            out.push('/');
            rest = &comment[1..];
            continue;
        };
        let (comment, after) = comment.split_at(end);
        out.extend(comment.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The line, counted from 1, in which `offset` lies.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(offset)
        .filter(|&&byte| byte == b'\n')
        .count()
        + 1
}

/// The entries of a module whose comments are blanked out, in the order of the text. One whose body never ends is left out.
pub fn entries(code: &str) -> Vec<Entry> {
    const KEYWORD: &str = ".entry";
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find(KEYWORD) {
        let name_from = from + at + KEYWORD.len();
        let Some(open) = code[name_from..].find('{').map(|open| name_from + open) else {
            break;
        };
        let head = &code[name_from..open];
        let name = head
            .trim_start()
            .split(|c: char| c.is_whitespace() || c == '(')
            .next()
            .unwrap_or_default();
        let directives_from = head.rfind(')').map_or(head.len(), |close| close + 1);
        let Some(close) = matching_brace(code, open) else {
            break;
        };
        let parameters_from = head.find('(').unwrap_or(directives_from);
        found.push(Entry {
            name: name.to_owned(),
            parameters: name_from + parameters_from.min(directives_from)..name_from + directives_from,
            directives: name_from + directives_from..open,
            body: open + 1..close,
        });
        from = close;
    }
    found
}

fn matching_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// How a parameter that holds a tensor map is declared with that alignment: rustc names parameters after the entry, and a tensor map
/// takes 128 bytes.
pub fn tensor_map_parameter(entry: &str, index: usize, align: u32) -> String {
    format!(".param .align {align} .b8 {entry}_param_{index}[128]")
}

/// An instruction or a directive: where it begins, and its name with all modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// Offset of the statement in the module's text.
    pub offset: usize,
    /// `bar.sync`, `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`, …
    pub mnemonic: &'a str,
}

/// The instructions in a part of a module whose comments are blanked out. Declarations (`.reg`, `.shared`, …) are none.
pub fn instructions(code: &str, part: Range<usize>) -> impl Iterator<Item = Instruction<'_>> {
    let start = part.start;
    let text = &code[part];
    let address = text.as_ptr() as usize;
    text.split([';', '{', '}']).filter_map(move |statement| {
        let mut words = statement.split_whitespace();
        let mnemonic = words.find(|word| !word.ends_with(':') && !word.starts_with('@'))?;
        // Operands of a vector in braces, such as `{%r1,%r2}`, look like statements of their own.
        if !mnemonic.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        Some(Instruction {
            offset: start + (mnemonic.as_ptr() as usize - address),
            mnemonic,
        })
    })
}

/// The words of a part of a module that begin with a dot: directives and the state spaces in them.
pub fn directives(code: &str, part: Range<usize>) -> impl Iterator<Item = Instruction<'_>> {
    let start = part.start;
    let text = &code[part];
    let address = text.as_ptr() as usize;
    text.split(|c: char| c.is_whitespace() || ";{}(),[]".contains(c))
        .filter(|word| word.starts_with('.'))
        .map(move |word| Instruction {
            offset: start + (word.as_ptr() as usize - address),
            mnemonic: word,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "\
// a comment with .entry x( {
.visible .entry one(
\t.param .u64 one_param_0
) /* bounds */ .maxntid 32, 1, 1
{
\t.reg .b32 %r<3>;
$L__BB0_1:
\t@%p1 bra \t$L__BB0_1;
\tld.shared.v4.b32 {%r1, %r2}, [%r3]; // bar.sync 0;
\t{ .reg .pred p; mbarrier.try_wait.parity.b64 p, [%r1], %r2; }
\tbar.sync \t0;
\tret;
}
.entry two() { ret; }
";

    #[test]
    fn blanking_comments_keeps_every_offset() {
        let code = without_comments(MODULE);
        assert_eq!(code.len(), MODULE.len());
        assert_eq!(code.lines().count(), MODULE.lines().count());
        assert!(!code.contains("comment") && !code.contains("bounds"));
        assert_eq!(without_comments("a /* never closed").trim_end(), "a");
        assert_eq!(without_comments("/*/ x */y").trim_start(), "y");
        assert_eq!(without_comments("a / b // c"), "a / b     ");
    }

    #[test]
    fn entries_are_found_with_their_parts() {
        let code = without_comments(MODULE);
        let found = entries(&code);
        assert_eq!(
            found.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
            ["one", "two"]
        );
        assert_eq!(code[found[0].parameters.clone()], *"(\n\t.param .u64 one_param_0\n)");
        assert_eq!(code[found[1].parameters.clone()], *"()");
        assert_eq!(code[found[0].directives.clone()].trim(), ".maxntid 32, 1, 1");
        assert_eq!(code[found[1].body.clone()].trim(), "ret;");
    }

    #[test]
    fn labels_guards_and_declarations_are_no_mnemonics() {
        let code = without_comments(MODULE);
        let body = entries(&code)[0].body.clone();
        let found: Vec<_> = instructions(&code, body).collect();
        let mnemonics: Vec<_> = found.iter().map(|i| i.mnemonic).collect();
        let wanted = [
            "bra",
            "ld.shared.v4.b32",
            "mbarrier.try_wait.parity.b64",
            "bar.sync",
            "ret",
        ];
        assert_eq!(mnemonics, wanted);
        assert_eq!(line_of(&code, found[3].offset), 11);
    }

    #[test]
    fn text_cut_short_gives_what_is_whole() {
        for end in 0..MODULE.len() {
            if MODULE.is_char_boundary(end) {
                entries(&without_comments(&MODULE[..end]));
            }
        }
    }
}
