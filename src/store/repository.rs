//! Which files of a repository of the hub are a model.

use super::hub::{Hub, Listed, Listing, plain};
use super::manifest::{ModelFile, is_path};
use super::package::Package;
use super::safetensors::{INDEX, SINGLE, is_file_name};

/// The files to fetch.
pub(super) struct Choice {
    pub(super) repo: String,
    /// The commit, where the repository was listed.
    pub(super) revision: String,
    /// The folder of the repository that they lie in.
    pub(super) folder: Option<String>,
    /// Each with its path in the repository.
    pub(super) files: Vec<(String, ModelFile)>,
    pub(super) licence: Option<String>,
}

/// Files that a checkpoint must have beside its weights.
const NEEDED: [&str; 2] = ["config.json", "tokenizer.json"];
/// Files that it may have.
const WELCOME: [&str; 3] =
    ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// The files that a package asks of a repository. Where it does not name them, the repository is
/// listed; what is then fetched is all of the commit that was listed.
pub(super) fn choose(
    hub: &Hub,
    package: &Package,
    repo: &str,
    revision: &str,
    folder: Option<&str>,
) -> Result<Choice, String> {
    let mut choice = Choice {
        repo: repo.to_owned(),
        revision: revision.to_owned(),
        folder: folder.map(str::to_owned),
        files: Vec::new(),
        licence: None,
    };
    if !package.variant.files.is_empty() {
        let path = |name: &str| match folder {
            Some(folder) => format!("{folder}/{name}"),
            None => name.to_owned(),
        };
        let files = package.variant.files.iter();
        choice.files = files.map(|file| (path(&file.name), file.clone())).collect();
        return Ok(choice);
    }
    let listing = hub.list(repo, revision).map_err(|refusal| refusal.why)?;
    let file = package.spec.as_ref().and_then(|spec| spec.file.as_deref());
    let files = match file {
        Some(file) => shards(&listing, repo, file)?,
        None => checkpoint(&listing, repo)?,
    };
    choice.folder = file.and_then(|file| file.rsplit_once('/')).map(|(folder, _)| folder.into());
    choice.revision = listing.commit.clone();
    choice.licence = listing.licence.clone();
    choice.files = files.into_iter().map(known).collect();
    Ok(choice)
}

fn known(file: &Listed) -> (String, ModelFile) {
    let name = file.path.rsplit('/').next().unwrap_or_default().to_owned();
    let digest = |text: &&String| text.len() == 64 && text.bytes().all(|c| c.is_ascii_hexdigit());
    // A digest without a size is of no use to a manifest.
    let sha256 = file.sha256.as_ref().filter(digest).filter(|_| file.bytes.is_some());
    let sha256 = sha256.map(|text| text.to_lowercase());
    let bytes = file.bytes.filter(|&bytes| bytes > 0);
    (file.path.clone(), ModelFile { name, bytes, sha256 })
}

/// A .gguf file with the further shards of its model.
fn shards<'a>(listing: &'a Listing, repo: &str, file: &str) -> Result<Vec<&'a Listed>, String> {
    let names = match shard_of(file) {
        Some((stem, count)) => {
            (1..=count).map(|n| format!("{stem}-{n:05}-of-{count:05}.gguf")).collect()
        }
        None => vec![file.to_owned()],
    };
    let find = |name: &String| {
        let found = listing.files.iter().find(|listed| listed.path == *name);
        found.ok_or_else(|| format!("{repo} has no file {name}; {}", ggufs(listing, repo)))
    };
    names.iter().map(find).collect()
}

/// What stands before `-00001-of-00003.gguf`, and the 3.
fn shard_of(name: &str) -> Option<(&str, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|c| c.is_ascii_digit());
    let count: u32 = count.parse().ok().filter(|_| digits(count) && digits(number))?;
    (1..=999).contains(&count).then_some((stem, count))
}

/// The configuration, tokenizer and weights of a checkpoint in safetensors.
fn checkpoint<'a>(listing: &'a Listing, repo: &str) -> Result<Vec<&'a Listed>, String> {
    let top: Vec<&Listed> = listing.files.iter().filter(|file| is_file_name(&file.path)).collect();
    let find = |name: &str| top.iter().copied().find(|file| file.path == name);
    let weights: Vec<&Listed> = top
        .iter()
        .copied()
        .filter(|file| file.path.ends_with(".safetensors") && is_path(&file.path))
        .collect();
    let shards = || weights.iter().copied().filter(|file| file.path.starts_with("model-"));
    let chosen: Vec<&Listed> = match (find(SINGLE), find(INDEX)) {
        (Some(single), _) => vec![single],
        (None, Some(index)) => std::iter::once(index).chain(shards()).collect(),
        (None, None) if weights.len() == 1 && find("adapter_config.json").is_none() => weights,
        (None, None) => return Err(no_checkpoint(listing, repo)),
    };
    let needed = NEEDED.iter().map(|name| {
        let found = find(name);
        found.ok_or_else(|| format!("{repo} has no {name}, without which its weights are not read"))
    });
    let needed = needed.collect::<Result<Vec<_>, _>>()?;
    let welcome = WELCOME.iter().filter_map(|name| find(name));
    Ok(needed.into_iter().chain(welcome).chain(chosen).collect())
}

