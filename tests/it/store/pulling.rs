//! `unsay pull` through the real binary, from a hub on this machine that has every fault.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::hub::{Asked, COMMIT, Rules, TinyHub, sha256};
use crate::model::tiny::Tiny;
use crate::support::{self, GgufBuilder};
use unsay::store::WeightType;

/// A hub, and the folders of a user who has nothing yet.
struct Home {
    hub: TinyHub,
    folder: tempfile::TempDir,
}

impl Home {
    fn new(rules: Rules) -> Self {
        Self { hub: TinyHub::start(rules), folder: tempfile::tempdir().unwrap() }
    }

    fn command(&self, words: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unsay"));
        let folder = self.folder.path();
        // Requests to this machine go through no proxy.
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_TOKEN"] {
            command.env_remove(name);
        }
        command
            .args(words)
            .env("HF_ENDPOINT", &self.hub.address)
            .env("HF_HOME", folder.join("hf"))
            .env("UNSAY_CACHE", folder.join("cache"))
            .env("XDG_CONFIG_HOME", folder.join("config"))
            .env_remove("HF_HUB_OFFLINE")
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        self.command(words, variables).output().unwrap()
    }

    /// What a command that ends with this code says, on both streams.
    #[track_caller]
    fn says(&self, wanted: i32, words: &[&str]) -> String {
        self.says_with(wanted, words, &[])
    }

    #[track_caller]
    fn says_with(&self, wanted: i32, words: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.run_with(words, variables);
        let said = format!(
            "{}{}",
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap()
        );
        assert_eq!(output.status.code(), Some(wanted), "{words:?}: {said}");
        said
    }

    /// The folder of a model of the hub in the cache.
    fn model(&self, name: &str) -> PathBuf {
        self.folder.path().join("cache").join("models").join("hf").join(name)
    }
}

/// The names of all files below a folder, but for the lock.
fn files_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            names.extend(files_below(&path));
        } else {
            names.push(entry.file_name().into_string().unwrap());
        }
    }
    names.retain(|name| name != ".lock");
    names.sort();
    names
}

/// A tokenizer of the 96 tokens that the small models have: printable bytes, space and line break.
fn tokenizer() -> String {
    let tokens = ('!'..='~').chain(['Ġ', 'Ċ']).enumerate();
    let vocabulary: serde_json::Map<String, Value> =
        tokens.map(|(id, token)| (token.to_string(), json!(id))).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "vocab": vocabulary, "merges": []},
    })
    .to_string()
}

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
                        {% if add_generation_prompt %}assistant: {% endif %}";

const WEIGHTS: &str = "owner/tiny/model.safetensors";

/// A repository with a whole small model, whose weights are a large file.
fn checkpoint() -> Rules {
    let data = support::data("oracle/llama_tied");
    let read = |name: &str| std::fs::read(data.join(name)).unwrap();
    let mut rules = Rules { licence: Some("apache-2.0".into()), ..Rules::default() };
    for (name, content) in [
        ("config.json", read("config.json")),
        ("model.safetensors", read("model.safetensors")),
        ("tokenizer.json", tokenizer().into_bytes()),
        ("chat_template.jinja", TEMPLATE.into()),
        ("README.md", b"not asked for".to_vec()),
    ] {
        rules.files.insert(format!("owner/tiny/{name}"), content);
    }
    rules.large.push(WEIGHTS.into());
    rules
}

const TINY: &str = "hf:owner/tiny";

fn from_of(asked: &[Asked]) -> Vec<usize> {
    asked.iter().map(|asked| asked.from).collect()
}

