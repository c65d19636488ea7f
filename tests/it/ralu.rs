//! RaLU, direct and CoT on a scripted model: what the model is shown at every turn, and how a run ends.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use minijinja::context;

use unsay::answer::{Kind, Problem};
use unsay::engine::EngineOptions;
use unsay::llm::{
    Embedded, Event, FinishReason, Heard, LlmError, Prompts, Role, Scripted, ScriptedReply, Sink,
    Verdict,
};
use unsay::methods::{Context, Failure, Interpreter, Outcome, Status, by_name};
use unsay::model::LoadOptions;
use unsay::program::sandbox::{self, Run};
use unsay::program::units::{ReadOptions, read};
use unsay::store::{Gguf, ModelFiles};

mod baselines;
mod whole_replies;

use super::support::default_model;

use Role::{Assistant, System, User};

const QUESTION: &str =
    "Ana fills 4 boxes with 6 pens each and gives 5 pens away. How many are left?";
const PROGRAM: &str = "pens = 4 * 6\nfor gift in [5]:\n    pens = pens + gift\nans = pens";
const ANSWER_PROGRAM: &str = "ans = 4 * 6 - 5";

/// Keeps every event.
#[derive(Default)]
struct Recorder(Mutex<Vec<Event>>);

impl Sink for Recorder {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// Runs nothing: answers with prepared outcomes and keeps the programs.
struct ScriptedRuns {
    outcomes: Mutex<Vec<Result<sandbox::Outcome, String>>>,
    sources: Mutex<Vec<String>>,
}

#[async_trait]
impl Interpreter for ScriptedRuns {
    async fn run(&self, source: &str, answer: &str) -> Result<Run, String> {
        assert_eq!(answer, "ans");
        self.sources.lock().unwrap().push(source.to_owned());
        let outcome = self.outcomes.lock().unwrap().remove(0)?;
        Ok(Run {
            outcome,
            stdout: "seen\n".to_owned(),
            stderr: String::new(),
            truncated: false,
            answer_type: None,
            wall_seconds: 0.01,
            cpu_seconds: 0.0,
        })
    }
}

/// One solved problem, from the outside.
struct Solved {
    outcome: Outcome,
    heard: Vec<Heard>,
    events: Vec<Event>,
    left: usize,
    ran: Vec<String>,
}

impl Solved {
    /// The messages that the model was shown at a turn, from 0.
    fn shown(&self, turn: usize) -> Vec<(Role, &str)> {
        self.heard[turn].messages.iter().map(|(role, text)| (*role, text.as_str())).collect()
    }

    fn answer(&self) -> &str {
        match &self.outcome.status {
            Status::Answered { answer } => answer,
            Status::Failed { why } => panic!("failed: {why}"),
        }
    }

    fn failure(&self) -> &Failure {
        match &self.outcome.status {
            Status::Answered { answer } => panic!("answered: {answer}"),
            Status::Failed { why } => why,
        }
    }

    fn verdicts(&self) -> Vec<(usize, usize, Verdict)> {
        let judged = |event: &Event| match event {
            Event::Judged { unit, candidate, verdict, .. } => Some((*unit, *candidate, *verdict)),
            _ => None,
        };
        self.events.iter().filter_map(judged).collect()
    }

    fn settled(&self) -> Vec<(&str, &str)> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Settled { text, how, .. } => Some((text.as_str(), how.as_str())),
                _ => None,
            })
            .collect()
    }
}

/// A run to be set up: by default RaLU on the pens question, all units right, no program run.
struct Setup {
    method: &'static str,
    problem: Problem,
    temperature: Option<f32>,
    context_length: usize,
    runs: Vec<Result<sandbox::Outcome, String>>,
    /// Programs are run here instead of by script.
    sandbox: Option<sandbox::Sandbox>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            method: "ralu",
            problem: math(QUESTION),
            temperature: None,
            context_length: 1 << 20,
            runs: vec![answered("19")],
            sandbox: None,
        }
    }
}

impl Setup {
    async fn solve<R: Into<ScriptedReply>>(self, replies: Vec<R>) -> Solved {
        let llm = Scripted::new(replies).context_length(self.context_length);
        let sink = Arc::new(Recorder::default());
        let runs = Arc::new(ScriptedRuns {
            outcomes: Mutex::new(self.runs),
            sources: Mutex::new(Vec::new()),
        });
        let sandbox: Arc<dyn Interpreter> = match self.sandbox {
            Some(sandbox) => Arc::new(sandbox),
            None => runs.clone(),
        };
        let context = Context {
            llm: Arc::new(llm.clone()),
            sandbox,
            prompts: Arc::new(Prompts::builtin().unwrap()),
            sink: sink.clone(),
            seed: 7,
            sample: 0,
            temperature: self.temperature,
            max_tokens: None,
        };
        let method = by_name(self.method, &[]).unwrap();
        let outcome = method.solve(&self.problem, &context).await;
        let events = sink.0.lock().unwrap().clone();
        let ran = runs.sources.lock().unwrap().clone();
        let solved = Solved { outcome, heard: llm.heard(), events, left: llm.left(), ran };
        well_formed(&solved);
        solved
    }
}

