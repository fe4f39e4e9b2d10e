//! Tensor copies, and the maps that they are made by.

#[path = "../support/mod.rs"]
mod support;

mod build;
mod copies;
mod maps;
mod multicast;
mod refusals;
