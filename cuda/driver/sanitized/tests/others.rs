//! Tests that are given threads by the driver, and by the test harness, which runs them beside each other.

// Each of these files brings what it shares with the others.
#![allow(clippy::duplicate_mod)]

#[path = "../../tests/capture_rules.rs"]
mod capture_rules;
#[path = "../../tests/captures.rs"]
mod captures;
#[path = "../../tests/contexts.rs"]
mod contexts;
#[path = "../../tests/graph_nodes.rs"]
mod graph_nodes;
#[path = "../../tests/graph_objects.rs"]
mod graph_objects;
#[path = "../../tests/host_memory.rs"]
mod host_memory;
#[path = "../../tests/later.rs"]
mod later;
#[path = "../../tests/launches.rs"]
mod launches;
#[path = "../../tests/libraries.rs"]
mod libraries;
#[path = "../../tests/pools.rs"]
mod pools;
#[path = "../../tests/streams.rs"]
mod streams;
