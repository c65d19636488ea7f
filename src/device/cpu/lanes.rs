//! Eight f32 lanes: the one vocabulary that all float arithmetic of the CPU is written in, once.
//!
//! A kernel is a generic function over [`Lanes`], compiled twice: over [`Portable`], plain arrays,
//! and over [`Avx2`] (which the form with AVX-512 uses too, but for products of panels). Every method is a lane-wise IEEE operation, an exact conversion, or a sum in a
//! declared order, so both give the same bits.
//!
//! A closure is a function of its own and does not have the features of the function around it, so
//! kernels loop over arrays of lanes and do not `map` them: the instructions would become calls.

use half::{bf16, f16};

/// Which form of the kernels runs. Both give the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier(pub(super) Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Portable,
    /// Only made by [`Tier::detect`], after the processor said that it has what the form uses.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same, with products of panels in registers of twice the width (`wide`); made likewise.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Tier {
    /// The fastest form that this processor runs.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::portable())
    }

    /// All forms that this processor runs, the fastest last.
    pub fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            const ALL: [Tier; 3] = [Tier(Form::Portable), Tier(Form::Avx2), Tier(Form::Avx512)];
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            match (avx2, avx512) {
                (false, _) => &ALL[..1],
                (true, false) => &ALL[..2],
                (true, true) => &ALL,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        &[Self::portable()]
    }

    /// Plain code that every processor runs.
    pub const fn portable() -> Self {
        Self(Form::Portable)
    }

    /// The form's name, as `unsay` reports it.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Form::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => "avx512vnni",
        }
    }
}

/// Defines `fn name(tier, arguments…)` from a body that is generic over [`Lanes`]: the body is
/// compiled once as it is and once with AVX2, FMA and F16C switched on, and `tier` chooses.
macro_rules! tiered {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $($body:ident)::+) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(tier: $crate::device::cpu::lanes::Tier, $($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $type),*) $(-> $ret)? {
                $($body)::+::<$crate::device::cpu::lanes::Avx2>($($arg),*)
            }
            match tier.0 {
                $crate::device::cpu::lanes::Form::Portable => {
                    $($body)::+::<$crate::device::cpu::lanes::Portable>($($arg),*)
                }
                #[cfg(target_arch = "x86_64")]
                $crate::device::cpu::lanes::Form::Avx2
                | $crate::device::cpu::lanes::Form::Avx512 => {
                    // SAFETY: both are only made after the three features were detected.
                    unsafe { avx2($($arg),*) }
                }
            }
        }
    };
}
pub(super) use tiered;

