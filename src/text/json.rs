//! JSON as Python's `json.dumps` writes it, which is what chat templates were written for.

use std::fmt::Write;

use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Deepest nesting that is written.
const MAX_DEPTH: usize = 128;

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, the options
/// as the filter's.
pub(super) fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(width) => Some(" ".repeat(usize::try_from(width)?.min(64))),
    };
    let separators: Option<Vec<String>> = options.get("separators")?;
    let (comma, colon) = match separators.as_deref() {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some([comma, colon]) => (comma.clone(), colon.clone()),
        Some(_) => return Err(cannot("`separators` is not a pair")),
    };
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut writer = Writer { out: String::new(), indent, comma, colon, ascii, sorted };
    writer.value(&value, 0)?;
    Ok(Value::from(writer.out))
}

/// `json.loads` of a text.
pub(super) fn from_json(text: &str) -> Result<Value, Error> {
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|e| {
        Error::new(ErrorKind::InvalidOperation, format!("fromjson: the text is not JSON: {e}"))
    })?;
    Ok(Value::from(Serde(parsed)))
}

fn cannot(why: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("tojson: {why}"))
}

struct Writer {
    out: String,
    indent: Option<String>,
    comma: String,
    colon: String,
    ascii: bool,
    sorted: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(cannot("the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    entries.push((key_text(&key)?, value.get_item(&key)?));
                }
                if self.sorted {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.out.push('{');
                let count = entries.len();
                for (index, (key, item)) in entries.iter().enumerate() {
                    self.separate(index, depth + 1);
                    self.string(key);
                    self.out.push_str(&self.colon.clone());
                    self.value(item, depth + 1)?;
                }
                self.close(count, depth, '}');
            }
            ValueKind::Seq | ValueKind::Iterable => {
                self.out.push('[');
                let mut count = 0;
                for item in value.try_iter()? {
                    self.separate(count, depth + 1);
                    self.value(&item, depth + 1)?;
                    count += 1;
                }
                self.close(count, depth, ']');
            }
            kind => return Err(cannot(&format!("a value of kind {kind} is no JSON"))),
        }
        Ok(())
    }

    /// What stands before an item: a comma unless it is the first, and its line.
    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(&self.comma);
        }
        self.line(depth);
    }

    fn close(&mut self, count: usize, depth: usize, bracket: char) {
        if count > 0 {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || self.ascii && !(' '..='~').contains(&c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A number as Python shows it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else { return value.to_string() };
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let shown = format!("{number:?}");
    // Python gives the exponent a sign and two digits.
    match shown.split_once('e') {
        None => shown,
        Some((digits, exponent)) => {
            let digits = digits.strip_suffix(".0").unwrap_or(digits);
            let (sign, power) = match exponent.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{power:0>2}")
        }
    }
}

/// A key, which JSON has as text only.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => Ok(number(key)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        kind => Err(cannot(&format!("a key of kind {kind} is no JSON"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::{Environment, context};

    fn render(source: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.add_filter("tojson", to_json);
        environment.add_filter("fromjson", from_json);
        environment.add_function("fromjson", from_json);
        let odd = serde_json::json!({"b": [1, 2.5, true], "a": "\u{1}é😀\"\n", "c": {}, "d": []});
        environment.render_str(source, context! { odd => Serde(odd) })
    }

    /// The right sides are what Python's `json.dumps` gives.
    #[test]
    fn json_has_the_options_of_transformers() {
        let plain = r#"{"b": [1, 2.5, true], "a": "\u0001é😀\"\n", "c": {}, "d": []}"#;
        let ascii =
            r#"{"b": [1, 2.5, true], "a": "\u0001\u00e9\ud83d\ude00\"\n", "c": {}, "d": []}"#;
        let sorted = r#"{"a": "\u0001é😀\"\n", "b": [1, 2.5, true], "c": {}, "d": []}"#;
        let tight = r#"{"b":[1,2.5,true],"a":"\u0001é😀\"\n","c":{},"d":[]}"#;
        let lines = r#"{
 "a": "\u0001é😀\"\n",
 "b": [
  1,
  2.5,
  true
 ],
 "c": {},
 "d": []
}"#;
        for (options, expected) in [
            ("", plain),
            ("indent=none", plain),
            ("ensure_ascii=true", ascii),
            ("sort_keys=true", sorted),
            ("separators=(',', ':')", tight),
            ("indent=1, sort_keys=true", lines),
        ] {
            let source = format!("{{{{ odd | tojson({options}) }}}}");
            assert_eq!(render(&source).unwrap(), expected, "{options}");
        }
        let other = render("{{ {1: 2, none: (1, 'x')} | tojson }}").unwrap();
        assert_eq!(other, r#"{"1": 2, "null": [1, "x"]}"#);
        for refused in ["missing | tojson", "1 | tojson(separators=',')", "1 | tojson(sort=1)"] {
            assert!(render(&format!("{{{{ {refused} }}}}")).is_err(), "{refused}");
        }
    }

    #[test]
    fn numbers_are_as_python_shows_them() {
        for (number, shown) in [
            ("1e16", "1e+16"),
            ("1e15", "1000000000000000.0"),
            ("0.00001", "1e-05"),
            ("0.0001", "0.0001"),
            ("1.5e300", "1.5e+300"),
            ("1.0", "1.0"),
            ("3", "3"),
            ("-0.5", "-0.5"),
        ] {
            assert_eq!(render(&format!("{{{{ {number} | tojson }}}}")).unwrap(), shown);
        }
    }

    #[test]
    fn json_is_read_back() {
        let text = render(
            r#"{% set v = '{"a": [1, {"b": null}]}' | fromjson %}{{ v.a[0] + 1 }}{{ v.a[1].b is none }}"#,
        );
        assert_eq!(text.unwrap(), "2True");
        assert_eq!(render("{{ fromjson('[true]')[0] }}").unwrap(), "True");
        let error = render("{{ 'no' | fromjson }}").unwrap_err();
        assert!(error.to_string().contains("fromjson: the text is not JSON"), "{error}");
        let deep = format!("{{{{ '{}' | fromjson }}}}", "[".repeat(100_000));
        assert!(render(&deep).is_err());
    }

    #[test]
    fn deep_values_are_refused_and_not_followed() {
        let nest = "{% set ns = namespace(v=[]) %}{% for i in range(9000) %}{% set ns.v = [ns.v] %}\
                    {% endfor %}{{ ns.v | tojson }}";
        assert!(render(nest).unwrap_err().to_string().contains("nested too deeply"));
    }
}
