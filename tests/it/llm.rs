//! Dialogues: of the scripted model, and of the engine on the default model.

use std::sync::{Arc, Mutex, OnceLock};

use unsay::engine::EngineOptions;
use unsay::llm::{
    Ask, Cost, Embedded, Event, FinishReason, Llm, LlmError, Opening, Reply, Role, Scripted,
    ScriptedReply, SilentSink, Sink,
};
use unsay::model::LoadOptions;
use unsay::store::{Gguf, ModelFiles};
use unsay::text::TokenId;

use super::support::default_model;

use Role::{Assistant, System, User};

fn opening(system: Option<&str>) -> Opening {
    Opening {
        system: system.map(str::to_owned),
        method: "test".into(),
        item: "item".into(),
        role: "judge".into(),
        sample: 0,
        seed: 1,
        sink: Arc::new(SilentSink),
    }
}

#[tokio::test]
async fn a_script_is_said_in_order_and_what_was_shown_is_kept() {
    let llm = Scripted::new(["one", "two", "three"]);
    let mut dialogue = llm.open(opening(Some("Be short."))).await.unwrap();
    dialogue.say(User, "first");
    let mark = dialogue.mark();
    assert_eq!(dialogue.reply(&Ask::default()).await.unwrap().text, "one");
    let taken = dialogue.rewind(mark).await.unwrap();
    assert_eq!(taken.messages, [(Assistant, "one".to_owned())]);
    assert_eq!(dialogue.reply(&Ask::default()).await.unwrap().text, "two");

    let mut fork = dialogue.fork(3).await.unwrap();
    fork.say(User, "in the fork");
    assert_eq!(fork.reply(&Ask::default()).await.unwrap().text, "three");
    assert_eq!(dialogue.messages().len(), 3);

    let heard = llm.heard();
    let first = [(System, "Be short.".to_owned()), (User, "first".to_owned())];
    assert_eq!(heard[0].messages, first);
    assert_eq!(heard[1].messages, first);
    let forked = [(Assistant, "two".to_owned()), (User, "in the fork".to_owned())];
    assert_eq!(heard[2].messages, [first.to_vec(), forked.to_vec()].concat());
    assert_eq!([heard[0].attempt, heard[1].attempt, heard[2].attempt], [0, 1, 1]);
    assert_eq!([heard[1].sample, heard[2].sample], [0, 3]);
    let streams: std::collections::HashSet<u64> = heard.iter().map(|h| h.stream).collect();
    assert_eq!(streams.len(), 3);

    let over = dialogue.reply(&Ask::default()).await.unwrap_err();
    assert!(matches!(over, LlmError::ScriptOver { turn: 4 }), "{over}");
    let unable = dialogue.score("x").await.unwrap_err();
    assert!(matches!(unable, LlmError::NotAble { .. }));
}

#[tokio::test]
async fn scripted_statistics_finish_and_cost_are_as_written() {
    let reply = ScriptedReply::new("ab cd").logprobs([-0.5, 0.0]).finish(FinishReason::MaxTokens);
    let llm = Scripted::new([reply, "ok".into()]);
    let mut dialogue = llm.open(opening(None)).await.unwrap();
    dialogue.say(User, "three words here");
    let reply = dialogue.reply(&Ask::default()).await.unwrap();
    assert_eq!(reply.finish, FinishReason::MaxTokens);
    let texts: Vec<&str> = reply.tokens.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(texts.concat(), "ab cd");
    assert_eq!(reply.tokens[0].logprob, Some(-0.5));
    assert_eq!((reply.cost.prompt_tokens, reply.cost.generated_tokens), (3, 2));
    dialogue.say(User, "more");
    let cost = dialogue.reply(&Ask::default()).await.unwrap().cost;
    assert_eq!((cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens), (6, 5, 1));
}

#[tokio::test]
async fn a_mark_that_was_taken_back_is_refused() {
    let llm = Scripted::new(["one"]);
    let mut dialogue = llm.open(opening(None)).await.unwrap();
    let start = dialogue.mark();
    dialogue.say(User, "a");
    let late = dialogue.mark();
    dialogue.rewind(start).await.unwrap();
    assert!(matches!(dialogue.rewind(late).await, Err(LlmError::StaleMark)));
    assert!(dialogue.messages().is_empty());
}

