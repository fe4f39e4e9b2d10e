//! Many threads at once. Apart from the others, because it counts what the process has left over.

#[path = "../../tests/threads.rs"]
mod threads;
