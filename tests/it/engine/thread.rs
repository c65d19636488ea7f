//! The engine's thread: turns, panics, ends; callers on any runtime.

use std::sync::mpsc::channel;

use unsay::engine::{Engine, EngineError, EngineOptions, Sampling, Tag};
use unsay::text::TokenId;

use super::fake::{Fake, MODEL, block_on, ids};

fn tag() -> Tag {
    Tag::new("thread", 1)
}

fn stopped(error: EngineError) -> String {
    match error {
        EngineError::Stopped { what } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn a_panic_reaches_every_caller() {
    block_on(async {
        let (permit, gate) = channel();
        let fake = Fake { panic_on: Some(TokenId(7)), gate: Some(gate), ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let mut sessions = Vec::new();
        for prompt in ["abc", "def", "ghi"] {
            let mut session = engine.open(MODEL, None).await.unwrap();
            session.append(&ids(prompt)).await.unwrap();
            sessions.push(session);
        }
        let mut idle = engine.open(MODEL, None).await.unwrap();
        let [first, second, third] = &mut sessions[..] else { unreachable!() };
        // Two wait while the thread falls over the third one's prompt, one is in its queue.
        let first = first.generate(&Sampling::default(), &tag()).await.unwrap();
        let scored = ids("aa");
        let tag = tag();
        let second = second.score(&scored, 0, &tag);
        let sampling = Sampling::default();
        let third = third.generate(&sampling, &tag);
        let third = async {
            match third.await {
                Ok(reply) => reply.collect().await.map(|_| ()),
                Err(error) => Err(error),
            }
        };
        // The gate opens when all have been asked.
        let (first, second, third, ()) =
            tokio::join!(first.collect(), second, third, async { drop(permit) });
        for error in [first.unwrap_err(), second.unwrap_err(), third.unwrap_err()] {
            let what = stopped(error);
            assert!(what.contains("panicked") && what.contains("cannot stand"), "{what}");
        }
        // And those who come later.
        idle.append(&ids("a")).await.unwrap();
        let scored = idle.score(&ids("a"), 0, &tag).await;
        assert!(stopped(scored.unwrap_err()).contains("panicked"));
        let late = idle.generate(&Sampling::default(), &tag).await.unwrap().collect().await;
        assert!(stopped(late.unwrap_err()).contains("panicked"));
        assert!(stopped(idle.ids().await.unwrap_err()).contains("panicked"), "it went with it");
        assert!(engine.ledger().await.is_err());
        drop((idle, sessions));
    });
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    block_on(async {
        let (sender, gone) = channel();
        let fake = Fake { gone: Some(sender), ..Fake::default() };
        let engine = fake.engine(EngineOptions::default());
        let copy = engine.clone();
        let mut session = engine.open(MODEL, None).await.unwrap();
        drop(engine);
        drop(copy);
        // A session keeps it alive.
        session.append(&ids("abc")).await.unwrap();
        let fork = session.fork().await.unwrap();
        drop(session);
        assert_eq!(fork.len().await, Ok(3));
        assert_eq!(gone.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
        drop(fork);
        assert!(gone.recv().is_err(), "the decoder was dropped");
    });
}

#[test]
fn a_reply_dropped_with_the_last_handle_ends_the_thread() {
    block_on(async {
        let (sender, gone) = channel();
        let fake = Fake { gone: Some(sender), ..Fake::default() };
        let mut session = fake.engine(EngineOptions::default()).open(MODEL, None).await.unwrap();
        session.append(&ids("abc")).await.unwrap();
        let reply = session.generate(&Sampling::default(), &tag()).await.unwrap();
        drop(reply);
        drop(session);
        assert!(gone.recv().is_err());
    });
}

/// Short calls go on while a long prompt is read, one chunk between two of their tokens.
#[test]
fn a_long_prompt_keeps_nobody_waiting() {
    block_on(async {
        let (permit, gate) = channel();
        let (told, at_the_gate) = channel();
        let fake = Fake { gate: Some(gate), at_the_gate: Some(told), ..Fake::default() };
        let record = fake.record.clone();
        let engine = fake.engine(EngineOptions { prefill_rows: 100, ..EngineOptions::default() });
        let mut long = engine.open(MODEL, None).await.unwrap();
        let mut short = engine.open(MODEL, None).await.unwrap();
        long.append(&[TokenId(1); 450]).await.unwrap();
        short.append(&ids("abc")).await.unwrap();
        let sampling = Sampling { max_tokens: 3, ..Sampling::default() };
        let long = long.generate(&sampling, &tag()).await.unwrap();
        at_the_gate.recv().unwrap();
        // The second is asked for while the first one's chunk is being computed.
        let (tag, pass) = (tag(), &permit);
        let short = async {
            let asked = short.generate(&sampling, &tag);
            let released = async { (0..40).for_each(|_| pass.send(()).unwrap()) };
            tokio::join!(asked, released).0.unwrap().collect().await.unwrap()
        };
        let (long, short) = tokio::join!(long.collect(), short);
        assert_eq!((long.unwrap().tokens.len(), short.tokens.len()), (3, 3));
        let passes = record.lock().unwrap().passes.clone();
        assert_eq!(
            passes,
            [
                // The first chunk was on its way; then the short prompt takes its part of one.
                vec![(0, 100)],
                vec![(100, 97), (0, 3)],
                vec![(197, 100), (3, 1)],
                vec![(297, 100), (4, 1)],
                vec![(397, 53)],
                vec![(450, 1)],
                vec![(451, 1)],
            ]
        );
    });
}

#[test]
fn any_runtime_will_do() {
    async fn one_token(engine: Engine) -> Vec<TokenId> {
        let mut session = engine.open(MODEL, None).await.unwrap();
        session.append(&ids("hello")).await.unwrap();
        let sampling = Sampling { max_tokens: 5, ..Sampling::default() };
        session.generate(&sampling, &tag()).await.unwrap().collect().await.unwrap().ids()
    }
    let engine = Fake::default().engine(EngineOptions::default());
    let expected = block_on(one_token(engine.clone()));
    // Plain runtimes, without timers or input and output, of both flavours.
    let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(single.block_on(one_token(engine.clone())), expected);
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let spawned = several.spawn(one_token(engine.clone()));
    assert_eq!(several.block_on(spawned).unwrap(), expected);
    // And none: a waker that unparks this thread.
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = Box::pin(one_token(engine));
    let got = loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(got) => break got,
            std::task::Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!(got, expected);
}

/// Many sessions at once take nothing from each other, and a full house closes cleanly.
#[test]
fn two_hundred_sessions() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let fake = Fake { page_count: 1000, ..Fake::default() };
        let engine = Engine::start(vec![fake.hosted(MODEL, vec![])], EngineOptions::default());
        let engine = engine.unwrap();
        let callers: Vec<_> = (0..200u32)
            .map(|n| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut session = engine.open(MODEL, None).await.unwrap();
                    session.append(&[TokenId(n % 32), TokenId(n / 32)]).await.unwrap();
                    let sampling = Sampling { max_tokens: 20, ..Sampling::default() };
                    let reply = session.generate(&sampling, &tag()).await.unwrap();
                    reply.collect().await.unwrap().tokens.len()
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), 20);
        }
        let pages = engine.pages(MODEL).await.unwrap();
        assert_eq!(pages.free + pages.cached, 1000);
        engine.check().await.unwrap();
    });
}
