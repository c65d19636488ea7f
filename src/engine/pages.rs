//! The pages of one model: which are free, and which of the free ones have memory behind them.

use crate::device::PageId;

/// Which pages of a decoder's arena are free.
///
/// A free page is *warm* when it was written before, so that memory is behind it, and *cold* when
/// it has none: never written, or given back to the system.
#[derive(Debug)]
pub(super) struct PagePool {
    warm: Vec<PageId>,
    /// Given back to the system.
    cold: Vec<PageId>,
    /// Pages from here on were never taken.
    untouched: u32,
    total: u32,
    /// Per page: whether it is free.
    free: Vec<bool>,
}

impl PagePool {
    /// A pool of `count` free pages without memory.
    pub(super) fn new(count: usize) -> Self {
        let total = count as u32;
        Self { warm: vec![], cold: vec![], untouched: 0, total, free: vec![true; count] }
    }

    pub(super) fn free(&self) -> usize {
        self.warm.len() + self.cold()
    }

    pub(super) fn total(&self) -> usize {
        self.total as usize
    }

    /// Free pages without memory.
    pub(super) fn cold(&self) -> usize {
        self.cold.len() + (self.total - self.untouched) as usize
    }

    /// Pages with memory behind them, free or not.
    pub(super) fn resident(&self) -> usize {
        self.total() - self.cold()
    }

    /// Takes a free page that has memory.
    pub(super) fn take_warm(&mut self) -> Option<PageId> {
        let page = self.warm.pop()?;
        self.free[page.index()] = false;
        Some(page)
    }

    /// Takes a free page that has none yet.
    pub(super) fn take_cold(&mut self) -> Option<PageId> {
        let page = match self.cold.pop() {
            Some(page) => page,
            None if self.untouched < self.total => {
                self.untouched += 1;
                PageId(self.untouched - 1)
            }
            None => return None,
        };
        self.free[page.index()] = false;
        Some(page)
    }

    /// Frees a page; it stays warm.
    pub(super) fn give(&mut self, page: PageId) {
        let free = &mut self.free[page.index()];
        assert!(!*free, "page {} was freed twice", page.0);
        *free = true;
        self.warm.push(page);
    }

    /// Makes a warm free page cold; its memory is the caller's to give back.
    pub(super) fn cool(&mut self) -> Option<PageId> {
        let page = self.warm.pop()?;
        self.cold.push(page);
        Some(page)
    }

    /// Checks that all pages are free but `held`, each named once.
    pub(super) fn check(&self, held: impl IntoIterator<Item = PageId>) -> Result<(), String> {
        let mut seen = vec![false; self.free.len()];
        for page in held {
            if std::mem::replace(&mut seen[page.index()], true) {
                return Err(format!("page {} is named twice", page.0));
            }
            if self.free[page.index()] {
                return Err(format!("page {} is named and free", page.0));
            }
        }
        let lost = (0..seen.len()).find(|&page| !seen[page] && !self.free[page]);
        match lost {
            Some(page) => Err(format!("page {page} is neither named nor free")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_before_more_is_taken() {
        let mut pool = PagePool::new(2);
        assert_eq!((pool.free(), pool.resident(), pool.take_warm()), (2, 0, None));
        let first = pool.take_cold().unwrap();
        pool.give(first);
        assert_eq!((pool.free(), pool.resident()), (2, 1));
        assert_eq!(pool.take_warm(), Some(first));
        assert_eq!(pool.take_cold(), Some(PageId(1)));
        assert_eq!((pool.take_warm(), pool.take_cold(), pool.free()), (None, None, 0));
        pool.give(first);
        assert_eq!(pool.cool(), Some(first));
        assert_eq!((pool.cool(), pool.cold(), pool.resident()), (None, 1, 1));
        assert_eq!(pool.take_cold(), Some(first));
    }

    #[test]
    fn the_check_finds_what_is_wrong() {
        let mut pool = PagePool::new(3);
        let page = pool.take_cold().unwrap();
        assert!(pool.check([page]).is_ok());
        assert!(pool.check([]).is_err(), "a page nobody names");
        assert!(pool.check([page, page]).is_err(), "a page named twice");
        assert!(pool.check([page, PageId(2)]).is_err(), "a free page named");
    }
}
