//! What a run is asked to do.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SCHEMA;

/// A method with its options, as the user names them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MethodPlan {
    pub name: String,
    /// As pairs of name and value, in the order of their names.
    #[serde(default)]
    pub options: Vec<(String, String)>,
}

/// A run's plan. Two runs with equal plans give equal answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub schema: u32,
    /// The task's name, and the file or folder that its items were read from.
    pub task: String,
    pub data: PathBuf,
    /// SHA-256 of that file.
    pub data_digest: String,
    /// Items of the whole set that papers report on.
    pub whole: usize,
    /// The items' ids, in their order: selection is made once.
    pub items: Vec<String>,
    pub methods: Vec<MethodPlan>,
    pub model: String,
    /// SHA-256 of the model's files; with an adapter, or quantised when it is loaded, of all that decides
    /// its weights.
    pub model_digest: String,
    /// What plain matrices are quantised to when they are loaded.
    pub quantise: Option<String>,
    /// The folder of an adapter, and whether it is added to the weights.
    pub adapter: Option<PathBuf>,
    pub merge: bool,
    /// The switch of the chat template, and the most tokens of a think block.
    pub thinking: Option<bool>,
    pub thinking_budget: Option<usize>,
    /// How keys and values are kept; they decide bits.
    pub kv: String,
    /// Most tokens of a dialogue, where it was set.
    pub context: Option<usize>,
    /// SHA-256 over all prompt templates.
    pub prompts_digest: String,
    /// The folder of templates that replace built-in ones.
    pub prompts: Option<PathBuf>,
    pub seeds: Vec<u64>,
    pub temperature: Option<f32>,
    pub max_tokens: Option<usize>,
}

/// Why a plan is refused.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("{what}; {hint}")]
    Empty { what: &'static str, hint: &'static str },
    #[error("{what} `{name}` stands twice in the plan")]
    Twice { what: &'static str, name: String },
    #[error(
        "{path} holds another run: its {field} is {there}, now it is {now}; name another folder, or ask for \
         what was asked for"
    )]
    Changed { path: PathBuf, field: &'static str, there: String, now: String },
    #[error("{path} is no plan that this version reads: {why}")]
    Unreadable { path: PathBuf, why: String },
    #[error("{path} has no plan.json, so there is no run to go on with; `unsay eval` begins one")]
    NoRun { path: PathBuf },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
}

impl Plan {
    /// Refuses plans that ask for nothing, or for the same twice.
    pub fn check(&self) -> Result<(), PlanError> {
        for (empty, what, hint) in [
            (self.items.is_empty(), "there are no items", "choose others, or a larger --limit"),
            (self.methods.is_empty(), "there are no methods", "name some with --methods"),
            (self.seeds.is_empty(), "there are no seeds", "--seeds must be at least 1"),
        ] {
            if empty {
                return Err(PlanError::Empty { what, hint });
            }
        }
        let methods = self.methods.iter().map(MethodPlan::label).collect::<Vec<_>>();
        let seeds = self.seeds.iter().map(u64::to_string).collect::<Vec<_>>();
        for (what, names) in [("item", &self.items), ("method", &methods), ("seed", &seeds)] {
            let mut sorted: Vec<&String> = names.iter().collect();
            sorted.sort();
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(PlanError::Twice { what, name: pair[0].clone() });
            }
        }
        Ok(())
    }

    /// How many items have to be finished.
    pub fn jobs(&self) -> usize {
        self.items.len() * self.methods.len() * self.seeds.len()
    }

    /// Writes the plan into a new run's folder, or holds it against the one that is there.
    pub fn begin(&self, folder: &Path) -> Result<(), PlanError> {
        self.check()?;
        match Self::of(folder) {
            Ok(there) => self.same_as(&there, folder),
            Err(PlanError::NoRun { .. }) => self.write(folder),
            Err(error) => Err(error),
        }
    }

    /// The plan of a run's folder.
    pub fn of(folder: &Path) -> Result<Self, PlanError> {
        let path = folder.join("plan.json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(PlanError::NoRun { path: folder.to_owned() });
            }
            Err(source) => return Err(PlanError::Io { what: "read", path, source }),
        };
        let unreadable = |why: String| PlanError::Unreadable { path: path.clone(), why };
        let plan: Self = serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
        if plan.schema != SCHEMA {
            return Err(unreadable(format!("its schema is {}, not {SCHEMA}", plan.schema)));
        }
        Ok(plan)
    }

    /// Whole or not at all: into a file beside it, then one rename.
    fn write(&self, folder: &Path) -> Result<(), PlanError> {
        let failed = |what| move |source| PlanError::Io { what, path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(failed("create"))?;
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| failed("write the plan into")(e.into()))?;
        text.push('\n');
        let part = folder.join(format!(".plan.{}", std::process::id()));
        let written = (|| {
            std::fs::write(&part, text)?;
            std::fs::File::open(&part)?.sync_all()?;
            // Another process may have begun a run here meanwhile; its plan stays.
            std::fs::hard_link(&part, folder.join("plan.json"))
        })();
        let _ = std::fs::remove_file(&part);
        match written {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                self.same_as(&Self::of(folder)?, folder)
            }
            written => written.map_err(failed("write the plan into")),
        }
    }

    /// Whether this plan is the one that a folder was begun with. Order of methods and items counts not.
    pub fn same_as(&self, there: &Self, folder: &Path) -> Result<(), PlanError> {
        fn sorted<T: Ord + Clone>(values: &[T]) -> Vec<T> {
            let mut values = values.to_vec();
            values.sort();
            values
        }
        let list = |plan: &Self| {
            [
                ("task", plan.task.clone()),
                ("data file", plan.data_digest.clone()),
                ("model", plan.model_digest.clone()),
                ("thinking", format!("{:?}", (plan.thinking, plan.thinking_budget))),
                ("prompts", plan.prompts_digest.clone()),
                ("kv type", plan.kv.clone()),
                ("context", format!("{:?}", plan.context)),
                ("temperature", format!("{:?}", plan.temperature)),
                ("most tokens of a reply", format!("{:?}", plan.max_tokens)),
                ("list of seeds", format!("{:?}", sorted(&plan.seeds))),
                (
                    "list of methods",
                    sorted(&plan.methods.iter().map(MethodPlan::label).collect::<Vec<_>>())
                        .join(", "),
                ),
                ("number of items", plan.items.len().to_string()),
                ("choice of items", sorted(&plan.items).join(", ")),
            ]
        };
        for ((field, there), (_, now)) in list(there).into_iter().zip(list(self)) {
            if there != now {
                let short = |text: String| match text.char_indices().nth(120) {
                    Some((at, _)) => format!("{}…", &text[..at]),
                    None => text,
                };
                let path = folder.to_owned();
                let (there, now) = (short(there), short(now));
                return Err(PlanError::Changed { path, field, there, now });
            }
        }
        Ok(())
    }
}

impl MethodPlan {
    /// A method from `name` or `name:option=value:option=value`.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(':');
        let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
        let mut options = parts
            .map(|part| part.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())))
            .collect::<Option<Vec<_>>>()?;
        options.sort();
        Some(Self { name, options })
    }

    /// As `read` takes it.
    pub fn label(&self) -> String {
        let options = self.options.iter().map(|(name, value)| format!(":{name}={value}"));
        std::iter::once(self.name.clone()).chain(options).collect()
    }
}
