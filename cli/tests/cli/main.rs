//! The command line as a script sees it: arguments in; exit code, output and files out.

mod benching;
mod commands;
mod common;
mod drivers;
mod interrupts;
mod outputs;
mod packing;
mod plans;
mod routing;
mod usage;
