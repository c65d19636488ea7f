//! The ledger, by hand: each call of a dialogue with a rewind, a fork and scores.

use unsay::engine::{Cost, EngineOptions, Generated, Sampling, Session, Tag};

use super::fake::{Fake, MODEL, block_on, ids};

async fn reply(session: &mut Session, tokens: usize, tag: &Tag) -> Generated {
    let sampling = Sampling { max_tokens: tokens, ..Sampling::default() };
    session.generate(&sampling, tag).await.unwrap().collect().await.unwrap()
}

/// prompt, cached, computed, generated, fed back.
fn counts(cost: Cost) -> [u64; 5] {
    [
        cost.prompt_tokens,
        cost.cached_tokens,
        cost.computed_tokens,
        cost.generated_tokens,
        cost.fed_back_tokens,
    ]
}

fn measured() -> EngineOptions {
    EngineOptions { measure_waste: true, prefill_rows: 7, ..EngineOptions::default() }
}

#[test]
fn a_dialogue_with_rewinds_computes_nothing_twice() {
    block_on(async {
        let fake = Fake::default();
        let record = fake.record.clone();
        let engine = fake.engine(measured());
        let mut session = engine.open(MODEL, None).await.unwrap();
        let ask = |turn| Tag::new("ralu", turn);
        session.append(&ids("abcdefghijklmnopqrst")).await.unwrap();
        let first = reply(&mut session, 10, &ask(1)).await;
        assert_eq!(counts(first.finish.cost), [20, 0, 20, 10, 9]);
        let mark = session.mark().await.unwrap();
        session.append(&ids("uvw")).await.unwrap();
        // The reply's last token is part of this prompt: its row is generated, not appended.
        let second = reply(&mut session, 5, &ask(2)).await;
        assert_eq!(counts(second.finish.cost), [33, 30, 3, 5, 5]);
        // Taken back, and asked in other words: nothing before the mark is computed again.
        assert_eq!(session.rewind(mark).await, Ok(8));
        session.append(&ids("xyz")).await.unwrap();
        let third = reply(&mut session, 1, &ask(3)).await;
        assert_eq!(counts(third.finish.cost), [33, 30, 3, 1, 0]);
        // Asked again from the same place: a logits row, and no forward pass for the prompt.
        let passes = record.lock().unwrap().passes.len();
        session.rewind(session.mark().await.unwrap()).await.unwrap();
        let mut fork = session.fork().await.unwrap();
        let scored = fork.score(&ids("a"), 0, &ask(4)).await.unwrap();
        assert_eq!(counts(scored.cost), [34, 34, 0, 0, 1], "the drawn token is fed back");
        let scored = fork.score(&ids("abc"), 0, &ask(4)).await.unwrap();
        assert_eq!(counts(scored.cost), [36, 34, 2, 0, 0]);
        assert_eq!(record.lock().unwrap().passes.len(), passes + 2);
        // What the fork computed, the session takes over.
        let fifth = reply(&mut session, 2, &ask(5)).await;
        assert_eq!(counts(fifth.finish.cost), [34, 34, 0, 2, 1]);

        let ledger = engine.ledger().await.unwrap();
        ledger.check().unwrap();
        let rows: Vec<(u32, u64, [u64; 5])> =
            ledger.rows.iter().map(|row| (row.tag.turn, row.calls, counts(row.cost))).collect();
        assert_eq!(
            rows,
            [
                (1, 1, [20, 0, 20, 10, 9]),
                (2, 1, [33, 30, 3, 5, 5]),
                (3, 1, [33, 30, 3, 1, 0]),
                (4, 2, [70, 68, 2, 0, 1]),
                (5, 1, [34, 34, 0, 2, 1]),
            ]
        );
        assert_eq!(ledger.sum(|row| row.tag.turn < 3).generated_tokens, 15);
        let waste = ledger.models[0].waste.unwrap();
        assert_eq!((waste.appended_rows, waste.ratio()), (28, Some(1.0)));
        assert_eq!(ledger.models[0].forwarded_rows, 28 + 16);
        assert_eq!(record.lock().unwrap().rows.len(), 44);
    });
}

