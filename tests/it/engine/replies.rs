//! How replies end, what of them is streamed when, and what a caller who gives up leaves behind.

use std::sync::mpsc::channel;

use unsay::engine::{
    EngineOptions, Finish, FinishReason, GeneratedToken, Generation, GenerationEvent, Sampling,
    Session, Stop, Tag,
};
use unsay::text::TokenId;

use super::fake::{Fake, MODEL, block_on, ids, token_bytes};

fn tag() -> Tag {
    Tag::new("reply", 1)
}

/// A session that holds `prompt` and will go on with the ids of `reply`, greedily.
async fn scripted(prompt: &str, reply: Vec<TokenId>) -> Session {
    let script = [ids(prompt), reply].concat();
    let engine = Fake::scripted(script).engine(EngineOptions::default());
    let mut session = engine.open(MODEL, None).await.unwrap();
    session.append(&ids(prompt)).await.unwrap();
    session
}

fn stopping(strings: &[&str]) -> Sampling {
    let stop_strings = strings.iter().map(|&string| string.to_owned()).collect();
    Sampling { stop_strings, max_tokens: 20, ..Sampling::default() }
}

async fn next(reply: &mut Generation<'_>) -> GenerationEvent {
    reply.next().await.unwrap().unwrap()
}

async fn token(reply: &mut Generation<'_>) -> GeneratedToken {
    match next(reply).await {
        GenerationEvent::Token(token) => token,
        end => panic!("{end:?}"),
    }
}

fn text(tokens: &[TokenId], tail: &[u8]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&id| token_bytes(id)).collect();
    String::from_utf8([bytes, tail.to_vec()].concat()).unwrap()
}

/// What is left of a scripted reply under some stop strings.
struct Stopped {
    text: String,
    kept: Vec<TokenId>,
    sequence: Vec<TokenId>,
    finish: Finish,
}

fn stopped(reply: Vec<TokenId>, strings: &[&str]) -> Stopped {
    block_on(async {
        let mut session = scripted("hello", reply).await;
        let got = session.generate(&stopping(strings), &tag()).await.unwrap();
        let got = got.collect().await.unwrap();
        let kept = got.ids();
        let sequence = session.ids().await.unwrap().split_off(5);
        Stopped { text: text(&kept, &got.finish.tail), kept, sequence, finish: got.finish }
    })
}

fn numbers(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

#[test]
fn a_stop_string_over_several_tokens() {
    let end = stopped(ids("onetwothree"), &["two"]);
    assert_eq!((end.text.as_str(), end.finish.reason), ("one", FinishReason::StopString));
    assert_eq!(end.finish.stop, Some(Stop::Text("two".to_owned())));
    assert_eq!(end.sequence, ids("one"));
    assert_eq!(end.finish.cut.iter().map(|t| t.id()).collect::<Vec<_>>(), ids("two"));
    assert_eq!(end.finish.cut[0].position, 8);
    assert_eq!(end.finish.cost.generated_tokens, 6, "what was cut off was paid for");
    assert_eq!(end.finish.cost.fed_back_tokens, 5);
}

#[test]
fn a_stop_string_that_begins_and_ends_inside_tokens() {
    // Token 31 is "xyz", 29 is "ab": the text is "oxyzab".
    let end = stopped(numbers(&[14, 31, 29, 0]), &["yza"]);
    assert_eq!(end.text, "ox", "the text is cut before the stop string");
    assert_eq!(end.finish.tail, b"x");
    assert_eq!(end.kept, ids("o"), "the sequence ends with the last whole token before it");
    assert_eq!(end.sequence, end.kept);
    assert_eq!(end.finish.cost.generated_tokens, 3);
}

#[test]
fn a_stop_string_within_one_token() {
    let end = stopped(numbers(&[14, 31, 0]), &["y"]);
    assert_eq!((end.text.as_str(), end.sequence), ("ox", ids("o")));
    let end = stopped(numbers(&[31, 0]), &["xyz"]);
    assert_eq!((end.text.as_str(), end.sequence), ("", vec![]));
}

#[test]
fn a_stop_string_of_characters_in_pieces() {
    // "a€b€€": each "€" comes as three tokens of a byte.
    let reply = numbers(&[0, 26, 27, 28, 1, 26, 27, 28, 26, 27, 28, 3]);
    let end = stopped(reply.clone(), &["€€"]);
    assert_eq!((end.text.as_str(), end.sequence), ("a€b", reply[..5].to_vec()));
    let end = stopped(reply.clone(), &["€b"]);
    assert_eq!((end.text.as_str(), end.sequence), ("a", reply[..1].to_vec()));
}

#[test]
fn what_might_have_been_a_stop_string_is_streamed_later() {
    // "aab" comes up to its last letter twice; then the reply ends by its length.
    let reply = ids("xaaaacaabb");
    let end = stopped([reply.clone(), ids("aazzzzzzzzzz")].concat(), &["aabbb", "aaaac!"]);
    assert_eq!(end.finish.reason, FinishReason::MaxTokens);
    assert_eq!(end.kept.len(), 20);
    assert!(end.kept.starts_with(&reply));
    assert_eq!(end.sequence, end.kept);
}

#[test]
fn a_token_is_streamed_only_when_it_surely_stays() {
    block_on(async {
        // Steps are let through one by one, so what is there to receive is known.
        let (permit, gate) = channel();
        let script = [ids("hello"), ids("aqaaaabz")].concat();
        let fake = Fake { gate: Some(gate), ..Fake::scripted(script) };
        let engine = fake.engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("hello")).await.unwrap();
        let mut reply = session.generate(&stopping(&["aab"]), &tag()).await.unwrap();
        permit.send(()).unwrap(); // draws "a", which might begin "aab"
        permit.send(()).unwrap(); // "q": neither can be taken back now
        assert_eq!(token(&mut reply).await.id(), ids("a")[0]);
        assert_eq!(token(&mut reply).await.id(), ids("q")[0]);
        (0..3).for_each(|_| permit.send(()).unwrap()); // "aaa": only the first is sure
        assert_eq!(token(&mut reply).await.id(), ids("a")[0]);
        permit.send(()).unwrap(); // "a": and the second
        assert_eq!(token(&mut reply).await.id(), ids("a")[0]);
        permit.send(()).unwrap(); // "b": the end
        match next(&mut reply).await {
            GenerationEvent::Finish(finish) => assert_eq!(finish.cut.len(), 3),
            GenerationEvent::Token(token) => panic!("{token:?} does not stay"),
        }
        assert!(reply.next().await.is_none());
        drop(reply);
        assert_eq!(session.ids().await.unwrap(), ids("helloaqaa"));
    });
}

