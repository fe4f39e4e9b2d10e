//! Who may write weights ahead of a launch that streams them early: no launch since the last one that did not overlap;
//! and when one behind may. On the emulator, which tells a race that need not happen.

use hopper_cuda_driver::emulated::{last_fault, set_seed};
use hopper_cuda_driver::ffi;
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

/// Write four bytes: one behind the launches ahead of it, the other whenever it comes to it.
const WRITERS: &str = "
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
.visible .entry hurries(.param .u64 to, .param .u32 value)
{
    .reg .b64 %to;
    .reg .b32 %value;
    ld.param.u64 %to, [to];
    ld.param.u32 %value, [value];
    griddepcontrol.launch_dependents;
    st.global.u32 [%to], %value;
    ret;
}
";

/// One launch of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// A kernel that writes the weights, by its name.
    Write(&'static str),
    /// A product with these weights.
    Project(Overlap),
    /// A product with others.
    ProjectOthers(Overlap),
    /// What `Stream::barrier` queues: see `barriers_are_memsets`.
    Barrier,
}

/// Launches one after the other; what the emulator says of it.
fn in_a_row(steps: &[Step]) -> Result<(), String> {
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
    let writers = Module::load(WRITERS);
    for &step in steps {
        match step {
            Step::Write(name) => {
                // SAFETY: an address of four bytes, and what they become.
                let code = unsafe { writer.run_on([1, 1, 1], writers.function(name), &parameters) };
                assert_eq!(code, 0);
            }
            Step::Project(overlap) => project(weights, overlap),
            Step::ProjectOthers(overlap) => project(others, overlap),
            // SAFETY: y has the four bytes.
            Step::Barrier => assert_eq!(unsafe { ffi::cuMemsetD32Async(y, 0, 1, null_mut()) }, 0),
        }
    }
    match driver::synchronize() {
        0 => Ok(()),
        code => Err(last_fault().unwrap_or_else(|| driver::name(code))),
    }
}

/// The words of a refusal.
#[track_caller]
fn refused(steps: &[Step], words: &str) {
    let story = in_a_row(steps).expect_err("a race");
    println!("{story}");
    assert!(story.contains(words), "{steps:?}: {story}");
}

#[test]
fn a_writer_of_weights_is_ahead_of_a_launch_that_does_not_overlap() {
    use Overlap::{None, Programmatic};
    use Step::{Barrier, Project, ProjectOthers, Write};
    let (write, project) = (Write("writes"), Project(Programmatic));
    let (overlapping, waiting) = (ProjectOthers(Programmatic), ProjectOthers(None));
    let words = "read of an unfinished launch's result";
    refused(&[write, project], words);
    refused(&[write, overlapping, project], words);
    refused(&[write, overlapping, overlapping, overlapping, project], words);
    refused(&[waiting, write, overlapping, project], words);
    in_a_row(&[write, waiting, project]).unwrap();
    in_a_row(&[write, waiting, overlapping, project]).unwrap();
    in_a_row(&[write, overlapping, waiting, project]).unwrap();
    in_a_row(&[write, Project(None)]).unwrap();
    in_a_row(&[write, Barrier, project]).unwrap();
    in_a_row(&[write, overlapping, Barrier, overlapping, project]).unwrap();
    refused(&[Barrier, write, overlapping, project], words);
}

#[test]
fn a_writer_of_weights_behind_their_launch_waits() {
    use Overlap::Programmatic;
    let words = "write over what an unfinished launch wrote or read";
    refused(&[Step::Project(Programmatic), Step::Write("hurries")], words);
    let others = Step::ProjectOthers(Programmatic);
    refused(&[Step::Project(Programmatic), others, Step::Write("hurries")], words);
    in_a_row(&[Step::Project(Programmatic), Step::Write("writes")]).unwrap();
    in_a_row(&[Step::Project(Programmatic), others, Step::Write("writes")]).unwrap();
}
