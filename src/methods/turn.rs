//! One turn of a method: a reply is asked for and read, and asked for again when it does not keep
//! the form.

use std::sync::Arc;

use minijinja::{Value, context};

use crate::llm::{
    Ask, Dialogue, DialogueMark, Event, FinishReason, LlmError, Prompts, Reply, Role, Sink,
};

use super::Failure;

/// Format retries of one turn (R of the specification). A retry never counts as a round.
pub const FORMAT_RETRIES: u32 = 3;

/// A live dialogue, and what is needed to ask within it.
pub(super) struct Talk {
    pub dialogue: Box<dyn Dialogue>,
    pub label: String,
    pub prompts: Arc<Prompts>,
    pub sink: Arc<dyn Sink>,
    pub context_length: usize,
    pub format_failures: u32,
}

impl Talk {
    pub fn say(&mut self, role: Role, text: &str) {
        self.dialogue.say(role, text);
    }

    /// Says a template, filled in, as the user.
    pub fn say_prompt(&mut self, name: &str, context: impl Into<Value>) -> Result<(), Failure> {
        let text = self.prompts.render(name, context)?;
        self.dialogue.say(Role::User, &text);
        Ok(())
    }

    pub fn mark(&self) -> DialogueMark {
        self.dialogue.mark()
    }

    pub async fn rewind(&mut self, mark: DialogueMark) -> Result<(), Failure> {
        self.dialogue.rewind(mark).await?;
        Ok(())
    }

    /// The first reply that `read` can read, which becomes the last message. `read` answers with what
    /// was missing where it cannot.
    ///
    /// A reply that cannot be read is taken back and drawn again above temperature 0. At temperature
    /// 0 the same prompt would bring the same reply, so it stays for the moment and a turn says what
    /// was missing. Either way the dialogue ends as if the good reply had been the first; after the
    /// last retry it ends before the reply, and the failure is typed.
    pub async fn ask<T>(
        &mut self,
        ask: &Ask,
        read: impl Fn(&Reply) -> Result<T, String> + Send + Sync,
    ) -> Result<(T, Reply), Failure> {
        let before = self.dialogue.mark();
        let mut retries = 0;
        loop {
            let reply = self.dialogue.reply(ask).await?;
            self.whole(&reply)?;
            let what = match read(&reply) {
                Ok(value) => {
                    if ask.temperature == 0.0 && retries > 0 {
                        self.rewind(before).await?;
                        self.dialogue.say_reply(&reply);
                    }
                    return Ok((value, reply));
                }
                Err(what) => what,
            };
            self.format_failures += 1;
            self.sink.event(&Event::FormatFailure {
                dialogue: self.label.clone(),
                what: what.clone(),
                retry: retries,
                limit: FORMAT_RETRIES,
            });
            if retries == FORMAT_RETRIES {
                self.rewind(before).await?;
                return Err(Failure::Format { what, retries });
            }
            retries += 1;
            if ask.temperature == 0.0 {
                self.say_prompt("format-retry", context! { what })?;
            } else {
                self.rewind(before).await?;
            }
        }
    }

    /// A reply that the end of the context or a deadline cut, or that was cancelled, is no reply.
    fn whole(&self, reply: &Reply) -> Result<(), LlmError> {
        match reply.finish {
            FinishReason::ContextFull => Err(LlmError::ContextFull {
                model: self.label.clone(),
                needed: (reply.cost.prompt_tokens + reply.cost.generated_tokens) as usize + 1,
                limit: self.context_length,
            }),
            FinishReason::Cancelled => {
                Err(LlmError::Engine { what: "the reply was cancelled".to_owned() })
            }
            FinishReason::Deadline => {
                Err(LlmError::Engine { what: "the reply's time was over".to_owned() })
            }
            FinishReason::StopId | FinishReason::StopString | FinishReason::MaxTokens => Ok(()),
        }
    }
}
