//! How each data set words a record.

use super::json::Json;
use super::{Choice, Gold, Item};
use crate::answer::{Rule, extract};

/// How an item is made of a record.
#[derive(Clone, Copy)]
pub struct Form {
    /// The fields, for people who gave another file.
    pub expected: &'static str,
    /// An item, its id empty where the record has none; or what is wrong with the record.
    pub item: fn(&Json) -> Result<Item, String>,
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.expected)
    }
}

pub const GSM8K: Form =
    Form { expected: "`question` and `answer`, which ends in `#### NUMBER`", item: gsm8k };
pub const MATH: Form = Form {
    expected: "`problem` (or `query`), and `answer` or a `solution` that ends in \\boxed{}",
    item: math,
};
pub const SVAMP: Form = Form { expected: "`ID`, `Body`, `Question` and `Answer`", item: svamp };
pub const ASDIV: Form = Form { expected: "`ID`, `Body`, `Question` and `Answer`", item: asdiv };
pub const SOLUTIONS: Form = Form { expected: "`sQuestion` and `lSolutions`", item: solutions };
pub const AQUA: Form = Form { expected: "`question`, `options` and `correct`", item: aqua };
pub const GSM_IC: Form = Form { expected: "`new_question` and `answer`", item: gsm_ic };
pub const COMMONSENSE: Form = Form {
    expected: "`id`, `question` with `stem` and `choices`, and `answerKey`",
    item: commonsense,
};
pub const HOTPOT: Form = Form { expected: "`question` and `answer`", item: hotpot };
pub const LOGIC: Form =
    Form { expected: "`id`, `context`, `question`, `options` and `answer`", item: logic };
pub const IFEVAL: Form =
    Form { expected: "`prompt`, `instruction_id_list` and `kwargs`", item: ifeval };
pub const OWN: Form = Form { expected: "`question` and `answer`", item: own };

/// The words of a field.
pub(super) fn field(record: &Json, name: &str) -> Result<String, String> {
    let value = record.get(name).ok_or_else(|| format!("it has no `{name}`"))?;
    value.word().ok_or_else(|| format!("its `{name}` is neither text nor number"))
}

/// A field that may be missing.
fn maybe(record: &Json, name: &str) -> Option<String> {
    record.get(name).and_then(Json::word)
}

fn texts(record: &Json, name: &str) -> Result<Vec<String>, String> {
    let list = record.get(name).and_then(Json::list);
    let words: Option<Vec<String>> = list.map(|l| l.iter().filter_map(Json::word).collect());
    words.filter(|words| !words.is_empty()).ok_or_else(|| format!("it has no list `{name}`"))
}

pub(super) fn item(id: Option<String>, question: String, gold: Gold) -> Item {
    Item {
        id: id.unwrap_or_default(),
        question,
        gold,
        entry_point: None,
        public_checks: Vec::new(),
        labels: Vec::new(),
    }
}

fn one(value: String) -> Result<Gold, String> {
    match value.is_empty() {
        true => Err("its answer is empty".to_owned()),
        false => Ok(Gold::Values(vec![value])),
    }
}

