//! The ablations without a program or with another choice, and RaLU's single-path baselines.

use super::*;

const STEPS: [&str; 2] = ["Four boxes of 6 pens are 24 pens.", "24 + 5 = 29 pens are left."];
const FIXED: &str = "24 - 5 = 19 pens are left.";

fn steps() -> String {
    format!("<Step>{}</Step>\n<Step>\n{}\n</Step> So: <Step> </Step>", STEPS[0], STEPS[1])
}

#[tokio::test]
async fn steps_in_words_are_judged_and_corrected_like_units() {
    let mut script = vec!["First 24, then 29.".to_owned(), steps(), ok(1), wrong(FIXED), ok(2)];
    script.extend(finale());
    let setup = Setup { method: "ralu[units=nl-step]", ..Setup::default() };
    let solved = setup.solve(script).await;

    let asked = filled("ralu-steps-math", context! { question => QUESTION });
    assert_eq!(solved.shown(0), [(User, asked.as_str())]);
    assert_eq!(solved.shown(1), solved.shown(0), "a reply without steps is drawn again");
    let judge = [
        (System, template("ralu-judge-steps-math-system")),
        (User, format!("## Question\n\n{QUESTION}")),
        (User, unit(1, STEPS[0])),
        (Assistant, ok(1)),
        (User, unit(2, FIXED)),
    ];
    assert_eq!(solved.heard[4].messages, judge);
    assert_eq!(solved.answer(), "19");
    assert_eq!((solved.outcome.rounds, solved.outcome.format_failures), (3, 1));
    let judged = solved.outcome.judged.clone().unwrap();
    assert_eq!((judged.first_program, judged.units, judged.wrong_units), (None, 2, 1));
}

#[tokio::test]
async fn a_plan_in_words_becomes_a_program_at_the_end() {
    let program = "def clip(x):\n    return min(x, 9)";
    let plan = "<Step>Take the smaller of x and 9.</Step>".to_owned();
    let setup = Setup {
        method: "ralu[units=nl-step]",
        problem: code(),
        runs: Vec::new(),
        ..Setup::default()
    };
    let solved = setup.solve(vec![plan, ok(1), tagged(program)]).await;
    let judge = solved.shown(1);
    assert_eq!(judge[0], (System, template("ralu-judge-steps-code-system").as_str()));
    assert_eq!(judge[2].1, unit(1, "Take the smaller of x and 9."));
    assert_eq!(solved.answer(), program);
}

#[tokio::test]
async fn steps_that_were_cut_off_are_told_so() {
    let cut = || ScriptedReply::new("<Step>Four boxes").finish(FinishReason::MaxTokens);
    let setup = Setup { method: "ralu[units=nl-step]", ..Setup::default() };
    let solved = setup.solve((0..4).map(|_| cut()).collect()).await;
    let Failure::Format { what, retries: 3 } = solved.failure() else {
        panic!("{:?}", solved.failure())
    };
    assert!(what.contains("cut off"), "{what}");
    assert_eq!(solved.outcome.judged, None);
}

#[tokio::test]
async fn the_model_ranks_its_candidates_where_it_is_asked_to_though_probabilities_are_known() {
    let units = units(PROGRAM);
    let sure = |text: String| ScriptedReply::new(text).logprobs([0.0]);
    let mut script = vec![sure(tagged(PROGRAM))];
    script.extend((1..=3).map(|n| sure(wrong(&format!("RUN `pens = {n}`")))));
    script.push(sure("<Unit>RUN `pens = 2`</Unit>".to_owned()));
    script.extend((2..=units.len()).map(|n| sure(ok(n))));
    script.extend(finale().map(sure));
    let setup = Setup { method: "ralu[select=self-rank]", ..Setup::default() };
    let solved = setup.solve(script).await;
    assert_eq!(solved.settled()[0], ("RUN `pens = 2`", "chosen by the model"));
    assert_eq!(solved.outcome.judged.unwrap().wrong_units, 1, "one unit, whatever its candidates");
}

#[tokio::test]
async fn what_the_judge_said_of_the_first_program_is_kept() {
    let units = units(PROGRAM);
    let at = units.iter().position(|u| u.contains("pens + gift")).unwrap();
    let fix = units[at].replace("pens + gift", "pens - gift");
    let mut script = vec![tagged(PROGRAM)];
    script.extend((1..=at).map(ok));
    // An unsure correction of a correction is not a second wrong unit.
    script.push(wrong(&fix));
    script.push(wrong(&fix.replace("gift", "presents")));
    script.extend((at + 1..=units.len()).map(ok));
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    let judged = solved.outcome.judged.unwrap();
    assert_eq!(judged.first_program.as_deref(), Some(PROGRAM));
    assert_eq!((judged.units as usize, judged.wrong_units), (units.len(), 1));
    assert_eq!(solved.outcome.program.as_deref(), Some(ANSWER_PROGRAM));

    let mut script = all_accepted(PROGRAM);
    script.extend(finale());
    let solved = Setup::default().solve(script).await;
    assert_eq!(solved.outcome.judged.unwrap().wrong_units, 0);
}

fn program_turn() -> Vec<(Role, String)> {
    vec![
        (System, template("ralu-program-math-system")),
        (User, template("ralu-program-math-examples")),
        (User, format!("Question: {QUESTION}\n\nProgram, from <code> to </code>:")),
    ]
}

