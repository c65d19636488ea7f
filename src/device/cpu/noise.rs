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
    let (eights, tail) = logits.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        let scaled = V::load(eight).mul(inverse);
        if scaled.add(V::splat(WIDEST)).less_bits(least) == 0xFF {
            continue;
        }
        let id = first.wrapping_add(8 * i as u32);
        let mut reach = !scaled.add(V::bounds(&prepared, id)).less_bits(least) & 0xFF;
        while reach != 0 {
            near.push(id + reach.trailing_zeros());
            reach &= reach - 1;
        }
    }
    for i in 0..tail.len() as u32 {
        near.push(first + 8 * eights.len() as u32 + i);
    }
}

/// Bounds of the noise of eight ids in a row.
trait Noise: Lanes {
    type Prepared: Copy;
    /// What does not depend on the id.
    fn prepare(draw: &Draw) -> Self::Prepared;
    /// More than the noise of ids `first..first + 8`, but for the rounding of one product in f32.
    fn bounds(prepared: &Self::Prepared, first: u32) -> Self;
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
    fn bounds(draw: &Draw, first: u32) -> Self {
        let mut bounds = [0.0; 8];
        for (i, bound) in bounds.iter_mut().enumerate() {
            let word = (draw.bits(first.wrapping_add(i as u32)) >> 32) as u32;
            let exponent = ((!word >> 8) as f32).to_bits() >> 23;
            *bound = (EXPONENT_OF_ONE - exponent as f32) * std::f32::consts::LN_2;
        }
        Self::load(&bounds)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::lanes::Avx2;
    use super::{Draw, EXPONENT_OF_ONE, KEY_STEPS, MULTIPLIERS, Noise, ROUNDS, high, low};
    use std::arch::x86_64::*;

    /// Two rounds done as far as they do not depend on the id, and the keys of the others.
    #[derive(Clone, Copy)]
    pub(super) struct Prepared {
        /// Words of the counter: what the first round mixes into word 2.
        second: u32,
        /// Words 0 and 1 after the first round.
        after_first: [u32; 2],
        /// Word 2 after the second round but for the id's part, and word 3.
        after_second: [u32; 2],
        /// The key of the second round that goes into word 0.
        second_key: u32,
        keys: [[u32; 2]; ROUNDS],
    }

    impl Noise for Avx2 {
        type Prepared = Prepared;

        fn prepare(draw: &Draw) -> Prepared {
            let mut keys = [draw.key; ROUNDS];
            for round in 1..ROUNDS {
                for k in 0..2 {
                    keys[round][k] = keys[round - 1][k].wrapping_add(KEY_STEPS[k]);
                }
            }
            let [one, two, three] = draw.counter;
            let right = u64::from(MULTIPLIERS[1]) * u64::from(two);
            let after_first = [high(right) ^ one ^ keys[0][0], low(right)];
            let left = u64::from(MULTIPLIERS[0]) * u64::from(after_first[0]);
            Prepared {
                second: three ^ keys[0][1],
                after_first,
                after_second: [high(left) ^ keys[1][1], low(left)],
                second_key: keys[1][0],
                keys,
            }
        }

        #[inline(always)]
        fn bounds(prepared: &Prepared, first: u32) -> Self {
            // SAFETY: reached only where AVX2 was detected (see `Avx2`).
            unsafe {
                let ids = _mm256_add_epi32(
                    _mm256_set1_epi32(first.cast_signed()),
                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                );
                // Four ids to a register, each in the low half of 64 bits; the high halves hold
                // what is left over and never enters a product.
                let a = word(prepared, _mm256_cvtepu32_epi64(_mm256_castsi256_si128(ids)));
                let b = word(prepared, _mm256_cvtepu32_epi64(_mm256_extracti128_si256::<1>(ids)));
                let mixed = _mm256_shuffle_ps::<0b10_00_10_00>(
                    _mm256_castsi256_ps(a),
                    _mm256_castsi256_ps(b),
                );
                let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(mixed));
                let rest = _mm256_andnot_si256(words, _mm256_set1_epi32(-1));
                let numbers = _mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(rest));
                let exponents = _mm256_srli_epi32::<23>(_mm256_castps_si256(numbers));
                let exponents = _mm256_cvtepi32_ps(exponents);
                Self(_mm256_mul_ps(
                    _mm256_sub_ps(_mm256_set1_ps(EXPONENT_OF_ONE), exponents),
                    _mm256_set1_ps(std::f32::consts::LN_2),
                ))
            }
        }
    }

    /// The first word of four ids.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn word(prepared: &Prepared, ids: __m256i) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe {
            macro_rules! splat {
                ($word:expr) => {
                    _mm256_set1_epi64x($word as i64)
                };
            }
            let (m0, m1) = (splat!(MULTIPLIERS[0]), splat!(MULTIPLIERS[1]));
            let left = _mm256_mul_epu32(ids, m0);
            let x2 = _mm256_xor_si256(_mm256_srli_epi64::<32>(left), splat!(prepared.second));
            // The second round: words 0 and 1 are the same for all ids.
            let right = _mm256_mul_epu32(x2, m1);
            let constant = splat!(prepared.after_first[1] ^ prepared.second_key);
            let mut x0 = _mm256_xor_si256(_mm256_srli_epi64::<32>(right), constant);
            let mut x1 = right;
            let mut x2 = _mm256_xor_si256(left, splat!(prepared.after_second[0]));
            let mut x3 = splat!(prepared.after_second[1]);
            for round in 2..ROUNDS - 1 {
                let [k0, k1] = prepared.keys[round];
                let left = _mm256_mul_epu32(x0, m0);
                let right = _mm256_mul_epu32(x2, m1);
                let mixed = _mm256_xor_si256(x1, splat!(k0));
                x0 = _mm256_xor_si256(_mm256_srli_epi64::<32>(right), mixed);
                x1 = right;
                let mixed = _mm256_xor_si256(x3, splat!(k1));
                x2 = _mm256_xor_si256(_mm256_srli_epi64::<32>(left), mixed);
                x3 = left;
            }
            let right = _mm256_mul_epu32(x2, m1);
            let mixed = _mm256_xor_si256(x1, splat!(prepared.keys[ROUNDS - 1][0]));
            _mm256_xor_si256(_mm256_srli_epi64::<32>(right), mixed)
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
    fn bounds_body<V: Noise>(draw: &Draw, first: u32) -> [f32; 8] {
        let mut bounds = [0.0; 8];
        V::bounds(&V::prepare(draw), first).store(&mut bounds);
        bounds
    }
    tiered! { fn bounds(draw: &Draw, first: u32) -> [f32; 8] = bounds_body }

    #[test]
    fn bounds_are_above_the_noise_and_equal_in_every_form() {
        let (mut sum, mut count) = (0.0, 0);
        for (i, draw) in draws().iter().enumerate() {
            let first = (i * i * 8) as u32;
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
