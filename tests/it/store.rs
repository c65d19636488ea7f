//! The store through its public door: GGUF, safetensors, manifests, pulling, opening.

mod hub;
mod manifests;
mod mutations;
mod pulling;
mod shards;

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

mod damaged_gguf {
    use std::path::Path;

    use crate::support::GgufBuilder;
    use proptest::prelude::*;
    use unsay::store::{Gguf, GgufProblem, StoreError};

    const F32: u32 = 0;
    const Q4_1: u32 = 3;

    fn small() -> GgufBuilder {
        GgufBuilder::default()
            .string("general.architecture", "llama")
            .u32("llama.block_count", 1)
            .raw("wide", GgufBuilder::U64, &7u64.to_le_bytes())
            .raw("negative", GgufBuilder::I32, &(-7i32).to_le_bytes())
            .raw("number", GgufBuilder::F32, &0.5f32.to_le_bytes())
            .bool("truth", true)
            .strings("words", ["a", "", "längst"])
            .i32s("numbers", [1, 2, 3])
            .tensor("norm", F32, &[4], &[0; 16])
            .tensor("weight", Q4_1, &[2, 32], &[1; 40])
    }

    fn open(bytes: &[u8]) -> Result<Gguf, GgufProblem> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        Gguf::open(&path).map_err(|error| match error {
            StoreError::Gguf(error) => {
                assert_eq!(error.path, path);
                error.problem
            }
            other => panic!("{other}"),
        })
    }

    /// Reads everything that a file offers, to see that nothing of it panics.
    pub(super) fn read_all(gguf: &Gguf) {
        let metadata = gguf.metadata();
        for key in metadata.keys() {
            let _ = (metadata.u32(key), metadata.u64(key), metadata.f32(key), metadata.bool(key));
            let _ = (metadata.string(key), metadata.strings(key), metadata.u32s(key));
            let _ = (metadata.i32s(key), metadata.f32s(key), metadata.bools(key));
            assert!(metadata.describe(key).is_some());
        }
        for name in gguf.tensor_names() {
            let tensor = gguf.tensor(name).unwrap();
            let weights: usize = tensor.shape.iter().product();
            let blocks = weights / tensor.kind.block_len();
            assert_eq!(tensor.bytes().len(), blocks * tensor.kind.block_bytes());
        }
    }

    #[test]
    fn the_small_file_is_read() {
        let gguf = open(&small().build()).unwrap();
        read_all(&gguf);
        let metadata = gguf.metadata();
        assert_eq!(metadata.u32("wide").unwrap(), 7);
        assert_eq!(metadata.f32("number").unwrap(), 0.5);
        assert!(metadata.bool("truth").unwrap());
        assert_eq!(metadata.strings("words").unwrap(), ["a", "", "längst"]);
        assert_eq!(metadata.i32s("numbers").unwrap(), [1, 2, 3]);
        assert_eq!(metadata.u32s("numbers").unwrap(), [1, 2, 3]);
        assert_eq!(gguf.tensor("weight").unwrap().shape, [2, 32]);
        assert_eq!(gguf.tensor("weight").unwrap().bytes(), [1; 40]);
        let mut second = small();
        second.version = 2;
        assert_eq!(open(&second.build()).unwrap().version(), 2);
    }

    #[test]
    fn wrong_types_and_missing_keys_are_named() {
        let gguf = open(&small().build()).unwrap();
        let metadata = gguf.metadata();
        let missing = metadata.u32("no.such.key").unwrap_err();
        assert_eq!(missing.problem, GgufProblem::Missing { key: "no.such.key".to_owned() });
        let wrong = metadata.u32("negative").unwrap_err().to_string();
        assert!(wrong.contains("`negative` is the integer -7"), "{wrong}");
        let wrong = metadata.string("words").unwrap_err().to_string();
        assert!(wrong.contains("`words` is an array of 3 string where a string"), "{wrong}");
        assert!(metadata.strings("numbers").is_err());
        assert!(metadata.f32s("words").is_err());
        assert!(metadata.bool("wide").is_err());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = small().build();
        for len in 0..whole.len() {
            assert!(open(&whole[..len]).is_err(), "cut to {len} of {} bytes", whole.len());
        }
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        let whole = small().build();
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = whole.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            open(&changed).unwrap_err()
        };
        assert_eq!(with(0, b"PK\x03\x04"), GgufProblem::NotGguf { found: b"PK\x03\x04".to_vec() });
        assert_eq!(with(4, &1u32.to_le_bytes()), GgufProblem::Version { version: 1 });
        assert_eq!(with(4, &4u32.to_le_bytes()), GgufProblem::Version { version: 4 });
        assert_eq!(with(4, &3u32.to_be_bytes()), GgufProblem::BigEndian);
        let missing = Gguf::open(Path::new("/no/such/model.gguf")).unwrap_err().to_string();
        assert!(missing.contains("/no/such/model.gguf"), "{missing}");
    }

    #[test]
    fn huge_counts_are_refused_before_anything_is_allocated() {
        let whole = small().build();
        // Tensor count, entry count, length of the first key.
        for at in [8, 16, 24] {
            for count in [u64::MAX, u64::MAX / 8, 1 << 62, 1 << 40, 1 << 20] {
                let mut changed = whole.clone();
                changed[at..at + 8].copy_from_slice(&count.to_le_bytes());
                let problem = open(&changed).unwrap_err();
                let named =
                    matches!(problem, GgufProblem::TooMany { .. } | GgufProblem::Truncated { .. });
                assert!(named, "count {count} at {at}: {problem}");
            }
        }
        for kind in [0, 4, 8, 9, 10] {
            for count in [u64::MAX, 1 << 61, 1 << 33] {
                let mut value = u32::to_le_bytes(kind).to_vec();
                value.extend(count.to_le_bytes());
                let bytes = GgufBuilder::default().raw("a", GgufBuilder::ARRAY, &value).build();
                let problem = open(&bytes).unwrap_err();
                assert!(matches!(problem, GgufProblem::TooMany { .. }), "{problem}");
            }
        }
    }

    #[test]
    fn nested_arrays_are_read_to_a_depth() {
        let nest = |inner: Vec<u8>| [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &inner].concat();
        let leaf = [&4u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
        let two = GgufBuilder::default().raw("a", GgufBuilder::ARRAY, &nest(leaf.clone()));
        assert!(open(&two.build()).is_ok());
        let mut deep = nest(Vec::new()).repeat(10_000);
        deep.extend(leaf);
        let deep = GgufBuilder::default().raw("a", GgufBuilder::ARRAY, &deep);
        let problem = open(&deep.build()).unwrap_err();
        assert!(matches!(problem, GgufProblem::TooDeep { .. }), "{problem}");
    }

    #[test]
    fn bad_entries_are_named() {
        let twice = GgufBuilder::default().u32("a", 1).u32("a", 2).build();
        let field = "metadata `a`".to_owned();
        assert_eq!(open(&twice).unwrap_err(), GgufProblem::Duplicate { field });
        let unknown = GgufBuilder::default().raw("a", 13, &[0; 8]).build();
        let field = "`a`".to_owned();
        assert_eq!(open(&unknown).unwrap_err(), GgufProblem::UnknownValueType { field, code: 13 });
        let truth = GgufBuilder::default().raw("a", GgufBuilder::BOOL, &[2]).build();
        assert!(matches!(open(&truth).unwrap_err(), GgufProblem::NotBool { value: 2, .. }));
        let mut bytes = GgufBuilder::default().string("a", "xyz").build();
        let at = bytes.windows(3).position(|w| w == b"xyz").unwrap();
        bytes[at] = 0xff;
        assert!(matches!(open(&bytes).unwrap_err(), GgufProblem::NotUtf8 { .. }));
    }

    #[test]
    fn bad_tensors_are_named() {
        let start = GgufBuilder::default;
        let other = open(&start().tensor("blk.0.x", 20, &[1, 256], &[0; 144]).build());
        let message = other.unwrap_err().to_string();
        assert!(message.contains("`blk.0.x` is stored as IQ4_NL (type 20)"), "{message}");
        let unknown = open(&start().tensor("t", 99, &[1], &[0; 4]).build()).unwrap_err();
        assert!(unknown.to_string().contains("type 99"), "{unknown}");

        let zero = open(&start().tensor("t", F32, &[0, 4], &[]).build()).unwrap_err();
        assert!(matches!(zero, GgufProblem::Shape { .. }), "{zero}");
        let ragged = open(&start().tensor("t", Q4_1, &[2, 33], &[0; 80]).build()).unwrap_err();
        assert!(matches!(ragged, GgufProblem::Shape { .. }), "{ragged}");
        for shape in [&[u64::MAX, 4][..], &[1 << 32, 1 << 32], &[1 << 62], &[1 << 61, 1]] {
            let huge = open(&start().tensor("t", F32, shape, &[]).build()).unwrap_err();
            let named = matches!(huge, GgufProblem::Shape { .. } | GgufProblem::OutOfFile { .. });
            assert!(named, "{huge}");
        }
        let none = open(&start().tensor("t", F32, &[], &[0; 4]).build()).unwrap_err();
        assert!(matches!(none, GgufProblem::TooMany { .. }), "{none}");
        let five = open(&start().tensor("t", F32, &[1; 5], &[0; 4]).build()).unwrap_err();
        assert!(matches!(five, GgufProblem::TooMany { count: 5, .. }), "{five}");
    }

    #[test]
    fn offsets_are_held_against_the_file_and_each_other() {
        let one = || GgufBuilder::default().tensor("a", F32, &[16], &[0; 64]);
        for offset in [32, 64, 1 << 40, u64::MAX - 31] {
            let problem = open(&one().tensor_at("b", F32, &[16], offset).build()).unwrap_err();
            let named =
                matches!(problem, GgufProblem::Overlap { .. } | GgufProblem::OutOfFile { .. });
            assert!(named, "offset {offset}: {problem}");
        }
        let overlap = open(&one().tensor_at("b", F32, &[8], 32).build()).unwrap_err();
        let (first, second) = ("a".to_owned(), "b".to_owned());
        assert_eq!(overlap, GgufProblem::Overlap { first, second });
        let askew = open(&one().tensor_at("b", F32, &[1], 68).build()).unwrap_err();
        assert!(matches!(askew, GgufProblem::Misaligned { offset: 68, alignment: 32, .. }));
        let twice = one().tensor("a", F32, &[1], &[0; 4]).build();
        assert!(matches!(open(&twice).unwrap_err(), GgufProblem::Duplicate { .. }));
    }

    #[test]
    fn alignment_is_a_power_of_two() {
        for alignment in [0, 3, 48, u32::MAX] {
            let bytes = GgufBuilder::default().u32("general.alignment", alignment).build();
            let alignment = u64::from(alignment);
            assert_eq!(open(&bytes).unwrap_err(), GgufProblem::Alignment { alignment });
        }
        let wide = GgufBuilder::default().alignment(128).tensor("a", F32, &[1], &[1; 4]).tensor(
            "b",
            F32,
            &[1],
            &[2; 4],
        );
        assert_eq!(open(&wide.build()).unwrap().tensor("b").unwrap().bytes(), [2; 4]);
        let text = GgufBuilder::default().string("general.alignment", "32").build();
        assert!(matches!(open(&text).unwrap_err(), GgufProblem::WrongType { .. }));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

        /// Any change of a few bytes gives a file that is read or refused, and whatever is read is
        /// inside the file.
        #[test]
        fn mutations_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = small().build();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            if let Ok(gguf) = open(&bytes) {
                read_all(&gguf);
            }
        }
    }
}