#[tokio::test]
async fn a_program_of_thought_is_run_and_its_value_is_the_answer() {
    let setup = Setup { method: "pot", ..Setup::default() };
    let solved = setup.solve(vec![tagged(PROGRAM)]).await;
    assert_eq!(solved.heard[0].messages, program_turn(), "RaLU begins with the same words");
    assert_eq!(solved.answer(), "19");
    assert_eq!(solved.ran, [PROGRAM]);
    assert_eq!(solved.outcome.program.as_deref(), Some(PROGRAM));
    assert_eq!(solved.outcome.rounds, 0);

    let fails = |outcome, why: &str| {
        let why = why.to_owned();
        async move {
            let setup = Setup { method: "pot", runs: vec![Ok(outcome)], ..Setup::default() };
            let solved = setup.solve(vec![tagged(PROGRAM)]).await;
            assert_eq!(*solved.failure(), Failure::Program { what: why });
        }
    };
    use sandbox::Outcome as Ran;
    fails(Ran::Finished { answer: None }, "finished without setting `ans`").await;
    let (kind, message) = ("ZeroDivisionError".to_owned(), "division by zero".to_owned());
    let raised = Ran::Raised { kind, message, line: Some(2) };
    fails(raised, "ZeroDivisionError: division by zero (line 2)").await;
    fails(Ran::WallLimit, "it ran for too long").await;

    let program = "def clip(x):\n    return min(x, 9)";
    let setup = Setup { method: "pot", problem: code(), runs: Vec::new(), ..Setup::default() };
    let solved = setup.solve(vec![tagged(program)]).await;
    let direct = Setup { method: "direct", problem: code(), runs: Vec::new(), ..Setup::default() };
    let direct = direct.solve(vec![tagged(program)]).await;
    assert_eq!(solved.heard[0].messages, direct.heard[0].messages);
    assert_eq!(solved.answer(), program);
}

#[tokio::test]
async fn self_debug_explains_judges_and_corrects_in_one_conversation() {
    let explain = template("self-debug-explain");
    let judge = filled("self-debug-judge", context! { kind => "question", entry_point => () });
    let corrected = format!("WRONG, they are taken off.\n{}", tagged(ANSWER_PROGRAM));
    let script = vec![
        tagged(PROGRAM),
        "It adds the gifts.".to_owned(),
        corrected.clone(),
        "It takes the gifts off.".to_owned(),
        "RIGHT".to_owned(),
    ];
    let setup = Setup { method: "self-debug", ..Setup::default() };
    let solved = setup.solve(script).await;
    let history = with(
        program_turn(),
        &[
            (Assistant, &tagged(PROGRAM)),
            (User, &explain),
            (Assistant, "It adds the gifts."),
            (User, &judge),
            (Assistant, &corrected),
            (User, &explain),
            (Assistant, "It takes the gifts off."),
            (User, &judge),
        ],
    );
    assert_eq!(solved.heard[4].messages, history);
    assert_eq!(solved.answer(), "19");
    assert_eq!(solved.ran, [ANSWER_PROGRAM], "nothing is run before the end");
    assert_eq!((solved.outcome.rounds, solved.left), (2, 0));
}

#[tokio::test]
async fn self_debug_ends_after_its_rounds_or_when_nothing_changes() {
    let other = |n: usize| format!("WRONG\n{}", tagged(&format!("ans = {n}")));
    let mut script = vec![tagged(PROGRAM)];
    for n in 1..=2 {
        script.extend(["It computes.".to_owned(), other(n)]);
    }
    let setup = Setup { method: "self-debug[max-rounds=2]", ..Setup::default() };
    let solved = setup.solve(script).await;
    assert_eq!((solved.ran.as_slice(), solved.left), (["ans = 2".to_owned()].as_slice(), 0));
    assert_eq!(solved.outcome.rounds, 2);

    let same =
        vec![tagged("ans = 19"), "It computes.".to_owned(), format!("WRONG\n{}", tagged("ans=19"))];
    let setup = Setup { method: "self-debug", ..Setup::default() };
    let solved = setup.solve(same).await;
    assert_eq!((solved.ran.as_slice(), solved.left), (["ans = 19".to_owned()].as_slice(), 0));
}

#[tokio::test]
async fn a_judgement_that_cannot_be_read_is_no_pass_and_no_correction() {
    let broken = format!("WRONG\n{}", tagged("def clip(x:\n    return 9"));
    let program = "def clip(x):\n    return min(x, 9)";
    let mut script = vec![tagged(program), "It takes the smaller.".to_owned()];
    script.extend(["It is right, I think.".to_owned(), "WRONG".to_owned(), broken, "?".to_owned()]);
    let setup =
        Setup { method: "self-debug", problem: code(), runs: Vec::new(), ..Setup::default() };
    let solved = setup.solve(script).await;
    assert_eq!(solved.answer(), program);
    assert_eq!((solved.outcome.rounds, solved.outcome.format_failures), (0, 4));
    let judge =
        filled("self-debug-judge", context! { kind => "specification", entry_point => "clip" });
    let last = solved.shown(2);
    assert_eq!(last[last.len() - 1], (User, judge.as_str()));
    assert!(judge.contains("`clip`"));
}
