//! Random numbers of tokens: Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror and Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", SC 2011), and which tokens' Gumbel noise may matter.

use super::lanes::{Lanes, Portable, Tier, tiered};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four words at `counter` of the sequence named by `key`.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut words = counter;
    let mut key = key;
    for _ in 0..ROUNDS {
        let left = u64::from(MULTIPLIERS[0]) * u64::from(words[0]);
        let right = u64::from(MULTIPLIERS[1]) * u64::from(words[2]);
        words = [
            high(right) ^ words[1] ^ key[0],
            low(right),
            high(left) ^ words[3] ^ key[1],
            low(left),
        ];
        key[0] = key[0].wrapping_add(KEY_STEPS[0]);
        key[1] = key[1].wrapping_add(KEY_STEPS[1]);
    }
    words
}

fn high(product: u64) -> u32 {
    (product >> 32) as u32
}

fn low(product: u64) -> u32 {
    product as u32
}

/// The draw that noise is for: the generator's key, and its counter but for the token's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub key: [u32; 2],
    /// Words 1, 2 and 3 of the counter; word 0 is the id.
    pub counter: [u32; 3],
}

impl Draw {
    /// The first 64 random bits of a token.
    pub fn bits(&self, id: u32) -> u64 {
        let [position, low, high] = self.counter;
        let words = philox4x32([id, position, low, high], self.key);
        u64::from(words[0]) << 32 | u64::from(words[1])
    }
}

/// More than the noise -ln(-ln u) of any u below 1 - 2⁻⁵³: 53 ln 2 and some.
const WIDEST: f32 = 37.0;

/// Ids `first..` of `logits` for which `logit * inverse_temperature + noise` may reach `least`, pushed
/// to `near` in order. None that does is left out, where `least` is below the true one by as much as
/// f32 rounds the products, and 0.001; some that do not are among them.
///
/// The bound of the noise is `-ln(-ln u) < -ln(1 - u)`, with 1 - u taken by the exponent of its first
/// 24 bits.
pub fn near(
    tier: Tier,
    logits: &[f32],
    first: u32,
    draw: &Draw,
    inverse_temperature: f32,
    least: f32,
    near: &mut Vec<u32>,
) {
    near_lanes(tier, logits, first, draw, inverse_temperature, least, near);
}

tiered! {
    fn near_lanes(
        logits: &[f32],
        first: u32,
        draw: &Draw,
        inverse_temperature: f32,
        least: f32,
        near: &mut Vec<u32>,
    ) = near_body
}

#[inline(always)]
fn near_body<V: Noise>(
    logits: &[f32],
    first: u32,
    draw: &Draw,
    inverse_temperature: f32,
    least: f32,
    near: &mut Vec<u32>,
) {
    let prepared = V::prepare(draw);
    let (inverse, least) = (V::splat(inverse_temperature), V::splat(least));
    let (sixteens, tail) = logits.as_chunks::<16>();
    for (i, sixteen) in sixteens.iter().enumerate() {
        let (eights, _) = sixteen.as_chunks::<8>();
        let scaled = [V::load(&eights[0]).mul(inverse), V::load(&eights[1]).mul(inverse)];
        let most = scaled[1].max(scaled[0]);
        if most.add(V::splat(WIDEST)).less_bits(least) == 0xFF {
            continue;
        }
        let id = first.wrapping_add(16 * i as u32);
        let bounds = V::bounds(&prepared, id);
        let short = scaled[0].add(bounds[0]).less_bits(least)
            | scaled[1].add(bounds[1]).less_bits(least) << 8;
        let mut reach = !short & 0xFFFF;
        while reach != 0 {
            near.push(id + reach.trailing_zeros());
            reach &= reach - 1;
        }
    }
    for i in 0..tail.len() as u32 {
        near.push(first + 16 * sixteens.len() as u32 + i);
    }
}

/// Bounds of the noise of sixteen ids in a row.
trait Noise: Lanes {
    type Prepared: Copy;
    /// What does not depend on the id.
    fn prepare(draw: &Draw) -> Self::Prepared;
    /// More than the noise of ids `first..first + 16`, but for the rounding of one product in f32.
    fn bounds(prepared: &Self::Prepared, first: u32) -> [Self; 2];
}

/// The bound from the exponent `e` of the first 24 bits of 1 - u (as an f32's, -127 for 0):
/// 1 - u ≥ 2^(e - 24), and for 0 more than there is.
const EXPONENT_OF_ONE: f32 = 127.0 + 24.0;

