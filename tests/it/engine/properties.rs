//! Random programs over several sessions, on tiny pools: every answer equals, bit for bit, that
//! of a fresh engine which gets the whole sequence at once. That is append∘rewind = identity,
//! fork = fresh, chunked = whole, interleaved = alone and score = what was drawn, in one.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use unsay::engine::{
    Cost, Engine, EngineError, EngineOptions, Finish, FinishReason, Generated, GenerationEvent,
    Mark, Sampling, Session, Tag, TokenStats,
};
use unsay::model::AdapterId;
use unsay::text::TokenId;

use super::fake::{ADAPTER, Fake, MODEL, Record, VOCAB, block_on};

const CONTEXT: usize = 150;

/// One operation; sessions and marks are chosen modulo how many there are.
#[derive(Clone, Debug)]
enum Operation {
    Append(usize, Vec<u32>),
    /// Appends again what some session holds from there on: ids that had been generated, too.
    AppendFrom(usize, usize, usize),
    Generate(usize, Box<Sampling>),
    /// Takes so many tokens and drops the reply.
    GiveUp(usize, Box<Sampling>, usize),
    Score(usize, Vec<u32>, usize),
    Mark(usize),
    Rewind(usize, usize),
    Fork(usize),
    Open(bool),
    Close(usize),
}

fn sampling(first_id: u32) -> impl Strategy<Value = Box<Sampling>> {
    let stop_strings = prop_oneof![
        4 => Just(vec![]),
        2 => proptest::collection::vec("[a-eu-z€]{1,3}", 1..3),
    ];
    let penalty = prop_oneof![3 => Just(0f32), 1 => -1f32..1.0];
    (
        prop_oneof![Just(0f32), Just(0.7), Just(1.3)],
        prop_oneof![Just(0usize), 1usize..10],
        prop_oneof![Just(1f32), Just(0.9)],
        prop_oneof![Just(0f32), Just(0.05)],
        (penalty.clone(), penalty, prop_oneof![Just(1f32), Just(1.3)]),
        (proptest::collection::vec(0..VOCAB as u32, 0..2), stop_strings),
        (1usize..40, 0usize..4),
        (0u64..3, 0u64..3),
    )
        .prop_map(
            move |(temperature, top_k, top_p, min_p, penalties, stops, (max_tokens, top), key)| {
                Box::new(Sampling {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    presence_penalty: penalties.0,
                    frequency_penalty: penalties.1,
                    repetition_penalty: penalties.2,
                    bias: (0..first_id).map(|id| (TokenId(id), -1000.0)).collect(),
                    stop_ids: stops.0.into_iter().map(TokenId).collect(),
                    stop_strings: stops.1,
                    max_tokens,
                    seed: key.0,
                    stream: key.1,
                    top_logprobs: top,
                })
            },
        )
}

/// Programs that append ids below `appended` and generate ids from `generated` on.
fn program(appended: u32, generated: u32, length: usize) -> impl Strategy<Value = Vec<Operation>> {
    let which = 0usize..100;
    let ids = || proptest::collection::vec(0..appended, 1..50);
    let operation = prop_oneof![
        4 => (which.clone(), ids()).prop_map(|(s, ids)| Operation::Append(s, ids)),
        1 => (which.clone(), which.clone(), which.clone())
            .prop_map(|(s, from, at)| Operation::AppendFrom(s, from, at)),
        4 => (which.clone(), sampling(generated)).prop_map(|(s, how)| Operation::Generate(s, how)),
        1 => (which.clone(), sampling(generated), 0usize..5)
            .prop_map(|(s, how, taken)| Operation::GiveUp(s, how, taken)),
        2 => (which.clone(), ids(), 0usize..3)
            .prop_map(|(s, ids, top)| Operation::Score(s, ids, top)),
        2 => which.clone().prop_map(Operation::Mark),
        2 => (which.clone(), which.clone()).prop_map(|(s, mark)| Operation::Rewind(s, mark)),
        2 => which.clone().prop_map(Operation::Fork),
        1 => prop_oneof![4 => Just(false), 1 => Just(true)].prop_map(Operation::Open),
        1 => which.prop_map(Operation::Close),
    ];
    proptest::collection::vec(operation, 1..length)
}

