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

/// Addresses for `bytes` bytes, zero, whose memory is taken system page by system page as they are
/// first written.
fn reserved(bytes: usize, what: &'static str) -> Result<MmapMut, DeviceError> {
    // Nothing is promised for what may never be written, so the overcommit rules let several models
    // reserve the same memory.
    let map = MmapOptions::new().len(bytes.max(1)).no_reserve_swap().map_anon();
    map.map_err(|source| DeviceError::OutOfMemory { what, bytes, source })
}

/// Keys or values of one head at 16 positions, `[16][head_dim]`.
pub(super) enum Tile<'a> {
    F16(&'a [u16]),
    F32(&'a [f32]),
}

pub(super) enum TileMut<'a> {
    F16(&'a mut [u16]),
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
            KvType::F32 => Tile::F32(bytemuck::cast_slice(bytes)),
        }
    }

    fn tile_mut(&mut self, page: PageId, at: usize) -> TileMut<'_> {
        let from = self.start(page) + at;
        let len = self.layout.tile_len() * self.layout.kv.bytes();
        let bytes = &mut self.map[from..from + len];
        match self.layout.kv {
            KvType::F16 => TileMut::F16(bytemuck::cast_slice_mut(bytes)),
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
            let from = self.start(page).next_multiple_of(SYSTEM_PAGE);
            let to = (self.start(page) + self.layout.page_bytes()) / SYSTEM_PAGE * SYSTEM_PAGE;
            if from < to {
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
}
