//! A matrix whose threads write disjoint parts: the one place where several threads hold the same
//! output.

use std::marker::PhantomData;

/// A row-major matrix that several threads fill at once.
pub(super) struct Disjoint<'a, T> {
    start: *mut T,
    rows: usize,
    width: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `part`, whose caller promises that no two live parts overlap; a T may
// be written from any thread.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above; the pointer carries no thread's state.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// The first `rows` rows of `width` numbers in `out`.
    pub(super) fn new(out: &'a mut [T], rows: usize, width: usize) -> Self {
        assert!(rows * width <= out.len(), "a matrix larger than its buffer");
        Self { start: out.as_mut_ptr(), rows, width, life: PhantomData }
    }

    /// Columns `from..from + count` of `row`.
    ///
    /// # Safety
    /// No two parts that are alive at the same time, in any thread, may overlap.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(super) unsafe fn part(&self, row: usize, from: usize, count: usize) -> &mut [T] {
        assert!(row < self.rows && from + count <= self.width, "a part outside its matrix");
        // SAFETY: the range lies inside the borrowed buffer (checked here and in `new`), and the
        // caller promises that nobody else holds any of it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + from), count) }
    }
}