/// What holds for every run: it begins, it ends once, and its events tell of every cost and failure.
fn well_formed(solved: &Solved) {
    assert!(matches!(solved.events.first(), Some(Event::Began { .. })));
    let ends = |e: &&Event| matches!(e, Event::Answered { .. } | Event::Failed { .. });
    assert_eq!(solved.events.iter().filter(ends).count(), 1);
    assert!(solved.events.last().as_ref().is_some_and(ends));
    let mut cost = unsay::llm::Cost::default();
    let mut failures = 0;
    for event in &solved.events {
        match event {
            Event::Replied { cost: one, .. } => cost += *one,
            Event::FormatFailure { .. } => failures += 1,
            _ => {}
        }
    }
    // Seconds are summed in another order.
    cost.seconds = solved.outcome.cost.seconds;
    assert_eq!(cost, solved.outcome.cost);
    assert_eq!(failures, solved.outcome.format_failures);
    assert_eq!(cost.prompt_tokens, cost.cached_tokens + cost.computed_tokens);
}

fn math(question: &str) -> Problem {
    Problem { id: "pens".into(), question: question.into(), ..Problem::default() }
}

fn code() -> Problem {
    Problem {
        id: "clip".into(),
        question: "def clip(x):\n    \"\"\"Give x, but at most 9.\"\"\"\n".into(),
        kind: Kind::Code,
        entry_point: Some("clip".into()),
        public_checks: Vec::new(),
    }
}

fn answered(answer: &str) -> Result<sandbox::Outcome, String> {
    Ok(sandbox::Outcome::Finished { answer: Some(answer.into()) })
}

fn template(name: &str) -> String {
    filled(name, context! {})
}

fn filled(name: &str, context: minijinja::Value) -> String {
    Prompts::builtin().unwrap().render(name, context).unwrap()
}

fn tagged(program: &str) -> String {
    format!("<code>\n{program}\n</code>")
}

fn units(program: &str) -> Vec<String> {
    read(program, &ReadOptions::default()).units.into_iter().map(|unit| unit.text).collect()
}

/// The user's message for a unit that is to be judged.
fn unit(index: usize, text: &str) -> String {
    format!("{}\n\nVerdict (OK or WRONG):", kept(index, text))
}

/// The user's message for a unit that no reply accepted.
fn kept(index: usize, text: &str) -> String {
    match index {
        1 => format!("## Process\n\nUnit 1: {text}"),
        _ => format!("Unit {index}: {text}"),
    }
}

fn ok(index: usize) -> String {
    format!("OK\nAnalysis: unit {index} follows the question.")
}

fn wrong(fix: &str) -> String {
    format!("WRONG\n<Fix>{fix}</Fix>\nAnalysis: the pens given away are taken off.")
}

/// The judge's dialogue up to the pair of unit `accepted`, all of them accepted as they are.
fn judged(units: &[String], accepted: usize) -> Vec<(Role, String)> {
    let mut messages = vec![
        (System, template("ralu-judge-math-system")),
        (User, format!("## Question\n\n{QUESTION}")),
    ];
    for (n, text) in units.iter().enumerate().take(accepted) {
        messages.push((User, unit(n + 1, text)));
        messages.push((Assistant, ok(n + 1)));
    }
    messages
}

fn with(mut messages: Vec<(Role, String)>, more: &[(Role, &str)]) -> Vec<(Role, String)> {
    messages.extend(more.iter().map(|(role, text)| (*role, (*text).to_owned())));
    messages
}

/// A script in which all units of a program are accepted, before what the synthesis says.
fn all_accepted(program: &str) -> Vec<String> {
    let mut replies = vec![tagged(program)];
    replies.extend((1..=units(program).len()).map(ok));
    replies
}

fn finale() -> [String; 2] {
    [tagged(ANSWER_PROGRAM), "<Answer>19</Answer>".to_owned()]
}

