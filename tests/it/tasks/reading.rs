//! Files, damaged and whole, and selections of their items.

use std::io::Write;
use std::path::PathBuf;

use unsay::answer::Verdict;
use unsay::tasks::{self, Gold, Item, Selection, TaskError};

use super::{data_sets, read};

/// Records of each file as its README counts them, and a gold answer looked up by hand.
const SETS: [(&str, usize, &str, &str); 19] = [
    ("gsm8k", 1219, "gsm8k-1", "18"),
    ("gsm8k-train", 300, "gsm8k-train-1", "72"),
    ("math500", 400, "test/intermediate_algebra/1994.json", "p - q"),
    ("math-np", 487, "geometry_8", "\\frac{4}{3}\\pi"),
    ("svamp", 1000, "chal-1", "51"),
    ("asdiv", 2305, "nluds-0001", "9"),
    ("addsub", 395, "addsub-1", "43"),
    ("multiarith", 600, "multiarith-1", "39"),
    ("singleeq", 508, "singleeq-1", "43"),
    ("aqua", 254, "aqua-1", "A) 5(√3 + 1)"),
    ("gsm-ic-2step", 600, "gsm-ic-2step-1", "307"),
    ("gsm-ic-mstep", 400, "gsm-ic-mstep-1", "105"),
    ("commonsenseqa", 1221, "1afa02df02c908a558b4036e80242fac", "A) bank"),
    ("hotpotqa", 7405, "hotpotqa-1", "yes"),
    ("hotpotqa-context", 100, "5a7613c15542994ccc9186bf", "Gesellschaft mit beschränkter Haftung"),
    ("prontoqa", 400, "ProntoQA_2", "A) True"),
    ("proofwriter", 600, "ProofWriter_RelNeg-OWA-D5-136_Q1", "A) True"),
    ("proofwriter-dev", 600, "ProofWriter_AttNoneg-OWA-D5-1041_Q1", "A) True"),
    (
        "logicaldeduction",
        300,
        "logical_deduction_0",
        "D) The purple book is the second from the left.",
    ),
];

#[test]
fn every_set_is_read_whole() {
    let Some(folder) = data_sets() else { return };
    for (name, count, id, gold) in SETS {
        let loaded = read(name, &folder);
        assert_eq!((loaded.items.len(), loaded.damaged.as_slice()), (count, &[][..]), "{name}");
        let first = &loaded.items[0];
        assert_eq!((first.id.as_str(), first.gold.shown().as_str()), (id, gold), "{name}");
    }
}

/// What a right reply would state.
fn stated(item: &Item) -> String {
    match &item.gold {
        Gold::Choice { letter, .. } => letter.to_string(),
        other => other.shown(),
    }
}

/// G7: gold against itself.
#[tokio::test]
async fn gold_is_right_in_every_set() {
    let Some(folder) = data_sets() else { return };
    for (name, ..) in SETS {
        for item in read(name, &folder).items {
            let judged = tasks::judge(&item, &stated(&item), None).await.unwrap();
            assert_eq!(judged.verdict, Verdict::Right, "{}: {}", item.id, judged.rule);
            let Gold::Choice { letter, options } = &item.gold else { continue };
            for option in options {
                let verdict = tasks::judge(&item, &format!("({})", option.letter), None).await;
                let right = verdict.unwrap().verdict == Verdict::Right;
                assert_eq!(right, option.letter == *letter, "{} {}", item.id, option.letter);
            }
        }
    }
}

#[test]
fn questions_hold_their_options_and_labels_are_kept() {
    let Some(folder) = data_sets() else { return };
    let math = read("math500", &folder);
    assert_eq!(
        math.items[0].labels,
        [("subject", "Intermediate Algebra".to_owned()), ("level", "5".to_owned())]
    );
    let logic = &read("proofwriter", &folder).items[0];
    assert!(logic.question.ends_with("\nA) True\nB) False\nC) Unknown"), "{}", logic.question);
    let problem = logic.problem();
    assert_eq!((problem.id.as_str(), problem.question == logic.question), (&*logic.id, true));
    let ages = read("asdiv", &folder).items;
    let several: Vec<_> =
        ages.iter().filter(|i| matches!(&i.gold, Gold::Values(v) if v.len() > 1)).collect();
    // Answers with a semicolon, counted by another program.
    assert_eq!(several.len(), 90);
    assert!(several.iter().any(|i| i.gold.shown() == "5; 15; 20"));
    assert!(ages.iter().any(|i| i.gold.shown() == "-(1/3)"));
}

fn written(name: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

#[test]
fn damaged_lines_are_told_by_number_and_the_rest_is_read() {
    let lines: &[u8] = b"{\"question\": \"1+1?\", \"answer\": \"2\"}\n\n{\"question\": \"torn\n\
        \xff\xfe\n[1]\n{\"question\": \"no answer\"}\n{\"question\": \"2+2?\", \"answer\": 4.0}\n\
        {\"id\": \"x\", \"question\": \"3\", \"answer\": \"3\"}\n{\"id\": \"x\", \"question\": \"4\", \"answer\": \"4\"}\n";
    let (_folder, path) = written("mine.jsonl", lines);
    let loaded = tasks::load("jsonl", Some(&path)).unwrap();
    let items: Vec<_> = loaded.items.iter().map(|i| (i.id.as_str(), i.gold.shown())).collect();
    assert_eq!(
        items,
        [("jsonl-1", "2".to_owned()), ("jsonl-7", "4".to_owned()), ("x", "3".to_owned())]
    );
    let lines: Vec<usize> = loaded.damaged.iter().map(|damaged| damaged.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 9]);
    assert_eq!(loaded.damaged[3].why, "it has no `answer`");
}

