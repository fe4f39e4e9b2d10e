//! The kernels' own table, in the words of the builder.

use cuda_builder::EntrySpec;
use kernels_gpu::instances;

/// Every entry that the PTX must hold.
pub(crate) fn entries() -> Vec<EntrySpec> {
    instances::entries().map(|entry| spec(&entry)).collect()
}

fn spec(entry: &instances::Entry) -> EntrySpec {
    let spec = EntrySpec::new(entry.name, entry.threads as u32)
        .min_ctas(entry.min_ctas as u32)
        .max_registers(entry.max_registers as u32)
        .shared_bytes(entry.shared_bytes as u32)
        .cluster(entry.cluster as u32);
    let spec = entry
        .counts
        .iter()
        .fold(spec, |spec, &(mnemonic, count)| spec.count(mnemonic, count as u32));
    if entry.tensor_cores {
        spec.promise_in_main_loop("HMMA", 1).promise_in_main_loop("LDS.128", 1)
    } else {
        spec.promise("LDS.128", 1)
    }
}
