//! Graders that were wrong, each with where it was reported; and what is right here.

use unsay::answer::{Equality, LADDER, Rule, compare, extract, grade};

fn answer(reply: &str) -> (String, Rule) {
    let found = extract(reply, &LADDER).unwrap();
    (found.text, found.rule)
}

fn equal(answer: &str, gold: &str) -> bool {
    compare(answer, gold) == Equality::Equal
}

/// G1, Math-Verify 44: the same boxed answer given twice was read as one number.
#[test]
fn g1_a_box_given_twice() {
    let reply = "So $x = \\boxed{12}$.\n\nThe final answer is $\\boxed{12}$";
    assert_eq!(answer(reply), ("12".to_owned(), Rule::Boxed));
    assert!(equal(&answer(reply).0, "12"));
    assert!(!equal(&answer(reply).0, "1212"));
    assert_eq!(answer("\\boxed{3}, no: \\boxed{\\frac{1}{2}}").0, "\\frac{1}{2}");
}

/// G2, Math-Verify 76: bold `**73**` was misread.
#[test]
fn g2_bold() {
    assert!(equal("**73**", "73"));
    assert!(equal("**-7.50**", "-7.5"));
    for reply in ["The answer is **73**.", "**Answer:** 73", "In all:\n\n**73**"] {
        assert!(equal(&answer(reply).0, "73"), "{reply}");
    }
}

/// G3, Math-Verify 14: 1/2004! was judged equal to 1/2006!.
#[test]
fn g3_small_numbers_are_exact() {
    for (one, other) in [
        ("1/2004!", "1/2006!"),
        ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),
        ("10^{-400}", "0"),
        ("2^{1000}", "2^{1000}+1"),
    ] {
        let graded = grade(one, other);
        assert_eq!((graded.equality, graded.rule.name()), (Equality::Different, "exact value"));
    }
    assert!(equal("\\frac{1}{2006!}", "\\frac{1}{2004! \\cdot 2005 \\cdot 2006}"));
}

/// G4, Math-Verify 82: 1-1/e was judged equal to 1+1/e.
#[test]
fn g4_never_a_fragment() {
    assert_eq!(compare("1 - \\frac{1}{e}", "1 + \\frac{1}{e}"), Equality::Different);
    assert_eq!(compare("1 - \\frac{1}{\\mathrm{e}}", "1 - e^{-1}"), Equality::Equal);
    // Nor is the divisor of the last fraction a reply's answer.
    assert_eq!(answer("The chance is $p = \\frac{3}{4}$.").0, "\\frac{3}{4}");
}

/// G5, Math-Verify 50, 55, 11: a timer off the main thread silently gave False.
#[test]
fn g5_three_values_on_any_thread() {
    let graded = std::thread::spawn(|| grade("9^9^9^9", "9^9^9^8")).join().unwrap();
    assert_eq!((graded.equality, graded.rule.name()), (Equality::Undecided, "too large"));
    let graded = std::thread::spawn(|| grade("\\frac{2}{4}", "0.5")).join().unwrap();
    assert_eq!((graded.equality, graded.rule.name()), (Equality::Equal, "exact value"));
}

/// G6, lm-eval 4030: identical tuples, intervals and matrices were judged wrong.
#[test]
fn g6_tuples_intervals_matrices() {
    for (one, other) in [
        ("(1, -2)", "\\left(1,-2\\right)"),
        ("[2,5)", "\\left[2, 5\\right)"),
        ("(-\\infty,-5]\\cup[5,\\infty)", "[5, \\infty) \\cup (-\\infty, -5]"),
        (
            "\\begin{pmatrix}1\\\\\\frac12\\end{pmatrix}",
            "\\begin{bmatrix} 1 \\\\ 0.5 \\end{bmatrix}",
        ),
    ] {
        assert!(equal(one, other) && equal(one, one) && equal(other, other), "{one} | {other}");
    }
}

/// G7, lm-eval 2212: gold against itself scored 94 %. Every public gold: `grading/oracles.rs`; here forms
/// of which a reader may fail.
#[test]
fn g7_gold_is_itself() {
    for gold in [
        "\\text{(C)}",
        "4210_{5}",
        "137 \\frac{1}{2}",
        "\\$32,\\!348",
        "y = -2x",
        "x \\in [-2,7]",
        "\\{1\\pm\\sqrt{5},-2\\}",
        "864 \\mbox{ inches}^2",
        "\\sum_{k=1}^n k^2",
        "10:3",
        "3:00 p.m.",
        "None of the above",
        "AB \\parallel CD",
        "f^{-1}(x)",
        "\\overline{AB}",
        "-(1/3)",
        "√2 – 1",
    ] {
        assert!(equal(gold, gold), "{gold}");
        assert!(equal(&format!(" ${gold}$ "), gold), "{gold}");
    }
}

/// G8, lm-eval 3214: `$29.00` was not 29.
#[test]
fn g8_money() {
    for gold in ["29", "29.0", "\\$29", "$29", "29 dollars"] {
        assert!(equal("$29.00", gold) && equal("\\$29.00", gold), "{gold}");
    }
    assert!(!equal("$29.00", "2900"));
    assert!(!equal("$29.00", "29 cents"));
    assert!(!equal("$29.00", "€29"));
}

/// G9, lm-eval 3785: permutations were taken for equal where order matters, bases were dropped.
#[test]
fn g9_order_and_bases() {
    assert!(equal("\\{3,1,2\\}", "\\{1,2,3\\}") && equal("3, 1, 2", "1,2,3"));
    assert!(!equal("(3,1,2)", "(1,2,3)"));
    assert!(equal("11_8", "11_{8}"));
    for other in ["11", "11_9", "9", "1001_2"] {
        assert!(!equal("11_8", other), "{other}");
    }
}

/// G10, lm-eval 3438: the first `####` was taken while the model recited its examples. The last one counts.
#[test]
fn g10_the_last_hashes_count() {
    let reply = "Q: 1+1?\n#### 2\n\nQ: 2+3?\nThat makes 5.\n#### 5";
    assert_eq!(answer(reply), ("5".to_owned(), Rule::Hashes));
}

/// G11, open-r1 655: pass@1 was divided by another number than that of the samples drawn.
#[test]
fn g11_pass_at_1_is_divided_by_the_samples_drawn() {
    for (samples, right) in [(10u32, 3u32), (3, 3), (7, 0), (1, 1)] {
        let wanted = f64::from(right) / f64::from(samples);
        let got = unsay::stats::pass_at_k(samples.into(), right.into(), 1).unwrap();
        assert!((got - wanted).abs() < 1e-12, "{right} of {samples}: {got}");
    }
}
