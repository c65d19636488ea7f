//! The same `ModelSpec` on candle tensors: small, slow, the oracle of tests. Uses `model`, `store`.
//!
//! Written from the formulas and not from the forward pass: whole sequences, f32 throughout, no
//! cache, weights dequantised by candle. What the two share are the options and the tensors' names.

mod rope;

use crate::device::cpu::ggml_type;
use crate::model::{LayerTensor, ModelError, ModelSpec, Names};
use crate::store::{ModelFiles, Tensor as FileTensor};
use crate::text::TokenId;
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{D, Device, Result as CandleResult, Tensor};
use rope::rotate;
use std::borrow::Cow;

/// Why the reference could not be built or run.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the reference graph: {0}")]
    Candle(#[from] candle_core::Error),
}

/// A decoder as a graph of candle tensors.
pub struct Reference {
    spec: ModelSpec,
    /// `[vocab, hidden]`
    embedding: Tensor,
    layers: Vec<Layer>,
    final_norm: Tensor,
    /// `[vocab, hidden]`
    head: Tensor,
}

/// A product, `x · weightᵀ + bias`.
struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    fn apply(&self, x: &Tensor) -> CandleResult<Tensor> {
        let product = x.matmul(&self.weight.t()?)?;
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}

struct Layer {
    attention_norm: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    head_norms: Option<(Tensor, Tensor)>,
    output: Linear,
    feed_forward_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// Reads a tensor as f32.
fn read(files: &ModelFiles, name: &str) -> Result<Tensor, ReferenceError> {
    let tensor = files.tensor(name).ok_or_else(|| ModelError::MissingTensor {
        file: files.path().to_owned(),
        tensor: name.to_owned(),
    })?;
    Ok(dequantise(&tensor)?)
}

fn dequantise(tensor: &FileTensor) -> CandleResult<Tensor> {
    // candle asks for aligned bytes, files do not promise them.
    let bytes = tensor.bytes();
    let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
    let aligned = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut aligned)[..bytes.len()];
    aligned.copy_from_slice(bytes);
    let storage =
        QStorage::from_data(Cow::Borrowed(aligned), &Device::Cpu, ggml_type(tensor.kind))?;
    QTensor::new(storage, tensor.shape.as_slice())?.dequantize(&Device::Cpu)
}

impl Layer {
    fn load(files: &ModelFiles, spec: &ModelSpec, layer: usize) -> Result<Self, ReferenceError> {
        use LayerTensor as T;
        let names = Names::of(files);
        let tensor = |tensor| read(files, &names.layer(layer, tensor));
        let plain =
            |weight| Ok::<_, ReferenceError>(Linear { weight: tensor(weight)?, bias: None });
        let biased = |weight, bias| -> Result<Linear, ReferenceError> {
            let bias = if spec.qkv_bias { Some(tensor(bias)?) } else { None };
            Ok(Linear { weight: tensor(weight)?, bias })
        };
        Ok(Self {
            attention_norm: tensor(T::AttentionNorm)?,
            query: biased(T::Query, T::QueryBias)?,
            key: biased(T::Key, T::KeyBias)?,
            value: biased(T::Value, T::ValueBias)?,
            head_norms: match spec.qk_norm {
                true => Some((tensor(T::QueryNorm)?, tensor(T::KeyNorm)?)),
                false => None,
            },
            output: plain(T::Output)?,
            feed_forward_norm: tensor(T::FeedForwardNorm)?,
            gate: plain(T::Gate)?,
            up: plain(T::Up)?,
            down: plain(T::Down)?,
        })
    }

    /// `x [n, hidden]` after this layer.
    fn apply(&self, x: &Tensor, spec: &ModelSpec) -> CandleResult<Tensor> {
        let x = (x + self.attend(&rms_norm(x, &self.attention_norm, spec.norm_eps)?, spec)?)?;
        let h = rms_norm(&x, &self.feed_forward_norm, spec.norm_eps)?;
        let gated = (silu(&self.gate.apply(&h)?)? * self.up.apply(&h)?)?;
        x + self.down.apply(&gated)?
    }

