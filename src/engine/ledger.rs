//! The ledger: what every call cost, by model, adapter, method and turn, in exact counts.
//!
//! How a call is counted. A row is one position that went through a forward pass that succeeded.
//! - `prompt`: a `generate` on a sequence of n ids conditions on n positions; a `score` of k ids
//!   after n on n + k − 1 (nothing is conditioned on the last one). A call that ends before its
//!   prompt is complete (cancelled, out of pages) counts the positions that it reached.
//! - `fed back`: the first row of a *generated* id, counted in the call that forwards it: within the
//!   reply itself, or, for the last token of a reply, as part of the next call's prompt.
//! - `computed`: all other rows that this call forwarded: those of appended ids, and those of any
//!   ids whose rows were lost. The ids of a `score` are appended for the length of the call.
//! - `cached`: the positions of the prompt that the call did not have to compute: those found in
//!   pages, and generated ids that were not fed back until now (they were paid for when they were
//!   drawn).
//! - `recomputed` ⊂ computed: rows whose prefix had been forwarded before, by cause. *Evicted*: its
//!   page was wanted for something else. *Preempted*: this call had it in pages and lost it while it
//!   was preempted. *In flight*: another row of the same pass is the same. *Hidden not kept*: keys
//!   and values are there, but a log-probability needs the hidden row, and those are not kept.
//! - So for each call `prompt + preempted = cached + computed`: without preemption,
//!   `prompt = cached + computed`.
//! - `generated`: tokens drawn, among them a stop id and the ones that a stop string cut off.
//! - `drafted`, `accepted`: by speculation; nothing drafts yet.
//!
//! So every row is counted once: the rows that the engine forwarded = computed + fed back +
//! (drafted − accepted). [`LedgerSnapshot::check`] compares that with a counter kept at the
//! forward call itself. Where the waste is measured, computed rows = the appended rows of the waste
//! ratio. A row whose pass the decoder refused was not forwarded; one that gave numbers which are
//! not finite was.

use std::collections::BTreeMap;

use super::waste::Waste;
use super::{Cost, EngineError};
use crate::model::AdapterId;

/// On whose account a call goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Tag {
    /// As named in tables, e.g. `ralu`.
    pub method: String,
    pub turn: u32,
}

impl Tag {
    pub fn new(method: impl Into<String>, turn: u32) -> Self {
        Self { method: method.into(), turn }
    }
}

/// The account of one model, adapter, method and turn.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LedgerRow {
    pub model: String,
    #[serde(serialize_with = "adapter_number")]
    pub adapter: Option<AdapterId>,
    #[serde(flatten)]
    pub tag: Tag,
    pub calls: u64,
    pub cost: Cost,
}

/// What the engine itself counted for a model.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ModelCounts {
    pub model: String,
    /// Rows that went through a forward pass, counted there.
    pub forwarded_rows: u64,
    /// Partly filled pages that were copied since others hold what follows in them.
    pub copied_pages: u64,
    /// Counted where [`EngineOptions::measure_waste`](super::EngineOptions::measure_waste) asks.
    pub waste: Option<Waste>,
}

/// The ledger at some moment, calls in flight included.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LedgerSnapshot {
    pub rows: Vec<LedgerRow>,
    pub models: Vec<ModelCounts>,
    /// Why the engine's log ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_error: Option<String>,
}

impl LedgerSnapshot {
    /// The sum over all rows.
    pub fn total(&self) -> Cost {
        self.sum(|_| true)
    }

    /// The sum over the rows that `wanted` chooses.
    pub fn sum(&self, wanted: impl Fn(&LedgerRow) -> bool) -> Cost {
        let mut total = Cost::default();
        self.rows.iter().filter(|row| wanted(row)).for_each(|row| total += row.cost);
        total
    }

    /// Checks every equation of the ledger, and its sums against the engine's own counters.
    pub fn check(&self) -> Result<(), EngineError> {
        let unbalanced = |what| Err(EngineError::Unbalanced { what });
        for row in &self.rows {
            let cost = &row.cost;
            let conditioned = cost.prompt_tokens + cost.recomputed.preempted;
            if conditioned != cost.cached_tokens + cost.computed_tokens {
                return unbalanced(format!("prompt is not cached + computed in {row:?}"));
            }
            if cost.recomputed.total() > cost.computed_tokens
                || cost.accepted_tokens > cost.drafted_tokens
            {
                return unbalanced(format!("a part is more than its whole in {row:?}"));
            }
        }
        for counts in &self.models {
            let cost = self.sum(|row| row.model == counts.model);
            let rejected = cost.drafted_tokens - cost.accepted_tokens;
            if cost.computed_tokens + cost.fed_back_tokens + rejected != counts.forwarded_rows {
                return unbalanced(format!("{cost:?} does not sum up to {counts:?}"));
            }
            if let Some(waste) = counts.waste
                && waste.appended_rows != cost.computed_tokens
            {
                return unbalanced(format!("{waste:?} does not agree with {cost:?}"));
            }
        }
        Ok(())
    }
}

