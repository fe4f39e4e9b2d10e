//! Which line of the PTX text each machine instruction comes from.

/// The PTX text in which every instruction says its own line, by `.loc` directives. With `-lineinfo` the assembler
/// hands the lines on to the machine code, which is otherwise the same.
///
/// Lines are those of the text as it was given.
pub(super) fn with_lines(ptx: &str) -> String {
    let mut text = String::with_capacity(2 * ptx.len());
    let mut depth = 0usize;
    for (at, line) in ptx.lines().enumerate() {
        let code = line.trim();
        match code {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ if depth > 0 && is_instruction(code) => text.push_str(&format!(".loc 1 {} 0\n", at + 1)),
            _ => {}
        }
        text.push_str(line);
        text.push('\n');
        if code.starts_with(".address_size") {
            text.push_str(".file 1 \"kernels.ptx\"\n");
        }
    }
    text
}

/// Whether a line of a body is an instruction: no directive, label, brace or comment.
fn is_instruction(code: &str) -> bool {
    let first = code.chars().next().unwrap_or(';');
    (first.is_ascii_lowercase() || first == '@') && code.ends_with(';')
}

/// `//## File "kernels.ptx", line 7222`, which stands above instructions.
pub(super) fn mark(line: &str) -> Option<u32> {
    let (_, number) = line.strip_prefix("//## File ")?.split_once(", line ")?;
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_alone_say_their_lines() {
        let ptx = ".version 8.1\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r<2>;\n$L_1:\n\tmov.u32 %r1, 0;\n\
                   \t@%p1 bra $L_1;\n\t// ret;\n\t{\n\tret;\n\t}\n}\n";
        let expected = ".version 8.1\n.address_size 64\n.file 1 \"kernels.ptx\"\n.visible .entry k()\n{\n\t.reg .b32 %r<2>;\n\
                        $L_1:\n.loc 1 7 0\n\tmov.u32 %r1, 0;\n.loc 1 8 0\n\t@%p1 bra $L_1;\n\t// ret;\n\t{\n.loc 1 11 0\n\tret;\n\
                        \t}\n}\n";
        assert_eq!(with_lines(ptx), expected);
    }

    #[test]
    fn a_listings_marks_are_read() {
        assert_eq!(mark("//## File \"kernels.ptx\", line 7222"), Some(7222));
        assert_eq!(
            mark("//## File \"kernels.ptx\", line 7 inlined at \"x\", line 9"),
            Some(7)
        );
        for other in ["", "//", "//## File \"a\"", "/*00e0*/ EXIT ;"] {
            assert_eq!(mark(other), None);
        }
    }
}
