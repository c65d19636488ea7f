//! The forward pass over ragged rows: one graph for every `ModelSpec`, on any device.

use super::adapter::Adapter;
use super::changes::Changes;
use super::last_hidden::LastHidden;
use super::weights::{self, Holding, LayerWeights, OnDevice, Weights};
use super::{
    Batch, BatchProblem, Decoder, HiddenAt, LayerTensor, ModelError, ModelSpec, Names, Quantise,
    Row,
};
use crate::device::cpu::Cpu;
use crate::device::{KvType, Ops, PAGE_POSITIONS, PageId, PageLayout, Product, RopeSpec, RowsSpec};
use crate::store::{AdapterFiles, ModelFiles};
use std::collections::HashMap;

/// How a model is hosted.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads of the processor; at least 1.
    pub threads: usize,
    pub kv: KvType,
    /// Pages of 16 positions in the arena; memory is taken as they are first written.
    pub pages: usize,
    /// Most positions of a sequence, if fewer than the model was trained for.
    pub context: Option<usize>,
    /// Hidden rows stay with their pages, so that logits of any position cost one product with the
    /// head. Without them pages are smaller, and logits are known of the last forward pass only.
    pub keep_hidden: bool,
    /// What plain matrices are quantised to; None: nothing is.
    pub quantise: Option<Quantise>,
    /// Adapters that are held apart, by their number: a row has one of them or none, and the base is
    /// there once.
    pub adapters: Vec<AdapterFiles>,
    /// An adapter that is added to the weights, for every row; before they are quantised.
    pub merge: Option<AdapterFiles>,
}

impl Default for LoadOptions {
    /// All threads that the process may use, f16, 1,024 pages (16,384 positions), the whole context,
    /// hidden rows kept, weights as they are.
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            kv: KvType::default(),
            pages: 1024,
            context: None,
            keep_hidden: true,
            quantise: None,
            adapters: Vec::new(),
            merge: None,
        }
    }
}

/// A model's adapters, held against its options.
pub(super) struct Adapters {
    pub apart: Vec<Adapter>,
    pub merged: Option<Adapter>,
}

impl LoadOptions {
    /// The model's options within the context that is asked for.
    pub(super) fn applied_to(&self, mut spec: ModelSpec) -> Result<ModelSpec, ModelError> {
        let trained = spec.context_length;
        let context = self.context.unwrap_or(trained);
        if !(1..=trained).contains(&context) {
            return Err(ModelError::Context { context, trained });
        }
        if self.pages == 0 {
            return Err(ModelError::NoPages);
        }
        spec.context_length = context;
        Ok(spec)
    }

    /// The adapters that are asked for.
    pub(super) fn adapters(
        &self,
        spec: &ModelSpec,
        files: &ModelFiles,
    ) -> Result<Adapters, ModelError> {
        let read = |adapter: &AdapterFiles| Adapter::read(adapter, spec, Names::of(files));
        Ok(Adapters {
            apart: self.adapters.iter().map(read).collect::<Result<_, _>>()?,
            merged: self.merge.as_ref().map(read).transpose()?,
        })
    }

    /// What lies where in a page.
    pub(super) fn page_layout(&self, spec: &ModelSpec) -> PageLayout {
        let layout = spec.page_layout(self.kv);
        if self.keep_hidden { layout } else { PageLayout { hidden: 0, ..layout } }
    }
}

