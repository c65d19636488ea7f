//! Two official graders, where they agree; what they do not settle is settled by hand, pair by pair, in
//! `adjudicated.jsonl`: there a pair is named by its file, line and field, so that no benchmark answer is
//! kept here.

use std::collections::BTreeMap;

use serde_json::Value;
use unsay::answer::{Equality, grade};
use unsay::tasks::{self, Gold};

use super::{lines, public, text};
use crate::support::data;

const FILES: [&str; 5] = [
    "math_equivalence/pairs.jsonl",
    "math500/conformance_gpt-3.5-16K.jsonl",
    "math500/conformance_gpt-4o-0806.jsonl",
    "gsm8k/conformance_gpt-3.5-16K.jsonl",
    "gsm8k/conformance_gpt-4o-0806.jsonl",
];

/// What the two graders say of a field of a record.
fn labels(record: &Value, field: &str) -> [bool; 2] {
    let label = |grader: &str| {
        let name = format!("{grader}({field},gold)");
        record["labels"][&name].as_bool().unwrap_or_else(|| panic!("no {name} in {record}"))
    };
    [label("prm800k.grade_answer"), label("hendrycks.is_equiv")]
}

#[test]
fn official_graders_are_agreed_with_where_they_agree() {
    let Some(folder) = public().map(|folder| folder.join("data")) else { return };
    let mut by_hand: BTreeMap<(String, u64, String), bool> = BTreeMap::new();
    for record in lines(&data("grading/adjudicated.jsonl")) {
        let place = (
            text(&record, "file").to_owned(),
            record["line"].as_u64().unwrap(),
            text(&record, "field").to_owned(),
        );
        assert!(!text(&record, "why").is_empty());
        by_hand.insert(place, record["equal"].as_bool().unwrap());
    }
    let (mut agreed, mut settled, mut undecided) = (0, 0, 0);
    for file in FILES {
        let fields: &[&str] =
            if file.starts_with("math_eq") { &["given"] } else { &["pred", "boxed"] };
        for (record, line) in lines(&folder.join(file)).iter().zip(1..) {
            for field in fields.iter().filter(|field| !record[**field].is_null()) {
                let place = (file.to_owned(), line, (*field).to_owned());
                let expected = match (by_hand.remove(&place), labels(record, field)) {
                    (Some(equal), _) => {
                        settled += 1;
                        equal
                    }
                    (None, [one, other]) => {
                        assert_eq!(one, other, "not adjudicated: {place:?}");
                        agreed += 1;
                        one
                    }
                };
                let graded = grade(text(record, field), text(record, "gold"));
                undecided += usize::from(graded.equality == Equality::Undecided);
                assert_eq!(
                    graded.equality == Equality::Equal,
                    expected,
                    "{place:?}: {} | {}: {graded:?}",
                    text(record, field),
                    text(record, "gold")
                );
            }
        }
    }
    assert!(by_hand.is_empty(), "adjudicated and not there: {by_hand:?}");
    assert_eq!((agreed, settled, undecided), (3562, 358, 57));
}

#[test]
fn hard_pairs() {
    let Some(folder) = public() else { return };
    let pairs = lines(&folder.join("cases/grading_pairs.jsonl"));
    for pair in &pairs {
        let graded = grade(text(pair, "answer"), text(pair, "gold"));
        let equal = pair["equal"].as_bool().unwrap();
        assert_eq!(graded.equality == Equality::Equal, equal, "{pair}: {graded:?}");
    }
    assert_eq!(pairs.len(), 44);
}

/// The unit tests of the second grader. It keeps the order of lists that stand without brackets; here
/// they have none (as in the first pair's `1,2,3` of the hard ones).
#[test]
fn unit_tests_of_a_grader() {
    let Some(folder) = public().map(|folder| folder.join("data")) else { return };
    let pairs = lines(&folder.join("math_equivalence/hendrycks_unit_tests.jsonl"));
    for pair in &pairs {
        let graded = grade(text(pair, "given"), text(pair, "gold"));
        let expected = pair["is_equiv"].as_bool().unwrap() || text(pair, "name") == "test_decimals";
        assert_eq!(graded.equality == Equality::Equal, expected, "{pair}: {graded:?}");
    }
}

/// lm-eval 2212: gold against itself was right in 94 of 100. Here each gold of each set, as it is and as a
/// reply would have it.
#[test]
fn gold_is_equal_to_itself_in_every_set() {
    let Some(folder) = public().map(|folder| folder.join("data")) else { return };
    let sets = [
        "gsm8k",
        "gsm8k-train",
        "math500",
        "math-np",
        "svamp",
        "asdiv",
        "addsub",
        "multiarith",
        "singleeq",
        "aqua",
        "gsm-ic-2step",
        "gsm-ic-mstep",
    ];
    let mut golds = 0;
    for name in sets {
        for item in tasks::load(name, Some(&folder)).unwrap().items {
            let values = match item.gold {
                Gold::Values(values) => values,
                Gold::Choice { options, .. } => options.into_iter().map(|o| o.text).collect(),
                Gold::Words(words) => vec![words],
                _ => unreachable!("{} has no values", item.id),
            };
            for gold in values {
                golds += 1;
                for reply in [gold.clone(), format!(" \\boxed{{{gold}}}. "), format!("**{gold}**")]
                {
                    let graded = grade(&reply, &gold);
                    assert_eq!(graded.equality, Equality::Equal, "{} {reply}: {graded:?}", item.id);
                }
            }
        }
    }
    assert!(golds > 8_000, "{golds}");
}
