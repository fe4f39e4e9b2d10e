//! Who may write weights ahead of a launch that streams them early: no launch since the last one that did not overlap.
//! On the emulator, which tells a race that need not happen.

use hopper_cuda_driver::emulated::{last_fault, set_seed};
use hopper_proj::formats;
use hopper_proj::instances::Format;
use hopper_proj::plan::{Op, Workload};
use hopper_proj::raw::{DeviceWeights, Kernels, Output, Overlap, Queue};
use hopper_proj_tests::driver::{self, Launch, Module, OwnContext};
use hopper_proj_tests::{Values, bits, shape};
use std::ffi::c_void;
use std::ptr::null_mut;

const N: usize = 16;
const K: usize = 64;
const M: usize = 2;

/// Writes four bytes.
const WRITER: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry writes(.param .u64 to, .param .u32 value)
{
    .reg .b64 %to;
    .reg .b32 %value;
    ld.param.u64 %to, [to];
    ld.param.u32 %value, [value];
    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    st.global.u32 [%to], %value;
    ret;
}
";

/// A writer of the weights, launches of other weights in these ways, and the launch that streams the weights early;
/// what the emulator says of it.
fn behind_a_writer(between: &[Overlap]) -> Result<(), String> {
    driver::emulated_device();
    set_seed(None);
    let _context = OwnContext::new();
    let mut values = Values::fresh();
    let shape = shape(N, K);
    let kernels = Kernels::new().unwrap();
    let workload = Workload {
        op: Op::Project,
        format: Format::Bf16,
        shape,
        row_major: false,
        m: M..=M,
    };
    kernels.prepare(&workload).unwrap();
    let bytes = |values: &[_]| -> Vec<u8> { bits(values).into_iter().flat_map(u16::to_le_bytes).collect() };
    let packed = [0; 2].map(|_| bytes(&formats::bf16::pack(&values.bf16(N * K), shape).unwrap()));
    let [weights, others] = packed.each_ref().map(|packed| driver::memory(packed));
    let x = driver::memory(&bytes(&values.bf16(M * K)));
    let y = driver::memory(&[0; M * N * 2]);
    let project = |units, overlap| {
        let stream = null_mut();
        let weights = DeviceWeights::Bf16(formats::bf16::OnDevice { units, terms: 1 });
        let queue = Queue { stream, overlap };
        // SAFETY: the context is current, and the buffers have the sizes of these shapes. Whoever writes the weights is
        // told apart by the emulator.
        unsafe { kernels.project(x, weights, Output::Bf16(y), shape, M, queue) }.unwrap();
    };

    // What is written is what is there.
    let value = u32::from_le_bytes(packed[0][..4].try_into().unwrap());
    let writer = Launch {
        grid: [1, 1],
        threads: 1,
        cluster: 1,
        shared: 0,
        overlaps: true,
    };
    let parameters: [*const c_void; 2] = [(&raw const weights).cast(), (&raw const value).cast()];
    let function = Module::load(WRITER).function("writes");
    // SAFETY: an address of four bytes, and what they become.
    assert_eq!(unsafe { writer.run_on([1, 1, 1], function, &parameters) }, 0);
    for &overlap in between {
        project(others, overlap);
    }
    project(weights, Overlap::Programmatic);
    match driver::synchronize() {
        0 => Ok(()),
        code => Err(last_fault().unwrap_or_else(|| driver::name(code))),
    }
}

#[test]
fn a_writer_of_weights_is_ahead_of_a_launch_that_does_not_overlap() {
    use Overlap::{None, Programmatic};
    for between in [&[][..], &[Programmatic], &[Programmatic; 3], &[None, Programmatic]] {
        let waits = between.contains(&None);
        match behind_a_writer(between) {
            Ok(()) => assert!(waits, "{between:?}: not refused"),
            Err(story) => {
                println!("{story}");
                assert!(!waits, "{between:?}: {story}");
                assert!(story.contains("read of an unfinished launch's result"), "{story}");
            }
        }
    }
    behind_a_writer(&[None]).unwrap();
}
