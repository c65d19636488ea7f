//! Log-probabilities that were missing, stale or changed with the cache; work done twice; draws
//! that changed with the neighbours. Each names the public issue where it was reported.

use unsay::engine::{Engine, EngineOptions, Sampling, Session, Tag, TokenStats};
use unsay::text::TokenId;

use crate::engine::fake::{Fake, MODEL, block_on, ids};

fn tag() -> Tag {
    Tag::new("regression", 1)
}

fn engine() -> Engine {
    Fake::default().engine(EngineOptions { prefill_rows: 16, ..EngineOptions::default() })
}

async fn session(engine: &Engine, prompt: &[TokenId]) -> Session {
    let mut session = engine.open(MODEL, None).await.unwrap();
    session.append(prompt).await.unwrap();
    session
}

async fn draw(session: &mut Session, sampling: &Sampling) -> Vec<TokenStats> {
    let reply = session.generate(sampling, &tag()).await.unwrap().collect().await.unwrap();
    reply.tokens.into_iter().map(|token| token.stats).collect()
}

fn prompt(length: u32) -> Vec<TokenId> {
    (0..length).map(|n| TokenId(n * n % 31)).collect()
}

/// vllm 3251, 8268, 5344: prompt log-probabilities with a warm prefix cache crashed, or skipped
/// the cache.
#[test]
fn log_probabilities_of_a_warm_prefix() {
    block_on(async {
        let engine = engine();
        let mut asked = session(&engine, &prompt(40)).await;
        let continuation = prompt(30);
        let cold = asked.score(&continuation, 3, &tag()).await.unwrap();
        assert_eq!((cold.cost.cached_tokens, cold.cost.computed_tokens), (0, 69));
        let warm = asked.score(&continuation, 3, &tag()).await.unwrap();
        assert_eq!(warm.tokens, cold.tokens);
        assert_eq!((warm.cost.cached_tokens, warm.cost.computed_tokens), (69, 0));
        // Warm to some position, and by a session that never saw the continuation.
        engine.clear_cache().await.unwrap();
        let mut other = session(&engine, &prompt(40)).await;
        draw(&mut other, &Sampling { max_tokens: 1, ..Sampling::default() }).await;
        let warm = asked.score(&continuation, 3, &tag()).await.unwrap();
        assert_eq!(warm.tokens, cold.tokens);
        assert_eq!((warm.cost.cached_tokens, warm.cost.computed_tokens), (40, 29));
        // Of ids that are in the session itself.
        asked.append(&continuation).await.unwrap();
        let own = asked.statistics(40, 3, &tag()).await.unwrap();
        assert_eq!(own.tokens, cold.tokens);
        assert_eq!((own.cost.cached_tokens, own.cost.computed_tokens), (69, 0));
        assert_eq!(asked.statistics(1, 3, &tag()).await.unwrap().tokens[39..], cold.tokens);
    });
}

/// vllm 42245: log-probabilities at cached positions were stale.
#[test]
fn log_probabilities_after_another_past() {
    block_on(async {
        let engine = engine();
        let mut asked = session(&engine, &prompt(20)).await;
        let mark = asked.mark().await.unwrap();
        for other in ["abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba"] {
            asked.append(&ids(other)).await.unwrap();
            draw(&mut asked, &Sampling { max_tokens: 3, ..Sampling::default() }).await;
            asked.rewind(mark).await.unwrap();
            // The same positions, after what was rewound: as if it had never been.
            let scored = asked.score(&ids("hello"), 2, &tag()).await.unwrap();
            let mut fresh = session(&self::engine(), &prompt(20)).await;
            let expected = fresh.score(&ids("hello"), 2, &tag()).await.unwrap();
            assert_eq!(scored.tokens, expected.tokens);
        }
    });
}

/// strands-sglang 34: the first uncached position had no log-probability.
#[test]
fn the_first_position_after_the_cache() {
    block_on(async {
        let fake = Fake::default();
        let record = fake.record.clone();
        let engine = fake.engine(EngineOptions::default());
        let mut asked = session(&engine, &prompt(32)).await;
        let first = asked.score(&ids("ab"), 0, &tag()).await.unwrap();
        let passes = record.lock().unwrap().passes.len();
        let again = asked.score(&ids("a"), 0, &tag()).await.unwrap();
        assert_eq!(again.tokens, first.tokens[..1]);
        assert_eq!(record.lock().unwrap().passes.len(), passes, "without a forward pass");
    });
}

