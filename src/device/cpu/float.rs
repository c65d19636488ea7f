//! Row-wise float arithmetic: exp, SwiGLU, RMSNorm, rotation.

use super::lanes::{Lanes, tiered};
use super::quantised::{Activations, quantise_row_body};
use crate::device::Pairing;

/// exp(x) for x ≤ 0, within 2 ulp; 0 below -87 (results under 1.7e-38); NaN for NaN.
///
/// `x = n ln 2 + r` with |r| ≤ ln 2 / 2 and `n` rounded to nearest by adding 1.5 * 2^23; ln 2 in two
/// parts; the Taylor polynomial of degree 7 in Horner's form; the power of two through the exponent.
#[inline(always)]
pub(super) fn exp<V: Lanes>(x: V) -> V {
    const SHIFT: f32 = 12_582_912.0;
    // The first 15 bits of ln 2, so that n times it is exact; and the rest.
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    const LOWEST: f32 = -87.0;
    let clamped = V::splat(LOWEST).max(x);
    let shifted = clamped.fma(V::splat(std::f32::consts::LOG2_E), V::splat(SHIFT));
    let n = shifted.sub(V::splat(SHIFT));
    let r = n.fma(V::splat(-LN2_LOW), n.fma(V::splat(-LN2_HIGH), clamped));
    let mut p = V::splat(1.0 / 5040.0);
    for factorial in [720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        p = p.fma(r, V::splat(1.0 / factorial));
    }
    let result = p.mul(shifted.exp2_of_shifted());
    x.where_less(V::splat(LOWEST), V::splat(0.0), result)
}

/// x * sigmoid(x), with `e = exp(-|x|)` and sigmoid(x) = (x < 0 ? e : 1) / (1 + e).
#[inline(always)]
fn silu<V: Lanes>(x: V) -> V {
    let one = V::splat(1.0);
    let e = exp(V::splat(0.0).sub(x.abs()));
    x.mul(x.where_less(V::splat(0.0), e, one).div(one.add(e)))
}

#[inline(always)]
fn swiglu_body<V: Lanes>(gate: &mut [f32], up: &[f32], blocks: Option<&mut [Activations]>) {
    let (gates, gate_tail) = gate.as_chunks_mut::<8>();
    let (ups, up_tail) = up.as_chunks::<8>();
    for (gate, up) in gates.iter_mut().zip(ups) {
        silu(V::load(gate)).mul(V::load(up)).store(gate);
    }
    silu(V::load_tail(gate_tail)).mul(V::load_tail(up_tail)).store_tail(gate_tail);
    if let Some(blocks) = blocks {
        quantise_row_body::<V>(gate, blocks);
    }
}

tiered! {
    /// `gate = silu(gate) * up`, and the same in blocks of 8-bit integers where they are wanted.
    pub(super) fn swiglu(gate: &mut [f32], up: &[f32], blocks: Option<&mut [Activations]>)
        = swiglu_body
}

/// The sum of squares in the declared order: eight sums by index mod 8, then the tree.
#[inline(always)]
fn sum_of_squares<V: Lanes>(x: &[f32]) -> f32 {
    let (eights, tail) = x.as_chunks::<8>();
    let mut acc = V::splat(0.0);
    for eight in eights {
        let eight = V::load(eight);
        acc = eight.fma(eight, acc);
    }
    let tail = V::load_tail(tail);
    tail.fma(tail, acc).sum()
}

#[inline(always)]
fn rms_norm_body<V: Lanes>(x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = inverse_rms::<V>(sum_of_squares::<V>(x), x.len(), eps);
    let (eights, tail) = x.as_chunks_mut::<8>();
    let (weights, weight_tail) = weight.as_chunks::<8>();
    for (x, weight) in eights.iter_mut().zip(weights) {
        V::load(x).mul(scale).mul(V::load(weight)).store(x);
    }
    V::load_tail(tail).mul(scale).mul(V::load_tail(weight_tail)).store_tail(tail);
}

/// `1 / sqrt(mean + eps)` in every lane.
#[inline(always)]
fn inverse_rms<V: Lanes>(squares: f32, len: usize, eps: f32) -> V {
    let mean = squares / len as f32;
    // A mean that overflowed must not pass as a row of zeros: 0 * infinity makes the scale NaN.
    V::splat(mean.mul_add(0.0, 1.0 / (mean + eps).sqrt()))
}

tiered! {
    /// `x = x / sqrt(mean(x²) + eps) * weight`.
    pub(super) fn rms_norm(x: &mut [f32], weight: &[f32], eps: f32) = rms_norm_body
}