#[tokio::test]
async fn every_unit_accepted() {
    let units = units(PROGRAM);
    let n = units.len();
    let mut script = all_accepted(PROGRAM);
    script.extend(finale());
    let solved = Setup::default().solve(script).await;

    assert_eq!(
        solved.shown(0),
        [
            (System, template("ralu-program-math-system").as_str()),
            (User, template("ralu-program-math-examples").as_str()),
            (User, format!("Question: {QUESTION}\n\nProgram, from <code> to </code>:").as_str()),
        ]
    );
    for turn in 1..=n {
        let expected = with(judged(&units, turn - 1), &[(User, &unit(turn, &units[turn - 1]))]);
        assert_eq!(solved.heard[turn].messages, expected, "unit {turn}");
    }
    let program_turn = with(judged(&units, n), &[(User, &template("ralu-synthesis-math-program"))]);
    assert_eq!(solved.heard[n + 1].messages, program_turn);
    let told = "The program was run and left this in `ans`: 19\n\n\
     Now answer the question in one sentence, in the form: The answer is <Answer>...</Answer>";
    let answer_turn = with(program_turn, &[(Assistant, &tagged(ANSWER_PROGRAM)), (User, told)]);
    assert_eq!(solved.heard[n + 2].messages, answer_turn);

    assert_eq!(solved.answer(), "19");
    assert_eq!(solved.ran, [ANSWER_PROGRAM]);
    assert_eq!(solved.outcome.program.as_deref(), Some(ANSWER_PROGRAM));
    assert_eq!((solved.outcome.rounds, solved.outcome.format_failures), (n as u32, 0));
    assert_eq!(solved.left, 0);
    assert!(solved.settled().iter().all(|(_, how)| *how == "accepted"));
    // Within the judge's dialogue nothing is taken back, so only new words are computed.
    let judge = &solved.heard[2];
    assert_eq!((judge.dialogue.as_str(), judge.attempt), ("judge", 0));
    assert_eq!(judge.ask.temperature, 0.7);
    assert_eq!(judge.ask.frequency_penalty, 0.3);
}

