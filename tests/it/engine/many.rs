//! Many calls at once: one pass for all of them, memory that runs short, deadlines, damage beside
//! good calls, models that share their memory, the log.

use std::io::Write;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use unsay::device::PAGE_POSITIONS;
use unsay::engine::{
    Call, Cost, Engine, EngineError, EngineOptions, FinishReason, Generated, ReplayError, Sampling,
    Session, Tag, replay,
};
use unsay::text::TokenId;

use super::fake::{Fake, MODEL, block_on, ids};

fn tag() -> Tag {
    Tag::new("many", 1)
}

async fn session(engine: &Engine, model: &str, prompt: &[TokenId]) -> Session {
    let mut session = engine.open(model, None).await.unwrap();
    session.append(prompt).await.unwrap();
    session
}

fn tokens(count: usize) -> Sampling {
    Sampling { max_tokens: count, ..Sampling::default() }
}

async fn draw(session: &mut Session, count: usize) -> Generated {
    let reply = session.generate(&tokens(count), &tag()).await.unwrap();
    reply.collect().await.unwrap()
}

fn prompt(length: usize, step: usize) -> Vec<TokenId> {
    (0..length).map(|n| TokenId((n * step % 31) as u32)).collect()
}

/// Eight replies go through the decoder as eight rows of one pass.
#[test]
fn replies_share_their_passes() {
    block_on(async {
        // Nothing is forwarded before all have asked.
        let (permit, gate) = channel();
        let fake = Fake { gate: Some(gate), ..Fake::default() };
        let record = fake.record.clone();
        let engine = fake.engine(EngineOptions::default());
        let asked = session(&engine, MODEL, &prompt(40, 3)).await;
        let sampling = Sampling { temperature: 1.0, ..tokens(10) };
        let streams: Vec<u64> = (0..8).collect();
        let call = tag();
        let samples = asked.samples(&streams, &sampling, &call);
        let samples = tokio::join!(samples, async { drop(permit) }).0.unwrap();
        assert!(samples.iter().all(|sample| sample.tokens.len() == 10));
        let record = record.lock().unwrap();
        let passes: Vec<usize> =
            record.passes.iter().map(|runs| runs.iter().map(|run| run.1).sum()).collect();
        assert_eq!(passes[0], 40, "one prefill");
        // The first call had begun when the others came; the last token is not fed back.
        assert_eq!(passes[1..], [1, 8, 8, 8, 8, 8, 8, 8, 8, 7]);
        // Seven first tokens come from one hidden row: one product with the head for all of them.
        assert_eq!(record.logits_rows, 10 + 1 + 7 * 9);
        assert!(record.copied_pages <= 7, "the first to write needs no copy");
    });
    block_on(async {
        let engine = Fake::default().engine(EngineOptions::default());
        let asked = session(&engine, MODEL, &ids("abc")).await;
        let none = asked.samples(&[], &Sampling::default(), &tag()).await.unwrap_err();
        assert!(matches!(none, EngineError::BadSampling { option: "streams", .. }), "{none}");
    });
}

