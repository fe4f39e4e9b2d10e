//! What instructions compute, against references computed in another way: through PTX text, lanes of a grid at a time.
//!
//! Unary forms of 16 bits run on every input, binary ones on every input with each of a lattice of special values,
//! wider ones on random inputs, special ones among them, of which `grid::RANDOM` says how many.

#[path = "../support/mod.rs"]
mod support;

mod bits;
mod comparisons;
mod conversions;
mod floats;
mod grid;
mod halves;
mod integers;
mod known;
mod packed;
mod reference;