#[tokio::test]
async fn events_tell_what_happens_as_it_happens() {
    #[derive(Default)]
    struct Names(Mutex<Vec<String>>);
    impl Sink for Names {
        fn event(&self, event: &Event) {
            let json = serde_json::to_value(event).unwrap();
            let name = format!("{} {}", json["event"], json["dialogue"]).replace('"', "");
            self.0.lock().unwrap().push(name);
        }
    }
    let names = Arc::new(Names::default());
    let llm = Scripted::new(["one"]);
    let opened = Opening { sink: names.clone(), sample: 2, ..opening(Some("s")) };
    let mut dialogue = llm.open(opened).await.unwrap();
    let mark = dialogue.mark();
    dialogue.say(User, "a");
    dialogue.reply(&Ask::default()).await.unwrap();
    dialogue.rewind(mark).await.unwrap();
    let expected =
        ["said judge#2", "said judge#2", "piece judge#2", "replied judge#2", "rewound judge#2"];
    assert_eq!(*names.0.lock().unwrap(), expected);
}

/// The default model in an engine of its own.
fn host(options: EngineOptions) -> Embedded {
    let files = ModelFiles::Gguf(Gguf::open(&default_model()).unwrap());
    let load = LoadOptions { threads: 2, pages: 600, ..LoadOptions::default() };
    Embedded::start("smollm2", &files, &load, options).unwrap()
}

/// The default model in the engine that these tests share.
fn embedded() -> Embedded {
    static HOSTED: OnceLock<Embedded> = OnceLock::new();
    HOSTED.get_or_init(|| host(EngineOptions::default())).clone()
}

fn warm(max_tokens: usize) -> Ask {
    Ask { temperature: 1.2, max_tokens, ..Ask::default() }
}

fn greedy(max_tokens: usize) -> Ask {
    Ask { max_tokens, ..Ask::default() }
}

/// A reply without its cost: what must repeat.
fn said(reply: &Reply) -> (String, Vec<TokenId>, Vec<u32>) {
    let logprobs = reply.tokens.iter().map(|t| t.logprob.unwrap().to_bits()).collect();
    (reply.text.clone(), reply.ids.clone(), logprobs)
}

#[tokio::test]
async fn a_reply_repeats_by_its_seed_and_differs_by_anything_else() {
    let llm = embedded();
    let mut replies = Vec::new();
    let same = opening(Some("Tell stories."));
    let others = [
        Opening { seed: 2, ..same.clone() },
        Opening { item: "other".into(), ..same.clone() },
        Opening { role: "teller".into(), ..same.clone() },
        Opening { sample: 1, ..same.clone() },
    ];
    for opening in [same.clone(), same].into_iter().chain(others) {
        let mut dialogue = llm.open(opening).await.unwrap();
        dialogue.say(User, "Begin a story about a fox.");
        replies.push(said(&dialogue.reply(&warm(12)).await.unwrap()));
    }
    assert_eq!(replies[0], replies[1]);
    for other in &replies[2..] {
        assert_ne!(replies[0].1, other.1);
    }
}

#[tokio::test]
async fn a_retry_is_another_draw_and_computes_nothing_again() {
    let llm = embedded();
    let mut dialogue = llm.open(opening(Some("Tell stories."))).await.unwrap();
    dialogue.say(User, "Begin a story about a fox.");
    let before = dialogue.mark();
    let first = dialogue.reply(&warm(12)).await.unwrap();
    let taken = dialogue.rewind(before).await.unwrap();
    assert_eq!(taken.messages, [(Assistant, first.text.clone())]);
    assert!(taken.tokens >= first.ids.len() as u64);
    let second = dialogue.reply(&warm(12)).await.unwrap();
    assert_ne!(first.ids, second.ids);
    assert_eq!(second.cost.prompt_tokens, first.cost.prompt_tokens);
    assert_eq!(second.cost.computed_tokens, 0);
    assert_eq!(second.cost.dropped_tokens, 0);
    assert_eq!(dialogue.messages().len(), 3);
}