    /// softmax(q kᵀ / sqrt(head_dim), causal) v, all heads, then the output product.
    fn attend(&self, x: &Tensor, spec: &ModelSpec) -> CandleResult<Tensor> {
        let n = x.dim(0)?;
        // [heads, n, head_dim]
        let split = |x: Tensor, heads: usize, norm: Option<&Tensor>| -> CandleResult<Tensor> {
            let x = x.reshape((n, heads, spec.head_dim))?.transpose(0, 1)?.contiguous()?;
            match norm {
                Some(weight) => rms_norm(&x, weight, spec.norm_eps),
                None => Ok(x),
            }
        };
        let (q_norm, k_norm) = match &self.head_norms {
            Some((q, k)) => (Some(q), Some(k)),
            None => (None, None),
        };
        let q = rotate(&split(self.query.apply(x)?, spec.heads, q_norm)?, spec)?;
        let k = rotate(&split(self.key.apply(x)?, spec.kv_heads, k_norm)?, spec)?;
        let v = split(self.value.apply(x)?, spec.kv_heads, None)?;
        let group = spec.heads / spec.kv_heads;
        let shared: Vec<u32> = (0..spec.heads).map(|head| (head / group) as u32).collect();
        let shared = Tensor::new(shared, x.device())?;
        let (k, v) = (k.index_select(&shared, 0)?, v.index_select(&shared, 0)?);
        let scores = (q.matmul(&k.t()?.contiguous()?)? / (spec.head_dim as f64).sqrt())?;
        let mask: Vec<f32> =
            (0..n * n).map(|i| if i % n > i / n { f32::NEG_INFINITY } else { 0.0 }).collect();
        let scores = scores.broadcast_add(&Tensor::from_vec(mask, (n, n), x.device())?)?;
        let attended = softmax(&scores)?.matmul(&v)?;
        let attended = attended.transpose(0, 1)?.reshape((n, spec.heads * spec.head_dim))?;
        self.output.apply(&attended)
    }
}

impl Reference {
    /// Reads all weights as f32.
    pub fn load(files: &ModelFiles) -> Result<Self, ReferenceError> {
        let spec = ModelSpec::from_files(files)?;
        let names = Names::of(files);
        let embedding = read(files, names.embedding())?;
        Ok(Self {
            head: if spec.tied_head { embedding.clone() } else { read(files, names.head())? },
            embedding,
            layers: (0..spec.layers)
                .map(|layer| Layer::load(files, &spec, layer))
                .collect::<Result<_, _>>()?,
            final_norm: read(files, names.final_norm())?,
            spec,
        })
    }

    /// Logits of every position of a sequence, `[ids.len(), vocab]`.
    pub fn logits(&self, ids: &[TokenId]) -> Result<Tensor, ReferenceError> {
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        let ids = Tensor::new(ids, self.embedding.device())?;
        let mut x = self.embedding.index_select(&ids, 0)?;
        for layer in &self.layers {
            x = layer.apply(&x, &self.spec)?;
        }
        let x = rms_norm(&x, &self.final_norm, self.spec.norm_eps)?;
        Ok(x.matmul(&self.head.t()?)?)
    }
}

/// `x / sqrt(mean(x²) + eps) * weight` over the last dimension.
fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> CandleResult<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + f64::from(eps))?.sqrt()?)?.broadcast_mul(weight)
}

/// `x / (1 + exp(-x))`.
fn silu(x: &Tensor) -> CandleResult<Tensor> {
    x / (x.neg()?.exp()? + 1.0)?
}

/// Over the last dimension.
fn softmax(x: &Tensor) -> CandleResult<Tensor> {
    let weights = x.broadcast_sub(&x.max_keepdim(D::Minus1)?)?.exp()?;
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}
