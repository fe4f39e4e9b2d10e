//! Tensor maps: their arguments' rules, one by one, and a kernel that copies by one.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::without_provenance_mut;

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