/// `stream += delta`, and the sum of squares of what comes out, in the declared order.
#[inline(always)]
fn add_and_square<V: Lanes>(stream: &mut [f32], delta: &[f32]) -> f32 {
    let (eights, tail) = stream.as_chunks_mut::<8>();
    let (deltas, delta_tail) = delta.as_chunks::<8>();
    let mut acc = V::splat(0.0);
    for (x, delta) in eights.iter_mut().zip(deltas) {
        let sum = V::load(x).add(V::load(delta));
        sum.store(x);
        acc = sum.fma(sum, acc);
    }
    let sum = V::load_tail(tail).add(V::load_tail(delta_tail));
    sum.store_tail(tail);
    sum.fma(sum, acc).sum()
}

#[inline(always)]
fn add_rms_norm_body<V: Lanes>(
    stream: &mut [f32],
    delta: Option<&[f32]>,
    weight: &[f32],
    eps: f32,
    out: &mut [f32],
    blocks: Option<&mut [Activations]>,
) {
    let squares = match delta {
        Some(delta) => add_and_square::<V>(stream, delta),
        None => sum_of_squares::<V>(stream),
    };
    let scale = inverse_rms::<V>(squares, stream.len(), eps);
    let (eights, tail) = stream.as_chunks::<8>();
    let (weights, weight_tail) = weight.as_chunks::<8>();
    let (outs, out_tail) = out.as_chunks_mut::<8>();
    for ((x, weight), out) in eights.iter().zip(weights).zip(outs) {
        V::load(x).mul(scale).mul(V::load(weight)).store(out);
    }
    V::load_tail(tail).mul(scale).mul(V::load_tail(weight_tail)).store_tail(out_tail);
    if let Some(blocks) = blocks {
        quantise_row_body::<V>(out, blocks);
    }
}

tiered! {
    /// One row: `stream += delta` where there is one, `out = stream / sqrt(mean(stream²) + eps) *
    /// weight`, and `out` in blocks of 8-bit integers where they are wanted.
    pub(super) fn add_rms_norm(
        stream: &mut [f32],
        delta: Option<&[f32]>,
        weight: &[f32],
        eps: f32,
        out: &mut [f32],
        blocks: Option<&mut [Activations]>,
    ) = add_rms_norm_body
}

/// `x' = fma(x, cos, -(y sin))`, `y' = fma(y, cos, x sin)` for every pair.
#[inline(always)]
fn rotate_body<V: Lanes>(head: &mut [f32], cos: &[f32], sin: &[f32], pairing: Pairing) {
    match pairing {
        Pairing::Interleaved => rotate_interleaved::<V>(head, cos, sin),
        Pairing::Half => rotate_halves::<V>(head, cos, sin),
    }
}

#[inline(always)]
fn rotate_interleaved<V: Lanes>(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    // -(b sin) and b (-sin) are the same number.
    let signs = V::load(&[-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]);
    let (eights, tail) = head.as_chunks_mut::<8>();
    let ((coss, cos_tail), (sins, sin_tail)) = (cos.as_chunks::<4>(), sin.as_chunks::<4>());
    for ((x, cos), sin) in eights.iter_mut().zip(coss).zip(sins) {
        let (pairs, sin) = (V::load(x), V::twice(sin).mul(signs));
        pairs.fma(V::twice(cos), pairs.swap_pairs().mul(sin)).store(x);
    }
    for ((pair, cos), sin) in tail.as_chunks_mut::<2>().0.iter_mut().zip(cos_tail).zip(sin_tail) {
        let [a, b] = *pair;
        *pair = [a.mul_add(*cos, -(b * sin)), b.mul_add(*cos, a * sin)];
    }
}

#[inline(always)]
fn rotate_halves<V: Lanes>(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (first, second) = head.split_at_mut(head.len() / 2);
    let (minus, whole) = (V::splat(-1.0), first.len() / 8 * 8);
    for at in (0..whole).step_by(8) {
        let x = V::load(&first[at..].as_chunks().0[0]);
        let y = V::load(&second[at..].as_chunks().0[0]);
        let (cos, sin) =
            (V::load(&cos[at..].as_chunks().0[0]), V::load(&sin[at..].as_chunks().0[0]));
        x.fma(cos, y.mul(sin.mul(minus))).store(&mut first[at..].as_chunks_mut().0[0]);
        y.fma(cos, x.mul(sin)).store(&mut second[at..].as_chunks_mut().0[0]);
    }
    let angles = cos[whole..].iter().zip(&sin[whole..]);
    for ((a, b), (cos, sin)) in first[whole..].iter_mut().zip(&mut second[whole..]).zip(angles) {
        let (x, y) = (*a, *b);
        *a = x.mul_add(*cos, -(y * sin));
        *b = y.mul_add(*cos, x * sin);
    }
}

tiered! {
    /// Turns the pairs of one head, `[head_dim]`, by the angles of a position, `[head_dim / 2]`.
    pub(super) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], pairing: Pairing)
        = rotate_body
}

