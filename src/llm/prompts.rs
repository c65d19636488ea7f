//! Prompt templates: the built-in ones of `prompts/`, or a folder of the user's.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

/// A built-in template, and the variables that whoever renders it supplies.
struct BuiltIn {
    name: &'static str,
    source: &'static str,
    variables: &'static [&'static str],
}

macro_rules! built_in {
    ($($name:literal: [$($variable:literal),*];)*) => {
        [$(BuiltIn {
            name: $name,
            source: include_str!(concat!("../../prompts/", $name, ".md")),
            variables: &[$($variable),*],
        }),*]
    };
}

static BUILT_IN: &[BuiltIn] = &built_in! {
    "cot-code": ["question", "entry_point"];
    "cot-math": ["question"];
    "direct-code": ["question", "entry_point"];
    "direct-math": ["question"];
    "format-retry": ["what"];
    "ralu-judge-choose": ["index", "candidates"];
    "ralu-judge-code-question": ["question"];
    "ralu-judge-code-system": [];
    "ralu-judge-math-question": ["question"];
    "ralu-judge-math-system": [];
    "ralu-judge-steps-code-system": [];
    "ralu-judge-steps-math-system": [];
    "ralu-judge-unit": ["index", "text", "asked"];
    "ralu-program-code-question": ["question", "entry_point"];
    "ralu-program-code-system": [];
    "ralu-program-math-examples": [];
    "ralu-program-math-question": ["question"];
    "ralu-program-math-system": [];
    "ralu-rebuilt-code-system": [];
    "ralu-rebuilt-math-answer": ["question", "program", "outcome", "answer", "stdout", "why"];
    "ralu-rebuilt-math-program": ["question"];
    "ralu-rebuilt-math-system": [];
    "ralu-rebuilt-path": ["units"];
    "ralu-steps-code": ["question", "entry_point"];
    "ralu-steps-math": ["question"];
    "ralu-synthesis-code": ["entry_point"];
    "ralu-synthesis-math-answer": ["outcome", "answer", "stdout", "why"];
    "ralu-synthesis-math-program": [];
    "self-debug-explain": [];
    "self-debug-judge": ["kind", "entry_point"];
};

/// The endings under which a user's folder may hold a template.
const ENDINGS: [&str; 2] = ["md", "jinja"];

/// Why templates could not be loaded, rendered or written out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PromptError {
    #[error("there is no prompt template `{name}`; `unsay prompts render` lists those there are")]
    Unknown { name: String },
    #[error("the prompt folder {path} could not be read: {what}")]
    Folder { path: PathBuf, what: String },
    #[error("{path} is no prompt template of this program; rename it to one of: {known}")]
    Stranger { path: PathBuf, known: String },
    #[error("both {one} and {other} hold the template `{name}`; remove one of them")]
    Twice { name: String, one: PathBuf, other: PathBuf },
    #[error("the prompt template {place} does not parse: {what}")]
    Syntax { place: String, what: String },
    #[error("the prompt template {place} uses `{variable}`, which is not given to it; {given}")]
    Variable { place: String, variable: String, given: String },
    #[error("the prompt template `{name}` could not be filled in: {what}")]
    Render { name: String, what: String },
    #[error("the template could not be written to {path}: {what}")]
    Write { path: PathBuf, what: String },
}

/// The prompt templates in use.
#[derive(Debug)]
pub struct Prompts {
    environment: Environment<'static>,
}

impl Prompts {
    /// The templates that come with the program.
    pub fn builtin() -> Result<Self, PromptError> {
        let mut prompts = Self::empty()?;
        for template in BUILT_IN {
            prompts.add(template, template.name, template.source.to_owned())?;
        }
        Ok(prompts)
    }

