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

/// `N` bytes from byte `at`, which the caller knows to be there.
#[inline(always)]
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    match bytes[at..at + N].first_chunk() {
        Some(chunk) => chunk,
        None => unreachable!("a slice of N bytes has N bytes"),
    }
}

/// The f16 number of one row among the eight from byte `at`.
fn f16_at(block: &[u8], at: usize, lane: usize) -> f32 {
    f16::from_le_bytes(*bytes_at(block, at + 2 * lane)).to_f32()
}

/// Stored weight `k` of `lane` in one block of a panel, its zero not yet subtracted.
#[inline(always)]
fn stored<F: Format>(block: &[u8], lane: usize, k: usize) -> i32 {
    let quants = &block[F::QUANTS_AT..];
    if F::BYTES {
        return i32::from(quants[8 * (k / 4 * 4) + 4 * lane + k % 4] as i8);
    }
    let byte = quants[8 * (k % 16 / 4 * 4) + 4 * lane + k % 4];
    let low = i32::from(if k < 16 { byte & 15 } else { byte >> 4 });
    if !F::HAS_HIGH {
        return low;
    }
    let bit = 4 * lane + k % 4;
    let high = block[F::HIGH_AT + k / 4 * 4 + bit / 8] >> (bit % 8) & 1;
    low | i32::from(high) << 4
}

/// One row of a panelled weight as f32, `d * (q - zero)` or `fma(d, q, m)`.
pub(super) fn unpack_row<F: Format>(panels: &[u8], row: usize, out: &mut [f32]) {
    let blocks = out.len() / BLOCK;
    let lane = row % PANEL;
    let panel = &panels[row / PANEL * blocks * F::PANEL_SIZE..][..blocks * F::PANEL_SIZE];
    for (block, out) in panel.chunks_exact(F::PANEL_SIZE).zip(out.chunks_exact_mut(BLOCK)) {
        let scale = f16_at(block, 0, lane);
        let min = if F::HAS_MIN { f16_at(block, 16, lane) } else { 0.0 };
        for (k, out) in out.iter_mut().enumerate() {
            *out = ((stored::<F>(block, lane, k) - F::ZERO) as f32).mul_add(scale, min);
        }
    }
}

/// One block of activations.
#[derive(Clone, Copy, Default)]
pub(super) struct Activations {
    /// 32 i8 numbers, -127..=127, four to a word, the first in the lowest byte.
    pub words: [i32; BLOCK / 4],
    /// `da`; NaN where the block held a number that is not finite.
    pub scale: f32,
    /// `s`, the sum of the integers times the scale.
    pub sum: f32,
    /// The sum of the integers.
    pub int_sum: i32,
}

/// Blocks whose greatest magnitude is below this are zero: its inverse would not be finite.
const SMALLEST_BLOCK: f32 = 1e-30;

/// Quantises one row, `[32 n]`: `da = max / 127`, `q = round(x * (127 / max))`.
#[inline(always)]
fn quantise_row_body<V: Lanes>(x: &[f32], out: &mut [Activations]) {
    for (x, out) in x.as_chunks::<BLOCK>().0.iter().zip(out) {
        let x = x.as_chunks::<8>().0;
        let mut greatest = V::splat(0.0);
        // 0 * x summed: 0 if all are finite, else NaN.
        let mut finite = V::splat(0.0);
        for eight in x {
            let eight = V::load(eight);
            greatest = eight.abs().max(greatest);
            finite = eight.fma(V::splat(0.0), finite);
        }
        let (greatest, finite) = (greatest.greatest(), finite.sum());
        let is_zero = greatest < SMALLEST_BLOCK;
        let inverse = if is_zero { 0.0 } else { 127.0 / greatest };
        let mut quants = [0i8; BLOCK];
        for (eight, quants) in x.iter().zip(quants.as_chunks_mut::<8>().0) {
            V::load(eight).mul(V::splat(inverse)).store_i8(quants);
        }
        let mut int_sum = 0i32;
        for quant in quants {
            int_sum = int_sum.wrapping_add(i32::from(quant));
        }
        let scale = if is_zero { finite } else { greatest / 127.0 + finite };
        let words = bytemuck::cast::<_, [i32; BLOCK / 4]>(quants).map(i32::from_le);
        *out = Activations { words, scale, sum: scale * int_sum as f32, int_sum };
    }
}

tiered! {
    /// Quantises one row of activations.
    pub(super) fn quantise_row(x: &[f32], out: &mut [Activations]) = quantise_row_body
}

/// The exact integer dot products of a panel's block with the same block of `N` rows.
pub(super) trait BlockDot: Lanes {
    /// Lane `i` of result `t` is `Σ_k (stored weight k of row i − zero) * acts[t][k]`, as f32.
    fn dots<F: Format, const N: usize>(block: &[u8], acts: &[&Activations; N]) -> [Self; N];
}

