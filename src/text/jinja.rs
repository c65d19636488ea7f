//! Jinja as chat templates expect it: the settings, functions and string methods that they are
//! written for, over minijinja.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;

/// Steps that rendering may take: far more than any dialogue needs, and an end for a template that
/// has none.
const FUEL: u64 = 5_000_000;

/// An environment for chat templates; `now` is what `strftime_now` shows, in UTC.
pub(super) fn environment(now: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    // The settings of this syntax have no invalid combination, so that building it cannot fail.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        let error = Error::new(ErrorKind::InvalidOperation, message.clone());
        Err(error.with_source(Raised(message)))
    });
    environment.add_function("strftime_now", move |format: String| strftime(now, &format));
    environment.add_filter("tojson", to_json);
    environment
}

/// What a template said with `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// The message that the template itself raised, if that is what the error is.
pub(super) fn raised(error: &Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

/// An error with its line.
pub(super) fn describe(error: &Error) -> String {
    match (error.line(), error.detail()) {
        (Some(line), Some(detail)) => format!("{detail} (line {line})"),
        _ => error.to_string(),
    }
}

/// Takes the meaning out of `{% generation %}` and `{% endgeneration %}`, which mark what training
/// counts as the model's: they become a condition that always holds, white space control kept.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            continue;
        };
        let (inner, after) = tag.split_at(end);
        let name = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match name {
            "generation" => out.push_str(&inner.replacen(name, "if true", 1)),
            "endgeneration" => out.push_str(&inner.replacen(name, "endif", 1)),
            _ => out.push_str(inner),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// JSON as Python's `json.dumps` writes it with `ensure_ascii=False`: a space after commas and
/// colons, or lines indented by `indent`.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Other options of Python's are taken where they ask for what is done anyhow.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(width) => {
            let indent = " ".repeat(width);
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, OneLine)),
    };
    let cannot =
        |e: &dyn std::error::Error| Error::new(ErrorKind::BadSerialization, format!("tojson: {e}"));
    written.map_err(|e| cannot(&e))?;
    Ok(Value::from(String::from_utf8(bytes).map_err(|e| cannot(&e))?))
}

/// JSON on one line with spaces after commas and colons.
struct OneLine;

impl serde_json::ser::Formatter for OneLine {
    fn begin_array_value<W>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()>
    where
        W: ?Sized + std::io::Write,
    {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()>
    where
        W: ?Sized + std::io::Write,
    {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W>(&mut self, writer: &mut W) -> std::io::Result<()>
    where
        W: ?Sized + std::io::Write,
    {
        writer.write_all(b": ")
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A point in time in UTC as C's `strftime` shows it, for the fields that templates use.
fn strftime(at: SystemTime, format: &str) -> Result<String, Error> {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[(days % 7) as usize]);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let field = chars.next();
        // Writing to a string cannot fail.
        let _ = match field {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", &day_name[..3]),
            Some('H') => write!(out, "{hour:02}"),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('%') => write!(out, "%"),
            other => {
                let field = other.map(String::from).unwrap_or_default();
                let why = format!("strftime_now does not know the field %{field}");
                return Err(Error::new(ErrorKind::InvalidOperation, why));
            }
        };
    }
    Ok(out)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let every = |year: u64, years| year.is_multiple_of(years);
    let leap = |year| (every(year, 4) && !every(year, 100)) || every(year, 400);
    // Whole cycles of 400 years first, so that the loops below are short.
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    for (month, length) in
        [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate()
    {
        if left < length {
            return (year, month as u64 + 1, left + 1);
        }
        left -= length;
    }
    (year, 12, 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;
    use std::time::Duration;

    const TOOL: &str = "{% set tool = {'name': 'f', 'args': [1, '<é>'], 'none': none} %}";

    fn render(source: &str) -> Result<String, Error> {
        let mut environment = environment(UNIX_EPOCH + Duration::from_secs(1_709_210_096));
        environment.add_template_owned("t", without_generation_tags(source))?;
        environment.get_template("t")?.render(context! {
            text => "  a</t>b  ",
        })
    }

    #[test]
    fn json_is_as_python_writes_it() {
        let json = render(&format!("{TOOL}{{{{ tool | tojson }}}}")).unwrap();
        assert_eq!(json, r#"{"name": "f", "args": [1, "<é>"], "none": null}"#);
        let json = render(&format!("{TOOL}{{{{ tool | tojson(indent=2) }}}}")).unwrap();
        assert!(json.starts_with("{\n  \"name\": \"f\",\n  \"args\": [\n    1,"), "{json}");
        assert!(render("{{ 1 | tojson(sort=1) }}").is_err());
    }

    #[test]
    fn strings_have_the_methods_of_python() {
        let text =
            render("{{ text.strip().split('</t>')[-1] }}{{ text.lstrip().startswith('a') }}");
        assert_eq!(text.unwrap(), "bTrue");
    }

    #[test]
    fn a_raised_message_is_told_from_other_errors() {
        let error = render("{{ raise_exception('Roles must alternate') }}").unwrap_err();
        assert_eq!(raised(&error).unwrap(), "Roles must alternate");
        let error = render("{{ 1 + [] }}").unwrap_err();
        assert_eq!(raised(&error), None);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let text = render("{{ strftime_now('%d %b %Y, %A %B %y-%m %H:%M:%S 100%%') }}").unwrap();
        assert_eq!(text, "29 Feb 2024, Thursday February 24-02 12:34:56 100%");
        assert!(render("{{ strftime_now('%Q') }}").is_err());
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(146_096), (2369, 12, 31));
        assert_eq!(civil(146_097), (2370, 1, 1));
    }

    #[test]
    fn generation_tags_say_nothing() {
        let text = render("a {%- generation %} b {% endgeneration -%} c{% if true %}d{% endif %}");
        assert_eq!(text.unwrap(), "a b cd");
    }

    #[test]
    fn blocks_are_trimmed_as_templates_expect() {
        assert_eq!(render("{% if true %}\nx\n   {% endif %}\ny").unwrap(), "x\ny");
    }
}