/// Loads a model onto the processor.
pub fn load(files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn Decoder>, ModelError> {
    let cpu = Cpu::new(options.threads)?;
    Ok(Box::new(Transformer::load_with(cpu, files, options)?))
}

/// Rows that go through the layers together; longer batches are cut, which changes no bit.
pub(super) const ROWS: usize = 256;

/// A decoder on a device.
pub struct Transformer<O: Ops> {
    spec: ModelSpec,
    layout: PageLayout,
    pages: usize,
    ops: O,
    weights: Weights<O::Weight, O::Buffer>,
    changes: Changes<O>,
    rope: O::Rope,
    arena: O::Arena,
    /// Where pages keep no hidden rows.
    last_hidden: Option<LastHidden<O>>,
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

/// Widths of the buffers of [`Work`], in their order.
pub(super) fn widths(spec: &ModelSpec) -> [usize; 9] {
    let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    [spec.hidden, spec.hidden, spec.hidden, q, kv, kv, q, spec.ffn, spec.ffn]
}

impl<O: Ops> Work<O> {
    fn new(ops: &O, spec: &ModelSpec) -> Result<Self, ModelError> {
        let [stream, delta, normed, query, key, value, attended, gate, up] = widths(spec);
        let buffer = |width| ops.buffer(ROWS, width);
        Ok(Self {
            stream: buffer(stream)?,
            delta: buffer(delta)?,
            normed: buffer(normed)?,
            query: buffer(query)?,
            key: buffer(key)?,
            value: buffer(value)?,
            attended: buffer(attended)?,
            gate: buffer(gate)?,
            up: buffer(up)?,
        })
    }
}

impl<O: Ops> Transformer<O> {
    /// Loads a model onto a device, with an arena of `pages` pages and the whole context.
    pub fn load(ops: O, files: &ModelFiles, kv: KvType, pages: usize) -> Result<Self, ModelError> {
        let options = LoadOptions { kv, pages, ..LoadOptions::default() };
        Self::load_with(ops, files, &options)
    }

    /// Loads a model onto a device, whose threads are its own: those of the options do not matter.
    pub fn load_with(
        ops: O,
        files: &ModelFiles,
        options: &LoadOptions,
    ) -> Result<Self, ModelError> {
        let spec = options.applied_to(ModelSpec::from_files(files)?)?;
        let (layout, pages) = (options.page_layout(&spec), options.pages);
        let adapters = options.adapters(&spec, files)?;
        let arena = ops.arena(layout, pages)?;
        let holding = Holding { quantise: options.quantise, merged: adapters.merged.as_ref() };
        let weights = weights::load(&mut OnDevice::new(&ops), &spec, files, holding)?;
        let changes = Changes::new(&ops, &adapters.apart, spec.layers)?;
        let rope = ops.rope(RopeSpec {
            speeds: &spec.rope.speeds(spec.head_dim),
            scale: spec.rope.attention(),
            pairing: spec.rope.pairing,
            positions: spec.context_length.min(pages.saturating_mul(PAGE_POSITIONS)),
        })?;
        let last_hidden = match options.keep_hidden {
            true => None,
            false => Some(LastHidden::new(&ops, spec.hidden, ROWS)?),
        };
        let work = Work::new(&ops, &spec)?;
        Ok(Self { spec, layout, pages, ops, weights, changes, rope, arena, last_hidden, work })
    }

    /// The model's options.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Rows `from..` of a checked batch, at most [`ROWS`]; answers those that are not finite.
    fn pass(
        &mut self,
        from: usize,
        rows: &[Row],
        tables: &[&[PageId]],
    ) -> Result<Vec<usize>, ModelError> {
        let tokens: Vec<u32> = rows.iter().map(|row| row.token.0).collect();
        let slots: Vec<usize> = rows.iter().map(|row| row.slot).collect();
        let positions: Vec<usize> = rows.iter().map(|row| row.position).collect();
        let adapters: Vec<Option<usize>> =
            rows.iter().map(|row| row.adapter.map(|id| id.0 as usize)).collect();
        let adapted = adapters.iter().any(Option::is_some);
        let rows = self.ops.rows(RowsSpec {
            tokens: &tokens,
            slots: &slots,
            positions: &positions,
            tables,
            adapters: if adapted { &adapters } else { &[] },
        })?;
        let Self { spec, ops, weights, changes, rope, arena, last_hidden, work, .. } = self;
        let changes = adapted.then_some(&*changes);
        let keeps_hidden = last_hidden.is_none();
        let bad = ops.within(|ops| {
            let eps = spec.norm_eps;
            ops.embed(&weights.embedding, &rows, &mut work.stream);
            for (index, layer) in weights.layers.iter().enumerate() {
                let norm = &layer.attention_norm;
                let delta = (index > 0).then_some(&work.delta);
                ops.add_rms_norm(&rows, &mut work.stream, delta, norm, eps, &mut work.normed);
                attend(ops, spec, layer, index, &rows, changes, rope, arena, work);
                let (norm, delta) = (&layer.feed_forward_norm, Some(&work.delta));
                ops.add_rms_norm(&rows, &mut work.stream, delta, norm, eps, &mut work.normed);
                feed_forward(ops, layer, index, &rows, changes, work);
            }
            let (norm, delta) = (&weights.final_norm, Some(&work.delta));
            ops.add_rms_norm(&rows, &mut work.stream, delta, norm, eps, &mut work.normed);
            if keeps_hidden { ops.keep_hidden(&rows, &work.normed, arena) } else { Vec::new() }
        });
        match last_hidden {
            None => Ok(bad),
            Some(last) => last.keep(ops, from, &tokens, &work.normed),
        }
    }

    /// All rows of a checked batch, pass by pass.
    fn passes(&mut self, batch: &Batch<'_>) -> Result<Vec<usize>, ModelError> {
        let mut bad = Vec::new();
        for (index, rows) in batch.rows.chunks(ROWS).enumerate() {
            let found = self.pass(index * ROWS, rows, batch.tables)?;
            bad.extend(found.into_iter().map(|row| index * ROWS + row));
        }
        Ok(bad)
    }
}

/// The attention block: reads `normed`, writes `delta`.
#[allow(clippy::too_many_arguments)]
fn attend<O: Ops>(
    ops: &mut O,
    spec: &ModelSpec,
    layer: &LayerWeights<O::Weight, O::Buffer>,
    index: usize,
    rows: &O::Rows,
    changes: Option<&Changes<O>>,
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
    if let Some(changes) = changes {
        changes.add(ops, rows, (index, LayerTensor::Query), normed, query);
        changes.add(ops, rows, (index, LayerTensor::Key), normed, key);
        changes.add(ops, rows, (index, LayerTensor::Value), normed, value);
    }
    if let Some((query_norm, key_norm)) = &layer.head_norms {
        ops.head_rms_norm(rows, query, query_norm, spec.norm_eps);
        ops.head_rms_norm(rows, key, key_norm, spec.norm_eps);
    }
    ops.rotate_and_store(rows, rope, index, query, key, value, arena);
    ops.attention(rows, index, query, arena, attended);
    ops.linear(rows, attended, &mut [Product { weight: &layer.output, bias: None, out: delta }]);
    if let Some(changes) = changes {
        changes.add(ops, rows, (index, LayerTensor::Output), attended, delta);
    }
}

/// The gated feed-forward block: reads `normed`, writes `delta`.
fn feed_forward<O: Ops>(
    ops: &mut O,
    layer: &LayerWeights<O::Weight, O::Buffer>,
    index: usize,
    rows: &O::Rows,
    changes: Option<&Changes<O>>,
    work: &mut Work<O>,
) {
    let Work { normed, gate, up, delta, .. } = work;
    ops.linear(
        rows,
        normed,
        &mut [
            Product { weight: &layer.gate, bias: None, out: gate },
            Product { weight: &layer.up, bias: None, out: up },
        ],
    );
    if let Some(changes) = changes {
        changes.add(ops, rows, (index, LayerTensor::Gate), normed, gate);
        changes.add(ops, rows, (index, LayerTensor::Up), normed, up);
    }
    ops.swiglu(rows, gate, up);
    ops.linear(rows, gate, &mut [Product { weight: &layer.down, bias: None, out: delta }]);
    if let Some(changes) = changes {
        changes.add(ops, rows, (index, LayerTensor::Down), gate, delta);
    }
}

/// Checks every rule of a batch.
fn check(
    batch: &Batch<'_>,
    spec: &ModelSpec,
    pages: usize,
    adapters: usize,
) -> Result<(), ModelError> {
    let mut next: HashMap<usize, usize> = HashMap::new();
    let mut writers: HashMap<PageId, usize> = HashMap::new();
    for (index, row) in batch.rows.iter().enumerate() {
        let refuse = |problem| Err(ModelError::Batch { row: index, problem });
        if let Some(adapter) = row.adapter.filter(|adapter| adapter.0 as usize >= adapters) {
            return refuse(BatchProblem::Adapter { adapter: adapter.0, known: adapters });
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
        self.last_hidden.is_none()
    }

    fn forward(&mut self, batch: &Batch<'_>) -> Result<Vec<usize>, ModelError> {
        check(batch, &self.spec, self.pages, self.changes.len())?;
        if let Some(last) = &mut self.last_hidden {
            last.begin(&self.ops, batch)?;
        }
        let ran = self.passes(batch);
        if let (Err(_), Some(last)) = (&ran, &mut self.last_hidden) {
            last.clear();
        }
        ran
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
        let Self { ops, weights, arena, last_hidden, .. } = self;
        let head = weights.head.as_ref().unwrap_or(&weights.embedding);
        match last_hidden {
            None => ops.within(|ops| ops.head(head, arena, wanted, out)),
            Some(last) => {
                let wanted = last.find(wanted)?;
                ops.within(|ops| ops.head(head, last.arena(), &wanted, out));
            }
        }
        Ok(())
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.ops.copy_page(&mut self.arena, from, to);
        if let Some(last) = &mut self.last_hidden {
            last.page_copied(from, to);
        }
    }

    fn discard_page(&mut self, page: PageId) {
        self.ops.discard_page(&mut self.arena, page);
        if let Some(last) = &mut self.last_hidden {
            last.page_discarded(page);
        }
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.ops.for_each(count, work);
    }
}
