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
use super::philox::draw_at;
use crate::device::cpu::noise::{self, Draw};
use crate::device::cpu::{Tier, softmax};
use crate::text::TokenId;

/// How often each token was generated in the present reply.
pub type ReplyCounts = BTreeMap<TokenId, u32>;

/// Bits of a draw's uniform number: u = (bits + ½) / 2⁵² is exact in f64 and never 0 or 1.
const UNIFORM_BITS: u32 = 52;

/// More than any noise: u ≤ 1 − 2⁻⁵³ gives at most 53 ln 2.
const WIDEST_NOISE: f64 = 53.0 * std::f64::consts::LN_2 + NOISE_MARGIN;

/// Far above the rounding of two logarithms, far below any difference that matters.
const NOISE_MARGIN: f64 = 1e-9;

/// Top-k limits up to which the kept tokens are found without scaling the others.
const FEW: usize = 64;

/// A sampler with its work space of one vocabulary.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Logits after penalties, bias and temperature, `[vocab]`; for draws with limits.
    scaled: Vec<f64>,
    /// Ids that may be drawn; for draws with limits.
    kept: Vec<u32>,
    /// Logits that penalties or bias changed, by id.
    changed: Vec<(u32, f64)>,
    /// The row without what is `changed`, where something is.
    rest: Vec<f32>,
    /// Ids whose noise may reach the best sum.
    near: Vec<u32>,
}

impl Sampler {
    /// Draws the token at `position` of its sequence. Logits are finite and the sampling is
    /// checked ([`Sampling::check`]).
    pub fn draw(
        &mut self,
        logits: &[f32],
        sampling: &Sampling,
        counts: &ReplyCounts,
        position: usize,
    ) -> TokenId {
        self.change(logits, sampling, counts);
        if sampling.temperature == 0.0 {
            return TokenId(self.highest_of_all(logits).0);
        }
        let unlimited = (sampling.top_k == 0 || sampling.top_k >= logits.len())
            && sampling.top_p >= 1.0
            && sampling.min_p == 0.0;
        let draw = draw_at(sampling, position);
        if unlimited {
            return self.draw_of_all(logits, f64::from(sampling.temperature), &draw);
        }
        let temperature = f64::from(sampling.temperature);
        let highest = match self.changed.is_empty() && (1..=FEW).contains(&sampling.top_k) {
            true => self.scale_few(logits, sampling.top_k, temperature),
            false => self.scale_all(logits, sampling.top_k, temperature),
        };
        self.keep_top_p(f64::from(sampling.top_p), highest);
        self.keep_min_p(f64::from(sampling.min_p), highest);
        self.gumbel_max(&draw, highest)
    }

    /// Finds the logits that penalties, then bias, change.
    fn change(&mut self, logits: &[f32], sampling: &Sampling, counts: &ReplyCounts) {
        self.changed.clear();
        let repetition = f64::from(sampling.repetition_penalty);
        let presence = f64::from(sampling.presence_penalty);
        let frequency = f64::from(sampling.frequency_penalty);
        if repetition != 1.0 || presence != 0.0 || frequency != 0.0 {
            for (&id, &count) in counts {
                let mut logit = f64::from(logits[id.index()]);
                logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
                logit -= presence;
                logit -= frequency * f64::from(count);
                self.changed.push((id.0, logit));
            }
        }
        for &(id, bias) in &sampling.bias {
            match self.changed.binary_search_by_key(&id.0, |(id, _)| *id) {
                Ok(at) => self.changed[at].1 += f64::from(bias),
                Err(at) => {
                    let logit = f64::from(logits[id.index()]) + f64::from(bias);
                    self.changed.insert(at, (id.0, logit));
                }
            }
        }
    }

    /// The row but for the logits that are changed, which are −∞ in it.
    fn unchanged(&mut self, logits: &[f32]) -> &[f32] {
        self.rest.clear();
        self.rest.extend_from_slice(logits);
        for (id, _) in &self.changed {
            self.rest[*id as usize] = f32::NEG_INFINITY;
        }
        &self.rest
    }

    /// The id of the highest logit after penalties and bias, the lowest of equals, and the greatest
    /// magnitude of the others.
    fn highest_of_all(&mut self, logits: &[f32]) -> (u32, f32) {
        let tier = Tier::detect();
        let (best, reach) = softmax::highest_and_reach(tier, logits);
        if self.changed.is_empty() {
            return (best as u32, reach);
        }
        let rest = self.unchanged(logits);
        let (mut best, _) = softmax::highest_and_reach(tier, rest);
        let mut highest = f64::from(rest[best]);
        for &(id, logit) in &self.changed {
            if logit > highest || (logit == highest && (id as usize) < best) {
                (best, highest) = (id as usize, logit);
            }
        }
        (best as u32, reach)
    }

