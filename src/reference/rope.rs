//! Rotary positions of the reference, from the published formulas in terms of wavelengths.

use crate::device::Pairing;
use crate::model::{ModelSpec, RopeScaling, Yarn};
use candle_core::{Result as CandleResult, Tensor};
use std::f64::consts::PI;

/// How fast each pair turns.
fn speeds(spec: &ModelSpec) -> Vec<f64> {
    let (base, width) = (spec.rope.base, spec.head_dim as f64);
    let divisor = |i: usize| spec.rope.divisors.as_ref().map_or(1.0, |all| f64::from(all[i]));
    let plain = |i: usize| 1.0 / (base.powf(2.0 * i as f64 / width) * divisor(i));
    let all = (0..spec.head_dim / 2).map(|i| (i, plain(i)));
    match spec.rope.scaling {
        RopeScaling::None => all.map(|(_, speed)| speed).collect(),
        RopeScaling::Linear { factor } => all.map(|(_, speed)| speed / factor).collect(),
        RopeScaling::Llama3 { factor, low, high, original_context } => {
            let old = original_context as f64;
            all.map(|(_, speed)| {
                let wavelength = 2.0 * PI / speed;
                if wavelength < old / high {
                    speed
                } else if wavelength > old / low {
                    speed / factor
                } else {
                    let smooth = (old / wavelength - low) / (high - low);
                    (1.0 - smooth) * speed / factor + smooth * speed
                }
            })
            .collect()
        }
        RopeScaling::Yarn(Yarn {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            truncate,
            ..
        }) => {
            let dimension = |turns: f64| {
                width * (original_context as f64 / (turns * 2.0 * PI)).ln() / (2.0 * base.ln())
            };
            let (mut low, mut high) = (dimension(beta_fast), dimension(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            let (low, mut high) = (low.max(0.0), high.min(width - 1.0));
            if low == high {
                high += 0.001;
            }
            all.map(|(i, speed)| {
                let interpolated = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                speed / factor * interpolated + speed * (1.0 - interpolated)
            })
            .collect()
        }
    }
}

/// Turns pair `i` of every head of `x [heads, n, head_dim]` at position `p` by `p * speed`:
/// `(a, b) → (a cos - b sin, b cos + a sin)`, cosines and sines times the attention scale.
pub(super) fn rotate(x: &Tensor, spec: &ModelSpec) -> CandleResult<Tensor> {
    let (heads, n, head_dim) = x.dims3()?;
    let half = head_dim / 2;
    let speeds = speeds(spec);
    let scale = match spec.rope.scaling {
        RopeScaling::Yarn(yarn) => yarn.attention,
        _ => 1.0,
    };
    let angles: Vec<f64> = (0..n * half).map(|i| (i / half) as f64 * speeds[i % half]).collect();
    let table = |f: fn(f64) -> f64| {
        let numbers: Vec<f32> = angles.iter().map(|&angle| (scale * f(angle)) as f32).collect();
        Tensor::from_vec(numbers, (n, half), x.device())
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    let turn = |a: &Tensor, b: &Tensor| -> CandleResult<(Tensor, Tensor)> {
        let left = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
        let right = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
        Ok((left, right))
    };
    match spec.rope.pairing {
        Pairing::Half => {
            let (a, b) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
            let (a, b) = turn(&a, &b)?;
            Tensor::cat(&[a, b], 2)
        }
        Pairing::Interleaved => {
            let pairs = x.reshape((heads, n, half, 2))?;
            let (a, b) = (pairs.narrow(3, 0, 1)?.squeeze(3)?, pairs.narrow(3, 1, 1)?.squeeze(3)?);
            let (a, b) = turn(&a, &b)?;
            Tensor::stack(&[a, b], 3)?.reshape((heads, n, head_dim))
        }
    }
}