    /// The templates of a folder, `NAME.md` or `NAME.jinja`; the built-in one where a file lacks.
    /// A file that is no template's, and a variable that its template is not given, are errors.
    pub fn from_dir(path: &Path) -> Result<Self, PromptError> {
        let mut prompts = Self::builtin()?;
        let mut seen: Vec<(&str, PathBuf)> = Vec::new();
        for file in template_files(path)? {
            let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or("");
            let template = BUILT_IN.iter().find(|t| t.name == stem).ok_or_else(|| {
                let known: Vec<&str> = BUILT_IN.iter().map(|t| t.name).collect();
                PromptError::Stranger { path: file.clone(), known: known.join(", ") }
            })?;
            if let Some((name, one)) = seen.iter().find(|(name, _)| *name == template.name) {
                let (name, one) = ((*name).to_owned(), one.clone());
                return Err(PromptError::Twice { name, one, other: file });
            }
            let source = std::fs::read_to_string(&file).map_err(|e| unreadable(&file, e))?;
            prompts.add(template, &file.display().to_string(), source)?;
            seen.push((template.name, file));
        }
        Ok(prompts)
    }

    /// The names of all templates, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        BUILT_IN.iter().map(|t| t.name).collect()
    }

    /// The source text of a template as it is in use.
    pub fn source(&self, name: &str) -> Result<String, PromptError> {
        match self.environment.get_template(name) {
            Ok(template) => Ok(template.source().to_owned()),
            Err(_) => Err(PromptError::Unknown { name: name.to_owned() }),
        }
    }

    /// The variables that a template is given when it is rendered.
    pub fn variables(&self, name: &str) -> Result<&'static [&'static str], PromptError> {
        let template = BUILT_IN.iter().find(|t| t.name == name);
        Ok(template.ok_or_else(|| PromptError::Unknown { name: name.to_owned() })?.variables)
    }

    /// A template filled in. A variable that the context lacks is an error, never an empty text.
    pub fn render(&self, name: &str, context: impl Into<Value>) -> Result<String, PromptError> {
        let template = self
            .environment
            .get_template(name)
            .map_err(|_| PromptError::Unknown { name: name.to_owned() })?;
        let text = template
            .render(context)
            .map_err(|e| PromptError::Render { name: name.to_owned(), what: with_line(&e) })?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Writes every template in use to `NAME.md` in a folder, which is made where it lacks.
    /// Existing files are not overwritten: one that is there is an error.
    pub fn export(&self, folder: &Path) -> Result<Vec<PathBuf>, PromptError> {
        let failed = |path: &Path, what: std::io::Error| PromptError::Write {
            path: path.to_owned(),
            what: what.to_string(),
        };
        std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let mut written = Vec::new();
        for name in self.names() {
            let path = folder.join(format!("{name}.md"));
            let mut file = std::fs::File::create_new(&path).map_err(|e| failed(&path, e))?;
            std::io::Write::write_all(&mut file, self.source(name)?.as_bytes())
                .map_err(|e| failed(&path, e))?;
            written.push(path);
        }
        Ok(written)
    }

    fn empty() -> Result<Self, PromptError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()
            .map_err(|e| PromptError::Syntax { place: "settings".into(), what: with_line(&e) })?;
        environment.set_syntax(syntax);
        Ok(Self { environment })
    }

    fn add(&mut self, built_in: &BuiltIn, place: &str, source: String) -> Result<(), PromptError> {
        let syntax =
            |e: minijinja::Error| PromptError::Syntax { place: place.into(), what: with_line(&e) };
        self.environment.add_template_owned(built_in.name, source).map_err(syntax)?;
        let template = self.environment.get_template(built_in.name).map_err(syntax)?;
        let globals: HashSet<&str> = self.environment.globals().map(|(name, _)| name).collect();
        let mut used: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        used.sort();
        let known = |v: &str| globals.contains(v) || built_in.variables.contains(&v);
        match used.into_iter().find(|v| !known(v)) {
            None => Ok(()),
            Some(variable) => Err(PromptError::Variable {
                place: place.to_owned(),
                variable,
                given: match built_in.variables {
                    [] => "it is given no variables".to_owned(),
                    given => format!("it is given: {}", given.join(", ")),
                },
            }),
        }
    }
}

