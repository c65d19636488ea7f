//! The operations that a decoder needs, on plain buffers, and the layout of a page. Uses `store`.
//!
//! The rules of invariance (ARCHITECTURE.md, "Nothing changes the answer but the seed") live here:
//! every sum has an order that depends on nothing but its length, keys and values are rounded once,
//! when they are written, and attention reads only what is in pages, in tiles of one page.

pub mod cpu;
mod ops;
mod page;

pub use ops::{Added, LowRank, Ops, Pairing, Product, RopeSpec, RowsSpec};
pub use page::{HiddenAt, KvType, PAGE_POSITIONS, PageId, PageLayout};

/// Why a device could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "no memory for {what} ({bytes} bytes: {source}); host fewer pages or smaller models, or free memory"
    )]
    OutOfMemory { what: &'static str, bytes: usize, source: std::io::Error },
    #[error("{what} is too large for this machine's addresses; ask for fewer pages")]
    TooLarge { what: &'static str },
    #[error("the pool of {threads} threads could not be started: {reason}")]
    Threads { threads: usize, reason: String },
    #[error("tensor {tensor}: {what}")]
    Weight { tensor: String, what: String },
}
