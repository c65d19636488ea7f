//! What the raw softmax says of a position: log-probabilities, entropy, the most probable tokens.
//!
//! Sums run in f64 over the vocabulary in the order of ids, with `libm`'s exponential and
//! logarithm, so their bits are the same on every machine.

use super::TokenStats;
use crate::text::TokenId;

/// The log-softmax of one row of logits `[vocab]`, without the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Softmax {
    max: f64,
    /// ln Σ exp(logit − max).
    log_sum: f64,
    /// In nats.
    entropy: f64,
}

/// A logit that is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NotFinite {
    pub(super) token: TokenId,
    pub(super) value: f32,
}

impl Softmax {
    /// Reads a row of logits; every one must be finite.
    pub(super) fn of(logits: &[f32]) -> Result<Self, NotFinite> {
        let mut max = f32::NEG_INFINITY;
        for (id, &value) in logits.iter().enumerate() {
            if !value.is_finite() {
                return Err(NotFinite { token: TokenId(id as u32), value });
            }
            max = max.max(value);
        }
        let max = f64::from(max);
        let (mut sum, mut weighted) = (0.0f64, 0.0f64);
        for &value in logits {
            let below = f64::from(value) - max;
            let weight = libm::exp(below);
            sum += weight;
            weighted += below * weight;
        }
        // −Σ p ln p = ln Σ exp(d) − Σ d exp(d) / Σ exp(d), with d = logit − max.
        let log_sum = libm::log(sum);
        let entropy = (log_sum - weighted / sum).max(0.0);
        Ok(Self { max, log_sum, entropy })
    }

    /// Statistics of `id` in the row that was read, naming the `top` most probable tokens.
    pub(super) fn stats(&self, logits: &[f32], id: TokenId, top: usize) -> TokenStats {
        TokenStats {
            id,
            logprob: self.logprob(logits[id.index()]),
            entropy: self.entropy as f32,
            top: highest(logits, top)
                .into_iter()
                .map(|id| (id, self.logprob(logits[id.index()])))
                .collect(),
        }
    }

    fn logprob(&self, logit: f32) -> f32 {
        (f64::from(logit) - self.max - self.log_sum) as f32
    }
}

/// The ids of the `count` highest logits, best first, ties to the lower id.
fn highest(logits: &[f32], count: usize) -> Vec<TokenId> {
    let mut best: Vec<TokenId> = Vec::with_capacity(count + 1);
    if count == 0 {
        return best;
    }
    for (index, &value) in logits.iter().enumerate() {
        if best.len() == count && value <= logits[best[count - 1].index()] {
            continue;
        }
        let place = best.partition_point(|id| logits[id.index()] >= value);
        best.insert(place, TokenId(index as u32));
        best.truncate(count);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_a_known_row() {
        // Weights 4 : 2 : 1 : 1.
        let logits = [4f32.ln(), 2f32.ln(), 0.0, 0.0];
        let softmax = Softmax::of(&logits).unwrap();
        let near = |a: f32, b: f64| assert!((f64::from(a) - b).abs() < 1e-6, "{a} {b}");
        let stats = softmax.stats(&logits, TokenId(1), 3);
        near(stats.logprob, 0.25f64.ln());
        near(stats.entropy, 1.75 * std::f64::consts::LN_2);
        assert_eq!(
            stats.top.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
            [0, 1, 2],
            "the tie of 2 and 3 goes to the lower id"
        );
        near(stats.top[0].1, 0.5f64.ln());
        assert_eq!(stats.top[1].1, stats.logprob);
    }

    #[test]
    fn a_shift_of_all_logits_changes_nothing() {
        let logits = [1.5f32, -2.0, 0.25, 3.0];
        let shifted = logits.map(|l| l + 1024.0);
        let a = Softmax::of(&logits).unwrap().stats(&logits, TokenId(2), 4);
        let b = Softmax::of(&shifted).unwrap().stats(&shifted, TokenId(2), 4);
        assert_eq!(a, b);
    }

    #[test]
    fn extremes_stay_finite() {
        let logits = [f32::MAX, f32::MIN, 0.0];
        let softmax = Softmax::of(&logits).unwrap();
        let sure = softmax.stats(&logits, TokenId(0), 1);
        assert_eq!((sure.logprob, sure.entropy), (0.0, 0.0));
        // Below the range of f32: the most negative infinity is what the type can say.
        assert!(softmax.stats(&logits, TokenId(2), 0).logprob < -1e38);
    }

    #[test]
    fn damaged_rows_are_refused_by_place() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let found = Softmax::of(&[0.0, bad, f32::NAN]).unwrap_err();
            assert_eq!(found.token, TokenId(1));
            assert_eq!(found.value.to_bits(), bad.to_bits());
        }
    }

    #[test]
    fn highest_is_a_stable_sort() {
        let logits: Vec<f32> =
            (0..200u32).map(|i| (i.wrapping_mul(2654435761) % 17) as f32).collect();
        let mut sorted: Vec<u32> = (0..200).collect();
        sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        for count in [0, 1, 2, 5, 50, 200] {
            let got: Vec<u32> = highest(&logits, count).iter().map(|id| id.0).collect();
            assert_eq!(got, sorted[..count]);
        }
    }
}