/// mistral.rs 167: out of memory while evictable cache was held.
#[test]
fn prefixes_in_nobodys_use_make_room() {
    block_on(async {
        let fake = Fake { page_count: 10, ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        for step in 1..20 {
            // Sessions stay open: what they computed is in nobody's use between calls.
            let mut asked = session(&engine, MODEL, &prompt(100, step)).await;
            assert_eq!(draw(&mut asked, 5).await.tokens.len(), 5);
            let pages = engine.pages(MODEL).await.unwrap();
            assert_eq!(pages.free + pages.cached, 10);
        }
        let total = engine.ledger().await.unwrap().total();
        assert_eq!(total.recomputed.total(), 0, "nothing was asked for again");
    });
}

/// Two replies that together outgrow the pool: the younger one waits and goes on where it was.
#[test]
fn the_youngest_gives_way_and_resumes() {
    block_on(async {
        let mut replies = Vec::new();
        for page_count in [256, 8] {
            // Nothing is forwarded before both have asked, so that they need their pages together.
            let (permit, gate) = channel();
            let fake = Fake { page_count, gate: Some(gate), ..Fake::default() };
            let engine = fake.engine(EngineOptions::default());
            let mut older = session(&engine, MODEL, &prompt(30, 3)).await;
            let mut younger = session(&engine, MODEL, &prompt(30, 5)).await;
            let sampling = Sampling { temperature: 0.9, ..tokens(60) };
            let (first, second) = (
                older.generate(&sampling, &tag()).await.unwrap(),
                younger.generate(&sampling, &tag()).await.unwrap(),
            );
            drop(permit);
            let (first, second) = tokio::join!(first.collect(), second.collect());
            replies.push([first.unwrap(), second.unwrap()]);
        }
        let [roomy, [first, second]] = &replies[..] else { unreachable!() };
        assert_eq!((&first.tokens, &second.tokens), (&roomy[0].tokens, &roomy[1].tokens));
        assert_eq!(first.finish.cost.recomputed.total(), 0, "the older one lost nothing");
        let Cost { recomputed, prompt_tokens, cached_tokens, computed_tokens, .. } =
            second.finish.cost;
        assert!(recomputed.preempted > 0 && recomputed.total() == recomputed.preempted);
        assert_eq!(prompt_tokens + recomputed.preempted, cached_tokens + computed_tokens);
        assert_eq!(prompt_tokens, 30);
    });
}

#[test]
fn a_deadline_cuts_a_reply_and_refuses_a_score() {
    block_on(async {
        let (permit, gate) = channel();
        let fake = Fake { gate: Some(gate), ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut asked = session(&engine, MODEL, &ids("abc")).await;
        let deadline = Some(Instant::now() + Duration::from_millis(30));
        let call = Call { tag: tag(), deadline };
        let mut reply = asked.generate(&tokens(400), call.clone()).await.unwrap();
        permit.send(()).unwrap();
        let first = reply.next().await.unwrap();
        assert!(first.is_ok());
        tokio::time::sleep(Duration::from_millis(40)).await;
        permit.send(()).unwrap();
        let rest = reply.collect().await.unwrap();
        assert_eq!(rest.finish.reason, FinishReason::Deadline);
        let kept = 1 + rest.tokens.len();
        assert!((1..=3).contains(&kept), "{kept}");
        assert_eq!(asked.len().await, Ok(3 + kept), "what was drawn stays");
        let late = asked.score(&ids("abc"), 0, call).await;
        assert_eq!(late, Err(EngineError::DeadlinePassed));
        drop(permit);
        assert_eq!(asked.score(&ids("abc"), 0, &tag()).await.unwrap().tokens.len(), 3);
    });
}

/// One call's damaged row is not the others'.
#[test]
fn damage_ends_one_call() {
    block_on(async {
        let fake = Fake { damaged: Some(TokenId(25)), ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let not_it = Sampling { bias: vec![(TokenId(25), -100.0)], ..tokens(20) };
        let mut good = session(&engine, MODEL, &prompt(20, 2)).await;
        let mut bad =
            session(&engine, MODEL, &[prompt(20, 2), ids("az"), ids("bc")].concat()).await;
        let (first, second) = (
            good.generate(&not_it, &tag()).await.unwrap(),
            bad.generate(&not_it, &tag()).await.unwrap(),
        );
        let (first, second) = tokio::join!(first.collect(), second.collect());
        assert_eq!(first.unwrap().tokens.len(), 20);
        let damaged = EngineError::DamagedRow { model: MODEL.into(), position: 21 };
        assert_eq!(second.unwrap_err(), damaged);
        // What is before it is kept, what is behind it is not.
        let error = bad.score(&ids("a"), 0, &tag()).await.unwrap_err();
        assert_eq!(error, damaged);
        let mark = bad.mark_at(21).await.unwrap();
        bad.rewind(mark).await.unwrap();
        let scored = bad.score(&ids("a"), 0, &tag()).await.unwrap();
        assert_eq!((scored.cost.cached_tokens, scored.cost.computed_tokens), (21, 0));
        engine.ledger().await.unwrap().check().unwrap();
    });
}

#[test]
fn ten_thousand_calls_at_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let fake =
            Fake { not_a_number_after: Some(TokenId(31)), page_count: 100, ..Fake::default() };
        let engine = Engine::start(vec![fake.hosted(MODEL, vec![])], EngineOptions::default());
        let engine = engine.unwrap();
        let callers: Vec<_> = (0..10_000u32)
            .map(|n| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    // Every hundredth is damaged.
                    let last = if n % 100 == 0 { 31 } else { n % 31 };
                    let prompt = [TokenId(n % 7), TokenId(n / 7 % 31), TokenId(last)];
                    let mut session = session(&engine, MODEL, &prompt).await;
                    let reply = session.generate(&tokens(1), &tag()).await.unwrap();
                    (n, reply.collect().await)
                })
            })
            .collect();
        for caller in callers {
            let (n, reply) = caller.await.unwrap();
            match reply {
                Ok(reply) => assert!(n % 100 != 0 && reply.tokens.len() == 1),
                Err(error) => {
                    assert!(n % 100 == 0, "{error}");
                    assert!(matches!(error, EngineError::NotFinite { position: 2, .. }), "{error}");
                }
            }
        }
        engine.check().await.unwrap();
        let waste = engine.ledger().await.unwrap();
        assert_eq!(waste.total().recomputed.preempted, 0);
    });
}

