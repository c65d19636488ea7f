//! The answer that a reply states, and the rule by which it was found.

use serde::Serialize;

/// How an answer was found in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The last `<Answer>…</Answer>`.
    AnswerTag,
    /// The last `\boxed{…}`, braces balanced.
    Boxed,
    /// The last line of the form `#### value`.
    Hashes,
    /// The text after the last "the answer is" (or "answer:") that no program says.
    Phrase,
    /// A last line that is nothing but an option: `(B)`, `B)`, `**B**`, `Option B`.
    Letter,
    /// The last number of the reply; the whole formula where it is a part of one.
    LastNumber,
}

impl Rule {
    /// Whether the form has an end of its own, so that a reply which was cut off later still has it.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::AnswerTag | Self::Boxed)
    }
}

/// All rules, the most explicit first.
pub const LADDER: [Rule; 6] =
    [Rule::AnswerTag, Rule::Boxed, Rule::Hashes, Rule::Phrase, Rule::Letter, Rule::LastNumber];

/// An answer as the reply words it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extracted {
    pub text: String,
    pub rule: Rule,
}

/// The answer in `reply` by the first of `rules` that finds one. Thoughts are cut first.
pub fn extract(reply: &str, rules: &[Rule]) -> Option<Extracted> {
    let spoken = without_thoughts(reply);
    rules.iter().find_map(|&rule| {
        let found = match rule {
            Rule::AnswerTag => answer_tag(spoken),
            Rule::Boxed => boxed(spoken),
            Rule::Hashes => hashes(spoken),
            Rule::Phrase => phrase(&without_programs(spoken)),
            Rule::Letter => letter(spoken),
            Rule::LastNumber => last_formula(spoken).or_else(|| last_number(spoken)),
        }?;
        says_something(&found).then_some(Extracted { text: found, rule })
    })
}

/// What was said after the last think block. A block that never ends hides everything after it.
pub fn without_thoughts(reply: &str) -> &str {
    let after = match find_last(reply, "</think>") {
        Some(at) => &reply[at + "</think>".len()..],
        None => reply,
    };
    match find(after, "<think>", 0) {
        Some(at) => &after[..at],
        None => after,
    }
}

/// The contents of every closed `<tag>…</tag>` in `text`, in order; the tag's case is free. Where the
/// two are only spoken of (`between <tag> and </tag>`, `from <tag> to </tag>`) there is no block.
pub fn tagged<'t>(text: &'t str, tag: &str) -> Vec<&'t str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = find(text, &open, at) {
        let inner = start + open.len();
        let Some(end) = find(text, &close, inner) else { break };
        // An opening tag that is repeated before the block closes begins the block anew.
        let inner = find_last(&text[inner..end], &open).map_or(inner, |n| inner + n + open.len());
        if !matches!(text[inner..end].trim(), "and" | "to") {
            found.push(&text[inner..end]);
        }
        at = end + close.len();
    }
    found
}

fn answer_tag(text: &str) -> Option<String> {
    let inner = tagged(text, "Answer").last()?.trim();
    Some(boxed(inner).unwrap_or_else(|| inner.to_owned()))
}

fn boxed(text: &str) -> Option<String> {
    let mut found = None;
    for opening in ["\\boxed{", "\\fbox{"] {
        for (at, _) in text.match_indices(opening) {
            if let Some(inner) = balanced(&text[at + opening.len()..])
                && found.is_none_or(|(best, _)| best < at)
            {
                found = Some((at, inner));
            }
        }
    }
    found.map(|(_, inner)| inner.trim().to_owned())
}

/// The text up to the brace that closes an already opened one; `\{` and `\}` are signs, not braces.
fn balanced(text: &str) -> Option<&str> {
    let mut depth = 1usize;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[..at]);
                }
            }
            _ => {}
        }
    }
    None
}

/// `#### 42`; a Markdown heading of the fourth level does not count, since its text is no number.
fn hashes(text: &str) -> Option<String> {
    text.lines().rev().find_map(|line| {
        let rest = line.trim().strip_prefix("####")?.trim();
        let value = last_number(rest)?;
        let bare = |c: char| c.is_ascii_digit() || "$€£%,.-+/ ".contains(c);
        rest.chars().all(bare).then_some(value)
    })
}