mod safetensors_folders {
    use std::path::Path;

    use safetensors::Dtype;
    use safetensors::tensor::TensorView;
    use unsay::store::{SafetensorsModel, StoreError, WeightType};

    fn write(path: &Path, tensors: &[(&str, Dtype, &[usize], &[u8])]) {
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name.to_string(), TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
        });
        safetensors::serialize_to_file(views, None, path).unwrap();
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
        folder
    }

    fn message(folder: &Path) -> String {
        SafetensorsModel::open(folder).unwrap_err().to_string()
    }

    #[test]
    fn one_file() {
        let folder = folder();
        let path = folder.path().join("model.safetensors");
        write(
            &path,
            &[
                ("a", Dtype::F32, &[2, 2], &[1; 16]),
                ("b", Dtype::F16, &[3], &[2; 6]),
                ("c", Dtype::BF16, &[1, 3], &[3; 6]),
                ("position_ids", Dtype::I64, &[1], &[0; 8]),
            ],
        );
        let model = SafetensorsModel::open(folder.path()).unwrap();
        assert_eq!(model.tensor_names().collect::<Vec<_>>(), ["a", "b", "c"]);
        let a = model.tensor("a").unwrap();
        assert_eq!((a.kind, &a.shape[..], a.bytes()), (WeightType::F32, &[2, 2][..], &[1; 16][..]));
        assert_eq!(model.tensor("b").unwrap().kind, WeightType::F16);
        let c = model.tensor("c").unwrap();
        assert_eq!((c.kind, &c.shape[..], c.bytes()), (WeightType::BF16, &[1, 3][..], &[3; 6][..]));
        assert_eq!(model.config()["model_type"], "llama");
        assert!(model.generation_config().is_none());
        assert_eq!(model.bytes_mapped(), path.metadata().unwrap().len());

        // The weights of a folder may have another name if they are alone.
        std::fs::rename(&path, folder.path().join("other.safetensors")).unwrap();
        assert!(SafetensorsModel::open(folder.path()).unwrap().tensor("a").is_some());
        std::fs::copy(folder.path().join("other.safetensors"), folder.path().join("x.safetensors"))
            .unwrap();
        assert!(message(folder.path()).contains("several .safetensors files"));
    }

    #[test]
    fn shards() {
        let folder = folder();
        let shard = |n: u32| folder.path().join(format!("model-{n}.safetensors"));
        write(&shard(1), &[("a", Dtype::F32, &[1], &[1; 4]), ("ids", Dtype::I64, &[1], &[0; 8])]);
        write(&shard(2), &[("b", Dtype::F32, &[1], &[2; 4])]);
        let index = |map: &str| {
            let json = format!(r#"{{"metadata": {{}}, "weight_map": {map}}}"#);
            std::fs::write(folder.path().join("model.safetensors.index.json"), json).unwrap();
        };
        index(
            r#"{"a": "model-1.safetensors", "ids": "model-1.safetensors", "b": "model-2.safetensors"}"#,
        );
        let model = SafetensorsModel::open(folder.path()).unwrap();
        assert_eq!(model.tensor_names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(model.tensor("b").unwrap().bytes(), [2; 4]);
        let sizes = [1, 2].map(|n| shard(n).metadata().unwrap().len());
        assert_eq!(model.bytes_mapped(), sizes[0] + sizes[1]);

        index(r#"{"c": "model-1.safetensors"}"#);
        assert!(message(folder.path()).contains("weight_map.c: model-1.safetensors does not hold"));
        index(r#"{"a": "../model-1.safetensors"}"#);
        assert!(message(folder.path()).contains("not the name of a file in this folder"));
        index(r#"{"a": "model-3.safetensors"}"#);
        assert!(message(folder.path()).contains("model-3.safetensors"));
        index("[]");
        assert!(message(folder.path()).contains("weight_map: is missing"));
        write(&shard(2), &[("a", Dtype::F32, &[1], &[2; 4]), ("b", Dtype::F32, &[1], &[2; 4])]);
        index(r#"{"a": "model-1.safetensors", "b": "model-2.safetensors"}"#);
        assert!(message(folder.path()).contains("tensor `a`: is in two files"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = folder();
        let path = folder.path().join("model.safetensors");
        write(&path, &[("w", Dtype::F64, &[1], &[0; 8])]);
        let error = SafetensorsModel::open(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Safetensors { .. }));
        assert!(error.to_string().contains("tensor `w`: is stored as F64"), "{error}");

        write(&path, &[("w", Dtype::F32, &[4], &[0; 16])]);
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(SafetensorsModel::open(folder.path()).is_err(), "cut to {len}");
        }
        // A shape and offsets whose sum wraps around the size of the file.
        let size = u64::MAX - 200;
        let header =
            format!(r#"{{"w":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}"#);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert!(message(folder.path()).contains("model.safetensors"));

        std::fs::remove_file(&path).unwrap();
        assert!(message(folder.path()).contains("holds no .safetensors file"));
        std::fs::write(folder.path().join("config.json"), "{").unwrap();
        assert!(message(folder.path()).contains("config.json: line 1 column 1"));
    }
}