#[tokio::test]
async fn wrong_is_rewound_and_the_fix_said_in_its_place() {
    let units = units(PROGRAM);
    let at = units.iter().position(|u| u.contains("pens + gift")).unwrap();
    let fix = units[at].replace("pens + gift", "pens - gift");
    let mut script = vec![tagged(PROGRAM)];
    script.extend((1..=at).map(ok));
    script.push(wrong(&fix));
    script.extend((at + 1..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;

    // The rejected text and its judgement are gone; the accepted prefix is as it was.
    let before = judged(&units, at);
    let rejected = with(before.clone(), &[(User, &unit(at + 1, &units[at]))]);
    assert_eq!(solved.heard[at + 1].messages, rejected);
    let again = with(before, &[(User, &unit(at + 1, &fix))]);
    assert_eq!(solved.heard[at + 2].messages, again);
    let mut corrected = units.clone();
    corrected[at].clone_from(&fix);
    let next = with(judged(&corrected, at + 1), &[(User, &unit(at + 2, &units[at + 1]))]);
    assert_eq!(solved.heard[at + 3].messages, next);
    for later in &solved.heard[at + 2..] {
        assert!(later.messages.iter().all(|(_, text)| !text.contains("pens + gift")));
        assert_eq!(later.attempt, 1);
    }
    // A rewind is a new draw, and costs only what comes after the mark.
    assert_ne!(solved.heard[at + 1].stream, solved.heard[at + 2].stream);
    assert_eq!(solved.outcome.rounds as usize, units.len() + 1);
    assert_eq!(solved.settled()[at], (fix.as_str(), "accepted"));
    let taken_back = solved.events.iter().find_map(|event| match event {
        Event::Rewound { messages, tokens, .. } => Some((messages.clone(), *tokens)),
        _ => None,
    });
    let (messages, tokens) = taken_back.expect("a rewind");
    assert_eq!(messages, [(User, unit(at + 1, &units[at])), (Assistant, wrong(&fix))]);
    assert!(tokens > 0);
}

#[tokio::test]
async fn ok_with_another_fix_is_wrong_with_that_fix() {
    let units = units(PROGRAM);
    let fix = "RUN `pens = 24`";
    let mut script = vec![tagged(PROGRAM), format!("OK\n<Fix>{fix}</Fix>")];
    script.extend((1..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    assert_eq!(solved.heard[2].messages, with(judged(&[], 0), &[(User, &unit(1, fix))]));
    assert_eq!(solved.verdicts()[..2], [(1, 1, Verdict::Wrong), (1, 2, Verdict::Ok)]);
}

#[tokio::test]
async fn a_fix_equal_to_the_unit_accepts_with_ok_and_fails_with_wrong() {
    let units = units(PROGRAM);
    let mut script = vec![tagged(PROGRAM)];
    script.push(format!("OK\n<Fix>{}</Fix>", units[0].replace(' ', "  ")));
    script.push(wrong(&units[1]));
    script.extend((2..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    let verdicts = solved.verdicts();
    assert_eq!(verdicts[..2], [(1, 1, Verdict::Ok), (2, 1, Verdict::Ok)]);
    // The WRONG that repeats the unit was no verdict: it was drawn again, and counted as cost only.
    assert_eq!(solved.heard[2].messages, solved.heard[3].messages);
    assert_ne!(solved.heard[2].stream, solved.heard[3].stream);
    assert_eq!(solved.outcome.format_failures, 1);
    assert_eq!(solved.outcome.rounds as usize, units.len());
}

#[tokio::test]
async fn what_cannot_be_parsed_is_drawn_again_above_temperature_0() {
    let units = units(PROGRAM);
    let mut script = vec![tagged(PROGRAM)];
    script.push("Okay, but this is wrong".to_owned());
    script.push("The unit looks fine.".to_owned());
    script.extend((1..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    let expected = with(judged(&units, 0), &[(User, &unit(1, &units[0]))]);
    for turn in 1..=3 {
        assert_eq!(solved.heard[turn].messages, expected);
        assert_eq!(solved.heard[turn].attempt as usize, turn - 1);
    }
    assert_eq!(solved.heard[4].messages.len(), 5);
    assert_eq!(solved.outcome.format_failures, 2);
    assert_eq!(solved.answer(), "19");
}

#[tokio::test]
async fn at_temperature_0_a_turn_says_what_was_missing_and_leaves_no_trace() {
    let units = units(PROGRAM);
    let mut script = vec![tagged(PROGRAM)];
    script.push("Okay, but this is wrong".to_owned());
    script.push("WRONG".to_owned());
    script.extend((1..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup { temperature: Some(0.0), ..Setup::default() }.solve(script).await;
    let asked = with(judged(&units, 0), &[(User, &unit(1, &units[0]))]);
    assert_eq!(solved.heard[1].messages, asked);
    let again = |what: &str| {
        format!(
            "Your reply did not keep the form: {what}. Write it once more, whole and in the form that \
             was asked for."
        )
    };
    let first = again("its first word is neither OK nor WRONG");
    let retried = with(asked, &[(Assistant, "Okay, but this is wrong"), (User, &first)]);
    assert_eq!(solved.heard[2].messages, retried);
    let second = again("it says WRONG, but gives no corrected unit in <Fix>...</Fix>");
    let retried = with(retried, &[(Assistant, "WRONG"), (User, &second)]);
    assert_eq!(solved.heard[3].messages, retried);
    // From then on the dialogue is as if the good reply had come at once.
    let next = with(judged(&units, 1), &[(User, &unit(2, &units[1]))]);
    assert_eq!(solved.heard[4].messages, next);
    assert_eq!(solved.outcome.format_failures, 2);
    assert_eq!(solved.outcome.rounds as usize, units.len());
    assert!(solved.heard.iter().all(|heard| heard.ask.temperature == 0.0));
}

#[tokio::test]
async fn a_unit_without_any_verdict_stays_and_is_no_pass() {
    let units = units(PROGRAM);
    let mut script = vec![tagged(PROGRAM)];
    script.extend(["hm", "Okay", "WRONG", "fine"].map(str::to_owned));
    script.extend((2..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    assert_eq!(solved.verdicts()[0], (1, 1, Verdict::Unparsed));
    assert_eq!(solved.settled()[0].1, "not judged: no verdict could be read");
    // It stands without a reply: no verdict, and no words in the model's place.
    let next = with(judged(&units, 0), &[(User, &kept(1, &units[0])), (User, &unit(2, &units[1]))]);
    assert_eq!(solved.heard[5].messages, next);
    assert_eq!(solved.outcome.format_failures, 4);
    assert_eq!(solved.outcome.rounds as usize, units.len() - 1);
}

#[tokio::test]
async fn at_the_limit_the_most_confident_candidates_fix_is_kept() {
    let units = units(PROGRAM);
    let sure = |fix: &str, p: f32| ScriptedReply::new(wrong(fix)).logprobs([p.ln(), p.ln()]);
    let mut script = vec![ScriptedReply::new(tagged(PROGRAM))];
    script.push(sure("RUN `pens = 1`", 0.5));
    script.push(sure("RUN `pens = 2`", 0.9));
    script.push(sure("RUN `pens = 3`", 0.6));
    script.extend((2..=units.len()).map(|n| ScriptedReply::new(ok(n))));
    script.extend(finale().map(ScriptedReply::new));
    let solved = Setup::default().solve(script).await;

    // Each candidate is judged in the same place, and none of those before it can be seen.
    for (turn, text) in [(1, units[0].as_str()), (2, "RUN `pens = 1`"), (3, "RUN `pens = 2`")] {
        let expected = with(judged(&[], 0), &[(User, &unit(1, text))]);
        assert_eq!(solved.heard[turn].messages, expected);
    }
    // The reply to `pens = 1` was the surest: its Fix is kept, not the unit that it rejected.
    assert_eq!(solved.settled()[0], ("RUN `pens = 2`", "chosen by confidence 90.00"));
    let next =
        with(judged(&[], 0), &[(User, &kept(1, "RUN `pens = 2`")), (User, &unit(2, &units[1]))]);
    assert_eq!(solved.heard[4].messages, next);
    assert_eq!(solved.outcome.rounds as usize, 3 + units.len() - 1);
}

#[tokio::test]
async fn the_other_selections_keep_other_candidates() {
    let units = units(PROGRAM);
    let script = || {
        // Mean probability and mean log-probability rank these two differently.
        let mixed =
            |fix: &str, ps: [f32; 2]| ScriptedReply::new(wrong(fix)).logprobs(ps.map(f32::ln));
        let mut script = vec![ScriptedReply::new(tagged(PROGRAM))];
        script.push(mixed("RUN `pens = 1`", [1.0, 0.01]));
        script.push(mixed("RUN `pens = 2`", [0.45, 0.45]));
        script.push(mixed("RUN `pens = 3`", [0.2, 0.2]));
        script.extend((2..=units.len()).map(|n| ScriptedReply::new(ok(n))));
        script.extend(finale().map(ScriptedReply::new));
        script
    };
    let mut kept = Vec::new();
    for method in ["ralu", "ralu[select=perplexity]", "ralu[select=last]", "ralu[select=random]"] {
        let solved = Setup { method, ..Setup::default() }.solve(script()).await;
        kept.push(solved.settled()[0].0.to_owned());
        let again = Setup { method, ..Setup::default() }.solve(script()).await;
        assert_eq!(again.settled()[0].0, kept[kept.len() - 1], "{method} repeats");
    }
    assert_eq!(kept[..3], ["RUN `pens = 1`", "RUN `pens = 2`", "RUN `pens = 3`"]);
    assert!(kept[3].starts_with("RUN `pens = "));
}

#[tokio::test]
async fn without_log_probabilities_the_model_chooses_and_must_repeat_a_candidate() {
    let units = units(PROGRAM);
    let mut script = vec![tagged(PROGRAM)];
    script.extend((1..=3).map(|n| wrong(&format!("RUN `pens = {n}`"))));
    script.push("<Unit>RUN `pens = 4`</Unit>".to_owned());
    script.push("I take <Unit>RUN `pens = 2`</Unit>".to_owned());
    script.extend((2..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    let candidates = ["RUN `pens = 1`", "RUN `pens = 2`", "RUN `pens = 3`"];
    let choose = filled("ralu-judge-choose", context! { index => 1, candidates });
    assert!(choose.contains("<Unit>RUN `pens = 1`</Unit>\n<Unit>RUN `pens = 2`</Unit>\n"));
    assert_eq!(solved.heard[4].messages, with(judged(&[], 0), &[(User, &choose)]));
    assert_eq!(solved.heard[5].messages, solved.heard[4].messages);
    assert_eq!(solved.settled()[0], ("RUN `pens = 2`", "chosen by the model"));
    assert_eq!(solved.heard[6].messages[2].1, kept(1, "RUN `pens = 2`"));
}

#[tokio::test]
async fn a_judge_that_falls_silent_after_a_fix_leaves_that_fix() {
    let units = units(PROGRAM);
    let mut script = vec![tagged(PROGRAM), wrong("RUN `pens = 1`")];
    script.extend(["a", "b", "c", "d"].map(str::to_owned));
    script.extend((2..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    assert_eq!(solved.verdicts()[..2], [(1, 1, Verdict::Wrong), (1, 2, Verdict::Unparsed)]);
    assert_eq!(solved.settled()[0], ("RUN `pens = 1`", "the only candidate"));
}

#[tokio::test]
async fn an_unsure_ok_is_judged_again_behind_the_gate() {
    let units = units(PROGRAM);
    let half = |text: String, p: f32| ScriptedReply::new(text).logprobs([p.ln()]);
    let mut script = vec![ScriptedReply::new(tagged(PROGRAM))];
    script.push(half(ok(1), 0.51));
    script.push(half(ok(1), 0.52));
    script.extend((2..=units.len()).map(|n| half(ok(n), 0.9)));
    script.extend(finale().map(ScriptedReply::new));
    let gate = Setup { method: "ralu[min-confidence=51]", ..Setup::default() };
    let solved = gate.solve(script).await;
    assert_eq!(solved.verdicts()[..2], [(1, 1, Verdict::Ok), (1, 2, Verdict::Ok)]);
    assert_eq!(solved.heard[1].messages, solved.heard[2].messages);
    assert_ne!(solved.heard[1].stream, solved.heard[2].stream);
    assert_eq!(solved.settled()[0], (units[0].as_str(), "accepted"));

    // At temperature 0 asking again would be the same: the unit stays, but not as accepted.
    let mut script = vec![ScriptedReply::new(tagged(PROGRAM)), half(ok(1), 0.3)];
    script.extend((2..=units.len()).map(|n| half(ok(n), 0.9)));
    script.extend(finale().map(ScriptedReply::new));
    let greedy =
        Setup { method: "ralu[min-confidence=51]", temperature: Some(0.0), ..Setup::default() };
    let solved = greedy.solve(script).await;
    assert_eq!(solved.settled()[0], (units[0].as_str(), "chosen by confidence 30.00"));
}

#[tokio::test]
async fn no_program_is_a_stated_failure() {
    let solved = Setup::default().solve(vec!["no", "still no", "sorry", "nothing"]).await;
    let missing = "there is no program in <code>...</code>".to_owned();
    assert_eq!(*solved.failure(), Failure::Format { what: missing, retries: 3 });
    assert_eq!(solved.heard.len(), 4);
    assert_eq!(solved.outcome.program, None);
    assert_eq!(solved.outcome.rounds, 0);
    let retries: Vec<(u32, u32)> = solved
        .events
        .iter()
        .filter_map(|event| match event {
            Event::FormatFailure { retry, limit, .. } => Some((*retry, *limit)),
            _ => None,
        })
        .collect();
    assert_eq!(retries, [(0, 3), (1, 3), (2, 3), (3, 3)]);
}

#[tokio::test]
async fn an_entry_point_that_lacks_is_asked_for_again() {
    let good = "def clip(x):\n    return min(x, 9)";
    let mut script = vec![tagged("def cut(x):\n    return min(x, 9)")];
    script.extend(all_accepted(good));
    script.push(tagged("def clip(x)\n    return min(x, 9)"));
    script.push(tagged(good));
    let setup = Setup { problem: code(), runs: Vec::new(), ..Setup::default() };
    let solved = setup.solve(script).await;
    assert_eq!(
        solved.shown(0),
        [
            (System, template("ralu-program-code-system").as_str()),
            (
                User,
                "def clip(x):\n    \"\"\"Give x, but at most 9.\"\"\"\n\n\nProgram, from <code> to </code>:"
            ),
        ]
    );
    assert_eq!(
        solved.shown(2)[..2],
        [
            (System, template("ralu-judge-code-system").as_str()),
            (User, "## Specification\n\ndef clip(x)\n\nGive x, but at most 9."),
        ]
    );
    let last = solved.shown(solved.heard.len() - 1);
    assert!(last[last.len() - 1].1.contains("Keep `clip` as the name of its entry point."));
    // The program that does not parse was asked for again; the answer is the whole program.
    assert_eq!(solved.outcome.format_failures, 2);
    assert_eq!(solved.answer(), good);
    assert!(solved.ran.is_empty());
}

#[tokio::test]
async fn a_syntax_error_is_asked_for_again_then_judged_as_it_stands() {
    let broken = "pens = 4 * 6\nans = pens -\n";
    // The last attempt has no program at all: the last one that was read is kept.
    let mut script = vec![tagged("ans = ="), tagged("and"), tagged(broken), "no".to_owned()];
    script.extend((1..=units(broken).len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    let read = solved.events.iter().find_map(|event| match event {
        Event::Units { source, syntax_errors, .. } => Some((source.clone(), syntax_errors.clone())),
        _ => None,
    });
    let (source, errors) = read.expect("units");
    assert_eq!(source, broken.trim_end());
    assert!(errors[0].starts_with("line 2"), "{errors:?}");
    assert_eq!(solved.outcome.format_failures, 4);
    assert_eq!(solved.answer(), "19");

    let mut script = vec![tagged(broken)];
    script.extend(all_accepted(PROGRAM));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    assert_eq!(solved.heard[0].messages, solved.heard[1].messages);
    assert_eq!((solved.outcome.format_failures, solved.answer()), (1, "19"));
}

#[tokio::test]
async fn the_model_is_told_how_its_program_ended() {
    let raised = sandbox::Outcome::Raised {
        kind: "ZeroDivisionError".into(),
        message: "division by zero".into(),
        line: Some(2),
    };
    let silent = sandbox::Outcome::Finished { answer: None };
    let cases = [
        (raised, "The program was run, but failed: ZeroDivisionError: division by zero (line 2)"),
        (sandbox::Outcome::WallLimit, "The program was run, but failed: it ran for too long"),
        (silent, "The program was run to its end, but left nothing in `ans`. It printed: seen"),
    ];
    for (outcome, told) in cases {
        let mut script = all_accepted(PROGRAM);
        script.extend(finale());
        let solved = Setup { runs: vec![Ok(outcome)], ..Setup::default() }.solve(script).await;
        let last = solved.shown(solved.heard.len() - 1);
        let expected = format!(
            "{told}\n\n\
             Now answer the question in one sentence, in the form: The answer is <Answer>...</Answer>"
        );
        assert_eq!(last[last.len() - 1], (User, expected.as_str()));
        assert_eq!(solved.answer(), "19");
    }
}

#[tokio::test]
async fn programs_run_in_the_sandbox() {
    let options = sandbox::Options {
        child: env!("CARGO_BIN_EXE_unsay").into(),
        ..sandbox::Options::default()
    };
    let sandbox = sandbox::Sandbox::find(options).unwrap();
    let cases = [
        (ANSWER_PROGRAM, "The program was run and left this in `ans`: 19"),
        (
            "pens = 4 * 6\nans = pens / 0",
            "The program was run, but failed: ZeroDivisionError: division by zero (line 2)",
        ),
        ("ans = 4 *", "The program was run, but failed: it is not valid Python: "),
        ("pens = 19\nprint(pens)", "left nothing in `ans`. It printed: 19\n"),
        ("import sys\nsys.exit(3)", "The program was run, but failed: it left early, with code 3"),
        ("open('/etc/passwd').read()", "The program was run, but failed: "),
    ];
    for (program, told) in cases {
        let mut script = all_accepted(PROGRAM);
        script.extend([tagged(program), "<Answer>19</Answer>".to_owned()]);
        let setup = Setup { sandbox: Some(sandbox.clone()), ..Setup::default() };
        let solved = setup.solve(script).await;
        let last = solved.shown(solved.heard.len() - 1);
        assert!(last[last.len() - 1].1.contains(told), "{last:?}");
        assert_eq!(solved.answer(), "19");
    }
}

#[tokio::test]
async fn what_cannot_run_is_not_run_elsewhere() {
    let mut script = all_accepted(PROGRAM);
    script.extend(finale());
    let missing = || Err("no interpreter".to_owned());
    let solved = Setup { runs: vec![missing()], ..Setup::default() }.solve(script).await;
    assert_eq!(*solved.failure(), Failure::Sandbox { what: "no interpreter".into() });
}

#[tokio::test]
async fn a_synthesis_without_a_program_still_asks_for_the_answer() {
    let mut script = all_accepted(PROGRAM);
    let n = script.len();
    script.extend(["no", "no", "no", "no", "So the answer is 19."].map(str::to_owned));
    let solved = Setup { runs: Vec::new(), ..Setup::default() }.solve(script).await;
    let told = "No program could be read from your reply.\n\n\
     Now answer the question in one sentence, in the form: The answer is <Answer>...</Answer>";
    let units = units(PROGRAM);
    let expected = with(judged(&units, units.len()), &[(User, told)]);
    assert_eq!(solved.heard[n + 4].messages, expected);
    assert_eq!(solved.answer(), "19");
}

#[tokio::test]
async fn no_answer_is_a_stated_failure_and_no_number_is_taken_for_one() {
    let mut script = all_accepted(PROGRAM);
    script.push(tagged(ANSWER_PROGRAM));
    script.extend(["19", "It is 19.", "<Answer>19", "<Answer>...</Answer>"].map(str::to_owned));
    let solved = Setup::default().solve(script).await;
    let missing = "there is no answer in <Answer>...</Answer>".to_owned();
    assert_eq!(*solved.failure(), Failure::Format { what: missing, retries: 3 });
    assert_eq!(solved.outcome.program.as_deref(), Some(ANSWER_PROGRAM));
}

#[tokio::test]
async fn a_cut_program_is_no_program() {
    let cut = ScriptedReply::new("```python\nans = 4").finish(FinishReason::MaxTokens);
    let script = vec![cut.clone(), cut.clone(), cut.clone(), cut];
    let solved = Setup::default().solve(script).await;
    assert!(matches!(solved.failure(), Failure::Format { what, .. } if what.contains("cut off")));
}

#[tokio::test]
async fn a_dialogue_that_outgrows_the_context_is_a_stated_failure() {
    let full = LlmError::ContextFull { model: "scripted".into(), needed: 900, limit: 800 };
    let script = vec![ScriptedReply::new(tagged(PROGRAM)), ScriptedReply::failing(full)];
    let solved = Setup::default().solve(script).await;
    assert_eq!(*solved.failure(), Failure::ContextFull { needed: 900, limit: 800 });

    let cut = ScriptedReply::new("OK").finish(FinishReason::ContextFull);
    let solved = Setup::default().solve(vec![ScriptedReply::new(tagged(PROGRAM)), cut]).await;
    assert!(matches!(solved.failure(), Failure::ContextFull { limit: 1_048_576, .. }));
    assert!(solved.verdicts().is_empty());

    let small = Setup { context_length: 60, ..Setup::default() };
    let solved = small.solve(vec![tagged(PROGRAM)]).await;
    assert!(matches!(solved.failure(), Failure::ContextFull { limit: 60, .. }));
}

#[tokio::test]
async fn a_script_that_ends_is_a_stated_failure() {
    let solved = Setup::default().solve(vec![tagged(PROGRAM)]).await;
    let what = "the scripted model has no reply left for turn 2".to_owned();
    assert_eq!(*solved.failure(), Failure::Model { what });
}

#[tokio::test]
async fn the_rebuilt_synthesis_shows_the_units_to_new_dialogues() {
    let units = units(PROGRAM);
    let n = units.len();
    let mut script = all_accepted(PROGRAM);
    script.extend(finale());
    let setup = Setup { method: "ralu[synthesis=rebuilt]", ..Setup::default() };
    let solved = setup.solve(script).await;
    let mut path = "# Reasoning Path\n".to_owned();
    for (i, text) in units.iter().enumerate() {
        let i = i + 1;
        path += &format!("\nUnit {i}: {text}\nAnalysis: unit {i} follows the question.\n");
    }
    let system = template("ralu-rebuilt-math-system");
    let program_question = format!("{QUESTION}\n\nProgram, from <code> to </code>:");
    assert_eq!(
        solved.shown(n + 1),
        [(System, system.as_str()), (User, path.trim_end()), (User, program_question.as_str())]
    );
    let answer_question = format!(
        "{QUESTION}\n\n<code>\n{ANSWER_PROGRAM}\n</code>\n\nThe program was run and left this in \
         `ans`: 19\n\n\
          Now answer the question in one sentence, in the form: The answer is <Answer>...</Answer>"
    );
    assert_eq!(
        solved.shown(n + 2),
        [(System, system.as_str()), (User, path.trim_end()), (User, answer_question.as_str())]
    );
    assert_eq!(solved.answer(), "19");
}

#[tokio::test]
async fn lines_are_units_when_asked_for() {
    let lines = ["pens = 4 * 6", "for gift in [5]:", "    pens = pens + gift", "ans = pens"];
    let mut script = vec![tagged(PROGRAM)];
    script.extend((1..=lines.len()).map(ok));
    script.extend(finale());
    let setup = Setup { method: "ralu[units=line]", ..Setup::default() };
    let solved = setup.solve(script).await;
    for (n, line) in lines.iter().enumerate() {
        let last = solved.shown(n + 1);
        assert_eq!(last[last.len() - 1], (User, unit(n + 1, line).as_str()));
    }
    assert_eq!(solved.answer(), "19");
}

#[tokio::test]
async fn direct_and_cot_are_one_turn() {
    let direct = Setup { method: "direct", runs: Vec::new(), ..Setup::default() };
    let solved = direct.solve(vec!["The answer is 19."]).await;
    let prompt = format!(
        "{QUESTION}\n\nGive the result at once, without working, in the form: The answer is ..."
    );
    assert_eq!(solved.shown(0), [(User, prompt.as_str())]);
    assert_eq!(solved.answer(), "19");

    let cot = Setup { method: "cot", runs: Vec::new(), ..Setup::default() };
    let solved = cot.solve(vec!["I do not know.", "4 * 6 = 24\n<Answer>19</Answer>"]).await;
    let prompt = format!(
        "{QUESTION}\n\nWork this out step by step. Then give the result as <Answer>...</Answer>."
    );
    assert_eq!(solved.shown(0), [(User, prompt.as_str())]);
    assert_eq!(solved.shown(1), solved.shown(0));
    assert_eq!(solved.answer(), "19");
    assert_eq!(solved.outcome.format_failures, 1);
    assert_eq!(solved.outcome.rounds, 0);

    let cot = Setup { method: "cot", problem: code(), runs: Vec::new(), ..Setup::default() };
    let program = "def clip(x):\n    return min(x, 9)";
    let solved = cot.solve(vec![format!("Take the smaller.\n{}", tagged(program))]).await;
    assert_eq!(solved.answer(), program);
    assert_eq!(solved.outcome.program.as_deref(), Some(program));
}

/// The default model on a question of ours, from end to end. What it answers is not asserted: a model
/// of this size is seldom right.
#[tokio::test]
async fn the_default_model_corrects_itself_and_wastes_nothing() {
    let files = ModelFiles::Gguf(Gguf::open(&default_model()).unwrap());
    let load = LoadOptions { threads: 2, pages: 600, ..LoadOptions::default() };
    let engine = EngineOptions { measure_waste: true, ..EngineOptions::default() };
    let llm = Embedded::start("smollm2", &files, &load, engine).unwrap();
    let sink = Arc::new(Recorder::default());
    let options = sandbox::Options {
        child: env!("CARGO_BIN_EXE_unsay").into(),
        ..sandbox::Options::default()
    };
    let context = Context {
        llm: Arc::new(llm.clone()),
        sandbox: Arc::new(sandbox::Sandbox::find(options).unwrap()),
        prompts: Arc::new(Prompts::builtin().unwrap()),
        sink: sink.clone(),
        seed: 1,
        sample: 0,
        temperature: None,
        max_tokens: Some(80),
    };
    let outcome = by_name("ralu", &[]).unwrap().solve(&math(QUESTION), &context).await;
    let events = sink.0.lock().unwrap().clone();
    for event in events.iter().filter(|event| !matches!(event, Event::Piece { .. })) {
        println!("{}", serde_json::to_string(event).unwrap());
    }
    let solved = Solved { outcome, heard: Vec::new(), events, left: 0, ran: Vec::new() };
    well_formed(&solved);

    let ledger = llm.engine().ledger().await.unwrap();
    ledger.check().unwrap();
    let (total, cost) = (ledger.total(), solved.outcome.cost);
    assert_eq!(
        [total.prompt_tokens, total.cached_tokens, total.computed_tokens, total.generated_tokens],
        [cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens, cost.generated_tokens]
    );
    assert_eq!(cost.dropped_tokens, 0);
    // Something was taken back, and no row before a mark went through the model again. The two
    // dialogues may begin alike, for less than a page.
    assert!(solved.events.iter().any(|event| matches!(event, Event::Rewound { .. })));
    let waste = ledger.models[0].waste.unwrap();
    assert!(waste.appended_rows - waste.distinct_rows < 16, "{waste:?}");
}
