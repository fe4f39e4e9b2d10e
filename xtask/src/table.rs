//! The kernels' own table, in the words of the builder.

use cuda_builder::EntrySpec;
use kernels_gpu::formats::Decoding;
use kernels_gpu::instances::{self, Family};
use kernels_gpu::layout::{UNIT_K, UNIT_STEPS};

/// Every entry that the kernels must compile to.
pub(crate) fn entries() -> Vec<EntrySpec> {
    instances::entries().map(|entry| spec(&entry)).collect()
}

/// The entries that a family's PTX must hold.
pub(crate) fn entries_of(family: Family) -> Vec<EntrySpec> {
    family.entries().map(|entry| spec(&entry)).collect()
}

/// How a loop over lanes ends, which the assembler makes around an instruction with uniform operands that it does not
/// know to be uniform: some 60 cycles for each bulk copy, TMA load or mbarrier. [`cuda_std::warp::elect`] avoids it.
const WATERFALL: &str = "BRA.U.ANY";

fn spec(entry: &instances::Entry) -> EntrySpec {
    let spec = EntrySpec::new(entry.name, entry.threads as u32)
        .min_ctas(entry.min_ctas as u32)
        .max_registers(entry.max_registers as u32)
        .shared_bytes(entry.shared_bytes as u32)
        .cluster(entry.cluster as u32)
        .tensor_maps(entry.tensor_maps)
        .forbid(WATERFALL);
    let spec = entry
        .counts
        .list()
        .fold(spec, |spec, (mnemonic, count)| spec.count(mnemonic, count as u32));
    // A fence for the whole GPU takes about as long as the rest of a GEMV's epilogue. Gates need one.
    let spec = match instances::gemvs().any(|gemv| gemv.name == entry.name) {
        true => spec.forbid("MEMBAR.GPU"),
        false => spec,
    };
    if let Some(gemv) = instances::gemvs()
        .chain(instances::routes())
        .find(|gemv| gemv.name == entry.name)
    {
        promise_wide_loads(spec, gemv)
    } else if let Some(gemm) = instances::gemms().find(|gemm| gemm.name == entry.name) {
        promise_products(spec, gemm)
    } else {
        spec.promise("LDS.128", 1)
    }
}

/// One matrix instruction per step of 16 columns and term, for all of a CTA's tokens or for eight at a time; where a
/// warp loads its own fragments, four 8 × 8 matrices at a time, and 128 bits of an operand where it is aligned.
fn promise_products(spec: EntrySpec, gemm: &instances::Gemm) -> EntrySpec {
    let steps = UNIT_STEPS * gemm.groups;
    let products = steps * gemm.terms;
    match gemm.loads {
        instances::Loads::Tma => spec.promise_in_main_loop("HGMMA", products as u32),
        instances::Loads::Packed(format) => {
            let spec = spec.promise_in_main_loop("HGMMA", products as u32);
            promise_decoding(spec, format.facts().packed_decoding, gemm.groups)
        }
        instances::Loads::Masked => {
            let tiles = gemm.terms * gemm.rows() + gemm.tokens();
            let loads = tiles * UNIT_K * 2 / (16 * gemm.threads());
            spec.promise_in_main_loop("HMMA", (products * gemm.token_blocks) as u32)
                .promise_in_main_loop("LDSM", (products + steps * gemm.token_blocks / 2) as u32)
                .promise_in_main_loop("LDG.128", loads as u32)
        }
    }
}

/// 128-bit loads of x that one lane needs for a group of columns and a block of tokens: 16 of its 64 columns.
const X_LOADS: usize = 2;

/// What a main loop needs to make fragments of so many units.
fn promise_decoding(spec: EntrySpec, decoding: Decoding, units: usize) -> EntrySpec {
    let spec = decoding.at_least.iter().fold(spec, |spec, &(mnemonic, each)| {
        spec.promise_in_main_loop(mnemonic, (each * units) as u32)
    });
    match decoding.integers {
        Some((each, beside)) => spec.max_integers_in_main_loop((each * units + beside) as u32),
        None => spec,
    }
}

/// One matrix instruction per step, row block and token block of a chunk; each row block's unit comes by wide loads,
/// and where x is aligned, x does too. Fewer means that the compiler split them up, or took them out of the loop. Where
/// weights are decoded, the integer instructions must hide behind the stream.
fn promise_wide_loads(spec: EntrySpec, gemv: &instances::Gemv) -> EntrySpec {
    let units = gemv.groups * gemv.row_blocks;
    let octets = units * UNIT_STEPS;
    let spec = spec
        .promise_in_main_loop("HMMA", (octets * gemv.format.terms() * gemv.token_blocks) as u32)
        .promise_in_main_loop("LDS.128", (units * gemv.format.wide_loads()) as u32);
    if gemv.x_values != 8 {
        return spec;
    }
    let spec = spec.promise_in_main_loop("LDG.128", (X_LOADS * gemv.groups * gemv.token_blocks) as u32);
    promise_decoding(spec, gemv.format.facts().few_token_decoding, units)
}
