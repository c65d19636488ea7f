//! What the engine refuses, in words, and that a refusal changes nothing and stops nobody else.

use unsay::engine::{Engine, EngineError, EngineOptions, Sampling, Tag};
use unsay::model::AdapterId;
use unsay::text::TokenId;

use super::fake::{Fake, MODEL, VOCAB, block_on, ids};

fn tag() -> Tag {
    Tag::new("refusal", 1)
}

#[test]
fn sampling_that_means_nothing() {
    let plain = Sampling::default;
    let nan = f32::NAN;
    let bad: Vec<(&str, Sampling)> = vec![
        ("temperature is -1", Sampling { temperature: -1.0, ..plain() }),
        ("temperature is NaN", Sampling { temperature: nan, ..plain() }),
        ("temperature is inf", Sampling { temperature: f32::INFINITY, ..plain() }),
        ("top_p is 0", Sampling { top_p: 0.0, ..plain() }),
        ("top_p is 1.5", Sampling { top_p: 1.5, ..plain() }),
        ("top_p is NaN", Sampling { top_p: nan, ..plain() }),
        ("min_p is -0.1", Sampling { min_p: -0.1, ..plain() }),
        ("min_p is 1.1", Sampling { min_p: 1.1, ..plain() }),
        ("min_p is NaN", Sampling { min_p: nan, ..plain() }),
        ("presence_penalty is NaN", Sampling { presence_penalty: nan, ..plain() }),
        ("frequency_penalty is inf", Sampling { frequency_penalty: f32::INFINITY, ..plain() }),
        ("repetition_penalty is 0", Sampling { repetition_penalty: 0.0, ..plain() }),
        ("max_tokens is 0", Sampling { max_tokens: 0, ..plain() }),
        ("bias is NaN", Sampling { bias: vec![(TokenId(1), nan)], ..plain() }),
        ("bias is 1", Sampling { bias: vec![(TokenId(1), 1.0), (TokenId(1), 2.0)], ..plain() }),
        ("token id 32", Sampling { bias: vec![(TokenId(32), 1.0)], ..plain() }),
        ("token id 99", Sampling { stop_ids: vec![TokenId(99)], ..plain() }),
        ("stop_strings", Sampling { stop_strings: vec!["a".into(), String::new()], ..plain() }),
        ("top_logprobs is 33", Sampling { top_logprobs: VOCAB + 1, ..plain() }),
    ];
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("hello")).await.unwrap();
        for (words, sampling) in bad {
            let error = session.generate(&sampling, &tag()).await.unwrap_err();
            let said = error.to_string();
            assert!(said.contains(words), "{said:?} does not say {words:?}");
        }
        let error = session.score(&ids("a"), VOCAB + 1, &tag()).await.unwrap_err();
        assert!(error.to_string().contains("top_logprobs is 33"), "{error}");
        assert_eq!(session.ids().await.unwrap(), ids("hello"));
        assert_eq!(engine.ledger().await.unwrap().rows, []);
        // The ends of the ranges are allowed.
        let extreme = Sampling {
            temperature: f32::MIN_POSITIVE / 2.0,
            top_k: usize::MAX,
            top_p: 1e-6,
            min_p: 1.0,
            presence_penalty: -f32::MAX,
            frequency_penalty: f32::MAX,
            repetition_penalty: f32::MAX,
            bias: vec![(TokenId(0), f32::MAX)],
            max_tokens: 4,
            top_logprobs: VOCAB,
            ..plain()
        };
        let reply = session.generate(&extreme, &tag()).await.unwrap().collect().await.unwrap();
        assert_eq!(reply.tokens.len(), 4);
    });
}

#[test]
fn ids_outside_the_vocabulary() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("a")).await.unwrap();
        let bad = [TokenId(1), TokenId(VOCAB as u32)];
        let error = session.append(&bad).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "token id 32 is outside the vocabulary of \"fake\" (32 ids); encode the text with \
             that model's own tokenizer"
        );
        assert_eq!(session.score(&bad, 0, &tag()).await.unwrap_err(), error);
        assert_eq!(session.ids().await.unwrap(), ids("a"), "not even the id that was right");
    });
}

#[test]
fn an_empty_sequence_has_no_continuation() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        assert!(session.is_empty().await.unwrap());
        let error = session.generate(&Sampling::default(), &tag()).await.unwrap_err();
        assert_eq!(error, EngineError::EmptySequence);
        let error = session.score(&ids("abc"), 0, &tag()).await.unwrap_err();
        assert_eq!(error, EngineError::EmptySequence);
    });
}

