//! The store through its public door: GGUF, safetensors, manifests, pulling, opening.

use crate::support;
use unsay::store::{Gguf, WeightType};

#[test]
fn the_default_model_is_read() {
    let gguf = Gguf::open(&support::default_model()).unwrap();
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.bytes_mapped(), 98_362_432);
    assert_eq!(gguf.tensor_names().count(), 272);
    let metadata = gguf.metadata();
    assert_eq!(metadata.string("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.u32("llama.block_count").unwrap(), 30);
    assert_eq!(metadata.f32("llama.rope.freq_base").unwrap(), 1e5);
    assert!(!metadata.bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(metadata.strings("tokenizer.ggml.tokens").unwrap().len(), 49_152);
    assert_eq!(metadata.i32s("tokenizer.ggml.token_type").unwrap()[..17], [3; 17]);

    let embedding = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!((embedding.kind, &embedding.shape[..]), (WeightType::Q8_0, &[49_152, 576][..]));
    assert_eq!(embedding.bytes().len(), 49_152 * 576 / 32 * 34);
    let down = gguf.tensor("blk.0.ffn_down.weight").unwrap();
    assert_eq!((down.kind, &down.shape[..]), (WeightType::Q4_1, &[576, 1536][..]));
    assert!(gguf.tensor("no.such.tensor").is_none());
}
