//! Copies and fills of rows and boxes, and copies whose addresses say what they are.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null, null_mut, without_provenance_mut};

/// Rows of 4 bytes, 8 apart, from the host to the device.
fn rows(to: CUdeviceptr, from: &[u8]) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        srcMemoryType: memory_type::HOST,
        srcHost: from.as_ptr().cast(),
        srcDevice: 0,
        srcArray: null_mut(),
        srcPitch: 8,
        dstXInBytes: 1,
        dstY: 0,
        dstMemoryType: memory_type::DEVICE,
        dstHost: null_mut(),
        dstDevice: to,
        dstArray: null_mut(),
        dstPitch: 6,
        WidthInBytes: 4,
        Height: 2,
    }
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let _context = Context::new();
    let from: Vec<u8> = (0..32).collect();
    let to = upload(&[0xFF_u8; 12]);
    let copy = rows(to, &from);
    let expected = [0xFF, 10, 11, 12, 13, 0xFF, 0xFF, 18, 19, 20, 21, 0xFF];
    ok!(cuMemcpy2D_v2(&copy));
    assert_eq!(download::<u8>(to, 12), expected);
    ok!(cuMemsetD8_v2(to, 0xFF, 12));
    ok!(cuMemcpy2DUnaligned_v2(&copy));
    assert_eq!(download::<u8>(to, 12), expected);
    ok!(cuMemsetD8_v2(to, 0xFF, 12));
    ok!(cuMemcpy2DAsync_v2(&copy, stream()));
    ok!(cuCtxSynchronize());
    assert_eq!(download::<u8>(to, 12), expected);

    let too_wide = CUDA_MEMCPY2D { dstPitch: 4, ..copy };
    assert_eq!(
        code!(cuMemcpy2D_v2(&too_wide)),
        INVALID_VALUE,
        "1 and 4 bytes in rows of 4"
    );
    let too_high = CUDA_MEMCPY2D { Height: 3, ..copy };
    assert_eq!(code!(cuMemcpy2D_v2(&too_high)), INVALID_VALUE, "past the allocation");
    let array = CUDA_MEMCPY2D {
        dstMemoryType: memory_type::ARRAY,
        ..copy
    };
    assert_eq!(code!(cuMemcpy2D_v2(&array)), NOT_SUPPORTED);
    assert_eq!(code!(cuMemcpy2D_v2(null())), INVALID_VALUE);
    let mut pitch = 0;
    let mut address = 0;
    ok!(cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 3, 4));
    assert_eq!(pitch, 512);
    ok!(cuMemsetD8_v2(address, 0, 3 * pitch));
    assert_eq!(
        code!(cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 3, 5)),
        INVALID_VALUE
    );
}

#[test]
fn boxes_are_copied_between_contexts_too() {
    let context = Context::new();
    let from: Vec<u8> = (0..60).collect();
    let (source, to) = (upload(&from), upload(&[0_u8; 8]));
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::DEVICE,
        srcDevice: source,
        srcXInBytes: 1,
        srcY: 1,
        srcZ: 1,
        srcPitch: 5,
        srcHeight: 4,
        dstMemoryType: memory_type::UNIFIED,
        dstDevice: to,
        WidthInBytes: 2,
        Height: 2,
        Depth: 2,
        ..CUDA_MEMCPY3D::default()
    };
    let expected = [26, 27, 31, 32, 46, 47, 51, 52];
    ok!(cuMemcpy3D_v2(&copy));
    assert_eq!(download::<u8>(to, 8), expected);
    ok!(cuMemsetD8_v2(to, 0, 8));
    ok!(cuMemcpy3DAsync_v2(&copy, null_mut()));
    assert_eq!(download::<u8>(to, 8), expected);
    ok!(cuMemsetD8_v2(to, 0, 8));
    let other = Context::new();
    let between = CUDA_MEMCPY3D_PEER {
        copy: CUDA_MEMCPY3D {
            reserved0: context.0,
            reserved1: other.0,
            ..copy
        },
    };
    ok!(cuMemcpy3DPeer(&between));
    ok!(cuMemcpy3DPeerAsync(&between, null_mut()));
    assert_eq!(download::<u8>(to, 8), expected);
    let nobody = CUDA_MEMCPY3D_PEER {
        copy: CUDA_MEMCPY3D {
            reserved0: without(),
            ..copy
        },
    };
    assert_eq!(code!(cuMemcpy3DPeer(&nobody)), INVALID_CONTEXT);
    ok!(cuMemcpyPeer(to, other.0, source, context.0, 8));
    ok!(cuMemcpyPeerAsync(to, null_mut(), source, context.0, 8, null_mut()));
    assert_eq!(download::<u8>(to, 8), from[..8]);
    assert_eq!(
        code!(cuMemcpyPeer(to, without(), source, context.0, 8)),
        INVALID_CONTEXT
    );
}