#[test]
fn a_stop_id_is_not_part_of_the_sequence() {
    block_on(async {
        let script = ids("helloabcdef");
        for (of_the_model, of_the_call) in [(ids("d"), vec![]), (vec![], ids("zd"))] {
            let hosted = Fake::scripted(script.clone()).hosted("own", of_the_model);
            let engine = unsay::engine::Engine::start(vec![hosted], EngineOptions::default());
            let mut session = engine.unwrap().open("own", None).await.unwrap();
            session.append(&ids("hello")).await.unwrap();
            // "cde" is withheld when the stop id comes, and streamed then.
            let sampling = Sampling { stop_ids: of_the_call, ..stopping(&["cde"]) };
            let reply = session.generate(&sampling, &tag()).await.unwrap();
            let reply = reply.collect().await.unwrap();
            assert_eq!(reply.ids(), ids("abc"));
            let finish = reply.finish;
            assert_eq!(finish.reason, FinishReason::StopId);
            assert_eq!(finish.stop, Some(Stop::Id(ids("d")[0])));
            assert_eq!((finish.cut.len(), finish.cut[0].position), (1, 8));
            assert_eq!(finish.cut[0].id(), ids("d")[0]);
            assert!(finish.cut[0].stats.logprob < 0.0 && finish.cut[0].stats.logprob > -0.01);
            assert_eq!(finish.cost.generated_tokens, 4);
            assert_eq!(session.ids().await.unwrap(), ids("helloabc"));
        }
    });
}

#[test]
fn lengths_are_exact() {
    block_on(async {
        let mut session = scripted("hello", ids("abcdef")).await;
        let sampling = Sampling { max_tokens: 1, ..Sampling::default() };
        let reply = session.generate(&sampling, &tag()).await.unwrap().collect().await.unwrap();
        assert_eq!(reply.finish.reason, FinishReason::MaxTokens);
        assert_eq!((reply.ids(), reply.tokens[0].position), (ids("a"), 5));
        let cost = reply.finish.cost;
        assert_eq!((cost.generated_tokens, cost.fed_back_tokens), (1, 0), "not forwarded yet");
        assert!(cost.seconds > 0.0);
    });
}

#[test]
fn the_context_is_filled_to_its_last_position() {
    block_on(async {
        let fake = Fake { context_length: 20, ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("abcdefghijklmnopq")).await.unwrap();
        let reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
        let reply = reply.collect().await.unwrap();
        assert_eq!((reply.tokens.len(), reply.finish.reason), (3, FinishReason::ContextFull));
        assert_eq!(session.len().await, Ok(20));
        // Asked for as many as fit, it is the length that ends the reply.
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("abcdefghijklmnopq")).await.unwrap();
        let three = Sampling { max_tokens: 3, ..Sampling::default() };
        let reply = session.generate(&three, &tag()).await.unwrap().collect().await.unwrap();
        assert_eq!(reply.finish.reason, FinishReason::MaxTokens);
    });
}

