//! What a judge's reply says of a unit. The grammar of the paper's rule is strict: a reply that does
//! not keep it is a format failure, never a pass.

use crate::answer::{tagged, without_thoughts};

use super::Accept;

/// A verdict that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The unit stands.
    Right,
    /// The unit is to be replaced by this one.
    Wrong { fix: String },
}

/// Reads the reply to `unit`, the unit as it stood in the question just answered.
///
/// By the paper (`Accept::Both`) the first word is exactly `OK` or `WRONG`. OK without a Fix, or with
/// a Fix equal to the unit, is a pass; OK with another Fix is WRONG with that Fix; WRONG needs a Fix
/// that differs. By the released code (`Accept::Either`) a reply that begins with the letters "ok" in
/// any case is a pass whatever follows, and so is one whose Fix equals the unit.
pub fn read_verdict(reply: &str, unit: &str, accept: Accept) -> Result<Judgement, String> {
    let spoken = without_thoughts(reply);
    let word = first_word(spoken);
    if accept == Accept::Either && begins_with_ok(spoken) {
        return Ok(Judgement::Right);
    }
    let fix = fix_of(spoken, unit)?;
    let same = fix.as_deref().is_some_and(|fix| same_unit(fix, unit));
    if accept == Accept::Either && same {
        return Ok(Judgement::Right);
    }
    match (word, fix) {
        (Some("OK"), None) => Ok(Judgement::Right),
        (Some("OK"), Some(_)) if same => Ok(Judgement::Right),
        (Some("OK"), Some(fix)) => Ok(Judgement::Wrong { fix }),
        (Some("WRONG"), Some(_)) if same => {
            Err("it says WRONG, but its <Fix> is the unit as it stands".to_owned())
        }
        (Some("WRONG"), Some(fix)) => Ok(Judgement::Wrong { fix }),
        (Some("WRONG"), None) => {
            Err("it says WRONG, but gives no corrected unit in <Fix>...</Fix>".to_owned())
        }
        _ => Err("its first word is neither OK nor WRONG".to_owned()),
    }
}

