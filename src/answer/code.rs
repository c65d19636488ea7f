//! The program that a reply holds, and the rule by which it was found.

use serde::Serialize;

use super::extract::{tagged, without_thoughts};

/// How a program was found in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeRule {
    /// The last `<code>…</code>`.
    CodeTag,
    /// The last fenced block of Python or of no stated language.
    Fence,
    /// Lines of Python between lines of prose.
    Bare,
}

/// A program as the reply gives it, its common indentation removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    pub source: String,
    pub rule: CodeRule,
    /// The reply said where the program ends. When it was cut, an open end may lack lines.
    pub closed: bool,
}

/// The program in `reply`: `<code>`, else the last fenced block, else bare statements. Thoughts are
/// cut first.
pub fn read_code(reply: &str) -> Option<Code> {
    let spoken = without_thoughts(reply);
    let tag = || {
        let inner = *tagged(spoken, "code").last()?;
        let inner = last_fence(inner).map_or(inner, |(block, _)| block);
        some_code(inner, CodeRule::CodeTag, true)
    };
    let fence = || {
        let (block, closed) = last_fence(spoken)?;
        some_code(block, CodeRule::Fence, closed)
    };
    let bare = || some_code(&bare_statements(spoken)?, CodeRule::Bare, false);
    tag().or_else(fence).or_else(bare)
}

/// Whether a program defines `name` at its outermost level.
pub fn defines(source: &str, name: &str) -> bool {
    source.lines().any(|line| {
        let rest = line.strip_prefix("async ").map_or(line, str::trim_start);
        if let Some(signature) = rest.strip_prefix("def ") {
            let after = signature.trim_start().strip_prefix(name);
            return after.is_some_and(|a| a.trim_start().starts_with(['(', '[']));
        }
        let after = line.strip_prefix(name).map(str::trim_start);
        after.is_some_and(|a| a.starts_with('=') && !a.starts_with("=="))
    })
}

fn some_code(text: &str, rule: CodeRule, closed: bool) -> Option<Code> {
    let source = dedent(text);
    // A form that was only repeated (`...`) is no program.
    source.contains(char::is_alphanumeric).then_some(Code { source, rule, closed })
}

/// The last fenced block that may be Python, and whether its fence was closed.
fn last_fence(text: &str) -> Option<(&str, bool)> {
    let mut found = None;
    let mut open: Option<(usize, bool)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let Some(info) = line.trim().strip_prefix("```") else { continue };
        match open.take() {
            Some((begin, python)) if info.trim().is_empty() => {
                if python {
                    found = Some((&text[begin..start], true));
                }
            }
            _ => {
                let info = info.trim().to_ascii_lowercase();
                open = Some((at, matches!(info.as_str(), "" | "python" | "py" | "python3")));
            }
        }
    }
    match open {
        Some((begin, true)) if !text[begin..].trim().is_empty() => Some((&text[begin..], false)),
        _ => found,
    }
}

/// The first run of lines that read as Python, from a definition, an import or an assignment on.
fn bare_statements(text: &str) -> Option<String> {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_end())
        .filter(|line| !line.trim().eq_ignore_ascii_case("<code>"))
        .collect();
    let start = lines.iter().position(|line| begins_program(line))?;
    let length = lines[start..]
        .iter()
        .position(|line| !line.is_empty() && !line.starts_with([' ', '\t']) && !continues(line))
        .unwrap_or(lines.len() - start);
    Some(lines[start..start + length].join("\n"))
}

fn begins_program(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["def" | "class", _, ..] | ["async", "def", ..] => line.contains(':'),
        ["import", _] | ["import", _, "as", _] => true,
        ["from", _, "import", ..] => true,
        [first, ..] if first.starts_with('@') => words.len() == 1,
        _ => assigns(line),
    }
}

/// Whether an unindented line can stand within a program that has begun.
fn continues(line: &str) -> bool {
    const KEYWORDS: [&str; 20] = [
        "if", "elif", "else", "for", "while", "with", "try", "except", "finally", "return",
        "raise", "assert", "pass", "global", "del", "match", "print", "break", "continue",
        "lambda",
    ];
    let word: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let rest = line[word.len()..].trim_start();
    begins_program(line)
        || line.starts_with(['#', ')', ']', '}', '"', '\''])
        || rest.starts_with('(')
        // `xs.append(1)`, `f[0](x)`: a call whose function is no bare name.
        || (rest.starts_with(['.', '[']) && !rest.starts_with(". ") && line.ends_with(')'))
        || (KEYWORDS.contains(&word.as_str()) && (rest.is_empty() || line.ends_with(':')))
        || (KEYWORDS.contains(&word.as_str()) && is_one_line(rest))
        || ["return", "raise", "assert", "global", "del"].contains(&word.as_str())
}

