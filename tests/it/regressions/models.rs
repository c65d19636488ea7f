//! Models that were read wrongly: pairs of rotations, heads that are not there. Each names the public
//! issue where it was reported.

use unsay::device::KvType;
use unsay::store::{ModelFiles, SafetensorsModel};

use crate::model::converted::gguf_of;
use crate::model::oracle::{Expected, expected, run, worst_share};
use crate::model::{open_folder, oracle};

/// candle 3410: quantised Qwen2 rotated other pairs than it was trained with, and degenerated after
/// some 30 tokens.
#[test]
fn pairs_of_rotations_are_those_of_the_family_and_the_format() {
    for name in ["llama_gqa7", "mistral", "qwen2_untied", "qwen3_untied"] {
        let Expected { ids, logits, positions } = expected(&oracle(name));
        let at = positions.iter().position(|&p| p == 511).expect("position 511");
        let wanted = &logits[at..=at];
        for files in [open_folder(&oracle(name)), gguf_of(&oracle(name))] {
            let share = worst_share(&run(&files, KvType::F32, &ids[..512], &[511]), wanted);
            assert!(share < 1e-4, "{name}, {}: {share} of the range", files.path().display());
        }
    }
}

/// candle 2256, 2443: `lm_head` was not found where the head is the embedding.
#[test]
fn a_head_that_is_not_there_is_the_embedding() {
    for name in ["llama_tied", "qwen2_tied", "qwen3_tied"] {
        let folder = tempfile::tempdir().unwrap();
        let copy = |file: &str| std::fs::copy(oracle(name).join(file), folder.path().join(file));
        copy("model.safetensors").unwrap();
        // The file does not say so.
        let text = std::fs::read_to_string(oracle(name).join("config.legacy.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config["tie_word_embeddings"] = serde_json::json!(false);
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let files = ModelFiles::Safetensors(SafetensorsModel::open(folder.path()).unwrap());
        let Expected { ids, positions, logits } = expected(&oracle(name));
        let share = worst_share(&run(&files, KvType::F32, &ids, &positions), &logits);
        assert!(share < 1e-4, "{name}: {share} of the range");
    }
}

/// mold 117: weights were loaded at 8 MB/s, and nobody was told.
#[test]
fn the_rate_of_loading_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(["generate", "--prompt", "Rivers are", "--max-tokens", "2"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // What is copied of the default model: 92 MiB, all of it in block formats.
    let told = said.split("loaded in ").nth(1).unwrap_or_else(|| panic!("no word of it: {said}"));
    assert!(told.contains(" s, 92 MiB of weights at ") && told.contains(" MiB/s"), "{said}");
    assert!(!told.contains("stay mapped"), "{said}");
}