/// A text without its programs: what one would print is not said.
fn without_programs(text: &str) -> String {
    let mut inside = false;
    let said = text.split_inclusive('\n').filter(|line| {
        let line = line.trim_start();
        let (opens, closes) =
            (find(line, "<code>", 0).is_some(), find(line, "</code>", 0).is_some());
        let fence = line.starts_with("```");
        let program = inside || opens || closes || fence || line.contains("print(");
        inside = (inside || opens) && !closes;
        inside ^= fence;
        !program
    });
    said.collect()
}

fn phrase(text: &str) -> Option<String> {
    const PHRASES: [&str; 9] = [
        "the answer is",
        "the final answer is",
        "the correct answer is",
        "the correct option is",
        "the correct choice is",
        "answer:",
        "answer**:",
        "answer is:",
        "answer is option",
    ];
    let at = PHRASES.iter().filter_map(|p| find_last(text, p).map(|at| at + p.len())).max()?;
    let rest = text[at..].trim_start_matches([':', ' ', '\t', '\n', '\r', '*', '_']);
    let line = rest.lines().next()?;
    let sentence = first_sentence(line).replace("<Answer>", "").replace("</Answer>", "");
    let value = sentence.trim_matches([' ', '*', '_', '`', '"', '\'', '.']);
    is_value(value).then(|| value.to_owned())
}

/// The option that the last line is, with its words or without; none where other options stand above it,
/// since then the options were only said again.
fn letter(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    if worded_option(line) {
        let options = text.lines().filter(|line| worded_option(line.trim())).count();
        return (options == 1).then(|| line.trim_matches(['*', '_', '`']).to_owned());
    }
    let bare = line.trim_matches(['*', '_', '`', '.', ' ']);
    let bare = ["option ", "choice "]
        .into_iter()
        .find(|word| find(bare, word, 0) == Some(0))
        .map_or(bare, |word| &bare[word.len()..]);
    let name = bare.strip_prefix('(').unwrap_or(bare);
    let name = name.strip_suffix(')').unwrap_or(name).trim_matches('*');
    let mut signs = name.chars();
    let one = signs.next().filter(|c| ('A'..='H').contains(c));
    (one.is_some() && signs.next().is_none()).then(|| bare.to_owned())
}

/// `B) 12`, `(B) 12`: a letter in its bracket, and words behind it.
fn worded_option(line: &str) -> bool {
    let line = line.trim_start_matches(['*', '_', '`', '-', ' ', '(']);
    let mut signs = line.chars();
    let letter = signs.next().is_some_and(|c| ('A'..='H').contains(&c));
    letter && signs.next() == Some(')') && signs.as_str().starts_with(' ')
}

/// The formula between dollars that the last number is a part of, from its last equals sign on: of
/// `$p = \frac{3}{4}$` the fraction and not its divisor. None where the number stands by itself.
fn last_formula(text: &str) -> Option<String> {
    let digit = text.rfind(|c: char| c.is_ascii_digit())?;
    let open = text[..digit].rfind('$')?;
    let close = digit + text[digit..].find('$')?;
    // As many dollars before it as there are pairs: it opens one.
    if text[..open].matches('$').count() % 2 == 1 {
        return None;
    }
    let formula = &text[open + 1..close];
    let value = formula.rsplit('=').next()?.trim();
    let whole = value.contains(['\\', '^', '_']) && value.contains(|c: char| c.is_ascii_digit());
    whole.then(|| value.to_owned())
}

/// Whether a text can be a value, and not the rest of a sentence: it has a digit or a sign of
/// mathematics, or it is one word (an option, a name, yes or no).
fn is_value(text: &str) -> bool {
    const NO_ANSWERS: [&str; 9] = ["the", "a", "an", "and", "that", "to", "in", "not", "as"];
    // `A` is an option, `a` an article.
    let no_answer = text != "A" && NO_ANSWERS.contains(&text.to_ascii_lowercase().as_str());
    let one_word = text.split_whitespace().count() == 1 && !no_answer;
    let print = text.contains('{') && !text.contains('\\');
    let long = |word: &&str| word.chars().filter(|c| c.is_alphabetic()).count() > 2;
    let sentence = !text.contains('\\') && text.split_whitespace().filter(long).count() > 5;
    !print
        && !sentence
        && (one_word || text.chars().any(|c| c.is_ascii_digit() || "\\=√π∞".contains(c)))
}

