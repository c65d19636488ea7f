//! A hosted model: its decoder, its pages, and the forward pass over the rows of a sequence.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::EngineError;
use super::pages::PagePool;
use super::sequence::{Sequence, Shortage};
use super::statistics::{NotFinite, Softmax};
use super::waste::{ForwardedTrie, Parent};
use crate::model::{AdapterId, Batch, Decoder, HiddenAt, Row};
use crate::text::{TokenId, Tokenizer};

/// The bytes that a token stands for in text, as stop strings see them.
pub trait TokenBytes: Send + Sync {
    fn token_bytes(&self, id: TokenId) -> Vec<u8>;
}

impl<F: Fn(TokenId) -> Vec<u8> + Send + Sync> TokenBytes for F {
    fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        self(id)
    }
}

impl TokenBytes for Tokenizer {
    fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        // Models may have more rows than the vocabulary has tokens; those have no text.
        self.token_bytes(id).unwrap_or_default().to_vec()
    }
}

/// A model as it is given to the engine.
pub struct Hosted {
    /// The name by which sessions are opened; the ledger's rows bear it.
    pub name: String,
    pub decoder: Box<dyn Decoder>,
    pub tokens: Arc<dyn TokenBytes>,
    /// The ids that end every reply of this model.
    pub stop_ids: Vec<TokenId>,
    /// The decoder's adapters.
    pub adapters: Vec<AdapterId>,
}

/// What callers may know of a hosted model.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ModelInfo {
    pub name: String,
    pub vocab_size: usize,
    /// Most positions of one sequence.
    pub context_length: usize,
    /// Pages in the arena, for all sequences together.
    pub page_count: usize,
}

/// Pages of a model at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PageUse {
    pub free: usize,
    pub total: usize,
}

/// A hosted model as the engine's thread holds it.
pub(super) struct Model {
    pub(super) info: ModelInfo,
    pub(super) tokens: Arc<dyn TokenBytes>,
    pub(super) stop_ids: BTreeSet<TokenId>,
    pub(super) adapters: Vec<AdapterId>,
    pub(super) pool: PagePool,
    /// Rows that went through a forward pass: the counter that the ledger is checked against.
    pub(super) forwarded_rows: u64,
    pub(super) trie: Option<ForwardedTrie>,
    decoder: Box<dyn Decoder>,
    /// Logits `[rows, vocab]` of the last [`Model::logits`].
    logits: Vec<f32>,
}

/// Rows of one forward pass, by what they are counted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    pub(super) appended: u64,
    pub(super) generated: u64,
}

impl Model {
    /// Takes over a model, after checking what can be checked.
    pub(super) fn new(hosted: Hosted, measure_waste: bool) -> Result<Self, EngineError> {
        let Hosted { name, decoder, tokens, stop_ids, adapters } = hosted;
        let info = ModelInfo {
            vocab_size: decoder.vocab_size(),
            context_length: decoder.context_length(),
            page_count: decoder.page_count(),
            name,
        };
        let bad = |what: String| EngineError::BadModel { model: info.name.clone(), what };
        for (what, size) in [
            ("vocabulary", info.vocab_size),
            ("context", info.context_length),
            ("arena of pages", info.page_count),
        ] {
            if size == 0 || u32::try_from(size).is_err() {
                return Err(bad(format!("its {what} has the size {size}, outside 1..2³²")));
            }
        }
        if let Some(id) = stop_ids.iter().find(|id| id.index() >= info.vocab_size) {
            let size = info.vocab_size;
            return Err(bad(format!("stop id {} is outside its vocabulary of {size}", id.0)));
        }
        Ok(Self {
            tokens,
            stop_ids: stop_ids.into_iter().collect(),
            adapters,
            pool: PagePool::new(info.page_count),
            forwarded_rows: 0,
            trie: measure_waste.then(ForwardedTrie::default),
            decoder,
            logits: Vec::new(),
            info,
        })
    }

    /// Refuses ids that the model does not have.
    pub(super) fn check_ids(&self, ids: &[TokenId]) -> Result<(), EngineError> {
        check_ids(&self.info, ids)
    }

