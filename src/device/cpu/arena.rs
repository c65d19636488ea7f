//! The arena of pages in this machine's memory.

use crate::device::{DeviceError, HiddenAt, KvType, PageId, PageLayout};
use memmap2::{MmapMut, MmapOptions};

/// All pages, in one mapping that the system backs with memory as it is first written.
///
/// Several models may each reserve addresses for the memory that they share: reserving takes none,
/// and a page that is discarded gives its memory back.
pub struct Arena {
    map: MmapMut,
    layout: PageLayout,
    pages: usize,
}

/// Memory for `bytes` bytes, zero, on large pages where the system offers them.
pub(super) fn zeroed(bytes: usize, what: &'static str) -> Result<MmapMut, DeviceError> {
    let map = MmapMut::map_anon(bytes.max(1)).map_err(|source| DeviceError::OutOfMemory {
        what,
        bytes,
        source,
    })?;
    // Advice only: where it is refused, ordinary pages do.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

/// Addresses for `bytes` bytes, zero, whose memory is taken as they are first written.
fn reserved(bytes: usize, what: &'static str) -> Result<MmapMut, DeviceError> {
    // Nothing is promised for what may never be written, so the overcommit rules let several models
    // reserve the same memory.
    let map = MmapOptions::new().len(bytes.max(1)).no_reserve_swap().map_anon();
    let map = map.map_err(|source| DeviceError::OutOfMemory { what, bytes, source })?;
    // Attention over 8,000 positions is 7 % faster on large pages. Pages are taken in rising order,
    // so at most one large page is ahead of what was written.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

/// Keys or values of one head at 16 positions, `[16][head_dim]`.
pub(super) enum Tile<'a> {
    F16(&'a [u16]),
    Bf16(&'a [u16]),
    F32(&'a [f32]),
}

pub(super) enum TileMut<'a> {
    F16(&'a mut [u16]),
    Bf16(&'a mut [u16]),
    F32(&'a mut [f32]),
}

impl Arena {
    pub(super) fn new(layout: PageLayout, pages: usize) -> Result<Self, DeviceError> {
        let map = reserved(layout.arena_bytes(pages)?, "the arena of pages")?;
        Ok(Self { map, layout, pages })
    }

    pub(super) fn layout(&self) -> &PageLayout {
        &self.layout
    }

    fn start(&self, page: PageId) -> usize {
        assert!(page.index() < self.pages, "page {} of {}", page.0, self.pages);
        page.index() * self.layout.page_bytes()
    }

    fn tile(&self, page: PageId, at: usize) -> Tile<'_> {
        let from = self.start(page) + at;
        let bytes = &self.map[from..from + self.layout.tile_len() * self.layout.kv.bytes()];
        match self.layout.kv {
            KvType::F16 => Tile::F16(bytemuck::cast_slice(bytes)),
            KvType::Bf16 => Tile::Bf16(bytemuck::cast_slice(bytes)),
            KvType::F32 => Tile::F32(bytemuck::cast_slice(bytes)),
        }
    }

    fn tile_mut(&mut self, page: PageId, at: usize) -> TileMut<'_> {
        let from = self.start(page) + at;
        let len = self.layout.tile_len() * self.layout.kv.bytes();
        let bytes = &mut self.map[from..from + len];
        match self.layout.kv {
            KvType::F16 => TileMut::F16(bytemuck::cast_slice_mut(bytes)),
            KvType::Bf16 => TileMut::Bf16(bytemuck::cast_slice_mut(bytes)),
            KvType::F32 => TileMut::F32(bytemuck::cast_slice_mut(bytes)),
        }
    }

    pub(super) fn keys(&self, page: PageId, layer: usize, kv_head: usize) -> Tile<'_> {
        self.tile(page, self.layout.keys_at(layer, kv_head))
    }

    pub(super) fn values(&self, page: PageId, layer: usize, kv_head: usize) -> Tile<'_> {
        self.tile(page, self.layout.values_at(layer, kv_head))
    }

    pub(super) fn keys_mut(&mut self, page: PageId, layer: usize, kv_head: usize) -> TileMut<'_> {
        self.tile_mut(page, self.layout.keys_at(layer, kv_head))
    }

    pub(super) fn values_mut(&mut self, page: PageId, layer: usize, kv_head: usize) -> TileMut<'_> {
        self.tile_mut(page, self.layout.values_at(layer, kv_head))
    }

    fn hidden_range(&self, at: HiddenAt) -> std::ops::Range<usize> {
        let width = self.layout.hidden * 4;
        let from = self.start(at.page) + self.layout.hidden_at() + at.offset * width;
        from..from + width
    }

    pub(super) fn hidden(&self, at: HiddenAt) -> &[f32] {
        bytemuck::cast_slice(&self.map[self.hidden_range(at)])
    }

    pub(super) fn hidden_mut(&mut self, at: HiddenAt) -> &mut [f32] {
        let range = self.hidden_range(at);
        bytemuck::cast_slice_mut(&mut self.map[range])
    }

    pub(super) fn copy_page(&mut self, from: PageId, to: PageId) {
        let (source, target) = (self.start(from), self.start(to));
        self.map.copy_within(source..source + self.layout.page_bytes(), target);
    }

    /// Gives back the system's pages that lie wholly inside this one. Where the system refuses, the
    /// memory stays: nothing is wrong then but its size.
    pub(super) fn discard_page(&mut self, page: PageId) {
        #[cfg(target_os = "linux")]
        {
            const SYSTEM_PAGE: usize = 4096;
            let (start, end) = (self.start(page), self.start(page) + self.layout.page_bytes());
            let from = start.next_multiple_of(SYSTEM_PAGE);
            let to = end / SYSTEM_PAGE * SYSTEM_PAGE;
            if from < to {
                self.use_small_pages(from, to);
                // SAFETY: an anonymous private mapping of our own, which reads as zeros afterwards;
                // `&mut self` says that nobody holds a slice of it.
                let _ = unsafe {
                    self.map.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        from,
                        to - from,
                    )
                };
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = page;
    }

    /// Asks for small pages in the large ones that `from..to` touches: the system would make a large
    /// page whole again behind our back, and with it all the memory that was just given back.
    #[cfg(target_os = "linux")]
    fn use_small_pages(&self, from: usize, to: usize) {
        const LARGE_PAGE: usize = 2 << 20;
        let base = self.map.as_ptr() as usize;
        let from = ((base + from) / LARGE_PAGE * LARGE_PAGE).saturating_sub(base);
        let to = ((base + to).next_multiple_of(LARGE_PAGE) - base).min(self.map.len());
        let _ = self.map.advise_range(memmap2::Advice::NoHugePage, from, to - from);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const PAGES: usize = 64;

    /// Pages of 96 KiB, whole system pages, as those of real models are.
    fn arena(pages: usize) -> Arena {
        let layout =
            PageLayout { layers: 8, kv_heads: 2, head_dim: 64, hidden: 512, kv: KvType::F16 };
        assert_eq!(layout.page_bytes(), 96 << 10);
        Arena::new(layout, pages).unwrap()
    }

    fn fill(arena: &mut Arena, page: usize, byte: u8) {
        let size = arena.layout.page_bytes();
        arena.map[page * size..(page + 1) * size].fill(byte);
    }

    /// Bytes of the arena's mapping that have memory behind them.
    fn resident(arena: &Arena) -> usize {
        let len = arena.map.len();
        let mut states = vec![0u8; len.div_ceil(4096)];
        let start = arena.map.as_ptr().cast_mut().cast();
        // SAFETY: the range is our mapping, and there is a byte for each of its pages.
        let answer = unsafe { libc::mincore(start, len, states.as_mut_ptr()) };
        assert_eq!(answer, 0);
        states.iter().filter(|state| **state & 1 == 1).count() * 4096
    }

    #[test]
    fn memory_is_taken_as_pages_are_written_and_given_back_as_they_are_discarded() {
        let mut arena = arena(PAGES);
        let size = arena.layout.page_bytes();
        assert_eq!(resident(&arena), 0);
        fill(&mut arena, 0, 7);
        assert!((size..=2 << 20).contains(&resident(&arena)), "{}", resident(&arena));
        (1..PAGES).for_each(|page| fill(&mut arena, page, 7));
        assert_eq!(resident(&arena), PAGES * size);
        (0..PAGES).step_by(2).for_each(|page| arena.discard_page(PageId(page as u32)));
        assert_eq!(resident(&arena), PAGES / 2 * size);
        // What was discarded is zeros and can be written again; the others are as they were.
        for page in 0..PAGES {
            let expected = if page % 2 == 0 { 0 } else { 7 };
            let bytes = &arena.map[page * size..(page + 1) * size];
            assert!(bytes.iter().all(|&byte| byte == expected), "page {page}");
        }
        fill(&mut arena, 10, 9);
        assert!(arena.map[10 * size..11 * size].iter().all(|&byte| byte == 9));
        assert_eq!(arena.map[9 * size + 5], 7);
        // The last page of the arena, whose large page reaches beyond it.
        arena.discard_page(PageId(PAGES as u32 - 1));
        assert_eq!(arena.map[(PAGES - 1) * size], 0);
    }

    #[test]
    fn several_arenas_may_reserve_more_than_there_is() {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
        let kib: usize = total.trim().trim_end_matches(" kB").parse().unwrap();
        let pages = (kib << 10) / (96 << 10);
        let mut arenas: Vec<Arena> = (0..3).map(|_| arena(pages)).collect();
        for (index, arena) in arenas.iter_mut().enumerate() {
            fill(arena, pages - 1, index as u8 + 1);
            assert_eq!(arena.map[pages * (96 << 10) - 1], index as u8 + 1);
        }
    }
}
