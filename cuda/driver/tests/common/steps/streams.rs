//! Streams, events, launches and captures.

use super::super::{Bytes, Things};
use super::{Common, ignore, launch, make, nothing, nothing_on};
use hopper_cuda_driver::ffi::*;
use std::ptr::{null, null_mut};

#[allow(clippy::cognitive_complexity)]
pub(super) fn step(what: usize, common: &Common, b: &mut Bytes<'_>, t: &mut Things<'_>) {
    let &Common {
        stream, size, address, ..
    } = common;
    // SAFETY: functions of the host take anything; all else is looked up, null, or a place for a result.
    unsafe {
        match what {
            0..=2 => make!(t.streams, cuStreamCreateWithPriority(b.next() as u32 % 3, -1)),
            3 => ignore(cuStreamDestroy_v2(stream)),
            4 => ignore(cuStreamSynchronize(stream)),
            5 => ignore(cuStreamQuery(stream)),
            6 | 7 => make!(t.events, cuEventCreate(b.next() as u32 % 4)),
            8..=11 => ignore(cuEventRecordWithFlags(b.pick(&t.events), stream, b.next() as u32 / 86)),
            12..=15 => ignore(cuStreamWaitEvent(stream, b.pick(&t.events), b.next() as u32 / 86)),
            16 => ignore(cuEventSynchronize(b.pick(&t.events))),
            17 => ignore(cuEventQuery(b.pick(&t.events))),
            18 => ignore(cuEventDestroy_v2(b.pick(&t.events))),
            19 => ignore(cuEventElapsedTime(&mut 0.0, b.pick(&t.events), b.pick(&t.events))),
            20..=25 => launch(common, b.pick(&t.functions), 1 + size as u32 % 2, &[]),
            26..=28 => {
                let attributes = [CUlaunchAttribute::programmatic_serialization()];
                launch(common, b.pick(&t.functions), 1 + size as u32 % 2, &attributes);
            }
            29 => {
                let attributes = [CUlaunchAttribute::cluster([b.next() as u32 % 4, 1, 1])];
                launch(common, b.pick(&t.functions), 1 + size as u32 % 4, &attributes);
            }
            30 => {
                let mut parameters = [(&raw const address).cast_mut().cast()];
                let (function, grid) = (b.pick(&t.functions), 1 + b.next() as u32 % 3);
                let parameters = parameters.as_mut_ptr();
                cuLaunchCooperativeKernel(function, grid, 1, 1, 1, 1, 1, 0, stream, parameters);
            }
            31 | 32 => ignore(cuLaunchHostFunc(stream, Some(nothing), null_mut())),
            33 => ignore(cuStreamAddCallback(stream, Some(nothing_on), null_mut(), 0)),
            34..=37 => ignore(cuStreamBeginCapture_v2(stream, b.next() as u32 % 4)),
            38 | 39 => {
                let before = b.pick(&t.nodes);
                let count = b.next() % 2;
                let mode = stream_capture_mode::RELAXED;
                cuStreamBeginCaptureToGraph(stream, b.pick(&t.graphs), &before, null(), count, mode);
            }
            40..=44 => {
                let mut graph = null_mut();
                if cuStreamEndCapture(stream, &mut graph) == 0 {
                    t.graphs.push(graph);
                }
            }
            45 | 46 => {
                let (mut graph, mut nodes, mut count) = (null_mut(), null(), 0);
                let (status, id, none) = (&mut 0, null_mut(), null_mut());
                if cuStreamGetCaptureInfo_v3(stream, status, id, &mut graph, &mut nodes, none, &mut count) == 0 {
                    t.graphs.push(graph);
                    if !nodes.is_null() {
                        t.nodes.extend_from_slice(std::slice::from_raw_parts(nodes, count));
                    }
                }
            }
            47 | 48 => {
                let mut nodes = [b.pick(&t.nodes), b.pick(&t.nodes)];
                let count = b.next() % 3;
                cuStreamUpdateCaptureDependencies(stream, nodes.as_mut_ptr(), count, size as u32 % 2);
            }
            49 => {
                let mut mode = b.next() as u32 % 4;
                cuThreadExchangeStreamCaptureMode(&mut mode);
            }
            50 => ignore(cuStreamCopyAttributes(stream, b.pick(&t.streams))),
            51 => ignore(cuStreamGetCtx(stream, &mut null_mut())),
            52 => ignore(cuStreamAttachMemAsync(stream, address, 0, b.next() as u32 % 8)),
            53 => ignore(cuCtxResetPersistingL2Cache()),
            _ => {}
        }
    }
}
