//! Problems whose answer is the reply itself.

use super::*;

fn letter() -> Problem {
    let question = "Write a letter without commas. ".to_owned();
    Problem { id: "letter".into(), question, kind: Kind::Text, ..Problem::default() }
}

#[tokio::test]
async fn direct_and_cot_ask_as_it_stands_and_keep_the_whole_reply() {
    for method in ["direct", "cot"] {
        let setup = Setup { method, problem: letter(), runs: Vec::new(), ..Setup::default() };
        let reply = "<think>No commas.</think>\n\nDear Ana\n\n**Bye** <Answer>x</Answer>\n";
        let solved = setup.solve(vec![" \n", reply]).await;
        assert_eq!(solved.shown(0), [(User, letter().question.as_str())], "{method}");
        assert_eq!(solved.answer(), "Dear Ana\n\n**Bye** <Answer>x</Answer>", "{method}");
        assert_eq!(solved.outcome.format_failures, 1, "a reply of nothing is drawn again");
    }
}

#[tokio::test]
async fn methods_that_make_programs_refuse() {
    for method in ["pot", "self-debug", "ralu", "ralu[units=nl-step]"] {
        let setup = Setup { method, problem: letter(), runs: Vec::new(), ..Setup::default() };
        let solved = setup.solve(vec!["never asked for"]).await;
        assert_eq!(solved.failure(), &Failure::Unfit, "{method}");
        assert_eq!(solved.left, 1, "{method}: the model is not asked");
    }
}