/// Why a repository is no checkpoint, and what can be named instead.
fn no_checkpoint(listing: &Listing, repo: &str) -> String {
    if listing.files.iter().any(|file| file.path == "adapter_config.json") {
        return format!(
            "{repo} is a LoRA adapter and no model; fetch its base by name, and give the adapter's \
             folder as --adapter"
        );
    }
    format!("{repo} has no weights in safetensors; {}", ggufs(listing, repo))
}

/// Most files that are listed for the user to choose from.
const SHOWN: usize = 40;

/// The .gguf files to choose from; of several shards, the first.
fn ggufs(listing: &Listing, repo: &str) -> String {
    let is_first = |file: &&Listed| {
        let model = file.path.ends_with(".gguf") && is_path(&file.path);
        model && shard_of(&file.path).is_none_or(|_| file.path.contains("-00001-of-"))
    };
    let files: Vec<&Listed> = listing.files.iter().filter(is_first).collect();
    if files.is_empty() {
        return "it holds no .gguf file either".to_owned();
    }
    let line = |file: &&Listed| {
        let size = match (shard_of(&file.path), file.bytes) {
            (None, Some(bytes)) => format!("  ({} MB)", (bytes + 500_000) / 1_000_000),
            (Some((_, count)), _) => format!("  ({count} shards)"),
            (None, None) => String::new(),
        };
        format!("\n    hf:{repo}:{}{size}", plain(&file.path))
    };
    let shown: String = files.iter().take(SHOWN).map(line).collect();
    let more = files.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("\n    and {more} more") } else { String::new() };
    format!("name one of its .gguf files:{shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(paths: &[&str]) -> Listing {
        let file = |path: &&str| Listed { path: (*path).into(), bytes: Some(5), sha256: None };
        Listing { files: paths.iter().map(file).collect(), ..Listing::default() }
    }

    fn chosen(paths: &[&str]) -> Result<String, String> {
        let listing = listing(paths);
        let files = checkpoint(&listing, "a/b")?;
        Ok(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_checkpoint_is_what_is_read_and_nothing_more() {
        let base = ["config.json", "tokenizer.json", "README.md", "original/model.safetensors"];
        let with = |more: &[&'static str]| chosen(&[&base[..], more].concat());
        assert_eq!(
            with(&["model.safetensors", "model.safetensors.index.json", "tokenizer_config.json"]),
            Ok("config.json tokenizer.json tokenizer_config.json model.safetensors".into())
        );
        assert_eq!(
            with(&[
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "consolidated.safetensors",
            ]),
            Ok("config.json tokenizer.json model.safetensors.index.json \
                model-00001-of-00002.safetensors model-00002-of-00002.safetensors"
                .into())
        );
        assert_eq!(
            with(&["weights.safetensors"]),
            Ok("config.json tokenizer.json weights.safetensors".into())
        );
        let said = chosen(&["config.json", "model.safetensors"]).unwrap_err();
        assert!(said.contains("no tokenizer.json"), "{said}");
        let said = with(&["adapter_config.json", "adapter_model.safetensors"]).unwrap_err();
        assert!(said.contains("--adapter"), "{said}");
        assert!(with(&[]).unwrap_err().contains("no .gguf file either"));
    }

    #[test]
    fn gguf_files_are_listed_by_the_names_that_fetch_them() {
        let files = ["x-Q4_K_M.gguf", "Q8/x-00001-of-00002.gguf", "Q8/x-00002-of-00002.gguf"];
        let said = chosen(&files).unwrap_err();
        assert!(said.contains("hf:a/b:x-Q4_K_M.gguf  (0 MB)"), "{said}");
        assert!(said.contains("hf:a/b:Q8/x-00001-of-00002.gguf  (2 shards)"), "{said}");
        assert!(!said.contains("00002-of-00002.gguf"), "{said}");
        let listing = listing(&files);
        let found = shards(&listing, "a/b", "Q8/x-00002-of-00002.gguf").unwrap();
        assert_eq!(found.len(), 2);
        assert!(shards(&listing, "a/b", "y.gguf").unwrap_err().contains("x-Q4_K_M.gguf"));
        assert!(shards(&listing, "a/b", "Q8/x-00001-of-00003.gguf").is_err());
    }
}