/// Up to a full stop that ends a sentence: one followed by a space or the end.
fn first_sentence(line: &str) -> &str {
    for (at, c) in line.char_indices() {
        let next = line[at + c.len_utf8()..].chars().next();
        if matches!(c, '.' | '!' | '?') && next.is_none_or(|n| n.is_whitespace() || n == '*') {
            return &line[..at];
        }
    }
    line
}

/// The last number, a fraction such as `3/4` taken whole. Digits within a word are none.
fn last_number(text: &str) -> Option<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = None;
    let mut at = 0;
    while at < chars.len() {
        let inside_word = at > 0 && (chars[at - 1].is_alphabetic() || chars[at - 1] == '_');
        let begins = chars[at].is_ascii_digit()
            || (chars[at] == '.' && chars.get(at + 1).is_some_and(char::is_ascii_digit));
        if !begins {
            at += 1;
            continue;
        }
        let end = number_end(&chars, at);
        if !inside_word {
            let sign = at.checked_sub(1).is_some_and(|b| {
                matches!(chars[b], '-' | '−') && (b == 0 || !chars[b - 1].is_alphanumeric())
            });
            let digits: String = chars[at..end].iter().collect();
            found = Some(if sign { format!("-{digits}") } else { digits });
        }
        at = end;
    }
    found
}

/// Where the number that begins at `start` ends: digits, thousands, decimals, a fraction's divisor.
fn number_end(chars: &[char], start: usize) -> usize {
    let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let thousands =
        |at: usize| chars.get(at) == Some(&',') && (1..=3).all(|n| digit(at + n)) && !digit(at + 4);
    let (mut at, mut point, mut fraction) = (start, false, false);
    loop {
        match chars.get(at) {
            Some(c) if c.is_ascii_digit() => at += 1,
            Some(',') if !point && !fraction && thousands(at) => at += 1,
            Some('.') if !point && !fraction && digit(at + 1) => (at, point) = (at + 1, true),
            Some('/') if !fraction && !point && digit(at + 1) => (at, fraction) = (at + 1, true),
            _ => return at,
        }
    }
}

/// Whether a text holds more than punctuation, so that an echoed `...` is no answer.
fn says_something(text: &str) -> bool {
    text.chars().any(|c| !c.is_whitespace() && !c.is_ascii_punctuation() && c != '…')
}

/// The first place of `needle` from `from` on, ASCII case aside.
fn find(text: &str, needle: &str, from: usize) -> Option<usize> {
    let (text, needle) = (text.as_bytes(), needle.as_bytes());
    (from..(text.len() + 1).saturating_sub(needle.len()))
        .find(|&at| text[at..at + needle.len()].eq_ignore_ascii_case(needle))
}

