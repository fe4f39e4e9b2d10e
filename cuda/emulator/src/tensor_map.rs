//! Tensor maps: what a tensor copy needs to know of the tensor in global memory and of the box that it copies.

use std::fmt;

/// Bytes of an encoded map.
const BYTES: usize = 128;
/// What every encoded map starts with.
const MAGIC: [u8; 8] = *b"ptxemuTM";
/// Where an encoded map's contents start: the magic and the checksum stand before them.
const CONTENTS: usize = 16;
/// Most axes of a tensor.
const MAX_RANK: usize = 5;
/// Most elements along one axis.
const MAX_SIZE: u64 = 1 << 32;
/// What strides stay below, in bytes.
const STRIDE_LIMIT: u64 = 1 << 40;
/// Most elements of a box along one axis.
const MAX_BOX: u32 = 256;
/// Largest step along one axis.
const MAX_STEP: u32 = 8;
/// What addresses, strides and the rows of a box are multiples of, in bytes.
const GRAIN: u64 = 16;

/// The number of a variant in its table, by which an encoded map names it.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every variant, in the order of their declaration.
            pub const ALL: &[$name] = &[$($name::$variant,)*];
        }
    };
}

numbered! {
    /// The type of a tensor's elements. Copies move their bits as they are; the type says how many there are and what
    /// fills the places outside the tensor.
    Element {
        /// Unsigned, 8 bits.
        U8,
        /// Unsigned, 16 bits.
        U16,
        /// Unsigned, 32 bits.
        U32,
        /// Signed, 32 bits.
        S32,
        /// Unsigned, 64 bits.
        U64,
        /// Signed, 64 bits.
        S64,
        /// Half precision.
        F16,
        /// Single precision.
        F32,
        /// Double precision.
        F64,
        /// bfloat16.
        Bf16,
    }
}

numbered! {
    /// Whether the channels of a tensor lie in slices; copies of such tensors are refused when they are executed.
    Interleave {
        /// Rows lie as the strides say.
        None,
        /// Slices of 16 bytes.
        Bytes16,
        /// Slices of 32 bytes.
        Bytes32,
    }
}

numbered! {
    /// How a box's 16-byte pieces are permuted in shared memory, which depends on their addresses alone.
    Swizzle {
        /// Not at all.
        None,
        /// Within 32 bytes: bit 7 of an address is added to bit 4, without carry.
        Bytes32,
        /// Within 64 bytes: bits 7 and 8 are added to bits 4 and 5.
        Bytes64,
        /// Within 128 bytes: bits 7 to 9 are added to bits 4 to 6.
        Bytes128,
    }
}

numbered! {
    /// How much L2 fetches at once: without effect here.
    L2Promotion {
        /// What is asked for.
        None,
        /// 64 bytes.
        Bytes64,
        /// 128 bytes.
        Bytes128,
        /// 256 bytes.
        Bytes256,
    }
}

numbered! {
    /// What a copy puts where the box reaches out of the tensor.
    Fill {
        /// Zero bits.
        Zero,
        /// A NaN: every bit but the sign is set. Which one a device takes is not documented.
        Nan,
    }
}

impl Element {
    /// Its size in bytes.
    pub fn bytes(self) -> u64 {
        use Element::*;
        match self {
            U8 => 1,
            U16 | F16 | Bf16 => 2,
            U32 | S32 | F32 => 4,
            U64 | S64 | F64 => 8,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        use Element::*;
        matches!(self, F16 | F32 | F64 | Bf16)
    }
}

impl Swizzle {
    /// The bytes within which pieces are permuted, where they are.
    pub fn span(self) -> Option<u64> {
        match self {
            Swizzle::None => None,
            Swizzle::Bytes32 => Some(32),
            Swizzle::Bytes64 => Some(64),
            Swizzle::Bytes128 => Some(128),
        }
    }

    /// Where the byte goes that would be at an address of shared memory without swizzling; the way back is the same.
    pub fn apply(self, address: u64) -> u64 {
        self.span().map_or(address, |span| swizzled(address, span))
    }
}

/// Where the byte at an address goes when 16-byte pieces are permuted within a span: the bits that number the pieces of
/// a span get those that number rows of 128 bytes added, without carry.
#[inline]
pub(crate) fn swizzled(address: u64, span: u64) -> u64 {
    address ^ (address >> 3 & (span - 16))
}

/// One axis of a tensor, with what a copy takes along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements of the tensor along it.
    pub size: u64,
    /// Bytes from one element to the next along it; of axis 0 it is the size of an element.
    pub stride: u64,
    /// Elements of the tensor that a box spans along it.
    pub box_size: u32,
    /// Every how many of these are copied. Axis 0 has no step: whatever it says, all are copied.
    pub step: u32,
}