#[test]
fn a_checkpoint_of_the_hub_works_wherever_a_model_is_named() {
    let home = Home::new(checkpoint());
    let said = home.says(3, &["generate", "--prompt", "x", "--model", TINY]);
    assert!(said.contains("run `unsay pull hf:owner/tiny`"), "{said}");
    let said = home.says(0, &["pull", TINY]);
    let folder = home.model("owner--tiny");
    for word in ["licence: apache-2.0", COMMIT, folder.to_str().unwrap()] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(
        files_below(&folder),
        [
            "chat_template.jinja",
            "chat_template.jinja.sha256",
            "config.json",
            "config.json.sha256",
            "hub.pulled.toml",
            "model.safetensors",
            "model.safetensors.sha256",
            "tokenizer.json",
            "tokenizer.json.sha256"
        ]
    );
    // Whatever was listed was fetched of one commit.
    let asked = home.hub.asked();
    let resolved: Vec<_> = asked.iter().filter(|a| a.path.contains("/resolve/")).collect();
    assert_eq!(resolved.len(), 4);
    assert!(resolved.iter().all(|asked| asked.path.contains(COMMIT)), "{asked:?}");
    assert!(!asked.iter().any(|asked| asked.path.contains("README")), "{asked:?}");

    let models = home.says(0, &["models"]);
    let line = models.lines().find(|line| line.starts_with(TINY)).unwrap();
    assert!(line.contains("here") && line.contains("apache-2.0"), "{line}");
    let again = home.says(0, &["pull", TINY]);
    assert!(again.contains("hf:owner/tiny is here"), "{again}");
    let whole = home.says(0, &["pull", TINY, "--verify"]);
    assert!(whole.contains("hf:owner/tiny is whole"), "{whole}");
    // Nothing more was asked of the hub, and offline all of it goes on working.
    assert_eq!(home.hub.asked(), []);
    let offline = [("HF_HUB_OFFLINE", "1")];
    let model = ["--model", TINY];
    for words in [
        &["generate", "--prompt", "Hi", "--max-tokens", "3"][..],
        &["score", "--prompt", "a", "--continuation", "b"],
        &["tokenize", "Hi"],
    ] {
        home.says_with(0, &[words, &model].concat(), &offline);
    }
    let solve = ["solve", "--method", "direct", "--max-tokens", "3", "--model", TINY, "What?"];
    let said = home.says_with(1, &solve, &offline);
    assert!(said.contains(TINY), "{said}");
    assert!(home.says_with(0, &["doctor"], &offline).contains("hf:owner/tiny: here"));
    assert_eq!(home.hub.asked(), []);
}

#[test]
fn a_cut_connection_is_gone_on_with_where_it_ended() {
    let home = Home::new(Rules { cut_after: Some(100_000), store: true, ..checkpoint() });
    home.says(0, &["pull", TINY]);
    let whole = std::fs::read(support::data("oracle/llama_tied/model.safetensors")).unwrap();
    let fetched = home.hub.asked_for("model.safetensors");
    let sent: Vec<_> = fetched.iter().filter(|asked| asked.sent > 0).cloned().collect();
    assert_eq!(from_of(&sent), (0..whole.len()).step_by(100_000).collect::<Vec<_>>());
    assert_eq!(sent.iter().map(|asked| asked.sent).sum::<usize>(), whole.len());
    let file = home.model("owner--tiny").join("model.safetensors");
    assert!(std::fs::read(file).unwrap() == whole);
}

#[test]
fn a_pull_that_was_killed_leaves_no_model_and_is_gone_on_with() {
    let home = Home::new(Rules { stall_after: Some(150_000), ..checkpoint() });
    let mut child = home.command(&["pull", TINY], &[]).spawn().unwrap();
    let folder = home.model("owner--tiny");
    let part = folder.join(".pull/parts/model.safetensors.part");
    // The hub says no more; what it said is on the disk soon.
    while part.metadata().map_or(0, |facts| facts.len()) < 150_000 {
        assert_eq!(child.try_wait().unwrap(), None, "the pull ended by itself");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!folder.join("model.safetensors").exists() && !folder.join("hub.pulled.toml").exists());
    let said = home.says(3, &["generate", "--prompt", "x", "--model", TINY]);
    assert!(said.contains("unsay pull"), "{said}");
    assert!(!home.says(0, &["models"]).contains(TINY));
    // The folder itself is no model either.
    let path = folder.to_str().unwrap();
    home.says(2, &["generate", "--prompt", "x", "--model", path]);

    home.hub.release();
    home.hub.change(|rules| rules.stall_after = None);
    home.hub.asked();
    home.says(0, &["pull", TINY]);
    let fetched = home.hub.asked_for("model.safetensors");
    assert_eq!(from_of(&fetched), [150_000]);
    assert!(!folder.join(".pull").exists());
    home.says(0, &["generate", "--prompt", "Hi", "--max-tokens", "2", "--model", TINY]);
}

