//! The invariance property: whatever runs beside a call, it answers bit for bit as alone.
//!
//! A schedule is random: up to 64 sequences, with beginnings in common or not, that append, draw,
//! sample, score, rewind, fork, cancel and give up at any time, on engines with random chunks,
//! widths and threads, whose pools are often so small that prefixes are given up and calls preempted.
//! Afterwards each call is made again alone, on an engine with room for everything and an empty
//! cache, and ids and statistics must be equal to the bit.
//!
//! `UNSAY_SCHEDULES` sets how many schedules run (200), `UNSAY_FIRST_SCHEDULE` the first one's number;
//! a failure names its number, and writes the engine's log where it can be run again.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unsay::device::cpu::{Cpu, Tier};
use unsay::device::{KvType, PAGE_POSITIONS};
use unsay::engine::{
    Call, Engine, EngineError, EngineOptions, Finish, FinishReason, GeneratedToken,
    GenerationEvent, Hosted, Mark, Sampling, Session, Tag, TokenStats, replay,
};
use unsay::model::{AdapterId, LoadOptions, Transformer};
use unsay::store::{AdapterFiles, ModelFiles, WeightType};
use unsay::text::TokenId;

use super::fake::{self, ADAPTER, Fake, block_on};
use crate::model::lora::{Lora, modules_of};
use crate::model::tiny::{Numbers, Tiny};

const CONTEXT: usize = 150;
const MODEL: &str = "subject";

/// What is hosted, so that it can be hosted again.
#[derive(Clone)]
enum Subject {
    /// Hashes in place of arithmetic; hidden rows kept or not.
    Fake { keeps_hidden: bool },
    /// A small random model, with keys and values in some type.
    Real { files: Box<ModelFiles>, adapters: Vec<AdapterFiles>, kv: KvType, keep_hidden: bool },
}

/// How it is hosted.
#[derive(Clone, Copy, Debug)]
struct Setting {
    pages: usize,
    threads: usize,
    tier: Tier,
    options: EngineOptions,
}

impl Subject {
    fn host(&self, setting: &Setting) -> Hosted {
        match self {
            Self::Fake { keeps_hidden } => {
                let fake = Fake {
                    context_length: CONTEXT,
                    page_count: setting.pages,
                    keeps_hidden: *keeps_hidden,
                    ..Fake::default()
                };
                fake.hosted(MODEL, Vec::new())
            }
            Self::Real { files, adapters, kv, keep_hidden } => {
                let cpu = Cpu::with_tier(setting.threads, setting.tier).unwrap();
                let options = LoadOptions {
                    threads: setting.threads,
                    kv: *kv,
                    pages: setting.pages,
                    context: Some(CONTEXT),
                    keep_hidden: *keep_hidden,
                    adapters: adapters.clone(),
                    ..LoadOptions::default()
                };
                let decoder = Transformer::load_with(cpu, files, &options).unwrap();
                Hosted {
                    name: MODEL.to_owned(),
                    decoder: Box::new(decoder),
                    tokens: Arc::new(fake::token_bytes),
                    stop_ids: Vec::new(),
                    adapters: self.adapters(),
                }
            }
        }
    }

    fn adapters(&self) -> Vec<AdapterId> {
        match self {
            Self::Fake { .. } => vec![ADAPTER],
            Self::Real { adapters, .. } => (0..adapters.len() as u32).map(AdapterId).collect(),
        }
    }

    /// Room for everything, one thread, and every chunk whole.
    fn alone(&self) -> Engine {
        let options =
            EngineOptions { prefill_rows: 1000, step_rows: 1000, ..EngineOptions::default() };
        let setting = Setting { pages: 64, threads: 1, tier: Tier::detect(), options };
        Engine::start(vec![self.host(&setting)], options).unwrap()
    }
}

/// Ids that a call had before it, and what it answered.
struct Answered {
    adapter: Option<AdapterId>,
    ids: Vec<TokenId>,
    what: Answer,
}

enum Answer {
    Reply {
        sampling: Box<Sampling>,
        tokens: Vec<GeneratedToken>,
        /// None where the caller gave up, or a deadline or want of pages cut it.
        end: Option<Finish>,
    },
    Score {
        scored: Vec<TokenId>,
        top: usize,
        tokens: Vec<TokenStats>,
    },
}

