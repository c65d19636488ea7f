//! The operations that a decoder needs, on plain buffers, and the layout of a page. Uses `store`.
//!
//! The rules of invariance (ARCHITECTURE.md, "Nothing changes the answer but the seed") live here.

pub mod cpu;

/// Positions in one page. Key tiles of attention start at multiples of it and have its size.
pub const PAGE_POSITIONS: usize = 16;

/// One page of keys, values and hidden rows: an index into a device's arena of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// How keys and values are stored; they are rounded to it once, when written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    #[default]
    F16,
    F32,
}
