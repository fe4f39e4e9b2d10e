//! A packed file is untrusted: whatever its bytes, reading it ends in a value or an error, and what has been read can
//! be used.
#![no_main]

use hopper_proj::formats::window12::{PackedTensors, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(tensors) = PackedTensors::read(file) else { return };
    for name in tensors.names() {
        let Ok(packed) = tensors.get(name) else { continue };
        let (n, k) = (packed.shape().n(), packed.shape().k());
        let weights = unpack(&packed).expect("a valid matrix is no larger than its file");
        assert_eq!(weights.len(), n * k);
        // The last row block and the last K group.
        let (row, column) = ((n - 1) / 16 * 16, (k - 1) / 64 * 64);
        let slice = packed
            .slice(Some(row..n), Some(column..k))
            .expect("a slice between units");
        let sliced = unpack(&slice).expect("smaller than the whole");
        for (i, weight) in sliced.iter().enumerate() {
            let at = (row + i / (k - column)) * k + column + i % (k - column);
            assert_eq!(weight.to_bits(), weights[at].to_bits());
        }
    }
});