    /// A draw without limits: the id with the highest sum of scaled logit and noise, ties to the
    /// lower id.
    ///
    /// Sums are computed in f64 for the ids alone whose noise may reach the best sum so far; which
    /// these are is found in f32, with a margin for its rounding, so this changes no draw.
    fn draw_of_all(&mut self, logits: &[f32], temperature: f64, draw: &Draw) -> TokenId {
        /// Ids that are looked at between two tightenings of what must be reached.
        const CHUNK: usize = 2048;
        let (highest, reach) = self.highest_of_all(logits);
        let mut best = Best { id: highest, sum: f64::NEG_INFINITY };
        for &(id, logit) in &self.changed {
            best.take(id, logit / temperature + gumbel(bits(draw, id)));
        }
        let sum_of =
            |id: u32| f64::from(logits[id as usize]) / temperature + gumbel(bits(draw, id));
        if self.changed.binary_search_by_key(&highest, |(id, _)| *id).is_err() {
            best.take(highest, sum_of(highest));
        }
        let mut near = std::mem::take(&mut self.near);
        let inverse = (1.0 / temperature) as f32;
        // Two roundings of a product and one of a sum, each at most 2⁻²⁴ of its size.
        let margin = 1e-3 + 1e-6 * f64::from(reach) / temperature;
        // What f32 cannot hold is left to f64 alone.
        let fits = temperature > 1e-6 && margin < 1e6;
        for first in (0..logits.len()).step_by(CHUNK) {
            let chunk = first..logits.len().min(first + CHUNK);
            near.clear();
            if fits {
                let row = if self.changed.is_empty() { logits } else { &self.rest };
                let least = (best.sum - margin) as f32;
                let row = &row[chunk];
                noise::near(Tier::detect(), row, first as u32, draw, inverse, least, &mut near);
            } else {
                near.extend(chunk.start as u32..chunk.end as u32);
            }
            for &id in &near {
                if self.changed.binary_search_by_key(&id, |(id, _)| *id).is_err() {
                    best.take(id, sum_of(id));
                }
            }
        }
        self.near = near;
        TokenId(best.id)
    }

    /// Scales and keeps the `k` highest of a row that nothing changed; answers with the highest.
    fn scale_few(&mut self, logits: &[f32], k: usize, temperature: f64) -> u32 {
        self.kept = softmax::highest(Tier::detect(), logits, k);
        let highest = self.kept[0];
        self.kept.sort_unstable();
        // What is not kept is never looked at.
        self.scaled.resize(logits.len(), 0.0);
        for id in &self.kept {
            self.scaled[*id as usize] = f64::from(logits[*id as usize]) / temperature;
        }
        highest
    }

    /// Scales the whole row after penalties and bias and keeps the `k` highest (0: all); answers
    /// with the highest.
    fn scale_all(&mut self, logits: &[f32], k: usize, temperature: f64) -> u32 {
        self.adjust(logits);
        let highest = self.highest();
        self.scaled.iter_mut().for_each(|logit| *logit /= temperature);
        self.kept.clear();
        self.kept.extend(0..logits.len() as u32);
        self.keep_top_k(k);
        highest
    }

