//! Calls of the CUDA driver in any order, on any handle: the emulated driver answers each with a code, and leaves
//! nothing over.
#![no_main]

#[path = "../../cuda/driver/tests/common/sequence.rs"]
mod sequence;

use libfuzzer_sys::fuzz_target;

const CHAIN: &str = concat!(include_str!("../../cuda/driver/tests/ptx/chain.ptx"), "\0");

fuzz_target!(|calls: &[u8]| sequence::play(calls, CHAIN.as_bytes(), c"hasty"));
