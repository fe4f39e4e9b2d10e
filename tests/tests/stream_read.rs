//! The reader that measures the limit reads every byte once.

use hopper_proj::Buffer;
use hopper_proj::instances::{STREAM_READ, StreamRead};
use hopper_proj::raw::{Overlap, Queue};
use hopper_proj_tests::{Device, Values, here, prepare, shape, there};

/// The device of the run, with the readers loaded.
fn readers() -> Device {
    let device = Device::of_the_run();
    device.engine.prepare_readers().unwrap();
    device
}

fn queue(device: &Device, overlap: Overlap) -> Queue {
    Queue {
        stream: device.stream.handle(),
        overlap,
    }
}

fn checksum(words: &[u32]) -> u32 {
    words.iter().fold(0, |sum, word| sum ^ word)
}

/// What the reader leaves per warp, added up.
fn left(out: &Buffer<u32>) -> u32 {
    checksum(&here(out))
}

/// Memory for one word per warp, which the reader must overwrite, every one.
fn output(ctas: u32, reader: &StreamRead) -> Buffer<u32> {
    let words: Vec<u32> = (1..=ctas * reader.warps as u32).collect();
    there(&words)
}

#[test]
fn checksums_agree_with_the_hosts() {
    let (device, mut values) = (readers(), Values::fresh());
    for reader in STREAM_READ {
        let chunk = reader.chunk_bytes();
        for bytes in [16, chunk - 16, chunk, chunk + 16, 5 * chunk, 100_000, (1 << 20) + 16] {
            let words = values.words(bytes / 4);
            let data = there(&words);
            // Fewer chunks than CTAs, and more than a CTA's ring holds.
            for ctas in [1, 3, 8] {
                let out = output(ctas, reader);
                let (data, out_at) = (data.address(), out.address());
                let queue = queue(&device, Overlap::Programmatic);
                // SAFETY: the engine's context is current, the stream is of it, and the buffers have the sizes that are
                // passed.
                unsafe {
                    let kernels = device.engine.kernels();
                    kernels.stream_read(reader, data, bytes, out_at, ctas, queue).unwrap();
                }
                device.engine.synchronize(&device.stream).unwrap();
                assert_eq!(
                    left(&out),
                    checksum(&words),
                    "{}: {bytes} bytes by {ctas} CTAs",
                    reader.name
                );
            }
        }
    }
}

#[test]
fn packed_weights_are_read_by_the_whole_device() {
    let (device, mut values) = (readers(), Values::fresh());
    let shape = shape(64, 640);
    let weights = values.bf16(64 * 640);
    let projection = prepare(&device.engine, &weights, shape).unwrap();
    // Packing moves 16-bit values about; which half of a word one lands in is its column's parity, and no padding is
    // needed here.
    let halves = |odd: usize| weights.iter().skip(odd).step_by(2).fold(0, |sum, v| sum ^ v.to_bits());
    for reader in STREAM_READ {
        let mut out = output(device.engine.reader_ctas(reader), reader);
        device
            .engine
            .stream_read(reader, &projection, &mut out, &device.stream, Overlap::None)
            .unwrap();
        device.engine.synchronize(&device.stream).unwrap();
        let sum = left(&out);
        assert_eq!(
            [sum as u16, (sum >> 16) as u16],
            [halves(0), halves(1)],
            "{}",
            reader.name
        );
    }
}

#[test]
fn what_the_reader_cannot_take_is_refused() {
    let device = readers();
    let reader = &STREAM_READ[0];
    for (data, bytes, out, words) in [
        (0x1008, 16, 0x1000, "the data is 0x1008, which must be a multiple of 16"),
        (
            0x1000,
            24,
            0x1000,
            "the number of bytes to read is 0x18, which must be a multiple of 16",
        ),
        (
            0x1000,
            16,
            0x1002,
            "the reader's output is 0x1002, which must be a multiple of 4",
        ),
    ] {
        let queue = queue(&device, Overlap::None);
        // SAFETY: refused before anything is launched.
        let err = unsafe {
            let kernels = device.engine.kernels();
            kernels.stream_read(reader, data, bytes, out, 1, queue)
        };
        let err = err.unwrap_err().to_string();
        assert!(err.contains(words), "{err}");
    }
}

#[test]
fn any_data_is_read() {
    let (device, mut values) = (readers(), Values::fresh());
    let words = values.words(5000);
    let data = there(&words);
    for reader in STREAM_READ {
        let mut out = output(device.engine.reader_ctas(reader), reader);
        let part = data.slice(4..4996).unwrap();
        let overlap = Overlap::None;
        device
            .engine
            .stream_read_data(reader, part, &mut out, &device.stream, overlap)
            .unwrap();
        device.engine.synchronize(&device.stream).unwrap();
        assert_eq!(left(&out), checksum(&words[4..4996]));
        let short = data.slice(..3).unwrap();
        let refused = device
            .engine
            .stream_read_data(reader, short, &mut out, &device.stream, overlap);
        assert!(refused.unwrap_err().to_string().contains("multiple of 16"));
    }
}
