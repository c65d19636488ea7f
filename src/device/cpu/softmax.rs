//! What a row of logits says: the sums of its softmax, the highest logits, a token's rank.
//!
//! The declared arithmetic of the sums: with `d = x - max` in f32 and `e = exp(d)` by
//! [`float::exp`](super::float), eight sums in f64 by index mod 8, each number widened first, of `e`, of
//! `d * e` (fused) and of `x`; then the tree of [`Lanes::sum`]. Against f64 throughout, ln Σ e is off
//! by less than 1e-6: 2 ulp of `exp`, and half an ulp of `d` where it is inexact.

use super::float::exp;
use super::lanes::{Lanes, Tier, tiered};

/// Sums over one row of finite logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowSums {
    /// The highest logit.
    pub max: f32,
    /// Σ exp(x - max).
    pub weights: f64,
    /// Σ (x - max) exp(x - max).
    pub weighted: f64,
    /// Σ x.
    pub logits: f64,
}

/// Reads a row; answers with the place of the first number that is not finite, if there is one.
pub fn row_sums(tier: Tier, logits: &[f32]) -> Result<RowSums, usize> {
    let (max, finite) = greatest(tier, logits);
    if !finite {
        let place = logits.iter().position(|x| !x.is_finite());
        return Err(place.unwrap_or_default());
    }
    let [weights, weighted, logits] = sums(tier, logits, max);
    Ok(RowSums { max, weights, weighted, logits })
}

/// The place of the highest number, the lowest of equals (0 for an empty row), and the greatest
/// magnitude. Numbers are not NaN.
pub fn highest_and_reach(tier: Tier, logits: &[f32]) -> (usize, f32) {
    let (max, reach) = max_and_reach(tier, logits);
    (first_at_least(tier, logits, max), reach)
}

/// How many numbers stand before that of `place` where they are sorted from the highest to the
/// lowest, equals by their places. Numbers are not NaN.
pub fn rank(tier: Tier, logits: &[f32], place: usize) -> usize {
    let own = logits[place];
    let ([_, above], [less_before, above_before]) =
        (compared(tier, logits, own), compared(tier, &logits[..place], own));
    above + (place - less_before - above_before)
}

/// The places of the `count` highest numbers, best first, equals by their places. Numbers are not
/// NaN.
pub fn highest(tier: Tier, logits: &[f32], count: usize) -> Vec<u32> {
    /// Beyond this many, keeping them sorted costs more than sorting them at the end.
    const FEW: usize = 64;
    let count = count.min(logits.len());
    let mut best = Vec::with_capacity(count + 1);
    if count == 0 {
        return best;
    }
    if count <= FEW {
        highest_few(tier, logits, count, &mut best);
        return best;
    }
    let order =
        |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    best.extend(0..logits.len() as u32);
    best.select_nth_unstable_by(count - 1, order);
    best.truncate(count);
    best.sort_unstable_by(order);
    best
}

#[inline(always)]
fn greatest_body<V: Lanes>(x: &[f32]) -> (f32, bool) {
    let (eights, tail) = x.as_chunks::<8>();
    let mut max = V::splat(f32::NEG_INFINITY);
    // 0 * x summed: 0 if all are finite, else NaN.
    let mut finite = V::splat(0.0);
    for eight in eights {
        let eight = V::load(eight);
        max = eight.max(max);
        finite = eight.fma(V::splat(0.0), finite);
    }
    let last = V::load_tail(tail);
    max = last.first(tail.len(), V::splat(f32::NEG_INFINITY)).max(max);
    (max.greatest(), last.fma(V::splat(0.0), finite).sum() == 0.0)
}
tiered! { fn greatest(x: &[f32]) -> (f32, bool) = greatest_body }