/// A tensor in global memory, and the box of it that one copy moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The type of the elements.
    pub element: Element,
    /// The address of the element whose coordinates are all zero.
    pub address: u64,
    /// One to five axes, the contiguous one first.
    pub axes: Vec<Axis>,
    /// Whether channels lie in slices.
    pub interleave: Interleave,
    /// How the box lies in shared memory.
    pub swizzle: Swizzle,
    /// How much L2 fetches at once.
    pub l2_promotion: L2Promotion,
    /// What the copy puts where the box reaches out of the tensor.
    pub fill: Fill,
}

/// Why a tensor map cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// It has no axis, or too many; interleaved tensors need three.
    #[error("{axes} axes; {least} to {MAX_RANK} are allowed")]
    Rank {
        /// The axes given.
        axes: usize,
        /// The least number allowed.
        least: usize,
    },
    /// The tensor's address is no multiple of what it must be.
    #[error("the tensor's address {address:#x} is not a multiple of {multiple}")]
    Address {
        /// The address.
        address: u64,
        /// What it must be a multiple of.
        multiple: u64,
    },
    /// A property of one axis is outside its range.
    #[error("axis {axis}: {what} of {given}; {allowed}")]
    Axis {
        /// The axis, counted from 0.
        axis: usize,
        /// The property.
        what: &'static str,
        /// Its value.
        given: u64,
        /// What is allowed.
        allowed: String,
    },
    /// Properties that do not go together.
    #[error("{0}")]
    Combination(&'static str),
    /// The bytes are no map that [`TensorMap::encode`] made.
    #[error(
        "the {BYTES} bytes hold no tensor map that this emulator can read; maps for it come from its own encoding, not from a device's \
         driver, and may not be changed"
    )]
    Foreign,
}

fn check_axis(
    axis: usize,
    what: &'static str,
    given: u64,
    fits: bool,
    allowed: impl fmt::Display,
) -> Result<(), TensorMapError> {
    if fits {
        return Ok(());
    }
    Err(TensorMapError::Axis {
        axis,
        what,
        given,
        allowed: allowed.to_string(),
    })
}