/// A judge's dialogue, as RaLU holds it, with every way of going back.
#[tokio::test]
async fn a_dialogue_that_goes_back_again_and_again_wastes_nothing() {
    let llm = host(EngineOptions {
        measure_waste: true,
        check_every_step: true,
        ..EngineOptions::default()
    });
    let mut dialogue = llm.open(opening(Some("Judge each unit."))).await.unwrap();
    dialogue.say(User, "## Question\n\nHow many legs have two cats?");
    let mut replies: Vec<Reply> = Vec::new();
    for unit in 1..=3 {
        let mark = dialogue.mark();
        for (attempt, text) in ["RUN `legs = 2 * 3`", "RUN `legs = 2 * 4`"].iter().enumerate() {
            dialogue.say(User, &format!("Unit {unit}: {text}"));
            let end = dialogue.mark();
            replies.push(dialogue.reply(&warm(6)).await.unwrap());
            // A format retry: the same prompt.
            dialogue.rewind(end).await.unwrap();
            replies.push(dialogue.reply(&warm(6)).await.unwrap());
            assert_eq!(replies[replies.len() - 1].cost.computed_tokens, 0);
            if attempt == 0 {
                // A correction: the unit is said again, with other words.
                dialogue.rewind(mark).await.unwrap();
            }
        }
    }
    for reply in &replies {
        let cost = reply.cost;
        assert_eq!(cost.prompt_tokens, cost.cached_tokens + cost.computed_tokens);
        assert_eq!(cost.dropped_tokens, 0);
    }
    // Everything but the new unit is cached: after the first prompt a turn computes few tokens.
    for reply in &replies[1..] {
        assert!(reply.cost.computed_tokens < 30, "{:?}", reply.cost);
    }
    let ledger = llm.engine().ledger().await.unwrap();
    ledger.check().unwrap();
    let waste = ledger.models[0].waste.unwrap();
    assert_eq!(waste.appended_rows, waste.distinct_rows);
    let total = ledger.total();
    assert_eq!(total.computed_tokens, dialogue.cost().computed_tokens);
    assert_eq!(total.generated_tokens, dialogue.cost().generated_tokens);
    let turns: Vec<u32> = ledger.rows.iter().map(|row| row.tag.turn).collect();
    assert_eq!(turns, [1, 2, 3]);
    assert!(ledger.rows.iter().all(|row| row.tag.method == "test" && row.calls == 4));
}

#[tokio::test]
async fn what_was_generated_is_never_encoded_again() {
    let llm = embedded();
    // A draw that encoding its text would change; the samples repeat, so it is always the same one.
    let mut odd = None;
    for sample in 0..30 {
        let mut dialogue = llm.open(Opening { sample, ..opening(None) }).await.unwrap();
        dialogue.say(User, "Write odd words.");
        let ask = Ask { temperature: 2.0, max_tokens: 24, ..Ask::default() };
        let reply = dialogue.reply(&ask).await.unwrap();
        if llm.tokenizer().encode(&reply.text).unwrap() != reply.ids {
            odd = Some((dialogue, reply));
            break;
        }
    }
    let (mut dialogue, first) = odd.expect("a draw that encoding changes");
    dialogue.say(User, "More.");
    let second = dialogue.reply(&greedy(2)).await.unwrap();
    let held = first.cost.prompt_tokens + first.ids.len() as u64;
    assert_eq!(second.cost.cached_tokens, held);
    assert_eq!(second.cost.dropped_tokens, 0);

    // Two line ends that are one token when they are encoded: said as they were generated.
    let lines = Reply { text: "\n\n".into(), ids: vec![TokenId(198); 2], ..first.clone() };
    assert_eq!(llm.tokenizer().decode(&lines.ids), "\n\n");
    assert_eq!(llm.tokenizer().encode("\n\n").unwrap().len(), 1);
    let mut lengths = Vec::new();
    for ids in [lines.ids.clone(), vec![TokenId(198); 3]] {
        let mut dialogue = llm.open(opening(None)).await.unwrap();
        dialogue.say(User, "a");
        dialogue.say_reply(&Reply { ids, ..lines.clone() });
        dialogue.say(User, "b");
        lengths.push(dialogue.reply(&greedy(1)).await.unwrap().cost.prompt_tokens);
    }
    assert_eq!(lengths[0] + 1, lengths[1]);
}

#[tokio::test]
async fn a_fork_goes_on_as_a_fresh_dialogue_would() {
    let llm = embedded();
    let mut parent = llm.open(opening(Some("Tell stories."))).await.unwrap();
    parent.say(User, "Begin a story about a fox.");
    let begun = parent.reply(&warm(10)).await.unwrap();
    let mut fork = parent.fork(4).await.unwrap();
    assert_eq!(fork.cost(), Cost::default());
    fork.say(User, "Go on.");
    let forked = fork.reply(&warm(10)).await.unwrap();
    parent.say(User, "Go on.");
    let own = parent.reply(&warm(10)).await.unwrap();

    // The fork paid for its new words only.
    assert_eq!(forked.cost.cached_tokens, begun.cost.prompt_tokens + begun.ids.len() as u64);
    assert_eq!(forked.cost.prompt_tokens, own.cost.prompt_tokens);
    assert_ne!(forked.ids, own.ids);

    let other = host(EngineOptions::default());
    let mut fresh =
        other.open(Opening { sample: 4, ..opening(Some("Tell stories.")) }).await.unwrap();
    fresh.say(User, "Begin a story about a fox.");
    fresh.say_reply(&begun);
    fresh.say(User, "Go on.");
    let again = fresh.reply(&warm(10)).await.unwrap();
    assert_eq!(again.cost.computed_tokens, again.cost.prompt_tokens);
    assert_eq!(said(&forked), said(&again));
}

