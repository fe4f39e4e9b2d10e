//! Tensor maps: their arguments' rules, one by one, and a kernel that copies by one.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null, null_mut, without_provenance_mut};

const TENSOR: &str = include_str!("ptx/tensor.ptx");

/// The arguments of `cuTensorMapEncodeTiled` but for the map.
#[derive(Clone)]
struct Arguments {
    data_type: u32,
    rank: u32,
    address: u64,
    dimensions: Vec<u64>,
    strides: Vec<u64>,
    boxes: Vec<u32>,
    steps: Vec<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

impl Arguments {
    /// A matrix of 100 rows of 200 BF16 elements, of which 16 rows of 64 are copied at once.
    fn matrix(address: u64) -> Self {
        Arguments {
            data_type: tensor_map_data_type::BFLOAT16,
            rank: 2,
            address,
            dimensions: vec![200, 100],
            strides: vec![400],
            boxes: vec![64, 16],
            steps: vec![1, 1],
            interleave: tensor_map_interleave::NONE,
            swizzle: tensor_map_swizzle::BYTES_128,
            promotion: tensor_map_l2_promotion::BYTES_256,
            fill: tensor_map_fill::ZERO,
        }
    }

    /// A tensor of three axes whose channels lie in slices.
    fn slices(interleave: u32, swizzle: u32) -> Self {
        Arguments {
            dimensions: vec![200, 100, 10],
            strides: vec![416, 41_600],
            boxes: vec![64, 16, 2],
            steps: vec![1, 1, 1],
            rank: 3,
            interleave,
            swizzle,
            ..Arguments::matrix(0x2_0000_0040)
        }
    }

