//! What a model thinks before it answers: where in a reply it stands, and what bounds it.
//!
//! With a budget a reply is drawn in parts. Outside a think block a part ends at the tag that opens
//! one; inside, at the tag that closes it or when the budget is spent, and then the engine is given the
//! closing tag in place of what the model would have said, and the reply goes on. Draws are keyed by
//! position, so a reply that closes its block in time is the one that it would be without a budget; only
//! penalties and stop strings see each part by itself.

use crate::engine::{Finish, FinishReason, Stop};
use crate::text::{TokenId, Tokenizer, TokenizerError};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// How a model is to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// The switch of its chat template; None: as the template has it by itself.
    pub switch: Option<bool>,
    /// Most tokens of each think block; when they are spent the block is closed. None: no bound.
    pub budget: Option<usize>,
}

/// The tokens that enclose thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    open: TokenId,
    close: TokenId,
}

impl Tags {
    /// Those of a vocabulary that has both as single tokens.
    pub(super) fn of(tokenizer: &Tokenizer) -> Option<Self> {
        Some(Self { open: tokenizer.token_id(OPEN)?, close: tokenizer.token_id(CLOSE)? })
    }

    /// The closing tag with the line ends that templates write around it.
    pub(super) fn closing(self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ids = tokenizer.encode_behind("\n")?;
        ids.push(self.close);
        ids.extend(tokenizer.encode_behind("\n\n")?);
        Ok(ids)
    }
}

/// A part of a reply that is to be drawn by one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) max_tokens: usize,
    /// Beside the model's own.
    pub(super) stop_ids: Vec<TokenId>,
}

/// How a reply goes on after a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is over.
    End,
    /// The tag that ended the part is put behind it.
    Tag(TokenId),
    /// The budget is spent: the block is closed.
    Close,
}

/// Where in its thinking a reply is.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    tags: Option<Tags>,
    budget: Option<usize>,
    inside: bool,
    /// Tokens of the open block so far, without its tag.
    spent: usize,
    /// Tokens that the reply may still have.
    left: usize,
}

impl Progress {
    /// A reply that begins behind `lead` and may have so many tokens.
    pub(super) fn new(
        tags: Option<Tags>,
        budget: Option<usize>,
        lead: &[TokenId],
        max_tokens: usize,
    ) -> Self {
        // Some templates open the block themselves.
        let inside = tags.is_some_and(|tags| {
            let last = lead.iter().rev().find(|id| [tags.open, tags.close].contains(id));
            last == Some(&tags.open)
        });
        Self { tags, budget, inside, spent: 0, left: max_tokens }
    }

    pub(super) fn inside(&self) -> bool {
        self.inside
    }

    /// Whether the block that is open has used up its budget.
    fn is_spent(&self) -> bool {
        self.inside && self.budget.is_some_and(|budget| self.spent >= budget)
    }

    /// What to draw next. None: nothing before the block is closed, or nothing more at all.
    pub(super) fn part(&self) -> Option<Part> {
        let (Some(tags), Some(budget)) = (self.tags, self.budget) else {
            return Some(Part { max_tokens: self.left, stop_ids: Vec::new() });
        };
        let most = if self.inside { budget.saturating_sub(self.spent) } else { self.left };
        let max_tokens = most.min(self.left);
        let stop = if self.inside { tags.close } else { tags.open };
        (max_tokens > 0).then(|| Part { max_tokens, stop_ids: vec![stop] })
    }

    /// Takes note of a token of the reply; answers with whether it is a tag.
    pub(super) fn token(&mut self, id: TokenId) -> bool {
        self.left = self.left.saturating_sub(1);
        let Some(tags) = self.tags else { return false };
        if !self.inside && id == tags.open {
            (self.inside, self.spent) = (true, 0);
            return true;
        }
        if self.inside && id == tags.close {
            self.inside = false;
            return true;
        }
        self.spent += usize::from(self.inside);
        false
    }