/// The last place of `needle`, ASCII case aside.
fn find_last(text: &str, needle: &str) -> Option<usize> {
    let (text, needle) = (text.as_bytes(), needle.as_bytes());
    (0..(text.len() + 1).saturating_sub(needle.len()))
        .rev()
        .find(|&at| text[at..at + needle.len()].eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(reply: &str) -> Option<(String, Rule)> {
        extract(reply, &LADDER).map(|e| (e.text, e.rule))
    }

    #[test]
    fn each_rule_finds_its_form() {
        let cases = [
            ("so <Answer> 42 </Answer>.", "42", Rule::AnswerTag),
            ("<answer>1</answer> no, <ANSWER>2</ANSWER>", "2", Rule::AnswerTag),
            ("<Answer>$\\boxed{7}$</Answer>", "7", Rule::AnswerTag),
            ("<Answer>use <Answer>9</Answer>", "9", Rule::AnswerTag),
            ("\\boxed{1} then \\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt{2}}", Rule::Boxed),
            ("\\boxed{\\left\\{1, 2\\right.}", "\\left\\{1, 2\\right.", Rule::Boxed),
            ("\\boxed{3} and \\boxed{4", "3", Rule::Boxed),
            ("work\n#### 1,234\n", "1,234", Rule::Hashes),
            ("The answer is: **3.5**. Done.", "3.5", Rule::Phrase),
            ("The answer is 4. No, the final answer is (B).", "(B)", Rule::Phrase),
            ("**Answer:** 42", "42", Rule::Phrase),
            ("Answer: B", "B", Rule::Phrase),
            ("the correct option is (C).", "(C)", Rule::Phrase),
            ("so it must be\n\n**(B)**", "(B)", Rule::Letter),
            ("First 3, then 4.\nOption C.", "C", Rule::Letter),
            ("It is 7 for A.\nB)", "B)", Rule::Letter),
            ("thus $p = \\frac{3}{4}$.", "\\frac{3}{4}", Rule::LastNumber),
            ("$2 + 3 = 5$ in all", "5", Rule::LastNumber),
            ("he pays $5 and then $6", "6", Rule::LastNumber),
            ("**73**", "73", Rule::LastNumber),
            ("\\boxed{12} so \\boxed{12}", "12", Rule::Boxed),
            ("#### 3\nNow mine:\n#### 18", "18", Rule::Hashes),
            ("So the answer is A.", "A", Rule::Phrase),
            ("Answer: **A**", "A", Rule::Phrase),
            ("We add.\nA) 5 apples", "A) 5 apples", Rule::Letter),
            ("A) 5 apples\nB) 6 apples", "6", Rule::LastNumber),
            ("12 apples and -3 pears", "-3", Rule::LastNumber),
            ("he has 10-3 left", "3", Rule::LastNumber),
            ("a total of 1,250.75 euro", "1,250.75", Rule::LastNumber),
            ("about 3/4 of x2", "3/4", Rule::LastNumber),
            ("1,2,3", "3", Rule::LastNumber),
            ("costs 7.", "7", Rule::LastNumber),
        ];
        for (reply, text, rule) in cases {
            assert_eq!(found(reply), Some((text.to_owned(), rule)), "{reply}");
        }
    }

    #[test]
    fn a_heading_and_an_echo_are_no_answers() {
        assert_eq!(found("#### Step two\nnothing"), None);
        assert_eq!(found("<Answer>...</Answer>"), None);
        assert_eq!(found("<Answer></Answer> the answer is …"), None);
        assert_eq!(found(""), None);
        let printing = "```python\nprint(f\"The answer is: {a}\")\n```\n";
        assert_eq!(found(printing), None);
        assert_eq!(found(&format!("The answer is 4.\n{printing}")).unwrap().0, "4");
        let programs = "<code>\nprint(\"The answer is a\")\n</code>\nprint(f\"The answer is {a}\")";
        assert_eq!(found(programs), None);
        assert_eq!(found("The answer is [<Answer>...</Answer>]."), None);
        assert_eq!(found("The answer is <Answer>...").map(|f| f.0), None);
    }

    #[test]
    fn the_rest_of_a_sentence_is_no_value() {
        for reply in [
            "The answer is the same, but in a different way",
            "the answer is that books were not lent out",
            "The answer is: {total:10.3f}\")",
            "The answer is `The program was run, but failed.`",
            "So the answer is and",
            "Answer: first we see that all of the 3 boys have pens",
        ] {
            assert_eq!(extract(reply, &[Rule::Phrase]), None, "{reply}");
        }
        assert_eq!(found("The answer is \"The answer is 20.\"").unwrap().0, "20");
        assert_eq!(found("The answer is x + 1 = 2y").unwrap().0, "x + 1 = 2y");
        assert_eq!(found("The answer is Paris.").unwrap().0, "Paris");
        assert_eq!(found("The answer is \\frac{a}{b}").unwrap().0, "\\frac{a}{b}");
    }

    #[test]
    fn thoughts_are_cut_first() {
        assert_eq!(found("<think>the answer is 3</think> the answer is 4").unwrap().0, "4");
        assert_eq!(found("maybe 3</think> it is 5").unwrap().0, "5");
        assert_eq!(found("<think>the answer is 3"), None);
        assert_eq!(without_thoughts("a <think>b</think> c"), " c");
    }

    #[test]
    fn tags_nest_and_need_their_end() {
        assert_eq!(tagged("<Fix>a</Fix><fix>b</FIX><Fix>c", "Fix"), ["a", "b"]);
        assert!(tagged("é<Fix", "Fix").is_empty());
        assert!(tagged("I will write between <Fix> and </Fix>.", "Fix").is_empty());
    }
}
