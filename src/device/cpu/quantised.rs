//! Products with block-quantised weights: panels of eight rows, and activations in blocks of 32.
//!
//! The declared arithmetic of one output, the same for one input row and for many: in block order,
//! `acc = fma(dot, dw * da, acc)`, and for the types with a minimum `acc = fma(m, s, acc)` behind it,
//! where `dot` is the exact integer sum of weight × activation in the block, `dw` the weight's scale,
//! `da` the activation's, `m` the block's minimum and `s = da * Σ activation`.
//!
//! A panel interleaves eight rows (outputs) so that a 32-bit lane of a vector belongs to one row;
//! it has exactly the bytes of the eight rows in the file. One block of a panel:
//! `[8] f16` scales, `[8] f16` minima (types with one), `[8][4]` bytes of high bits (5-bit types; bit
//! `4 * row + i` of group `g` is the high bit of weight `4 * g + i`), then the weights in groups of
//! four: byte `4 * row + i` of vector `v` has weight `4 * v + i` in its low half and weight
//! `16 + 4 * v + i` in its high half (four vectors), or is weight `4 * v + i` (8-bit: eight vectors).

use super::lanes::{Lanes, Portable, tiered};
use crate::store::WeightType;
use half::f16;

/// Numbers in one block of weights or activations.
pub(super) const BLOCK: usize = 32;
/// Rows of a weight that are interleaved.
pub(super) const PANEL: usize = 8;

/// What distinguishes the block formats.
pub(super) trait Format {
    /// Subtracted from every stored weight.
    const ZERO: i32;
    const HAS_MIN: bool;
    const HAS_HIGH: bool;
    /// Stored as i8 rather than as nibbles.
    const BYTES: bool;
    /// Bytes of one block of one row.
    const SIZE: usize;

    /// Bytes of a panel's block that lie before the high bits.
    const HIGH_AT: usize = if Self::HAS_MIN { 32 } else { 16 };
    const QUANTS_AT: usize = Self::HIGH_AT + if Self::HAS_HIGH { 32 } else { 0 };
    const PANEL_SIZE: usize = PANEL * Self::SIZE;
}

macro_rules! formats {
    ($($name:ident: $zero:literal, $min:literal, $high:literal, $bytes:literal;)*) => {$(
        pub(super) struct $name;
        impl Format for $name {
            const ZERO: i32 = $zero;
            const HAS_MIN: bool = $min;
            const HAS_HIGH: bool = $high;
            const BYTES: bool = $bytes;
            const SIZE: usize = WeightType::$name.block_bytes();
        }
    )*};
}
formats! {
    Q4_0: 8, false, false, false;
    Q4_1: 0, true, false, false;
    Q5_0: 16, false, true, false;
    Q5_1: 0, true, true, false;
    Q8_0: 0, false, false, true;
}

/// Calls `$run::<…, F>(arguments)` with the format of `$kind`; `$other` for the plain types.
macro_rules! for_format {
    ($kind:expr, $run:ident[$($lanes:ident,)?]($($arg:expr),* $(,)?), $other:expr) => {
        match $kind {
            WeightType::Q4_0 => $run::<$($lanes,)? $crate::device::cpu::quantised::Q4_0>($($arg),*),
            WeightType::Q4_1 => $run::<$($lanes,)? $crate::device::cpu::quantised::Q4_1>($($arg),*),
            WeightType::Q5_0 => $run::<$($lanes,)? $crate::device::cpu::quantised::Q5_0>($($arg),*),
            WeightType::Q5_1 => $run::<$($lanes,)? $crate::device::cpu::quantised::Q5_1>($($arg),*),
            WeightType::Q8_0 => $run::<$($lanes,)? $crate::device::cpu::quantised::Q8_0>($($arg),*),
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => $other,
        }
    };
}
pub(super) use for_format;

/// Interleaves `rows` rows of `blocks` blocks, as in the file, into panels; rows that are missing
/// in the last panel are zeros. `out` has the bytes of the panels and is zero.
pub(super) fn interleave<F: Format>(file: &[u8], rows: usize, blocks: usize, out: &mut [u8]) {
    for (row, file) in file.chunks_exact(blocks * F::SIZE).take(rows).enumerate() {
        let panel = row / PANEL * blocks * F::PANEL_SIZE;
        for (b, block) in file.chunks_exact(F::SIZE).enumerate() {
            let at = panel + b * F::PANEL_SIZE;
            interleave_block::<F>(block, row % PANEL, &mut out[at..at + F::PANEL_SIZE]);
        }
    }
}

