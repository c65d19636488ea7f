//! The table of tasks.

use super::code;
use super::forms::{self, Form};

/// A data set that can be asked.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// As on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Where its file lies in the folder of all data sets; the first that is there is read.
    pub files: &'static [&'static str],
    /// Items of the whole published set, or that papers report on; a file may hold fewer.
    pub whole: Option<usize>,
    /// How an item is made of a record.
    pub(super) form: Form,
}

/// All tasks, in the order in which they are listed.
pub fn list() -> &'static [Task] {
    &TASKS
}

/// The task of a name.
pub fn named(name: &str) -> Option<&'static Task> {
    TASKS.iter().find(|task| task.name == name)
}

const fn row(
    name: &'static str,
    summary: &'static str,
    whole: usize,
    files: &'static [&'static str],
    form: Form,
) -> Task {
    let whole = if whole == 0 { None } else { Some(whole) };
    Task { name, summary, files, whole, form }
}

static TASKS: [Task; 25] = [
    row("gsm8k", "grade-school word problems", 1319, &["gsm8k/test.jsonl"], forms::GSM8K),
    row(
        "gsm8k-train",
        "the same, from its training part: for examples and for tuning",
        7473,
        &["gsm8k/train.jsonl", "gsm8k/train_300.jsonl"],
        forms::GSM8K,
    ),
    row("math500", "competition mathematics", 500, &["math500/test.jsonl"], forms::MATH),
    row(
        "math-np",
        "ProgCo's draw from MATH",
        500,
        &["math500/progco_random_500.jsonl", "math500/all_random_500.jsonl"],
        forms::MATH,
    ),
    row("math", "any file in the form of MATH", 5000, &["math/test.jsonl"], forms::MATH),
    row(
        "svamp",
        "word problems of one step, varied",
        1000,
        &["svamp/SVAMP.jsonl", "svamp/SVAMP.json"],
        forms::SVAMP,
    ),
    row("asdiv", "diverse elementary word problems", 2305, &["asdiv/ASDiv.jsonl"], forms::ASDIV),
    row(
        "addsub",
        "word problems of addition and subtraction",
        395,
        &["addsub/AddSub.jsonl", "addsub/AddSub.json"],
        forms::SOLUTIONS,
    ),
    row(
        "multiarith",
        "word problems of several steps",
        600,
        &["multiarith/MultiArith.jsonl", "multiarith/MultiArith.json"],
        forms::SOLUTIONS,
    ),
    row(
        "singleeq",
        "word problems of a single equation",
        508,
        &["singleeq/questions.jsonl", "singleeq/questions.json"],
        forms::SOLUTIONS,
    ),
    row(
        "aqua",
        "algebra with five options",
        254,
        &["aqua/test.jsonl", "aqua/test.json"],
        forms::AQUA,
    ),
    row(
        "gsm-ic-2step",
        "questions of two steps with a sentence that does not matter",
        34220,
        &["gsm-ic/test_2step.jsonl", "gsm-ic/GSM-IC_2step.json"],
        forms::GSM_IC,
    ),
    row(
        "gsm-ic-mstep",
        "the same with more steps",
        23832,
        &["gsm-ic/test_mstep.jsonl", "gsm-ic/GSM-IC_mstep.json"],
        forms::GSM_IC,
    ),
    row(
        "commonsenseqa",
        "common sense with five options",
        1221,
        &["commonsenseqa/dev_rand_split.jsonl"],
        forms::COMMONSENSE,
    ),
    row(
        "hotpotqa",
        "questions over two articles, without the articles",
        7405,
        &["hotpotqa/hotpot_dev_v1_simplified.jsonl", "hotpotqa/hotpot_dev_v1_simplified.json"],
        forms::HOTPOT,
    ),
    row(
        "hotpotqa-context",
        "the same with the articles and others",
        100,
        &["hotpotqa/hotpot_dev_distractor_sample_100.jsonl"],
        forms::HOTPOT,
    ),
    row(
        "ifeval",
        "instructions whose following can be checked",
        541,
        &["ifeval/input_data.jsonl"],
        forms::IFEVAL,
    ),
    row(
        "prontoqa",
        "deduction over made-up kinds: true or false",
        500,
        &["prontoqa/dev.jsonl", "prontoqa/dev.json"],
        forms::LOGIC,
    ),
    row(
        "proofwriter",
        "deduction in an open world: true, false or unknown",
        600,
        &["proofwriter/test.jsonl", "proofwriter/test.json"],
        forms::LOGIC,
    ),
    row(
        "proofwriter-dev",
        "the same, for tuning",
        600,
        &["proofwriter/dev.jsonl", "proofwriter/dev.json"],
        forms::LOGIC,
    ),
    row(
        "logicaldeduction",
        "orders of three, five and seven things",
        300,
        &["logicaldeduction/dev.jsonl", "logicaldeduction/dev.json"],
        forms::LOGIC,
    ),
    row(
        "humaneval",
        "functions from their descriptions, with the original tests",
        164,
        &["humaneval/HumanEval.jsonl"],
        code::HUMANEVAL,
    ),
    row(
        "humanevalplus",
        "the same with EvalPlus's tests added",
        164,
        &[
            "humanevalplus/HumanEvalPlus-v0.1.10.jsonl",
            "humanevalplus/HumanEvalPlus.jsonl",
            "humanevalplus/HumanEvalPlus-OriginFmt.jsonl",
        ],
        code::PLUS,
    ),
    row(
        "mbppplus",
        "short functions from a sentence and an example, with EvalPlus's tests added",
        378,
        &[
            "mbppplus/MbppPlus-v0.2.0.jsonl",
            "mbppplus/MbppPlus.jsonl",
            "mbppplus/MbppPlus-OriginFmt.jsonl",
        ],
        code::PLUS,
    ),
    row("jsonl", "a file of your own: a line {\"question\", \"answer\"} each", 0, &[], forms::OWN),
];
