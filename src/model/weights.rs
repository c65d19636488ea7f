//! The weights of a decoder on a device, checked against its options while they are loaded.

use super::adapter::{Adapter, Numbers};
use super::{LayerTensor, ModelError, ModelSpec, Names, Quantise};
use crate::device::Ops;
use crate::store::{ModelFiles, Tensor, WeightType};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// All weights of a decoder: matrices `W` and vectors `B` as a [`Shelf`] holds them.
pub(super) struct Weights<W, B> {
    /// `[vocab, hidden]`; the head too, where it is tied.
    pub embedding: W,
    pub layers: Vec<LayerWeights<W, B>>,
    /// `[hidden]`
    pub final_norm: B,
    /// `[vocab, hidden]`
    pub head: Option<W>,
}

/// A product and its bias.
pub(super) struct LinearWeights<W, B> {
    pub weight: W,
    pub bias: Option<B>,
}

pub(super) struct LayerWeights<W, B> {
    /// `[hidden]`
    pub attention_norm: B,
    /// `[heads * head_dim, hidden]`
    pub query: LinearWeights<W, B>,
    /// `[kv_heads * head_dim, hidden]`
    pub key: LinearWeights<W, B>,
    /// `[kv_heads * head_dim, hidden]`
    pub value: LinearWeights<W, B>,
    /// Norms of query and key heads, `[head_dim]` each.
    pub head_norms: Option<(B, B)>,
    /// `[hidden, heads * head_dim]`
    pub output: W,
    /// `[hidden]`
    pub feed_forward_norm: B,
    /// `[ffn, hidden]`
    pub gate: W,
    /// `[ffn, hidden]`
    pub up: W,
    /// `[hidden, ffn]`
    pub down: W,
}

/// A matrix that is to be loaded, and how it is held.
pub(super) struct Source<'a> {
    /// `[outputs, inputs]`
    pub tensor: &'a Tensor,
    pub kind: WeightType,
    /// A merged adapter's part.
    pub added: Option<&'a Numbers>,
}

impl Source<'_> {
    /// Whether it is held otherwise than the file has it.
    pub(super) fn is_converted(&self) -> bool {
        self.kind != self.tensor.kind || self.added.is_some()
    }
}

/// How a model's matrices are held.
#[derive(Clone, Copy, Default)]
pub(super) struct Holding<'a> {
    pub quantise: Option<Quantise>,
    pub merged: Option<&'a Adapter>,
}

/// Where tensors go when they are loaded: onto a device, or only into a sum of bytes.
pub(super) trait Shelf {
    type Weight;
    type Buffer;

    /// Takes a matrix `[outputs, inputs]`.
    fn matrix(&mut self, source: &Source<'_>) -> Result<Self::Weight, ModelError>;

    /// Takes a vector of a plain type.
    fn vector(&mut self, tensor: &Tensor) -> Result<Self::Buffer, ModelError>;
}

/// A device as a shelf. The memory of mapped tensors that were copied is given back, so that loading
/// holds one copy of the weights and not two.
pub(super) struct OnDevice<'a, O> {
    ops: &'a O,
    /// Copied, and not given back yet.
    copied: Vec<Tensor>,
    copied_bytes: usize,
}

/// Copied bytes that wait to be given back together: each time costs a call and a flush.
const GIVEN_BACK_AT_ONCE: usize = 16 << 20;

impl<'a, O: Ops> OnDevice<'a, O> {
    pub(super) fn new(ops: &'a O) -> Self {
        Self { ops, copied: Vec::new(), copied_bytes: 0 }
    }

    fn copied(&mut self, tensor: &Tensor) {
        self.copied_bytes += tensor.bytes().len();
        self.copied.push(tensor.clone());
        if self.copied_bytes >= GIVEN_BACK_AT_ONCE {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        Tensor::forget(&self.copied);
        self.copied.clear();
        self.copied_bytes = 0;
    }
}

impl<O> Drop for OnDevice<'_, O> {
    fn drop(&mut self) {
        Tensor::forget(&self.copied);
    }
}

