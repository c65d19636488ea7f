//! Products with block-quantised weights: panels of eight rows, and activations in blocks of 32.
//!
//! The declared arithmetic of one output, the same for one input row and for many, in block order
//! (blocks of 32 weights; `da` is the activations' scale, `s = da * Σ activation`):
//! - types with a scale `d` (and a minimum `m`) a block: `acc = fma(dot, d * da, acc)`, and with a
//!   minimum `acc = fma(m, s, acc)` behind it, `dot` being the exact integer sum of weight × activation;
//! - Q4_K and Q5_K: the same with `d * sc` and `-(dm * mn)`, both exact in f32;
//! - Q2_K, Q3_K and Q6_K, whose integer scales hold for 16 weights: `acc = fma(dot, d * da, acc)` with
//!   the exact integer `dot = sc₀ Σ₀ + sc₁ Σ₁` over both halves, and for Q2_K
//!   `acc = fma(mn₀ A₀ + mn₁ A₁, -(dm * da), acc)` behind it, `A` being the halves' sums of activations.
//!
//! A panel interleaves eight rows (outputs) so that a 32-bit lane of a vector belongs to one row. Its
//! blocks of 32 (types of the first kind) or 256 weights hold, one behind the other:
//! - the header: `[8] f16` scales, `[8] f16` minima where there are;
//! - and for every 32 weights: `[8]` scales of one byte and `[8]` minima (K types; `[2][8]` of each
//!   where they hold for 16 weights); the bits above the fourth (5- and 6-bit types, below); the
//!   weights in groups of four: byte `4 * row + i` of vector `v` has weight `4 * v + i` in its low
//!   half and weight `16 + 4 * v + i` in its high half (four vectors), or is weight `4 * v + i`
//!   (8-bit: eight vectors).
//!
//! High bits of 5-bit types are `[8][4]` bytes: bit `4 * row + i` of group `g` belongs to weight
//! `4 * g + i`. Those of 6-bit types are two vectors: bits `2 * (g % 4)` and above of byte
//! `4 * row + i` in vector `g / 4` belong to weight `4 * g + i` of `row`.
//!
//! Q2_K and Q3_K weights are widened to four bits in the panel: exact, and 1.9 and 1.3 times as many
//! bytes as in the file.

use super::lanes::{Lanes, Portable, tiered};
use crate::store::WeightType;

/// Numbers in one block of activations, and weights that are summed as integers.
pub(super) const BLOCK: usize = 32;
/// Rows of a weight that are interleaved.
pub(super) const PANEL: usize = 8;

/// What distinguishes the block formats.
pub(super) trait Format {
    /// Subtracted from every stored weight.
    const ZERO: i32;
    const HAS_MIN: bool;
    /// Bits of a weight above the fourth, apart from the others: 0, 1 or 2.
    const HIGH: usize;
    /// Stored as i8 rather than as nibbles.
    const BYTES: bool;
    /// Integer scales (and minima) for every 32 (1) or 16 (2) weights; 0: none.
    const PARTS: usize;
    /// Bytes of one block of one row in the file.
    const SIZE: usize;

    /// Blocks of 32 under one header.
    const SUBS: usize = if Self::PARTS == 0 { 1 } else { 8 };
    /// Bytes of the header.
    const HEADER: usize = if Self::HAS_MIN { 32 } else { 16 };
    /// Bytes of a block of 32 before the high bits.
    const HIGH_AT: usize = Self::PARTS * if Self::HAS_MIN { 16 } else { 8 };
    const QUANTS_AT: usize = Self::HIGH_AT + 32 * Self::HIGH;
    /// Bytes of a panel's block of 32.
    const SUB_SIZE: usize = Self::QUANTS_AT + if Self::BYTES { 256 } else { 128 };
    /// Bytes of a panel's whole block.
    const PANEL_SIZE: usize = Self::HEADER + Self::SUBS * Self::SUB_SIZE;
}

macro_rules! formats {
    ($($name:ident: $zero:literal, $min:literal, $high:literal, $bytes:literal, $parts:literal;)*) => {$(
        #[allow(non_camel_case_types)]
        pub(super) struct $name;
        impl Format for $name {
            const ZERO: i32 = $zero;
            const HAS_MIN: bool = $min;
            const HIGH: usize = $high;
            const BYTES: bool = $bytes;
            const PARTS: usize = $parts;
            const SIZE: usize = WeightType::$name.block_bytes();
        }
    )*};
}
formats! {
    Q4_0: 8, false, 0, false, 0;
    Q4_1: 0, true, 0, false, 0;
    Q5_0: 16, false, 1, false, 0;
    Q5_1: 0, true, 1, false, 0;
    Q8_0: 0, false, 0, true, 0;
    Q2_K: 0, true, 0, false, 2;
    Q3_K: 4, false, 0, false, 2;
    Q4_K: 0, true, 0, false, 1;
    Q5_K: 0, true, 1, false, 1;
    Q6_K: 32, false, 2, false, 2;
}

