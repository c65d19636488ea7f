//! Inputs of MBPP+ as they were before they were written as JSON, which knows no tuples, sets and complex
//! numbers. The tasks and their types are EvalPlus's.

use super::value::Value;

/// What becomes of an argument.
#[derive(Clone, Copy, Debug)]
enum To {
    Same,
    Tuple,
    /// A list of tuples.
    ListOfTuples,
    /// A tuple of tuples, where what is no list stays.
    TupleOfTuples,
    /// A tuple of tuples, however deep.
    AllTuples,
    /// A dict with tuples as its values.
    DictOfTuples,
    /// A list of sets; an empty one was an empty dict.
    ListOfSets,
    Float,
    Complex,
}

/// Tasks and what becomes of their arguments; the last holds for all that follow.
const TASKS: [(&[u32], &[To]); 12] = [
    (
        &[
            2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630,
            726, 740, 744, 809,
        ],
        &[To::Tuple],
    ),
    (&[63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780], &[To::ListOfTuples]),
    (&[75, 413, 444, 753], &[To::ListOfTuples, To::Same]),
    (&[106, 750], &[To::Same, To::Tuple]),
    (&[115], &[To::ListOfSets]),
    (&[124], &[To::Float, To::Complex]),
    (&[250, 307, 405, 446, 617, 720, 763, 808], &[To::Tuple, To::Same]),
    (&[259, 278, 401, 445], &[To::TupleOfTuples]),
    (&[722], &[To::DictOfTuples, To::Same]),
    (&[252], &[To::Complex]),
    (&[580, 615, 791], &[To::AllTuples]),
    (&[], &[To::Same]),
];

/// The arguments of an input to the task of this id. The error says what is not as that task's inputs are.
pub fn shaped(id: &str, input: Vec<Value>) -> Result<Vec<Value>, String> {
    let number = id.strip_prefix("Mbpp/").and_then(|number| number.parse::<u32>().ok());
    let row = TASKS.iter().find(|(ids, _)| number.is_some_and(|number| ids.contains(&number)));
    let Some((_, shapes)) = row else { return Ok(input) };
    let shape = |at: usize| shapes.get(at).or(shapes.last()).copied().unwrap_or(To::Same);
    input.into_iter().enumerate().map(|(at, value)| turned(value, shape(at))).collect()
}

fn turned(value: Value, to: To) -> Result<Value, String> {
    let each = |values: Vec<Value>, to: To| -> Result<Vec<Value>, String> {
        values.into_iter().map(|value| turned(value, to)).collect()
    };
    Ok(match (to, value) {
        (To::Same, value) => value,
        (To::Tuple, Value::List(values)) => Value::Tuple(values),
        (To::ListOfTuples, Value::List(values)) => Value::List(each(values, To::Tuple)?),
        (To::TupleOfTuples, Value::List(values)) => {
            let inner = |value| match value {
                Value::List(values) => Value::Tuple(values),
                other => other,
            };
            Value::Tuple(values.into_iter().map(inner).collect())
        }
        (To::AllTuples, Value::List(values)) => Value::Tuple(each(values, To::AllTuples)?),
        (To::AllTuples, other) => other,
        (To::DictOfTuples, Value::Dict(pairs)) => {
            let inner = |(key, value)| Ok::<_, String>((key, turned(value, To::Tuple)?));
            Value::Dict(pairs.into_iter().map(inner).collect::<Result<_, _>>()?)
        }
        (To::ListOfSets, Value::List(values)) => {
            let inner = |value| match value {
                Value::List(values) if !values.is_empty() => Value::Set(values),
                _ => Value::Dict(Vec::new()),
            };
            Value::List(values.into_iter().map(inner).collect())
        }
        (To::Float, value) => Value::Float(float(&value).ok_or("an input is no number")?),
        (To::Complex, value) => {
            let number = match &value {
                Value::Text(text) => complex(text),
                other => float(other).map(|re| (re, 0.0)),
            };
            let (re, im) = number.ok_or("an input is no complex number")?;
            Value::Complex(re, im)
        }
        (to, _) => return Err(format!("an input cannot become {to:?}")),
    })
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(digits) | Value::Text(digits) => digits.trim().parse().ok(),
        Value::Float(float) => Some(*float),
        _ => None,
    }
}

/// `(1+2j)`, `3j`, `-1.5`: real and imaginary part of what Python writes for a complex number.
fn complex(text: &str) -> Option<(f64, f64)> {
    let text = text.trim();
    let bare = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
    let Some(both) = bare.strip_suffix(['j', 'J']) else { return Some((bare.parse().ok()?, 0.0)) };
    // The sign between them is the last that belongs to no exponent.
    let bytes = both.as_bytes();
    let sign =
        |at: &usize| matches!(bytes[*at], b'+' | b'-') && !matches!(bytes[*at - 1], b'e' | b'E');
    let im = |text: &str| match text {
        "" | "+" => Some(1.0),
        "-" => Some(-1.0),
        text => text.parse().ok(),
    };
    match (1..bytes.len()).rev().find(sign) {
        Some(at) => Some((both[..at].parse().ok()?, im(&both[at..])?)),
        None => Some((0.0, im(both)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::json::Json;
    use super::*;

    fn shown(id: &str, input: &str) -> String {
        let Ok(Value::List(input)) = Value::of_data(&Json::read(input).unwrap()) else { panic!() };
        let mut text = String::new();
        Value::Tuple(shaped(id, input).unwrap()).write(&mut text);
        text
    }

    #[test]
    fn inputs_become_what_they_were() {
        for (id, input, expected) in [
            ("Mbpp/2", "[[1],[2]]", r#"{"t":[{"t":[1]},{"t":[2]}]}"#),
            ("Mbpp/3", "[[1]]", r#"{"t":[[1]]}"#),
            ("HumanEval/2", "[[1]]", r#"{"t":[[1]]}"#),
            ("Mbpp/63", "[[[1,2]]]", r#"{"t":[[{"t":[1,2]}]]}"#),
            ("Mbpp/75", "[[[1,2]],6]", r#"{"t":[[{"t":[1,2]}],6]}"#),
            ("Mbpp/106", "[[1],[2]]", r#"{"t":[[1],{"t":[2]}]}"#),
            ("Mbpp/124", r#"[0,"1j"]"#, r#"{"t":[0.0,{"c":[0.0,1.0]}]}"#),
            ("Mbpp/252", r#"["(-1.5e-3-2j)"]"#, r#"{"t":[{"c":[-0.0015,-2.0]}]}"#),
            ("Mbpp/278", "[[1,[2,[3]]]]", r#"{"t":[{"t":[1,{"t":[2,[3]]}]}]}"#),
            ("Mbpp/580", "[[1,[2,[3]]]]", r#"{"t":[{"t":[1,{"t":[2,{"t":[3]}]}]}]}"#),
            ("Mbpp/722", r#"[{"a":[1,2]},3]"#, r#"{"t":[{"d":[["a",{"t":[1,2]}]]},3]}"#),
            ("Mbpp/307", "[[1],2,[3]]", r#"{"t":[{"t":[1]},2,[3]]}"#),
        ] {
            assert_eq!(shown(id, input), expected, "{id}");
        }
        assert!(shaped("Mbpp/2", vec![Value::None]).is_err());
        assert_eq!(complex("1+2j"), Some((1.0, 2.0)));
        assert_eq!(complex("-j"), Some((0.0, -1.0)));
        assert_eq!(complex("7"), Some((7.0, 0.0)));
        assert_eq!(complex("1+j2"), None);
    }
}
