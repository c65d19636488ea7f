//! The forward pass over ragged rows: one graph for every `ModelSpec`, on any device.

use super::weights::{self, LayerWeights, Weights};
use super::{Batch, BatchProblem, Decoder, HiddenAt, ModelError, ModelSpec, Row};
use crate::device::cpu::Cpu;
use crate::device::{KvType, Ops, PAGE_POSITIONS, PageId, PageLayout, Product, RopeSpec, RowsSpec};
use crate::store::ModelFiles;
use std::collections::HashMap;

/// How a model is hosted.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Threads of the processor; at least 1.
    pub threads: usize,
    pub kv: KvType,
    /// Pages of 16 positions in the arena; memory is taken as they are first written.
    pub pages: usize,
    /// Most positions of a sequence, if fewer than the model was trained for.
    pub context: Option<usize>,
}

/// Loads a model onto the processor.
pub fn load(files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Decoder>, ModelError> {
    let cpu = Cpu::new(options.threads)?;
    let model = Transformer::load(cpu, files, options.kv, options.pages)?;
    Ok(Box::new(match options.context {
        None => model,
        Some(context) => model.within_context(context)?,
    }))
}

/// Rows that go through the layers together; longer batches are cut, which changes no bit.
const ROWS: usize = 256;

/// A decoder on a device.
pub struct Transformer<O: Ops> {
    spec: ModelSpec,
    layout: PageLayout,
    pages: usize,
    ops: O,
    weights: Weights<O>,
    rope: O::Rope,
    arena: O::Arena,
    work: Work<O>,
}

/// Working memory of one pass, each `[ROWS, …]`.
struct Work<O: Ops> {
    /// The residual stream, `hidden`.
    stream: O::Buffer,
    /// What the last block adds to it, `hidden`.
    delta: O::Buffer,
    /// The normed stream, `hidden`.
    normed: O::Buffer,
    /// `heads * head_dim`
    query: O::Buffer,
    /// `kv_heads * head_dim`
    key: O::Buffer,
    /// `kv_heads * head_dim`
    value: O::Buffer,
    /// `heads * head_dim`
    attended: O::Buffer,
    /// `ffn`
    gate: O::Buffer,
    /// `ffn`
    up: O::Buffer,
}

impl<O: Ops> Work<O> {
    fn new(ops: &O, spec: &ModelSpec) -> Result<Self, ModelError> {
        let buffer = |width| ops.buffer(ROWS, width);
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        Ok(Self {
            stream: buffer(spec.hidden)?,
            delta: buffer(spec.hidden)?,
            normed: buffer(spec.hidden)?,
            query: buffer(q)?,
            key: buffer(kv)?,
            value: buffer(kv)?,
            attended: buffer(q)?,
            gate: buffer(spec.ffn)?,
            up: buffer(spec.ffn)?,
        })
    }
}

impl<O: Ops> Transformer<O> {
    /// Loads a model onto a device, with an arena of `pages` pages.
    pub fn load(ops: O, files: &ModelFiles, kv: KvType, pages: usize) -> Result<Self, ModelError> {
        let spec = ModelSpec::from_files(files)?;
        if pages == 0 {
            return Err(ModelError::NoPages);
        }
        let layout = spec.page_layout(kv);
        let arena = ops.arena(layout, pages)?;
        let weights = weights::load(&ops, &spec, files)?;
        let positions = spec.context_length.min(pages.saturating_mul(PAGE_POSITIONS));
        let rope = ops.rope(RopeSpec {
            base: spec.rope.base,
            pairing: spec.rope.pairing,
            head_dim: spec.head_dim,
            positions,
        })?;
        let work = Work::new(&ops, &spec)?;
        Ok(Self { spec, layout, pages, ops, weights, rope, arena, work })
    }

    /// The same model with sequences of at most `context` positions.
    pub fn within_context(mut self, context: usize) -> Result<Self, ModelError> {
        let trained = self.spec.context_length;
        if !(1..=trained).contains(&context) {
            return Err(ModelError::Context { context, trained });
        }
        self.spec.context_length = context;
        Ok(self)
    }

    /// The model's options.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Rows of a checked batch, at most [`ROWS`]; answers those that are not finite.
    fn pass(&mut self, rows: &[Row], tables: &[&[PageId]]) -> Result<Vec<usize>, ModelError> {
        let tokens: Vec<u32> = rows.iter().map(|row| row.token.0).collect();
        let slots: Vec<usize> = rows.iter().map(|row| row.slot).collect();
        let positions: Vec<usize> = rows.iter().map(|row| row.position).collect();
        let rows = self.ops.rows(RowsSpec {
            tokens: &tokens,
            slots: &slots,
            positions: &positions,
            tables,
        })?;
        let Self { spec, ops, weights, rope, arena, work, .. } = self;
        Ok(ops.within(|ops| {
            let eps = spec.norm_eps;
            ops.embed(&weights.embedding, &rows, &mut work.stream);
            for (index, layer) in weights.layers.iter().enumerate() {
                let norm = &layer.attention_norm;
                let delta = (index > 0).then_some(&work.delta);
                ops.add_rms_norm(&rows, &mut work.stream, delta, norm, eps, &mut work.normed);
                attend(ops, spec, layer, index, &rows, rope, arena, work);
                let (norm, delta) = (&layer.feed_forward_norm, Some(&work.delta));
                ops.add_rms_norm(&rows, &mut work.stream, delta, norm, eps, &mut work.normed);
                feed_forward(ops, layer, &rows, work);
            }
            let (norm, delta) = (&weights.final_norm, Some(&work.delta));
            ops.add_rms_norm(&rows, &mut work.stream, delta, norm, eps, &mut work.normed);
            ops.keep_hidden(&rows, &work.normed, arena)
        }))
    }
}

/// The attention block: reads `normed`, writes `delta`.
#[allow(clippy::too_many_arguments)]
fn attend<O: Ops>(
    ops: &mut O,
    spec: &ModelSpec,
    layer: &LayerWeights<O>,
    index: usize,
    rows: &O::Rows,
    rope: &O::Rope,
    arena: &mut O::Arena,
    work: &mut Work<O>,
) {
    let Work { normed, query, key, value, attended, delta, .. } = work;
    ops.linear(
        rows,
        normed,
        &mut [
            Product { weight: &layer.query.weight, bias: layer.query.bias.as_ref(), out: query },
            Product { weight: &layer.key.weight, bias: layer.key.bias.as_ref(), out: key },
            Product { weight: &layer.value.weight, bias: layer.value.bias.as_ref(), out: value },
        ],
    );
    if let Some((query_norm, key_norm)) = &layer.head_norms {
        ops.head_rms_norm(rows, query, query_norm, spec.norm_eps);
        ops.head_rms_norm(rows, key, key_norm, spec.norm_eps);
    }
    ops.rotate_and_store(rows, rope, index, query, key, value, arena);
    ops.attention(rows, index, query, arena, attended);
    ops.linear(rows, attended, &mut [Product { weight: &layer.output, bias: None, out: delta }]);
}

/// The gated feed-forward block: reads `normed`, writes `delta`.
fn feed_forward<O: Ops>(ops: &mut O, layer: &LayerWeights<O>, rows: &O::Rows, work: &mut Work<O>) {
    let Work { normed, gate, up, delta, .. } = work;
    ops.linear(
        rows,
        normed,
        &mut [
            Product { weight: &layer.gate, bias: None, out: gate },
            Product { weight: &layer.up, bias: None, out: up },
        ],
    );
    ops.swiglu(rows, gate, up);
    ops.linear(rows, gate, &mut [Product { weight: &layer.down, bias: None, out: delta }]);
}

/// Checks every rule of a batch.
fn check(batch: &Batch<'_>, spec: &ModelSpec, pages: usize) -> Result<(), ModelError> {
    let mut next: HashMap<usize, usize> = HashMap::new();
    let mut writers: HashMap<PageId, usize> = HashMap::new();
    for (index, row) in batch.rows.iter().enumerate() {
        let refuse = |problem| Err(ModelError::Batch { row: index, problem });
        if row.adapter.is_some() {
            return refuse(BatchProblem::Adapter);
        }
        let Some(table) = batch.tables.get(row.slot) else {
            let slots = batch.tables.len();
            return refuse(BatchProblem::NoSlot { slot: row.slot, slots });
        };
        if row.token.index() >= spec.vocab {
            return refuse(BatchProblem::NoToken { token: row.token.0, vocab: spec.vocab });
        }
        let (position, context) = (row.position, spec.context_length);
        if position >= context {
            return refuse(BatchProblem::BeyondContext { position, context });
        }
        let (needed, found) = (position / PAGE_POSITIONS + 1, table.len());
        if needed > found {
            return refuse(BatchProblem::ShortTable { position, needed, found });
        }
        match next.insert(row.slot, position + 1) {
            Some(expected) if expected != position => {
                return refuse(BatchProblem::NotRising { position, expected });
            }
            Some(_) => {}
            None => {
                // The slot's first row: everything before it is read.
                if let Some(page) = table[..needed].iter().find(|page| page.index() >= pages) {
                    return refuse(BatchProblem::NoPage { page: page.0, pages });
                }
            }
        }
        let page = table[needed - 1];
        if page.index() >= pages {
            return refuse(BatchProblem::NoPage { page: page.0, pages });
        }
        let other = *writers.entry(page).or_insert(row.slot);
        if other != row.slot {
            return refuse(BatchProblem::SharedPage { page: page.0, other });
        }
    }
    Ok(())
}

impl<O: Ops> Decoder for Transformer<O> {
    fn vocab_size(&self) -> usize {
        self.spec.vocab
    }

    fn context_length(&self) -> usize {
        self.spec.context_length
    }

    fn page_count(&self) -> usize {
        self.pages
    }

    fn page_bytes(&self) -> usize {
        self.layout.page_bytes()
    }

    fn keeps_hidden(&self) -> bool {
        true
    }

    fn forward(&mut self, batch: &Batch<'_>) -> Result<Vec<usize>, ModelError> {
        check(batch, &self.spec, self.pages)?;
        let mut bad = Vec::new();
        for (index, rows) in batch.rows.chunks(ROWS).enumerate() {
            let found = self.pass(rows, batch.tables)?;
            bad.extend(found.into_iter().map(|row| index * ROWS + row));
        }
        Ok(bad)
    }

    fn logits(&mut self, wanted: &[HiddenAt], out: &mut [f32]) -> Result<(), ModelError> {
        let pages = self.pages;
        for (index, &HiddenAt { page, offset }) in wanted.iter().enumerate() {
            if page.index() >= pages || offset >= PAGE_POSITIONS {
                return Err(ModelError::NoSuchHidden { index, page: page.0, offset, pages });
            }
        }
        let vocab = self.spec.vocab;
        let expected = wanted.len() * vocab;
        if out.len() != expected {
            return Err(ModelError::LogitsRoom { expected, found: out.len() });
        }
        let Self { ops, weights, arena, .. } = self;
        let head = weights.head.as_ref().unwrap_or(&weights.embedding);
        ops.within(|ops| ops.head(head, arena, wanted, out));
        Ok(())
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.ops.copy_page(&mut self.arena, from, to);
    }

    fn discard_page(&mut self, page: PageId) {
        self.ops.discard_page(&mut self.arena, page);
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.ops.for_each(count, work);
    }
}
