//! The solving of one problem: its settings, its dialogues, its cost, and how it ends.

use std::time::Instant;

use crate::answer::{Code, Problem, Rule, extract, read_code};
use crate::llm::{Ask, Cost, Event, FinishReason, Opening, Reply, Role};

use super::turn::Talk;
use super::{Context, Failure, Judged, Outcome, Status};

/// One problem as it is being solved. Every dialogue that is opened here must be closed here, so that
/// the cost holds failed calls too.
pub(super) struct Solving<'a> {
    pub problem: &'a Problem,
    pub context: &'a Context,
    pub program: Option<String>,
    pub rounds: u32,
    pub judged: Option<Judged>,
    method: String,
    format_failures: u32,
    cost: Cost,
    begun: Instant,
}

impl<'a> Solving<'a> {
    pub fn begin(method: String, problem: &'a Problem, context: &'a Context) -> Self {
        context.sink.event(&Event::Began {
            item: problem.id.clone(),
            method: method.clone(),
            model: context.llm.name().to_owned(),
            question: problem.question.clone(),
        });
        Self {
            problem,
            context,
            program: None,
            rounds: 0,
            judged: None,
            method,
            format_failures: 0,
            cost: Cost::default(),
            begun: Instant::now(),
        }
    }

    pub fn emit(&self, event: Event) {
        self.context.sink.event(&event);
    }

    pub fn stage(&self, name: &str) {
        self.emit(Event::Stage { name: name.to_owned() });
    }

    /// How replies are drawn: temperature 0.7 and frequency penalty 0.3 (the setting of RaLU's
    /// tables), unless the user fixed something else.
    pub fn ask(&self, max_tokens: usize) -> Ask {
        Ask {
            temperature: self.context.temperature.unwrap_or(0.7),
            frequency_penalty: 0.3,
            max_tokens: self.context.max_tokens.unwrap_or(max_tokens),
            ..Ask::default()
        }
    }

    /// Opens a dialogue for one part of the method.
    pub async fn open(&self, role: &str, system: Option<String>) -> Result<Talk, Failure> {
        let context = self.context;
        let opening = Opening {
            system,
            method: self.method.clone(),
            item: self.problem.id.clone(),
            role: role.to_owned(),
            sample: context.sample,
            seed: context.seed,
            sink: context.sink.clone(),
        };
        Ok(Talk {
            dialogue: context.llm.open(opening).await?,
            label: role.to_owned(),
            prompts: context.prompts.clone(),
            sink: context.sink.clone(),
            context_length: context.llm.abilities().context_length,
            format_failures: 0,
        })
    }

    /// Books what a dialogue has cost.
    pub fn close(&mut self, talk: Talk) {
        self.cost += talk.dialogue.cost();
        self.format_failures += talk.format_failures;
    }

    /// A method that is one question and one reply: asks, and reads the reply.
    pub async fn one_turn<T>(
        &mut self,
        role: &str,
        question: &str,
        max_tokens: usize,
        read: impl Fn(&Reply) -> Result<T, String> + Send + Sync,
    ) -> Result<T, Failure> {
        let mut talk = self.open(role, None).await?;
        talk.say(Role::User, question);
        let heard = talk.ask(&self.ask(max_tokens), read).await;
        self.close(talk);
        Ok(heard?.0)
    }

    pub fn end(self, result: Result<String, Failure>) -> Outcome {
        let (cost, seconds) = (self.cost, self.begun.elapsed().as_secs_f64());
        let status = match result {
            Ok(answer) => {
                self.emit(Event::Answered { answer: answer.clone(), cost, seconds });
                Status::Answered { answer }
            }
            Err(why) => {
                self.emit(Event::Failed { why: why.to_string(), cost, seconds });
                Status::Failed { why }
            }
        };
        Outcome {
            status,
            program: self.program,
            rounds: self.rounds,
            judged: self.judged,
            format_failures: self.format_failures,
            cost,
        }
    }
}

/// The answer that a reply states by one of `rules`; else what is missing. A reply that was cut off
/// states only what is closed: its last number may be half of one, or the middle of a sum.
pub(super) fn answer_of(reply: &Reply, rules: &[Rule]) -> Result<String, String> {
    let cut = reply.finish == FinishReason::MaxTokens;
    let rules: Vec<Rule> = rules.iter().copied().filter(|r| !cut || r.is_closed()).collect();
    match extract(&reply.text, &rules) {
        Some(found) => Ok(found.text),
        None if cut => Err("the reply was cut off before its answer; give it sooner".to_owned()),
        None if rules.contains(&Rule::LastNumber) => Err("it gives no answer".to_owned()),
        None => Err("there is no answer in <Answer>...</Answer>".to_owned()),
    }
}

/// The program of a reply, with the entry point that is asked for; else what is missing.
pub(super) fn program_of(reply: &Reply, entry_point: Option<&str>) -> Result<Code, String> {
    let code = read_code(&reply.text)
        .ok_or_else(|| "there is no program in <code>...</code>".to_owned())?;
    if !code.closed && reply.finish == FinishReason::MaxTokens {
        return Err("the program was cut off before its end; write a shorter one".to_owned());
    }
    match entry_point {
        Some(name) if !crate::answer::defines(&code.source, name) => {
            Err(format!("the program does not define `{name}`"))
        }
        _ => Ok(code),
    }
}