impl<O: Ops> Shelf for OnDevice<'_, O> {
    type Weight = O::Weight;
    type Buffer = O::Buffer;

    fn matrix(&mut self, source: &Source<'_>) -> Result<O::Weight, ModelError> {
        let tensor = source.tensor;
        if source.is_converted() {
            let added = source.added.map(Numbers::added);
            let weight = self.ops.converted(tensor, source.kind, added)?;
            self.copied(tensor);
            return Ok(weight);
        }
        let weight = self.ops.weight(tensor)?;
        let [outputs, inputs] = tensor.shape[..] else { return Ok(weight) };
        if O::weight_bytes(tensor.kind, outputs, inputs) > 0 {
            self.copied(tensor);
        }
        Ok(weight)
    }

    fn vector(&mut self, tensor: &Tensor) -> Result<O::Buffer, ModelError> {
        let buffer = self.ops.upload(&plain_numbers(tensor)?)?;
        self.copied(tensor);
        Ok(buffer)
    }
}

/// Loads every tensor that the options name, and refuses files that hold others: a tensor that is
/// not used is a result that is not right.
pub(super) fn load<S: Shelf>(
    shelf: &mut S,
    spec: &ModelSpec,
    files: &ModelFiles,
    holding: Holding<'_>,
) -> Result<Weights<S::Weight, S::Buffer>, ModelError> {
    let names = Names::of(files);
    let used = BTreeSet::new();
    let mut loader = Loader { shelf, files, holding, names, used, plain: 0, quantised: 0 };
    let table = [spec.vocab, spec.hidden];
    let weights = Weights {
        embedding: loader.matrix(names.embedding(), table, None)?,
        layers: (0..spec.layers)
            .map(|layer| loader.layer(spec, layer))
            .collect::<Result<_, _>>()?,
        final_norm: loader.vector(names.final_norm(), spec.hidden)?,
        head: match spec.tied_head {
            true => None,
            false => Some(loader.matrix(names.head(), table, None)?),
        },
    };
    loader.refuse_the_rest(spec.tied_head)?;
    loader.refuse_to_quantise_twice()?;
    Ok(weights)
}

struct Loader<'a, S> {
    shelf: &'a mut S,
    files: &'a ModelFiles,
    holding: Holding<'a>,
    names: Names,
    used: BTreeSet<String>,
    /// Matrices of a plain type in the files, and of block formats.
    plain: usize,
    quantised: usize,
}