impl TensorMap {
    /// Checks what the hardware demands of a map.
    ///
    /// # Errors
    ///
    /// The first property that does not fit.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let interleaved = self.interleave != Interleave::None;
        let least = if interleaved { 3 } else { 1 };
        let axes = self.axes.len();
        if !(least..=MAX_RANK).contains(&axes) {
            return Err(TensorMapError::Rank { axes, least });
        }
        let multiple = if self.interleave == Interleave::Bytes32 {
            32
        } else {
            GRAIN
        };
        if !self.address.is_multiple_of(multiple) {
            return Err(TensorMapError::Address {
                address: self.address,
                multiple,
            });
        }
        let element = self.element.bytes();
        // The bytes from the first element to past the last one, along the axes so far.
        let mut extent = element;
        for (i, axis) in self.axes.iter().enumerate() {
            let (size, stride) = (axis.size, axis.stride);
            check_axis(
                i,
                "a size",
                size,
                (1..=MAX_SIZE).contains(&size),
                "1 to 2^32 are allowed",
            )?;
            if i == 0 {
                check_axis(0, "a stride", stride, stride == element, "it is the size of an element")?;
            } else {
                let fits = stride.is_multiple_of(multiple) && stride < STRIDE_LIMIT;
                let allowed = format_args!("multiples of {multiple} below 2^40 are allowed");
                check_axis(i, "a stride", stride, fits, allowed)?;
                let allowed = format_args!("the axes before it span {extent} bytes");
                check_axis(i, "a stride", stride, stride >= extent, allowed)?;
            }
            extent = stride.saturating_mul(size);
            let (box_size, step) = (axis.box_size, axis.step);
            let fits = (1..=MAX_BOX).contains(&box_size);
            check_axis(i, "a box", box_size.into(), fits, "1 to 256 elements are allowed")?;
            let fits = (1..=MAX_STEP).contains(&step) || i == 0 && !interleaved;
            check_axis(i, "a step", step.into(), fits, "1 to 8 are allowed")?;
        }
        if self.interleave == Interleave::Bytes32 && self.swizzle != Swizzle::Bytes32 {
            let why = "slices of 32 bytes go with a swizzle within 32 bytes alone";
            return Err(TensorMapError::Combination(why));
        }
        if !interleaved {
            let row = self.row_bytes();
            let span = self.swizzle.span().unwrap_or(u64::MAX);
            let fits = row.is_multiple_of(GRAIN) && row <= span;
            let most = self
                .swizzle
                .span()
                .map_or(String::new(), |span| format!(" up to {span}"));
            check_axis(
                0,
                "a box, in bytes,",
                row,
                fits,
                format_args!("multiples of 16{most} are allowed"),
            )?;
        }
        if self.fill == Fill::Nan && !self.element.is_float() {
            let why = "only tensors of a floating-point type can be filled with NaN";
            return Err(TensorMapError::Combination(why));
        }
        Ok(())
    }

    /// Bytes of a row of the box.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.axes.first().map_or(0, |axis| u64::from(axis.box_size)) * self.element.bytes()
    }

    /// Elements that a copy moves along an axis.
    pub(crate) fn count(&self, axis: usize) -> u64 {
        let Axis { box_size, .. } = self.axes[axis];
        u64::from(box_size).div_ceil(self.step(axis))
    }

    /// Every how many elements a copy takes one, along an axis.
    pub(crate) fn step(&self, axis: usize) -> u64 {
        if axis == 0 { 1 } else { self.axes[axis].step.into() }
    }

    /// Bytes of the box as it lies in shared memory.
    pub(crate) fn box_bytes(&self) -> u64 {
        (1..self.axes.len()).fold(self.row_bytes(), |bytes, axis| bytes * self.count(axis))
    }

    /// The map as a copy finds it in memory: 128 bytes, which start at a multiple of 64.
    ///
    /// # Errors
    ///
    /// Where [`check`](Self::check) finds one.
    pub fn encode(&self) -> Result<[u8; BYTES], TensorMapError> {
        self.check()?;
        let mut bytes = [0; BYTES];
        let mut at = CONTENTS;
        let mut put = |value: u64, len: usize| {
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            at += len;
        };
        put(self.address, 8);
        put(self.axes.len() as u64, 1);
        for kind in [
            self.element as u8,
            self.interleave as u8,
            self.swizzle as u8,
            self.l2_promotion as u8,
            self.fill as u8,
        ] {
            put(kind.into(), 1);
        }
        for axis in &self.axes {
            put(axis.size, 5);
            put(axis.stride, 5);
            put(axis.box_size.into(), 2);
            put(axis.step.into(), 4);
        }
        bytes[..8].copy_from_slice(&MAGIC);
        let sum = checksum(&bytes[CONTENTS..]);
        bytes[8..CONTENTS].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// The map that [`encode`](Self::encode) made these bytes of.
    ///
    /// # Errors
    ///
    /// Where it did not.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<TensorMap, TensorMapError> {
        let sum = checksum(&bytes[CONTENTS..]).to_le_bytes();
        if bytes[..8] != MAGIC || bytes[8..CONTENTS] != sum {
            return Err(TensorMapError::Foreign);
        }
        let mut at = CONTENTS;
        let mut take = |len: usize| {
            let mut value = [0; 8];
            value[..len].copy_from_slice(&bytes[at..at + len]);
            at += len;
            u64::from_le_bytes(value)
        };
        let address = take(8);
        let rank = take(1) as usize;
        let kinds: [usize; 5] = std::array::from_fn(|_| take(1) as usize);
        let axes = (0..rank.min(MAX_RANK)).map(|_| Axis {
            size: take(5),
            stride: take(5),
            box_size: take(2) as u32,
            step: take(4) as u32,
        });
        let axes = axes.collect();
        let map = named(kinds, address, axes).ok_or(TensorMapError::Foreign)?;
        map.check()?;
        Ok(map)
    }
}

/// A map of the numbers that an encoded one names its properties by.
fn named(
    [element, interleave, swizzle, l2_promotion, fill]: [usize; 5],
    address: u64,
    axes: Vec<Axis>,
) -> Option<TensorMap> {
    Some(TensorMap {
        element: *Element::ALL.get(element)?,
        address,
        axes,
        interleave: *Interleave::ALL.get(interleave)?,
        swizzle: *Swizzle::ALL.get(swizzle)?,
        l2_promotion: *L2Promotion::ALL.get(l2_promotion)?,
        fill: *Fill::ALL.get(fill)?,
    })
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
