//! Which rows a step forwards: all tokens that replies feed back, and chunks of prompts beside them.
//!
//! Replies come first, one row each, so no prompt holds them up for longer than one step's chunk
//! takes. What a step has left for prompts is shared evenly among those that wait, in turns, so a
//! short one is soon done beside a long one. Of several calls that want the same next row after the
//! same ids only the first gets it; the others find it in the prefix tree afterwards.

use std::collections::HashSet;

use super::prefix::Prefix;

/// A call that has rows to forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) call: u64,
    pub(super) rows: usize,
    /// It feeds back one token of a reply, which no other call can do for it.
    pub(super) decodes: bool,
    /// All ids up to its next row, that one included.
    pub(super) next: Prefix,
}

/// Rows of a call that a step forwards, from the first that is not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) call: u64,
    pub(super) rows: usize,
}

/// How many rows a step may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Fed back and prompt rows together.
    pub(super) step_rows: usize,
    pub(super) prefill_rows: usize,
}

/// A smaller share of a step is not worth its turn.
const LEAST_SHARE: usize = 16;

/// Chooses the rows of step `turn` among candidates, which come by age.
pub(super) fn choose(candidates: &[Candidate], limits: Limits, turn: u64) -> Vec<Chunk> {
    let (decoding, mut waiting): (Vec<Candidate>, Vec<Candidate>) =
        candidates.iter().partition(|candidate| candidate.decodes);
    let mut chosen: Vec<Chunk> = in_turn(&decoding, turn.wrapping_mul(limits.step_rows as u64))
        .take(limits.step_rows)
        .map(|candidate| Chunk { call: candidate.call, rows: 1 })
        .collect();
    let mut left = limits.prefill_rows.min(limits.step_rows - chosen.len());
    let mut claimed = HashSet::new();
    waiting.retain(|candidate| claimed.insert(candidate.next));
    let share = left.div_ceil(waiting.len().max(1)).max(LEAST_SHARE);
    let begin = chosen.len();
    for candidate in in_turn(&waiting, turn) {
        let rows = candidate.rows.min(share).min(left);
        if rows > 0 {
            chosen.push(Chunk { call: candidate.call, rows });
            left -= rows;
        }
    }
    // What short prompts have left goes to the others.
    for chunk in &mut chosen[begin..] {
        let wanted = waiting.iter().find(|candidate| candidate.call == chunk.call);
        let more = wanted.map_or(0, |candidate| candidate.rows - chunk.rows).min(left);
        chunk.rows += more;
        left -= more;
    }
    chosen
}

/// All of `calls`, beginning with another one each turn.
fn in_turn(calls: &[Candidate], turn: u64) -> impl Iterator<Item = &Candidate> {
    let first = (turn % calls.len().max(1) as u64) as usize;
    calls[first..].iter().chain(&calls[..first])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::TokenId;

    fn next(id: u32) -> Prefix {
        Prefix::empty(None).then(TokenId(id))
    }

    fn prompt(call: u64, rows: usize) -> Candidate {
        Candidate { call, rows, decodes: false, next: next(call as u32) }
    }

    fn reply(call: u64) -> Candidate {
        Candidate { decodes: true, ..prompt(call, 1) }
    }

    fn chosen(candidates: &[Candidate], step_rows: usize, turn: u64) -> Vec<(u64, usize)> {
        let limits = Limits { step_rows, prefill_rows: 128 };
        choose(candidates, limits, turn).iter().map(|chunk| (chunk.call, chunk.rows)).collect()
    }

    #[test]
    fn a_long_prompt_beside_replies_and_a_short_one() {
        let calls = [prompt(1, 8000), reply(2), prompt(3, 20), reply(4)];
        assert_eq!(chosen(&calls, 256, 0), [(2, 1), (4, 1), (1, 108), (3, 20)]);
        assert_eq!(chosen(&calls, 256, 1), [(2, 1), (4, 1), (3, 20), (1, 108)]);
    }

    #[test]
    fn replies_take_turns_when_they_are_too_many() {
        let calls: Vec<Candidate> = (0..5).map(reply).collect();
        assert_eq!(chosen(&calls, 2, 0), [(0, 1), (1, 1)]);
        assert_eq!(chosen(&calls, 2, 1), [(2, 1), (3, 1)]);
        assert_eq!(chosen(&calls, 2, 2), [(4, 1), (0, 1)]);
    }

    #[test]
    fn the_same_rows_are_forwarded_once() {
        let twin = Candidate { next: next(1), ..prompt(2, 50) };
        assert_eq!(chosen(&[prompt(1, 60), twin], 256, 0), [(1, 60)]);
        // A reply's own token is its own.
        let reply = Candidate { next: next(1), ..reply(3) };
        assert_eq!(chosen(&[prompt(1, 60), reply], 256, 0), [(3, 1), (1, 60)]);
    }

    #[test]
    fn many_prompts_get_their_turn() {
        let calls: Vec<Candidate> = (0..20).map(|call| prompt(call, 40)).collect();
        assert_eq!(chosen(&calls, 256, 0).len(), 8);
        let met: HashSet<u64> =
            (0..20).flat_map(|turn| chosen(&calls, 256, turn)).map(|(call, _)| call).collect();
        assert_eq!(met.len(), 20);
    }

    proptest! {
        #[test]
        fn limits_hold_and_nothing_is_left_idle(
            kinds in proptest::collection::vec((any::<bool>(), 1usize..300), 0..40),
            step_rows in 1usize..300,
            turn: u64,
        ) {
            let calls: Vec<Candidate> = kinds
                .iter()
                .enumerate()
                .map(|(call, &(decodes, rows))| match decodes {
                    true => reply(call as u64),
                    false => prompt(call as u64, rows),
                })
                .collect();
            let chunks = chosen(&calls, step_rows, turn % 1000);
            let replies = kinds.iter().filter(|kind| kind.0).count().min(step_rows);
            let wanted: usize = kinds.iter().filter(|kind| !kind.0).map(|kind| kind.1).sum();
            let rows: usize = chunks.iter().map(|chunk| chunk.1).sum();
            prop_assert_eq!(rows, replies + wanted.min(128).min(step_rows - replies));
            let distinct: HashSet<u64> = chunks.iter().map(|chunk| chunk.0).collect();
            prop_assert_eq!(distinct.len(), chunks.len());
            for (call, rows) in chunks {
                prop_assert!(rows > 0 && rows <= calls[call as usize].rows);
            }
        }
    }
}