/// llama.cpp 27174: a scoring request came back without log-probabilities, and the evaluation ran
/// on at chance level.
#[test]
fn all_values_or_an_error() {
    block_on(async {
        let engine = engine();
        for length in [1, 2, 31, 32, 33, 64, 65, 100] {
            let mut asked = session(&engine, &prompt(3)).await;
            let ids = prompt(length);
            let scored = asked.score(&ids, 0, &tag()).await.unwrap();
            let named: Vec<TokenId> = scored.tokens.iter().map(|token| token.id).collect();
            assert_eq!(named, ids);
        }
        let fake = Fake { not_a_number_after: Some(TokenId(31)), ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut asked = session(&engine, &prompt(3)).await;
        let late = [prompt(50), vec![TokenId(31), TokenId(0)]].concat();
        assert!(asked.score(&late, 0, &tag()).await.is_err(), "not the fifty that went well");
    });
}

/// mistral.rs 1876: log-probabilities were null.
#[test]
fn every_token_has_its_statistics() {
    block_on(async {
        let engine = engine();
        let mut asked = session(&engine, &prompt(5)).await;
        let sampling = Sampling {
            temperature: 1.0,
            top_k: 3,
            max_tokens: 40,
            top_logprobs: 5,
            ..Sampling::default()
        };
        for token in draw(&mut asked, &sampling).await {
            assert!(token.logprob < 0.0 && token.logprob.is_finite());
            assert!(token.entropy > 0.0 && token.entropy < 32f32.ln());
            assert_eq!(token.top.len(), 5);
            assert!(token.top.is_sorted_by(|a, b| a.1 >= b.1));
            let rank = token.top.iter().position(|&(id, _)| id == token.id).unwrap();
            assert!(rank < 3 && token.top[rank].1 == token.logprob);
        }
    });
}

/// vllm 39647, 10980: n samples of one prompt each prefilled it.
#[test]
fn many_samples_of_one_prompt() {
    block_on(async {
        let fake = Fake::default();
        let record = fake.record.clone();
        let engine = fake.engine(EngineOptions { prefill_rows: 16, ..EngineOptions::default() });
        // Forked before anything is computed, and drawn at the same time.
        let first = session(&engine, &prompt(100)).await;
        let mut samples = Vec::new();
        for _ in 0..8 {
            samples.push(first.fork().await.unwrap());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        let runtime = runtime.unwrap();
        let drawn: Vec<_> = samples
            .into_iter()
            .enumerate()
            .map(|(sample, mut session)| {
                runtime.spawn(async move {
                    let sampling = Sampling {
                        temperature: 1.0,
                        stream: sample as u64,
                        max_tokens: 1,
                        ..Sampling::default()
                    };
                    draw(&mut session, &sampling).await;
                    session
                })
            })
            .collect();
        let mut kept = Vec::new();
        for session in drawn {
            kept.push(session.await.unwrap());
        }
        assert_eq!(record.lock().unwrap().rows.len(), 100, "one prefill for eight samples");
        let cost = engine.ledger().await.unwrap().total();
        assert_eq!((cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens), (800, 700, 100));
        runtime.shutdown_background();
    });
}

/// sglang 16521: generated tokens could not be reused in the next turn.
#[test]
fn a_reply_is_part_of_the_next_prefix() {
    block_on(async {
        let engine = engine();
        let mut asked = session(&engine, &prompt(20)).await;
        draw(&mut asked, &Sampling { max_tokens: 12, ..Sampling::default() }).await;
        asked.append(&ids("next")).await.unwrap();
        let reply = asked.generate(&Sampling::default(), &tag()).await.unwrap();
        let cost = reply.collect().await.unwrap().finish.cost;
        assert_eq!((cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens), (36, 32, 4));
    });
}

/// prime-rl 1863: decoding and encoding again turned `[198, 198]` into `[271]`, so the history no
/// longer matched. Here "a", "b" beside the token "ab".
#[test]
fn generated_ids_are_kept() {
    block_on(async {
        let script = [ids("hello"), ids("abab"), vec![TokenId(29)]].concat();
        let engine = Fake::scripted(script.clone()).engine(EngineOptions::default());
        let mut asked = session(&engine, &ids("hello")).await;
        draw(&mut asked, &Sampling { max_tokens: 5, ..Sampling::default() }).await;
        assert_eq!(asked.ids().await.unwrap(), script);
    });
}

/// vllm 5898, 7779: temperature 0 gave other text in another batch size.
/// mistral.rs 1626: a request's seed was ignored.
#[test]
fn neighbours_change_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        for temperature in [0.0, 0.8] {
            let sampling =
                move |seed| Sampling { temperature, seed, max_tokens: 24, ..Sampling::default() };
            let mut alone = Vec::new();
            for n in 0..64 {
                let mut session = session(&engine(), &prompt(3 + n % 40)).await;
                alone.push(draw(&mut session, &sampling(u64::from(n / 2))).await);
            }
            let fake = Fake { page_count: 64 * 5, ..Fake::default() };
            let engine = fake.engine(EngineOptions::default());
            let together: Vec<_> = (0..64)
                .map(|n| {
                    let engine = engine.clone();
                    tokio::spawn(async move {
                        let mut session = session(&engine, &prompt(3 + n % 40)).await;
                        draw(&mut session, &sampling(u64::from(n / 2))).await
                    })
                })
                .collect();
            for (alone, together) in alone.iter().zip(together) {
                assert_eq!(&together.await.unwrap(), alone);
            }
        }
    });
}
