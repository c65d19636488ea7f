//! Which option an answer names.

use super::Choice;
use super::words::normalised;
use crate::answer::{Equality, compare};

/// The option that an answer names, and the rule by which it was found: its letter, its words, or a value
/// that only it has. None where the answer names none, or says two different things.
pub fn chosen(answer: &str, options: &[Choice]) -> Option<(char, &'static str)> {
    let answer = answer.trim().trim_matches(['*', '`', '"', '\'', '$']).trim();
    if let Some((letter, rest)) = letter(answer, options) {
        // `B) 12` must be the option that it says it is; other words behind a letter may take it back
        // (`B) is wrong`, `B) or C)`), but for a reason.
        let own = options.iter().find(|choice| choice.letter == letter);
        let same = |text: &str| same_words(rest, text) || compare(rest, text) == Equality::Equal;
        let agrees = rest.is_empty() || own.is_some_and(|choice| same(&choice.text));
        return (agrees || is_reason(rest)).then_some((letter, "letter"));
    }
    let only = |same: &dyn Fn(&Choice) -> bool| {
        let mut found = options.iter().filter(|choice| same(choice));
        found.next().filter(|_| found.next().is_none()).map(|choice| choice.letter)
    };
    let by_words =
        || Some((only(&|choice| same_words(answer, &choice.text))?, "words of the option"));
    let by_value = || {
        let same = |choice: &Choice| compare(answer, &choice.text) == Equality::Equal;
        Some((only(&same)?, "value of the option"))
    };
    by_words().or_else(by_value)
}

/// `because …`, `since …`, and no other option in it.
fn is_reason(rest: &str) -> bool {
    let first = rest.split_whitespace().next().unwrap_or_default().to_lowercase();
    let bracket = |pair: &[char]| pair[0].is_ascii_uppercase() && pair[1] == ')';
    let signs: Vec<char> = rest.chars().collect();
    ["because", "since", "as"].contains(&first.as_str()) && !signs.windows(2).any(bracket)
}

fn same_words(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.trim().trim_end_matches('.').to_lowercase();
    !one.trim().is_empty()
        && (plain(one) == plain(other)
            || (!normalised(one).is_empty()
                && normalised(one) == normalised(other)
                && one.chars().any(char::is_alphabetic)))
}

/// The letter that an answer begins with, and what follows: `B`, `(b)`, `B) 12`, `option B`, `B. because`.
fn letter<'t>(answer: &'t str, options: &[Choice]) -> Option<(char, &'t str)> {
    let mut rest = answer;
    for word in ["the", "correct", "answer", "is", "option", "choice"] {
        let (first, after) = rest.split_once([' ', ':']).unwrap_or((rest, ""));
        if first.eq_ignore_ascii_case(word) {
            rest = after.trim_start_matches([' ', ':', '*']);
        }
    }
    let bracket = rest.starts_with(['(', '[']);
    let mut signs = rest.trim_start_matches(['(', '[']).chars();
    let sign = signs.next()?;
    let after = signs.as_str();
    let letter = sign.to_ascii_uppercase();
    let known = options.iter().any(|choice| choice.letter == letter);
    let ends = after.is_empty()
        || after.starts_with([')', ']', ':', ','])
        || (after.starts_with('.') && !after[1..].starts_with(|c: char| c.is_alphanumeric()));
    // A word that is one small letter (`a`) is no option unless it stands as one.
    let sure = sign.is_uppercase() || bracket || after.is_empty() || after.starts_with(')');
    let rest = after.trim_start_matches([')', ']', '.', ':', ',', '*']).trim();
    (known && ends && sure).then_some((letter, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(answer: &str, texts: &[&str]) -> Option<char> {
        let options: Vec<Choice> = texts
            .iter()
            .zip('A'..)
            .map(|(text, letter)| Choice { letter, text: (*text).to_owned() })
            .collect();
        chosen(answer, &options).map(|(letter, _)| letter)
    }

    #[test]
    fn letters_words_and_values_name_an_option() {
        let numbers = ["$61", "$65", "$67.40", "$70", "None of these"];
        for (answer, letter) in [
            ("B", Some('B')),
            ("(b)", Some('B')),
            ("**B**", Some('B')),
            ("b", Some('B')),
            ("B) $65", Some('B')),
            ("B. because", Some('B')),
            ("Option C", Some('C')),
            ("the correct answer is D", Some('D')),
            ("65", Some('B')),
            ("67.4", Some('C')),
            ("none of these.", Some('E')),
            ("66", None),
            ("B) $70", None),
            ("B) 65.00", Some('B')),
            ("A) or B)", None),
            ("(A) and (B)", None),
            ("A) is wrong", None),
            ("A: No", None),
            ("A) $61 B) $65", None),
            ("A because B) is too much", None),
            ("F", None),
            ("Because", None),
            ("", None),
        ] {
            assert_eq!(named(answer, &numbers), letter, "{answer}");
        }
        let truth = ["True", "False", "Unknown"];
        assert_eq!(named("true", &truth), Some('A'));
        assert_eq!(named("False.", &truth), Some('B'));
        assert_eq!(named("Unknown", &truth), Some('C'));
        assert_eq!(named("A) False", &truth), None);
        assert_eq!(named("a bank", &["bank", "library"]), Some('A'));
        // Two options of the same value are told apart by their letters only.
        assert_eq!(named("0.5", &["1/2", "0.50", "3"]), None);
        // Signs count where there is nothing but signs.
        assert_eq!(named("-4", &["4", "-4"]), Some('B'));
        assert_eq!(named("2a", &["-2a", "2a"]), Some('B'));
    }
}
