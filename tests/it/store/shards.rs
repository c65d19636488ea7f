//! Models in several files: split GGUF, and safetensors with an index.

use std::path::Path;

use crate::support::GgufBuilder;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use unsay::store::{Cache, Gguf, ModelFiles, SafetensorsModel, open};

const U16: u32 = 2;

/// A shard with one tensor of four f32 numbers.
fn shard(number: u16, count: u16, tensors: u32, tensor: &str) -> GgufBuilder {
    let file = GgufBuilder::default();
    // The converter writes what there is to know of the model into the first shard only.
    let file = if number == 0 { file.string("general.architecture", "llama") } else { file };
    file.raw("split.no", U16, &number.to_le_bytes())
        .raw("split.count", U16, &count.to_le_bytes())
        .raw("split.tensors.count", GgufBuilder::I32, &tensors.to_le_bytes())
        .tensor(tensor, 0, &[4], &[number as u8; 16])
}

/// Three shards in a folder.
fn split() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, tensor) in (0..).zip(["a", "b", "c"]) {
        write(folder.path(), number, &shard(number, 3, 3, tensor));
    }
    folder
}

fn write(folder: &Path, number: u16, shard: &GgufBuilder) {
    let name = format!("model-{:05}-of-00003.gguf", number + 1);
    std::fs::write(folder.join(name), shard.build()).unwrap();
}

#[test]
fn a_split_model_is_opened_by_any_of_its_shards() {
    let folder = split();
    for number in 1..=3 {
        let path = folder.path().join(format!("model-0000{number}-of-00003.gguf"));
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(gguf.path(), path);
        assert_eq!(gguf.metadata().string("general.architecture").unwrap(), "llama");
        assert_eq!(gguf.tensor_names().collect::<Vec<_>>(), ["a", "b", "c"]);
        for (number, name) in (0..).zip(["a", "b", "c"]) {
            assert_eq!(gguf.tensor(name).unwrap().bytes(), [number; 16], "{name}");
        }
        let files = std::fs::read_dir(folder.path()).unwrap();
        let sizes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(gguf.bytes_mapped(), sizes);
    }
    // Through the door that users take.
    let path = folder.path().join("model-00002-of-00003.gguf");
    let files = open(path.to_str().unwrap(), &Cache::at(folder.path())).unwrap();
    assert!(matches!(&files, ModelFiles::Gguf(gguf) if gguf.tensor("c").is_some()));
    // A model that was split into one file is a whole one, whatever its name.
    let one = shard(0, 1, 1, "a").build();
    std::fs::write(folder.path().join("one.gguf"), one).unwrap();
    assert_eq!(Gguf::open(&folder.path().join("one.gguf")).unwrap().tensor_names().count(), 1);
}

