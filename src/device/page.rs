//! The layout of a page: keys, values and hidden rows of 16 positions, all layers.

use super::DeviceError;

/// Positions in one page. Key tiles of attention start at multiples of it and have its size.
pub const PAGE_POSITIONS: usize = 16;

/// One page of keys, values and hidden rows: an index into a device's arena of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

impl PageId {
    /// The id as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How keys and values are stored; they are rounded to it once, when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    #[default]
    F16,
    /// The range of f32 with 8 bits of precision.
    Bf16,
    F32,
}

impl KvType {
    /// Bytes of one stored number.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Where a position's kept hidden row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenAt {
    pub page: PageId,
    /// Position within the page, 0..16.
    pub offset: usize,
}

/// What lies where in a page.
///
/// A page is contiguous: for each layer the keys `[kv_heads][16][head_dim]` and then the values in
/// the same shape, as [`KvType`]; behind the last layer the hidden rows `[16][hidden]`, f32. So a
/// tile of one head is one contiguous piece, and copying a page is one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    pub layers: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub hidden: usize,
    pub kv: KvType,
}

impl PageLayout {
    /// Numbers in the keys (or the values) of one head: `16 * head_dim`.
    pub fn tile_len(&self) -> usize {
        PAGE_POSITIONS * self.head_dim
    }

    /// Bytes of the keys, or the values, of one layer.
    fn side_bytes(&self) -> usize {
        self.kv_heads * self.tile_len() * self.kv.bytes()
    }

    /// Byte at which the hidden rows start; rounded up so that f32 rows are aligned.
    pub fn hidden_at(&self) -> usize {
        (2 * self.layers * self.side_bytes()).next_multiple_of(4)
    }

    /// Byte at which the tile of keys of a head starts.
    pub fn keys_at(&self, layer: usize, kv_head: usize) -> usize {
        2 * layer * self.side_bytes() + kv_head * self.tile_len() * self.kv.bytes()
    }

    /// Byte at which the tile of values of a head starts.
    pub fn values_at(&self, layer: usize, kv_head: usize) -> usize {
        self.keys_at(layer, kv_head) + self.side_bytes()
    }

    /// Bytes of one page.
    pub fn page_bytes(&self) -> usize {
        self.hidden_at() + PAGE_POSITIONS * self.hidden * 4
    }

    /// Bytes of an arena of `pages` pages.
    pub fn arena_bytes(&self, pages: usize) -> Result<usize, DeviceError> {
        self.page_bytes()
            .checked_mul(pages)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or(DeviceError::TooLarge { what: "the arena of pages" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_page_follow_each_other_without_overlap() {
        for kv in [KvType::F16, KvType::Bf16, KvType::F32] {
            let layout = PageLayout { layers: 3, kv_heads: 2, head_dim: 5, hidden: 7, kv };
            let tile = layout.tile_len() * kv.bytes();
            let mut expected = 0;
            for layer in 0..3 {
                for starts in [PageLayout::keys_at, PageLayout::values_at] {
                    for head in 0..2 {
                        assert_eq!(starts(&layout, layer, head), expected);
                        expected += tile;
                    }
                }
            }
            assert_eq!(layout.hidden_at(), expected.next_multiple_of(4));
            assert_eq!(layout.page_bytes(), layout.hidden_at() + 16 * 7 * 4);
        }
    }

    #[test]
    fn an_arena_beyond_the_address_space_is_refused() {
        let layout =
            PageLayout { layers: 80, kv_heads: 8, head_dim: 128, hidden: 8192, kv: KvType::F32 };
        assert!(matches!(layout.arena_bytes(usize::MAX / 64), Err(DeviceError::TooLarge { .. })));
    }
}