/// Calls `$run::<…, F>(arguments)` with the format of `$kind`; `$other` for the plain types.
macro_rules! for_format {
    ($kind:expr, $run:ident[$($lanes:ident,)?]($($arg:expr),* $(,)?), $other:expr) => {{
        use $crate::device::cpu::quantised as formats;
        match $kind {
            WeightType::Q4_0 => $run::<$($lanes,)? formats::Q4_0>($($arg),*),
            WeightType::Q4_1 => $run::<$($lanes,)? formats::Q4_1>($($arg),*),
            WeightType::Q5_0 => $run::<$($lanes,)? formats::Q5_0>($($arg),*),
            WeightType::Q5_1 => $run::<$($lanes,)? formats::Q5_1>($($arg),*),
            WeightType::Q8_0 => $run::<$($lanes,)? formats::Q8_0>($($arg),*),
            WeightType::Q2_K => $run::<$($lanes,)? formats::Q2_K>($($arg),*),
            WeightType::Q3_K => $run::<$($lanes,)? formats::Q3_K>($($arg),*),
            WeightType::Q4_K => $run::<$($lanes,)? formats::Q4_K>($($arg),*),
            WeightType::Q5_K => $run::<$($lanes,)? formats::Q5_K>($($arg),*),
            WeightType::Q6_K => $run::<$($lanes,)? formats::Q6_K>($($arg),*),
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => $other,
        }
    }};
}
pub(super) use for_format;

/// `N` bytes from byte `at`, which the caller knows to be there.
#[inline(always)]
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    match bytes[at..at + N].first_chunk() {
        Some(chunk) => chunk,
        None => unreachable!("a slice of N bytes has N bytes"),
    }
}

/// Stored weight `k` of `lane` in a panel's block of 32, its zero not yet subtracted.
#[inline(always)]
pub(super) fn stored<F: Format>(sub: &[u8], lane: usize, k: usize) -> i32 {
    let quants = &sub[F::QUANTS_AT..];
    if F::BYTES {
        return i32::from(quants[8 * (k / 4 * 4) + 4 * lane + k % 4] as i8);
    }
    let byte = quants[8 * (k % 16 / 4 * 4) + 4 * lane + k % 4];
    let low = i32::from(if k < 16 { byte & 15 } else { byte >> 4 });
    let (group, bit) = (k / 4, 4 * lane + k % 4);
    let high = match F::HIGH {
        0 => 0,
        1 => sub[F::HIGH_AT + 4 * group + bit / 8] >> (bit % 8) & 1,
        _ => sub[F::HIGH_AT + 32 * (group / 4) + bit] >> (2 * (group % 4)) & 3,
    };
    low | i32::from(high) << 4
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
    /// The sums of the first and the last 16 integers, an i16 each, the first in the low half.
    pub halves: i32,
}

impl Activations {
    /// The sum of the first (0) or last (1) 16 integers.
    pub(super) fn half(&self, half: usize) -> i32 {
        i32::from((self.halves >> (16 * half)) as i16)
    }
}

/// Blocks whose greatest magnitude is below this are zero: its inverse would not be finite.
const SMALLEST_BLOCK: f32 = 1e-30;

/// Quantises one row, `[32 n]`: `da = max / 127`, `q = round(x * (127 / max))`.
#[inline(always)]
pub(super) fn quantise_row_body<V: Lanes>(x: &[f32], out: &mut [Activations]) {
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
        let mut sums = [0i16; 2];
        for (sum, half) in sums.iter_mut().zip(quants.as_chunks::<16>().0) {
            for quant in half {
                *sum = sum.wrapping_add(i16::from(*quant));
            }
        }
        let int_sum = i32::from(sums[0]) + i32::from(sums[1]);
        let halves = i32::from(sums[0]) & 0xFFFF | i32::from(sums[1]) << 16;
        let scale = if is_zero { finite } else { greatest / 127.0 + finite };
        let words = bytemuck::cast::<_, [i32; BLOCK / 4]>(quants).map(i32::from_le);
        *out = Activations { words, scale, sum: scale * int_sum as f32, int_sum, halves };
    }
}