#[tokio::test]
async fn a_score_is_what_generating_reported_and_changes_nothing() {
    let llm = embedded();
    let mut dialogue = llm.open(opening(None)).await.unwrap();
    dialogue.say(User, "Name a colour.");
    let reply = {
        let mut twin = dialogue.fork(0).await.unwrap();
        twin.reply(&greedy(6)).await.unwrap()
    };
    assert_eq!(llm.tokenizer().encode(&reply.text).unwrap(), reply.ids);
    let scored = dialogue.score(&reply.text).await.unwrap();
    let bits = |tokens: &[unsay::llm::ReplyToken]| -> Vec<(u32, u32)> {
        tokens
            .iter()
            .map(|t| (t.logprob.unwrap().to_bits(), t.entropy.unwrap().to_bits()))
            .collect()
    };
    assert_eq!(bits(&scored), bits(&reply.tokens));
    let texts: String = scored.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(texts, reply.text);
    assert_eq!(dialogue.messages().len(), 1);
    let charged = dialogue.cost();
    // The twin computed the prompt and its reply but for the last token; nothing is conditioned on it.
    assert_eq!((charged.computed_tokens, charged.generated_tokens), (0, 0));
    assert!(charged.cached_tokens > 0);
    let after = dialogue.reply(&greedy(6)).await.unwrap();
    assert_eq!(said(&after), said(&reply));
    assert_eq!(after.cost.computed_tokens, 0);
    assert!(dialogue.score("").await.unwrap().is_empty());
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_is_computed() {
    let llm = embedded();
    let limit = llm.abilities().context_length;
    let mut dialogue = llm.open(opening(None)).await.unwrap();
    let start = dialogue.mark();
    dialogue.say(User, &"word ".repeat(limit));
    match dialogue.reply(&greedy(4)).await {
        Err(LlmError::ContextFull { needed, limit: named, .. }) => {
            assert!(needed > limit && named == limit);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(dialogue.cost(), Cost::default());
    // The dialogue can be taken back to where it fits.
    dialogue.rewind(start).await.unwrap();
    dialogue.say(User, "Hi.");
    assert!(dialogue.reply(&greedy(2)).await.is_ok());
}

#[tokio::test]
async fn a_reply_that_ends_at_a_stop_string_is_taken_up_as_it_was_cut() {
    #[derive(Default)]
    struct Pieces(Mutex<String>);
    impl Sink for Pieces {
        fn event(&self, event: &Event) {
            if let Event::Piece { text, .. } = event {
                self.0.lock().unwrap().push_str(text);
            }
        }
    }
    let llm = embedded();
    let pieces = Arc::new(Pieces::default());
    let opened = Opening { sink: pieces.clone(), ..opening(None) };
    let mut dialogue = llm.open(opened).await.unwrap();
    dialogue.say(User, "Count from one to nine in digits.");
    let whole = dialogue.fork(0).await.unwrap().reply(&greedy(24)).await.unwrap();
    pieces.0.lock().unwrap().clear();
    // Cut before a character in the middle of the reply.
    let middle = whole.text.chars().count() / 2;
    let stop: String = whole.text.chars().skip(middle).take(3).collect();
    let expected = whole.text.split(&stop).next().unwrap().to_owned();
    let ask = Ask { stop: vec![stop], ..greedy(24) };
    let cut = dialogue.reply(&ask).await.unwrap();
    assert_eq!(cut.finish, FinishReason::StopString);
    assert_eq!(cut.text, expected);
    assert_eq!(*pieces.0.lock().unwrap(), expected);
    assert_eq!(llm.tokenizer().decode(&cut.ids), expected);
    dialogue.say(User, "Go on.");
    let next = dialogue.reply(&greedy(2)).await.unwrap();
    assert_eq!(next.cost.cached_tokens, cut.cost.prompt_tokens + cut.tokens.len() as u64);
}
