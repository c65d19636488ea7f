//! A tensor as it lies in a file: its type, its shape, its bytes.

use std::sync::Arc;

/// How the numbers of a tensor are stored. Block formats hold 32 weights of a row together, K formats
/// 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[allow(non_camel_case_types)]
pub enum WeightType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl WeightType {
    /// Weights in one block: 1 for the plain types, 32 or 256 for the block formats.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2_K => 84,
            Self::Q3_K => 110,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }
}

/// One tensor of a mapped file. `shape` is outermost first (`[rows, columns]` for a linear layer
/// whose row is one output), whichever order the file format writes. Rows are contiguous.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub kind: WeightType,
    pub shape: Vec<usize>,
    map: Arc<memmap2::Mmap>,
    start: usize,
    len: usize,
}

impl Tensor {
    /// A view of `len` bytes at `start` of `map`; the caller has checked that they are inside it
    /// and that `len` is what `kind` and `shape` ask for.
    pub(crate) fn new(
        name: String,
        kind: WeightType,
        shape: Vec<usize>,
        map: Arc<memmap2::Mmap>,
        start: usize,
        len: usize,
    ) -> Self {
        Self { name, kind, shape, map, start, len }
    }

    /// Lets the system take back the memory behind these tensors' part of their mappings, and what
    /// lies between them, e.g. after they were copied elsewhere. What is read again comes from the
    /// file again.
    pub(crate) fn forget(tensors: &[Self]) {
        let mut ranges: Vec<(&Arc<memmap2::Mmap>, usize, usize)> = Vec::new();
        for Self { map, start, len, .. } in tensors {
            let end = start + len;
            match ranges.iter_mut().find(|(of, ..)| Arc::ptr_eq(of, map)) {
                Some((_, from, to)) => (*from, *to) = ((*from).min(*start), (*to).max(end)),
                None => ranges.push((map, *start, end)),
            }
        }
        #[cfg(target_os = "linux")]
        for (map, from, to) in ranges {
            use memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the mapping is private, read-only and never written, so what is dropped here
            // reads the same again. A refusal changes nothing but the memory that stays.
            let _ = unsafe { map.unchecked_advise_range(DontNeed, from, to - from) };
        }
    }

    /// The raw bytes, as in the file (little-endian; no alignment is promised).
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}