fn interleave_block<F: Format>(block: &[u8], lane: usize, out: &mut [u8]) {
    let (scale, rest) = block.split_at(2);
    out[2 * lane..2 * lane + 2].copy_from_slice(scale);
    let (min, rest) = rest.split_at(if F::HAS_MIN { 2 } else { 0 });
    if F::HAS_MIN {
        out[16 + 2 * lane..18 + 2 * lane].copy_from_slice(min);
    }
    let (high, quants) = rest.split_at(if F::HAS_HIGH { 4 } else { 0 });
    // Byte `k` of `high` has the bits of groups 2k and 2k+1.
    for (k, bits) in high.iter().enumerate() {
        for (group, four) in [(2 * k, bits & 15), (2 * k + 1, bits >> 4)] {
            out[F::HIGH_AT + 4 * group + lane / 2] |= four << (4 * (lane % 2));
        }
    }
    for (v, four) in quants.chunks_exact(4).enumerate() {
        let at = F::QUANTS_AT + 32 * v + 4 * lane;
        out[at..at + 4].copy_from_slice(four);
    }
}

/// The eight f16 numbers at the start of `bytes`.
#[inline(always)]
fn eight_f16(bytes: &[u8]) -> [u16; 8] {
    std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

/// Stored weight `k` of `lane` in one block of a panel, its zero not yet subtracted.
#[inline(always)]
fn stored<F: Format>(block: &[u8], lane: usize, k: usize) -> i32 {
    let quants = &block[F::QUANTS_AT..];
    if F::BYTES {
        return i32::from(quants[8 * (k & !3) + 4 * lane + k % 4] as i8);
    }
    let byte = quants[8 * (k % 16 & !3) + 4 * lane + k % 4];
    let low = i32::from(if k < 16 { byte & 15 } else { byte >> 4 });
    if !F::HAS_HIGH {
        return low;
    }
    let bit = 4 * lane + k % 4;
    let high = block[F::HIGH_AT + (k & !3) + bit / 8] >> (bit % 8) & 1;
    low | i32::from(high) << 4
}

/// One row of a panelled weight as f32, `d * (q - zero)` or `fma(d, q, m)`.
pub(super) fn unpack_row<F: Format>(panels: &[u8], row: usize, out: &mut [f32]) {
    let blocks = out.len() / BLOCK;
    let lane = row % PANEL;
    let panel = &panels[row / PANEL * blocks * F::PANEL_SIZE..][..blocks * F::PANEL_SIZE];
    for (block, out) in panel.chunks_exact(F::PANEL_SIZE).zip(out.chunks_exact_mut(BLOCK)) {
        let scale = f16::from_bits(eight_f16(block)[lane]).to_f32();
        let min =
            if F::HAS_MIN { f16::from_bits(eight_f16(&block[16..])[lane]).to_f32() } else { 0.0 };
        for (k, out) in out.iter_mut().enumerate() {
            *out = ((stored::<F>(block, lane, k) - F::ZERO) as f32).mul_add(scale, min);
        }
    }
}

/// Rows of activations as blocks of i8.
#[derive(Default)]
pub(super) struct QuantisedRows {
    /// `[rows][columns]`
    pub quants: Vec<i8>,
    /// `[rows][blocks]`
    pub scales: Vec<BlockScale>,
}

/// What belongs to one block of activations.
#[derive(Clone, Copy, Default)]
pub(super) struct BlockScale {
    /// `da`; NaN where the block held a number that is not finite.
    pub scale: f32,
    /// `s`, the block's sum times its scale.
    pub sum: f32,
    /// The sum of the block's integers.
    pub int_sum: i32,
}

/// Blocks whose greatest magnitude is below this are zero: its inverse would not be finite.
const SMALLEST_BLOCK: f32 = 1e-30;

/// Quantises one row, `[32 n]`: `da = max / 127`, `q = round(x * (127 / max))`.
#[inline(always)]
fn quantise_row_body<V: Lanes>(x: &[f32], quants: &mut [i8], scales: &mut [BlockScale]) {
    let blocks = x.as_chunks::<BLOCK>().0.iter().zip(quants.as_chunks_mut::<BLOCK>().0);
    for ((x, quants), out) in blocks.zip(scales) {
        let (x, quants) = (x.as_chunks::<8>().0, quants.as_chunks_mut::<8>().0);
        let mut greatest = V::splat(0.0);
        // 0 * x summed: 0 if all are finite, else NaN.
        let mut finite = V::splat(0.0);
        for eight in x {
            let eight = V::load(eight);
            greatest = eight.abs().max(greatest);
            finite = eight.fma(V::splat(0.0), finite);
        }
        let (greatest, finite) = (greatest.greatest(), finite.sum());
        let inverse = if greatest < SMALLEST_BLOCK { 0.0 } else { 127.0 / greatest };
        let mut int_sum = 0;
        for (eight, quants) in x.iter().zip(quants) {
            V::load(eight).mul(V::splat(inverse)).store_i8(quants);
            int_sum += quants.iter().map(|&q| i32::from(q)).sum::<i32>();
        }
        let scale = if greatest < SMALLEST_BLOCK { finite } else { greatest / 127.0 + finite };
        *out = BlockScale { scale, sum: scale * int_sum as f32, int_sum };
    }
}

tiered! {
    /// Quantises one row of activations.
    pub(super) fn quantise_row(x: &[f32], quants: &mut [i8], scales: &mut [BlockScale])
        = quantise_row_body
}

/// The exact integer dot products of a panel's block with the same block of `N` rows.
pub(super) trait BlockDot: Lanes {
    /// Lane `i` of result `t` is `Σ_k (stored weight k of row i − zero) * acts[t][k]`, as f32.
    fn dots<F: Format, const N: usize>(
        block: &[u8],
        acts: [&[i8; BLOCK]; N],
        sums: [i32; N],
    ) -> [Self; N];
}

impl BlockDot for Portable {
    #[inline(always)]
    fn dots<F: Format, const N: usize>(
        block: &[u8],
        acts: [&[i8; BLOCK]; N],
        sums: [i32; N],
    ) -> [Self; N] {
        let mut dots = [[0i32; PANEL]; N];
        for lane in 0..PANEL {
            for k in 0..BLOCK {
                let weight = stored::<F>(block, lane, k);
                for t in 0..N {
                    dots[t][lane] += weight * i32::from(acts[t][k]);
                }
            }
        }
        std::array::from_fn(|t| Self::from_ints(dots[t].map(|dot| dot - F::ZERO * sums[t])))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::lanes::Avx2;
    use super::{BLOCK, BlockDot, Format};
    use std::arch::x86_64::*;

    impl BlockDot for Avx2 {
        #[inline(always)]
        fn dots<F: Format, const N: usize>(
            block: &[u8],
            acts: [&[i8; BLOCK]; N],
            sums: [i32; N],
        ) -> [Self; N] {
            assert!(block.len() >= F::PANEL_SIZE);
            // SAFETY: reached only where AVX2 was detected (see `Avx2`); the block's length is
            // asserted, and every load below stays inside it.
            unsafe {
                let ints = if F::BYTES {
                    dots_bytes::<F, N>(block, acts)
                } else {
                    dots_nibbles::<F, N>(block, acts)
                };
                std::array::from_fn(|t| {
                    let dot = if F::ZERO == 0 {
                        ints[t]
                    } else {
                        _mm256_sub_epi32(ints[t], _mm256_set1_epi32(F::ZERO * sums[t]))
                    };
                    Self(_mm256_cvtepi32_ps(dot))
                })
            }
        }
    }

    /// Four activations, `4 * group ..`, in every 32-bit lane.
    #[inline(always)]
    unsafe fn broadcast(acts: &[i8; BLOCK], group: usize) -> __m256i {
        // SAFETY: the caller has AVX2; `group < 8`, so the four bytes are inside the array.
        unsafe { _mm256_set1_epi32(acts.as_ptr().add(4 * group).cast::<i32>().read_unaligned()) }
    }

    /// The high bits of one group as 16 or 0 in each byte.
    #[inline(always)]
    unsafe fn high_bits<F: Format>(block: &[u8], group: usize) -> __m256i {
        // SAFETY: the caller has AVX2 and a block of `F`, whose high bits are 32 bytes.
        unsafe {
            let bits = block.as_ptr().add(F::HIGH_AT + 4 * group).cast::<i32>().read_unaligned();
            let spread = _mm256_setr_epi8(
                0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3,
                3, 3, 3, 3,
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
            _mm256_and_si256(set, _mm256_set1_epi8(16))
        }
    }

    /// 4- and 5-bit weights: unsigned weight × signed activation, summed in 16 bits as far as that
    /// is exact (8 × 2 × 15 × 127 = 30,480; for 5 bits 4 × 2 × 31 × 127 = 31,496), then in 32.
    #[inline(always)]
    unsafe fn dots_nibbles<F: Format, const N: usize>(
        block: &[u8],
        acts: [&[i8; BLOCK]; N],
    ) -> [__m256i; N] {
        // SAFETY: the caller has AVX2 and a block of `F`: four vectors behind `QUANTS_AT`.
        unsafe {
            let (nibble, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
            let mut words = [_mm256_setzero_si256(); N];
            let mut ints = [_mm256_setzero_si256(); N];
            for v in 0..4 {
                let raw = _mm256_loadu_si256(block.as_ptr().add(F::QUANTS_AT + 32 * v).cast());
                let mut low = _mm256_and_si256(raw, nibble);
                let mut high = _mm256_and_si256(_mm256_srli_epi16::<4>(raw), nibble);
                if F::HAS_HIGH {
                    low = _mm256_or_si256(low, high_bits::<F>(block, v));
                    high = _mm256_or_si256(high, high_bits::<F>(block, v + 4));
                }
                for t in 0..N {
                    let a = _mm256_maddubs_epi16(low, broadcast(acts[t], v));
                    let b = _mm256_maddubs_epi16(high, broadcast(acts[t], v + 4));
                    words[t] = _mm256_add_epi16(words[t], _mm256_add_epi16(a, b));
                    if F::HAS_HIGH && v == 1 {
                        ints[t] = _mm256_madd_epi16(words[t], ones);
                        words[t] = _mm256_setzero_si256();
                    }
                }
            }
            for t in 0..N {
                let last = _mm256_madd_epi16(words[t], ones);
                ints[t] = if F::HAS_HIGH { _mm256_add_epi32(ints[t], last) } else { last };
            }
            ints
        }
    }

    /// 8-bit weights: |weight| × (activation with the weight's sign); 2 × 128 × 127 fits 16 bits.
    #[inline(always)]
    unsafe fn dots_bytes<F: Format, const N: usize>(
        block: &[u8],
        acts: [&[i8; BLOCK]; N],
    ) -> [__m256i; N] {
        // SAFETY: the caller has AVX2 and a block of `F`: eight vectors behind `QUANTS_AT`.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut ints = [_mm256_setzero_si256(); N];
            for v in 0..8 {
                let weight = _mm256_loadu_si256(block.as_ptr().add(F::QUANTS_AT + 32 * v).cast());
                let magnitude = _mm256_abs_epi8(weight);
                for t in 0..N {
                    let signed = _mm256_sign_epi8(broadcast(acts[t], v), weight);
                    let words = _mm256_maddubs_epi16(magnitude, signed);
                    ints[t] = _mm256_add_epi32(ints[t], _mm256_madd_epi16(words, ones));
                }
            }
            ints
        }
    }
}

/// Products of one panel with `N` rows, `[N][8]`.
#[inline(always)]
pub(super) fn panel_rows<V: BlockDot, F: Format, const N: usize>(
    panel: &[u8],
    rows: &QuantisedRows,
    first: usize,
    blocks: usize,
) -> [V; N] {
    let quants: [&[[i8; BLOCK]]; N] = std::array::from_fn(|t| {
        let at = (first + t) * blocks * BLOCK;
        rows.quants[at..at + blocks * BLOCK].as_chunks::<BLOCK>().0
    });
    let scales: [&[BlockScale]; N] = std::array::from_fn(|t| {
        let at = (first + t) * blocks;
        &rows.scales[at..at + blocks]
    });
    let mut acc = [V::splat(0.0); N];
    for (b, block) in panel.chunks_exact(F::PANEL_SIZE).take(blocks).enumerate() {
        let acts = std::array::from_fn(|t| &quants[t][b]);
        let scale: [BlockScale; N] = std::array::from_fn(|t| scales[t][b]);
        let dots = V::dots::<F, N>(block, acts, std::array::from_fn(|t| scale[t].int_sum));
        let weight_scale = V::load_f16(&eight_f16(block));
        for t in 0..N {
            acc[t] = dots[t].fma(weight_scale.mul(V::splat(scale[t].scale)), acc[t]);
        }
        if F::HAS_MIN {
            let min = V::load_f16(&eight_f16(&block[16..]));
            for t in 0..N {
                acc[t] = min.fma(V::splat(scale[t].sum), acc[t]);
            }
        }
    }
    acc
}