    fn encode(&self, map: *mut CUtensorMap) -> u32 {
        code!(cuTensorMapEncodeTiled(
            map,
            self.data_type,
            self.rank,
            without_provenance_mut(self.address as usize),
            self.dimensions.as_ptr(),
            self.strides.as_ptr(),
            self.boxes.as_ptr(),
            self.steps.as_ptr(),
            self.interleave,
            self.swizzle,
            self.promotion,
            self.fill,
        ))
    }
}

/// The box of the matrix at (x, y) as it lies in shared memory: each row's pieces of 8 elements permuted by its number.
fn tile(matrix: &[u16], x: i32, y: i32) -> Vec<u16> {
    let mut tile = vec![0; 16 * 64];
    for row in 0..16 {
        for column in 0..64 {
            let (at_x, at_y) = (x + column, y + row);
            if (0..200).contains(&at_x) && (0..100).contains(&at_y) {
                let piece = (column / 8) ^ (row % 8);
                tile[(row * 64 + piece * 8 + column % 8) as usize] = matrix[(at_y * 200 + at_x) as usize];
            }
        }
    }
    tile
}

fn copied(map: &CUtensorMap, kernel: CUfunction, x: i32, y: i32) -> Vec<u16> {
    let out = get!(cuMemAlloc_v2(2048));
    let mut config = config(1, 32);
    config.sharedMemBytes = 3072;
    let parameters = [parameter(map), parameter(&out), parameter(&x), parameter(&y)];
    assert_eq!(launch(&config, kernel, &parameters), SUCCESS);
    download(out, 1024)
}

#[test]
fn kernels_copy_by_maps() {
    let _context = Context::new();
    let kernel = kernel_of(TENSOR, "tile");
    let matrix: Vec<u16> = (0..20_000).collect();
    let mut map = CUtensorMap::default();
    assert_eq!(Arguments::matrix(upload(&matrix)).encode(&mut map), SUCCESS);
    for (x, y) in [(0, 0), (64, 16), (-8, -3), (176, 92), (40, 7), (200, 0)] {
        assert_eq!(copied(&map, kernel, x, y), tile(&matrix, x, y), "at ({x}, {y})");
    }
    let other: Vec<u16> = matrix.iter().map(|value| value + 1).collect();
    let address = without_provenance_mut(upload(&other) as usize);
    ok!(cuTensorMapReplaceAddress(&mut map, address));
    assert_eq!(copied(&map, kernel, 64, 16), tile(&other, 64, 16));
}

/// What the C function answers to the arguments, changed.
fn answer(arguments: &Arguments, change: fn(&mut Arguments)) -> u32 {
    let mut arguments = arguments.clone();
    change(&mut arguments);
    let mut map = CUtensorMap::default();
    let code = arguments.encode(&mut map);
    assert_eq!(
        code == SUCCESS,
        map != CUtensorMap::default(),
        "a refused map is not written"
    );
    code
}

#[test]
fn arguments_are_checked_one_by_one() {
    let _context = Context::new();
    let matrix = Arguments::matrix(0x2_0000_0010);
    let (by_16, by_32) = (tensor_map_interleave::BYTES_16, tensor_map_interleave::BYTES_32);
    let slices = Arguments::slices(by_16, tensor_map_swizzle::BYTES_128);
    let wide_slices = Arguments::slices(by_32, tensor_map_swizzle::BYTES_32);
    type Change = fn(&mut Arguments);
    let good: &[(&str, &Arguments, Change)] = &[
        ("as it is", &matrix, |_| {}),
        ("one axis", &matrix, |a| a.rank = 1),
        ("five axes", &matrix, |a| {
            a.rank = 5;
            a.dimensions = vec![200, 2, 2, 2, 1 << 32];
            a.strides = vec![400, 800, 1600, 3200];
            (a.boxes, a.steps) = (vec![64, 1, 1, 1, 256], vec![1; 5]);
        }),
        ("a first step that is ignored", &matrix, |a| a.steps[0] = 0),
        ("the largest step", &matrix, |a| a.steps[1] = 8),
        ("the largest stride", &matrix, |a| a.strides[0] = (1 << 40) - 16),
        ("the largest box", &matrix, |a| a.boxes[1] = 256),
        ("a narrow box", &matrix, |a| a.boxes[0] = 8),
        ("a wide box", &matrix, |a| (a.swizzle, a.boxes[0]) = (0, 256)),
        ("NaN", &matrix, |a| a.fill = 1),
        ("slices of 16 bytes", &slices, |_| {}),
        ("slices of 32 bytes", &wide_slices, |_| {}),
    ];
    for (what, arguments, change) in good {
        assert_eq!(answer(arguments, *change), SUCCESS, "{what}");
    }
    let bad: &[(&str, &Arguments, Change)] = &[
        ("data type", &matrix, |a| a.data_type = 13),
        ("no axes", &matrix, |a| a.rank = 0),
        ("six axes", &matrix, |a| {
            a.rank = 6;
            a.dimensions = vec![8; 6];
            a.strides = vec![16; 5];
            (a.boxes, a.steps) = (vec![8; 6], vec![1; 6]);
        }),
        ("two axes of slices", &slices, |a| a.rank = 2),
        ("no address", &matrix, |a| a.address = 0),
        ("address", &matrix, |a| a.address += 8),
        ("address of slices of 32 bytes", &wide_slices, |a| a.address += 16),
        ("an empty axis", &matrix, |a| a.dimensions[1] = 0),
        ("an endless axis", &matrix, |a| a.dimensions[1] = (1 << 32) + 1),
        ("stride", &matrix, |a| a.strides[0] = 408),
        ("stride of slices of 32 bytes", &wide_slices, |a| a.strides[1] += 16),
        ("a stride below the row's extent", &matrix, |a| a.strides[0] = 384),
        ("a stride below the plane's extent", &slices, |a| a.strides[1] -= 16),
        ("a stride of 2^40", &matrix, |a| a.strides[0] = 1 << 40),
        ("an empty box", &matrix, |a| a.boxes[1] = 0),
        ("a box of 257", &matrix, |a| a.boxes[1] = 257),
        ("a row of 24 bytes", &matrix, |a| a.boxes[0] = 12),
        ("a row beyond 128 bytes", &matrix, |a| a.boxes[0] = 72),
        ("a row beyond 64 bytes", &matrix, |a| (a.swizzle, a.boxes[0]) = (2, 40)),
        ("a row beyond 32 bytes", &matrix, |a| (a.swizzle, a.boxes[0]) = (1, 24)),
        ("no step", &matrix, |a| a.steps[1] = 0),
        ("a step of 9", &matrix, |a| a.steps[1] = 9),
        ("no first step of slices", &slices, |a| a.steps[0] = 0),
        ("interleave", &matrix, |a| a.interleave = 3),
        ("swizzle", &matrix, |a| a.swizzle = 4),
        ("promotion", &matrix, |a| a.promotion = 4),
        ("fill", &matrix, |a| a.fill = 2),
        ("NaN for integers", &matrix, |a| (a.data_type, a.fill) = (1, 1)),
        ("slices of 32 bytes without swizzle", &wide_slices, |a| a.swizzle = 0),
        ("slices of 32 bytes, swizzled within 64", &wide_slices, |a| {
            a.swizzle = 2
        }),
    ];
    for (what, arguments, change) in bad {
        assert_eq!(answer(arguments, *change), INVALID_VALUE, "{what}");
    }
    // A device rounds or flushes elements of these types as it copies them.
    for data_type in [
        |a: &mut Arguments| a.data_type = tensor_map_data_type::FLOAT32_FTZ,
        |a: &mut Arguments| a.data_type = tensor_map_data_type::TFLOAT32,
        |a: &mut Arguments| a.data_type = tensor_map_data_type::TFLOAT32_FTZ,
    ] {
        assert_eq!(answer(&matrix, data_type), NOT_SUPPORTED);
    }
}

#[test]
fn pointers_are_checked() {
    let _context = Context::new();
    let matrix = Arguments::matrix(0x2_0000_0010);
    assert_eq!(matrix.encode(null_mut()), INVALID_VALUE);
    let mut maps = [CUtensorMap::default(); 2];
    assert_eq!(matrix.encode(maps.as_mut_ptr().wrapping_byte_add(32)), INVALID_VALUE);
    let encode = |dimensions, strides, boxes, steps, rank| {
        let mut map = CUtensorMap::default();
        let address = without_provenance_mut(0x2_0000_0010);
        code!(cuTensorMapEncodeTiled(
            &mut map, 9, rank, address, dimensions, strides, boxes, steps, 0, 3, 0, 0
        ))
    };
    let (dimensions, strides) = (matrix.dimensions.as_ptr(), matrix.strides.as_ptr());
    let (boxes, steps) = (matrix.boxes.as_ptr(), matrix.steps.as_ptr());
    assert_eq!(encode(dimensions, strides, boxes, steps, 2), SUCCESS);
    assert_eq!(
        encode(dimensions, null(), boxes, steps, 1),
        SUCCESS,
        "one axis has no stride"
    );
    assert_eq!(encode(null(), strides, boxes, steps, 2), INVALID_VALUE);
    assert_eq!(encode(dimensions, null(), boxes, steps, 2), INVALID_VALUE);
    assert_eq!(encode(dimensions, strides, null(), steps, 2), INVALID_VALUE);
    assert_eq!(encode(dimensions, strides, boxes, null(), 2), INVALID_VALUE);
}

#[test]
fn addresses_are_replaced_in_maps_alone() {
    let _context = Context::new();
    let replace =
        |map: *mut CUtensorMap, address: usize| code!(cuTensorMapReplaceAddress(map, without_provenance_mut(address)));
    let (mut map, mut other) = (CUtensorMap::default(), CUtensorMap::default());
    assert_eq!(replace(&mut map, 0x3_0000_0000), INVALID_VALUE, "no map");
    assert_eq!(Arguments::matrix(0x2_0000_0010).encode(&mut map), SUCCESS);
    assert_eq!(Arguments::matrix(0x3_0000_0000).encode(&mut other), SUCCESS);
    assert_eq!(replace(&mut map, 0x3_0000_0008), INVALID_VALUE);
    assert_eq!(replace(&mut map, 0), INVALID_VALUE);
    assert_eq!(replace(null_mut(), 0x3_0000_0000), INVALID_VALUE);
    let mut maps = [map, map];
    assert_eq!(
        replace(maps.as_mut_ptr().wrapping_byte_add(32), 0x3_0000_0000),
        INVALID_VALUE
    );
    assert_ne!(map, other);
    assert_eq!(replace(&mut map, 0x3_0000_0000), SUCCESS);
    assert_eq!(map, other);
}

#[test]
fn a_context_is_wanted_and_image_maps_are_not_supported() {
    start();
    let mut map = CUtensorMap::default();
    assert_eq!(Arguments::matrix(0x2_0000_0010).encode(&mut map), INVALID_CONTEXT);
    let address = without_provenance_mut(0x2_0000_0010);
    assert_eq!(code!(cuTensorMapReplaceAddress(&mut map, address)), INVALID_CONTEXT);
    let _context = Context::new();
    let (null, none) = (null(), null());
    let image = code!(cuTensorMapEncodeIm2col(
        &mut map,
        9,
        3,
        address,
        null,
        null,
        none,
        none,
        1,
        1,
        std::ptr::null(),
        0,
        0,
        0,
        0
    ));
    assert_eq!(image, NOT_SUPPORTED);
}

#[test]
fn faults_of_copies_have_their_codes_and_stories() {
    let _context = Context::new();
    let kernel = kernel_of(TENSOR, "tile");
    let out = get!(cuMemAlloc_v2(2048));
    let mut config = config(1, 32);
    config.sharedMemBytes = 3072;
    let (map, at) = (CUtensorMap::default(), 0);
    let parameters = [parameter(&map), parameter(&out), parameter(&at), parameter(&at)];
    launch(&config, kernel, &parameters);
    assert_eq!(code!(cuCtxSynchronize()), LAUNCH_FAILED);
    let story = hopper_cuda_driver::emulated::last_fault().expect("a fault");
    assert!(story.contains("no tensor map that this emulator can read"), "{story}");
}

#[test]
fn tensors_outside_memory_are_illegal_addresses() {
    let _context = Context::new();
    let kernel = kernel_of(TENSOR, "tile");
    let out = get!(cuMemAlloc_v2(2048));
    let mut config = config(1, 32);
    config.sharedMemBytes = 3072;
    let mut map = CUtensorMap::default();
    let at = 0;
    assert_eq!(Arguments::matrix(get!(cuMemAlloc_v2(4000))).encode(&mut map), SUCCESS);
    launch(
        &config,
        kernel,
        &[parameter(&map), parameter(&out), parameter(&at), parameter(&at)],
    );
    assert_eq!(code!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
    let story = hopper_cuda_driver::emulated::last_fault().expect("a fault");
    assert!(story.contains("the tensor map at"), "{story}");
}
