//! Random sequences of calls. A file of its own: it counts what the process has left over.

#[path = "common/sequence.rs"]
mod sequence;

use proptest::prelude::*;

const CHAIN: &str = include_str!("ptx/chain.ptx");

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_calls_crashes_or_leaves_anything(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        let ptx = [CHAIN.as_bytes(), &[0]].concat();
        sequence::play(&bytes, &ptx, c"hasty");
    }
}
