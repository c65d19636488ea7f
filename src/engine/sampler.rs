//! Draws the next token from a row of logits.
//!
//! In this order: penalties (tokens of the present reply) → bias → temperature → top-k → top-p →
//! min-p → Gumbel-max: the token with the highest scaled logit + Gumbel noise, which is a draw
//! from their softmax (Maddison, Tarlow and Minka, "A* sampling", 2014, §2). The noise of a token
//! is a pure function of (seed, stream, position, token id), so no neighbour, batch or retry can
//! shift it. Temperature 0 takes the highest. All ties go to the lower id. Arithmetic is f64 with
//! `libm`, sums run in the order of ids: the same bits on every machine.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Sampling;
use super::philox::philox4x32;
use crate::text::TokenId;

/// How often each token was generated in the present reply.
pub(super) type ReplyCounts = BTreeMap<TokenId, u32>;

/// Bits of a draw's uniform number: u = (bits + ½) / 2⁵² is exact in f64 and never 0 or 1.
const UNIFORM_BITS: u32 = 52;

/// More than any noise: u ≤ 1 − 2⁻⁵³ gives at most 53 ln 2.
const WIDEST_NOISE: f64 = 53.0 * std::f64::consts::LN_2 + NOISE_MARGIN;

/// Far above the rounding of two logarithms, far below any difference that matters.
const NOISE_MARGIN: f64 = 1e-9;

/// A sampler with its work space of one vocabulary.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// Logits after penalties, bias and temperature, `[vocab]`.
    scaled: Vec<f64>,
    /// Ids that may be drawn.
    kept: Vec<u32>,
}

impl Sampler {
    /// Draws the token at `position` of its sequence. Logits are finite and the sampling is
    /// checked ([`Sampling::check`]).
    pub(super) fn draw(
        &mut self,
        logits: &[f32],
        sampling: &Sampling,
        counts: &ReplyCounts,
        position: usize,
    ) -> TokenId {
        self.adjust(logits, sampling, counts);
        let highest = self.highest();
        if sampling.temperature == 0.0 {
            return TokenId(highest);
        }
        let temperature = f64::from(sampling.temperature);
        self.scaled.iter_mut().for_each(|logit| *logit /= temperature);
        self.kept.clear();
        self.kept.extend(0..logits.len() as u32);
        self.keep_top_k(sampling.top_k);
        self.keep_top_p(f64::from(sampling.top_p), highest);
        self.keep_min_p(f64::from(sampling.min_p), highest);
        self.gumbel_max(&Noise::new(sampling, position), highest)
    }