impl Noise for Portable {
    type Prepared = Draw;
    fn prepare(draw: &Draw) -> Draw {
        *draw
    }
    #[inline(always)]
    fn bounds(draw: &Draw, first: u32) -> [Self; 2] {
        let mut bounds = [[0.0; 8]; 2];
        for (i, bound) in bounds.as_flattened_mut().iter_mut().enumerate() {
            let word = (draw.bits(first.wrapping_add(i as u32)) >> 32) as u32;
            let exponent = ((!word >> 8) as f32).to_bits() >> 23;
            *bound = (EXPONENT_OF_ONE - exponent as f32) * std::f32::consts::LN_2;
        }
        [Self::load(&bounds[0]), Self::load(&bounds[1])]
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::lanes::Avx2;
    use super::{Draw, EXPONENT_OF_ONE, KEY_STEPS, MULTIPLIERS, Noise, ROUNDS, high, low};
    use std::arch::x86_64::*;

    /// Two rounds done as far as they do not depend on the id, and the keys of the others; each word
    /// in 64 bits, as the products want them.
    #[derive(Clone, Copy)]
    pub(super) struct Prepared {
        /// What the first round mixes into word 2.
        first_2: i64,
        /// What the second round mixes into words 0 and 2.
        second: [i64; 2],
        /// Word 3 after the second round.
        after_3: i64,
        keys: [[i64; 2]; ROUNDS],
    }

    impl Noise for Avx2 {
        type Prepared = Prepared;

        fn prepare(draw: &Draw) -> Prepared {
            let mut key = draw.key;
            let mut keys = [[0; 2]; ROUNDS];
            for keys in &mut keys {
                *keys = key.map(i64::from);
                key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
            }
            let [one, two, three] = draw.counter;
            let right = u64::from(MULTIPLIERS[1]) * u64::from(two);
            // Words 0 and 1 after the first round are the same for all ids, and so is a product.
            let [word_0, word_1] = [high(right) ^ one ^ draw.key[0], low(right)];
            let left = u64::from(MULTIPLIERS[0]) * u64::from(word_0);
            Prepared {
                first_2: i64::from(three ^ draw.key[1]),
                second: [i64::from(word_1) ^ keys[1][0], i64::from(high(left)) ^ keys[1][1]],
                after_3: i64::from(low(left)),
                keys,
            }
        }

        #[inline(always)]
        fn bounds(prepared: &Prepared, first: u32) -> [Self; 2] {
            // SAFETY: reached only where AVX2 was detected (see `Avx2`).
            unsafe {
                // Four ids to a register, each in the low half of 64 bits; the high halves hold
                // what is left over and never enters a product.
                let ids = _mm256_add_epi32(
                    _mm256_set1_epi32(first.cast_signed()),
                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                );
                let next = _mm256_add_epi32(ids, _mm256_set1_epi32(8));
                [bounds_of_eight(prepared, ids), bounds_of_eight(prepared, next)]
            }
        }
    }

    /// Bounds of eight ids.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn bounds_of_eight(prepared: &Prepared, ids: __m256i) -> Avx2 {
        // SAFETY: as the caller promises.
        unsafe {
            let [a, b] = first_words(
                prepared,
                _mm256_cvtepu32_epi64(_mm256_castsi256_si128(ids)),
                _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(ids)),
            );
            bounds_of(a, b)
        }
    }

    /// Bounds of eight words, four each in the low halves of 64 bits.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn bounds_of(a: __m256i, b: __m256i) -> Avx2 {
        // SAFETY: as the caller promises.
        unsafe {
            let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            let mixed = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed);
            let rest = _mm256_andnot_si256(words, _mm256_set1_epi32(-1));
            let numbers = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(rest));
            let exponents = _mm256_srli_epi32::<23>(_mm256_castps_si256(numbers));
            let below =
                _mm256_sub_ps(_mm256_set1_ps(EXPONENT_OF_ONE), _mm256_cvtepi32_ps(exponents));
            Avx2(_mm256_mul_ps(below, _mm256_set1_ps(std::f32::consts::LN_2)))
        }
    }

    /// The first words of two times four ids: two chains of products that do not wait for each other,
    /// written out, since a loop over them keeps their words in memory.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn first_words(prepared: &Prepared, a: __m256i, b: __m256i) -> [__m256i; 2] {
        // SAFETY: as the caller promises.
        unsafe {
            let m0 = _mm256_set1_epi64x(i64::from(MULTIPLIERS[0]));
            let m1 = _mm256_set1_epi64x(i64::from(MULTIPLIERS[1]));
            macro_rules! begin {
                ($ids:ident: $x0:ident, $x1:ident, $x2:ident, $x3:ident) => {
                    let left = _mm256_mul_epu32($ids, m0);
                    let first_2 = _mm256_set1_epi64x(prepared.first_2);
                    let word_2 = _mm256_xor_si256(_mm256_srli_epi64::<32>(left), first_2);
                    let mut $x1 = _mm256_mul_epu32(word_2, m1);
                    let second_0 = _mm256_set1_epi64x(prepared.second[0]);
                    let mut $x0 = _mm256_xor_si256(_mm256_srli_epi64::<32>($x1), second_0);
                    let mut $x2 = _mm256_xor_si256(left, _mm256_set1_epi64x(prepared.second[1]));
                    let mut $x3 = _mm256_set1_epi64x(prepared.after_3);
                };
            }
            macro_rules! round {
                ($k0:ident, $k1:ident: $x0:ident, $x1:ident, $x2:ident, $x3:ident) => {
                    let left = _mm256_mul_epu32($x0, m0);
                    let right = _mm256_mul_epu32($x2, m1);
                    let mixed = _mm256_xor_si256($x1, $k0);
                    $x0 = _mm256_xor_si256(_mm256_srli_epi64::<32>(right), mixed);
                    let mixed = _mm256_xor_si256($x3, $k1);
                    $x2 = _mm256_xor_si256(_mm256_srli_epi64::<32>(left), mixed);
                    $x1 = right;
                    $x3 = left;
                };
            }
            begin!(a: a0, a1, a2, a3);
            begin!(b: b0, b1, b2, b3);
            macro_rules! rounds {
                ($($round:literal)*) => {$(
                    let [k0, k1] = prepared.keys[$round];
                    let (k0, k1) = (_mm256_set1_epi64x(k0), _mm256_set1_epi64x(k1));
                    round!(k0, k1: a0, a1, a2, a3);
                    round!(k0, k1: b0, b1, b2, b3);
                )*};
            }
            rounds!(2 3 4 5 6 7 8 9);
            // What the last round leaves of the other words is of no use.
            let _ = (a1, a2, a3, b1, b2, b3);
            [a0, b0]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published known answers of philox4x32 with 10 rounds (Random123's `kat_vectors`).
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (
                [0xffff_ffff; 4],
                [0xffff_ffff; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox4x32(counter, key), want, "counter {counter:x?}, key {key:x?}");
        }
    }

    fn draws() -> Vec<Draw> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        (0..200)
            .map(|_| Draw { key: [next(), next()], counter: [next(), next(), next()] })
            .collect()
    }

    #[inline(always)]
    fn bounds_body<V: Noise>(draw: &Draw, first: u32) -> [f32; 16] {
        let mut bounds = [[0.0; 8]; 2];
        let found = V::bounds(&V::prepare(draw), first);
        found[0].store(&mut bounds[0]);
        found[1].store(&mut bounds[1]);
        *bounds.as_flattened().first_chunk().expect("sixteen")
    }
    tiered! { fn bounds(draw: &Draw, first: u32) -> [f32; 16] = bounds_body }

    #[test]
    fn bounds_are_above_the_noise_and_equal_in_every_form() {
        let (mut sum, mut count) = (0.0, 0);
        for (i, draw) in draws().iter().enumerate() {
            let first = (i * i * 7) as u32;
            let [portable, fast] =
                [Tier::portable(), Tier::detect()].map(|tier| bounds(tier, draw, first));
            assert_eq!(portable, fast);
            for (id, bound) in (first..).zip(fast) {
                let uniform = ((draw.bits(id) >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
                let noise = -(-uniform.ln()).ln();
                assert!(noise < f64::from(bound) + 1e-5, "{noise} {bound}");
                assert!(noise < f64::from(WIDEST));
                (sum, count) = (sum + f64::from(bound) - noise, count + 1);
            }
        }
        // The bound would be of no use if it were far above.
        assert!(sum / f64::from(count) < 2.0, "{} above on average", sum / f64::from(count));
    }

    #[test]
    fn near_leaves_none_out() {
        for draw in draws() {
            let logits: Vec<f32> = (0..301).map(|i| 9.0 * (i as f32 * 0.37).sin()).collect();
            let noise = |id: u32| {
                let uniform = ((draw.bits(id) >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
                -(-uniform.ln()).ln()
            };
            for least in [-10.0f32, 5.0, 12.0, 18.0] {
                for tier in [Tier::portable(), Tier::detect()] {
                    let mut found = Vec::new();
                    near(tier, &logits, 40, &draw, 1.0 / 0.7, least - 0.001, &mut found);
                    assert!(found.is_sorted());
                    for (id, logit) in (40..).zip(&logits) {
                        let sum = f64::from(*logit) / f64::from(0.7f32) + noise(id);
                        assert!(sum < f64::from(least) || found.contains(&id));
                    }
                }
            }
        }
    }
}