#[test]
fn a_dropped_reply_leaves_what_was_received() {
    block_on(async {
        let (permit, gate) = channel();
        let (told, at_the_gate) = channel();
        let fake = Fake { gate: Some(gate), at_the_gate: Some(told), ..Fake::default() };
        let record = fake.record.clone();
        let engine = fake.engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("hello")).await.unwrap();
        let mut reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
        (0..4).for_each(|_| permit.send(()).unwrap());
        let first = token(&mut reply).await;
        let second = token(&mut reply).await;
        // The thread stands before the fifth pass: three tokens follow the prompt in pages, a
        // fourth is drawn, and the caller has seen two.
        (0..5).for_each(|_| at_the_gate.recv().unwrap());
        drop(reply);
        permit.send(()).unwrap();
        let mut expected = ids("hello");
        expected.extend([first.id(), second.id()]);
        assert_eq!(session.ids().await.unwrap(), expected);
        assert_eq!(record.lock().unwrap().passes.len(), 5, "cancelled within a step");
        let cost = engine.ledger().await.unwrap().total();
        assert_eq!((cost.generated_tokens, cost.fed_back_tokens), (5, 4), "and paid for");
        engine.check().await.unwrap();
    });
}

#[test]
fn a_cancelled_reply_tells_its_cost() {
    block_on(async {
        let mut session = scripted("hello", ids("abcdefghij")).await;
        let mut reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
        let first = token(&mut reply).await;
        let finish = reply.cancel().await.unwrap();
        assert_eq!((finish.reason, finish.stop), (FinishReason::Cancelled, None));
        assert_eq!(finish.cost.prompt_tokens, 5);
        assert!(finish.cost.generated_tokens >= 1);
        assert_eq!(session.ids().await.unwrap(), ids("helloa"));
        assert_eq!(first.id(), ids("a")[0]);
    });
}

#[test]
fn a_reply_given_up_before_it_was_accepted_leaves_nothing() {
    block_on(async {
        let mut session = scripted("hello", ids("abcdefghij")).await;
        let sampling = Sampling::default();
        let tag = tag();
        let mut asked = Box::pin(session.generate(&sampling, &tag));
        // Polled once, so that the message is sent, and given up before the answer is read.
        let _ = std::future::poll_fn(|context| {
            std::task::Poll::Ready(asked.as_mut().poll(context).is_ready())
        })
        .await;
        drop(asked);
        assert_eq!(session.ids().await.unwrap(), ids("hello"));
    });
}

#[test]
fn a_forgotten_reply_ends_with_the_next_message() {
    block_on(async {
        let mut session = scripted("hello", ids("abcdefghij")).await;
        let reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
        std::mem::forget(reply);
        let length = session.len().await.unwrap();
        assert_eq!(session.ids().await.unwrap().len(), length, "it does not grow any more");
    });
}

#[test]
fn the_seed_and_the_stream_decide() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut draws = Vec::new();
        for (seed, stream) in [(1, 1), (1, 1), (2, 1), (1, 2)] {
            let mut session = engine.open(MODEL, None).await.unwrap();
            session.append(&ids("hello")).await.unwrap();
            let sampling =
                Sampling { temperature: 1.0, seed, stream, max_tokens: 30, ..Sampling::default() };
            let reply = session.generate(&sampling, &tag()).await.unwrap();
            draws.push(reply.collect().await.unwrap().ids());
        }
        assert_eq!(draws[0], draws[1]);
        assert_ne!(draws[0], draws[2]);
        assert_ne!(draws[0], draws[3]);
    });
}

#[test]
fn penalties_count_the_present_reply_only() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("zzzzzzzz")).await.unwrap();
        // So heavy that no token comes twice in a reply; all of the vocabulary comes once.
        let once = Sampling { presence_penalty: 1e6, max_tokens: 32, ..Sampling::default() };
        for _ in 0..2 {
            let reply = session.generate(&once, &tag()).await.unwrap().collect().await.unwrap();
            let mut drawn = reply.ids();
            drawn.sort_unstable();
            assert_eq!(drawn, (0..32).map(TokenId).collect::<Vec<_>>());
        }
    });
}

#[test]
fn another_adapter_has_its_own_keys_and_values() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut plain = engine.open(MODEL, None).await.unwrap();
        let mut adapted = engine.open(MODEL, Some(super::fake::ADAPTER)).await.unwrap();
        let mut stats = Vec::new();
        for session in [&mut plain, &mut adapted] {
            session.append(&ids("hello")).await.unwrap();
            let scored = session.score(&ids("abc"), 2, &tag()).await.unwrap();
            assert_eq!(scored.cost.cached_tokens, 0, "nothing is shared between adapters");
            stats.push(scored.tokens);
        }
        assert_ne!(stats[0], stats[1]);
    });
}