    /// Refuses a sequence of `needed` positions that the model cannot hold.
    pub(super) fn check_length(&self, needed: usize) -> Result<(), EngineError> {
        let limit = self.info.context_length;
        if needed <= limit {
            return Ok(());
        }
        Err(EngineError::ContextOverflow { model: self.info.name.clone(), needed, limit })
    }

    /// Runs the sequence's positions from the first that is not computed up to `end`.
    pub(super) fn forward(
        &mut self,
        sequence: &mut Sequence,
        adapter: Option<AdapterId>,
        end: usize,
    ) -> Result<Forwarded, EngineError> {
        let begin = sequence.computed();
        sequence
            .make_room(end, &mut self.pool, self.decoder.as_mut())
            .map_err(|shortage| self.exhausted(shortage))?;
        let rows: Vec<Row> = (begin..end)
            .map(|position| Row { slot: 0, position, token: sequence.ids()[position], adapter })
            .collect();
        let ran = self.decoder.forward(&Batch { rows: &rows, tables: &[sequence.pages()] });
        let bad = match ran {
            Ok(bad) => bad,
            Err(error) => {
                sequence.leave_room(&mut self.pool);
                return Err(self.failed(error));
            }
        };
        if let Some(row) = bad.first() {
            sequence.leave_room(&mut self.pool);
            let (model, position) = (self.info.name.clone(), begin + row);
            return Err(EngineError::DamagedRow { model, position });
        }
        self.forwarded_rows += rows.len() as u64;
        sequence.note_computed(end);
        Ok(self.count(sequence, adapter, begin))
    }

    /// Counts the rows from `begin` to the last computed one.
    fn count(
        &mut self,
        sequence: &mut Sequence,
        adapter: Option<AdapterId>,
        begin: usize,
    ) -> Forwarded {
        let mut counted = Forwarded::default();
        for position in begin..sequence.computed() {
            let generated = sequence.births()[position].generated;
            counted.generated += u64::from(generated);
            counted.appended += u64::from(!generated);
            if let Some(trie) = &mut self.trie {
                let parent = sequence.trail().last();
                let parent = parent.map_or(Parent::Root(adapter), |&prefix| Parent::Prefix(prefix));
                let prefix = trie.forwarded(parent, sequence.ids()[position], generated);
                sequence.note_prefix(prefix);
            }
        }
        counted
    }

    /// Computes the logits after each of the positions, which are computed.
    pub(super) fn compute_logits(
        &mut self,
        sequence: &Sequence,
        positions: std::ops::Range<usize>,
    ) -> Result<(), EngineError> {
        let wanted: Vec<HiddenAt> = positions.map(|at| sequence.hidden_at(at)).collect();
        self.logits.clear();
        // What the decoder leaves unwritten is found by the check of the softmax.
        self.logits.resize(wanted.len() * self.info.vocab_size, f32::NAN);
        let ran = self.decoder.logits(&wanted, &mut self.logits);
        ran.map_err(|error| self.failed(error))
    }

    /// One row `[vocab]` of the logits computed last.
    pub(super) fn logits(&self, row: usize) -> &[f32] {
        let size = self.info.vocab_size;
        &self.logits[row * size..(row + 1) * size]
    }

    /// The softmax of a row of the logits computed last, which follow `position`.
    pub(super) fn softmax(&self, row: usize, position: usize) -> Result<Softmax, EngineError> {
        let model = || self.info.name.clone();
        Softmax::of(self.logits(row)).map_err(|NotFinite { token, value }| EngineError::NotFinite {
            model: model(),
            position,
            token,
            value,
        })
    }

    fn exhausted(&self, shortage: Shortage) -> EngineError {
        EngineError::PagesExhausted {
            model: self.info.name.clone(),
            needed: shortage.needed,
            free: shortage.free,
            total: self.pool.total(),
        }
    }

    fn failed(&self, error: crate::model::ModelError) -> EngineError {
        EngineError::Model { model: self.info.name.clone(), what: error.to_string() }
    }
}

/// Refuses ids that the model does not have.
pub(super) fn check_ids(info: &ModelInfo, ids: &[TokenId]) -> Result<(), EngineError> {
    match ids.iter().find(|id| id.index() >= info.vocab_size) {
        None => Ok(()),
        Some(&id) => Err(EngineError::OutsideVocabulary {
            model: info.name.clone(),
            id,
            vocab_size: info.vocab_size,
        }),
    }
}