impl BlockDot for Portable {
    #[inline(always)]
    fn dots<F: Format, const N: usize>(block: &[u8], acts: &[&Activations; N]) -> [Self; N] {
        let mut dots = [[0i32; PANEL]; N];
        for k in 0..BLOCK {
            for lane in 0..PANEL {
                let weight = stored::<F>(block, lane, k);
                for (dots, act) in dots.iter_mut().zip(acts) {
                    let act = act.words[k / 4].to_le_bytes()[k % 4] as i8;
                    dots[lane] += weight * i32::from(act);
                }
            }
        }
        std::array::from_fn(|t| Self::from_ints(dots[t].map(|dot| dot - F::ZERO * acts[t].int_sum)))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::lanes::{Avx2, Lanes};
    use super::{Activations, BlockDot, Format, bytes_at};
    use std::arch::x86_64::*;

    impl BlockDot for Avx2 {
        #[inline(always)]
        fn dots<F: Format, const N: usize>(block: &[u8], acts: &[&Activations; N]) -> [Self; N] {
            assert!(block.len() >= F::PANEL_SIZE);
            // SAFETY: reached only where AVX2 was detected (see `Avx2`); the block's length is
            // asserted, and every load below stays inside it.
            unsafe {
                let ints = if F::BYTES {
                    dots_bytes::<F, N>(block, acts)
                } else {
                    dots_nibbles::<F, N>(block, acts)
                };
                let mut dots = [Self::splat(0.0); N];
                for t in 0..N {
                    let mut dot = ints[t];
                    if F::ZERO != 0 {
                        let zeros = _mm256_set1_epi32(F::ZERO.wrapping_mul(acts[t].int_sum));
                        dot = _mm256_sub_epi32(dot, zeros);
                    }
                    dots[t] = Self(_mm256_cvtepi32_ps(dot));
                }
                dots
            }
        }
    }

    /// 32 bytes of a block from byte `at`.
    #[inline(always)]
    fn vector(block: &[u8], at: usize) -> __m256i {
        // SAFETY: as many bytes, and any bits may fill the register.
        unsafe { std::mem::transmute::<[u8; 32], __m256i>(*bytes_at(block, at)) }
    }

    /// The high bits of all groups, a word each.
    #[inline(always)]
    fn high_words<F: Format>(block: &[u8]) -> [i32; 8] {
        if !F::HAS_HIGH {
            return [0; 8];
        }
        bytemuck::pod_read_unaligned::<[i32; 8]>(&block[F::HIGH_AT..F::HIGH_AT + 32])
    }

    /// The high bits of one group as 16 or 0 in each byte.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn high_bits(word: i32) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe {
            let spread = _mm256_setr_epi8(
                0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3,
                3, 3, 3, 3,
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), spread);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
            _mm256_and_si256(set, _mm256_set1_epi8(16))
        }
    }

    /// 4- and 5-bit weights: unsigned weight × signed activation, summed in 16 bits as far as that
    /// is exact (8 × 2 × 15 × 127 = 30,480; for 5 bits 4 × 2 × 31 × 127 = 31,496), then in 32.
    ///
    /// # Safety
    /// The processor has AVX2 and the block is a whole one of `F`.
    #[inline(always)]
    unsafe fn dots_nibbles<F: Format, const N: usize>(
        block: &[u8],
        acts: &[&Activations; N],
    ) -> [__m256i; N] {
        // SAFETY: as the caller promises; four vectors lie behind `QUANTS_AT`.
        unsafe {
            let (nibble, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
            let bits = high_words::<F>(block);
            let mut words = [_mm256_setzero_si256(); N];
            let mut ints = [_mm256_setzero_si256(); N];
            for v in 0..4 {
                let raw = vector(block, F::QUANTS_AT + 32 * v);
                let mut low = _mm256_and_si256(raw, nibble);
                let mut high = _mm256_and_si256(_mm256_srli_epi16::<4>(raw), nibble);
                if F::HAS_HIGH {
                    low = _mm256_or_si256(low, high_bits(bits[v]));
                    high = _mm256_or_si256(high, high_bits(bits[v + 4]));
                }
                for t in 0..N {
                    let a = _mm256_maddubs_epi16(low, _mm256_set1_epi32(acts[t].words[v]));
                    let b = _mm256_maddubs_epi16(high, _mm256_set1_epi32(acts[t].words[v + 4]));
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
    ///
    /// # Safety
    /// The processor has AVX2 and the block is a whole one of `F`.
    #[inline(always)]
    unsafe fn dots_bytes<F: Format, const N: usize>(
        block: &[u8],
        acts: &[&Activations; N],
    ) -> [__m256i; N] {
        // SAFETY: as the caller promises; eight vectors lie behind `QUANTS_AT`.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut ints = [_mm256_setzero_si256(); N];
            for v in 0..8 {
                let weight = vector(block, F::QUANTS_AT + 32 * v);
                let magnitude = _mm256_abs_epi8(weight);
                for t in 0..N {
                    let four = _mm256_set1_epi32(acts[t].words[v]);
                    let words = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(four, weight));
                    ints[t] = _mm256_add_epi32(ints[t], _mm256_madd_epi16(words, ones));
                }
            }
            ints
        }
    }
}

/// Products of one panel with `N` rows, `[N][8]`; `rows` are blocks of all input rows, `first` the
/// first row's number.
#[inline(always)]
pub(super) fn panel_rows<V: BlockDot, F: Format, const N: usize>(
    panel: &[u8],
    rows: &[Activations],
    first: usize,
    blocks: usize,
) -> [V; N] {
    let mut acts: [&[Activations]; N] = [&[]; N];
    for t in 0..N {
        acts[t] = &rows[(first + t) * blocks..(first + t + 1) * blocks];
    }
    let mut acc = [V::splat(0.0); N];
    for (b, block) in panel.chunks_exact(F::PANEL_SIZE).take(blocks).enumerate() {
        let mut act = [&acts[0][b]; N];
        for t in 1..N {
            act[t] = &acts[t][b];
        }
        let dots = V::dots::<F, N>(block, &act);
        let weight_scale = V::load_f16(bytes_at(block, 0));
        for t in 0..N {
            acc[t] = dots[t].fma(weight_scale.mul(V::splat(act[t].scale)), acc[t]);
        }
        if F::HAS_MIN {
            let min = V::load_f16(bytes_at(block, 16));
            for t in 0..N {
                acc[t] = min.fma(V::splat(act[t].sum), acc[t]);
            }
        }
    }
    acc
}