#[test]
fn nothing_is_scored_for_nothing() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("abc")).await.unwrap();
        assert_eq!(session.score(&[], 0, &tag()).await.unwrap().tokens, []);
        assert_eq!(engine.ledger().await.unwrap().rows, []);
    });
}

#[test]
fn the_context_is_a_typed_limit() {
    block_on(async {
        let fake = Fake { context_length: 8, ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("hello")).await.unwrap();
        let overflow =
            |needed| EngineError::ContextOverflow { model: MODEL.into(), needed, limit: 8 };
        assert_eq!(session.append(&ids("abcd")).await, Err(overflow(9)));
        assert_eq!(session.score(&ids("abcd"), 0, &tag()).await, Err(overflow(9)));
        assert_eq!(session.score(&ids("abc"), 0, &tag()).await.unwrap().tokens.len(), 3);
        session.append(&ids("abc")).await.unwrap();
        let error = session.generate(&Sampling::default(), &tag()).await.unwrap_err();
        assert_eq!(error, overflow(9), "no position is left for even one token");
        assert_eq!(session.len().await, Ok(8));
    });
}

#[test]
fn pages_run_out_for_one_and_not_for_the_others() {
    block_on(async {
        let fake = Fake { page_count: 4, ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut small = engine.open(MODEL, None).await.unwrap();
        small.append(&ids("abc")).await.unwrap();
        small.score(&ids("d"), 0, &tag()).await.unwrap();
        let mut large = engine.open(MODEL, None).await.unwrap();
        large.append(&[TokenId(1); 65]).await.unwrap();
        let exhausted = |needed, free| EngineError::PagesExhausted {
            model: MODEL.into(),
            needed,
            free,
            total: 4,
        };
        let reply = large.generate(&Sampling::default(), &tag()).await.unwrap();
        let error = reply.collect().await.unwrap_err();
        assert_eq!(error, exhausted(5, 4), "what others left can be had");
        assert!(error.to_string().contains("shorten the sequence"), "{error}");
        assert_eq!(large.len().await, Ok(65));
        // A reply that runs into the limit keeps what it has said.
        drop(large);
        let mut growing = engine.open(MODEL, None).await.unwrap();
        growing.append(&[TokenId(1); 40]).await.unwrap();
        let sampling = Sampling { stop_strings: vec!["never".into()], ..Sampling::default() };
        let mut reply = growing.generate(&sampling, &tag()).await.unwrap();
        let mut received = 0;
        let error = loop {
            match reply.next().await.unwrap() {
                Ok(_) => received += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, exhausted(1, 0));
        assert!(reply.next().await.is_none());
        drop(reply);
        assert_eq!(received, 25, "the last is drawn after position 63 and finds no page");
        assert_eq!(growing.len().await, Ok(65));
        let sampling = Sampling { max_tokens: 10, ..Sampling::default() };
        let reply = small.generate(&sampling, &tag()).await.unwrap().collect().await.unwrap();
        assert_eq!(reply.tokens.len(), 10, "the other goes on");
        engine.ledger().await.unwrap().check().unwrap();
    });
}

#[test]
fn a_mark_that_was_rewound_past() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        let empty = session.mark().await.unwrap();
        session.append(&ids("abc")).await.unwrap();
        let early = session.mark().await.unwrap();
        session.append(&ids("def")).await.unwrap();
        let late = session.mark().await.unwrap();
        assert_eq!((early.position(), late.position()), (3, 6));
        assert_eq!(session.rewind(late).await, Ok(0), "a mark is used as often as one likes");
        assert_eq!(session.rewind(early).await, Ok(3));
        let stale = Err(EngineError::StaleMark { position: 6 });
        assert_eq!(session.rewind(late).await, stale);
        session.append(&ids("def")).await.unwrap();
        assert_eq!(session.rewind(late).await, stale, "the same ids, and yet another past");
        // A fork takes its parent's marks; a stranger does not.
        let mut fork = session.fork().await.unwrap();
        assert_eq!(fork.rewind(early).await, Ok(3));
        let mut stranger = engine.open(MODEL, None).await.unwrap();
        stranger.append(&ids("abc")).await.unwrap();
        assert_eq!(stranger.rewind(early).await, Err(EngineError::StaleMark { position: 3 }));
        // A place within the sequence can be marked, one beyond it cannot.
        let within = session.mark_at(2).await.unwrap();
        assert_eq!(within.position(), 2);
        let beyond = session.mark_at(7).await;
        assert_eq!(beyond, Err(EngineError::StaleMark { position: 7 }));
        assert_eq!(session.rewind(within).await, Ok(4));
        assert_eq!(session.ids().await.unwrap(), ids("ab"));
        assert_eq!(session.rewind(empty).await, Ok(2));
        assert!(session.is_empty().await.unwrap());
    });
}

