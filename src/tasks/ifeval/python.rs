//! What Python's text methods and regexes mean, where Rust's own differ.

use fancy_regex::RegexBuilder;

/// Steps back in one search, after which a regex has no outcome.
const MOST_STEPS: usize = 10_000_000;

/// Python's `str.isspace` of a character, and its `\s`.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Python's `str.strip`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Whether a character is in title case, such as `ǅ`: neither upper nor lower, yet with a lower form.
fn is_title(c: char) -> bool {
    !c.is_uppercase() && !c.is_lowercase() && !c.to_lowercase().eq([c])
}

/// Python's `str.isupper`: some letter has a case, and every such letter is upper.
pub fn is_upper(text: &str) -> bool {
    text.contains(char::is_uppercase) && !text.contains(|c: char| c.is_lowercase() || is_title(c))
}

/// Python's `str.islower`.
pub fn is_lower(text: &str) -> bool {
    text.contains(char::is_lowercase) && !text.contains(|c: char| c.is_uppercase() || is_title(c))
}

/// A regex in Python's syntax, as data sets hold it. Two are equal when they read the same.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    regex: fancy_regex::Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Pattern {
    /// Compiles a regex that ignores case; or says why it is none.
    pub fn ignoring_case(source: &str) -> Result<Self, String> {
        Self::new(source, "(?i)")
    }

    /// Compiles a regex that heeds case.
    pub fn plain(source: &str) -> Result<Self, String> {
        Self::new(source, "")
    }

    /// The same, where `^` and `$` hold at every line.
    pub fn by_line(source: &str) -> Result<Self, String> {
        Self::new(source, "(?m)")
    }

    fn new(source: &str, flags: &str) -> Result<Self, String> {
        let ours = format!("{flags}{}", translated(source, flags));
        let built = RegexBuilder::new(&ours).backtrack_limit(MOST_STEPS).build();
        let regex = built.map_err(|error| format!("`{source}` is no regex: {error}"))?;
        Ok(Self { source: source.to_owned(), regex })
    }

    /// Whether it is found; none where the search took too many steps.
    pub fn is_in(&self, text: &str) -> Option<bool> {
        self.regex.is_match(text).ok()
    }

    /// How often it is found, one behind another.
    pub fn count(&self, text: &str) -> Option<usize> {
        let mut count = 0;
        for found in self.regex.find_iter(text) {
            found.ok()?;
            count += 1;
        }
        Some(count)
    }

    /// How many pieces `re.split` gives: groups are pieces too.
    pub fn pieces(&self, text: &str) -> Option<usize> {
        Some(self.count(text)? * self.regex.captures_len() + 1)
    }
}

/// Python's `\w`: letters, numbers and the underscore, but no marks, which Rust's has too.
const WORD: &str = r"[\p{L}\p{N}_]";

/// A Python regex in the words of ours.
fn translated(source: &str, flags: &str) -> String {
    let signs: Vec<char> = source.chars().collect();
    let mut ours = String::new();
    // Where the class began that the sign stands in.
    let mut class: Option<usize> = None;
    let mut at = 0;
    while let Some(&sign) = signs.get(at) {
        at += 1;
        match (sign, class) {
            ('\\', _) => {
                let escaped = signs.get(at).copied();
                at += 1;
                ours.push_str(&escape(escaped, class.is_some()));
            }
            ('[', None) => {
                class = Some(at + usize::from(signs.get(at) == Some(&'^')));
                ours.push('[');
            }
            (']', Some(start)) if at - 1 > start => {
                class = None;
                ours.push(']');
            }
            // These mean themselves in a class, but not in ours.
            ('[' | ']' | '&' | '~', Some(_)) => ours.extend(['\\', sign]),
            ('-', Some(_)) if signs.get(at) == Some(&'-') => ours.push_str("\\-"),
            ('{', None) if !repeats(&signs[at..]) => ours.push_str("\\{"),
            ('}', None) if !closes(&signs[..at - 1]) => ours.push_str("\\}"),
            ('$', None) if flags != "(?m)" => ours.push_str(r"(?=\n?\z)"),
            // Without case Python takes Turkish i for i.
            ('i' | 'I', None) if flags == "(?i)" && !names(&signs[..at - 1]) => {
                ours.push_str("[iıİ]");
            }
            _ => ours.push(sign),
        }
    }
    ours
}