/// The files of a folder that may be templates, sorted.
fn template_files(folder: &Path) -> Result<Vec<PathBuf>, PromptError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| unreadable(folder, e))? {
        let file = entry.map_err(|e| unreadable(folder, e))?.path();
        let ending = file.extension().and_then(|e| e.to_str()).unwrap_or("");
        let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        if ENDINGS.contains(&ending) && !stem.eq_ignore_ascii_case("readme") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn unreadable(path: &Path, what: std::io::Error) -> PromptError {
    PromptError::Folder { path: path.to_owned(), what: what.to_string() }
}

/// An error of the template engine with the line it happened on.
fn with_line(error: &minijinja::Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    #[test]
    fn every_file_of_the_folder_is_built_in_and_sorted() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("prompts");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        assert_eq!(Prompts::builtin().unwrap().names(), files);
    }

    #[test]
    fn a_missing_variable_is_an_error() {
        let prompts = Prompts::builtin().unwrap();
        let error = prompts.render("direct-math", context! {}).unwrap_err();
        assert!(matches!(&error, PromptError::Render { name, .. } if name == "direct-math"));
        let error = prompts.render("no-such", context! {}).unwrap_err();
        assert!(matches!(error, PromptError::Unknown { .. }));
    }

    #[test]
    fn a_folder_overrides_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("direct-math.jinja"), "Q: {{ question }} <&>\n").unwrap();
        std::fs::write(folder.path().join("README.md"), "{{ anything }}").unwrap();
        let prompts = Prompts::from_dir(folder.path()).unwrap();
        let text = prompts.render("direct-math", context! { question => "1 < 2?" }).unwrap();
        assert_eq!(text, "Q: 1 < 2? <&>");
        let builtin = Prompts::builtin().unwrap();
        assert_eq!(prompts.source("cot-math").unwrap(), builtin.source("cot-math").unwrap());
    }

    #[test]
    fn mistakes_in_a_folder_are_named() {
        let load = |files: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            for (name, text) in files {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
            Prompts::from_dir(folder.path()).unwrap_err()
        };
        let error = load(&[("direct-math.md", "{{ qestion }}")]);
        assert!(
            matches!(&error, PromptError::Variable { variable, given, .. }
                if variable == "qestion" && given == "it is given: question"),
            "{error}"
        );
        assert!(matches!(load(&[("direct-math.md", "{% if %}")]), PromptError::Syntax { .. }));
        assert!(matches!(load(&[("direkt.md", "x")]), PromptError::Stranger { .. }));
        let twice = load(&[("cot-math.md", "x"), ("cot-math.jinja", "x")]);
        assert!(matches!(twice, PromptError::Twice { .. }));
        let nowhere = Prompts::from_dir(Path::new("no/such/folder")).unwrap_err();
        assert!(matches!(nowhere, PromptError::Folder { .. }));
    }

    #[test]
    fn an_export_reads_back_the_same_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let prompts = Prompts::builtin().unwrap();
        let written = prompts.export(folder.path()).unwrap();
        assert_eq!(written.len(), prompts.names().len());
        let again = Prompts::from_dir(folder.path()).unwrap();
        for name in prompts.names() {
            assert_eq!(again.source(name).unwrap(), prompts.source(name).unwrap());
        }
        assert!(matches!(prompts.export(folder.path()), Err(PromptError::Write { .. })));
    }

    #[test]
    fn blocks_leave_no_blank_lines_behind() {
        let prompts = Prompts::builtin().unwrap();
        let unit = |index: usize, text: &str, asked: bool| {
            prompts.render("ralu-judge-unit", context! { index, text, asked }).unwrap()
        };
        assert_eq!(unit(1, "A", false), "## Process\n\nUnit 1: A");
        let asked = "Unit 2: B\nC\n\nVerdict (OK or WRONG):";
        assert_eq!(unit(2, "B\nC", true), asked);
    }
}