/// A context that is none.
fn without() -> CUcontext {
    std::ptr::without_provenance_mut(48)
}

#[test]
fn addresses_say_where_bytes_go() {
    let _context = Context::new();
    let mut host = [1_u8, 2, 3, 4];
    let address = |bytes: &mut [u8]| bytes.as_mut_ptr().expose_provenance() as u64;
    let device = upload(&[0_u8; 4]);
    ok!(cuMemcpy(device, address(&mut host), 4));
    let mut back = [0_u8; 4];
    ok!(cuMemcpyAsync(address(&mut back), device, 4, stream()));
    ok!(cuCtxSynchronize());
    assert_eq!(back, host);
    // A device's address given as one of the host's is known for what it is.
    let second = upload(&[0_u8; 4]);
    ok!(cuMemcpyHtoD_v2(
        second,
        std::ptr::without_provenance(device as usize),
        4
    ));
    assert_eq!(download::<u8>(second, 4), host);
}

#[test]
fn rows_are_filled_with_their_pitch() {
    let _context = Context::new();
    let address = upload(&[9_u8; 24]);
    ok!(cuMemsetD2D8_v2(address, 8, 1, 3, 3));
    ok!(cuMemsetD2D16_v2(address + 4, 8, 0x0202, 1, 2));
    ok!(cuMemsetD2D32Async(address + 20, 4, 0x0303_0303, 1, 1, stream()));
    ok!(cuCtxSynchronize());
    let expected = [
        [1, 1, 1, 9, 2, 2, 9, 9],
        [1, 1, 1, 9, 2, 2, 9, 9],
        [1, 1, 1, 9, 3, 3, 3, 3],
    ];
    assert_eq!(download::<u8>(address, 24), expected.concat());
    ok!(cuMemsetD2D8Async(address, 8, 0, 8, 3, null_mut()));
    ok!(cuMemsetD2D16Async(address, 8, 0x0101, 4, 2, null_mut()));
    ok!(cuMemsetD2D32_v2(address + 16, 8, 5, 2, 1));
    assert_eq!(download::<u8>(address, 17)[15..], [1, 5]);
    assert_eq!(
        code!(cuMemsetD2D8_v2(address, 2, 1, 3, 2)),
        INVALID_VALUE,
        "rows of 3 bytes, 2 apart"
    );
    assert_eq!(
        code!(cuMemsetD2D32_v2(address + 2, 8, 1, 1, 1)),
        INVALID_VALUE,
        "misaligned"
    );
    assert_eq!(
        code!(cuMemsetD2D8_v2(address, 8, 1, 8, 4)),
        INVALID_VALUE,
        "too many rows"
    );
}

#[test]
fn addresses_of_nothing_are_refused_not_followed() {
    let _context = Context::new();
    let mut host = [0_u32; 4];
    let live = upload(&[1_u32; 4]);
    let freed = upload(&[2_u32; 4]);
    ok!(cuMemFree_v2(freed));
    let pinned = handle!(cuMemHostAlloc(16, 0));
    ok!(cuMemFreeHost(pinned));
    for nothing in [0, 12, freed, freed + 4, pinned.addr() as u64, live + 16] {
        assert_eq!(code!(cuMemcpy(live, nothing, 4)), INVALID_VALUE, "{nothing:#x}");
        assert_eq!(code!(cuMemcpy(nothing, live, 4)), INVALID_VALUE, "{nothing:#x}");
        assert_eq!(
            code!(cuMemcpyDtoH_v2(without_provenance_mut(nothing as usize), live, 4)),
            INVALID_VALUE,
            "{nothing:#x}"
        );
    }
    ok!(cuMemcpy(host.as_mut_ptr() as u64, live, 16));
    assert_eq!(host, [1; 4]);
}
