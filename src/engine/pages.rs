//! The pool of pages of one model: which are free, and how many sequences hold each of the others.

use crate::device::PageId;

/// Reference counts of a decoder's preallocated pages.
#[derive(Debug)]
pub(super) struct PagePool {
    /// Per page: how many page tables name it; 0 is free.
    holders: Vec<u32>,
    /// Free pages; the next to be taken is last.
    free: Vec<PageId>,
}

impl PagePool {
    /// A pool of `count` free pages.
    pub(super) fn new(count: usize) -> Self {
        Self { holders: vec![0; count], free: (0..count as u32).rev().map(PageId).collect() }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn total(&self) -> usize {
        self.holders.len()
    }

    /// Takes a free page for one holder.
    pub(super) fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.holders[page.0 as usize] = 1;
        Some(page)
    }

    /// Adds a holder to a page that is held.
    pub(super) fn share(&mut self, page: PageId) {
        let holders = &mut self.holders[page.0 as usize];
        assert!(*holders > 0, "page {} was shared while free", page.0);
        *holders += 1;
    }

    /// Takes away a holder; the last one frees the page.
    pub(super) fn release(&mut self, page: PageId) {
        let holders = &mut self.holders[page.0 as usize];
        assert!(*holders > 0, "page {} was released while free", page.0);
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }

    /// True when another sequence holds the page too, so that it must not be written.
    pub(super) fn is_shared(&self, page: PageId) -> bool {
        self.holders[page.0 as usize] > 1
    }

    /// Compares the counts with `tables`, all page tables that there are.
    pub(super) fn check<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a [PageId]>,
    ) -> Result<(), String> {
        let mut counted = vec![0u32; self.holders.len()];
        for page in tables.into_iter().flatten() {
            counted[page.0 as usize] += 1;
        }
        for (page, (&held, &counted)) in self.holders.iter().zip(&counted).enumerate() {
            if held != counted {
                return Err(format!("page {page} is held {held} times and named {counted} times"));
            }
        }
        let unheld = counted.iter().filter(|&&count| count == 0).count();
        if unheld != self.free.len() || self.free.iter().any(|page| counted[page.0 as usize] > 0) {
            return Err(format!("{unheld} pages are unheld and {} are free", self.free.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holder_frees() {
        let mut pool = PagePool::new(2);
        let first = pool.take().unwrap();
        let second = pool.take().unwrap();
        assert_eq!((first, second), (PageId(0), PageId(1)));
        assert_eq!(pool.take(), None);
        pool.share(first);
        assert!(pool.is_shared(first) && !pool.is_shared(second));
        pool.release(first);
        assert_eq!(pool.free(), 0);
        pool.release(first);
        assert_eq!(pool.take(), Some(first));
    }

    #[test]
    fn the_check_finds_what_is_wrong() {
        let mut pool = PagePool::new(3);
        let page = pool.take().unwrap();
        let none: [&[PageId]; 0] = [];
        assert!(pool.check([[page].as_slice()]).is_ok());
        assert!(pool.check(none).is_err(), "a page nobody names");
        assert!(pool.check([[page].as_slice(), &[page]]).is_err(), "a page named twice");
        assert!(pool.check([[page, PageId(2)].as_slice()]).is_err(), "a free page named");
    }
}
