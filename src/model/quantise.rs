//! Quantising at load: which type a matrix is held as, and what is told of it.

use crate::store::WeightType;

/// What plain matrices are quantised to when they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantise {
    Q8_0,
    Q4K,
    Q6K,
}

impl Quantise {
    /// The type that is asked for.
    pub fn kind(self) -> WeightType {
        match self {
            Self::Q8_0 => WeightType::Q8_0,
            Self::Q4K => WeightType::Q4_K,
            Self::Q6K => WeightType::Q6_K,
        }
    }

    /// The type that a matrix is held as: the one asked for where its rows are whole blocks of it, else
    /// Q8_0, else its own. Matrices in block formats keep theirs: quantised twice, they would lose
    /// twice.
    pub fn of(self, kind: WeightType, inputs: usize) -> WeightType {
        if kind.block_len() > 1 {
            return kind;
        }
        let fits = |kind: &WeightType| inputs.is_multiple_of(kind.block_len());
        [self.kind(), WeightType::Q8_0].into_iter().find(fits).unwrap_or(kind)
    }
}

/// How many matrices were quantised at load, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Quantised {
    /// None: nothing was to be quantised.
    pub asked: Option<Quantise>,
    /// Held in the type that was asked for.
    pub as_asked: usize,
    /// Held in Q8_0, since their rows are no whole blocks of the type that was asked for.
    pub as_q8_0: usize,
    /// Held in their own type, since their rows are no whole blocks of Q8_0 either.
    pub plain: usize,
    /// Were in a block format already, and stay so.
    pub were_quantised: usize,
}

impl Quantised {
    /// Counts a matrix.
    pub(super) fn count(&mut self, from: WeightType, to: WeightType) {
        let Some(asked) = self.asked else { return };
        let place = match to {
            _ if from.block_len() > 1 => &mut self.were_quantised,
            to if to == asked.kind() => &mut self.as_asked,
            WeightType::Q8_0 => &mut self.as_q8_0,
            _ => &mut self.plain,
        };
        *place += 1;
    }

    /// What a user is told; None where nothing was to be quantised.
    pub fn line(&self) -> Option<String> {
        let kind = self.asked?.kind();
        let mut parts = vec![format!("{} to {kind:?}", self.as_asked)];
        for (count, what) in [
            (
                self.as_q8_0,
                format!("to Q8_0 (rows that are no whole blocks of {})", kind.block_len()),
            ),
            (self.plain, "left as they are (rows that are no whole blocks of 32)".into()),
            (self.were_quantised, "left as they are (in a block format already)".into()),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        Some(format!("matrices quantised at load: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_a_format_cannot_hold_fall_back() {
        for (asked, kind, inputs, held) in [
            (Quantise::Q4K, WeightType::BF16, 512, WeightType::Q4_K),
            (Quantise::Q6K, WeightType::F32, 256, WeightType::Q6_K),
            (Quantise::Q4K, WeightType::F16, 576, WeightType::Q8_0),
            (Quantise::Q6K, WeightType::F16, 32, WeightType::Q8_0),
            (Quantise::Q8_0, WeightType::F32, 96, WeightType::Q8_0),
            (Quantise::Q4K, WeightType::F16, 40, WeightType::F16),
            (Quantise::Q8_0, WeightType::BF16, 33, WeightType::BF16),
            (Quantise::Q4K, WeightType::Q6_K, 256, WeightType::Q6_K),
        ] {
            assert_eq!(asked.of(kind, inputs), held, "{asked:?} {kind:?} {inputs}");
        }
    }

    #[test]
    fn what_fell_back_is_told() {
        let mut counts = Quantised { asked: Some(Quantise::Q4K), ..Quantised::default() };
        assert_eq!(counts.line().as_deref(), Some("matrices quantised at load: 0 to Q4_K"));
        counts.count(WeightType::F16, WeightType::Q4_K);
        counts.count(WeightType::F16, WeightType::Q8_0);
        counts.count(WeightType::F16, WeightType::F16);
        counts.count(WeightType::Q8_0, WeightType::Q8_0);
        let said = counts.line().unwrap();
        assert_eq!(
            said,
            "matrices quantised at load: 1 to Q4_K, 1 to Q8_0 (rows that are no whole blocks of 256), \
             1 left as they are (rows that are no whole blocks of 32), 1 left as they are (in a block \
             format already)"
        );
        assert_eq!(Quantised::default().line(), None);
    }
}