/// `… in range(3): f.append(1)`: what follows a keyword is a condition and a statement on the same line.
fn is_one_line(rest: &str) -> bool {
    let statement = |(at, _): (usize, &str)| {
        let after = rest[at + 1..].trim();
        !after.is_empty() && continues(after)
    };
    rest.match_indices(':').any(statement)
}

/// `name = …`, `a, b = …`, `xs[0] += …`: an assignment to something that can be assigned to.
fn assigns(line: &str) -> bool {
    let Some(at) = line.find('=') else { return false };
    if line[at + 1..].starts_with('=') {
        return false;
    }
    let target = line[..at].trim_end_matches(['+', '-', '*', '/', '%', '&', '|', '^', '@']).trim();
    let place = |c: char| c.is_alphanumeric() || "_.[]'\", :()".contains(c);
    let parts = target.split(',').map(str::trim).all(|part| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '(')
            && !part.split(':').next().unwrap_or(part).trim().contains(' ')
    });
    !target.is_empty() && target.chars().all(place) && parts
}

/// A text without the indentation that all its lines share, blank lines at both ends removed.
fn dedent(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let filled = text.lines().filter(|line| !line.trim().is_empty());
    let shared = filled.map(indent).min().unwrap_or(0);
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.get(shared.min(indent(line))..).unwrap_or("").trim_end())
        .collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(reply: &str) -> Option<(String, CodeRule, bool)> {
        read_code(reply).map(|c| (c.source, c.rule, c.closed))
    }

    #[test]
    fn the_order_is_tag_fence_bare() {
        let cases = [
            ("<code>\nans = 1\n</code>", "ans = 1", CodeRule::CodeTag, true),
            ("<code>ans = 1</code> or\n```\nans = 2\n```", "ans = 1", CodeRule::CodeTag, true),
            ("<code>\n```python\nans = 3\n```\n</code>", "ans = 3", CodeRule::CodeTag, true),
            ("```py\na = 1\n```\nthen\n```\nb = 2\n```", "b = 2", CodeRule::Fence, true),
            ("```python\na = 1\n```\n```text\n1\n```", "a = 1", CodeRule::Fence, true),
            ("```python\na = 1\nb =", "a = 1\nb =", CodeRule::Fence, false),
            (
                "Here:\ndef f(x):\n    return x\nThis works since x is x.",
                "def f(x):\n    return x",
                CodeRule::Bare,
                false,
            ),
            (
                "First we add.\nans = 3 + 4\nprint(ans)",
                "ans = 3 + 4\nprint(ans)",
                CodeRule::Bare,
                false,
            ),
            ("<code>\nans = 3", "ans = 3", CodeRule::Bare, false),
            (
                "xs = [1]\nxs.append(2)\nxs[0](3)\nprint(xs)\nIt works. See f(x)",
                "xs = [1]\nxs.append(2)\nxs[0](3)\nprint(xs)",
                CodeRule::Bare,
                false,
            ),
            (
                "f = []\nfor i in range(3): f.append(1)\nwhile len(f) < 4: f += [2]\nFor example: we add.",
                "f = []\nfor i in range(3): f.append(1)\nwhile len(f) < 4: f += [2]",
                CodeRule::Bare,
                false,
            ),
            ("  ```python\n  if a:\n    b = 1\n  ```", "if a:\n  b = 1", CodeRule::Fence, true),
        ];
        for (reply, source, rule, closed) in cases {
            assert_eq!(code(reply), Some((source.to_owned(), rule, closed)), "{reply}");
        }
    }

    #[test]
    fn prose_is_no_program() {
        for reply in [
            "",
            "from the shop we import 3 pens",
            "The total = 5 apples",
            "x == 3",
            "<code></code>",
        ] {
            assert_eq!(code(reply), None, "{reply}");
        }
    }

    #[test]
    fn the_entry_point_is_looked_for_at_the_outermost_level() {
        assert!(defines("import re\ndef add(a, b):\n    return a + b", "add"));
        assert!(defines("async  def add (a): pass", "add"));
        assert!(defines("add = lambda a, b: a + b", "add"));
        assert!(!defines("def add_all(xs):\n    def add(a): pass", "add"));
        assert!(!defines("add == 3", "add"));
    }
}