/// The text after `Analysis:`, up to a Fix that follows it.
pub fn analysis_of(reply: &str) -> Option<String> {
    let spoken = without_thoughts(reply);
    let lower = spoken.to_ascii_lowercase();
    let at = lower.find("analysis:")? + "analysis:".len();
    let end = lower[at..].find("<fix>").map_or(spoken.len(), |n| at + n);
    let text = spoken[at..end].trim().trim_start_matches('*').trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether two units are the same but for white space and quotes of code; case counts.
pub fn same_unit(one: &str, other: &str) -> bool {
    reduced(one) == reduced(other)
}

/// The signs of Markdown and quoting that may stand before the verdict.
const MARKUP: &[char] = &['*', '_', '`', '#', '>', '"', '\'', '“', '‘', '[', '(', '{', '-', '•'];

/// The first word, if it ends as a verdict must: at the end of the reply, at punctuation or at the end
/// of its line. A tag is punctuation, also after a space. A sign that joins words (`OK/WRONG`) does
/// not end one.
pub fn first_word(reply: &str) -> Option<&str> {
    let text = reply.trim_start_matches(|c: char| c.is_whitespace() || MARKUP.contains(&c));
    let length = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let mut after = rest.chars();
    let ends = match (after.next(), after.next()) {
        (None, _) => true,
        (Some('/' | '|' | '-' | '\'' | '’' | '_' | '\\' | '&' | '+'), Some(next)) => {
            !next.is_alphanumeric()
        }
        (Some(c), _) if c == '\n' || c == '\r' || is_punctuation(c) => true,
        (Some(c), _) if c.is_whitespace() => {
            let next = rest.trim_start_matches([' ', '\t']).chars().next();
            next.is_none_or(|n| matches!(n, '\n' | '\r' | '<'))
        }
        _ => false,
    };
    (ends && !word.is_empty()).then_some(word)
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || "…–—。！？，：；”’»".contains(c)
}

/// The released code's test: the first letters are "ok".
fn begins_with_ok(reply: &str) -> bool {
    let mut letters = reply.chars().filter(|c| c.is_alphabetic()).map(|c| c.to_ascii_lowercase());
    letters.next() == Some('o') && letters.next() == Some('k')
}

/// The corrected unit, if the reply gives one; an open or a doubtful Fix is a format failure.
fn fix_of(reply: &str, unit: &str) -> Result<Option<String>, String> {
    // `<Fix>...</Fix>`, the form repeated, says nothing.
    let says_something = |fix: &String| fix.contains(char::is_alphanumeric);
    let mut fixes: Vec<String> =
        tagged(reply, "Fix").into_iter().map(bare_fix).filter(says_something).collect();
    fixes.dedup_by(|a, b| same_unit(a, b));
    // The unit repeated beside its correction is not a second correction.
    if fixes.len() > 1 {
        fixes.retain(|fix| !same_unit(fix, unit));
    }
    match fixes.len() {
        0 if unclosed(reply) => Err("its <Fix> is not closed by </Fix>".to_owned()),
        0 => Ok(None),
        1 => Ok(fixes.pop()),
        _ => Err("it gives more than one corrected unit".to_owned()),
    }
}

fn unclosed(reply: &str) -> bool {
    reply.to_ascii_lowercase().contains("<fix>") && tagged(reply, "Fix").is_empty()
}

/// A Fix without the fence around it and without the `Unit 3:` before it.
fn bare_fix(fix: &str) -> String {
    let mut text = fix.trim();
    if let Some(inner) = text.strip_prefix("```").and_then(|t| t.strip_suffix("```")) {
        text = inner.split_once('\n').map_or(inner, |(_, body)| body).trim();
    }
    if let Some(rest) = text.strip_prefix("Unit ") {
        let body = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if body.len() < rest.len()
            && let Some(body) = body.strip_prefix(':')
        {
            text = body.trim();
        }
    }
    text.to_owned()
}

/// A unit without backticks, with one kind of quotes, and with white space only between words; the
/// inside of a string literal stays as it is.
fn reduced(unit: &str) -> String {
    let chars: Vec<char> = unit.chars().filter(|&c| c != '`').collect();
    let mut out = String::new();
    let mut gap = false;
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c.is_whitespace() {
            gap = true;
            at += 1;
            continue;
        }
        let word = |c: char| c.is_alphanumeric() || c == '_';
        if gap && word(c) && out.chars().next_back().is_some_and(word) {
            out.push(' ');
        }
        gap = false;
        let closing = matches!(c, '"' | '\'').then(|| literal_end(&chars, at)).flatten();
        if let Some(end) = closing {
            out.push('"');
            out.extend(&chars[at + 1..end]);
            out.push('"');
            at = end + 1;
        } else {
            out.push(c);
            at += 1;
        }
    }
    out
}

