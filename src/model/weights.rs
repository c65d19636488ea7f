//! The weights of a decoder on a device, checked against its options while they are loaded.

use super::{LayerTensor, ModelError, ModelSpec, Names};
use crate::device::Ops;
use crate::store::{ModelFiles, Tensor, WeightType};
use std::collections::BTreeSet;

pub(super) struct Weights<O: Ops> {
    /// `[vocab, hidden]`; the head too, where it is tied.
    pub embedding: O::Weight,
    pub layers: Vec<LayerWeights<O>>,
    /// `[hidden]`
    pub final_norm: O::Buffer,
    /// `[vocab, hidden]`
    pub head: Option<O::Weight>,
}

/// A product and its bias.
pub(super) struct LinearWeights<O: Ops> {
    pub weight: O::Weight,
    pub bias: Option<O::Buffer>,
}

pub(super) struct LayerWeights<O: Ops> {
    /// `[hidden]`
    pub attention_norm: O::Buffer,
    /// `[heads * head_dim, hidden]`
    pub query: LinearWeights<O>,
    /// `[kv_heads * head_dim, hidden]`
    pub key: LinearWeights<O>,
    /// `[kv_heads * head_dim, hidden]`
    pub value: LinearWeights<O>,
    /// Norms of query and key heads, `[head_dim]` each.
    pub head_norms: Option<(O::Buffer, O::Buffer)>,
    /// `[hidden, heads * head_dim]`
    pub output: O::Weight,
    /// `[hidden]`
    pub feed_forward_norm: O::Buffer,
    /// `[ffn, hidden]`
    pub gate: O::Weight,
    /// `[ffn, hidden]`
    pub up: O::Weight,
    /// `[hidden, ffn]`
    pub down: O::Weight,
}

/// Loads every tensor that the options name, and refuses files that hold others: a tensor that is
/// not used is a result that is not right.
pub(super) fn load<O: Ops>(
    ops: &O,
    spec: &ModelSpec,
    files: &ModelFiles,
) -> Result<Weights<O>, ModelError> {
    let mut loader = Loader { ops, files, names: Names::of(files), used: BTreeSet::new() };
    let names = loader.names;
    let weights = Weights {
        embedding: loader.matrix(names.embedding(), spec.vocab, spec.hidden)?,
        layers: (0..spec.layers)
            .map(|layer| loader.layer(spec, layer))
            .collect::<Result<_, _>>()?,
        final_norm: loader.vector(names.final_norm(), spec.hidden)?,
        head: match spec.tied_head {
            true => None,
            false => Some(loader.matrix(names.head(), spec.vocab, spec.hidden)?),
        },
    };
    loader.refuse_the_rest(spec.tied_head)?;
    Ok(weights)
}

struct Loader<'a, O> {
    ops: &'a O,
    files: &'a ModelFiles,
    names: Names,
    used: BTreeSet<String>,
}

impl<O: Ops> Loader<'_, O> {
    fn tensor(&mut self, name: &str, expected: &[usize]) -> Result<Tensor, ModelError> {
        let tensor = self
            .files
            .tensor(name)
            .ok_or_else(|| ModelError::MissingTensor { tensor: name.to_owned() })?;
        if tensor.shape != expected {
            return Err(ModelError::Shape {
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
        outputs: usize,
        inputs: usize,
    ) -> Result<O::Weight, ModelError> {
        let tensor = self.tensor(name, &[outputs, inputs])?;
        Ok(self.ops.weight(&tensor)?)
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<O::Buffer, ModelError> {
        let tensor = self.tensor(name, &[len])?;
        Ok(self.ops.upload(&plain_numbers(&tensor)?)?)
    }

    fn layer(&mut self, spec: &ModelSpec, layer: usize) -> Result<LayerWeights<O>, ModelError> {
        use LayerTensor as T;
        let names = self.names;
        let name = |tensor| names.layer(layer, tensor);
        let (q, kv) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let mut product = |weight, bias, outputs| -> Result<LinearWeights<O>, ModelError> {
            Ok(LinearWeights {
                weight: self.matrix(&name(weight), outputs, spec.hidden)?,
                bias: match spec.qkv_bias {
                    true => Some(self.vector(&name(bias), outputs)?),
                    false => None,
                },
            })
        };
        let query = product(T::Query, T::QueryBias, q)?;
        let key = product(T::Key, T::KeyBias, kv)?;
        let value = product(T::Value, T::ValueBias, kv)?;
        let head_norms = match spec.qk_norm {
            true => Some((
                self.vector(&name(T::QueryNorm), spec.head_dim)?,
                self.vector(&name(T::KeyNorm), spec.head_dim)?,
            )),
            false => None,
        };
        Ok(LayerWeights {
            attention_norm: self.vector(&name(T::AttentionNorm), spec.hidden)?,
            query,
            key,
            value,
            head_norms,
            output: self.matrix(&name(T::Output), spec.hidden, q)?,
            feed_forward_norm: self.vector(&name(T::FeedForwardNorm), spec.hidden)?,
            gate: self.matrix(&name(T::Gate), spec.ffn, spec.hidden)?,
            up: self.matrix(&name(T::Up), spec.ffn, spec.hidden)?,
            down: self.matrix(&name(T::Down), spec.hidden, spec.ffn)?,
        })
    }

    fn refuse_the_rest(&self, tied_head: bool) -> Result<(), ModelError> {
        let rest: Vec<&str> = self
            .files
            .tensor_names()
            .filter(|name| !self.used.contains(*name) && !self.names.is_idle(name, tied_head))
            .collect();
        let Some(first) = rest.first() else { return Ok(()) };
        Err(ModelError::unsupported(format!(
            "the model holds {} tensors that its family does not use (the first is {first}), so its \
             results would not be right; take a model of one of the supported families",
            rest.len()
        )))
    }
}

/// The numbers of a plain tensor as f32.
fn plain_numbers(tensor: &Tensor) -> Result<Vec<f32>, ModelError> {
    let bytes = tensor.bytes();
    let halves = || bytes.as_chunks::<2>().0.iter();
    match tensor.kind {
        WeightType::F32 => {
            Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
        }
        WeightType::F16 => Ok(halves().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()),
        WeightType::BF16 => Ok(halves().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()),
        kind => Err(ModelError::unsupported(format!(
            "tensor {} is a vector in {kind:?}; norms and biases are read as F32, F16 or BF16",
            tensor.name
        ))),
    }
}