type Answers = Arc<Mutex<Vec<Answered>>>;

/// A caller with sessions of its own.
struct Caller {
    engine: Engine,
    numbers: Numbers,
    stems: Arc<Vec<Vec<TokenId>>>,
    pages: usize,
    adapters: Vec<AdapterId>,
    sessions: Vec<Held>,
    answers: Answers,
}

struct Held {
    session: Session,
    adapter: Option<AdapterId>,
    ids: Vec<TokenId>,
    marks: Vec<(Mark, usize)>,
}

fn tag() -> Tag {
    Tag::new("invariance", 1)
}

impl Caller {
    async fn run(mut self, operations: usize) {
        self.open().await;
        for _ in 0..operations {
            for _ in 0..self.numbers.below(4) {
                tokio::task::yield_now().await;
            }
            let at = self.numbers.below(self.sessions.len());
            match self.numbers.below(20) {
                0..3 => self.append(at).await,
                3..10 => self.reply(at).await,
                10 => self.samples(at).await,
                11..14 => self.score(at).await,
                14 => self.mark(at).await,
                15 | 16 => self.rewind(at).await,
                17 => self.fork(at).await,
                18 => self.open().await,
                _ if self.sessions.len() > 1 => drop(self.sessions.swap_remove(at)),
                _ => {}
            }
            if let Some(held) = self.sessions.get(at) {
                assert_eq!(held.session.ids().await.unwrap(), held.ids);
            }
        }
    }

    async fn open(&mut self) {
        let adapted = !self.adapters.is_empty() && self.numbers.below(4) == 0;
        let adapter = adapted.then(|| self.adapters[self.sessions.len() % self.adapters.len()]);
        let session = self.engine.open(MODEL, adapter).await.unwrap();
        self.sessions.push(Held { session, adapter, ids: Vec::new(), marks: Vec::new() });
        self.append(self.sessions.len() - 1).await;
    }

    /// A stem that others have too, or part of one, and sometimes ids of its own.
    fn words(&mut self) -> Vec<TokenId> {
        let stem = &self.stems[self.numbers.below(self.stems.len())];
        let mut ids = stem[..1 + self.numbers.below(stem.len())].to_vec();
        if self.numbers.below(2) == 0 {
            let own = 1 + self.numbers.below(9);
            ids.extend(self.numbers.ids(own, fake::VOCAB).into_iter().map(TokenId));
        }
        ids
    }

    async fn append(&mut self, at: usize) {
        let words = self.words();
        let held = &mut self.sessions[at];
        if held.ids.len() + words.len() < CONTEXT {
            held.session.append(&words).await.unwrap();
            held.ids.extend(words);
        }
    }

    fn sampling(&mut self) -> Sampling {
        let numbers = &mut self.numbers;
        let stop_strings = match numbers.below(4) {
            0 => vec!["ab".to_owned(), "x".to_owned()],
            1 => vec!["q€".to_owned()],
            _ => Vec::new(),
        };
        Sampling {
            temperature: [0.0, 0.7, 1.2][numbers.below(3)],
            top_k: [0, 0, 5][numbers.below(3)],
            top_p: [1.0, 0.9][numbers.below(2)],
            frequency_penalty: [0.0, 0.3][numbers.below(2)],
            stop_strings,
            max_tokens: 1 + numbers.below(30),
            seed: numbers.below(2) as u64,
            stream: numbers.below(3) as u64,
            top_logprobs: numbers.below(3),
            ..Sampling::default()
        }
    }