#[test]
fn a_part_that_was_damaged_or_is_of_other_content_is_fetched_from_the_front() {
    let whole = std::fs::read(support::data("oracle/llama_tied/model.safetensors")).unwrap();
    for (damage, wanted) in [(true, vec![1000, 0]), (false, vec![1000, 0])] {
        let home = Home::new(checkpoint());
        let parts = home.model("owner--tiny").join(".pull/parts");
        std::fs::create_dir_all(&parts).unwrap();
        let begin = if damage { vec![7; 1000] } else { whole[..1000].to_vec() };
        std::fs::write(parts.join("model.safetensors.part"), begin).unwrap();
        let mark = if damage { sha256(&whole) } else { "of another content".into() };
        let mark = format!("{mark}\n{}", whole.len());
        std::fs::write(parts.join("model.safetensors.mark"), mark).unwrap();
        home.says(0, &["pull", TINY]);
        assert_eq!(from_of(&home.hub.asked_for("model.safetensors")), wanted, "{damage}");
    }
}

#[test]
fn a_silent_connection_is_left() {
    let home = Home::new(Rules { stall_after: Some(200_000), ..checkpoint() });
    home.says_with(0, &["pull", TINY], &[("HF_HUB_DOWNLOAD_TIMEOUT", "1")]);
}

#[test]
fn wrong_content_is_refused_and_nothing_is_left_of_it() {
    for (file, kind) in [(WEIGHTS, "SHA-256"), ("owner/tiny/config.json", "digest of Git")] {
        let mut rules = checkpoint();
        let mut content = rules.files[file].clone();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        rules.lies.insert(file.into(), content);
        let home = Home::new(rules);
        let said = home.says(3, &["pull", TINY]);
        for word in [kind, "is known of it", file.rsplit('/').next().unwrap(), "pull again"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        let name = file.rsplit('/').next().unwrap();
        let left = files_below(&home.model("owner--tiny"));
        assert!(!left.iter().any(|left| left.starts_with(name)), "{left:?}");
        home.says(3, &["generate", "--prompt", "x", "--model", TINY]);
        // The hub mended, the rest need not be fetched again.
        home.hub.change(|rules| rules.lies.clear());
        home.hub.asked();
        home.says(0, &["pull", TINY]);
        home.says(0, &["generate", "--prompt", "Hi", "--max-tokens", "2", "--model", TINY]);
    }
}

#[test]
fn files_of_another_size_are_refused_before_they_are_fetched() {
    let home = Home::new(Rules { wrong_size: true, ..checkpoint() });
    let said = home.says(3, &["pull", TINY]);
    assert!(said.contains("bytes where") && said.contains("are expected"), "{said}");
    assert_eq!(files_below(&home.model("owner--tiny")), [""; 0]);
}

#[test]
fn a_server_without_ranges_or_marks_is_borne_and_one_that_never_ends_is_given_up() {
    let home = Home::new(Rules { no_ranges: true, no_marks: true, ..checkpoint() });
    let said = home.says(0, &["pull", TINY]);
    assert!(said.contains("recorded model.safetensors: SHA-256"), "{said}");
    // What came first is what must be there.
    let file = home.model("owner--tiny").join("config.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-04"))
        .unwrap();
    let said = home.says(3, &["generate", "--prompt", "x", "--model", TINY]);
    assert!(said.contains("config.json has the SHA-256"), "{said}");
    home.says(3, &["pull", TINY, "--verify"]);
    let said = home.says(0, &["pull", TINY]);
    assert!(said.contains("it is fetched anew"), "{said}");
    home.says(0, &["pull", TINY, "--verify"]);

    let home = Home::new(Rules { no_ranges: true, cut_after: Some(100_000), ..checkpoint() });
    let said = home.says(3, &["pull", TINY]);
    assert!(said.contains("model.safetensors: ") && said.contains("of 2"), "{said}");
    let busy = Home::new(Rules { status: Some(503), ..checkpoint() });
    let said = busy.says(3, &["pull", TINY]);
    assert!(said.contains("HTTP 503") && said.contains("busy"), "{said}");
    // It was asked more than once, and the reason is told once.
    assert_eq!((busy.hub.asked().len(), said.matches("HTTP 503").count()), (4, 1), "{said}");
}