/// What follows a backslash.
fn escape(sign: Option<char>, in_class: bool) -> String {
    match sign {
        Some('w') => WORD.to_owned(),
        Some('W') => r"[^\p{L}\p{N}_]".to_owned(),
        Some('s') => r"[\s\x1c-\x1f]".to_owned(),
        Some('S') => r"[^\s\x1c-\x1f]".to_owned(),
        Some('b') if in_class => r"\x08".to_owned(),
        Some('b') => format!("(?:(?<={WORD})(?!{WORD})|(?<!{WORD})(?={WORD}))"),
        Some('B') => format!("(?:(?<={WORD})(?={WORD})|(?<!{WORD})(?!{WORD}))"),
        Some('Z') => r"\z".to_owned(),
        // Any sign may be escaped; ours refuses some.
        Some(sign) if !sign.is_alphanumeric() && !sign.is_ascii_punctuation() => sign.to_string(),
        Some(sign) => format!("\\{sign}"),
        None => "\\".to_owned(),
    }
}

/// Whether `{` begins a repetition: `{2}`, `{2,}`, `{,3}`, `{2,3}`.
fn repeats(rest: &[char]) -> bool {
    let Some(end) = rest.iter().position(|c| *c == '}') else { return false };
    let inside = &rest[..end];
    inside.iter().any(char::is_ascii_digit)
        && inside.iter().all(|c| c.is_ascii_digit() || *c == ',')
        && inside.iter().filter(|c| **c == ',').count() < 2
}

/// Whether `}` ends a repetition.
fn closes(before: &[char]) -> bool {
    before.iter().rposition(|c| *c == '{').is_some_and(|start| {
        let rest: Vec<char> = before[start + 1..].iter().copied().chain(['}']).collect();
        repeats(&rest) && (start == 0 || before[start - 1] != '\\')
    })
}

/// Whether a sign stands within `(?…`, where it is a flag or a name.
fn names(before: &[char]) -> bool {
    let open = before.windows(2).rposition(|two| two == ['(', '?']);
    open.is_some_and(|open| {
        before[open + 2..].iter().all(|c| c.is_alphanumeric() || "<P_".contains(*c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> bool {
        Pattern::ignoring_case(pattern).unwrap().is_in(text).unwrap()
    }

    #[test]
    fn cases_are_pythons() {
        assert!(is_upper("A1!") && !is_upper("1!") && !is_upper("Aa") && !is_upper("Aǅ"));
        assert!(is_lower("a1!") && !is_lower("") && !is_lower("aA") && !is_lower("aǅ"));
        // A letter without case changes nothing.
        assert!(is_upper("A漢") && is_lower("漢a") && !is_lower("漢"));
        assert_eq!(strip("\u{1c}\u{3000} a \u{85}"), "a");
    }

    #[test]
    fn regexes_are_pythons() {
        assert!(found("Hello", "HELLO there"));
        assert!(found(r"\bcat\b", "a cat.") && !found(r"\bcat\b", "concatenate"));
        // A mark is no part of a word there.
        assert!(found(r"\bcafe\b", "cafe\u{301}"));
        assert!(!found(r"\bn\b", "नn"));
        assert!(found("colou?r", "Color") && found("a|b", "b"));
        assert!(found("ice", "İCE") && found("s", "ſ"));
        assert!(found("a{2}", "aa") && found("{x}", "{x}") && found("a{", "a{"));
        assert!(found("[[]", "[") && found("[a&&b]", "&") && found("[]x]", "]"));
        assert!(found("end$", "the end\n") && !found("end$", "end\n\n"));
        assert!(found(r"(?<!a)b", "cb") && !found(r"(?<!a)b", "ab"));
        assert!(found(r"(\w)\1", "hello") && found("(?P<i>x)", "x"));
        assert!(found(r"[\w-]+é", "a-bé"));
    }

    #[test]
    fn what_is_no_regex_is_told() {
        for pattern in ["(", "*a", "[a", "a)", "\\"] {
            let why = Pattern::ignoring_case(pattern).unwrap_err();
            assert!(why.starts_with(&format!("`{pattern}` is no regex")), "{why}");
        }
    }

    #[test]
    fn a_regex_that_takes_too_long_has_no_outcome() {
        let slow = Pattern::plain(r"(a*)*\1b").unwrap();
        assert_eq!(slow.is_in(&"a".repeat(40)), None);
    }
}