tiered! {
    /// Quantises one row of activations.
    pub(super) fn quantise_row(x: &[f32], out: &mut [Activations]) = quantise_row_body
}

/// The exact integer dot products of a panel's block of 32 with the same block of `N` rows.
pub(super) trait BlockDot: Lanes {
    /// Lane `i` of result `t` is `Σ_k (stored weight k of row i − zero) * acts[t][k]` as f32,
    /// each half of the sum times its integer scale where a format has one for it.
    fn dots<F: Format, const N: usize>(sub: &[u8], acts: &[&Activations; N]) -> [Self; N];

    /// Lane `i` of result `t` is the sum over both halves of the minimum of row `i` times the sum
    /// of the activations; for formats that have minima for 16 weights.
    fn min_dots<F: Format, const N: usize>(sub: &[u8], acts: &[&Activations; N]) -> [Self; N];
}

impl BlockDot for Portable {
    #[inline(always)]
    fn dots<F: Format, const N: usize>(sub: &[u8], acts: &[&Activations; N]) -> [Self; N] {
        let mut dots = [[0i32; PANEL]; N];
        for k in 0..BLOCK {
            for lane in 0..PANEL {
                let mut weight = stored::<F>(sub, lane, k) - F::ZERO;
                if F::PARTS == 2 {
                    weight *= i32::from(sub[8 * (k / 16) + lane] as i8);
                }
                for (dots, act) in dots.iter_mut().zip(acts) {
                    let act = act.words[k / 4].to_le_bytes()[k % 4] as i8;
                    dots[lane] += weight * i32::from(act);
                }
            }
        }
        dots.map(Self::from_ints)
    }