/// Where the string literal that opens at `start` closes, if it does so on its line.
fn literal_end(chars: &[char], start: usize) -> Option<usize> {
    let mut escaped = false;
    for (at, &c) in chars.iter().enumerate().skip(start + 1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return None,
            c if c == chars[start] => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "RUN `ans = a + b`";

    fn strict(reply: &str) -> Result<Judgement, String> {
        read_verdict(reply, UNIT, Accept::Both)
    }

    fn wrong(fix: &str) -> Result<Judgement, String> {
        Ok(Judgement::Wrong { fix: fix.to_owned() })
    }

    #[test]
    fn ok_in_its_forms_is_a_pass() {
        for reply in [
            "OK",
            "OK.",
            "OK\nAnalysis: fine",
            "  **OK**\n",
            "# OK: right",
            "> `OK`, so",
            "OK  \nAnalysis: fine",
            "OK—right",
            "<think>WRONG?</think>\nOK",
            "OK\n<Fix></Fix>",
            "OK\n<Fix>RUN `ans = a + b`</Fix>",
            "OK <Fix>RUN ans=a+b</Fix>",
            "OK\n<Fix>\n```python\nRUN `ans = a  + b`\n```\n</Fix>",
            "OK\n<Fix>Unit 3: RUN `ans = a + b`</Fix>",
        ] {
            assert_eq!(strict(reply), Ok(Judgement::Right), "{reply}");
        }
    }

    #[test]
    fn what_only_looks_like_ok_is_a_format_failure() {
        for reply in [
            "Okay, but this is wrong",
            "okay",
            "ok",
            "Ok.",
            "OK but this is wrong",
            "OKAY.",
            "OK/WRONG",
            "OK|WRONG\n",
            "OK-ish",
            "The unit is OK.",
            "",
            "***",
            "WRONGLY done",
            "Wrong.\n<Fix>RUN `ans = a - b`</Fix>",
            "<think>OK",
        ] {
            assert!(strict(reply).is_err(), "{reply}");
        }
    }

    #[test]
    fn wrong_needs_a_fix_that_differs() {
        let fix = "RUN `ans = a - b`";
        assert_eq!(strict(&format!("WRONG\n<Fix>{fix}</Fix>\nAnalysis: x")), wrong(fix));
        assert_eq!(strict(&format!("WRONG <fix> {fix} </fix>")), wrong(fix));
        assert_eq!(strict(&format!("OK\n<Fix>{fix}</Fix>")), wrong(fix));
        assert_eq!(
            strict(&format!("WRONG\n<Fix>{UNIT}</Fix> is now <Fix>{fix}</Fix>")),
            wrong(fix)
        );
        for reply in [
            "WRONG",
            "WRONG\n<Fix></Fix>",
            "WRONG\n<Fix>...</Fix>",
            "WRONG, see between <Fix> and </Fix>",
            "WRONG\n<Fix>RUN `ans = a - b`",
            "WRONG\n<Fix>RUN `ans=a+b`</Fix>",
            "WRONG\n<Fix>x</Fix> or <Fix>y</Fix>",
        ] {
            assert!(strict(reply).is_err(), "{reply}");
        }
    }

    #[test]
    fn the_released_rule_accepts_by_either() {
        let either = |reply: &str| read_verdict(reply, UNIT, Accept::Either);
        for reply in [
            "Okay, but this is wrong",
            "ok",
            "OK\n<Fix>RUN `ans = 0`</Fix>",
            "WRONG\n<Fix>RUN `ans=a+b`</Fix>",
        ] {
            assert_eq!(either(reply), Ok(Judgement::Right), "{reply}");
        }
        assert_eq!(either("WRONG\n<Fix>RUN `ans = 0`</Fix>"), wrong("RUN `ans = 0`"));
        assert!(either("WRONG").is_err());
        assert!(either("Hm, fine").is_err());
    }

    #[test]
    fn units_are_compared_but_for_space_and_quotes() {
        assert!(same_unit("RUN `x = 'a'`", "RUN x=\"a\""));
        assert!(same_unit("RUN [\n  a = 1\n  b = 2 ]", "RUN [ a = 1 b = 2 ]"));
        assert!(!same_unit("a = B", "a = b"));
        assert!(!same_unit("return not x", "return notx"));
        assert!(!same_unit("', '.join(xs)", "','.join(xs)"));
        assert!(same_unit("it isn't  so", "it isn't so"));
    }

    #[test]
    fn the_analysis_is_what_follows_its_mark() {
        assert_eq!(analysis_of("OK\nAnalysis: a\nb ").as_deref(), Some("a\nb"));
        assert_eq!(analysis_of("WRONG **analysis:** a <Fix>b</Fix>").as_deref(), Some("a"));
        assert_eq!(analysis_of("OK Analysis:"), None);
        assert_eq!(analysis_of("OK"), None);
    }
}
