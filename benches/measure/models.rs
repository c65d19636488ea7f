//! Model files that the benches make once, below `target/peer/`: the default model in other formats,
//! and random weights of larger shapes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::{model_file, stop};

/// Widths of a decoder of the Llama family.
pub struct Shape {
    pub name: &'static str,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ffn: usize,
    /// The head is a matrix of its own.
    pub has_head: bool,
}

/// Llama-3.2-1B.
pub const ONE_BILLION: Shape = Shape {
    name: "1b",
    layers: 16,
    hidden: 2048,
    heads: 32,
    kv_heads: 8,
    head_dim: 64,
    ffn: 8192,
    has_head: false,
};

/// Mistral-7B.
pub const SEVEN_BILLION: Shape = Shape {
    name: "7b",
    layers: 32,
    hidden: 4096,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    ffn: 14336,
    has_head: true,
};

/// The default model with every matrix in another format: dequantised and quantised again, as exact as
/// the file that it comes from.
pub fn requantised(format: GgmlDType) -> PathBuf {
    make(&format!("default-{format:?}"), |path| {
        let (content, mut file) = default_model()?;
        let mut tensors = Vec::new();
        let mut names: Vec<&String> = content.tensor_infos.keys().collect();
        names.sort();
        for name in names {
            let tensor = content.tensor(&mut file, name, &Device::Cpu)?;
            let tensor = match tensor.rank() {
                2 => QTensor::quantize(&tensor.dequantize(&Device::Cpu)?, format)?,
                _ => tensor,
            };
            tensors.push((name.clone(), tensor));
        }
        let metadata: Vec<(&str, &Value)> =
            content.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> =
            tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        write(path, &metadata, &tensors)
    })
}

/// Random weights of a shape in the mixture that is called Q4_K_M: Q6_K for the embedding or head and,
/// in every second layer, for values and the second product of the feed-forward block; Q4_K elsewhere.
/// The vocabulary is the default model's. All matrices of one shape and format are the same.
pub fn synthetic(shape: &Shape) -> PathBuf {
    make(&format!("random-{}-Q4_K_M", shape.name), |path| {
        let (content, _) = default_model()?;
        let vocab = match content.metadata.get("tokenizer.ggml.tokens") {
            Some(tokens) => tokens.to_vec()?.len(),
            None => 0,
        };
        let mut metadata = content.metadata;
        for (key, value) in [
            ("block_count", shape.layers),
            ("embedding_length", shape.hidden),
            ("feed_forward_length", shape.ffn),
            ("attention.head_count", shape.heads),
            ("attention.head_count_kv", shape.kv_heads),
            ("attention.key_length", shape.head_dim),
            ("attention.value_length", shape.head_dim),
            ("rope.dimension_count", shape.head_dim),
            ("vocab_size", vocab),
        ] {
            metadata.insert(format!("llama.{key}"), Value::U32(value as u32));
        }
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let (main, fine) = (GgmlDType::Q4K, GgmlDType::Q6K);
        let mut wanted = vec![("token_embd.weight".to_owned(), vocab, shape.hidden, fine)];
        if shape.has_head {
            wanted[0].3 = main;
            wanted.push(("output.weight".to_owned(), vocab, shape.hidden, fine));
        }
        for layer in 0..shape.layers {
            let often = if layer % 2 == 0 { fine } else { main };
            for (name, rows, columns, format) in [
                ("attn_q", q, shape.hidden, main),
                ("attn_k", kv, shape.hidden, main),
                ("attn_v", kv, shape.hidden, often),
                ("attn_output", shape.hidden, q, main),
                ("ffn_gate", shape.ffn, shape.hidden, main),
                ("ffn_up", shape.ffn, shape.hidden, main),
                ("ffn_down", shape.hidden, shape.ffn, often),
            ] {
                wanted.push((format!("blk.{layer}.{name}.weight"), rows, columns, format));
            }
        }
        let ones = Tensor::ones(shape.hidden, candle_core::DType::F32, &Device::Cpu)?;
        let ones = QTensor::quantize(&ones, GgmlDType::F32)?;
        let mut made: HashMap<(usize, usize, GgmlDType), QTensor> = HashMap::new();
        for (_, rows, columns, format) in &wanted {
            if let Entry::Vacant(place) = made.entry((*rows, *columns, *format)) {
                let spread = 1.0 / (*columns as f32).sqrt();
                let numbers = Tensor::randn(0.0, spread, (*rows, *columns), &Device::Cpu)?;
                place.insert(QTensor::quantize(&numbers, *format)?);
            }
        }
        let norms: Vec<String> = (0..shape.layers)
            .flat_map(|layer| ["attn_norm", "ffn_norm"].map(|n| format!("blk.{layer}.{n}.weight")))
            .chain(["output_norm.weight".to_owned()])
            .collect();
        let mut tensors: Vec<(&str, &QTensor)> = wanted
            .iter()
            .map(|(name, rows, columns, format)| {
                (name.as_str(), &made[&(*rows, *columns, *format)])
            })
            .collect();
        tensors.extend(norms.iter().map(|name| (name.as_str(), &ones)));
        let metadata: Vec<(&str, &Value)> =
            metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        write(path, &metadata, &tensors)
    })
}

fn default_model() -> candle_core::Result<(Content, File)> {
    let mut file = File::open(model_file())?;
    Ok((Content::read(&mut file)?, file))
}

/// The file of this name; made if it is not there.
fn make(name: &str, work: impl FnOnce(&Path) -> candle_core::Result<()>) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peer");
    let (path, part) = (folder.join(format!("{name}.gguf")), folder.join(format!("{name}.part")));
    if !path.is_file() {
        println!("making {}", path.display());
        let made = std::fs::create_dir_all(&folder).map_err(Into::into).and_then(|()| work(&part));
        made.unwrap_or_else(|e| stop(&format!("{}: {e}", part.display())));
        std::fs::rename(&part, &path).unwrap_or_else(|e| stop(&e.to_string()));
    }
    path
}

fn write(
    path: &Path,
    metadata: &[(&str, &Value)],
    tensors: &[(&str, &QTensor)],
) -> candle_core::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    gguf_file::write(&mut file, metadata, tensors)?;
    Ok(std::io::Write::flush(&mut file)?)
}
