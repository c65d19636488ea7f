//! Stage 2: the units are judged one by one, and corrected in place.

use minijinja::context;

use crate::answer::Kind;
use crate::llm::{DialogueMark, Event, Reply, Role, Verdict};

use super::super::Failure;
use super::super::solving::Solving;
use super::super::turn::Talk;
use super::choice::{self, Candidate};
use super::verdict::{Judgement, analysis_of, read_verdict};
use super::{RaluOptions, UnitKind, VERDICT_TOKENS};

/// A unit as the verified dialogue holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub text: String,
    /// What the judge said of it, after `Analysis:`.
    pub analysis: Option<String>,
}

/// Opens the judge's dialogue: its instructions, and what the units are judged against.
pub async fn open(solving: &Solving<'_>, kind: UnitKind) -> Result<Talk, Failure> {
    solving.stage("align");
    let prompts = &solving.context.prompts;
    let question = solving.problem.question.as_str();
    let in_words = kind == UnitKind::NlStep;
    let (system, against) = match solving.problem.kind {
        Kind::Math => {
            let against = prompts.render("ralu-judge-math-question", context! { question })?;
            (
                if in_words { "ralu-judge-steps-math-system" } else { "ralu-judge-math-system" },
                against,
            )
        }
        Kind::Code => {
            let question = short_specification(question, solving.problem.entry_point.as_deref());
            let against = prompts.render("ralu-judge-code-question", context! { question })?;
            (
                if in_words { "ralu-judge-steps-code-system" } else { "ralu-judge-code-system" },
                against,
            )
        }
        Kind::Text => return Err(Failure::Unfit),
    };
    let mut talk = solving.open("judge", Some(prompts.render(system, ())?)).await?;
    talk.say(Role::User, &against);
    Ok(talk)
}

/// Settles every unit, in order. Afterwards the dialogue holds each unit in its final text, with the
/// reply that accepted it. Where none did, no reply follows the unit: whatever stood there would be
/// no verdict, and weak models copy it in the turns to come.
pub async fn units(
    solving: &mut Solving<'_>,
    talk: &mut Talk,
    options: &RaluOptions,
    units: &[String],
) -> Result<Vec<Settled>, Failure> {
    let mut settled = Vec::new();
    for (n, unit) in units.iter().enumerate() {
        let mut judging = Judging { solving, talk, options, index: n + 1 };
        settled.push(judging.settle(unit).await?);
    }
    Ok(settled)
}

/// The judging of one unit.
struct Judging<'j, 's> {
    solving: &'j mut Solving<'s>,
    talk: &'j mut Talk,
    options: &'j RaluOptions,
    /// From 1.
    index: usize,
}

impl Judging<'_, '_> {
    async fn settle(&mut self, unit: &str) -> Result<Settled, Failure> {
        let mark = self.talk.mark();
        let mut text = unit.to_owned();
        let mut candidates: Vec<Candidate> = Vec::new();
        for number in 1..=self.options.max_candidates {
            self.say(&text, true)?;
            let Some((judgement, reply)) = self.judge(&text, number as usize).await? else {
                self.talk.rewind(mark).await?;
                break;
            };
            if let (1, Judgement::Wrong { .. }, Some(judged)) =
                (number, &judgement, &mut self.solving.judged)
            {
                judged.wrong_units += 1;
            }
            let candidate = match judgement {
                Judgement::Right if self.sure(&reply) => {
                    let analysis = analysis_of(&reply.text);
                    return Ok(self.settled(text, analysis, "accepted"));
                }
                Judgement::Right => Candidate::new(text.clone(), &reply),
                Judgement::Wrong { fix } => Candidate::new(fix, &reply),
            };
            self.talk.rewind(mark).await?;
            let same = candidate.text == text;
            text.clone_from(&candidate.text);
            candidates.push(candidate);
            // At temperature 0 the same unit would be judged in the same words.
            if same && self.solving.ask(0).temperature == 0.0 {
                break;
            }
        }
        self.keep_without_pass(unit, candidates, mark).await
    }

    /// One judgement; `None` when no reply kept the form, also after the retries.
    async fn judge(
        &mut self,
        unit: &str,
        candidate: usize,
    ) -> Result<Option<(Judgement, Reply)>, Failure> {
        let accept = self.options.accept;
        let read = |reply: &Reply| read_verdict(&reply.text, unit, accept);
        let heard = self.talk.ask(&self.solving.ask(VERDICT_TOKENS), read).await;
        let (verdict, confidence, fix) = match &heard {
            Ok((Judgement::Right, reply)) => (Verdict::Ok, reply.confidence(), None),
            Ok((Judgement::Wrong { fix }, reply)) => {
                (Verdict::Wrong, reply.confidence(), Some(fix.clone()))
            }
            Err(Failure::Format { .. }) => (Verdict::Unparsed, None, None),
            Err(other) => return Err(other.clone()),
        };
        self.solving.emit(Event::Judged {
            unit: self.index,
            candidate,
            verdict,
            confidence,
            text: unit.to_owned(),
            fix,
        });
        self.solving.rounds += u32::from(heard.is_ok());
        Ok(heard.ok())
    }