#[inline(always)]
fn sums_body<V: Lanes>(x: &[f32], max: f32) -> [f64; 3] {
    // Below this a weight is 0, and a difference that overflowed must not make 0 * infinity.
    const LOWEST: f32 = -200.0;
    let (eights, tail) = x.as_chunks::<8>();
    let max = V::splat(max);
    let (mut weights, mut weighted, mut logits) = (V::wide_zero(), V::wide_zero(), V::wide_zero());
    for eight in eights {
        let x = V::load(eight);
        let d = V::splat(LOWEST).max(x.sub(max));
        let e = exp(d);
        weights = e.add_wide(weights);
        weighted = d.fma_wide(e, weighted);
        logits = x.add_wide(logits);
    }
    let x = V::load_tail(tail);
    let d = V::splat(LOWEST).max(x.sub(max)).first(tail.len(), V::splat(LOWEST));
    let e = exp(d);
    weights = e.add_wide(weights);
    weighted = d.fma_wide(e, weighted);
    logits = x.add_wide(logits);
    [V::sum_wide(weights), V::sum_wide(weighted), V::sum_wide(logits)]
}
tiered! { fn sums(x: &[f32], max: f32) -> [f64; 3] = sums_body }

#[inline(always)]
fn max_and_reach_body<V: Lanes>(x: &[f32]) -> (f32, f32) {
    let (eights, tail) = x.as_chunks::<8>();
    let (mut max, mut reach) = (V::splat(f32::NEG_INFINITY), V::splat(0.0));
    for eight in eights {
        let eight = V::load(eight);
        max = eight.max(max);
        reach = eight.abs().max(reach);
    }
    let last = V::load_tail(tail);
    max = last.first(tail.len(), V::splat(f32::NEG_INFINITY)).max(max);
    (max.greatest(), last.abs().max(reach).greatest())
}
tiered! { fn max_and_reach(x: &[f32]) -> (f32, f32) = max_and_reach_body }

#[inline(always)]
fn first_at_least_body<V: Lanes>(x: &[f32], least: f32) -> usize {
    let (eights, tail) = x.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        let less = V::load(eight).less_bits(V::splat(least));
        if less != 0xFF {
            return 8 * i + less.trailing_ones() as usize;
        }
    }
    let in_tail = tail.iter().position(|x| *x >= least);
    in_tail.map_or(0, |i| 8 * eights.len() + i)
}
tiered! { fn first_at_least(x: &[f32], least: f32) -> usize = first_at_least_body }

/// How many numbers are less, and how many greater, than `own`.
#[inline(always)]
fn compared_body<V: Lanes>(x: &[f32], own: f32) -> [usize; 2] {
    let (eights, tail) = x.as_chunks::<8>();
    let own_lanes = V::splat(own);
    let (mut less, mut greater) = (0, 0);
    for eight in eights {
        let x = V::load(eight);
        less += x.less_bits(own_lanes).count_ones();
        greater += own_lanes.less_bits(x).count_ones();
    }
    for x in tail {
        less += u32::from(*x < own);
        greater += u32::from(own < *x);
    }
    [less as usize, greater as usize]
}
tiered! { fn compared(x: &[f32], own: f32) -> [usize; 2] = compared_body }

#[inline(always)]
fn highest_few_body<V: Lanes>(x: &[f32], count: usize, best: &mut Vec<u32>) {
    let (eights, tail) = x.as_chunks::<8>();
    let mut least = f32::NEG_INFINITY;
    for (i, eight) in eights.iter().enumerate() {
        let mut above =
            if best.len() < count { 0xFF } else { V::splat(least).less_bits(V::load(eight)) };
        while above != 0 {
            let place = 8 * i + above.trailing_zeros() as usize;
            above &= above - 1;
            least = insert(x, count, best, place);
        }
    }
    for i in 0..tail.len() {
        insert(x, count, best, 8 * eights.len() + i);
    }
}
tiered! { fn highest_few(x: &[f32], count: usize, best: &mut Vec<u32>) = highest_few_body }

