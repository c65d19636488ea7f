//! What the raw softmax says of a position: log-probabilities, entropy, rank, the most probable tokens.
//!
//! The sums over the vocabulary are those of `device::cpu::softmax`, in f64 and in a declared order, so
//! their bits are the same on every machine; logarithms are `libm`'s.

use super::TokenStats;
use crate::device::cpu::Tier;
use crate::device::cpu::softmax::{self, RowSums};
use crate::text::TokenId;

/// The log-softmax of one row of logits `[vocab]`, without the row.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    max: f64,
    /// ln Σ exp(logit − max).
    log_sum: f64,
    /// In nats.
    entropy: f64,
    mean_logprob: f64,
}

/// A logit that is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotFinite {
    pub token: TokenId,
    pub value: f32,
}

impl Softmax {
    /// Reads a row of logits; every one must be finite.
    pub fn of(row: &[f32]) -> Result<Self, NotFinite> {
        let RowSums { max, weights, weighted, logits } = softmax::row_sums(Tier::detect(), row)
            .map_err(|place| NotFinite { token: TokenId(place as u32), value: row[place] })?;
        let max = f64::from(max);
        // −Σ p ln p = ln Σ exp(d) − Σ d exp(d) / Σ exp(d), with d = logit − max.
        let log_sum = libm::log(weights);
        let entropy = (log_sum - weighted / weights).max(0.0);
        let mean_logprob = logits / row.len() as f64 - max - log_sum;
        Ok(Self { max, log_sum, entropy, mean_logprob })
    }

    /// Statistics of `id` in the row that was read, naming the `top` most probable tokens.
    pub fn stats(&self, logits: &[f32], id: TokenId, top: usize) -> TokenStats {
        TokenStats {
            id,
            logprob: self.logprob(logits[id.index()]),
            entropy: self.entropy as f32,
            rank: softmax::rank(Tier::detect(), logits, id.index()) as u32,
            mean_logprob: self.mean_logprob as f32,
            top: softmax::highest(Tier::detect(), logits, top)
                .into_iter()
                .map(|id| (TokenId(id), self.logprob(logits[id as usize])))
                .collect(),
        }
    }

    fn logprob(&self, logit: f32) -> f32 {
        (f64::from(logit) - self.max - self.log_sum) as f32
    }
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
    fn rank_and_mean_of_a_known_row() {
        let logits = [1.0, 3.0, 2.0, 3.0, -1.0];
        let softmax = Softmax::of(&logits).unwrap();
        let ranks: Vec<u32> =
            (0..5).map(|id| softmax.stats(&logits, TokenId(id), 0).rank).collect();
        assert_eq!(ranks, [3, 0, 2, 1, 4]);
        let all: Vec<f32> =
            (0..5).map(|id| softmax.stats(&logits, TokenId(id), 0).logprob).collect();
        let mean = softmax.stats(&logits, TokenId(0), 0).mean_logprob;
        assert!((mean - all.iter().sum::<f32>() / 5.0).abs() < 1e-6);
    }

    #[test]
    fn log_probabilities_are_those_of_f64() {
        for scale in [0.5f32, 3.0, 12.0] {
            let logits: Vec<f32> =
                (0..49_152).map(|i| scale * (i as f32 * 0.913).sin() + (i % 11) as f32).collect();
            let max = logits.iter().copied().fold(f32::MIN, f32::max);
            let exact: f64 = logits.iter().map(|x| (f64::from(*x) - f64::from(max)).exp()).sum();
            let softmax = Softmax::of(&logits).unwrap();
            for id in (0..49_152).step_by(997) {
                let exact = f64::from(logits[id]) - f64::from(max) - exact.ln();
                let found = softmax.stats(&logits, TokenId(id as u32), 0).logprob;
                assert!((f64::from(found) - exact).abs() < 2e-6, "{found} {exact}");
            }
        }
    }
}
