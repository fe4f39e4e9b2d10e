//! What instructions compute, against references computed in another way: through PTX text, lanes of a grid at a time.
//!
//! Unary forms of 16 bits run on every input, binary ones on every input with each of a lattice of special values, wider ones on a
//! million random inputs and the special ones.

#[path = "../support/mod.rs"]
mod support;

mod comparisons;
mod conversions;
mod floats;
mod grid;
mod halves;
mod integers;
mod known;
mod reference;