    /// Takes note of a block that was closed for the model.
    pub(super) fn closed(&mut self) {
        self.inside = false;
    }

    /// How the reply goes on when nothing was to be drawn.
    pub(super) fn without_a_part(&self) -> Next {
        if self.is_spent() && self.left > 0 { Next::Close } else { Next::End }
    }

    /// How the reply goes on after a part that ended like this, its tokens noted.
    pub(super) fn after(&self, finish: &Finish) -> Next {
        match (&finish.reason, &finish.stop, self.tags) {
            (FinishReason::StopId, Some(Stop::Id(id)), Some(tags))
                if self.budget.is_some() && [tags.open, tags.close].contains(id) =>
            {
                Next::Tag(*id)
            }
            (FinishReason::MaxTokens, ..) => self.without_a_part(),
            _ => Next::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Cost;

    const TAGS: Tags = Tags { open: TokenId(1), close: TokenId(2) };

    fn finish(reason: FinishReason, stop: Option<u32>) -> Finish {
        let stop = stop.map(|id| Stop::Id(TokenId(id)));
        Finish { reason, stop, cut: Vec::new(), tail: Vec::new(), cost: Cost::default() }
    }

    fn part(max_tokens: usize, stop: u32) -> Option<Part> {
        Some(Part { max_tokens, stop_ids: vec![TokenId(stop)] })
    }

    #[test]
    fn a_block_is_drawn_up_to_its_budget() {
        let mut progress = Progress::new(Some(TAGS), Some(3), &[], 10);
        assert_eq!(progress.part(), part(10, 1));
        assert_eq!(progress.after(&finish(FinishReason::StopId, Some(1))), Next::Tag(TokenId(1)));
        assert!(progress.token(TokenId(1)));
        assert_eq!(progress.part(), part(3, 2));
        (0..3).for_each(|_| assert!(!progress.token(TokenId(7))));
        assert_eq!(progress.after(&finish(FinishReason::MaxTokens, None)), Next::Close);
        progress.closed();
        assert_eq!(progress.part(), part(6, 1));
        assert_eq!(progress.after(&finish(FinishReason::StopId, Some(9))), Next::End);
    }

    #[test]
    fn the_reply_s_own_limit_counts_too() {
        let mut progress = Progress::new(Some(TAGS), Some(5), &[TokenId(1)], 2);
        assert!(progress.inside());
        assert_eq!(progress.part(), part(2, 2));
        (0..2).for_each(|_| assert!(!progress.token(TokenId(7))));
        assert_eq!(progress.after(&finish(FinishReason::MaxTokens, None)), Next::End);
        // A tag with the last token that is left: nothing can follow.
        let mut progress = Progress::new(Some(TAGS), Some(5), &[], 1);
        progress.token(TokenId(1));
        assert_eq!((progress.part(), progress.without_a_part()), (None, Next::End));
    }

    #[test]
    fn no_budget_left_closes_at_once() {
        let progress = Progress::new(Some(TAGS), Some(0), &[TokenId(2), TokenId(1)], 9);
        assert_eq!((progress.part(), progress.without_a_part()), (None, Next::Close));
        // A block that the template opened and closed itself is none.
        assert!(!Progress::new(Some(TAGS), Some(0), &[TokenId(1), TokenId(2)], 9).inside());
    }

    #[test]
    fn without_a_budget_a_reply_is_one_part() {
        for tags in [Some(TAGS), None] {
            let mut progress = Progress::new(tags, None, &[], 10);
            let whole = Part { max_tokens: 10, stop_ids: Vec::new() };
            assert_eq!(progress.part(), Some(whole));
            assert_eq!(progress.token(TokenId(1)), tags.is_some());
            assert_eq!(progress.after(&finish(FinishReason::MaxTokens, None)), Next::End);
            assert_eq!(progress.after(&finish(FinishReason::StopId, Some(2))), Next::End);
        }
    }
}
