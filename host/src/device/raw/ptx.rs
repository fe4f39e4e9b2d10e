//! The PTX that ships, a text for each family of kernels.

use crate::instances::Family;

/// PTX to load for a family in place of the shipped text: kernels of the same names and parameters.
pub type Replacement = (Family, &'static str);

macro_rules! shipped {
    ($($(#[$doc:meta])* $family:ident $name:literal;)*) => {
        /// The shipped PTX of a family: a module of its own.
        pub const fn ptx(family: Family) -> &'static str {
            match family {
                $(Family::$family => include_str!(concat!("../../../ptx/", $name, ".ptx")),)*
            }
        }
    };
}
kernels_gpu::for_each_family!(shipped);

/// The text that is loaded for a family.
pub(super) fn text(family: Family, replaced: &[Replacement]) -> &'static str {
    let replacement = replaced.iter().find(|(replaced, _)| *replaced == family);
    replacement.map_or_else(|| ptx(family), |(_, text)| text)
}
