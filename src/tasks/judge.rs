//! Whether an answer to an item is right.

use super::ifeval::{self, Followed};
use super::words::{f1, normalised};
use super::{Gold, Item, choice, code};
use crate::answer::{Equality, Score, Scores, Verdict, grade};
use crate::program::sandbox::Sandbox;

/// What the grader said, and the rule that decided.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Judged {
    pub verdict: Verdict,
    pub rule: String,
    /// IFEval: loose prompts, strict and loose instructions. Words: F1.
    #[serde(skip_serializing_if = "Scores::is_empty")]
    pub scores: Scores,
    /// IFEval: each instruction by itself.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub followed: Option<Followed>,
}

impl Judged {
    pub(super) fn new(verdict: Verdict, rule: impl Into<String>) -> Self {
        Self { verdict, rule: rule.into(), scores: Scores::new(), followed: None }
    }
}

/// Why an answer could not be judged on this machine now.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error("programs are judged in the sandbox, and there is none here")]
    NoSandbox,
    #[error(
        "the data set's tests do not run in the sandbox's Python ({why}); `unsay setup` makes one that has \
         what they need"
    )]
    Module { why: String },
    #[error(transparent)]
    Sandbox(#[from] crate::program::sandbox::SandboxError),
}

/// Judges an answer: a value, an option, words, or for code a program, which is run in the sandbox.
pub async fn judge(
    item: &Item,
    answer: &str,
    sandbox: Option<&Sandbox>,
) -> Result<Judged, JudgeError> {
    Ok(match &item.gold {
        Gold::Values(values) => judge_values(answer, values),
        Gold::Choice { letter, options } => match choice::chosen(answer, options) {
            Some((named, rule)) if named == *letter => Judged::new(Verdict::Right, rule),
            Some((_, rule)) => Judged::new(Verdict::Wrong, rule),
            None => Judged::new(Verdict::Undecided, "no option named"),
        },
        Gold::Words(gold) => {
            let exact = normalised(answer) == normalised(gold);
            let verdict = if exact { Verdict::Right } else { Verdict::Wrong };
            let scores = [("F1".to_owned(), share(f1(answer, gold), 1))].into();
            Judged { scores, ..Judged::new(verdict, "exact match") }
        }
        Gold::Instructions(all) => {
            let followed = ifeval::check(all, answer);
            let count = |each: &[bool]| each.iter().filter(|follows| **follows).count();
            let (strict, loose) = (count(&followed.strict), count(&followed.loose));
            let right = strict == all.len();
            let verdict = if right { Verdict::Right } else { Verdict::Wrong };
            let rule = followed.shown();
            let loose_prompt = usize::from(loose == all.len());
            let scores = [
                ("loose prompts", loose_prompt, 1),
                ("strict instructions", strict, all.len()),
                ("loose instructions", loose, all.len()),
            ];
            let scores = scores.map(|(name, sum, of)| (name.to_owned(), share(sum as f64, of)));
            let (scores, followed) = (scores.into(), Some(followed));
            Judged { scores, followed, ..Judged::new(verdict, rule) }
        }
        Gold::Tests(tests) => {
            code::judge(tests, answer, sandbox.ok_or(JudgeError::NoSandbox)?).await?
        }
    })
}

fn share(sum: f64, of: usize) -> Score {
    Score { sum, of: of as f64 }
}

/// One value by `grade`; several in their order; words by words.
fn judge_values(answer: &str, values: &[String]) -> Judged {
    if let [gold] = values {
        let graded = grade(answer, gold);
        return match graded.equality {
            Equality::Equal => Judged::new(Verdict::Right, graded.rule.name()),
            Equality::Different => Judged::new(Verdict::Wrong, graded.rule.name()),
            Equality::Undecided if is_words(gold) && normalised(answer) == normalised(gold) => {
                Judged::new(Verdict::Right, "words")
            }
            Equality::Undecided => Judged::new(Verdict::Undecided, graded.rule.name()),
        };
    }
    let bare = answer.trim().trim_matches(['(', ')', '[', ']', '{', '}']);
    let parts: Vec<&str> = bare
        .split([';', ','])
        .flat_map(|part| part.split(" and "))
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    if parts.len() != values.len() {
        return Judged::new(Verdict::Undecided, "not as many values");
    }
    let each: Vec<Equality> =
        parts.iter().zip(values).map(|(one, gold)| grade(one, gold).equality).collect();
    let verdict = if each.iter().all(|equality| *equality == Equality::Equal) {
        Verdict::Right
    } else if each.contains(&Equality::Different) {
        Verdict::Wrong
    } else {
        Verdict::Undecided
    };
    Judged::new(verdict, "values in order")
}

/// Whether a gold answer is a name or a sentence: letters, no digits and no mathematics.
fn is_words(gold: &str) -> bool {
    gold.chars().filter(|c| c.is_alphabetic()).count() > 1
        && gold.chars().all(|c| c.is_alphabetic() || c.is_whitespace() || ".,'-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(answer: &str, values: &[&str]) -> Verdict {
        judge_values(answer, &values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>()).verdict
    }

    #[test]
    fn values_and_words() {
        use Verdict::{Right, Undecided, Wrong};
        assert_eq!(verdict("$2,125", &["2125"]), Right);
        assert_eq!(verdict("9", &["9.5"]), Wrong);
        assert_eq!(verdict("mrs hilt", &["Mrs. Hilt"]), Right);
        assert_eq!(verdict("Ted", &["Mrs. Hilt"]), Undecided);
        assert_eq!(verdict("11, 12 and 13", &["11", "12", "13"]), Right);
        assert_eq!(verdict("(12; 11)", &["11", "12"]), Wrong);
        assert_eq!(verdict("11", &["11", "12"]), Undecided);
        assert_eq!(verdict("xy", &["yx"]), Right);
        assert_eq!(verdict("a word", &["7"]), Undecided);
    }
}