/// A session beside what it must hold.
struct Twin {
    session: Session,
    ids: Vec<TokenId>,
    adapter: Option<AdapterId>,
    marks: Vec<(Mark, Vec<TokenId>)>,
}

/// Several sessions of one engine.
struct Run {
    engine: Engine,
    twins: Vec<Twin>,
    seen: Cost,
}

fn tag() -> Tag {
    Tag::new("property", 1)
}

/// A fresh engine with room for everything, and the sequence appended at once.
async fn fresh(ids: &[TokenId], adapter: Option<AdapterId>) -> Session {
    let fake = Fake { context_length: CONTEXT, ..Fake::default() };
    let engine = fake.engine(EngineOptions {
        prefill_rows: 10_000,
        step_rows: 10_000,
        ..EngineOptions::default()
    });
    let mut session = engine.open(MODEL, adapter).await.unwrap();
    session.append(ids).await.unwrap();
    session
}

fn as_ids(numbers: &[u32]) -> Vec<TokenId> {
    numbers.iter().copied().map(TokenId).collect()
}

/// The reply without what may differ between engines.
fn bare(reply: &Generated) -> Generated {
    let finish = Finish { cost: Cost::default(), ..reply.finish.clone() };
    Generated { finish, ..reply.clone() }
}

impl Run {
    async fn start(engine: Engine) -> Self {
        let mut run = Self { engine, twins: Vec::new(), seen: Cost::default() };
        run.open(None).await;
        run
    }

    async fn open(&mut self, adapter: Option<AdapterId>) {
        let session = self.engine.open(MODEL, adapter).await.unwrap();
        self.twins.push(Twin { session, ids: Vec::new(), adapter, marks: Vec::new() });
    }

    async fn perform(&mut self, operation: &Operation) {
        let count = self.twins.len();
        match operation {
            Operation::Open(adapted) => self.open(adapted.then_some(ADAPTER)).await,
            Operation::Append(s, ids) => self.append(s % count, as_ids(ids)).await,
            Operation::AppendFrom(s, from, at) => {
                let source = &self.twins[from % count].ids;
                let ids = source[at % (source.len() + 1)..].to_vec();
                self.append(s % count, ids).await;
            }
            Operation::Generate(s, how) => self.generate(s % count, how, usize::MAX).await,
            Operation::GiveUp(s, how, taken) => self.generate(s % count, how, *taken).await,
            Operation::Score(s, ids, top) => self.score(s % count, &as_ids(ids), *top).await,
            Operation::Mark(s) => {
                let twin = &mut self.twins[s % count];
                let mark = twin.session.mark().await.unwrap();
                twin.marks.push((mark, twin.ids.clone()));
            }
            Operation::Rewind(s, mark) => self.rewind(s % count, *mark).await,
            Operation::Fork(s) => {
                let twin = &self.twins[s % count];
                let session = twin.session.fork().await.unwrap();
                let (ids, marks) = (twin.ids.clone(), twin.marks.clone());
                let adapter = twin.adapter;
                self.twins.push(Twin { session, ids, adapter, marks });
            }
            Operation::Close(s) if count > 1 => drop(self.twins.swap_remove(s % count)),
            Operation::Close(_) => {}
        }
    }

    async fn append(&mut self, s: usize, ids: Vec<TokenId>) {
        let twin = &mut self.twins[s];
        let appended = twin.session.append(&ids).await;
        let needed = twin.ids.len() + ids.len();
        if needed <= CONTEXT {
            appended.unwrap();
            twin.ids.extend(ids);
        } else {
            let model = MODEL.to_owned();
            let limit = CONTEXT;
            assert_eq!(appended, Err(EngineError::ContextOverflow { model, needed, limit }));
        }
        assert_eq!(twin.session.len().await, Ok(twin.ids.len()));
    }