#[test]
fn arrays_and_gzip_are_read_too() {
    let array = b"[{\"sQuestion\": \"a?\", \"lSolutions\": [3.0]},\n {\"sQuestion\": \"b?\", \"lSolutions\": [0.5]}]";
    let (_folder, path) = written("AddSub.json", array);
    let golds = |path: &std::path::Path| -> Vec<String> {
        let loaded = tasks::load("addsub", Some(path)).unwrap();
        loaded.items.iter().map(|item| item.gold.shown()).collect()
    };
    assert_eq!(golds(&path), ["3", "0.5"]);
    // The folder of the file does as well.
    assert_eq!(golds(path.parent().unwrap()), ["3", "0.5"]);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    encoder.write_all(array).unwrap();
    let (_folder, path) = written("AddSub.json.gz", &encoder.finish().unwrap());
    assert_eq!(golds(&path), ["3", "0.5"]);
}

#[test]
fn a_wrong_file_is_told_with_what_was_expected() {
    let (_folder, path) = written("x.jsonl", b"{\"question\": \"1+1?\", \"answer\": \"2\"}\n");
    let wrong = tasks::load("gsm8k", Some(&path)).unwrap_err();
    assert!(matches!(wrong, TaskError::Form { .. }));
    assert_eq!(
        wrong.to_string(),
        format!(
            "{} is no file of gsm8k: record 1: its answer has no `####`; expected `question` and \
             `answer`, which ends in `#### NUMBER`",
            path.display()
        )
    );
    let nowhere = tasks::load("gsm8k", Some(&path.with_file_name("none"))).unwrap_err();
    assert!(matches!(nowhere, TaskError::NoPath { .. }), "{nowhere}");
    let elsewhere = tasks::load("gsm8k", path.parent()).unwrap_err();
    assert!(elsewhere.to_string().contains("holds no gsm8k/test.jsonl"), "{elsewhere}");
    let unknown = tasks::load("gsm9k", Some(&path)).unwrap_err();
    assert!(matches!(unknown, TaskError::Unknown { .. }));
}

#[test]
fn selections_are_the_same_every_time() {
    let lines: String =
        (0..100).map(|n| format!("{{\"question\": \"{n}?\", \"answer\": \"{n}\"}}\n")).collect();
    let (_folder, path) = written("mine.jsonl", lines.as_bytes());
    let items = tasks::load("jsonl", Some(&path)).unwrap().items;
    let ids = |selection: &Selection| -> Vec<String> {
        let chosen = selection.of("jsonl", items.clone()).unwrap();
        chosen.into_iter().map(|item| item.id).collect()
    };
    let first = Selection { limit: Some(3), ..Selection::default() };
    assert_eq!(ids(&first), ["jsonl-1", "jsonl-2", "jsonl-3"]);
    let drawn = |seed, limit| ids(&Selection { limit, sample: Some(seed), ids: Vec::new() });
    assert_eq!(drawn(1, Some(10)), drawn(1, Some(10)));
    assert_ne!(drawn(1, Some(10)), drawn(2, Some(10)));
    assert_eq!(drawn(1, Some(10)).len(), 10);
    assert_eq!(drawn(1, None).len(), 100);
    // A larger sample of a seed holds the smaller one.
    let large = drawn(1, Some(20));
    assert!(drawn(1, Some(10)).iter().all(|id| large.contains(id)));
    let named = Selection { ids: vec!["jsonl-7".into(), "jsonl-5".into()], ..Selection::default() };
    assert_eq!(ids(&named), ["jsonl-5", "jsonl-7"]);
    let none = Selection { ids: vec!["jsonl-700".into()], ..Selection::default() };
    assert!(matches!(none.of("jsonl", items.clone()), Err(TaskError::NoItem { .. })));
}

/// Questions are known again by what they ask, in whatever typography.
#[test]
fn sets_tell_which_questions_they_share() {
    let (_one, one) = written(
        "one.jsonl",
        b"{\"question\": \"Ann has 1,000 beads.  How many?\", \"answer\": \"1000\"}\n\
          {\"question\": \"Ann has 5 beads. How many?\", \"answer\": \"5\"}\n\
          {\"question\": \"ann has 5 beads, how many\", \"answer\": \"5\"}\n",
    );
    let (_two, two) = written(
        "two.jsonl",
        b"{\"question\": \"Bo has 5 beads. How many?\", \"answer\": \"5\"}\n\
          {\"question\": \"ann has 1000 beads \\n how many?\", \"answer\": \"1000\"}\n",
    );
    let [one, two] = [one, two].map(|path| tasks::load("jsonl", Some(&path)).unwrap().items);
    let shared = tasks::overlap(&one, &two);
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert_eq!(shared[0].ids, ["jsonl-1", "jsonl-2"]);
    assert_eq!((tasks::repeated(&one), tasks::repeated(&two)), (1, 0));
}

/// What is known of the public sets: HumanEval+ asks what HumanEval asks, word for word.
#[test]
fn public_sets_overlap_where_they_are_known_to() {
    let Some(folder) = data_sets() else { return };
    let of = |name: &str| tasks::load(name, Some(&folder)).unwrap().items;
    let (plain, plus) = (of("humaneval"), of("humanevalplus"));
    assert_eq!(tasks::overlap(&plain, &plus).len(), plain.len().min(plus.len()));
    assert!(tasks::overlap(&of("gsm8k"), &of("gsm8k-train")).is_empty());
}
