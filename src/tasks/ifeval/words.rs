//! Words as the official verdicts count them.

/// How many runs of letters, digits and underscores a text has (Python's `\w+`).
pub fn count(text: &str) -> usize {
    text.split(|c: char| !is_word(c)).filter(|run| !run.is_empty()).count()
}

/// Python's `\w`: what is alphanumeric, marks that are no letters left out.
fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Endings that are words of their own, as in the Penn Treebank: `I'M` is two.
const ENDINGS: [&str; 6] = ["'S", "'M", "'D", "'LL", "'RE", "'VE"];

/// How many words of a text have capital letters only. Words are those of the Penn Treebank: divided at
/// white space and punctuation, but not at hyphens, slashes, and full stops within.
pub fn capital(text: &str) -> usize {
    text.split_whitespace().map(capital_parts).sum()
}

fn capital_parts(word: &str) -> usize {
    let parts = word.split(|c: char| "?!\"“”‘’()[]{}<>;@#$%&,:*".contains(c) || c == '…');
    parts.map(|part| contractions(part.split("--"))).sum()
}

fn contractions<'t>(parts: impl Iterator<Item = &'t str>) -> usize {
    parts
        .map(|part| {
            let upper = part.to_uppercase();
            let ending = ENDINGS
                .iter()
                .find(|ending| upper.len() == part.len() && upper.ends_with(**ending));
            let (stem, rest) = part.split_at(part.len() - ending.map_or(0, |ending| ending.len()));
            let (stem, not) = match stem.len() == upper.len() && upper.ends_with("N'T") {
                true => stem.split_at(stem.len() - 3),
                false => (stem, ""),
            };
            [stem, not, rest].into_iter().filter(|part| is_upper(part)).count()
        })
        .sum()
}

/// Python's `isupper`: something has a case, and none of it is small.
pub fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(is_small)
}

/// Python's `islower`.
pub fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)
}

fn is_small(c: char) -> bool {
    c.is_lowercase()
}