fn labelled(mut item: Item, record: &Json, names: &[(&'static str, &str)]) -> Item {
    let labels = names.iter().filter_map(|&(label, name)| Some((label, maybe(record, name)?)));
    item.labels = labels.collect();
    item
}

fn gsm8k(record: &Json) -> Result<Item, String> {
    let answer = field(record, "answer")?;
    let (_, value) = answer.rsplit_once("####").ok_or("its answer has no `####`")?;
    Ok(item(None, field(record, "question")?, one(value.trim().to_owned())?))
}

fn math(record: &Json) -> Result<Item, String> {
    let question = field(record, "problem").or_else(|_| field(record, "query"))?;
    let boxed = |name: &str| Some(extract(&maybe(record, name)?, &[Rule::Boxed])?.text);
    // MATH-500 and its like state the answer beside the solution; ProgCo's `answer` is the solution.
    let stated = || maybe(record, "answer").filter(|_| record.get("query").is_none());
    let value = boxed("answer").or_else(stated).or_else(|| boxed("solution"));
    let value = value.ok_or("it has neither an answer nor a solution with \\boxed{}")?;
    let id = maybe(record, "unique_id").or_else(|| maybe(record, "id"));
    let made = item(id, question, one(value)?);
    Ok(labelled(made, record, &[("subject", "subject"), ("subject", "type"), ("level", "level")]))
}

fn svamp(record: &Json) -> Result<Item, String> {
    let question = format!("{} {}", field(record, "Body")?, field(record, "Question")?);
    let made = item(Some(field(record, "ID")?), question, one(field(record, "Answer")?)?);
    Ok(labelled(made, record, &[("type", "Type")]))
}

/// `9 (apples)`, `8 (ft); 128 (sq. ft)`: the values without their units.
fn asdiv(record: &Json) -> Result<Item, String> {
    let question = format!("{} {}", field(record, "Body")?, field(record, "Question")?);
    let answer = field(record, "Answer")?;
    let values: Vec<String> =
        answer.split(';').map(|value| without_unit(value).to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err("its answer is empty".to_owned());
    }
    let made = item(Some(field(record, "ID")?), question, Gold::Values(values));
    Ok(labelled(
        made,
        record,
        &[("type", "Solution-Type"), ("grade", "Grade"), ("answer", "Answer")],
    ))
}

/// A value without the unit in brackets after it; `-(1/3)` has none.
fn without_unit(value: &str) -> &str {
    let value = value.trim();
    match value.strip_suffix(')').and_then(|inner| inner.rfind(" (")) {
        Some(at) => value[..at].trim(),
        None => value,
    }
}

fn solutions(record: &Json) -> Result<Item, String> {
    let values = texts(record, "lSolutions")?;
    Ok(item(None, field(record, "sQuestion")?, Gold::Values(values)))
}

fn gsm_ic(record: &Json) -> Result<Item, String> {
    let made = item(None, field(record, "new_question")?, one(field(record, "answer")?)?);
    let names = [
        ("steps", "n_steps"),
        ("role", "role_label"),
        ("number", "number_label"),
        ("sentence", "sentence_label"),
        ("original", "original_question"),
    ];
    Ok(labelled(made, record, &names))
}

fn aqua(record: &Json) -> Result<Item, String> {
    let options = lettered(record)?;
    let gold = chosen(field(record, "correct")?, options)?;
    Ok(item(None, with_options(&field(record, "question")?, &gold), gold))
}

fn logic(record: &Json) -> Result<Item, String> {
    let gold = chosen(field(record, "answer")?, lettered(record)?)?;
    let asked = format!("{}\n\n{}", field(record, "context")?, field(record, "question")?);
    Ok(item(maybe(record, "id"), with_options(&asked, &gold), gold))
}

fn commonsense(record: &Json) -> Result<Item, String> {
    let asked = record.get("question").ok_or("it has no `question`")?;
    let choices = asked.get("choices").and_then(Json::list).ok_or("it has no `choices`")?;
    let option = |choice: &Json| -> Result<Choice, String> {
        let letter = field(choice, "label")?.chars().next().ok_or("an option has no letter")?;
        Ok(Choice { letter, text: field(choice, "text")? })
    };
    let options = choices.iter().map(option).collect::<Result<Vec<_>, _>>()?;
    let gold = chosen(field(record, "answerKey")?, options)?;
    Ok(item(maybe(record, "id"), with_options(&field(asked, "stem")?, &gold), gold))
}

/// `A)text`, `(A) text`, `A. text`.
fn lettered(record: &Json) -> Result<Vec<Choice>, String> {
    let option = |text: String| -> Result<Choice, String> {
        let bare = text.trim_start_matches('(');
        let mut signs = bare.chars();
        match (signs.next(), signs.next()) {
            (Some(letter), Some(')' | '.' | ':')) if letter.is_ascii_uppercase() => {
                Ok(Choice { letter, text: signs.as_str().trim().to_owned() })
            }
            _ => Err(format!("the option `{text}` has no letter")),
        }
    };
    texts(record, "options")?.into_iter().map(option).collect()
}

fn chosen(letter: String, options: Vec<Choice>) -> Result<Gold, String> {
    let mut signs = letter.chars();
    match (signs.next(), signs.next()) {
        (Some(letter), None) if options.iter().any(|choice| choice.letter == letter) => {
            Ok(Gold::Choice { letter, options })
        }
        _ => Err(format!("its answer `{letter}` is none of its options")),
    }
}

/// A question with its options below it, a line each.
fn with_options(question: &str, gold: &Gold) -> String {
    let Gold::Choice { options, .. } = gold else { return question.to_owned() };
    let lines = options.iter().map(|choice| format!("\n{}) {}", choice.letter, choice.text));
    format!("{question}\n{}", lines.collect::<String>())
}

fn hotpot(record: &Json) -> Result<Item, String> {
    let answer = field(record, "answer")?;
    if answer.is_empty() {
        return Err("its answer is empty".to_owned());
    }
    let question = match record.get("context") {
        Some(context) => format!("{}\n\n{}", articles(context)?, field(record, "question")?),
        None => field(record, "question")?,
    };
    let made =
        item(maybe(record, "id").or_else(|| maybe(record, "_id")), question, Gold::Words(answer));
    Ok(labelled(made, record, &[("type", "type"), ("level", "level")]))
}

/// The prompt is the question as it stands, spaces at its ends included.
fn ifeval(record: &Json) -> Result<Item, String> {
    let prompt = record.get("prompt").and_then(Json::text).ok_or("it has no `prompt`")?;
    let gold = Gold::Instructions(super::ifeval::instructions(record)?);
    Ok(item(maybe(record, "key"), prompt.to_owned(), gold))
}

/// Articles, each under its title: `{"title": […], "sentences": [[…], …]}`, or `[[title, […]], …]`.
fn articles(context: &Json) -> Result<String, String> {
    let pairs: Option<Vec<(&Json, &Json)>> = match (context.get("title"), context.get("sentences"))
    {
        (Some(titles), Some(texts)) => {
            titles.list().zip(texts.list()).map(|(a, b)| a.iter().zip(b).collect())
        }
        _ => context.list().and_then(|all| {
            all.iter().map(|pair| Some((pair.list()?.first()?, pair.list()?.get(1)?))).collect()
        }),
    };
    let shown = |(title, sentences): (&Json, &Json)| -> Option<String> {
        let sentences: Option<Vec<&str>> = sentences.list()?.iter().map(Json::text).collect();
        Some(format!("{}\n{}", title.text()?, sentences?.concat().trim()))
    };
    let all: Option<Vec<String>> = pairs.and_then(|pairs| pairs.into_iter().map(shown).collect());
    Ok(all.ok_or("its `context` has no articles")?.join("\n\n"))
}

fn own(record: &Json) -> Result<Item, String> {
    let gold = one(field(record, "answer")?)?;
    Ok(item(maybe(record, "id"), field(record, "question")?, gold))
}