#[test]
fn shards_that_do_not_belong_together_are_refused_with_their_file() {
    let refused = |change: &dyn Fn(&Path), file: &str, words: &[&str]| {
        let folder = split();
        change(folder.path());
        let said = Gguf::open(&folder.path().join("model-00001-of-00003.gguf")).unwrap_err();
        let said = said.to_string();
        assert!(said.contains(file), "{file}: {said}");
        assert!(said.contains("into one folder"), "a hint: {said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    };
    let with = |shard: GgufBuilder| move |folder: &Path| write(folder, 1, &shard);
    let second = "model-00002-of-00003.gguf";
    let gone = |folder: &Path| std::fs::remove_file(folder.join(second)).unwrap();
    refused(&gone, second, &["shard 2 of 3 is missing"]);
    refused(&with(shard(2, 3, 3, "b")), second, &["is shard 3 of 3", "shard 2 of 3"]);
    refused(&with(shard(1, 4, 3, "b")), second, &["is shard 2 of 4"]);
    refused(&with(shard(1, 3, 9, "b")), second, &["9 tensors in all"]);
    let whole = GgufBuilder::default().tensor("b", 0, &[4], &[0; 16]);
    refused(&with(whole), second, &["is a whole model"]);
    let few = |folder: &Path| {
        for (number, tensor) in (0..).zip(["a", "b", "c"]) {
            write(folder, number, &shard(number, 3, 4, tensor));
        }
    };
    refused(&few, "model-00001-of-00003.gguf", &["hold 3 tensors", "split.tensors.count says 4"]);
    // A tensor that two shards have.
    let folder = split();
    write(folder.path(), 1, &shard(1, 3, 3, "a"));
    let said = Gguf::open(&folder.path().join("model-00003-of-00003.gguf")).unwrap_err();
    assert!(said.to_string().contains("tensor `a` of several shards occurs twice"), "{said}");
    // A name that does not say which shard it is, and numbers that cannot be.
    let folder = tempfile::tempdir().unwrap();
    for (name, number, word) in [
        ("renamed.gguf", 1, "-00002-of-00003.gguf"),
        ("model-00001-of-00003.gguf", 1, "-00002-of-00003.gguf"),
        ("model-00004-of-00003.gguf", 3, "split.no is 3"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, shard(number, 3, 3, "a").build()).unwrap();
        let said = Gguf::open(&path).unwrap_err().to_string();
        assert!(said.contains(word) && said.contains(name), "{word}: {said}");
    }
}

/// A folder with two shards of safetensors and an index.
fn indexed(index: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let numbers: [(&str, &str, Dtype, &[u8]); 3] = [
        ("one.safetensors", "a", Dtype::F32, &[1; 16]),
        ("two.safetensors", "b", Dtype::F16, &[2; 8]),
        ("three.safetensors", "c", Dtype::BF16, &[3; 8]),
    ];
    for (file, name, dtype, bytes) in numbers {
        let view = TensorView::new(dtype, vec![2, 2], bytes).unwrap();
        safetensors::serialize_to_file([(name, view)], None, &folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("model.safetensors.index.json");
    std::fs::write(path, json!({ "weight_map": index }).to_string()).unwrap();
    folder
}

#[test]
fn shards_of_every_plain_type_are_one_model() {
    let index = json!({"a": "one.safetensors", "b": "two.safetensors", "c": "three.safetensors"});
    let folder = indexed(&index);
    let model = SafetensorsModel::open(folder.path()).unwrap();
    for (number, name) in (1..).zip(["a", "b", "c"]) {
        let tensor = model.tensor(name).unwrap();
        assert_eq!(tensor.bytes(), vec![number; 4 * tensor.kind.block_bytes()], "{name}");
    }
}

#[test]
fn an_index_that_leads_elsewhere_is_refused() {
    for shard in [
        json!("../one.safetensors"),
        json!("/etc/passwd"),
        json!(".."),
        json!("below/one.safetensors"),
        json!("below\\one.safetensors"),
        json!(""),
        json!("config.json"),
        json!("model.safetensors.index.json"), // it would begin again
        json!(7),
        json!({"a": "one.safetensors"}),
    ] {
        let folder = indexed(&json!({ "a": shard }));
        let said = SafetensorsModel::open(folder.path()).unwrap_err().to_string();
        assert!(said.contains("weight_map.a") && said.contains("fetch the index"), "{said}");
    }
    let folder = indexed(&json!({"a": "one.safetensors", "z": "one.safetensors"}));
    let said = SafetensorsModel::open(folder.path()).unwrap_err().to_string();
    assert!(said.contains("weight_map.z"), "{said}");
    let folder = indexed(&json!({"a": "gone.safetensors"}));
    let said = SafetensorsModel::open(folder.path()).unwrap_err().to_string();
    assert!(said.contains("gone.safetensors"), "{said}");
}

#[test]
#[cfg(unix)]
fn a_shard_that_is_a_link_to_itself_is_an_error() {
    let folder = indexed(&json!({"a": "loop.safetensors"}));
    let path = folder.path().join("loop.safetensors");
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let said = SafetensorsModel::open(folder.path()).unwrap_err().to_string();
    assert!(said.contains("loop.safetensors"), "{said}");
}