/// The product of two rows in the declared order: eight sums by index mod 8, then the tree.
#[inline(always)]
fn dot<V: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut acc = V::splat(0.0);
    for (a, b) in a.iter().zip(b) {
        acc = V::load(a).fma(V::load(b), acc);
    }
    V::load_tail(a_tail).fma(V::load_tail(b_tail), acc).sum()
}

#[inline(always)]
fn add_low_rank_body<V: Lanes>(x: &[f32], down: &[f32], up: &[f32], out: &mut [f32]) {
    let width = out.len();
    let (outs, out_tail) = out.as_chunks_mut::<8>();
    for (down, up) in down.chunks_exact(x.len()).zip(up.chunks_exact(width)) {
        let share = V::splat(dot::<V>(down, x));
        let (ups, up_tail) = up.as_chunks::<8>();
        for (out, up) in outs.iter_mut().zip(ups) {
            V::load(up).fma(share, V::load(out)).store(out);
        }
        V::load_tail(up_tail).fma(share, V::load_tail(out_tail)).store_tail(out_tail);
    }
}

tiered! {
    /// `out += upᵀ · (down · x)`, in the order of ranks; `down [rank, x.len()]`, `up [rank, out.len()]`.
    pub(super) fn add_low_rank(x: &[f32], down: &[f32], up: &[f32], out: &mut [f32])
        = add_low_rank_body
}

#[inline(always)]
fn all_finite_body<V: Lanes>(x: &[f32]) -> bool {
    let (eights, tail) = x.as_chunks::<8>();
    let mut acc = V::splat(0.0);
    for eight in eights {
        acc = V::load(eight).fma(V::splat(0.0), acc);
    }
    V::load_tail(tail).fma(V::splat(0.0), acc).sum() == 0.0
}

tiered! {
    /// Whether no number is infinite or NaN.
    pub(super) fn all_finite(x: &[f32]) -> bool = all_finite_body
}

#[inline(always)]
fn round_f16_body<V: Lanes>(x: &[f32], out: &mut [u16]) {
    let (eights, tail) = x.as_chunks::<8>();
    let (outs, out_tail) = out.as_chunks_mut::<8>();
    for (x, out) in eights.iter().zip(outs) {
        V::load(x).store_f16(out);
    }
    let mut last = [0; 8];
    V::load_tail(tail).store_f16(&mut last);
    out_tail.copy_from_slice(&last[..tail.len()]);
}

tiered! {
    /// Rounds to f16, to nearest, ties to even.
    pub(super) fn round_f16(x: &[f32], out: &mut [u16]) = round_f16_body
}

/// Rounds to bf16, to nearest, ties to even; NaN stays NaN. Integers throughout, so every form
/// does the same.
#[inline(always)]
fn round_bf16_body<V: Lanes>(x: &[f32], out: &mut [u16]) {
    for (x, out) in x.iter().zip(out) {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        *out = if x.is_nan() { quiet as u16 } else { rounded as u16 };
    }
}