/// Accounts by model (its index), adapter and tag.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<Account, (u64, Cost)>,
}

/// Where a cost is posted: the model's index, the adapter, the tag.
pub(super) type Account = (usize, Option<AdapterId>, Tag);

impl Ledger {
    /// Adds the cost of a call.
    pub(super) fn post(&mut self, account: Account, cost: Cost) {
        let (calls, sum) = self.accounts.entry(account).or_default();
        *calls += 1;
        *sum += cost;
    }

    /// The ledger as rows; `names` are those of the models, and `in_flight` the costs, so far, of
    /// the calls that have not ended.
    pub(super) fn rows(
        &self,
        names: &[&str],
        in_flight: impl IntoIterator<Item = (Account, Cost)>,
    ) -> Vec<LedgerRow> {
        let mut all = Self { accounts: self.accounts.clone() };
        in_flight.into_iter().for_each(|(account, cost)| all.post(account, cost));
        all.accounts
            .into_iter()
            .map(|((model, adapter, tag), (calls, cost))| LedgerRow {
                model: names[model].to_owned(),
                adapter,
                tag,
                calls,
                cost,
            })
            .collect()
    }
}

fn adapter_number<S: serde::Serializer>(
    adapter: &Option<AdapterId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&adapter.map(|adapter| adapter.0), serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Recomputed;

    fn snapshot(cost: Cost, forwarded_rows: u64) -> LedgerSnapshot {
        let mut ledger = Ledger::default();
        ledger.post((0, Some(AdapterId(3)), Tag::new("ralu", 2)), cost);
        let counts =
            ModelCounts { model: "m".into(), forwarded_rows, copied_pages: 0, waste: None };
        let models = vec![counts];
        LedgerSnapshot { rows: ledger.rows(&["m"], []), models, log_error: None }
    }

    #[test]
    fn the_check_finds_each_kind_of_error() {
        let right = Cost {
            prompt_tokens: 10,
            cached_tokens: 6,
            computed_tokens: 4,
            fed_back_tokens: 3,
            drafted_tokens: 2,
            accepted_tokens: 1,
            ..Cost::default()
        };
        assert_eq!(snapshot(right, 8).check(), Ok(()));
        assert!(snapshot(right, 7).check().is_err());
        assert!(snapshot(Cost { cached_tokens: 5, ..right }, 8).check().is_err());
        assert!(
            snapshot(
                Cost { recomputed: Recomputed { evicted: 5, ..Recomputed::default() }, ..right },
                8
            )
            .check()
            .is_err()
        );
        assert!(snapshot(Cost { accepted_tokens: 3, ..right }, 6).check().is_err());
        let recomputed = Recomputed { preempted: 1, ..Recomputed::default() };
        let resumed = Cost { recomputed, computed_tokens: 5, ..right };
        assert_eq!(snapshot(resumed, 9).check(), Ok(()));
        assert!(snapshot(Cost { recomputed, ..right }, 8).check().is_err());
        let mut wasteful = snapshot(right, 8);
        wasteful.models[0].waste = Some(Waste { appended_rows: 5, distinct_rows: 4 });
        assert!(wasteful.check().is_err());
    }

    #[test]
    fn accounts_add_up_and_are_told_apart() {
        let mut ledger = Ledger::default();
        let cost = |n| Cost { prompt_tokens: n, cached_tokens: n, ..Cost::default() };
        ledger.post((0, None, Tag::new("cot", 1)), cost(1));
        ledger.post((0, None, Tag::new("cot", 1)), cost(2));
        ledger.post((0, Some(AdapterId(0)), Tag::new("cot", 1)), cost(4));
        ledger.post((1, None, Tag::new("cot", 1)), cost(8));
        let rows = ledger.rows(&["a", "b"], [((0, None, Tag::new("cot", 1)), cost(16))]);
        let seen: Vec<(u64, u64)> =
            rows.iter().map(|row| (row.calls, row.cost.prompt_tokens)).collect();
        assert_eq!(seen, [(3, 19), (1, 4), (1, 8)]);
        assert_eq!(
            serde_json::to_value(&rows[1]).unwrap()["adapter"],
            serde_json::json!(0),
            "an adapter is shown as its number"
        );
    }
}
