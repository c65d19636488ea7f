//! Answers in words, compared as HotpotQA's own evaluation does.

use std::collections::BTreeMap;

/// Lower case, without ASCII punctuation, without the articles, words divided by single spaces.
pub fn normalised(text: &str) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let words = bare.split_whitespace().filter(|word| !["a", "an", "the"].contains(word));
    words.collect::<Vec<_>>().join(" ")
}

/// The harmonic mean of precision and recall over words, from 0 to 1. An answer or gold of `yes`, `no` or
/// `noanswer` counts only as a whole.
pub fn f1(answer: &str, gold: &str) -> f64 {
    let (answer, gold) = (normalised(answer), normalised(gold));
    let whole = |text: &str| ["yes", "no", "noanswer"].contains(&text);
    if (whole(&answer) || whole(&gold)) && answer != gold {
        return 0.0;
    }
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    gold.split(' ').filter(|w| !w.is_empty()).for_each(|word| *left.entry(word).or_default() += 1);
    let mut shared = 0;
    for word in answer.split(' ') {
        if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            shared += 1;
        }
    }
    let count = |text: &str| text.split(' ').filter(|word| !word.is_empty()).count() as f64;
    match shared {
        0 => 0.0,
        _ => 2.0 * f64::from(shared) / (count(&answer) + count(&gold)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_normalised_and_counted() {
        assert_eq!(normalised("The  Beatles' \"A Day\" in an U.S. city"), "beatles day in us city");
        assert_eq!(f1("the Chief of Protocol", "Chief of Protocol"), 1.0);
        // Two of three words shared with two of four: precision 2/3, recall 1/2.
        assert!((f1("red green blue", "red green one two") - 4.0 / 7.0).abs() < 1e-12);
        assert_eq!(f1("yes it is", "yes"), 0.0);
        assert_eq!(f1("Yes.", "yes"), 1.0);
        assert_eq!(f1("", "x"), 0.0);
        assert_eq!(f1("a a", "the"), 0.0);
        // A word counts as often as the other side has it.
        assert!((f1("b b b", "b c") - 2.0 / 5.0).abs() < 1e-12);
    }
}
