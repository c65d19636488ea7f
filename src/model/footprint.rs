//! The memory that a model takes, from the headers of its files alone.

use super::forward::{self, LoadOptions, ROWS};
use super::weights::{self, Holding, Shelf, Source};
use super::{ModelError, ModelSpec, Quantised, Recipe};
use crate::device::cpu::Cpu;
use crate::device::{Ops, PAGE_POSITIONS};
use crate::store::{ModelFiles, Tensor, WeightType};

/// Bytes that a hosted model takes on the processor, known before anything is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Footprint {
    /// Weights in memory of the device's own: block formats interleaved, norms and biases as f32.
    pub held_weights: u64,
    /// Weights that are used where they lie in the mapped file.
    pub mapped_weights: u64,
    /// Adapters that are held apart, as f32.
    pub adapters: u64,
    /// What was quantised at load.
    pub quantised: Quantised,
    /// The table of rotations.
    pub rope: u64,
    /// The buffers of a forward pass.
    pub work: u64,
    /// One page: keys, values and (where they are kept) hidden rows of 16 positions.
    pub page_bytes: u64,
    /// Most positions of a sequence.
    pub context: usize,
    pub vocab: usize,
    /// One position of the table of rotations.
    pub rope_position: u64,
}

impl Footprint {
    /// The footprint of a model hosted with these options; `threads` does not matter.
    ///
    /// It refuses what loading would refuse: options that contradict the files, missing tensors and
    /// tensors of other shapes.
    pub fn of(files: &ModelFiles, options: &LoadOptions) -> Result<Self, ModelError> {
        Self::on::<Cpu>(files, options)
    }

    /// The footprint of a model whose files are not here, by the sizes of its manifest and the types
    /// of its quantisation; adapters are left out.
    pub fn estimated(
        spec: ModelSpec,
        recipe: Recipe,
        options: &LoadOptions,
    ) -> Result<Self, ModelError> {
        let spec = options.applied_to(spec)?;
        let mut count = Count::<Cpu>::default();
        count.quantised.asked = options.quantise;
        for (kind, shape) in spec.matrices(recipe) {
            let held = options.quantise.map_or(kind, |quantise| quantise.of(kind, shape[1]));
            count.matrix_of(kind, held, held != kind, shape);
        }
        count.held += 4 * spec.vector_numbers() as u64;
        Ok(Self::counted(&spec, &count, 0, options))
    }

    fn on<O: Ops>(files: &ModelFiles, options: &LoadOptions) -> Result<Self, ModelError> {
        let spec = options.applied_to(ModelSpec::from_files(files)?)?;
        let adapters = options.adapters(&spec, files)?;
        let mut count = Count::<O>::default();
        count.quantised.asked = options.quantise;
        let holding = Holding { quantise: options.quantise, merged: adapters.merged.as_ref() };
        weights::load(&mut count, &spec, files, holding)?;
        let adapters = adapters.apart.iter().map(|adapter| adapter.bytes()).sum();
        Ok(Self::counted(&spec, &count, adapters, options))
    }

    fn counted<O: Ops>(
        spec: &ModelSpec,
        count: &Count<O>,
        adapters: u64,
        options: &LoadOptions,
    ) -> Self {
        let footprint = Self {
            held_weights: count.held,
            mapped_weights: count.mapped,
            adapters,
            quantised: count.quantised,
            rope: 0,
            work: work_bytes::<O>(spec, options.keep_hidden),
            page_bytes: options.page_layout(spec).page_bytes() as u64,
            context: spec.context_length,
            vocab: spec.vocab,
            rope_position: 4 * spec.head_dim as u64,
        };
        footprint.with_pages(options.pages)
    }

    /// The same model with another number of pages: fewer than a whole context shorten the table of
    /// rotations.
    pub fn with_pages(self, pages: usize) -> Self {
        let positions = self.context.min(pages.saturating_mul(PAGE_POSITIONS));
        Self { rope: positions as u64 * self.rope_position, ..self }
    }

    /// Everything but pages.
    pub fn without_pages(&self) -> u64 {
        [self.held_weights, self.mapped_weights, self.adapters, self.rope, self.work]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// Buffers of one pass: `[ROWS, …]` f32, and what products make of their inputs.
fn work_bytes<O: Ops>(spec: &ModelSpec, keep_hidden: bool) -> u64 {
    let last_hidden = if keep_hidden { 0 } else { spec.hidden };
    let floats = ROWS * (forward::widths(spec).iter().sum::<usize>() + last_hidden);
    let inputs = [spec.hidden, spec.heads * spec.head_dim, spec.ffn];
    let scratch: usize = inputs.iter().map(|&width| O::scratch_bytes(ROWS, width)).sum();
    (4 * floats + scratch) as u64
}

/// A shelf that only counts what a device would hold.
struct Count<O> {
    held: u64,
    mapped: u64,
    quantised: Quantised,
    device: std::marker::PhantomData<O>,
}

impl<O> Default for Count<O> {
    fn default() -> Self {
        let quantised = Quantised::default();
        Self { held: 0, mapped: 0, quantised, device: std::marker::PhantomData }
    }
}

impl<O: Ops> Count<O> {
    /// Counts a matrix `[outputs, inputs]` that is of one type in its file and held as another.
    fn matrix_of(
        &mut self,
        kind: WeightType,
        held: WeightType,
        is_converted: bool,
        [outputs, inputs]: [usize; 2],
    ) {
        self.quantised.count(kind, held);
        if is_converted {
            self.held += O::converted_bytes(held, outputs, inputs) as u64;
            return;
        }
        match O::weight_bytes(kind, outputs, inputs) {
            0 => {
                let blocks = (outputs * inputs / kind.block_len()) as u64;
                self.mapped += blocks * kind.block_bytes() as u64;
            }
            held => self.held += held as u64,
        }
    }
}

impl<O: Ops> Shelf for Count<O> {
    type Weight = ();
    type Buffer = ();

    fn matrix(&mut self, source: &Source<'_>) -> Result<(), ModelError> {
        let tensor = source.tensor;
        let [outputs, inputs] = tensor.shape[..] else { return Ok(()) };
        let (kind, held) = (tensor.kind, source.kind);
        self.matrix_of(kind, held, source.is_converted(), [outputs, inputs]);
        Ok(())
    }

    fn vector(&mut self, tensor: &Tensor) -> Result<(), ModelError> {
        weights::check_vector(tensor)?;
        self.held += 4 * tensor.shape.iter().product::<usize>() as u64;
        Ok(())
    }
}
