//! How data sets word a task that asks for a function.

use std::sync::Arc;

use super::super::forms::{Form, field, item};
use super::super::json::Json;
use super::super::{Gold, Item};
use super::value::Value;
use super::{How, Oracle, Tests, shapes};

/// HumanEval: a program's beginning, a solution, and a test.
pub const HUMANEVAL: Form = Form {
    expected: "`task_id`, `prompt`, `entry_point`, `canonical_solution` and a `test` with check(candidate)",
    item: humaneval,
};

/// HumanEval+ and MBPP+: with inputs, or with tests that hold them.
pub const PLUS: Form = Form {
    expected: "`task_id`, `prompt`, `canonical_solution`, `base_input` and `plus_input`; or EvalPlus's \
               original layout, with its `test`",
    item: plus,
};

fn humaneval(record: &Json) -> Result<Item, String> {
    let entry_point = field(record, "entry_point")?;
    let prompt = text(record, "prompt")?;
    let reference = prompt.clone() + &text(record, "canonical_solution")?;
    let source = text(record, "test")?;
    if !source.contains("def check(") {
        return Err("its `test` defines no check(candidate)".to_owned());
    }
    Ok(asked(record, reference, entry_point, prompt, How::Test { source })?.0)
}

fn plus(record: &Json) -> Result<Item, String> {
    if record.get("base_input").is_none() {
        return match record.get("code") {
            Some(_) => mbpp_with_test(record),
            None => humaneval_with_test(record),
        };
    }
    let id = field(record, "task_id")?;
    let inputs = |name: &str| -> Result<Vec<Vec<Value>>, String> {
        match record.get(name) {
            Some(Json::List(inputs)) => inputs.iter().map(|input| arguments(&id, input)).collect(),
            // One task has an empty object where it has no inputs.
            Some(Json::Object(fields)) if fields.is_empty() => Ok(Vec::new()),
            _ => Err(format!("it has no list `{name}`")),
        }
    };
    let tolerance = field(record, "atol")?;
    let how = How::Inputs {
        base: inputs("base_input")?,
        plus: inputs("plus_input")?,
        tolerance: tolerance.parse().map_err(|_| "its `atol` is no number".to_owned())?,
        oracle: Oracle::of(&id),
    };
    let prompt = text(record, "prompt")?;
    let reference = prompt.clone() + &text(record, "canonical_solution")?;
    let entry_point = field(record, "entry_point")?;
    let (mut made, prompt) = asked(record, reference, entry_point, prompt, how)?;
    made.public_checks = shown_checks(&prompt);
    Ok(made)
}

/// HumanEval+ in the layout of HumanEval; HumanEval itself has other tests.
fn humaneval_with_test(record: &Json) -> Result<Item, String> {
    if !text(record, "test")?.contains("inputs = [") {
        return Err("its `test` has the original inputs only".to_owned());
    }
    humaneval(record)
}

/// MBPP+ in the layout of MBPP.
fn mbpp_with_test(record: &Json) -> Result<Item, String> {
    let number = field(record, "task_id")?;
    let source = text(record, "test")?;
    // The tests call the function by its name: `assertion(NAME(*inp), …)`.
    let call = source.rfind("assertion(").map(|at| &source[at + "assertion(".len()..]);
    let name = call.and_then(|call| call.split_once("(*inp)")).map(|(name, _)| name.to_owned());
    let name = name.filter(|_| source.contains("inputs = ["));
    let entry_point = name.ok_or("its `test` calls no function on inputs")?;
    let shown = record.get("test_list").and_then(Json::list).and_then(|list| list.first()?.text());
    let shown = shown.ok_or("it has no `test_list`")?.trim().to_owned();
    let question = format!("{}\n{shown}", text(record, "prompt")?.trim());
    let tests =
        Tests::new(text(record, "code")?, entry_point.clone(), String::new(), How::Test { source });
    let mut made = item(Some(format!("Mbpp/{number}")), question, Gold::Tests(Arc::new(tests)));
    made.entry_point = Some(entry_point);
    made.public_checks = vec![shown];
    Ok(made)
}

/// An item, and its prompt. A prompt that is nothing but a text for people is the question itself.
fn asked(
    record: &Json,
    reference: String,
    entry_point: String,
    prompt: String,
    how: How,
) -> Result<(Item, String), String> {
    let quoted = prompt.trim().strip_prefix("\"\"\"").and_then(|rest| rest.strip_suffix("\"\"\""));
    let (question, start) = match quoted.filter(|inner| !inner.contains("\"\"\"")) {
        Some(inner) => (inner.trim().to_owned(), String::new()),
        None => (prompt.trim_end().to_owned(), prompt.clone()),
    };
    let tests = Tests::new(reference, entry_point.clone(), start, how);
    let id = Some(field(record, "task_id")?);
    let mut made = item(id, question, Gold::Tests(Arc::new(tests)));
    made.entry_point = Some(entry_point);
    Ok((made, prompt))
}

/// A text as it stands, its white space included.
fn text(record: &Json, name: &str) -> Result<String, String> {
    let text = record.get(name).and_then(Json::text);
    text.map(str::to_owned).ok_or_else(|| format!("it has no text `{name}`"))
}

fn arguments(id: &str, input: &Json) -> Result<Vec<Value>, String> {
    match Value::of_data(input)? {
        Value::List(arguments) => shapes::shaped(id, arguments),
        _ => Err("an input is no list of arguments".to_owned()),
    }
}

/// Assertions that stand in a prompt, a line each.
fn shown_checks(prompt: &str) -> Vec<String> {
    prompt
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("assert "))
        .map(str::to_owned)
        .collect()
}
