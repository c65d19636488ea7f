//! What holds of every text; and digits that another program computed.

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;

use super::compare::compare;
use super::exact::exact;
use super::lex::lex;
use super::limits::{MAX_STEPS, Steps};
use super::parse::parse;
use super::points::{Evaluation, Nowhere};
use super::read::read;
use super::tree::Expr;
use super::{Equality, directed, grade, grade_within};

/// Pieces that answers are made of, whole and broken.
const PIECES: [&str; 84] = [
    "\\frac",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\\{",
    "\\}",
    "1",
    "2",
    "7",
    "10",
    "0",
    "x",
    "y",
    "n",
    "e",
    "i",
    "\\pi",
    "\\sqrt",
    "^",
    "_",
    "+",
    "-",
    "\\pm",
    "\\cdot",
    "/",
    "!",
    ",",
    ";",
    ":",
    "=",
    "<",
    "\\le",
    "\\in",
    "\\cup",
    "\\infty",
    "\\sin",
    "\\log",
    "\\ln",
    "\\text{",
    " and ",
    " or ",
    " cm",
    "%",
    "$",
    "\\$",
    "^\\circ",
    "|",
    "\\begin{pmatrix}",
    "\\end{pmatrix}",
    "&",
    "\\\\",
    "\\left(",
    "\\right)",
    ".",
    "...",
    "\\overline{",
    "^{",
    "999999999",
    "0.333",
    "\\binom",
    "\\lfloor",
    "\\rfloor",
    "é",
    "½",
    "²",
    "√",
    " ",
    "A",
    "(B)",
    "_8",
    "_{16}",
    "\\mathbb{R}",
    "\\emptyset",
    "1,000",
    "\\arctan",
    "9^9^9",
    "dozen",
    "e99",
    "\\sqrt[3]",
    "\\frac{1}{2}",
    "{3}",
];

fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..14)
        .prop_map(|parts| parts.concat())
}

/// Expressions that are well written.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["x", "n", "y", "\\pi", "e", "\\frac{2}{3}", "7.5"])
            .prop_map(str::to_owned),
        (0..30u32).prop_map(|n| n.to_string()),
    ];
    leaf.prop_recursive(3, 16, 2, |inner| {
        (0..12usize, inner.clone(), inner).prop_map(|(kind, a, b)| match kind {
            0 | 1 => format!("({a}) + ({b})"),
            2 => format!("({a}) - ({b})"),
            3 | 4 => format!("({a})({b})"),
            5 => format!("\\frac{{{a}}}{{{b}}}"),
            6 => format!("({a})^{{3}}"),
            7 => format!("\\sqrt{{{a}}}"),
            8 => format!("\\sin({a})"),
            9 => format!("\\ln({a})"),
            10 => format!("\\left|{a}\\right|"),
            _ => format!("({a})^{{{b}}}"),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// Whatever the text: an end, within the steps, the same both ways, and nothing differs from itself.
    #[test]
    fn any_text_is_graded(one in texts(), other in texts()) {
        let steps = Steps::new();
        let graded = grade_within(&one, &other, &steps);
        prop_assert!(steps.used() <= MAX_STEPS);
        prop_assert_eq!(grade(&other, &one), graded);
        if let Ok(items) = lex(&one) && let Ok(value) = read(&items, 0) {
            prop_assert_ne!(compare(&value, &value, &Steps::new()).equality, Equality::Different);
        }
    }

    /// Twice a half of it is never different, one more is never equal, and order says nothing.
    #[test]
    fn expressions_are_themselves(one in expressions()) {
        let same = format!("\\frac{{2({one})}}{{2}}");
        let more = format!("({one}) + 1");
        prop_assert_ne!(grade(&one, &same).equality, Equality::Different);
        prop_assert_ne!(grade(&one, &more).equality, Equality::Equal);
        let (forth, back) =
            (directed(&one, &more, &Steps::new()), directed(&more, &one, &Steps::new()));
        prop_assert_eq!(forth.equality, back.equality);
    }
}

fn expr(text: &str) -> Expr {
    let items = lex(text).unwrap();
    let parsed = parse(&items).unwrap();
    assert_eq!(parsed.length, items.len(), "{text}");
    parsed.expr
}

/// Fifty decimals by mpmath 1.3.
#[test]
fn functions_to_fifty_decimals() {
    for (text, digits) in [
        ("\\pi", "3.14159265358979323846264338327950288419716939937511"),
        ("e", "2.71828182845904523536028747135266249775724709369996"),
        ("\\sqrt{2}", "1.41421356237309504880168872420969807856967187537695"),
        ("\\ln 2", "0.69314718055994530941723212145817656807550013436026"),
        ("\\ln 1000", "6.90775527898213705205397436405309262280330446588632"),
        ("\\sin 1", "0.84147098480789650665250232163029899962256306079837"),
        ("\\cos 1", "0.54030230586813971740093660744297660373231042061792"),
        ("\\tan 1", "1.55740772465490223050697480745836017308725077238152"),
        ("\\arctan 2", "1.10714871779409050301706546017853704007004764540143"),
        ("e^{10}", "22026.46579480671651695790064528424436635351261855678107"),
        ("2^{\\sqrt{2}}", "2.66514414269022518865029724987313984827421131371466"),
        ("\\sinh 1", "1.17520119364380145688238185059560081515571798133410"),
    ] {
        let value = Evaluation { point: &Nowhere, real: true, steps: &Steps::new() }
            .value(&expr(text))
            .unwrap();
        let (whole, part) = digits.split_once('.').unwrap();
        let all: BigInt = format!("{whole}{part}").parse().unwrap();
        let known = BigRational::new(all, BigInt::from(10).pow(50));
        let apart = value.re.minus(&super::float::Real::rational(&known));
        assert!(apart.size() < -164, "{text}: 2^{}", apart.size());
    }
}

#[test]
fn normal_forms_are_exact() {
    for (one, other) in [
        ("\\sqrt{12}", "2\\sqrt{3}"),
        ("\\sqrt{6}\\sqrt{10}", "2\\sqrt{15}"),
        ("\\frac{1}{\\sqrt{8}}", "\\frac{\\sqrt{2}}{4}"),
        ("\\sqrt{-9}", "3i"),
        ("(1+i)^4", "-4"),
        ("\\sqrt[3]{54}", "3\\sqrt[3]{2}"),
        ("(\\sqrt{2}+\\sqrt{3})^2", "5+2\\sqrt{6}"),
        ("x^2 - y^2", "(x-y)(x+y)"),
    ] {
        let form = |text| exact(&expr(text), &Steps::new()).unwrap();
        assert_eq!(form(one), form(other), "{one}");
    }
}
