//! Tensor maps, in the emulator's own encoding. A map made by NVIDIA's driver means nothing to it, and the other way
//! round.

use crate::codes::{Answer, Code};
use crate::emulated::context::current;
use crate::types::*;
use ptx_emulator::TensorMap;
use ptx_emulator::tensor_map::{Axis, Element, Fill, Interleave, L2Promotion, Swizzle};

/// Most axes of a tensor.
const MAX_RANK: usize = 5;

/// Data types in the order of CUDA's numbers.
const ELEMENTS: [Element; 10] = [
    Element::U8,
    Element::U16,
    Element::U32,
    Element::S32,
    Element::U64,
    Element::S64,
    Element::F16,
    Element::F32,
    Element::F64,
    Element::Bf16,
];
const INTERLEAVES: [Interleave; 3] = [Interleave::None, Interleave::Bytes16, Interleave::Bytes32];
const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];
const PROMOTIONS: [L2Promotion; 4] = [
    L2Promotion::None,
    L2Promotion::Bytes64,
    L2Promotion::Bytes128,
    L2Promotion::Bytes256,
];
const FILLS: [Fill; 2] = [Fill::Zero, Fill::Nan];

/// What a number of one of CUDA's enumerations stands for.
fn named<T: Copy>(table: &[T], number: c_uint) -> Answer<T> {
    table.get(number as usize).copied().ok_or(Code::INVALID_VALUE)
}

/// Whether a map may be written to this place.
fn check_place(map: *mut CUtensorMap) -> Answer {
    if map.is_null() || !map.is_aligned() {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

/// An argument's array of `N` values.
///
/// # Safety
///
/// `from` must be null or valid for reads of `count` values, of which there are `N` at most.
unsafe fn array<T: Copy + Default, const N: usize>(from: *const T, count: usize) -> Answer<[T; N]> {
    let mut values = [T::default(); N];
    if from.is_null() && count != 0 {
        return Err(Code::INVALID_VALUE);
    }
    for (i, value) in values.iter_mut().enumerate().take(count) {
        // SAFETY: not null, and `i` is below `count`, so valid for a read, the caller promises.
        *value = unsafe { from.add(i).read_unaligned() };
    }
    Ok(values)
}

/// Writes a map, unless it breaks a rule.
///
/// # Safety
///
/// `to` must be valid for a write.
unsafe fn write(to: *mut CUtensorMap, map: &TensorMap) -> Answer {
    let bytes = map.encode().map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: the caller keeps the promise, and an encoded map has the size of `CUtensorMap`.
    unsafe { to.cast::<[u8; size_of::<CUtensorMap>()]>().write(bytes) };
    Ok(())
}

#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn encode_tiled(
    map: *mut CUtensorMap,
    data_type: c_uint,
    rank: c_uint,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    box_dimensions: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    out_of_bounds_fill: c_uint,
) -> Answer {
    current()?;
    check_place(map)?;
    let rank = rank as usize;
    if address.is_null() || !(1..=MAX_RANK).contains(&rank) {
        return Err(Code::INVALID_VALUE);
    }
    if (tensor_map_data_type::FLOAT32_FTZ..=tensor_map_data_type::TFLOAT32_FTZ).contains(&data_type) {
        // A device changes such elements as it copies them.
        return Err(Code::NOT_SUPPORTED);
    }
    let element = named(&ELEMENTS, data_type)?;
    // SAFETY: the caller promises arrays of `rank` values, and of one less for the strides.
    let (sizes, strides, boxes, steps) = unsafe {
        (
            array::<u64, MAX_RANK>(dimensions, rank)?,
            array::<u64, MAX_RANK>(strides, rank - 1)?,
            array::<c_uint, MAX_RANK>(box_dimensions, rank)?,
            array::<c_uint, MAX_RANK>(element_strides, rank)?,
        )
    };
    let axis = |i: usize| Axis {
        size: sizes[i],
        stride: i.checked_sub(1).map_or(element.bytes(), |before| strides[before]),
        box_size: boxes[i],
        step: steps[i],
    };
    let tensor = TensorMap {
        element,
        address: address.addr() as u64,
        axes: (0..rank).map(axis).collect(),
        interleave: named(&INTERLEAVES, interleave)?,
        swizzle: named(&SWIZZLES, swizzle)?,
        l2_promotion: named(&PROMOTIONS, l2_promotion)?,
        fill: named(&FILLS, out_of_bounds_fill)?,
    };
    // SAFETY: not null and aligned, so valid for a write, the caller promises.
    unsafe { write(map, &tensor) }
}

pub(crate) unsafe fn replace_address(map: *mut CUtensorMap, address: *mut c_void) -> Answer {
    current()?;
    check_place(map)?;
    if address.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null and aligned, so valid for a read, the caller promises.
    let bytes = unsafe { map.cast::<[u8; size_of::<CUtensorMap>()]>().read() };
    let mut tensor = TensorMap::decode(&bytes).map_err(|_| Code::INVALID_VALUE)?;
    tensor.address = address.addr() as u64;
    // SAFETY: `map` is neither null nor misaligned, so valid for a write, the caller promises.
    unsafe { write(map, &tensor) }
}
