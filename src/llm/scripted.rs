//! A model whose replies were written beforehand, for tests of methods. It keeps the exact messages
//! that each reply was asked for with, and counts words as tokens.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::history::{History, Message};
use super::{
    Abilities, Ask, Cost, Dialogue, DialogueMark, FinishReason, Llm, LlmError, Opening, Reply,
    ReplyToken, Role, TakenBack,
};

/// One reply of a script.
#[derive(Clone, Debug)]
pub struct ScriptedReply {
    text: String,
    logprobs: Option<Vec<f32>>,
    finish: FinishReason,
    failure: Option<LlmError>,
}

impl ScriptedReply {
    /// A whole reply without log-probabilities.
    pub fn new(text: impl Into<String>) -> Self {
        let finish = FinishReason::StopId;
        Self { text: text.into(), logprobs: None, finish, failure: None }
    }

    /// A call that fails.
    pub fn failing(error: LlmError) -> Self {
        Self { failure: Some(error), ..Self::new("") }
    }

    /// The same with as many tokens as log-probabilities are given.
    pub fn logprobs(mut self, logprobs: impl Into<Vec<f32>>) -> Self {
        self.logprobs = Some(logprobs.into());
        self
    }

    /// The same, ended for another reason than the model's own stop.
    pub fn finish(mut self, finish: FinishReason) -> Self {
        self.finish = finish;
        self
    }

    fn tokens(&self) -> Vec<ReplyToken> {
        let token = |text: String, logprob| ReplyToken { text, logprob, entropy: None };
        match &self.logprobs {
            None => self.text.split_inclusive(' ').map(|w| token(w.to_owned(), None)).collect(),
            Some(logprobs) => {
                let chars: Vec<char> = self.text.chars().collect();
                let cut = |n: usize| chars.len() * n / logprobs.len();
                let piece = |n| chars[cut(n)..cut(n + 1)].iter().collect();
                logprobs.iter().enumerate().map(|(n, &lp)| token(piece(n), Some(lp))).collect()
            }
        }
    }
}

impl<T: Into<String>> From<T> for ScriptedReply {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// What the model was shown when a reply was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// The dialogue's role, e.g. `judge`.
    pub dialogue: String,
    pub sample: u32,
    pub attempt: u32,
    /// The stream that an engine would have drawn from.
    pub stream: u64,
    pub messages: Vec<(Role, String)>,
    pub ask: Ask,
}

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<ScriptedReply>,
    heard: Vec<Heard>,
}

/// A model that says what its script says, in order, over all its dialogues.
#[derive(Clone, Debug)]
pub struct Scripted {
    name: String,
    context_length: usize,
    script: Arc<Mutex<Script>>,
}

impl Scripted {
    /// A model with these replies and an ample context.
    pub fn new<R: Into<ScriptedReply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let replies = replies.into_iter().map(Into::into).collect();
        Self {
            name: "scripted".to_owned(),
            context_length: 1 << 20,
            script: Arc::new(Mutex::new(Script { replies, heard: Vec::new() })),
        }
    }

    /// The same with room for so many words in a dialogue.
    pub fn context_length(mut self, words: usize) -> Self {
        self.context_length = words;
        self
    }

    /// What was shown at each reply so far, in order.
    pub fn heard(&self) -> Vec<Heard> {
        lock(&self.script).heard.clone()
    }

    /// How many replies of the script were not asked for.
    pub fn left(&self) -> usize {
        lock(&self.script).replies.len()
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Llm for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            logprobs: true,
            score: false,
            keeps_cache: true,
            context_length: self.context_length,
        }
    }

    async fn open(&self, opening: Opening) -> Result<Box<dyn Dialogue>, LlmError> {
        let history = History::new(opening);
        Ok(Box::new(ScriptedDialogue { model: self.clone(), history, live: Vec::new() }))
    }
}

struct ScriptedDialogue {
    model: Scripted,
    history: History,
    /// The messages that a real model would hold computed.
    live: Vec<(Role, String)>,
}

impl ScriptedDialogue {
    /// How many of the live messages the dialogue still begins with.
    fn kept(&self) -> usize {
        let same =
            |(live, said): (&(Role, String), &Message)| live.0 == said.role && live.1 == said.text;
        self.live.iter().zip(self.history.messages()).take_while(|pair| same(*pair)).count()
    }

    fn next_reply(&self) -> Result<ScriptedReply, LlmError> {
        let mut script = lock(&self.model.script);
        let turn = script.heard.len() + 1;
        let next = script.replies.pop_front().ok_or(LlmError::ScriptOver { turn })?;
        match next.failure {
            Some(failure) => Err(failure),
            None => Ok(next),
        }
    }
}

#[async_trait]
impl Dialogue for ScriptedDialogue {
    fn say(&mut self, role: Role, text: &str) {
        self.history.say(role, text, &[]);
    }

    fn say_reply(&mut self, reply: &Reply) {
        self.history.say(Role::Assistant, &reply.text, &reply.ids);
    }

    async fn reply(&mut self, ask: &Ask) -> Result<Reply, LlmError> {
        let messages = self.history.texts();
        let prompt = words(&messages);
        if prompt >= self.model.context_length {
            let model = self.model.name.clone();
            let limit = self.model.context_length;
            return Err(LlmError::ContextFull { model, needed: prompt + 1, limit });
        }
        let next = self.next_reply();
        lock(&self.model.script).heard.push(Heard {
            dialogue: self.history.opening().role.clone(),
            sample: self.history.opening().sample,
            attempt: self.history.attempt(),
            stream: self.history.stream(),
            messages: messages.clone(),
            ask: ask.clone(),
        });
        let next = next?;
        let cached = words(&self.live[..self.kept()]) as u64;
        let tokens = next.tokens();
        let cost = Cost {
            prompt_tokens: prompt as u64,
            cached_tokens: cached,
            computed_tokens: prompt as u64 - cached,
            generated_tokens: tokens.len() as u64,
            ..Cost::default()
        };
        let (text, thought, ids) = (next.text, None, Vec::new());
        let reply = Reply { text, thought, tokens, ids, finish: next.finish, cost };
        self.history.piece(&reply.text);
        self.history.heard(&reply, Vec::new());
        self.live = self.history.texts();
        Ok(reply)
    }

    fn mark(&self) -> DialogueMark {
        self.history.mark()
    }

    async fn rewind(&mut self, mark: DialogueMark) -> Result<TakenBack, LlmError> {
        self.history.holds(mark)?;
        let before = words(&self.live);
        self.live.truncate(mark.0);
        Ok(self.history.rewind(mark, (before - words(&self.live)) as u64))
    }

    async fn fork(&self, sample: u32) -> Result<Box<dyn Dialogue>, LlmError> {
        let history = self.history.fork(sample);
        Ok(Box::new(Self { model: self.model.clone(), history, live: self.live.clone() }))
    }

    async fn score(&mut self, _: &str) -> Result<Vec<ReplyToken>, LlmError> {
        Err(LlmError::NotAble { model: self.model.name.clone(), what: "score a given text" })
    }

    fn messages(&self) -> Vec<(Role, String)> {
        self.history.texts()
    }

    fn cost(&self) -> Cost {
        self.history.cost()
    }
}

fn words(messages: &[(Role, String)]) -> usize {
    messages.iter().map(|(_, text)| text.split_whitespace().count()).sum()
}
