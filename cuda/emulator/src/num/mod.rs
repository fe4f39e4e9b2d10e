//! The arithmetic of PTX: pure functions on values and bit patterns.