    #[inline(always)]
    fn min_dots<F: Format, const N: usize>(sub: &[u8], acts: &[&Activations; N]) -> [Self; N] {
        let min = |half: usize, lane: usize| i32::from(sub[16 + 8 * half + lane]);
        std::array::from_fn(|t| {
            Self::from_ints(std::array::from_fn(|lane| {
                min(0, lane) * acts[t].half(0) + min(1, lane) * acts[t].half(1)
            }))
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::lanes::{Avx2, Lanes};
    use super::{Activations, BlockDot, Format, bytes_at};
    use std::arch::x86_64::*;

    impl BlockDot for Avx2 {
        #[inline(always)]
        fn dots<F: Format, const N: usize>(sub: &[u8], acts: &[&Activations; N]) -> [Self; N] {
            assert!(sub.len() >= F::SUB_SIZE);
            // SAFETY: reached only where AVX2 was detected (see `Avx2`); the block's length is
            // asserted, and every load below stays inside it.
            unsafe {
                let ints = if F::BYTES {
                    dots_bytes::<F, N>(sub, acts)
                } else if F::PARTS == 2 {
                    dots_halves::<F, N>(sub, acts)
                } else {
                    dots_nibbles::<F, N>(sub, acts)
                };
                let mut dots = [Self::splat(0.0); N];
                for t in 0..N {
                    let mut dot = ints[t];
                    if F::ZERO != 0 && F::PARTS != 2 {
                        let zeros = _mm256_set1_epi32(F::ZERO.wrapping_mul(acts[t].int_sum));
                        dot = _mm256_sub_epi32(dot, zeros);
                    }
                    dots[t] = Self(_mm256_cvtepi32_ps(dot));
                }
                dots
            }
        }

        #[inline(always)]
        fn min_dots<F: Format, const N: usize>(sub: &[u8], acts: &[&Activations; N]) -> [Self; N] {
            // SAFETY: reached only where AVX2 was detected (see `Avx2`).
            unsafe {
                let mins = pairs(byte_lanes(sub, 16), byte_lanes(sub, 24));
                let mut dots = [Self::splat(0.0); N];
                for t in 0..N {
                    let sums = _mm256_set1_epi32(acts[t].halves);
                    dots[t] = Self(_mm256_cvtepi32_ps(_mm256_madd_epi16(mins, sums)));
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

    /// Eight i8 numbers from byte `at`, each in a lane of 32 bits.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn byte_lanes(block: &[u8], at: usize) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe { _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*bytes_at(block, at)))) }
    }

    /// The low halves of the lanes of `a` and of `b`, side by side: `a` below `b`.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn pairs(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe { _mm256_blend_epi16::<0b1010_1010>(a, _mm256_slli_epi32::<16>(b)) }
    }

    /// The high bits of all groups, a word each.
    #[inline(always)]
    fn high_words<F: Format>(block: &[u8]) -> [i32; 8] {
        if F::HIGH != 1 {
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
        sub: &[u8],
        acts: &[&Activations; N],
    ) -> [__m256i; N] {
        // SAFETY: as the caller promises; four vectors lie behind `QUANTS_AT`.
        unsafe {
            let (nibble, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
            let bits = high_words::<F>(sub);
            let mut words = [_mm256_setzero_si256(); N];
            let mut ints = [_mm256_setzero_si256(); N];
            macro_rules! group {
                ($v:literal) => {
                    let raw = vector(sub, F::QUANTS_AT + 32 * $v);
                    let mut low = _mm256_and_si256(raw, nibble);
                    let mut high = _mm256_and_si256(_mm256_srli_epi16::<4>(raw), nibble);
                    if F::HIGH == 1 {
                        low = _mm256_or_si256(low, high_bits(bits[$v]));
                        high = _mm256_or_si256(high, high_bits(bits[$v + 4]));
                    }
                    for t in 0..N {
                        let a = _mm256_maddubs_epi16(low, _mm256_set1_epi32(acts[t].words[$v]));
                        words[t] = _mm256_add_epi16(words[t], a);
                    }
                    for t in 0..N {
                        let b = _mm256_set1_epi32(acts[t].words[$v + 4]);
                        words[t] = _mm256_add_epi16(words[t], _mm256_maddubs_epi16(high, b));
                    }
                };
            }
            group!(0);
            group!(1);
            if F::HIGH == 1 {
                for t in 0..N {
                    ints[t] = _mm256_madd_epi16(words[t], ones);
                    words[t] = _mm256_setzero_si256();
                }
            }
            group!(2);
            group!(3);
            for t in 0..N {
                let last = _mm256_madd_epi16(words[t], ones);
                ints[t] = if F::HIGH == 1 { _mm256_add_epi32(ints[t], last) } else { last };
            }
            ints
        }
    }

    /// Weights of at most 6 bits with a scale for every 16: each half is summed in 16 bits as far as
    /// that is exact (2 × 2 × 63 × 127 = 32,004; for 4 bits 4 × 2 × 15 × 127 = 15,240), and then
    /// multiplied by its scale in the step to 32 bits. The zero comes off at the end, as
    /// `zero * (sc₀ A₀ + sc₁ A₁)`.
    ///
    /// # Safety
    /// The processor has AVX2 and the block is a whole one of `F`.
    #[inline(always)]
    unsafe fn dots_halves<F: Format, const N: usize>(
        sub: &[u8],
        acts: &[&Activations; N],
    ) -> [__m256i; N] {
        // SAFETY: as the caller promises; four vectors lie behind `QUANTS_AT`, two behind
        // `HIGH_AT` where there are 6 bits.
        unsafe {
            let (nibble, upper) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
            let (first, last) = (byte_lanes(sub, 0), byte_lanes(sub, 8));
            let scales = [pairs(first, first), pairs(last, last)];
            let mut bits = [_mm256_setzero_si256(); 2];
            if F::HIGH == 2 {
                bits = [vector(sub, F::HIGH_AT), vector(sub, F::HIGH_AT + 32)];
            }
            let mut ints = [_mm256_setzero_si256(); N];
            let mut words = [[_mm256_setzero_si256(); N]; 2];
            macro_rules! group {
                ($v:literal, $shift:ident, $by:literal) => {
                    let raw = vector(sub, F::QUANTS_AT + 32 * $v);
                    let mut low = _mm256_and_si256(raw, nibble);
                    let mut high = _mm256_and_si256(_mm256_srli_epi16::<4>(raw), nibble);
                    if F::HIGH == 2 {
                        let shifted = [$shift::<$by>(bits[0]), $shift::<$by>(bits[1])];
                        low = _mm256_or_si256(low, _mm256_and_si256(shifted[0], upper));
                        high = _mm256_or_si256(high, _mm256_and_si256(shifted[1], upper));
                    }
                    for t in 0..N {
                        let a = _mm256_set1_epi32(acts[t].words[$v]);
                        let b = _mm256_set1_epi32(acts[t].words[$v + 4]);
                        let (a, b) = (_mm256_maddubs_epi16(low, a), _mm256_maddubs_epi16(high, b));
                        words[0][t] = _mm256_add_epi16(words[0][t], a);
                        words[1][t] = _mm256_add_epi16(words[1][t], b);
                    }
                };
            }
            macro_rules! scaled {
                () => {
                    for t in 0..N {
                        let a = _mm256_madd_epi16(words[0][t], scales[0]);
                        let b = _mm256_madd_epi16(words[1][t], scales[1]);
                        ints[t] = _mm256_add_epi32(ints[t], _mm256_add_epi32(a, b));
                        words[0][t] = _mm256_setzero_si256();
                        words[1][t] = _mm256_setzero_si256();
                    }
                };
            }
            group!(0, _mm256_slli_epi16, 4);
            group!(1, _mm256_slli_epi16, 2);
            if F::HIGH == 2 {
                scaled!();
            }
            group!(2, _mm256_slli_epi16, 0);
            group!(3, _mm256_srli_epi16, 2);
            scaled!();
            if F::ZERO != 0 {
                let both = pairs(first, last);
                for t in 0..N {
                    let sums = _mm256_madd_epi16(both, _mm256_set1_epi32(acts[t].halves));
                    let zeros = _mm256_mullo_epi32(sums, _mm256_set1_epi32(F::ZERO));
                    ints[t] = _mm256_sub_epi32(ints[t], zeros);
                }
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
        sub: &[u8],
        acts: &[&Activations; N],
    ) -> [__m256i; N] {
        // SAFETY: as the caller promises; eight vectors lie behind `QUANTS_AT`.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut ints = [_mm256_setzero_si256(); N];
            for v in 0..8 {
                let weight = vector(sub, F::QUANTS_AT + 32 * v);
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

/// Products of a panel with `N` rows, `[N][8]`; `rows` are blocks of all input rows, `first` the first
/// row's number. With `ahead` the panel comes from memory for the first time, and what lies behind is
/// asked for early; `panels` are all panels from this one on.
#[inline(always)]
pub(super) fn panel_rows<V: BlockDot, F: Format, const N: usize>(
    panels: &[u8],
    rows: &[Activations],
    first: usize,
    blocks: usize,
    ahead: bool,
) -> [V; N] {
    let mut acts: [&[Activations]; N] = [&[]; N];
    for t in 0..N {
        acts[t] = &rows[(first + t) * blocks..(first + t + 1) * blocks];
    }
    let wholes = blocks / F::SUBS;
    let mut acc = [V::splat(0.0); N];
    for (whole, block) in panels.chunks_exact(F::PANEL_SIZE).take(wholes).enumerate() {
        if ahead {
            let from = whole * F::PANEL_SIZE + AHEAD;
            if let Some(ahead) = panels.get(from..from + F::PANEL_SIZE) {
                V::prefetch(ahead);
            }
        }
        for sub in 0..F::SUBS {
            let b = whole * F::SUBS + sub;
            let mut act = [&acts[0][b]; N];
            for t in 1..N {
                act[t] = &acts[t][b];
            }
            let at = F::HEADER + sub * F::SUB_SIZE;
            let sub = &block[at..at + F::SUB_SIZE];
            let dots = V::dots::<F, N>(sub, &act);
            let (scale, min) = scale_and_min::<V, F>(block, sub);
            for t in 0..N {
                acc[t] = dots[t].fma(scale.mul(V::splat(act[t].scale)), acc[t]);
            }
            if F::HAS_MIN && F::PARTS == 2 {
                let sums = V::min_dots::<F, N>(sub, &act);
                for t in 0..N {
                    acc[t] = sums[t].fma(min.mul(V::splat(-act[t].scale)), acc[t]);
                }
            } else if F::HAS_MIN {
                for t in 0..N {
                    let sum = if F::PARTS == 0 { act[t].sum } else { -act[t].sum };
                    acc[t] = min.fma(V::splat(sum), acc[t]);
                }
            }
        }
    }
    acc
}

/// How far before its use a block is asked for, in bytes.
const AHEAD: usize = 1024;

/// Scales and minima of a panel's block of 32, of the eight rows: those of the header, times the
/// block's own where it has one for all of its 32 weights.
#[inline(always)]
fn scale_and_min<V: BlockDot, F: Format>(block: &[u8], sub: &[u8]) -> (V, V) {
    let scale = V::load_f16(bytes_at(block, 0));
    let min = if F::HAS_MIN { V::load_f16(bytes_at(block, 16)) } else { scale };
    if F::PARTS != 1 {
        return (scale, min);
    }
    (scale.mul(V::load_u8(bytes_at(sub, 0))), min.mul(V::load_u8(bytes_at(sub, 8))))
}
