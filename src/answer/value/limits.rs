//! How much is looked at. Over any of these an answer is undecided, by a rule of its own.

use std::cell::Cell;

/// Bytes of an answer.
pub(super) const MAX_CHARS: usize = 2_000;
pub(super) const MAX_TOKENS: usize = 800;
/// Digits of one number.
pub(super) const MAX_DIGITS: usize = 600;
/// Brackets, roots and powers within each other.
pub(super) const MAX_DEPTH: usize = 40;
/// Bits of an integer that is computed exactly.
pub(super) const MAX_BITS: u64 = 1 << 15;
/// Terms of a sum in normal form.
pub(super) const MAX_TERMS: usize = 400;
/// Items of a list, and cells of a matrix.
pub(super) const MAX_ITEMS: usize = 64;
/// Steps of one comparison: products of terms, and operations at points, by their weight.
pub(super) const MAX_STEPS: u64 = 30_000;

/// Why something has no value here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is not written in a way that is understood.
    Unread,
    /// It is written well and has no value, as `1/0`, or none that is computed here.
    Undefined,
    /// It is over a limit.
    TooLarge,
}

/// What is left of the steps of one comparison.
pub(super) struct Steps(Cell<u64>);

impl Steps {
    pub(super) fn new() -> Self {
        Self(Cell::new(MAX_STEPS))
    }

    pub(super) fn take(&self, steps: u64) -> Result<(), Stop> {
        let left = self.0.get().checked_sub(steps).ok_or(Stop::TooLarge)?;
        self.0.set(left);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        MAX_STEPS - self.0.get()
    }
}
