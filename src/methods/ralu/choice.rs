//! Which candidate is kept when no version of a unit passed.

use crate::answer::{Problem, tagged, without_thoughts};
use crate::llm::{Reply, StreamName};

use super::super::Context;
use super::Selection;
use super::verdict::{analysis_of, same_unit};

/// A text proposed for a unit, with what its proposal says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The Fix; for an OK below the confidence that is asked for, the unit itself.
    pub text: String,
    pub analysis: Option<String>,
    pub confidence: Option<f64>,
    pub perplexity: Option<f64>,
}

impl Candidate {
    pub fn new(text: String, reply: &Reply) -> Self {
        Self {
            text,
            analysis: analysis_of(&reply.text),
            confidence: reply.confidence(),
            perplexity: reply.perplexity(),
        }
    }
}

/// The candidate to keep and how it was chosen; of equal ones the later. `None` where the candidates
/// differ, and the scores that the selection goes by are missing or the model is to choose.
pub fn by_score(
    selection: Selection,
    candidates: &[Candidate],
    problem: &Problem,
    context: &Context,
    unit: usize,
) -> Option<(usize, String)> {
    let last = candidates.len().checked_sub(1)?;
    let best = |score: &dyn Fn(&Candidate) -> Option<f64>| {
        let scored = candidates.iter().enumerate().filter_map(|(n, c)| Some((n, score(c)?)));
        scored.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let chosen = match selection {
        Selection::Last => Some((last, "the last of the candidates".to_owned())),
        Selection::Random => {
            let role = format!("choice/{unit}/{}", context.seed);
            let (item, sample) = (problem.id.as_str(), context.sample);
            let draw = StreamName { item, role: &role, sample, attempt: 0 }.stream();
            let n = (draw % candidates.len() as u64) as usize;
            Some((n, "drawn from the candidates".to_owned()))
        }
        Selection::Confidence => best(&|c| c.confidence)
            .map(|(n, confidence)| (n, format!("chosen by confidence {confidence:.2}"))),
        Selection::Perplexity => best(&|c| c.perplexity.map(|p| -p))
            .map(|(n, negated)| (n, format!("chosen by perplexity {:.4}", -negated))),
        Selection::SelfRank => None,
    };
    let alike = || candidates.iter().all(|c| same_unit(&c.text, &candidates[last].text));
    chosen.or_else(|| alike().then(|| (last, "the only candidate".to_owned())))
}

/// The candidate that a reply repeats between `<Unit>` and `</Unit>`.
pub fn repeated(reply: &str, candidates: &[Candidate]) -> Result<usize, String> {
    let blocks = tagged(without_thoughts(reply), "Unit");
    let block = blocks.last().ok_or("there is nothing in <Unit>...</Unit>")?;
    candidates
        .iter()
        .rposition(|c| same_unit(&c.text, block))
        .ok_or_else(|| "what stands in <Unit>...</Unit> is none of the candidates".to_owned())
}
