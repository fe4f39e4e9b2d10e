//! The compiled module, split into a module per family of kernels.

use anyhow::{Context, Result, bail};
use kernels_gpu::instances::{self, Family};
use ptx_emulator::parse::parse;

/// What LLVM writes before each function, and then its name.
const FUNCTION: &str = "\t// .globl\t";

/// A complete module for each family: the header, then the text of each of its entries as it was compiled.
pub(crate) fn by_family(ptx: &str) -> Result<Vec<(Family, String)>> {
    let mut parts = ptx.split(FUNCTION);
    let header = parts.next().unwrap_or_default().trim_end();
    let mut modules: Vec<(Family, String)> = Family::ALL
        .iter()
        .map(|&family| (family, format!("{header}\n")))
        .collect();
    for part in parts {
        let (name, text) = part.split_once('\n').unwrap_or((part, ""));
        let family = instances::entries()
            .find(|entry| entry.name == name)
            .map(|entry| entry.family)
            .with_context(|| format!("the PTX has a function `{name}`, which is no kernel of the table"))?;
        check_alone(header, name, text)?;
        let module = modules.iter_mut().find(|(of, _)| *of == family);
        let (_, module) = module.with_context(|| format!("no family {}", family.name()))?;
        module.push_str(&format!("\n{FUNCTION}{name}\n{}\n", text.trim()));
    }
    Ok(modules)
}

/// Fails where anything but the entry of this name stands in its text: a variable or a function that another family
/// might use.
fn check_alone(header: &str, name: &str, text: &str) -> Result<()> {
    let read = |text: &str| parse(text).with_context(|| format!("`{name}`: the PTX cannot be read"));
    let (shared, module) = (read(header)?, read(&format!("{header}\n{text}"))?);
    let [entry] = &module.entries[..] else {
        bail!(
            "`{name}`: the PTX has {} entries where there should be one",
            module.entries.len()
        );
    };
    let functions = module.functions.iter().map(|function| function.name.as_str());
    let variables = module
        .globals
        .iter()
        .skip(shared.globals.len())
        .map(|variable| variable.name.as_str());
    let others: Vec<&str> = functions.chain(variables).collect();
    if entry.name != name || !others.is_empty() {
        bail!(
            "`{name}`: the PTX holds more than the entry of this name: `{}`, beside [{}]",
            entry.name,
            others.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "// made\n.version 8.0\n.target sm_90a\n.address_size 64\n\n.extern .shared .align 1024 .b8 dyn_smem[];\n";

    fn function(name: &str) -> String {
        format!("{FUNCTION}{name}\n.visible .entry {name}()\n.maxntid 32, 1, 1\n{{\n\tret;\n\n}}\n")
    }

    fn first(family: Family) -> &'static str {
        family.entries().next().unwrap().name
    }

    #[test]
    fn each_family_has_the_header_and_its_own_entries() {
        let names = Family::ALL.map(first);
        let functions = names.map(function).concat();
        let modules = by_family(&format!("{HEADER}\n\n{functions}")).unwrap();
        assert_eq!(modules.len(), names.len());
        for ((family, module), name) in modules.iter().zip(names) {
            assert_eq!(*module, format!("{HEADER}\n{}", function(name)), "{}", family.name());
        }
    }

    #[test]
    fn what_belongs_to_no_family_is_refused() {
        let name = first(Family::GemvBf16);
        let own = function(name);
        for (text, words) in [
            (function("stranger"), "no kernel of the table"),
            (format!("{own}.global .b8 shared_by_all[4];\n"), "more than the entry"),
            (format!("{own}.func helper() {{ ret; }}\n"), "more than the entry"),
            (
                own.replace(".entry", ".func").replace(".maxntid 32, 1, 1\n", ""),
                "0 entries",
            ),
            (own.replacen(name, first(Family::GemmBf16), 1), "more than the entry"),
        ] {
            let error = by_family(&format!("{HEADER}{text}")).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