    /// Penalties, then bias.
    fn adjust(&mut self, logits: &[f32], sampling: &Sampling, counts: &ReplyCounts) {
        self.scaled.clear();
        self.scaled.extend(logits.iter().map(|&logit| f64::from(logit)));
        for (&id, &count) in counts {
            let logit = &mut self.scaled[id.index()];
            let repetition = f64::from(sampling.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            *logit -= f64::from(sampling.presence_penalty);
            *logit -= f64::from(sampling.frequency_penalty) * f64::from(count);
        }
        for &(id, bias) in &sampling.bias {
            self.scaled[id.index()] += f64::from(bias);
        }
    }

    /// The id of the highest scaled logit, the lowest of equals.
    fn highest(&self) -> u32 {
        let mut best = 0;
        for (id, &logit) in self.scaled.iter().enumerate() {
            if logit > self.scaled[best] {
                best = id;
            }
        }
        best as u32
    }

    /// Keeps the `k` highest, in the order of ids; 0 keeps all.
    fn keep_top_k(&mut self, k: usize) {
        if k == 0 || k >= self.kept.len() {
            return;
        }
        let scaled = &self.scaled;
        self.kept.select_nth_unstable_by(k - 1, |&a, &b| rank(scaled, a, b));
        self.kept.truncate(k);
        self.kept.sort_unstable();
    }

    /// Keeps the shortest run of the most probable tokens whose probabilities reach `p`.
    fn keep_top_p(&mut self, p: f64, highest: u32) {
        if p >= 1.0 {
            return;
        }
        let scaled = &self.scaled;
        let max = scaled[highest as usize];
        let weight = |id: u32| libm::exp(scaled[id as usize] - max);
        let enough = p * self.kept.iter().map(|&id| weight(id)).sum::<f64>();
        // Only the tokens near the top are ranked, unless they turn out not to reach p.
        let mut depth = 8.0;
        loop {
            let mut ranked: Vec<u32> = self
                .kept
                .iter()
                .copied()
                .filter(|&id| scaled[id as usize] >= max - depth)
                .collect();
            ranked.sort_unstable_by(|&a, &b| rank(scaled, a, b));
            let mut reached = 0.0;
            let run = ranked.iter().position(|&id| {
                reached += weight(id);
                reached >= enough
            });
            if let Some(last) = run {
                ranked.truncate(last + 1);
                self.kept = ranked;
                return;
            }
            if ranked.len() == self.kept.len() {
                return;
            }
            depth *= 4.0;
        }
    }

    /// Keeps tokens at least `p` times as probable as the most probable one.
    fn keep_min_p(&mut self, p: f64, highest: u32) {
        if p == 0.0 {
            return;
        }
        let least = self.scaled[highest as usize] + libm::log(p);
        let scaled = &self.scaled;
        self.kept.retain(|&id| scaled[id as usize] >= least);
    }

    /// The kept token with the highest sum of scaled logit and noise.
    ///
    /// A token whose scaled logit plus a cheap upper bound of its noise stays below the best sum
    /// so far cannot win and is passed over; this changes no draw.
    fn gumbel_max(&self, noise: &Noise, highest: u32) -> TokenId {
        let sum = |id: u32, bits: u64| self.scaled[id as usize] + gumbel(bits);
        let mut best = highest;
        let mut best_sum = sum(highest, noise.bits(highest));
        for &id in &self.kept {
            let logit = self.scaled[id as usize];
            if logit + WIDEST_NOISE < best_sum {
                continue;
            }
            let bits = noise.bits(id);
            if logit + gumbel_bound(bits) < best_sum {
                continue;
            }
            let own = sum(id, bits);
            if own > best_sum || (own == best_sum && id < best) {
                (best, best_sum) = (id, own);
            }
        }
        TokenId(best)
    }
}

/// Higher logits first, ties to the lower id.
fn rank(scaled: &[f64], a: u32, b: u32) -> Ordering {
    let (left, right) = (scaled[a as usize], scaled[b as usize]);
    right.partial_cmp(&left).unwrap_or(Ordering::Equal).then(a.cmp(&b))
}

/// The random numbers of one position of one stream.
struct Noise {
    key: [u32; 2],
    stream: u64,
    position: u32,
}

impl Noise {
    fn new(sampling: &Sampling, position: usize) -> Self {
        let seed = sampling.seed;
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            stream: sampling.stream,
            position: position as u32,
        }
    }

    /// The 52 random bits of a token. Seed, stream, position and id are the generator's key and
    /// counter in full, so two different draws never share their bits by collision.
    fn bits(&self, id: u32) -> u64 {
        let counter = [id, self.position, self.stream as u32, (self.stream >> 32) as u32];
        let words = philox4x32(counter, self.key);
        (u64::from(words[0]) << 32 | u64::from(words[1])) >> (64 - UNIFORM_BITS)
    }
}

/// Gumbel noise −ln(−ln u).
fn gumbel(bits: u64) -> f64 {
    let uniform = (bits as f64 + 0.5) / (1u64 << UNIFORM_BITS) as f64;
    -libm::log(-libm::log(uniform))
}