/// Memory moves between models, a page at a time, and never exceeds the sum.
#[test]
fn models_share_their_memory() {
    block_on(async {
        let hosted =
            vec![Fake::default().hosted("one", vec![]), Fake::default().hosted("two", vec![])];
        let page = PAGE_POSITIONS as u64 * 32;
        let options = EngineOptions {
            page_memory: Some(10 * page),
            check_every_step: true,
            ..EngineOptions::default()
        };
        let engine = Engine::start(hosted, options).unwrap();
        assert_eq!(engine.models()[0].page_bytes as u64, page);
        for step in 1..5 {
            for model in ["one", "two"] {
                let mut asked = session(&engine, model, &prompt(120, step)).await;
                assert_eq!(draw(&mut asked, 10).await.tokens.len(), 10);
            }
            let (one, two) =
                (engine.pages("one").await.unwrap(), engine.pages("two").await.unwrap());
            assert!(one.resident + two.resident <= 10);
            assert_eq!(two.resident, 9, "the second took it over");
        }
        // Both at once, more than fits: one gives way and both end.
        let mut one = session(&engine, "one", &prompt(70, 6)).await;
        let mut two = session(&engine, "two", &prompt(70, 6)).await;
        let (first, second) = tokio::join!(draw(&mut one, 40), draw(&mut two, 40));
        assert_eq!((first.tokens.len(), second.tokens.len()), (40, 40));
        assert_eq!(first.tokens, second.tokens, "they are the same model");
        // More than all of it is refused at once.
        let mut large = session(&engine, "one", &prompt(170, 3)).await;
        let error = large.generate(&tokens(1), &tag()).await.unwrap().collect().await.unwrap_err();
        assert!(matches!(error, EngineError::PagesExhausted { needed: 11, total: 10, .. }));
    });
    let hosted = vec![Fake::default().hosted("one", vec![])];
    let options = EngineOptions { page_memory: Some(100), ..EngineOptions::default() };
    let error = Engine::start(hosted, options).unwrap_err();
    assert!(error.to_string().contains("may take 100 bytes together, and one page"), "{error}");
}