#[test]
fn logits_that_are_not_finite() {
    block_on(async {
        let fake = Fake { not_a_number_after: Some(TokenId(7)), ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("abch")).await.unwrap();
        let reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
        match reply.collect().await.unwrap_err() {
            EngineError::NotFinite { position, token, value, .. } => {
                assert_eq!((position, token.0), (3, 3));
                assert!(value.is_nan());
            }
            other => panic!("{other}"),
        }
        let mut other = engine.open(MODEL, None).await.unwrap();
        other.append(&ids("abc")).await.unwrap();
        let error = other.score(&ids("dhe"), 0, &tag()).await.unwrap_err();
        assert!(matches!(error, EngineError::NotFinite { position: 4, .. }), "{error}");
        assert_eq!(other.score(&ids("deh"), 0, &tag()).await.unwrap().tokens.len(), 3);
        engine.check().await.unwrap();
    });
}

#[test]
fn a_decoder_that_refuses_a_batch() {
    block_on(async {
        let fake = Fake { refuse: Some(TokenId(7)), page_count: 8, ..Fake::default() };
        let engine = fake.engine(EngineOptions { prefill_rows: 10, ..EngineOptions::default() });
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("aaaaaaaaaaaaaaaaaaaaaaaah")).await.unwrap();
        for _ in 0..3 {
            let reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
            let error = reply.collect().await.unwrap_err();
            assert!(matches!(error, EngineError::Model { .. }), "{error}");
            assert!(error.to_string().contains("row 4"), "{error}");
        }
        let pages = engine.pages(MODEL).await.unwrap();
        assert_eq!((pages.free, pages.cached), (6, 2), "two pages hold twenty positions");
        let cost = engine.ledger().await.unwrap().total();
        assert_eq!((cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens), (60, 40, 20));
        engine.check().await.unwrap();
        // Without the token it runs, also beside one that has it.
        let mut other = session.fork().await.unwrap();
        let short = session.mark_at(20).await.unwrap();
        other.rewind(short).await.unwrap();
        let sampling = Sampling { bias: vec![(TokenId(7), -100.0)], ..Sampling::default() };
        let sampling = Sampling { max_tokens: 5, ..sampling };
        let refused = session.generate(&sampling, &tag()).await.unwrap();
        let good = other.generate(&sampling, &tag()).await.unwrap();
        let (refused, good) = tokio::join!(refused.collect(), good.collect());
        assert!(matches!(refused, Err(EngineError::Model { .. })));
        assert_eq!(good.unwrap().tokens.len(), 5);
        engine.clear_cache().await.unwrap();
        assert_eq!(engine.pages(MODEL).await.unwrap().free, 8);
    });
}

#[test]
fn what_cannot_be_started_or_opened() {
    let start = |hosted| Engine::start(hosted, EngineOptions::default()).unwrap_err().to_string();
    assert!(start(vec![]).contains("at least one"));
    let twice = vec![
        Fake::default().hosted("m", vec![]),
        Fake::default().hosted("n", vec![]),
        Fake::default().hosted("m", vec![]),
    ];
    assert!(start(twice).contains("two hosted models are named \"m\""));
    let stop = vec![Fake::default().hosted("m", vec![TokenId(32)])];
    assert!(start(stop).contains("stop id 32 is outside its vocabulary of 32"));
    let pages = Fake { page_count: 0, ..Fake::default() };
    assert!(start(vec![pages.hosted("m", vec![])]).contains("arena of pages"));
    let context = Fake { context_length: 0, ..Fake::default() };
    assert!(start(vec![context.hosted("m", vec![])]).contains("context"));
    let none = EngineOptions { prefill_rows: 0, ..EngineOptions::default() };
    let error = Fake::default().try_engine(none).unwrap_err();
    assert_eq!(error.to_string(), "engine option prefill_rows is 0; it must be at least 1");
    block_on(async {
        let hosted =
            vec![Fake::default().hosted("small", vec![]), Fake::default().hosted("large", vec![])];
        let engine = Engine::start(hosted, EngineOptions::default()).unwrap();
        let error = engine.open("middle", None).await.unwrap_err();
        assert_eq!(error.to_string(), "no model \"middle\" is hosted; hosted are: small, large");
        let error = engine.open("small", Some(AdapterId(1))).await.unwrap_err();
        assert_eq!(error.to_string(), "model \"small\" has no adapter 1; it has 1");
        assert!(engine.pages("middle").await.is_err());
        assert_eq!(engine.open("large", None).await.unwrap().model().name, "large");
    });
}