    async fn reply(&mut self, at: usize) {
        let sampling = self.sampling();
        let taken = if self.numbers.below(5) == 0 { self.numbers.below(6) } else { usize::MAX };
        let mut call = Call::from(tag());
        if self.numbers.below(12) == 0 {
            let time = Duration::from_micros(200 * self.numbers.below(20) as u64);
            call.deadline = Some(Instant::now() + time);
        }
        let gives_up = self.numbers.below(2) == 0;
        let held = &mut self.sessions[at];
        let before = held.ids.clone();
        let mut reply = match held.session.generate(&sampling, call).await {
            Ok(reply) => reply,
            Err(EngineError::ContextOverflow { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let (mut tokens, mut end) = (Vec::new(), None);
        while tokens.len() < taken {
            match reply.next().await.unwrap() {
                Ok(GenerationEvent::Token(token)) => tokens.push(token),
                Ok(GenerationEvent::Finish(finish)) => {
                    end = (finish.reason != FinishReason::Deadline).then_some(finish);
                    break;
                }
                Err(error) => {
                    let length = before.len() + tokens.len();
                    assert_out_of_pages(&error, length, self.pages);
                    break;
                }
            }
        }
        if tokens.len() == taken && end.is_none() && !gives_up {
            match reply.cancel().await {
                Ok(finish) => assert!(finish.cost.generated_tokens >= tokens.len() as u64),
                // It went on meanwhile, until there was no page.
                Err(error) => {
                    let most = before.len() + sampling.max_tokens;
                    assert_out_of_pages(&error, most, self.pages);
                }
            }
        } else {
            drop(reply);
        }
        held.ids.extend(tokens.iter().map(GeneratedToken::id));
        let what = Answer::Reply { sampling: Box::new(sampling), tokens, end };
        let adapter = held.adapter;
        self.answers.lock().unwrap().push(Answered { adapter, ids: before, what });
    }

    async fn samples(&mut self, at: usize) {
        let sampling = self.sampling();
        let held = &self.sessions[at];
        let samples = match held.session.samples(&[7, 8, 9], &sampling, &tag()).await {
            Ok(samples) => samples,
            Err(EngineError::ContextOverflow { .. }) => return,
            Err(error) => {
                let most = held.ids.len() + sampling.max_tokens;
                return assert_out_of_pages(&error, most, self.pages);
            }
        };
        for (stream, sample) in [7, 8, 9].into_iter().zip(samples) {
            let sampling = Box::new(Sampling { stream, ..sampling.clone() });
            let what = Answer::Reply { sampling, tokens: sample.tokens, end: Some(sample.finish) };
            let (adapter, ids) = (held.adapter, held.ids.clone());
            self.answers.lock().unwrap().push(Answered { adapter, ids, what });
        }
    }

    async fn score(&mut self, at: usize) {
        let (words, top) = (self.words(), self.numbers.below(3));
        let own = self.numbers.below(2) == 0;
        let held = &mut self.sessions[at];
        let (ids, scored, result) = if own && held.ids.len() > 1 {
            let from = 1 + self.numbers.below(held.ids.len() - 1);
            let (ids, scored) = held.ids.split_at(from);
            let result = held.session.statistics(from, top, &tag()).await;
            (ids.to_vec(), scored.to_vec(), result)
        } else {
            let result = held.session.score(&words, top, &tag()).await;
            (held.ids.clone(), words, result)
        };
        match result {
            Ok(result) => {
                let what = Answer::Score { scored, top, tokens: result.tokens };
                let adapter = held.adapter;
                self.answers.lock().unwrap().push(Answered { adapter, ids, what });
            }
            Err(EngineError::ContextOverflow { .. }) => {}
            Err(error) => assert_out_of_pages(&error, ids.len() + scored.len() - 1, self.pages),
        }
    }

    async fn mark(&mut self, at: usize) {
        let held = &mut self.sessions[at];
        held.marks.push((held.session.mark().await.unwrap(), held.ids.len()));
    }

    async fn rewind(&mut self, at: usize) {
        let held = &mut self.sessions[at];
        let mark = match held.marks.pop() {
            Some((mark, length)) if length <= held.ids.len() => mark,
            _ => {
                let position = 1 + self.numbers.below(held.ids.len().max(2) - 1);
                held.session.mark_at(position.min(held.ids.len())).await.unwrap()
            }
        };
        match held.session.rewind(mark).await {
            Ok(dropped) => held.ids.truncate(held.ids.len() - dropped),
            Err(error) => assert!(matches!(error, EngineError::StaleMark { .. }), "{error}"),
        }
    }

    async fn fork(&mut self, at: usize) {
        let held = &self.sessions[at];
        let session = held.session.fork().await.unwrap();
        let (adapter, ids, marks) = (held.adapter, held.ids.clone(), held.marks.clone());
        self.sessions.push(Held { session, adapter, ids, marks });
    }
}

/// A call fails for want of pages only when it alone needs more than there are.
fn assert_out_of_pages(error: &EngineError, length: usize, pages: usize) {
    assert!(matches!(error, EngineError::PagesExhausted { .. }), "{error}");
    assert!(length.div_ceil(PAGE_POSITIONS) > pages, "{length} ids on {pages} pages: {error}");
}

/// Makes a call alone and compares.
async fn assert_as_alone(alone: &Engine, answered: &Answered) {
    alone.clear_cache().await.unwrap();
    let mut session = alone.open(MODEL, answered.adapter).await.unwrap();
    session.append(&answered.ids).await.unwrap();
    match &answered.what {
        Answer::Score { scored, top, tokens } => {
            let expected = session.score(scored, *top, &tag()).await.unwrap();
            assert_eq!(*tokens, expected.tokens);
        }
        Answer::Reply { sampling, tokens, end } => {
            let reply = session.generate(sampling, &tag()).await.unwrap();
            let expected = reply.collect().await.unwrap();
            match end {
                // A deadline ends it in the middle of what, alone, grew into a stop string.
                None => {
                    let all = [&expected.tokens[..], &expected.finish.cut].concat();
                    assert_eq!(*tokens, all[..tokens.len()]);
                }
                Some(finish) => {
                    assert_eq!(*tokens, expected.tokens);
                    let bare =
                        |finish: &Finish| Finish { cost: Default::default(), ..finish.clone() };
                    assert_eq!(bare(finish), bare(&expected.finish));
                }
            }
        }
    }
}

/// A log in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a schedule met with.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    calls: usize,
    evicted: u64,
    preempted: u64,
    rows: u64,
}

/// A number below one of the ends.
fn up_to(numbers: &mut Numbers, ends: &[usize]) -> usize {
    let end = ends[numbers.below(ends.len())];
    numbers.below(end)
}

fn setting(numbers: &mut Numbers, real: bool) -> Setting {
    let prefill_rows = 1 + up_to(numbers, &[8, 64]);
    let options = EngineOptions {
        step_rows: prefill_rows + numbers.below(20),
        prefill_rows,
        max_sequences: 1 + up_to(numbers, &[3, 64, 64]),
        page_memory: None,
        keep_prefixes: numbers.below(8) > 0,
        measure_waste: true,
        check_every_step: true,
    };
    let tiers = Tier::available();
    Setting {
        // From too few for the longest sequence to plenty.
        pages: 6 + up_to(numbers, &[4, 12, 100]),
        threads: if real { 1 + numbers.below(4) } else { 1 },
        tier: tiers[numbers.below(tiers.len())],
        options,
    }
}

/// Runs a schedule; answers with what it met.
fn run_schedule(subject: &Subject, number: u64) -> Met {
    let mut numbers = Numbers(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5C_1E5);
    let setting = setting(&mut numbers, matches!(subject, Subject::Real { .. }));
    let log = Kept::default();
    let hosted = vec![subject.host(&setting)];
    let engine = Engine::start_logged(hosted, setting.options, Box::new(log.clone())).unwrap();
    let stems: Vec<Vec<TokenId>> = (0..3)
        .map(|_| {
            let length = 5 + numbers.below(60);
            numbers.ids(length, fake::VOCAB).into_iter().map(TokenId).collect()
        })
        .collect();
    let stems = Arc::new(stems);
    let answers = Answers::default();
    let callers = 1 + up_to(&mut numbers, &[3, 10, 64]);
    let operations = 2 + numbers.below(64 / callers.min(16));
    let run = std::panic::AssertUnwindSafe(|| {
        block_on(async {
            let runs: Vec<_> = (0..callers)
                .map(|caller| {
                    let caller = Caller {
                        engine: engine.clone(),
                        numbers: Numbers(numbers.next() ^ caller as u64),
                        stems: Arc::clone(&stems),
                        pages: setting.pages,
                        adapters: subject.adapters(),
                        sessions: Vec::new(),
                        answers: Arc::clone(&answers),
                    };
                    tokio::spawn(caller.run(operations))
                })
                .collect();
            for run in runs {
                if let Err(error) = run.await {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            engine.check().await.unwrap();
            let ledger = engine.ledger().await.unwrap();
            let pages = engine.pages(MODEL).await.unwrap();
            assert_eq!(pages.free + pages.cached, setting.pages, "pages are held by nobody");
            engine.clear_cache().await.unwrap();
            assert_eq!(engine.pages(MODEL).await.unwrap().free, setting.pages);
            let total = ledger.total();
            let waste = ledger.models[0].waste.unwrap();
            let again = waste.appended_rows - waste.distinct_rows;
            assert_eq!(total.recomputed.total(), again, "{:?}", total.recomputed);
            let alone = subject.alone();
            let answers = std::mem::take(&mut *answers.lock().unwrap());
            for answered in &answers {
                assert_as_alone(&alone, answered).await;
            }
            Met {
                calls: answers.len(),
                evicted: total.recomputed.evicted,
                preempted: total.recomputed.preempted,
                rows: ledger.models[0].forwarded_rows,
            }
        })
    });
    let met = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let path = std::env::temp_dir().join(format!("unsay-schedule-{number}.jsonl"));
        std::fs::write(&path, &*log.0.lock().unwrap()).unwrap();
        eprintln!("schedule {number}, {setting:?}; its log: {}", path.display());
        std::panic::resume_unwind(panic)
    });
    if number.is_multiple_of(10) {
        let hosted = vec![subject.host(&setting)];
        let log = log.0.lock().unwrap();
        let replayed = replay(hosted, log.as_slice()).unwrap_or_else(|e| panic!("{number}: {e}"));
        // All that is in the log, which may be little where every call was given up.
        let lines = |kind: &str| {
            let begin = format!("{{\"{kind}\"");
            String::from_utf8_lossy(&log).lines().filter(|line| line.starts_with(&begin)).count()
        };
        assert_eq!(replayed.calls, lines("reply") + lines("score"));
        assert_eq!((replayed.steps, replayed.rows_read), (lines("forwarded"), lines("read")));
        assert!(replayed.calls >= met.calls);
    }
    met
}

fn schedules(subjects: &[Subject], share: u64) -> Met {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = asked("UNSAY_SCHEDULES").unwrap_or(200) / share;
    let first = asked("UNSAY_FIRST_SCHEDULE").unwrap_or(0);
    let mut met = Met::default();
    for number in first..first + count {
        let one = run_schedule(&subjects[number as usize % subjects.len()], number);
        met.calls += one.calls;
        met.evicted += one.evicted;
        met.preempted += one.preempted;
        met.rows += one.rows;
    }
    println!("{count} schedules: {met:?}");
    assert!(count < 40 || (met.evicted > 0 && met.preempted > 0), "nothing ran short");
    met
}

#[test]
fn nothing_changes_the_answer_but_the_seed() {
    schedules(&[Subject::Fake { keeps_hidden: true }, Subject::Fake { keeps_hidden: false }], 2);
}

/// The same on real arithmetic: threads, instruction sets, formats of weights, keys and values.
#[test]
fn nothing_changes_the_answer_of_a_real_decoder() {
    let real = |architecture, kind, kv, keep_hidden| {
        let tiny = Tiny { vocab: fake::VOCAB, ..Tiny::new(architecture, kind) };
        let modules = modules_of(&tiny);
        let adapters = [&modules[..], &modules[..2]];
        Subject::Real {
            files: Box::new(tiny.files()),
            adapters: adapters.map(|some| Lora::random(2, some, 4, 9).files()).into(),
            kv,
            keep_hidden,
        }
    };
    let subjects = [
        real("llama", WeightType::Q4_1, KvType::F16, true),
        real("qwen3", WeightType::F32, KvType::F32, true),
        real("qwen2", WeightType::Q8_0, KvType::F16, false),
        real("llama", WeightType::BF16, KvType::Bf16, true),
    ];
    schedules(&subjects, 2);
}