/// Where hidden rows are not kept, a row is run again when its log-probabilities are wanted, and
/// that is counted.
#[test]
fn without_hidden_rows_the_last_position_is_run_again() {
    block_on(async {
        let fake = Fake { keeps_hidden: false, ..Fake::default() };
        let options = EngineOptions { measure_waste: true, ..EngineOptions::default() };
        let engine = fake.engine(options);
        let kept = Fake::default().engine(options);
        let mut drawn = Vec::new();
        for engine in [&engine, &kept] {
            let mut asked = session(engine, MODEL, &prompt(40, 3)).await;
            let mark = asked.mark().await.unwrap();
            let first = draw(&mut asked, 6).await;
            asked.rewind(mark).await.unwrap();
            let second = draw(&mut asked, 6).await;
            let scored = asked.statistics(1, 2, &tag()).await.unwrap();
            drawn.push((first.tokens, second.tokens, scored.tokens));
        }
        assert_eq!(drawn[0], drawn[1]);
        let total = engine.ledger().await.unwrap().total();
        // One row for the second draw, and 45 for the statistics (nothing follows the last id).
        assert_eq!(total.recomputed.hidden_not_kept, 1 + 45);
        assert_eq!(total.recomputed.total(), 46);
        assert_eq!(kept.ledger().await.unwrap().total().recomputed.total(), 0);
    });
}

struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 < bytes.len() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_and_says_so() {
    block_on(async {
        let hosted = vec![Fake::default().hosted(MODEL, vec![])];
        let engine =
            Engine::start_logged(hosted, EngineOptions::default(), Box::new(Full(1000))).unwrap();
        let mut asked = session(&engine, MODEL, &ids("abc")).await;
        assert_eq!(draw(&mut asked, 30).await.tokens.len(), 30);
        let ledger = engine.ledger().await.unwrap();
        assert!(ledger.log_error.unwrap().contains("no storage space"));
    });
}

#[test]
fn a_log_runs_again_only_as_it_was() {
    let hosted = || vec![Fake { page_count: 8, ..Fake::default() }.hosted(MODEL, vec![])];
    let path = tempfile::NamedTempFile::new().unwrap();
    block_on(async {
        let log = Box::new(path.reopen().unwrap());
        let engine = Engine::start_logged(hosted(), EngineOptions::default(), log).unwrap();
        let mut one = session(&engine, MODEL, &prompt(50, 3)).await;
        let mut two = session(&engine, MODEL, &prompt(50, 5)).await;
        tokio::join!(draw(&mut one, 30), draw(&mut two, 30));
        two.score(&ids("abc"), 1, &tag()).await.unwrap();
        engine.clear_cache().await.unwrap();
        engine.ledger().await.unwrap();
    });
    let log = std::fs::read_to_string(path.path()).unwrap();
    let replayed = replay(hosted(), log.as_bytes()).unwrap();
    assert_eq!((replayed.calls, replayed.rows_read), (3, 63));
    // Another result, another decision, another model, no log.
    let line = log.lines().find(|line| line.contains("\"read\"")).unwrap();
    let other = line.replace("\"id\":", "\"id\":1");
    let error = replay(hosted(), log.replacen(line, &other, 1).as_bytes()).unwrap_err();
    assert!(matches!(error, ReplayError::Differs { .. }), "{error}");
    let line = log.lines().find(|line| line.contains("\"forwarded\"")).unwrap();
    let error = replay(hosted(), log.replacen(&format!("{line}\n"), "", 1).as_bytes()).unwrap_err();
    assert!(matches!(error, ReplayError::Differs { .. }), "{error}");
    let roomy = vec![Fake::default().hosted(MODEL, vec![])];
    let error = replay(roomy, log.as_bytes()).unwrap_err();
    assert!(matches!(error, ReplayError::OtherModels { .. }), "{error}");
    for text in ["", "{}\n", "not a log", &log[log.find('\n').unwrap() + 1..]] {
        let error = replay(hosted(), text.as_bytes()).unwrap_err();
        assert!(matches!(error, ReplayError::Unreadable { line: 1, .. }), "{error}");
    }
}
