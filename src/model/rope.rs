//! Rotary positions as options: how fast each pair of a head turns, and how its scaled kinds change
//! that.

use crate::device::Pairing;
use std::f64::consts::TAU;

/// Rotary positions of a decoder (Su et al. 2021).
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RopeOptions {
    pub base: f64,
    pub pairing: Pairing,
    pub scaling: RopeScaling,
    /// What each pair's speed is divided by before it is scaled, `[head_dim / 2]`: GGUF files of
    /// Llama 3.1 and later hold their scaling as these numbers.
    pub divisors: Option<Vec<f32>>,
}

/// How speeds are changed so that a model reaches farther than it was trained for. Kinds whose
/// speeds change with the length of the text (dynamic, longrope) are refused by name when a
/// specification is read.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum RopeScaling {
    None,
    /// Every speed divided by `factor`.
    Linear {
        factor: f64,
    },
    /// Pairs that turn slowly are divided by `factor`, fast ones are left, those between are mixed:
    /// by how often they turn within `original_context` positions.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original_context: usize,
    },
    /// YaRN with a fixed factor (Peng et al. 2023).
    Yarn(Yarn),
}

/// The options of YaRN.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Yarn {
    pub factor: f64,
    /// Positions that the model was trained for before it was scaled.
    pub original_context: usize,
    /// Pairs that turn more often than this within the original context keep their speed.
    pub beta_fast: f64,
    /// Pairs that turn less often than this are divided by `factor`.
    pub beta_slow: f64,
    /// The ends of the ramp between the two are rounded to whole pairs.
    pub truncate: bool,
    /// Cosines and sines are multiplied by it, so that scores grow by its square.
    pub attention: f64,
}

impl Yarn {
    /// The attention scale that YaRN gives a factor, `0.1 m ln(factor) + 1` (eq. 22 and its code, where
    /// `m` is 1 unless a model names it).
    pub(super) fn attention_scale(factor: f64, m: f64) -> f64 {
        if factor > 1.0 { 0.1 * m * libm::log(factor) + 1.0 } else { 1.0 }
    }

    /// The pair, counted from the fastest, that turns `turns` times within the original context.
    fn pair_that_turns(&self, turns: f64, base: f64, head_dim: usize) -> f64 {
        let wavelength = self.original_context as f64 / (turns * TAU);
        head_dim as f64 * libm::log(wavelength) / (2.0 * libm::log(base))
    }

    /// How far pair `i` is on the way from keeping its speed (0) to the divided one (1).
    fn ramp(&self, base: f64, head_dim: usize) -> impl Fn(usize) -> f64 {
        let mut from = self.pair_that_turns(self.beta_fast, base, head_dim);
        let mut to = self.pair_that_turns(self.beta_slow, base, head_dim);
        if self.truncate {
            (from, to) = (libm::floor(from), libm::ceil(to));
        }
        from = from.max(0.0);
        to = to.min(head_dim as f64 - 1.0);
        let length = if from == to { 0.001 } else { to - from };
        move |i| ((i as f64 - from) / length).clamp(0.0, 1.0)
    }
}

impl RopeOptions {
    /// Radians by which each pair of a head turns a position, `[head_dim / 2]`.
    pub fn speeds(&self, head_dim: usize) -> Vec<f64> {
        let plain = |i: usize| {
            let speed = libm::pow(self.base, -2.0 * i as f64 / head_dim as f64);
            match self.divisors.as_ref().and_then(|divisors| divisors.get(i)) {
                Some(&divisor) => speed / f64::from(divisor),
                None => speed,
            }
        };
        let pairs = (0..head_dim / 2).map(|i| (i, plain(i)));
        match self.scaling {
            RopeScaling::None => pairs.map(|(_, speed)| speed).collect(),
            RopeScaling::Linear { factor } => pairs.map(|(_, speed)| speed / factor).collect(),
            RopeScaling::Llama3 { factor, low, high, original_context } => {
                let scaled = |(_, speed): (usize, f64)| {
                    let turns = original_context as f64 * speed / TAU;
                    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    speed * (kept + (1.0 - kept) / factor)
                };
                pairs.map(scaled).collect()
            }
            RopeScaling::Yarn(yarn) => {
                let ramp = yarn.ramp(self.base, head_dim);
                let scaled = |(i, speed): (usize, f64)| {
                    let divided = ramp(i);
                    speed * (1.0 - divided + divided / yarn.factor)
                };
                pairs.map(scaled).collect()
            }
        }
    }

    /// What cosines and sines are multiplied by.
    pub fn attention(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn(yarn) => yarn.attention,
            _ => 1.0,
        }
    }

    /// Positions that the scaling reaches to, where it says so.
    pub(super) fn reach(&self) -> usize {
        match self.scaling {
            RopeScaling::Yarn(Yarn { factor, original_context, .. }) => {
                (original_context as f64 * factor) as usize
            }
            _ => 0,
        }
    }

    /// Why these options cannot be, if they cannot.
    pub(super) fn contradiction(&self, head_dim: usize) -> Option<String> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !positive(self.base) {
            return Some(format!("the base of RoPE is {}; it must be positive", self.base));
        }
        let (factor, original) = match self.scaling {
            RopeScaling::None => (1.0, 1),
            RopeScaling::Linear { factor } => (factor, 1),
            RopeScaling::Llama3 { factor, low, high, original_context } => {
                if !(positive(low) && high.is_finite() && high > low) {
                    return Some(format!(
                        "RoPE of the kind llama3 goes from {low} to {high} turns; the second must be the greater one"
                    ));
                }
                (factor, original_context)
            }
            RopeScaling::Yarn(yarn) => {
                let Yarn { beta_fast, beta_slow, attention, .. } = yarn;
                if !(positive(beta_slow) && beta_fast.is_finite() && beta_fast >= beta_slow) {
                    return Some(format!(
                        "YaRN goes from {beta_fast} to {beta_slow} turns; the first must be the greater one"
                    ));
                }
                if !positive(attention) || self.base <= 1.0 {
                    return Some(format!(
                        "YaRN has the attention scale {attention} and the base {}; they must be above 0 and 1",
                        self.base
                    ));
                }
                (yarn.factor, yarn.original_context)
            }
        };
        if !(factor.is_finite() && factor >= 1.0) {
            return Some(format!("the factor of scaled RoPE is {factor}; it must be at least 1"));
        }
        if original == 0 {
            return Some("the context that RoPE was scaled from is 0 positions".into());
        }
        let bad = self.speeds(head_dim).iter().position(|speed| !speed.is_finite());
        bad.map(|pair| format!("pair {pair} of a head has no finite speed"))
    }
}
