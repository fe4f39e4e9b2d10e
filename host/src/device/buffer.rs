//! Device memory as the safe API takes it: buffers own it, slices borrow it.

use super::Result;
use super::allocation::Allocation;
use super::context::OpenDevice;
use super::raw::CUdeviceptr;
use crate::Error;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

/// A type of values in device memory: any bits are a value, and there is no padding.
pub trait Element: bytemuck::Pod + Send + Sync {}

impl Element for half::bf16 {}
impl Element for f32 {}
impl Element for i32 {}
impl Element for u8 {}
impl Element for u16 {}
impl Element for u32 {}
impl Element for u64 {}

/// Values in device memory, made by [`Engine::upload`](crate::Engine::upload) or
/// [`Engine::zeroed`](crate::Engine::zeroed) and freed on whatever thread drops them. The device stays open as long as
/// they live. Freeing waits for work that uses the memory.
#[derive(Debug)]
pub struct Buffer<T> {
    allocation: Allocation,
    len: usize,
    values: PhantomData<T>,
    /// Dropped last: the allocation is of its context.
    _device: Arc<OpenDevice>,
}

impl<T: Element> Buffer<T> {
    /// The allocation holds `len` values, and is of the device's context.
    pub(super) fn new(allocation: Allocation, len: usize, device: &Arc<OpenDevice>) -> Self {
        debug_assert!(allocation.bytes() == len * size_of::<T>());
        Buffer {
            allocation,
            len,
            values: PhantomData,
            _device: Arc::clone(device),
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first value, for the [raw](crate::raw) layer; 0 where there are no values.
    pub fn address(&self) -> CUdeviceptr {
        self.allocation.address()
    }

    /// All values.
    pub fn whole(&self) -> Slice<'_, T> {
        Slice {
            address: self.allocation.address(),
            len: self.len,
            context: self.allocation.context(),
            values: PhantomData,
        }
    }

    /// All values, to be written.
    pub fn whole_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut {
            slice: self.whole(),
            values: PhantomData,
        }
    }

    /// Some of the values.
    ///
    /// # Errors
    ///
    /// A range that reaches past the end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.whole().slice(range)
    }

    /// Some of the values, to be written.
    ///
    /// # Errors
    ///
    /// A range that reaches past the end.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.whole_mut().slice_mut(range)
    }
}

/// Values that lie together in device memory, borrowed from a [`Buffer`]: a slice cannot outlive its buffer.
///
/// ```compile_fail,E0505
/// # fn f(buffer: hopper_proj::Buffer<f32>) -> hopper_proj::Result<usize> {
/// let slice = buffer.slice(1..)?;
/// drop(buffer);
/// Ok(slice.len())
/// # }
/// ```
#[derive(Debug)]
pub struct Slice<'a, T> {
    address: CUdeviceptr,
    len: usize,
    /// The handle of the context that the memory is of, as an address.
    context: usize,
    values: PhantomData<&'a T>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<'a, T: Element> Slice<'a, T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first value, for the [raw](crate::raw) layer.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Some of the values.
    ///
    /// # Errors
    ///
    /// A range that reaches past the end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>> {
        let Range { start, end } = within(range, self.len)?;
        Ok(Slice {
            address: self.address + (start * size_of::<T>()) as u64,
            len: end - start,
            ..*self
        })
    }

    pub(super) fn context(&self) -> usize {
        self.context
    }
}

/// Values that lie together in device memory, borrowed from a [`Buffer`] to be written: nothing else refers to them.
///
/// ```compile_fail,E0502
/// # fn f(mut buffer: hopper_proj::Buffer<f32>) -> hopper_proj::Result<usize> {
/// let written = buffer.slice_mut(1..)?;
/// let read = buffer.slice(..2)?;
/// Ok(written.len() + read.len())
/// # }
/// ```
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    slice: Slice<'a, T>,
    values: PhantomData<&'a mut T>,
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.slice.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.slice.len == 0
    }

    /// The address of the first value, for the [raw](crate::raw) layer.
    pub fn address(&self) -> CUdeviceptr {
        self.slice.address
    }

    /// The values, to be read.
    pub fn whole(&self) -> Slice<'_, T> {
        self.slice
    }

    /// Some of the values. [`SliceMut::split_at_mut`] gives two parts at once.
    ///
    /// # Errors
    ///
    /// A range that reaches past the end.
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<SliceMut<'a, T>> {
        Ok(SliceMut {
            slice: self.slice.slice(range)?,
            values: PhantomData,
        })
    }

    /// The values before `mid`, and those from `mid` on.
    ///
    /// # Errors
    ///
    /// A `mid` past the end.
    pub fn split_at_mut(self, mid: usize) -> Result<(SliceMut<'a, T>, SliceMut<'a, T>)> {
        let part = |slice| SliceMut {
            slice,
            values: PhantomData,
        };
        Ok((part(self.slice.slice(..mid)?), part(self.slice.slice(mid..)?)))
    }

    pub(super) fn context(&self) -> usize {
        self.slice.context
    }
}

/// A range within `len` values.
fn within(range: impl RangeBounds<usize>, len: usize) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        _ => Err(Error::BufferRange {
            start: start.unwrap_or(usize::MAX),
            end: end.unwrap_or(usize::MAX),
            len,
        }),
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.whole()
    }
}

impl<'a, T: Element> From<&'a mut Buffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.whole_mut()
    }
}

impl<'a, T: Element> From<&'a mut Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.whole()
    }
}

impl<'a, T> From<&Slice<'a, T>> for Slice<'a, T> {
    fn from(slice: &Slice<'a, T>) -> Self {
        *slice
    }
}

impl<'a, T> From<&'a SliceMut<'_, T>> for Slice<'a, T> {
    fn from(slice: &'a SliceMut<'_, T>) -> Self {
        slice.slice
    }
}

impl<'a, T> From<&'a mut SliceMut<'_, T>> for SliceMut<'a, T> {
    fn from(slice: &'a mut SliceMut<'_, T>) -> Self {
        SliceMut {
            slice: slice.slice,
            values: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_within() {
        assert_eq!(within(.., 5).unwrap(), 0..5);
        assert_eq!(within(2..=4, 5).unwrap(), 2..5);
        assert_eq!(within(5.., 5).unwrap(), 5..5);
        for wrong in [(3, 2), (0, 6), (6, 6)] {
            let err = within(wrong.0..wrong.1, 5).unwrap_err().to_string();
            assert!(err.contains(&format!("{}..{}", wrong.0, wrong.1)), "{err}");
        }
        assert!(within(0..=usize::MAX, 5).is_err());
        assert!(within((Bound::Excluded(usize::MAX), Bound::Unbounded), 5).is_err());
    }
}
