//! Each instruction on texts of our own; the official verdicts are held against it in `tests/it`.

use super::*;

fn strict(rule: Rule, text: &str) -> bool {
    let all = [Instruction { id: "own".to_owned(), rule }];
    check(&all, text).strict[0]
}

fn loose(rule: Rule, text: &str) -> bool {
    let all = [Instruction { id: "own".to_owned(), rule }];
    check(&all, text).loose[0]
}

fn at_least(count: usize) -> Amount {
    Amount { at_least: true, count }
}

fn less_than(count: usize) -> Amount {
    Amount { at_least: false, count }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn an_empty_reply_follows_nothing() {
    for text in ["", " \n"] {
        assert!(!strict(Rule::NoComma, text));
        assert!(!loose(Rule::NoComma, text));
    }
}

#[test]
fn loose_readings_leave_out_a_first_line_a_last_line_and_asterisks() {
    let quoted = "Sure, here it is:\n\"*Rain* fell.\"\nAnything else?";
    assert!(!strict(Rule::Quotation, quoted));
    assert!(loose(Rule::Quotation, quoted));
    assert!(loose(Rule::End("fell".into()), "it *fell*"));
    assert!(!loose(Rule::Quotation, "one\ntwo\n\"three\"\nfour\nfive"));
}

#[test]
fn keywords_are_patterns_without_case() {
    let keywords = |list: &[&str]| Rule::Keywords(words(list));
    assert!(strict(keywords(&["river", "Bank"]), "A RIVER has banks."));
    assert!(!strict(keywords(&["river", "lake"]), "A river."));
    assert!(strict(keywords(&["colou?r"]), "color"));
    // What is no pattern is taken as words.
    assert!(strict(keywords(&["(sic"]), "so it was (sic)"));
    let forbidden = |list: &[&str]| Rule::Forbidden(words(list));
    assert!(strict(forbidden(&["rock"]), "rocks and rockets"));
    assert!(!strict(forbidden(&["rock"]), "A Rock."));
    let often = |amount| Rule::Keyword { pattern: "sea".into(), amount };
    assert!(strict(often(at_least(2)), "Sea and season"));
    assert!(!strict(often(less_than(2)), "Sea and season"));
    let letter = |letter, amount| Rule::Letter { letter, amount };
    assert!(strict(letter('o', at_least(3)), "Oh, no, no"));
    assert!(strict(letter('!', less_than(3)), "Oh! no!"));
    assert!(!strict(letter('o', less_than(3)), "Oh, no, no"));
}

#[test]
fn lengths_are_counted() {
    assert!(strict(Rule::Words(at_least(5)), "it's a well-known fact"));
    assert!(!strict(Rule::Words(at_least(7)), "it's a well-known fact"));
    for (text, count) in [
        ("One. Two! Three?", 3),
        ("Dr. Smith went to the U.S. embassy. He left.", 2),
        ("She lives in the U.S. The rest is known.", 2),
        ("It rose by 3.5 points.", 1),
        ("\"Stop!\" he said. (It worked.) Good.", 4),
        ("no full stop at all", 1),
        ("1. First\n2. Second", 3),
        ("Wait... what? Yes", 2),
        ("Wait... What? Yes", 3),
        ("J. Doe agrees.", 1),
    ] {
        assert!(strict(Rule::Sentences(at_least(count)), text), "{text}");
        assert!(!strict(Rule::Sentences(at_least(count + 1)), text), "{text}");
    }
    assert!(strict(Rule::Paragraphs(2), "one\n***\ntwo"));
    assert!(strict(Rule::Paragraphs(2), "***\none\n***\ntwo\n***"));
    assert!(!strict(Rule::Paragraphs(2), "one\n***\n***\ntwo"));
    assert!(strict(Rule::Capitals(at_least(3)), "YES, it IS a 3D thing"));
    assert!(strict(Rule::Capitals(less_than(1)), "no, It is"));
    assert!(strict(Rule::Capitals(at_least(2)), "I'M"));
    assert!(strict(Rule::Capitals(less_than(2)), "MOVE-IN"));
}

#[test]
fn forms_are_recognised() {
    assert!(strict(Rule::Placeholders(2), "Dear [name], at [place]"));
    assert!(!strict(Rule::Placeholders(2), "Dear [name"));
    assert!(strict(Rule::Postscript("P.S.".into()), "Bye.\nP. S. Call me"));
    assert!(strict(Rule::Postscript("P.P.S".into()), "Bye.\np.p.s more"));
    assert!(!strict(Rule::Postscript("P.P.S".into()), "Bye.\nP.S. more"));
    assert!(strict(Rule::Constrained, "Well. My answer is maybe."));
    assert!(!strict(Rule::Constrained, "My answer is perhaps."));
    for (text, json) in [
        ("{\"a\": [1, NaN]}", true),
        ("```json\n{\"a\": 1}\n```", true),
        ("{\"a\": 1,}", false),
        ("{\"a\": \"line\nend\"}", false),
        ("\"\\ud800\"", true),
        ("Here: {}", false),
    ] {
        assert_eq!(strict(Rule::Json, text), json, "{text}");
    }
    let sections = |count| Rule::Sections { splitter: "Part".into(), count };
    assert!(strict(sections(2), "Part 1\na\nPart 2\nb"));
    assert!(!strict(sections(2), "Part one\na\nPart 2\nb"));
    assert!(strict(Rule::Title, "<<Of rain>>\nIt fell."));
    assert!(!strict(Rule::Title, "<< >>"));
    assert!(strict(Rule::NoComma, "a; b"));
    assert!(!strict(Rule::NoComma, "a, b"));
    assert!(strict(Rule::End("the end.".into()), "And so on. \"The End.\"\n"));
    assert!(!strict(Rule::End("the end.".into()), "The end. Really."));
    assert!(strict(Rule::Quotation, " \"x\" "));
    assert!(!strict(Rule::Quotation, "\""));
    assert!(strict(Rule::RepeatPrompt("Say it.".into()), "say it.\nIt."));
    assert!(!strict(Rule::RepeatPrompt("Say it.".into()), "Well, say it."));
    assert!(strict(Rule::TwoResponses, "one\n******\ntwo"));
    assert!(!strict(Rule::TwoResponses, "one\n******\none"));
    assert!(!strict(Rule::TwoResponses, "one\n******\n\n******\ntwo"));
    assert!(strict(Rule::TwoResponses, "******one******two******"));
}

#[test]
fn languages_and_cases() {
    let english = "the rain fell on the hills and on the old town for three days without an end";
    let german = "der regen fiel drei tage lang ohne ein ende auf die hügel und auf die alte stadt";
    let swahili =
        "mvua ilinyesha kwa siku tatu katika mji wa zamani na watu wa kijiji walikaa nyumbani";
    assert!(strict(Rule::English { upper: false }, english));
    assert!(!strict(Rule::English { upper: true }, english));
    assert!(strict(Rule::English { upper: true }, &english.to_uppercase()));
    assert!(!strict(Rule::English { upper: false }, german));
    assert!(strict(Rule::Language("de".into()), german));
    assert!(!strict(Rule::Language("de".into()), english));
    assert!(strict(Rule::Language("sw".into()), swahili));
    assert!(!strict(Rule::Language("sw".into()), english));
    assert!(strict(
        Rule::Language("hi".into()),
        "बारिश तीन दिनों तक पहाड़ियों और पुराने शहर पर होती रही"
    ));
    assert!(strict(Rule::Language("ko".into()), "비가 사흘 동안 언덕과 오래된 마을에 내렸다"));
    // Nothing to say anything of.
    assert!(strict(Rule::Language("de".into()), "1234"));
}

#[test]
fn the_first_word_of_a_paragraph() {
    let rule =
        |paragraphs, nth, word: &str| Rule::FirstWord { paragraphs, nth, word: word.to_owned() };
    let text = "Rain fell.\n\n\"Still, it fell.\"\n\nThen snow.";
    assert!(strict(rule(3, 2, "still"), text));
    assert!(!strict(rule(3, 2, "it"), text));
    assert!(!strict(rule(2, 2, "still"), text));
    assert!(!strict(rule(3, 4, "then"), text));
}