/// Eight f32 numbers and what may be done with them.
pub(super) trait Lanes: Copy {
    fn splat(x: f32) -> Self;
    fn load(x: &[f32; 8]) -> Self;
    /// Eight little-endian f32 numbers.
    fn load_f32(x: &[u8; 32]) -> Self;
    /// Eight little-endian f16 numbers, widened (exact).
    fn load_f16(x: &[u8; 16]) -> Self;
    /// Eight little-endian bf16 numbers, widened (exact).
    fn load_bf16(x: &[u8; 16]) -> Self;
    fn store(self, out: &mut [f32; 8]);
    /// Rounds to f16, to nearest, ties to even.
    fn store_f16(self, out: &mut [u16; 8]);
    /// Rounds to integers, to nearest, ties to even; the lanes are within -127..=127, or NaN,
    /// whose integer does not matter but is an i8.
    fn store_i8(self, out: &mut [i8; 8]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// The greater of both; `other` where one of them is NaN.
    fn max(self, other: Self) -> Self;
    fn abs(self) -> Self;
    /// `((0+1)+(2+3))+((4+5)+(6+7))`: the declared tree.
    fn sum(self) -> f32;
    /// The greatest lane; NaN if the last compared one is.
    fn greatest(self) -> f32;
    /// `2^n` where `self` is `n + 1.5 * 2^23` and -127 < n < 128.
    fn exp2_of_shifted(self) -> Self;
    /// Per lane, `yes` where `self < bound`, else `no`.
    fn where_less(self, bound: Self, yes: Self, no: Self) -> Self;
    /// The first `count` lanes of `self`, the rest of `other`.
    fn first(self, count: usize, other: Self) -> Self;
    /// Exact where the magnitude is at most 2^24.
    fn from_ints(x: [i32; 8]) -> Self;
    /// Eight unsigned bytes, exact.
    fn load_u8(x: &[u8; 8]) -> Self;
    /// `rows[i].sum()` for four rows, by the same tree.
    fn sums_of_four(rows: [Self; 4]) -> [f32; 4];
    /// Each of four numbers twice: `[x0, x0, x1, x1, …]`.
    fn twice(x: &[f32; 4]) -> Self;
    /// Lanes `2i` and `2i + 1` exchanged.
    fn swap_pairs(self) -> Self;
    /// Bit `i` is set where lane `i` of `self` is less than that of `other`; 0 for NaN.
    fn less_bits(self, other: Self) -> u32;

    /// Eight f64 sums.
    type Wide: Copy;
    fn wide_zero() -> Self::Wide;
    /// `sums + self`, each lane widened first.
    fn add_wide(self, sums: Self::Wide) -> Self::Wide;
    /// `self * b + sums` in f64, rounded once, each lane widened first.
    fn fma_wide(self, b: Self, sums: Self::Wide) -> Self::Wide;
    /// The sums by the declared tree.
    fn sum_wide(sums: Self::Wide) -> f64;

    /// Asks for the cache lines of some bytes; changes nothing.
    fn prefetch(bytes: &[u8]);

    /// Up to eight numbers; zeros in the lanes behind them.
    #[inline(always)]
    fn load_tail(x: &[f32]) -> Self {
        let mut padded = [0.0; 8];
        padded[..x.len()].copy_from_slice(x);
        Self::load(&padded)
    }

    /// Stores the first `out.len()` lanes, at most eight.
    #[inline(always)]
    fn store_tail(self, out: &mut [f32]) {
        let mut all = [0.0; 8];
        self.store(&mut all);
        let count = out.len();
        out.copy_from_slice(&all[..count]);
    }
}

/// The lanes as an array: what the other forms are measured against.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i])))
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl Lanes for Portable {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; 8])
    }
    #[inline(always)]
    fn load(x: &[f32; 8]) -> Self {
        Self(*x)
    }
    #[inline(always)]
    fn load_f32(x: &[u8; 32]) -> Self {
        Self(std::array::from_fn(|i| f32::from_le_bytes(x.as_chunks().0[i])))
    }
    #[inline(always)]
    fn load_f16(x: &[u8; 16]) -> Self {
        Self(std::array::from_fn(|i| f16::from_le_bytes(x.as_chunks().0[i]).to_f32()))
    }
    #[inline(always)]
    fn load_bf16(x: &[u8; 16]) -> Self {
        Self(std::array::from_fn(|i| bf16::from_le_bytes(x.as_chunks().0[i]).to_f32()))
    }
    #[inline(always)]
    fn store(self, out: &mut [f32; 8]) {
        *out = self.0;
    }
    #[inline(always)]
    fn store_f16(self, out: &mut [u16; 8]) {
        *out = self.0.map(|x| f16::from_f32(x).to_bits());
    }
    #[inline(always)]
    fn store_i8(self, out: &mut [i8; 8]) {
        *out = self.0.map(|x| x.round_ties_even() as i8);
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, greater)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(f32::abs)
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }
    #[inline(always)]
    fn greatest(self) -> f32 {
        let x = self.0;
        let half: [f32; 4] = std::array::from_fn(|i| greater(x[i], x[i + 4]));
        greater(greater(half[0], half[2]), greater(half[1], half[3]))
    }
    #[inline(always)]
    fn exp2_of_shifted(self) -> Self {
        self.map(|x| f32::from_bits(x.to_bits().wrapping_add(127) << 23))
    }
    #[inline(always)]
    fn where_less(self, bound: Self, yes: Self, no: Self) -> Self {
        let pick = |i: usize| if self.0[i] < bound.0[i] { yes.0[i] } else { no.0[i] };
        Self(std::array::from_fn(pick))
    }
    #[inline(always)]
    fn first(self, count: usize, other: Self) -> Self {
        Self(std::array::from_fn(|i| if i < count { self.0[i] } else { other.0[i] }))
    }
    #[inline(always)]
    fn from_ints(x: [i32; 8]) -> Self {
        Self(x.map(|i| i as f32))
    }
    #[inline(always)]
    fn load_u8(x: &[u8; 8]) -> Self {
        Self(x.map(f32::from))
    }
    #[inline(always)]
    fn sums_of_four(rows: [Self; 4]) -> [f32; 4] {
        rows.map(|row| row.sum())
    }
    #[inline(always)]
    fn twice(x: &[f32; 4]) -> Self {
        Self(std::array::from_fn(|i| x[i / 2]))
    }
    #[inline(always)]
    fn swap_pairs(self) -> Self {
        Self(std::array::from_fn(|i| self.0[i ^ 1]))
    }
    #[inline(always)]
    fn less_bits(self, other: Self) -> u32 {
        (0..8).map(|i| u32::from(self.0[i] < other.0[i]) << i).sum()
    }

    type Wide = [f64; 8];
    #[inline(always)]
    fn wide_zero() -> [f64; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    fn add_wide(self, sums: [f64; 8]) -> [f64; 8] {
        std::array::from_fn(|i| sums[i] + f64::from(self.0[i]))
    }
    #[inline(always)]
    fn fma_wide(self, b: Self, sums: [f64; 8]) -> [f64; 8] {
        std::array::from_fn(|i| f64::from(self.0[i]).mul_add(f64::from(b.0[i]), sums[i]))
    }
    #[inline(always)]
    fn sum_wide(sums: [f64; 8]) -> f64 {
        let [a, b, c, d, e, f, g, h] = sums;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }

    #[inline(always)]
    fn prefetch(_: &[u8]) {}
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Lanes;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// The lanes in one AVX register.
    ///
    /// Its methods are only reached through [`tiered`](super::tiered), which calls them inside a
    /// function with AVX2, FMA and F16C after these were detected: that is the reason why each
    /// `unsafe` below is sound. Loads and stores are transmutes between an array and a register of
    /// the same size, which any bits may fill.
    #[derive(Clone, Copy)]
    pub(in crate::device::cpu) struct Avx2(pub(in crate::device::cpu) __m256);

    impl Avx2 {
        #[inline(always)]
        fn widened(self) -> [__m256d; 2] {
            // SAFETY: see `Avx2`.
            unsafe {
                let (low, high) =
                    (_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                [_mm256_cvtps_pd(low), _mm256_cvtps_pd(high)]
            }
        }
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(x: f32) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_set1_ps(x) })
        }
        #[inline(always)]
        fn load(x: &[f32; 8]) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { transmute::<[f32; 8], __m256>(*x) })
        }
        #[inline(always)]
        fn load_f32(x: &[u8; 32]) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { transmute::<[u8; 32], __m256>(*x) })
        }
        #[inline(always)]
        fn load_f16(x: &[u8; 16]) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_cvtph_ps(transmute::<[u8; 16], __m128i>(*x)) })
        }
        #[inline(always)]
        fn load_bf16(x: &[u8; 16]) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe {
                let wide = _mm256_cvtepu16_epi32(transmute::<[u8; 16], __m128i>(*x));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            })
        }
        #[inline(always)]
        fn store(self, out: &mut [f32; 8]) {
            // SAFETY: as many bytes, and every value of them is eight f32.
            *out = unsafe { transmute::<__m256, [f32; 8]>(self.0) };
        }
        #[inline(always)]
        fn store_f16(self, out: &mut [u16; 8]) {
            // SAFETY: see `Avx2`.
            unsafe {
                let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0);
                *out = transmute::<__m128i, [u16; 8]>(rounded);
            }
        }
        #[inline(always)]
        fn store_i8(self, out: &mut [i8; 8]) {
            // SAFETY: see `Avx2`.
            unsafe {
                // Rounds by the thread's mode, which Rust leaves at "nearest, ties to even". NaN
                // gives i32::MIN, which the packs saturate; the blend makes it 0, as `as i8` does.
                let ordered = _mm256_cmp_ps::<_CMP_ORD_Q>(self.0, self.0);
                let ints = _mm256_cvtps_epi32(_mm256_and_ps(self.0, ordered));
                let halves = (_mm256_castsi256_si128(ints), _mm256_extracti128_si256::<1>(ints));
                let words = _mm_packs_epi32(halves.0, halves.1);
                *out = _mm_cvtsi128_si64(_mm_packs_epi16(words, words))
                    .to_le_bytes()
                    .map(u8::cast_signed);
            }
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_add_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_sub_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_mul_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn div(self, other: Self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_div_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn fma(self, b: Self, c: Self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_max_ps(self.0, other.0) })
        }
        #[inline(always)]
        fn abs(self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            // SAFETY: see `Avx2`.
            unsafe {
                let pairs = _mm256_hadd_ps(self.0, self.0);
                let fours = _mm256_hadd_ps(pairs, pairs);
                let (low, high) =
                    (_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours));
                _mm_cvtss_f32(_mm_add_ss(low, high))
            }
        }
        #[inline(always)]
        fn greatest(self) -> f32 {
            // SAFETY: see `Avx2`.
            unsafe {
                let (low, high) =
                    (_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let four = _mm_max_ps(low, high);
                let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }
        #[inline(always)]
        fn exp2_of_shifted(self) -> Self {
            // SAFETY: see `Avx2`.
            unsafe {
                let biased = _mm256_add_epi32(_mm256_castps_si256(self.0), _mm256_set1_epi32(127));
                Self(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased)))
            }
        }
        #[inline(always)]
        fn where_less(self, bound: Self, yes: Self, no: Self) -> Self {
            // SAFETY: see `Avx2`.
            unsafe {
                let less = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, bound.0);
                Self(_mm256_blendv_ps(no.0, yes.0, less))
            }
        }
        #[inline(always)]
        fn first(self, count: usize, other: Self) -> Self {
            // SAFETY: see `Avx2`.
            unsafe {
                let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(8) as i32), lane);
                Self(_mm256_blendv_ps(other.0, self.0, _mm256_castsi256_ps(keep)))
            }
        }
        #[inline(always)]
        fn from_ints(x: [i32; 8]) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_cvtepi32_ps(transmute::<[i32; 8], __m256i>(x)) })
        }
        #[inline(always)]
        fn load_u8(x: &[u8; 8]) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe {
                let bytes = _mm_cvtsi64_si128(i64::from_le_bytes(*x));
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
            })
        }
        #[inline(always)]
        fn sums_of_four(rows: [Self; 4]) -> [f32; 4] {
            // SAFETY: see `Avx2`.
            unsafe {
                let [Self(a), Self(b), Self(c), Self(d)] = rows;
                let all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
                let (low, high) = (_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all));
                transmute::<__m128, [f32; 4]>(_mm_add_ps(low, high))
            }
        }
        #[inline(always)]
        fn twice(x: &[f32; 4]) -> Self {
            // SAFETY: see `Avx2`.
            unsafe {
                let four = transmute::<[f32; 4], __m128>(*x);
                let both =
                    _mm256_set_m128(_mm_unpackhi_ps(four, four), _mm_unpacklo_ps(four, four));
                Self(both)
            }
        }
        #[inline(always)]
        fn swap_pairs(self) -> Self {
            // SAFETY: see `Avx2`.
            Self(unsafe { _mm256_permute_ps::<0b10_11_00_01>(self.0) })
        }
        #[inline(always)]
        fn less_bits(self, other: Self) -> u32 {
            // SAFETY: see `Avx2`.
            unsafe {
                _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0)).cast_unsigned()
            }
        }

        type Wide = [__m256d; 2];
        #[inline(always)]
        fn wide_zero() -> [__m256d; 2] {
            // SAFETY: see `Avx2`.
            unsafe { [_mm256_setzero_pd(); 2] }
        }
        #[inline(always)]
        fn add_wide(self, sums: [__m256d; 2]) -> [__m256d; 2] {
            // SAFETY: see `Avx2`.
            unsafe {
                let [low, high] = self.widened();
                [_mm256_add_pd(sums[0], low), _mm256_add_pd(sums[1], high)]
            }
        }
        #[inline(always)]
        fn fma_wide(self, b: Self, sums: [__m256d; 2]) -> [__m256d; 2] {
            // SAFETY: see `Avx2`.
            unsafe {
                let ([low, high], [b_low, b_high]) = (self.widened(), b.widened());
                [_mm256_fmadd_pd(low, b_low, sums[0]), _mm256_fmadd_pd(high, b_high, sums[1])]
            }
        }
        #[inline(always)]
        fn sum_wide(sums: [__m256d; 2]) -> f64 {
            // SAFETY: as many bytes, and every value of them is eight f64.
            let [a, b, c, d, e, f, g, h] = unsafe { transmute::<[__m256d; 2], [f64; 8]>(sums) };
            ((a + b) + (c + d)) + ((e + f) + (g + h))
        }

        #[inline(always)]
        fn prefetch(bytes: &[u8]) {
            for line in bytes.chunks(64) {
                // SAFETY: see `Avx2`; a prefetch reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
            }
        }
    }
}