/// More than `gumbel(bits)`, without a logarithm: −ln u ≥ 1 − u, and n leading ones of u's bits
/// leave 1 − u ≥ 2⁻⁽ⁿ⁺¹⁾.
fn gumbel_bound(bits: u64) -> f64 {
    let ones = (bits << (64 - UNIFORM_BITS)).leading_ones();
    f64::from(ones + 1) * std::f64::consts::LN_2 + NOISE_MARGIN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn draw(logits: &[f32], sampling: &Sampling, counts: &ReplyCounts, position: usize) -> u32 {
        Sampler::default().draw(logits, sampling, counts, position).0
    }

    /// Probabilities after temperature and the three limits, by their definitions.
    fn by_definition(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
        let scaled: Vec<f64> =
            logits.iter().map(|&l| f64::from(l) / f64::from(sampling.temperature)).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]));
        if sampling.top_k > 0 {
            order.truncate(sampling.top_k);
        }
        let max = scaled[order[0]];
        let total: f64 = order.iter().map(|&id| (scaled[id] - max).exp()).sum();
        let mut reached = 0.0;
        let run = order.iter().position(|&id| {
            reached += (scaled[id] - max).exp() / total;
            sampling.top_p < 1.0 && reached >= f64::from(sampling.top_p)
        });
        if let Some(last) = run {
            order.truncate(last + 1);
        }
        order.retain(|&id| (scaled[id] - max).exp() >= f64::from(sampling.min_p));
        let total: f64 = order.iter().map(|&id| (scaled[id] - max).exp()).sum();
        let mut probabilities = vec![0.0; logits.len()];
        for id in order {
            probabilities[id] = (scaled[id] - max).exp() / total;
        }
        probabilities
    }

    /// The χ² value that is exceeded with probability 1e-6 (Wilson and Hilferty 1931).
    fn chi_square_limit(freedom: f64) -> f64 {
        let ninth = 2.0 / (9.0 * freedom);
        freedom * (1.0 - ninth + 4.753_424_3 * ninth.sqrt()).powi(3)
    }

    fn assert_distribution(logits: &[f32], sampling: &Sampling, draws: usize) {
        let mut counts = vec![0u64; logits.len()];
        let mut sampler = Sampler::default();
        for position in 0..draws {
            let id = sampler.draw(logits, sampling, &ReplyCounts::new(), position);
            counts[id.index()] += 1;
        }
        let (mut chi, mut cells) = (0.0, 0);
        // Cells with few expected draws are joined into one.
        let (mut rest_seen, mut rest_expected) = (0.0, 0.0);
        for (&seen, &probability) in counts.iter().zip(&by_definition(logits, sampling)) {
            let expected = probability * draws as f64;
            if probability == 0.0 {
                assert_eq!(seen, 0, "a token outside the limits was drawn");
            } else if expected < 10.0 {
                rest_seen += seen as f64;
                rest_expected += expected;
            } else {
                chi += (seen as f64 - expected).powi(2) / expected;
                cells += 1;
            }
        }
        if rest_expected > 0.0 {
            chi += (rest_seen - rest_expected).powi(2) / rest_expected;
            cells += 1;
        }
        assert!(cells > 1, "nothing to test");
        let limit = chi_square_limit(f64::from(cells - 1));
        assert!(chi < limit, "χ² {chi:.1} of {cells} cells, limit {limit:.1}: {sampling:?}");
    }

    fn row() -> Vec<f32> {
        (0..40).map(|i| 3.0 * (i as f32 * 1.7).sin() + 0.05 * i as f32).collect()
    }

    #[test]
    fn draws_follow_the_softmax() {
        for (seed, temperature) in [(1, 0.3), (2, 0.7), (3, 1.0), (4, 1.5), (5, 4.0)] {
            let sampling = Sampling { temperature, seed, stream: 9, ..Sampling::default() };
            assert_distribution(&row(), &sampling, 40_000);
        }
    }

    #[test]
    fn draws_follow_the_limits() {
        let plain = Sampling { temperature: 1.2, seed: 77, ..Sampling::default() };
        for sampling in [
            Sampling { top_k: 5, ..plain.clone() },
            Sampling { top_k: 1000, ..plain.clone() },
            Sampling { top_p: 0.8, ..plain.clone() },
            Sampling { top_p: 0.999, ..plain.clone() },
            Sampling { min_p: 0.1, ..plain.clone() },
            Sampling { top_k: 20, top_p: 0.9, min_p: 0.05, ..plain },
        ] {
            assert_distribution(&row(), &sampling, 40_000);
        }
    }

    /// Draws that differ in one of seed, stream or position are independent.
    #[test]
    fn streams_are_independent() {
        let logits = [0.0f32; 4];
        let base = Sampling { temperature: 1.0, seed: 5, stream: 11, ..Sampling::default() };
        let others = [
            (Sampling { seed: 6, ..base.clone() }, 0),
            (Sampling { seed: 5 + (1 << 32), ..base.clone() }, 0),
            (Sampling { stream: 12, ..base.clone() }, 0),
            (Sampling { stream: 11 + (1 << 32), ..base.clone() }, 0),
            (base.clone(), 1),
        ];
        for (other, shift) in others {
            let mut pairs = [0u32; 16];
            for position in 0..16_000 {
                let a = draw(&logits, &base, &ReplyCounts::new(), position);
                let b = draw(&logits, &other, &ReplyCounts::new(), position + shift);
                pairs[(4 * a + b) as usize] += 1;
            }
            let chi: f64 = pairs.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
            assert!(chi < chi_square_limit(15.0), "{pairs:?}");
        }
    }

    /// Every token's noise, without passing any over.
    fn brute_force(scaled: &[f64], kept: &[u32], noise: &Noise) -> u32 {
        let mut sums: Vec<(f64, u32)> =
            kept.iter().map(|&id| (scaled[id as usize] + gumbel(noise.bits(id)), id)).collect();
        sums.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        sums[0].1
    }

    proptest! {
        #[test]
        fn passing_over_changes_no_draw(
            logits in proptest::collection::vec(-60f32..60.0, 1..300),
            temperature in prop_oneof![Just(1e-30f32), 0.01f32..5.0],
            seed: u64,
            stream: u64,
            position in 0usize..100_000,
        ) {
            let sampling = Sampling { temperature, seed, stream, ..Sampling::default() };
            let mut sampler = Sampler::default();
            let got = sampler.draw(&logits, &sampling, &ReplyCounts::new(), position);
            let noise = Noise::new(&sampling, position);
            prop_assert_eq!(got.0, brute_force(&sampler.scaled, &sampler.kept, &noise));
        }

        #[test]
        fn the_bound_is_above_the_noise(bits in 0u64..1 << 52) {
            prop_assert!(gumbel(bits) < gumbel_bound(bits));
        }

        #[test]
        fn limits_keep_what_they_say(
            logits in proptest::collection::vec((-80i32..80).prop_map(|l| l as f32 / 4.0), 1..200),
            top_k in 0usize..40,
            top_p in 0.01f32..=1.0,
            min_p in 0f32..=1.0,
        ) {
            // Ties abound, and a shuffle of nothing may change what is kept.
            let sampling =
                Sampling { temperature: 1.0, top_k, top_p, min_p, ..Sampling::default() };
            let mut sampler = Sampler::default();
            sampler.draw(&logits, &sampling, &ReplyCounts::new(), 0);
            let mut kept = sampler.kept.clone();
            kept.sort_unstable();
            let want: Vec<u32> = (0..logits.len() as u32)
                .filter(|&id| by_definition(&logits, &sampling)[id as usize] > 0.0)
                .collect();
            prop_assert_eq!(kept, want);
        }
    }

    #[test]
    fn the_bound_holds_at_the_ends() {
        for bits in [0, 1, (1 << 52) - 1, (1 << 52) - 2, 1 << 51, (1 << 51) - 1] {
            let noise = gumbel(bits);
            assert!(noise.is_finite() && noise < gumbel_bound(bits), "{bits:x}");
            assert!(noise < WIDEST_NOISE);
        }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let greedy = Sampling::default();
        assert_eq!(draw(&[1.0, 3.0, 3.0, 2.0], &greedy, &ReplyCounts::new(), 0), 1);
        assert_eq!(draw(&[-0.0, 0.0], &greedy, &ReplyCounts::new(), 0), 0);
    }

    #[test]
    fn penalties_and_bias_by_hand() {
        let counts = ReplyCounts::from([(TokenId(0), 3), (TokenId(1), 1)]);
        let sampling = Sampling {
            repetition_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            bias: vec![(TokenId(2), 1.5)],
            ..Sampling::default()
        };
        let mut sampler = Sampler::default();
        sampler.adjust(&[4.0, -1.0, 0.25, 0.5], &sampling, &counts);
        // 4/2 − ½ − ¾; −1·2 − ½ − ¼; ¼ + 1½; untouched.
        assert_eq!(sampler.scaled, [0.75, -2.75, 1.75, 0.5]);
        assert_eq!(draw(&[4.0, -1.0, 0.25, 0.5], &sampling, &counts, 0), 2);
    }

    /// Fixed draws: a change of the generator, the key or the noise would show here. The values
    /// were computed by another program from the definitions alone.
    #[test]
    fn draws_written_down() {
        let logits: Vec<f32> = (0..40u8).map(|i| f32::from(i * 5 % 23) / 4.0).collect();
        let sampling = Sampling {
            temperature: 1.0,
            seed: 0x0123_4567_89ab_cdef,
            stream: 0xfedc_ba98_7654_3210,
            ..Sampling::default()
        };
        let drawn: Vec<u32> =
            (0..12).map(|p| draw(&logits, &sampling, &ReplyCounts::new(), p)).collect();
        assert_eq!(drawn, [13, 9, 9, 30, 9, 32, 32, 30, 18, 32, 18, 4]);
    }
}
