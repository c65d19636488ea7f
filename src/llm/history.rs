//! The messages of one dialogue: said, heard and taken back, with the events that tell of it. What
//! every model behind `Llm` shares.

use super::{
    Cost, DialogueMark, Event, LlmError, Opening, Reply, Role, StreamName, TakenBack, TokenId,
};

/// One message. `ids` are what the model generated; empty where the text is yet to be encoded.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub role: Role,
    pub text: String,
    pub ids: Vec<TokenId>,
    /// What stood before it since its turn was opened, where the model generated it here.
    pub lead: Vec<TokenId>,
}

/// A dialogue's messages, its place among the streams, and what it has cost.
#[derive(Clone)]
pub(super) struct History {
    opening: Opening,
    messages: Vec<Message>,
    attempt: u32,
    cost: Cost,
}

impl History {
    pub fn new(mut opening: Opening) -> Self {
        let system = opening.system.take();
        let mut history = Self { opening, messages: Vec::new(), attempt: 0, cost: Cost::default() };
        if let Some(system) = system {
            history.say(Role::System, &system, &[]);
        }
        history
    }

    /// A second history with the same past, as another sample; it has cost nothing yet.
    pub fn fork(&self, sample: u32) -> Self {
        let opening = Opening { sample, ..self.opening.clone() };
        Self {
            opening,
            messages: self.messages.clone(),
            attempt: self.attempt,
            cost: Cost::default(),
        }
    }

    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub fn texts(&self) -> Vec<(Role, String)> {
        self.messages.iter().map(|m| (m.role, m.text.clone())).collect()
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The stream of the next reply.
    pub fn stream(&self) -> u64 {
        let Opening { item, role, sample, .. } = &self.opening;
        StreamName { item, role, sample: *sample, attempt: self.attempt }.stream()
    }

    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// A cost that no reply brought, e.g. of a score or of a call that failed.
    pub fn charge(&mut self, cost: Cost) {
        self.cost += cost;
    }

    pub fn say(&mut self, role: Role, text: &str, ids: &[TokenId]) {
        let (text_owned, ids, lead) = (text.to_owned(), ids.to_vec(), Vec::new());
        self.messages.push(Message { role, text: text_owned, ids, lead });
        self.emit(&Event::Said { dialogue: self.label(), role, text: text.to_owned() });
    }

    pub fn piece(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.emit(&Event::Piece { dialogue: self.label(), text: text.to_owned() });
    }

    /// A reply becomes the last message, and its cost the dialogue's; `lead` stood before it.
    pub fn heard(&mut self, reply: &Reply, lead: Vec<TokenId>) {
        self.cost += reply.cost;
        self.messages.push(Message {
            role: Role::Assistant,
            text: reply.text.clone(),
            ids: reply.ids.clone(),
            lead,
        });
        self.emit(&Event::Replied {
            dialogue: self.label(),
            text: reply.text.clone(),
            thought: reply.thought.as_ref().map(|thought| thought.text.clone()),
            finish: reply.finish.clone(),
            confidence: reply.confidence(),
            cost: reply.cost,
        });
    }

    pub fn mark(&self) -> DialogueMark {
        DialogueMark(self.messages.len())
    }

    /// Whether a mark still lies within the dialogue.
    pub fn holds(&self, mark: DialogueMark) -> Result<(), LlmError> {
        if mark.0 <= self.messages.len() { Ok(()) } else { Err(LlmError::StaleMark) }
    }

    /// Takes back the messages after a mark; `tokens` of the live sequence went with them.
    pub fn rewind(&mut self, mark: DialogueMark, tokens: u64) -> TakenBack {
        let after = self.messages.split_off(mark.0.min(self.messages.len()));
        let messages: Vec<_> = after.into_iter().map(|m| (m.role, m.text)).collect();
        self.attempt = self.attempt.saturating_add(1);
        self.emit(&Event::Rewound { dialogue: self.label(), messages: messages.clone(), tokens });
        TakenBack { messages, tokens }
    }

    /// The dialogue's name in events: its role, and its sample where there are several.
    fn label(&self) -> String {
        match self.opening.sample {
            0 => self.opening.role.clone(),
            sample => format!("{}#{sample}", self.opening.role),
        }
    }

    fn emit(&self, event: &Event) {
        self.opening.sink.event(event);
    }
}