tiered! {
    /// Rounds to bf16, to nearest, ties to even.
    pub(super) fn round_bf16(x: &[f32], out: &mut [u16]) = round_bf16_body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::lanes::Tier;

    #[inline(always)]
    fn exp_all_body<V: Lanes>(x: &mut [f32]) {
        for eight in x.as_chunks_mut::<8>().0 {
            exp(V::load(eight)).store(eight);
        }
    }
    tiered! { fn exp_all(x: &mut [f32]) = exp_all_body }

    fn both(x: &[f32]) -> Vec<f32> {
        let (mut portable, mut fast) = (x.to_vec(), x.to_vec());
        exp_all(Tier::portable(), &mut portable);
        exp_all(Tier::detect(), &mut fast);
        for (i, (a, b)) in portable.iter().zip(&fast).enumerate() {
            assert!(
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                "exp({}): {a} {b}",
                x[i]
            );
        }
        fast
    }

    #[test]
    fn exp_is_within_two_ulp_and_equal_in_every_form() {
        // Every exponent and a spread of mantissas, then a dense walk over the whole range.
        let mut x: Vec<f32> =
            (0u32..=0x42AE_0000).step_by(8191).map(|b| -f32::from_bits(b)).collect();
        x.extend((0..400_000).map(|i| -87.0 * i as f32 / 400_000.0));
        x.truncate(x.len() / 8 * 8);
        let mut worst = 0.0f64;
        for (x, got) in x.iter().zip(both(&x)) {
            let exact = f64::from(*x).exp();
            let ulp = f64::from(f32::EPSILON) * 2f64.powi(exact.log2().floor() as i32);
            worst = worst.max((f64::from(got) - exact).abs() / ulp);
        }
        assert!(worst <= 2.0, "{worst} ulp");
    }

    #[test]
    fn exp_at_the_edges() {
        let inf = f32::INFINITY;
        let got = both(&[0.0, -0.0, -87.0, -87.1, -1e30, -inf, f32::NAN, -1e-40]);
        assert_eq!(got[..2], [1.0, 1.0]);
        assert!(got[2] > 1.6e-38 && got[2] < 1.7e-38);
        assert_eq!(got[3..6], [0.0, 0.0, 0.0]);
        assert!(got[6].is_nan());
        assert_eq!(got[7], 1.0);
    }

    #[test]
    fn row_arithmetic_has_equal_bits_in_every_form_and_odd_lengths() {
        for len in [1usize, 2, 6, 8, 10, 31, 64, 80, 577] {
            let wave = |step: f32| -> Vec<f32> {
                (0..len).map(|i| (i as f32 * step).sin() * 3.0 + 0.01).collect()
            };
            let (a, b) = (wave(0.7), wave(1.3));
            let run = |tier: Tier| {
                let mut gate = a.clone();
                swiglu(tier, &mut gate, &b, None);
                let mut norm = a.clone();
                rms_norm(tier, &mut norm, &b, 1e-5);
                let (mut sum, mut out) = (a.clone(), vec![0.0; len]);
                add_rms_norm(tier, &mut sum, Some(&b), &b, 1e-5, &mut out, None);
                let mut turned = [a.clone(), a.clone()];
                rotate(tier, &mut turned[0], &b[..len / 2], &b[len - len / 2..], Pairing::Half);
                rotate(
                    tier,
                    &mut turned[1],
                    &b[..len / 2],
                    &b[len - len / 2..],
                    Pairing::Interleaved,
                );
                let mut halves = vec![0u16; len];
                round_f16(tier, &a, &mut halves);
                // Of rank 2, from `len` inputs to as many outputs.
                let (down, up) = ([&a[..], &b].concat(), [&b[..], &a].concat());
                let mut changed = a.clone();
                add_low_rank(tier, &b, &down, &up, &mut changed);
                let bits = [gate, norm, sum, out, turned.concat(), changed].concat();
                (bits.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), halves)
            };
            assert_eq!(run(Tier::portable()), run(Tier::detect()), "length {len}");
        }
    }

    #[test]
    fn silu_and_norm_follow_their_formulas() {
        let x: Vec<f32> = (-40..40).map(|i| i as f32 * 0.5).collect();
        let mut gate = x.clone();
        swiglu(Tier::detect(), &mut gate, &vec![2.0; x.len()], None);
        for (x, got) in x.iter().zip(&gate) {
            let x = f64::from(*x);
            let exact = 2.0 * x / (1.0 + (-x).exp());
            assert!((f64::from(*got) - exact).abs() <= exact.abs() * 4e-7 + 1e-30, "silu({x})");
        }
        let mut norm = x.clone();
        rms_norm(Tier::detect(), &mut norm, &vec![1.5; x.len()], 1e-5);
        let mean = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / x.len() as f64;
        for (x, got) in x.iter().zip(&norm) {
            let exact = f64::from(*x) / (mean + 1e-5).sqrt() * 1.5;
            assert!((f64::from(*got) - exact).abs() <= exact.abs() * 4e-7);
        }
    }

    #[test]
    fn a_low_rank_change_follows_its_formula() {
        for (inputs, outputs, rank) in [(1, 1, 1), (7, 3, 2), (64, 40, 4), (33, 65, 16)] {
            let wave = |step: f32, len: usize| -> Vec<f32> {
                (0..len).map(|i| (i as f32 * step).sin()).collect()
            };
            let x = wave(0.9, inputs);
            let (down, up) = (wave(0.37, rank * inputs), wave(0.53, rank * outputs));
            let mut out = wave(1.1, outputs);
            let before = out.clone();
            add_low_rank(Tier::detect(), &x, &down, &up, &mut out);
            for o in 0..outputs {
                let exact: f64 = (0..rank)
                    .map(|j| {
                        let product = |i: usize| f64::from(down[j * inputs + i] * x[i]);
                        f64::from(up[j * outputs + o]) * (0..inputs).map(product).sum::<f64>()
                    })
                    .sum();
                let wanted = f64::from(before[o]) + exact;
                assert!((f64::from(out[o]) - wanted).abs() < 1e-4, "{inputs} {outputs} {rank}");
            }
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_seen_wherever_it_stands() {
        for tier in [Tier::portable(), Tier::detect()] {
            for len in [1usize, 8, 9, 23] {
                assert!(all_finite(tier, &vec![f32::MAX; len]));
                for at in 0..len {
                    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                        let mut x = vec![1.0; len];
                        x[at] = bad;
                        assert!(!all_finite(tier, &x));
                    }
                }
            }
        }
    }
}