impl<S: Shelf> Loader<'_, S> {
    /// The file or folder, for errors.
    fn file(&self) -> PathBuf {
        self.files.path().to_owned()
    }

    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, ModelError> {
        let tensor = self.files.tensor(name).ok_or_else(|| ModelError::MissingTensor {
            file: self.file(),
            tensor: name.to_owned(),
        })?;
        if tensor.shape != expected {
            return Err(ModelError::Shape {
                file: self.file(),
                tensor: name.to_owned(),
                found: tensor.shape,
                expected: expected.to_vec(),
            });
        }
        self.used.insert(name.to_owned());
        Ok(tensor)
    }

    fn matrix(
        &mut self,
        name: &str,
        shape: [usize; 2],
        added: Option<Numbers>,
    ) -> Result<S::Weight, ModelError> {
        let tensor = self.tensor(name, &shape)?;
        match tensor.kind.block_len() {
            1 => self.plain += 1,
            _ => self.quantised += 1,
        }
        let kind = match self.holding.quantise {
            Some(quantise) => quantise.of(tensor.kind, shape[1]),
            None => tensor.kind,
        };
        self.shelf.matrix(&Source { tensor: &tensor, kind, added: added.as_ref() })
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<S::Buffer, ModelError> {
        let tensor = self.tensor(name, &[len])?;
        self.shelf.vector(&tensor)
    }

    fn layer(
        &mut self,
        spec: &ModelSpec,
        layer: usize,
    ) -> Result<LayerWeights<S::Weight, S::Buffer>, ModelError> {
        use LayerTensor as T;
        let names = self.names;
        let matrix = |loader: &mut Self, tensor| -> Result<S::Weight, ModelError> {
            let merged = loader.holding.merged;
            let added = merged.map(|adapter| adapter.numbers(layer, tensor)).transpose()?;
            loader.matrix(&names.layer(layer, tensor), spec.shape(tensor), added.flatten())
        };
        let vector = |loader: &mut Self, tensor| -> Result<S::Buffer, ModelError> {
            loader.vector(&names.layer(layer, tensor), spec.shape(tensor)[1])
        };
        let product = |loader: &mut Self, weight, bias| -> Result<_, ModelError> {
            Ok(LinearWeights {
                weight: matrix(loader, weight)?,
                bias: match spec.qkv_bias {
                    true => Some(vector(loader, bias)?),
                    false => None,
                },
            })
        };
        Ok(LayerWeights {
            attention_norm: vector(self, T::AttentionNorm)?,
            query: product(self, T::Query, T::QueryBias)?,
            key: product(self, T::Key, T::KeyBias)?,
            value: product(self, T::Value, T::ValueBias)?,
            head_norms: match spec.qk_norm {
                true => Some((vector(self, T::QueryNorm)?, vector(self, T::KeyNorm)?)),
                false => None,
            },
            output: matrix(self, T::Output)?,
            feed_forward_norm: vector(self, T::FeedForwardNorm)?,
            gate: matrix(self, T::Gate)?,
            up: matrix(self, T::Up)?,
            down: matrix(self, T::Down)?,
        })
    }

    /// Where every matrix is in a block format already, nothing would be done, and the user would think
    /// that it was.
    fn refuse_to_quantise_twice(&self) -> Result<(), ModelError> {
        match self.holding.quantise {
            Some(asked) if self.plain == 0 && self.quantised > 0 => {
                Err(ModelError::unsupported(format!(
                    "{}: all {} matrices are quantised already, so they cannot be quantised to {:?} as \
                     they are loaded; leave --quantise away, or take the model's plain checkpoint (F32, \
                     F16 or BF16)",
                    self.file().display(),
                    self.quantised,
                    asked.kind()
                )))
            }
            _ => Ok(()),
        }
    }

    fn refuse_the_rest(&self, tied_head: bool) -> Result<(), ModelError> {
        let rest: Vec<&str> = self
            .files
            .tensor_names()
            .filter(|name| !self.used.contains(*name) && !self.names.is_idle(name, tied_head))
            .collect();
        let Some(first) = rest.first() else { return Ok(()) };
        Err(ModelError::unsupported(format!(
            "{}: the model holds {} tensors that its family does not use (the first is {first}), so its \
             results would not be right; take a model of one of the supported families",
            self.file().display(),
            rest.len()
        )))
    }
}

/// Refuses vectors in block formats.
pub(super) fn check_vector(tensor: &Tensor) -> Result<(), ModelError> {
    if tensor.kind.block_len() == 1 { Ok(()) } else { Err(no_vector(tensor)) }
}

fn no_vector(tensor: &Tensor) -> ModelError {
    ModelError::unsupported(format!(
        "tensor {} is a vector in {:?}; norms and biases are read as F32, F16 or BF16",
        tensor.name, tensor.kind
    ))
}

/// The numbers of a plain tensor as f32.
pub(super) fn plain_numbers(tensor: &Tensor) -> Result<Vec<f32>, ModelError> {
    let bytes = tensor.bytes();
    let halves = || bytes.as_chunks::<2>().0.iter();
    match tensor.kind {
        WeightType::F32 => {
            Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
        }
        WeightType::F16 => Ok(halves().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()),
        WeightType::BF16 => Ok(halves().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()),
        _ => Err(no_vector(tensor)),
    }
}
