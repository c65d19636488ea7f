//! Jinja as chat templates expect it: the settings, functions and string methods that they are
//! written for, over minijinja.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::from_args;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::json;

/// Steps that rendering may take, and 64 bytes that it makes count as one: far more than any dialogue
/// needs, and an end for a template that has none.
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
    environment.set_unknown_method_callback(method);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        let error = Error::new(ErrorKind::InvalidOperation, message.clone());
        Err(error.with_source(Raised(message)))
    });
    environment.add_function("strftime_now", move |format: String| strftime(now, &format));
    environment.add_filter("tojson", json::to_json);
    environment.add_filter("fromjson", json::from_json);
    environment.add_function("fromjson", json::from_json);
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

/// Whether a template was stopped since it did not come to an end.
pub(super) fn is_endless(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let minijinja: Option<&Error> = error.downcast_ref();
        if minijinja.is_some_and(|error| error.kind() == ErrorKind::OutOfFuel) {
            return true;
        }
        cause = error.source();
    }
    false
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

/// Methods of Python's strings that minijinja's own collection lacks; the others are left to it.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            not_empty(separator)?;
            let behind = name == "rpartition";
            let cut = if behind { text.rsplit_once(separator) } else { text.split_once(separator) };
            Ok(strings(&match cut {
                Some((one, other)) => [one, separator, other],
                None if behind => ["", "", text],
                None => [text, "", ""],
            }))
        }
        "rsplit" => {
            let (separator, most): (&str, Option<i64>) = from_args(args)?;
            not_empty(separator)?;
            let most = most.and_then(|n| usize::try_from(n).ok()).unwrap_or(text.len());
            let mut parts: Vec<&str> = text.rsplitn(most.saturating_add(1), separator).collect();
            parts.reverse();
            Ok(strings(&parts))
        }
        "casefold" => {
            from_args::<()>(args)?;
            Ok(Value::from(text.to_lowercase()))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let missing = width.min(1_000).saturating_sub(text.chars().count());
            let (sign, digits) = match text.strip_prefix(['-', '+']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))))
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn strings(parts: &[&str]) -> Value {
    parts.iter().map(|part| Value::from(*part)).collect()
}

fn not_empty(separator: &str) -> Result<(), Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "the separator is empty"));
    }
    Ok(())
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
    let of_year = (1..month).map(|month| month_days(year, month)).sum::<u64>() + day;
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
            Some('e') => write!(out, "{day:2}"),
            Some('j') => write!(out, "{of_year:03}"),
            Some('F') => write!(out, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('Z') => write!(out, "UTC"),
            Some('z') => write!(out, "+0000"),
            Some('H') => write!(out, "{hour:02}"),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('%') => write!(out, "%"),
            // Without the zero before it, as GNU's form has it.
            Some('-') => match chars.next() {
                Some('d') => write!(out, "{day}"),
                Some('m') => write!(out, "{month}"),
                Some('H') => write!(out, "{hour}"),
                Some('I') => write!(out, "{}", (hour + 11) % 12 + 1),
                Some('M') => write!(out, "{minute}"),
                Some('S') => write!(out, "{second}"),
                Some('j') => write!(out, "{of_year}"),
                other => return Err(unknown_field("-", other)),
            },
            other => return Err(unknown_field("", other)),
        };
    }
    Ok(out)
}

fn unknown_field(before: &str, field: Option<char>) -> Error {
    let field = field.map(String::from).unwrap_or_default();
    let why = format!("strftime_now does not know the field %{before}{field}");
    Error::new(ErrorKind::InvalidOperation, why)
}

fn is_leap(year: u64) -> bool {
    let every = |years| year.is_multiple_of(years);
    (every(4) && !every(100)) || every(400)
}

/// Days of a month, from 1.
fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Whole cycles of 400 years first, so that the loops below are short.
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    loop {
        let length = 365 + u64::from(is_leap(year));
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    for month in 1..=12 {
        if left < month_days(year, month) {
            return (year, month, left + 1);
        }
        left -= month_days(year, month);
    }
    (year, 12, 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;
    use std::time::Duration;

    fn render(source: &str) -> Result<String, Error> {
        let mut environment = environment(UNIX_EPOCH + Duration::from_secs(1_709_210_096));
        environment.add_template_owned("t", without_generation_tags(source))?;
        environment.get_template("t")?.render(context! {
            text => "  a</t>b  ",
        })
    }

    #[test]
    fn strings_have_the_methods_of_python() {
        let text =
            render("{{ text.strip().split('</t>')[-1] }}{{ text.lstrip().startswith('a') }}");
        assert_eq!(text.unwrap(), "bTrue");
        for (call, expected) in [
            ("'</t>a'.removeprefix('</t>')", "a"),
            ("'a.py'.removesuffix('.py')", "a"),
            ("'a=b=c'.partition('=') | join('|')", "a|=|b=c"),
            ("'a=b=c'.rpartition('=') | join('|')", "a=b|=|c"),
            ("'abc'.partition('=') | join('|')", "abc||"),
            ("'abc'.rpartition('=') | join('|')", "||abc"),
            ("'a b c'.rsplit(' ', 1) | join('|')", "a b|c"),
            ("'a b c'.split(' ', 1) | join('|')", "a|b c"),
            ("' a b '.title().strip()", "A B"),
            ("'-7'.zfill(4)", "-007"),
            ("'GROSS'.casefold()", "gross"),
            ("'a,b'.replace(',', ';').upper()", "A;B"),
            ("'a\\nb'.splitlines() | length", "2"),
            ("'a' in 'cat' and 'abc'.find('c') == 2", "True"),
        ] {
            assert_eq!(render(&format!("{{{{ {call} }}}}")).unwrap(), expected, "{call}");
        }
        assert!(render("{{ 'a'.nosuch() }}").is_err());
    }

    #[test]
    fn namespaces_keep_what_loops_find() {
        let text = render(
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}\
             {% endfor %}{{ ns.n }}",
        );
        assert_eq!(text.unwrap(), "10");
    }

    /// Whatever grows, in steps or in bytes, comes to an end.
    #[test]
    fn a_template_without_an_end_is_stopped() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        let doubling = "{% set ns = namespace(t='xxxxxxxx') %}{% for a in range(60) %}\
                        {% set ns.t = ns.t ~ ns.t %}{% endfor %}";
        let recursion = "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}";
        for (source, by_fuel) in [(loops, true), (doubling, true), (recursion, false)] {
            let error = render(source).unwrap_err();
            assert!(!by_fuel || is_endless(&error), "{error:?}");
        }
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
        let text = render("{{ strftime_now('%j %I %p %-I %e %F %T %-d/%-m %Z%z') }}").unwrap();
        assert_eq!(text, "060 12 PM 12 29 2024-02-29 12:34:56 29/2 UTC+0000");
        assert!(render("{{ strftime_now('%Q') }}").is_err());
        assert!(render("{{ strftime_now('%-') }}").is_err());
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
