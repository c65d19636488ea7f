//! Instructions that a checker read wrongly.

use unsay::tasks::ifeval::{Instruction, Rule, check};

fn follows(rule: Rule, text: &str) -> bool {
    check(&[Instruction { id: String::new(), rule }], text).strict[0]
}

/// I1: the n-th paragraph is the n-th of all parts between empty lines, as the official checker has it.
#[test]
fn i1_the_nth_paragraph_is_the_official_one() {
    let rule = |nth, word: &str| Rule::FirstWord { paragraphs: 3, nth, word: word.to_owned() };
    let text = "Alpha one.\n\nBeta two.\nnot a paragraph.\n\nGamma three.";
    assert!(follows(rule(1, "alpha"), text));
    assert!(follows(rule(2, "beta"), text));
    assert!(follows(rule(3, "gamma"), text));
    assert!(!follows(rule(3, "not"), text));
    // An empty part keeps its place in the order, but is not counted.
    assert!(!follows(rule(2, "beta"), "Alpha one.\n\n\n\nBeta two.\n\nGamma three."));
    assert!(follows(rule(3, "beta"), "Alpha one.\n\n\n\nBeta two.\n\nGamma three."));
}

/// I2: a line that begins in bold is no bullet; one with a star and a space is, also where it goes on in bold.
#[test]
fn i2_bold_lines_are_no_bullets() {
    assert!(!follows(Rule::Bullets(2), "**First** point\n**Second** point"));
    assert!(follows(Rule::Bullets(2), "* **First** point\n* second"));
    assert!(follows(Rule::Bullets(3), "Here:\n  - one\n* two\n\n- three"));
    assert!(!follows(Rule::Bullets(2), "* one\n* two\n* three"));
}