    async fn rewind(&mut self, s: usize, mark: usize) {
        let twin = &mut self.twins[s];
        if twin.marks.is_empty() {
            return;
        }
        let (mark, ids) = twin.marks[mark % twin.marks.len()].clone();
        let dropped = twin.session.rewind(mark).await;
        if twin.ids.starts_with(&ids) && dropped.is_ok() {
            assert_eq!(dropped, Ok(twin.ids.len() - ids.len()));
            twin.ids = ids;
        } else {
            // Stale: what was there was rewound past. (The same ids may stand there again.)
            assert_eq!(dropped, Err(EngineError::StaleMark { position: ids.len() }));
        }
        assert_eq!(twin.session.ids().await.unwrap(), twin.ids);
    }

    /// Generates, taking at most `taken` tokens.
    async fn generate(&mut self, s: usize, how: &Sampling, taken: usize) {
        let twin = &mut self.twins[s];
        let mut alone = fresh(&twin.ids, twin.adapter).await;
        let expected = match alone.generate(how, &tag()).await {
            Ok(reply) => reply.collect().await.unwrap(),
            Err(refusal) => {
                assert_eq!(twin.session.generate(how, &tag()).await.err(), Some(refusal));
                return;
            }
        };
        let mut tokens = Vec::new();
        let mut reply = twin.session.generate(how, &tag()).await.unwrap();
        let mut end = None;
        while end.is_none() && tokens.len() < taken {
            match reply.next().await.unwrap() {
                Ok(GenerationEvent::Token(token)) => tokens.push(token),
                Ok(GenerationEvent::Finish(finish)) => end = Some(Ok(finish)),
                Err(error) => end = Some(Err(error)),
            }
        }
        drop(reply);
        assert_eq!(tokens, expected.tokens[..tokens.len()]);
        twin.ids.extend(tokens.iter().map(|token| token.id()));
        match end {
            Some(Ok(finish)) => {
                check_cost(&finish, tokens.len());
                self.seen += finish.cost;
                assert_eq!(bare(&Generated { tokens, finish }), bare(&expected));
                assert_eq!(alone.ids().await.unwrap(), twin.ids);
            }
            Some(Err(EngineError::PagesExhausted { needed, free, .. })) => assert!(needed > free),
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
        assert_eq!(twin.session.ids().await.unwrap(), twin.ids);
    }

    async fn score(&mut self, s: usize, ids: &[TokenId], top: usize) {
        let twin = &mut self.twins[s];
        let mut alone = fresh(&twin.ids, twin.adapter).await;
        let expected = alone.score(ids, top, &tag()).await;
        match twin.session.score(ids, top, &tag()).await {
            Ok(scored) => {
                assert_eq!(scored.tokens, expected.unwrap().tokens);
                assert_eq!(scored.cost.prompt_tokens as usize, twin.ids.len() + ids.len() - 1);
            }
            Err(EngineError::PagesExhausted { needed, free, .. }) => assert!(needed > free),
            Err(error) => assert_eq!(Err(error), expected),
        }
        assert_eq!(twin.session.ids().await.unwrap(), twin.ids);
    }

    /// What was drawn, scored as a continuation of what it was drawn from.
    async fn score_a_reply(&mut self, s: usize, how: &Sampling) {
        let twin = &mut self.twins[s];
        let fork = twin.session.fork().await.unwrap();
        let Ok(reply) = twin.session.generate(how, &tag()).await else { return };
        let Ok(reply) = reply.collect().await else { return };
        twin.ids.extend(reply.ids());
        let drawn: Vec<&TokenStats> = reply.tokens.iter().map(|token| &token.stats).collect();
        // Once on a live fork, once by a session that knows nothing of the reply.
        let mut alone = fresh(&fork.ids().await.unwrap(), twin.adapter).await;
        for mut session in [fork, {
            alone.append(&[]).await.unwrap();
            alone
        }] {
            if let Ok(scored) = session.score(&reply.ids(), how.top_logprobs, &tag()).await {
                assert_eq!(scored.tokens.iter().collect::<Vec<_>>(), drawn);
            }
        }
    }
}

fn check_cost(finish: &Finish, kept: usize) {
    let cost = finish.cost;
    assert_eq!(cost.prompt_tokens, cost.cached_tokens + cost.computed_tokens);
    assert_eq!(cost.generated_tokens as usize, kept + finish.cut.len());
    assert_eq!(finish.cut.is_empty(), finish.stop.is_none());
    assert_ne!(finish.reason, FinishReason::Cancelled);
}

fn engine(pages: usize, chunk: usize, measure_waste: bool) -> (Engine, Arc<Mutex<Record>>) {
    let fake = Fake { context_length: CONTEXT, page_count: pages, ..Fake::default() };
    let record = fake.record.clone();
    let options = EngineOptions { prefill_rows: chunk, measure_waste, ..EngineOptions::default() };
    (fake.engine(options), record)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn programs_answer_as_a_fresh_engine_does(
        operations in program(VOCAB as u32, 0, 30),
        last in sampling(0),
        pages in 10usize..60,
        chunk in 1usize..40,
    ) {
        block_on(async {
            let (engine, _) = engine(pages, chunk, true);
            let mut run = Run::start(engine.clone()).await;
            for operation in &operations {
                run.perform(operation).await;
            }
            run.score_a_reply(0, &last).await;
            engine.check().await.unwrap();
            drop(run);
            let left = engine.pages(MODEL).await.unwrap();
            assert_eq!(left.free + left.cached, pages, "pages are left behind");
            engine.check().await.unwrap();
        });
    }

    /// Appended ids are below 16 and generated ones are not, so the decoder's own record tells
    /// which row is which, and how many distinct prefixes there were.
    #[test]
    fn the_ledger_agrees_with_the_decoder(
        operations in program(16, 16, 30),
        pages in 10usize..60,
        chunk in 1usize..40,
    ) {
        block_on(async {
            let (engine, record) = engine(pages, chunk, true);
            let mut run = Run::start(engine.clone()).await;
            for operation in &operations {
                if !matches!(operation, Operation::AppendFrom(..)) {
                    run.perform(operation).await;
                }
            }
            // Everything that a dropped reply still did is done when this is answered.
            drop(run);
            let ledger = engine.ledger().await.unwrap();
            ledger.check().unwrap();
            let record = record.lock().unwrap();
            let (appended, generated): (Vec<_>, Vec<_>) =
                record.rows.iter().partition(|(token, _)| token.0 < 16);
            let distinct: std::collections::HashSet<u64> =
                appended.iter().map(|&(_, prefix)| prefix).collect();
            let total = ledger.total();
            // Rows of generated ids that were lost and computed again.
            let again = generated.len() - total.fed_back_tokens as usize;
            assert_eq!(total.computed_tokens as usize, appended.len() + again);
            let recomputed = appended.len() - distinct.len() + again;
            assert_eq!(total.recomputed.total() as usize, recomputed, "{:?}", total.recomputed);
            let counts = &ledger.models[0];
            assert_eq!(counts.forwarded_rows as usize, record.rows.len());
            let waste = counts.waste.unwrap();
            assert_eq!(waste.appended_rows as usize, appended.len() + again);
            assert_eq!(waste.distinct_rows as usize, distinct.len());
        });
    }

    /// Several callers at once, each with a program of its own.
    #[test]
    fn callers_do_not_touch_each_other(
        programs in proptest::collection::vec(program(VOCAB as u32, 0, 12), 2..5),
        pages in 40usize..100,
        chunk in 1usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let (engine, _) = engine(pages, chunk, false);
            let callers: Vec<_> = programs
                .into_iter()
                .map(|operations| {
                    let engine = engine.clone();
                    tokio::spawn(async move {
                        let mut run = Run::start(engine).await;
                        for operation in &operations {
                            run.perform(operation).await;
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
            let left = engine.pages(MODEL).await.unwrap();
            assert_eq!(left.free + left.cached, pages);
            engine.check().await.unwrap();
        });
    }
}
