//! What is said about numbers: means, tests and intervals. Uses no other room.

/// The mean; none of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample's standard deviation (divided by n − 1); none of fewer than two values.
pub fn std(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// pass@k of one problem: how probable it is that of `k` samples, drawn from the `drawn` that there are, one at
/// least is among the `right` ones. Unbiased, 1 − C(drawn − right, k) / C(drawn, k), as a product that neither
/// overflows nor cancels (Chen et al. 2021, section 2.1). For `k` = 1 it is right / drawn. None where fewer
/// than `k` were drawn, or `k` is 0. The score of a set is the mean over its problems.
pub fn pass_at_k(drawn: u64, right: u64, k: u64) -> Option<f64> {
    if k == 0 || k > drawn || right > drawn {
        return None;
    }
    if drawn - right < k {
        return Some(1.0);
    }
    let none_right: f64 = (drawn - right + 1..=drawn).map(|n| 1.0 - k as f64 / n as f64).product();
    Some(1.0 - none_right)
}

/// McNemar's exact test: how probable so uneven a split of `one` and `other` discordant pairs is, or a more
/// uneven one, if each were a fair coin's throw. Two-sided, 1 where there are none.
pub fn mcnemar(one: u64, other: u64) -> f64 {
    let (n, least) = (one + other, one.min(other));
    // ln C(n, k) from k = 0 on, all over 2^n.
    let mut ln_choose = 0.0;
    let mut tail = 0.0;
    for k in 0..=least {
        if k > 0 {
            ln_choose += ((n - k + 1) as f64).ln() - (k as f64).ln();
        }
        tail += (ln_choose - n as f64 * std::f64::consts::LN_2).exp();
    }
    (2.0 * tail).min(1.0)
}

/// The 95 % interval of the mean of `values` by bootstrap: percentiles of the means of `rounds` resamples.
/// `values` are differences of pairs where two methods are compared. The draw is fixed by `seed`.
pub fn bootstrap(values: &[f64], rounds: usize, seed: u64) -> Option<(f64, f64)> {
    if values.is_empty() || rounds == 0 {
        return None;
    }
    let mut dice = SplitMix(seed);
    let mut means: Vec<f64> = (0..rounds)
        .map(|_| {
            let sum: f64 = (0..values.len()).map(|_| values[dice.below(values.len())]).sum();
            sum / values.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((rounds - 1) as f64 * share).round() as usize];
    Some((at(0.025), at(0.975)))
}

/// The sequence SplitMix64: for resampling, not for secrets.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; its bias, `n` / 2^64, is nothing here.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_counts_draws_without_replacement() {
        let near = |drawn, right, k, expected: f64| {
            let got = pass_at_k(drawn, right, k).unwrap();
            assert!((got - expected).abs() < 1e-12, "{drawn} {right} {k}: {got}");
        };
        near(5, 2, 1, 0.4);
        // 1 − C(3,2)/C(5,2) = 1 − 3/10; 1 − C(7,3)/C(10,3) = 1 − 35/120.
        near(5, 2, 2, 0.7);
        near(10, 3, 3, 85.0 / 120.0);
        near(5, 2, 4, 1.0);
        near(5, 0, 3, 0.0);
        near(4, 4, 4, 1.0);
        // 1 − C(199,100)/C(200,100) = 1/2, where the binomials are beyond every machine number.
        near(200, 1, 100, 0.5);
        near(100_000, 1, 10, 1e-4);
        for (drawn, right, k) in [(3, 1, 4), (3, 1, 0), (3, 4, 1), (0, 0, 1)] {
            assert_eq!(pass_at_k(drawn, right, k), None);
        }
    }

    #[test]
    fn means_and_deviations_by_hand() {
        assert_eq!(mean(&[]), None);
        assert_eq!((mean(&[2.0]), std(&[2.0])), (Some(2.0), None));
        // Squares of −2, 0, 2 over 2: 4.
        assert_eq!((mean(&[1.0, 3.0, 5.0]), std(&[1.0, 3.0, 5.0])), (Some(3.0), Some(2.0)));
    }

    #[test]
    fn mcnemar_is_the_binomial_tail() {
        assert_eq!(mcnemar(0, 0), 1.0);
        assert_eq!(mcnemar(3, 3), 1.0);
        // 2 (1 + 10) / 1024 and 2 / 64.
        assert!((mcnemar(1, 9) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((mcnemar(6, 0) - 2.0 / 64.0).abs() < 1e-12);
        assert_eq!(mcnemar(2, 7), mcnemar(7, 2));
        // Far beyond where 2^n and C(n, k) fit into a float.
        let even = mcnemar(5_000, 5_100);
        assert!((0.3..0.35).contains(&even), "{even}");
    }

    #[test]
    fn an_interval_holds_the_mean_and_is_drawn_alike_each_time() {
        let values: Vec<f64> = (0..200).map(|n| f64::from(u8::from(n % 4 == 0))).collect();
        let (low, high) = bootstrap(&values, 2_000, 1).unwrap();
        // The standard error of a share of 1/4 of 200 is 0.0306; 1.96 of it on either side.
        assert!((low - 0.19).abs() < 0.012 && (high - 0.31).abs() < 0.012, "{low} {high}");
        assert_eq!(bootstrap(&values, 2_000, 1), Some((low, high)));
        assert_eq!(bootstrap(&[1.0; 9], 100, 3), Some((1.0, 1.0)));
        assert_eq!(bootstrap(&[], 100, 3), None);
    }
}