    /// Whether an OK is confident enough to pass. A reply without log-probabilities is.
    fn sure(&self, reply: &Reply) -> bool {
        match (self.options.min_confidence, reply.confidence()) {
            (Some(least), Some(confidence)) => confidence > least,
            _ => true,
        }
    }

    /// No reply accepted the unit. The best candidate's text is kept, never the rejected unit; where
    /// not even a correction could be read, the unit stays as the program has it, and is marked so.
    async fn keep_without_pass(
        &mut self,
        unit: &str,
        mut candidates: Vec<Candidate>,
        mark: DialogueMark,
    ) -> Result<Settled, Failure> {
        if candidates.is_empty() {
            self.say(unit, false)?;
            return Ok(self.settled(unit.to_owned(), None, "not judged: no verdict could be read"));
        }
        let (chosen, how) = match choice::by_score(
            self.options.select,
            &candidates,
            self.solving.problem,
            self.solving.context,
            self.index,
        ) {
            Some(chosen) => chosen,
            None => {
                let chosen = self.ask_for_the_best(&candidates).await?;
                self.talk.rewind(mark).await?;
                chosen
            }
        };
        let Candidate { text, analysis, .. } = candidates.swap_remove(chosen);
        self.say(&text, false)?;
        Ok(self.settled(text, analysis, &how))
    }

    /// Without log-probabilities the model is asked; it must repeat a candidate word for word. If it
    /// does not, the last one stays.
    async fn ask_for_the_best(
        &mut self,
        candidates: &[Candidate],
    ) -> Result<(usize, String), Failure> {
        let texts: Vec<String> = candidates.iter().map(|c| c.text.clone()).collect();
        let shown = context! { index => self.index, candidates => texts };
        self.talk.say_prompt("ralu-judge-choose", shown)?;
        let read = |reply: &Reply| choice::repeated(&reply.text, candidates);
        match self.talk.ask(&self.solving.ask(VERDICT_TOKENS), read).await {
            Ok((chosen, _)) => Ok((chosen, "chosen by the model".to_owned())),
            Err(Failure::Format { .. }) => {
                Ok((candidates.len() - 1, "the last: no choice could be read".to_owned()))
            }
            Err(other) => Err(other),
        }
    }

    /// Says the unit: to be judged, or as one that is kept.
    fn say(&mut self, text: &str, asked: bool) -> Result<(), Failure> {
        let unit = context! { index => self.index, text, asked };
        self.talk.say_prompt("ralu-judge-unit", unit)
    }

    fn settled(&self, text: String, analysis: Option<String>, how: &str) -> Settled {
        let (unit, how) = (self.index, how.to_owned());
        self.solving.emit(Event::Settled { unit, text: text.clone(), how });
        Settled { text, analysis }
    }
}

/// A specification as the judge sees it: for a function stub its signature and the text of its
/// docstring; else the text without the phrase that leads in.
fn short_specification(question: &str, entry_point: Option<&str>) -> String {
    if let Some(name) = entry_point
        && let Some(short) = from_stub(question, name)
    {
        return short;
    }
    let text = question.trim().trim_matches('"').trim();
    const LEADS: [&str; 6] = [
        "write a python function to ",
        "write a function to ",
        "write a python function that ",
        "write a function that ",
        "write a python program to ",
        "write a program to ",
    ];
    let lower = text.to_ascii_lowercase();
    match LEADS.iter().find(|lead| lower.starts_with(**lead)) {
        Some(lead) => {
            let mut rest = text[lead.len()..].chars();
            rest.next().map_or_else(String::new, |c| c.to_uppercase().chain(rest).collect())
        }
        None => text.to_owned(),
    }
}

/// `def name(…): """text"""` as its signature and its text; `None` where there is no such stub.
fn from_stub(question: &str, name: &str) -> Option<String> {
    let start = question.rfind(&format!("def {name}("))?;
    let stub = &question[start..];
    let quotes = [stub.find("\"\"\""), stub.find("'''")].into_iter().flatten().min()?;
    let signature = stub[..quotes].trim_end().strip_suffix(':')?;
    let fence = &stub[quotes..quotes + 3];
    let body = &stub[quotes + 3..];
    let body = &body[..body.find(fence)?];
    let lines: Vec<&str> = body.lines().map(str::trim).collect();
    Some(format!("{}\n\n{}", signature.trim(), lines.join("\n").trim()))
}

#[cfg(test)]
mod tests {
    use super::short_specification;

    #[test]
    fn a_stub_is_shortened_to_its_signature_and_text() {
        let stub = "import math\n\ndef area(r: float) -> float:\n    \"\"\" Area of a disc.\n    \
                    >>> area(0)\n    0.0\n    \"\"\"\n";
        let short = "def area(r: float) -> float\n\nArea of a disc.\n>>> area(0)\n0.0";
        assert_eq!(short_specification(stub, Some("area")), short);
    }

    #[test]
    fn prose_loses_its_lead() {
        let text = "\"\"\"\nWrite a function to reverse a list.\n\"\"\"";
        assert_eq!(short_specification(text, Some("rev")), "Reverse a list.");
        assert_eq!(short_specification("Sort it.", None), "Sort it.");
        let stub = "def f(x):\n    return x";
        assert_eq!(short_specification(stub, Some("f")), stub);
    }
}