/// Puts a place where it belongs among the best; answers with what the next must exceed.
fn insert(x: &[f32], count: usize, best: &mut Vec<u32>, place: usize) -> f32 {
    let value = x[place];
    let at = best.partition_point(|other| x[*other as usize] >= value);
    if at < count {
        best.insert(at, place as u32);
        best.truncate(count);
    }
    match best.last() {
        Some(last) if best.len() == count => x[*last as usize],
        _ => f32::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIERS: fn() -> [Tier; 2] = || [Tier::portable(), Tier::detect()];

    fn rows() -> Vec<Vec<f32>> {
        let wave = |len: usize, scale: f32, step: f32| -> Vec<f32> {
            (0..len).map(|i| scale * (i as f32 * step).sin() + (i % 7) as f32 * 0.25).collect()
        };
        let mut rows = Vec::new();
        for len in [1, 2, 7, 8, 9, 77, 1000, 49_152] {
            for (scale, step) in [(0.0, 1.0), (3.0, 0.7), (20.0, 1.3), (90.0, 2.1), (1e30, 0.3)] {
                rows.push(wave(len, scale, step));
            }
        }
        rows.push(vec![f32::MAX, f32::MIN, 0.0]);
        rows
    }

    #[test]
    fn sums_are_those_of_f64_and_equal_in_every_form() {
        for row in rows() {
            let [portable, fast] = TIERS().map(|tier| row_sums(tier, &row).expect("finite"));
            assert_eq!(portable, fast, "{} numbers", row.len());
            let max = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
            let (mut weights, mut weighted) = (0.0, 0.0);
            for x in &row {
                let d = f64::from(*x) - max;
                weights += d.exp();
                weighted += if d < -700.0 { 0.0 } else { d * d.exp() };
            }
            assert_eq!(f64::from(fast.max), max);
            assert!((fast.weights.ln() - weights.ln()).abs() < 1e-6, "{} numbers", row.len());
            let entropy = |weights: f64, weighted: f64| weights.ln() - weighted / weights;
            let off = entropy(fast.weights, fast.weighted) - entropy(weights, weighted);
            assert!(off.abs() < 2e-6, "{off} of {} numbers", row.len());
            let total: f64 = row.iter().map(|x| f64::from(*x)).sum();
            let size: f64 = row.iter().map(|x| f64::from(x.abs())).sum();
            assert!((fast.logits - total).abs() <= 1e-12 * size);
        }
    }

    #[test]
    fn what_is_not_finite_is_found_by_its_first_place() {
        for tier in TIERS() {
            for len in [1usize, 8, 13, 64] {
                for at in 0..len {
                    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let mut row = vec![1.5; len];
                        row[at] = bad;
                        row[len - 1] = if at == len - 1 { bad } else { f32::NAN };
                        assert_eq!(row_sums(tier, &row), Err(at));
                    }
                }
            }
        }
    }

    #[test]
    fn order_is_that_of_a_stable_sort() {
        for len in [1u32, 5, 8, 64, 203] {
            let row: Vec<f32> =
                (0..len).map(|i| (i.wrapping_mul(2_654_435_761) % 17) as f32 - 8.0).collect();
            let mut sorted: Vec<u32> = (0..len).collect();
            sorted.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
            for tier in TIERS() {
                for count in [0, 1, 2, 5, 20, 64, 65, 203, 300] {
                    let found = highest(tier, &row, count);
                    assert_eq!(found, sorted[..count.min(row.len())], "{count} of {len}");
                }
                for (rank_of, place) in sorted.iter().enumerate() {
                    assert_eq!(rank(tier, &row, *place as usize), rank_of);
                }
                let reach = row.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
                assert_eq!(highest_and_reach(tier, &row), (sorted[0] as usize, reach));
            }
        }
        assert_eq!(highest_and_reach(Tier::detect(), &[-0.0, 0.0]), (0, 0.0));
    }
}