#[test]
fn a_token_is_asked_for_and_goes_to_the_hub_alone() {
    let rules = Rules { token: Some("secret".into()), store: true, ..checkpoint() };
    let home = Home::new(rules);
    let said = home.says(3, &["pull", TINY]);
    for word in ["HTTP 401", "set HF_TOKEN", "/owner/tiny", "Access is restricted"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let said = home.says_with(3, &["pull", TINY], &[("HF_TOKEN", "other")]);
    assert!(said.contains("for this token"), "{said}");
    home.hub.asked();
    home.says_with(0, &["pull", TINY], &[("HF_TOKEN", "secret")]);
    let fetched = home.hub.asked_for("model.safetensors");
    let tokens: Vec<_> = fetched.iter().map(|asked| asked.token.as_deref()).collect();
    assert_eq!(tokens, [Some("Bearer secret"), None]);
    // A token that was saved by logging in counts too.
    let saved = Home::new(Rules { token: Some("secret".into()), ..checkpoint() });
    std::fs::create_dir_all(saved.folder.path().join("hf")).unwrap();
    std::fs::write(saved.folder.path().join("hf/token"), "secret\n").unwrap();
    saved.says(0, &["pull", TINY]);
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let mut rules = checkpoint();
    for name in ["x-Q4_K_M.gguf", "Q8/x-00001-of-00002.gguf", "Q8/x-00002-of-00002.gguf"] {
        rules.files.insert(format!("owner/quantised/{name}"), vec![0; 5_000_000]);
    }
    rules.files.insert("owner/bare/model.safetensors".into(), vec![0; 9]);
    rules.files.insert("owner/bare/config.json".into(), b"{}".to_vec());
    let home = Home::new(rules);
    let said = home.says(3, &["pull", "hf:owner/quantised"]);
    for word in ["hf:owner/quantised:x-Q4_K_M.gguf  (5 MB)", "Q8/x-00001-of-00002.gguf  (2 shards)"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    let said = home.says(3, &["pull", "hf:owner/quantised:y.gguf"]);
    assert!(said.contains("has no file y.gguf; name one of"), "{said}");
    let said = home.says(3, &["pull", "hf:owner/bare"]);
    assert!(said.contains("has no tokenizer.json"), "{said}");
    let said = home.says(3, &["pull", "hf:owner/none"]);
    assert!(said.contains("no model repository owner/none") && said.contains("404"), "{said}");
    let said = home.says(3, &["pull", "hf:owner/tiny@v2"]);
    assert!(said.contains("revision v2"), "{said}");
    for (name, word) in [
        ("hf:owner", "owner/name"),
        ("hf:../x", "owner/name"),
        ("hf:owner/tiny:README.md", ".gguf"),
        ("no-such-model", "hf:owner/name"),
        ("owner/tiny", "hf:owner/tiny"),
    ] {
        let said = home.says(2, &["pull", name]);
        assert!(said.contains(word), "{name}: {said}");
    }
}

#[test]
fn offline_nothing_is_asked() {
    let home = Home::new(checkpoint());
    let said = home.says_with(3, &["pull", TINY], &[("HF_HUB_OFFLINE", "1")]);
    assert!(said.contains("HF_HUB_OFFLINE is 1"), "{said}");
    assert_eq!(home.hub.asked(), []);
    let said = home.says_with(3, &["pull", TINY], &[("HF_ENDPOINT", "ftp://x")]);
    assert!(said.contains("HF_ENDPOINT"), "{said}");
    home.says_with(0, &["pull", TINY], &[("HF_HUB_OFFLINE", "0")]);
}

/// A small model in two shards.
fn shards() -> Vec<(&'static str, Vec<u8>)> {
    let names = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"];
    let shard = |number: u16| {
        GgufBuilder::default()
            .string("general.architecture", "llama")
            .raw("split.no", 2, &number.to_le_bytes())
            .raw("split.count", 2, &2u16.to_le_bytes())
            .raw("split.tensors.count", GgufBuilder::I32, &2i32.to_le_bytes())
            .tensor(&format!("t{number}"), 0, &[4], &[1; 16])
            .build()
    };
    (0..).zip(names).map(|(number, name)| (name, shard(number))).collect()
}

#[test]
fn a_manifest_without_digests_is_pulled_and_its_record_holds() {
    let mut rules = Rules::default();
    for (name, content) in shards() {
        rules.files.insert(format!("other/tiny/{name}"), content);
        rules.large.push(format!("other/tiny/{name}"));
    }
    let home = Home::new(rules);
    let config = home.folder.path().join("config/unsay/models");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("tiny.toml"), super::manifests::GOOD).unwrap();
    let listed = home.says(0, &["models"]);
    let line = listed.lines().find(|line| line.starts_with("tiny ")).unwrap();
    assert!(line.contains("not pulled") && line.contains("Q8_0, Q4_K_M; MIT"), "{line}");
    let said = home.says(0, &["pull", "tiny:q4_k_m"]);
    for word in ["not known before", "recorded a-00002-of-00002.gguf: SHA-256", "licence: MIT"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let again = home.says(0, &["pull", "tiny:q4_k_m"]);
    assert!(again.contains("is here") && !again.contains("recorded"), "{again}");
    home.says(0, &["pull", "tiny:q4_k_m", "--verify"]);
    let shard = home.folder.path().join("cache/models/tiny/a-00002-of-00002.gguf");
    let mut bytes = std::fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let said = home.says(3, &["tokenize", "x", "--model", "tiny:q4_k_m"]);
    assert!(said.contains("a-00002-of-00002.gguf has the SHA-256"), "{said}");
    // Only the damaged file is fetched again.
    home.hub.asked();
    home.says(0, &["pull", "tiny:q4_k_m"]);
    let asked = home.hub.asked();
    assert!(asked.len() == 1 && asked[0].path.ends_with("a-00002-of-00002.gguf"), "{asked:?}");
    // A damaged record is told by its name.
    let record = home.folder.path().join("cache/models/tiny/q4_k_m.pulled.toml");
    std::fs::write(&record, "name = 3").unwrap();
    let said = home.says(2, &["pull", "tiny:q4_k_m"]);
    assert!(said.contains("q4_k_m.pulled.toml: line 1"), "{said}");
}

#[test]
fn a_gguf_file_with_its_shards_is_pulled_from_the_hub() {
    let mut rules = Rules { no_marks: true, ..Rules::default() };
    for (name, content) in shards() {
        rules.files.insert(format!("owner/split/Q8/{name}"), content);
    }
    let home = Home::new(rules);
    let name = "hf:owner/split@v1:Q8/a-00001-of-00002.gguf";
    let said = home.says(0, &["pull", name]);
    assert!(said.contains("licence: not stated"), "{said}");
    let folder = home.model("owner--split@v1%%Q8%a-00001-of-00002.gguf");
    assert!(folder.join("a-00002-of-00002.gguf").is_file());
    assert!(home.says(0, &["models"]).contains(name));
    let said = home.says(2, &["tokenize", "x", "--model", name]);
    assert!(said.contains("tokenizer"), "{said}");
}

#[test]
fn a_local_model_is_looked_at() {
    let home = Home::new(Rules::default());
    let path = home.folder.path().join("mine.gguf");
    let tiny = Tiny::new("llama", WeightType::F32);
    std::fs::write(&path, tiny.builder().string("general.license", "mit").build()).unwrap();
    let path = path.to_str().unwrap();
    let said = home.says(0, &["pull", path, "--verify"]);
    for word in ["needs no pull", "SHA-256: ", "licence: mit"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    std::fs::write(path, b"GGUF").unwrap();
    assert!(home.says(2, &["pull", path]).contains("mine.gguf"));
    assert_eq!(home.hub.asked(), []);
}