    /// Writes the row after penalties and bias, for draws with limits.
    fn adjust(&mut self, logits: &[f32]) {
        self.scaled.clear();
        self.scaled.extend(logits.iter().map(|&logit| f64::from(logit)));
        for &(id, logit) in &self.changed {
            self.scaled[id as usize] = logit;
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
    fn gumbel_max(&self, draw: &Draw, highest: u32) -> TokenId {
        let sum = |id: u32, bits: u64| self.scaled[id as usize] + gumbel(bits);
        let mut best = highest;
        let mut best_sum = sum(highest, bits(draw, highest));
        for &id in &self.kept {
            let logit = self.scaled[id as usize];
            if logit + WIDEST_NOISE < best_sum {
                continue;
            }
            let bits = bits(draw, id);
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

/// The best sum so far.
struct Best {
    id: u32,
    sum: f64,
}

impl Best {
    fn take(&mut self, id: u32, sum: f64) {
        if sum > self.sum || (sum == self.sum && id < self.id) {
            (self.id, self.sum) = (id, sum);
        }
    }
}

/// The 52 random bits of a token.
fn bits(draw: &Draw, id: u32) -> u64 {
    draw.bits(id) >> (64 - UNIFORM_BITS)
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

    /// The row after penalties, bias and temperature, by the definitions.
    fn scaled(logits: &[f32], sampling: &Sampling, counts: &ReplyCounts) -> Vec<f64> {
        let mut row: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
        for (id, count) in counts {
            let logit = &mut row[id.index()];
            let repetition = f64::from(sampling.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
            *logit -= f64::from(sampling.presence_penalty);
            *logit -= f64::from(sampling.frequency_penalty) * f64::from(*count);
        }
        for (id, bias) in &sampling.bias {
            row[id.index()] += f64::from(*bias);
        }
        row.iter().map(|logit| logit / f64::from(sampling.temperature)).collect()
    }

    /// Every token's noise, without passing any over.
    fn brute_force(scaled: &[f64], kept: &[u32], draw: &Draw) -> u32 {
        let mut sums: Vec<(f64, u32)> =
            kept.iter().map(|&id| (scaled[id as usize] + gumbel(bits(draw, id)), id)).collect();
        sums.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        sums[0].1
    }

    proptest! {
        #[test]
        fn passing_over_changes_no_draw(
            logits in proptest::collection::vec(-60f32..60.0, 1..300),
            size in prop_oneof![Just(1.0f32), Just(1e-40), Just(1e-3), Just(1e6), Just(1e36)],
            temperature in prop_oneof![Just(1e-40f32), Just(1e-30), Just(1e-6), 0.01f32..5.0],
            penalties in (prop_oneof![Just(1.0f32), 0.5f32..2.0], -1f32..1.0, -1f32..1.0),
            reply in proptest::collection::vec(0usize..300, 0..20),
            bias in proptest::collection::vec((0usize..300, -100f32..100.0), 0..5),
            limits in prop_oneof![Just((0, 1.0f32, 0.0f32)), (0usize..50, 0.1f32..=1.0, 0f32..0.5)],
            seed: u64,
            stream: u64,
            position in 0usize..100_000,
        ) {
            let logits: Vec<f32> = logits.iter().map(|logit| logit * size).collect();
            let id = |id: usize| TokenId((id % logits.len()) as u32);
            let mut counts = ReplyCounts::new();
            reply.into_iter().for_each(|token| *counts.entry(id(token)).or_default() += 1);
            let sampling = Sampling {
                temperature, seed, stream,
                repetition_penalty: penalties.0,
                presence_penalty: penalties.1,
                frequency_penalty: penalties.2,
                bias: bias.into_iter().map(|(token, bias)| (id(token), bias)).collect(),
                top_k: limits.0,
                top_p: limits.1,
                min_p: limits.2,
                ..Sampling::default()
            };
            let mut sampler = Sampler::default();
            let got = sampler.draw(&logits, &sampling, &counts, position);
            let scaled = scaled(&logits, &sampling, &counts);
            let unlimited = limits == (0, 1.0, 0.0);
            let all: Vec<u32> = (0..logits.len() as u32).collect();
            let kept = if unlimited { &all } else { &sampler.kept };
            prop_assert_eq!(got.0, brute_force(&scaled, kept, &draw_at(&sampling, position)));
        }

        #[test]
        fn greedy_takes_the_highest_after_penalties(
            logits in proptest::collection::vec((-40i32..40).prop_map(|l| l as f32 / 4.0), 1..100),
            reply in proptest::collection::vec(0usize..100, 0..20),
            bias in proptest::collection::vec((0usize..100, -4i32..4), 0..5),
        ) {
            let id = |id: usize| TokenId((id % logits.len()) as u32);
            let mut counts = ReplyCounts::new();
            reply.into_iter().for_each(|token| *counts.entry(id(token)).or_default() += 1);
            let sampling = Sampling {
                repetition_penalty: 2.0,
                presence_penalty: 0.25,
                frequency_penalty: 0.5,
                bias: bias.into_iter().map(|(token, bias)| (id(token), bias as f32)).collect(),
                ..Sampling::default()
            };
            let got = draw(&logits, &sampling, &counts, 0) as usize;
            let row = scaled(&logits, &Sampling { temperature: 1.0, ..sampling }, &counts);
            for (id, logit) in row.iter().enumerate() {
                prop_assert!(*logit < row[got] || (*logit == row[got] && id >= got));
            }
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
        let logits = [4.0, -1.0, 0.25, 0.5];
        sampler.change(&logits, &sampling, &counts);
        sampler.adjust(&logits);
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