/// The same dialogue without a cache between calls: the same tokens, and every prompt computed whole.
#[test]
fn without_a_cache_every_prompt_is_paid_again() {
    block_on(async {
        let mut replies = Vec::new();
        for keep_prefixes in [true, false] {
            let engine = Fake::default().engine(EngineOptions { keep_prefixes, ..measured() });
            let mut session = engine.open(MODEL, None).await.unwrap();
            session.append(&ids("abcdefghijklmnopqrst")).await.unwrap();
            let first = reply(&mut session, 10, &Tag::default()).await;
            assert_eq!(counts(first.finish.cost), [20, 0, 20, 10, 9]);
            session.append(&ids("uvw")).await.unwrap();
            let second = reply(&mut session, 5, &Tag::default()).await;
            // Of the first reply's ten rows nine were forwarded; the tenth is fed for the first time.
            let paid = if keep_prefixes { [33, 30, 3, 5, 5] } else { [33, 1, 32, 5, 5] };
            assert_eq!(counts(second.finish.cost), paid);
            let ledger = engine.ledger().await.unwrap();
            ledger.check().unwrap();
            let again = if keep_prefixes { 0 } else { 29 };
            assert_eq!(ledger.total().recomputed.evicted, again);
            assert_eq!(ledger.total().recomputed.total(), again);
            let said = |generated: &Generated| -> Vec<_> {
                generated
                    .tokens
                    .iter()
                    .map(|token| (token.id(), token.stats.logprob.to_bits()))
                    .collect()
            };
            replies.push([said(&first), said(&second)]);
        }
        assert_eq!(replies[0], replies[1]);
    });
}

#[test]
fn waste_is_seen_and_named() {
    block_on(async {
        let engine = Fake::default().engine(measured());
        for (times, appended, evicted) in [(1, 5, 0), (2, 5, 0), (3, 10, 5)] {
            if times == 3 {
                engine.clear_cache().await.unwrap();
            }
            let mut session = engine.open(MODEL, None).await.unwrap();
            session.append(&ids("hello")).await.unwrap();
            reply(&mut session, 3, &Tag::default()).await;
            drop(session);
            let ledger = engine.ledger().await.unwrap();
            let waste = ledger.models[0].waste.unwrap();
            assert_eq!((waste.appended_rows, waste.distinct_rows), (appended, 5), "{times}");
            assert_eq!(ledger.total().recomputed.evicted, evicted);
            assert_eq!(ledger.total().recomputed.total(), evicted);
        }
    });
}

#[test]
fn a_call_in_flight_is_in_the_ledger() {
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("hello")).await.unwrap();
        let sampling = Sampling { max_tokens: 400, ..Sampling::default() };
        let mut reply = session.generate(&sampling, &Tag::new("cot", 3)).await.unwrap();
        reply.next().await.unwrap().unwrap();
        let ledger = engine.ledger().await.unwrap();
        ledger.check().unwrap();
        assert_eq!((ledger.rows.len(), ledger.rows[0].calls), (1, 1));
        assert_eq!(ledger.rows[0].tag, Tag::new("cot", 3));
        assert!(ledger.rows[0].cost.generated_tokens >= 1);
        assert_eq!(ledger.models[0].waste, None, "measured only when asked for");
    });
}

#[test]
fn models_and_adapters_have_their_own_accounts() {
    block_on(async {
        let hosted =
            vec![Fake::default().hosted("small", vec![]), Fake::default().hosted("large", vec![])];
        let engine = unsay::engine::Engine::start(hosted, measured()).unwrap();
        for (model, adapter, prompt) in [
            ("small", None, "a"),
            ("small", Some(super::fake::ADAPTER), "bb"),
            ("large", None, "cccc"),
        ] {
            let mut session = engine.open(model, adapter).await.unwrap();
            session.append(&ids(prompt)).await.unwrap();
            reply(&mut session, 1, &Tag::new("direct", 1)).await;
        }
        let ledger = engine.ledger().await.unwrap();
        ledger.check().unwrap();
        let rows: Vec<(&str, Option<u32>, u64)> = ledger
            .rows
            .iter()
            .map(|row| (&*row.model, row.adapter.map(|a| a.0), row.cost.computed_tokens))
            .collect();
        assert_eq!(rows, [("small", None, 1), ("small", Some(5), 2), ("large", None, 4)]);
        assert_eq!(ledger.models.iter().map(|m| m.forwarded_rows).collect::<Vec<_>>(), [3, 4]);
    });
}
