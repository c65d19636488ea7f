//! Pairs written for this: what is equal, what is not, what must stay undecided, and why.

use std::collections::BTreeMap;

use unsay::answer::{Equality, compare, grade};

use super::{lines, text};
use crate::support::data;

#[test]
fn every_pair_is_graded_as_written() {
    let pairs = lines(&data("grading/pairs.jsonl"));
    assert!(pairs.len() >= 240, "{}", pairs.len());
    let mut reasons = BTreeMap::new();
    for pair in &pairs {
        let (answer, gold) = (text(pair, "answer"), text(pair, "gold"));
        let expected = match (pair["equal"].as_bool().unwrap(), pair["undecided"].as_bool()) {
            (true, _) => Equality::Equal,
            (false, Some(true)) => Equality::Undecided,
            (false, _) => Equality::Different,
        };
        let graded = grade(answer, gold);
        let reason = text(pair, "reason");
        assert_eq!(graded.equality, expected, "{answer} | {gold} ({reason}): {graded:?}");
        assert_eq!(grade(gold, answer), graded, "{gold} | {answer}");
        assert_eq!(compare(answer, gold), expected);
        *reasons.entry(reason.to_owned()).or_insert(0) += 1;
    }
    assert!(reasons.len() > 40, "{reasons:?}");
}

/// Nothing within an answer decides for the whole.
#[test]
fn a_part_of_an_answer_is_not_graded() {
    for (answer, gold) in [
        ("5 or 6", "5"),
        ("x = 5 or x = 6", "5"),
        ("between 3 and 5", "5"),
        ("(1, 5)", "5"),
        ("5 + x", "5"),
        ("not 5", "5"),
        ("5, since 2 + 3 = 5", "5"),
        ("\\sqrt{5}", "5"),
        ("5^{2}", "5"),
        ("1/5", "5"),
        ("5!", "5"),
        ("5.1", "5"),
        ("-5", "5"),
        ("5 : 6", "5"),
        ("x > 5", "5"),
        ("|x| = 5", "5"),
        ("f(5)", "5"),
        ("5_6", "5"),
    ] {
        assert_ne!(compare(answer, gold), Equality::Equal, "{answer} | {gold}");
    }
}

#[test]
fn every_verdict_says_why() {
    for (answer, gold, rule) in [
        ("", "5", "empty"),
        ("...", "...", "empty"),
        ("\\int x", "x", "not read"),
        ("1/0", "5", "no value"),
        ("Paris", "5", "different kinds"),
        ("Paris", "Rome", "words"),
        ("50\\%", "0.5", "percent"),
        ("11_8", "9", "base"),
        ("\\ln(-x^2)", "\\ln(-2x^2)", "too few points"),
        ("x!", "(x+1)!/(x+1)", "values at points"),
        ("9^9^9^9", "9^9^9^8", "too large"),
        ("3.142857", "22/7", "rounding"),
        ("3.1429", "22/7", "too few digits"),
    ] {
        assert_eq!(grade(answer, gold).rule.name(), rule, "{answer} | {gold}");
    }
}

/// What would take for ever, or a deep stack, ends at a limit.
#[test]
fn size_is_bounded() {
    let nested = |open: &str, close: &str, times: usize| {
        format!("{}x{}", open.repeat(times), close.repeat(times))
    };
    let hostile = [
        "(".repeat(1_000),
        nested("(", ")", 900),
        nested("\\sqrt{", "}", 200),
        nested("{", "}", 900),
        nested("\\text{", "}", 200),
        nested("2^{", "}", 300),
        nested("[(", ")]", 300),
        "-".repeat(1_900) + "x",
        "\\sin".repeat(400) + " x",
        "x!".repeat(600),
        "1+".repeat(900) + "1",
        "x^{99}+".repeat(200) + "1",
        "9^".repeat(100) + "9",
        "((((x+1)^{60})^{60})^{60})^{60}".to_owned(),
        "(a+b+c+d+e+f+g)^{40}".to_owned(),
        "2500!^{2500!}".to_owned(),
        "99999999!".to_owned(),
        "\\binom{99999999}{4444444}".to_owned(),
        "1e999".to_owned() + &"0".repeat(1_500),
        "\\sqrt{".to_owned() + &"7".repeat(599) + "}",
        "1,".repeat(900),
        "\\{".repeat(500) + &"\\}".repeat(500),
        "\\begin{pmatrix}".to_owned() + &"1&".repeat(700) + "\\end{pmatrix}",
        "\u{e9}".repeat(900),
        "x".repeat(1_999),
        "10^{10^{10}}".to_owned(),
        "e^{e^{e^{e^{e}}}}".to_owned(),
        "\\sin(10^{30})".to_owned(),
    ];
    for text in &hostile {
        let other = format!("{text}+1");
        assert_ne!(grade(text, "12345").equality, Equality::Equal, "{text}");
        assert_ne!(grade(text, &other).equality, Equality::Equal, "{text}");
        let says = text.contains(|c: char| c.is_alphanumeric() || c == '\\');
        assert_eq!(grade(text, text).equality == Equality::Equal, says, "{text}");
    }
}
