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
pub(super) const MAX_ITEMS: usize = 40;
/// Steps of one comparison: products of terms, and operations at points, by their weight.
pub(super) const MAX_STEPS: u64 = 16_000;

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

/// Steps that normal forms may take of those, so that points are left with some.
pub(super) const EXACT_STEPS: u64 = 5_000;

/// What is left of the steps of one comparison.
pub(super) struct Steps {
    left: Cell<u64>,
    all: u64,
}

impl Steps {
    pub(super) fn new() -> Self {
        Self::of(MAX_STEPS)
    }

    fn of(all: u64) -> Self {
        Self { left: Cell::new(all), all }
    }

    pub(super) fn take(&self, steps: u64) -> Result<(), Stop> {
        let Some(left) = self.left.get().checked_sub(steps) else {
            self.left.set(0);
            return Err(Stop::TooLarge);
        };
        self.left.set(left);
        Ok(())
    }

    /// Does something with some of the steps: what it takes is taken here too.
    pub(super) fn within<T>(&self, steps: u64, work: impl FnOnce(&Self) -> T) -> T {
        let part = Self::of(steps.min(self.left.get()));
        let result = work(&part);
        self.left.set(self.left.get() - part.used());
        result
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    pub(super) fn used(&self) -> u64 {
        self.all - self.left.get()
    }
}
