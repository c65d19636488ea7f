//! The same on real decoders: small random ones of each family, and the default model.

use std::sync::Arc;

use unsay::device::{HiddenAt, KvType, PageId};
use unsay::engine::{
    Engine, EngineOptions, FinishReason, Generated, Hosted, Sampling, Session, Stop, Tag,
    TokenStats,
};
use unsay::model::{self, Batch, LoadOptions, Row};
use unsay::store::{ModelFiles, SafetensorsModel};
use unsay::text::{TokenId, Tokenizer};

use super::fake::block_on;
use crate::support;

const PAGES: usize = 64;

fn tag() -> Tag {
    Tag::new("real", 1)
}

fn options(prefill_rows: usize) -> EngineOptions {
    EngineOptions {
        prefill_rows,
        step_rows: 1000,
        measure_waste: true,
        check_every_step: true,
        ..EngineOptions::default()
    }
}

fn load(files: &ModelFiles, threads: usize) -> Box<dyn model::Decoder> {
    let options = LoadOptions { threads, pages: PAGES, ..LoadOptions::default() };
    model::load(files, &options).unwrap()
}

/// An engine of a small random model, whose tokens have no text.
fn tiny(name: &str, prefill_rows: usize) -> Engine {
    let folder = support::data("oracle").join(name);
    let files = ModelFiles::Safetensors(SafetensorsModel::open(&folder).unwrap());
    let hosted = Hosted {
        name: "model".to_owned(),
        decoder: load(&files, 1),
        tokens: Arc::new(|_| Vec::new()),
        stop_ids: Vec::new(),
        adapters: Vec::new(),
    };
    Engine::start(vec![hosted], options(prefill_rows)).unwrap()
}

/// An engine of the default model, with its tokenizer.
fn default_model(prefill_rows: usize) -> (Engine, Arc<Tokenizer>) {
    let files = ModelFiles::Gguf(unsay::store::Gguf::open(&support::default_model()).unwrap());
    let tokenizer = Arc::new(Tokenizer::of_model(&files).unwrap());
    let hosted = Hosted {
        name: "model".to_owned(),
        decoder: load(&files, 2),
        tokens: tokenizer.clone(),
        stop_ids: unsay::text::stop_ids(&files, &tokenizer, None).unwrap(),
        adapters: Vec::new(),
    };
    (Engine::start(vec![hosted], options(prefill_rows)).unwrap(), tokenizer)
}

async fn session(engine: &Engine, ids: &[TokenId]) -> Session {
    let mut session = engine.open("model", None).await.unwrap();
    session.append(ids).await.unwrap();
    session
}

async fn draw(session: &mut Session, sampling: &Sampling) -> Generated {
    session.generate(sampling, &tag()).await.unwrap().collect().await.unwrap()
}

fn stats(reply: &Generated) -> Vec<&TokenStats> {
    reply.tokens.iter().map(|token| &token.stats).collect()
}

/// Two sessions side by side, a rewind, a fork and scores, on an engine that reads prompts in
/// chunks of five; each answer equals that of a session alone on an engine that reads them whole.
async fn all_as_alone(live: &Engine, alone: &Engine, prompt: &[TokenId], other: &[TokenId]) {
    let greedy = Sampling { max_tokens: 18, top_logprobs: 3, ..Sampling::default() };
    let warm = Sampling { temperature: 0.8, top_p: 0.95, seed: 7, stream: 3, ..greedy.clone() };

    let mut first = session(live, prompt).await;
    let mut second = first.fork().await.unwrap();
    let mark = first.mark().await.unwrap();
    let (in_first, in_second) = tokio::join!(draw(&mut first, &greedy), draw(&mut second, &warm));
    for (reply, sampling) in [(&in_first, &greedy), (&in_second, &warm)] {
        let expected = draw(&mut session(alone, prompt).await, sampling).await;
        assert_eq!(stats(reply), stats(&expected));
    }

    // Taken back, and said in other words.
    first.rewind(mark).await.unwrap();
    first.append(other).await.unwrap();
    let corrected = draw(&mut first, &warm).await;
    let whole = [prompt, other].concat();
    let expected = draw(&mut session(alone, &whole).await, &warm).await;
    assert_eq!(stats(&corrected), stats(&expected));
    // At least the prompt; more where the second reply happens to go on in the same words.
    assert!(corrected.finish.cost.cached_tokens as usize >= prompt.len());

    // What was drawn, scored: by a live fork of the prompt, and from nothing.
    let mut judge = first.fork().await.unwrap();
    judge.rewind(mark).await.unwrap();
    let scored = judge.score(&in_second.ids(), 3, &tag()).await.unwrap();
    assert_eq!(scored.tokens.iter().collect::<Vec<_>>(), stats(&in_second));
    let computed = scored.cost.computed_tokens;
    assert_eq!(computed, 0, "the second session still has it in its pages");
    drop(second);
    let scored = judge.score(&in_second.ids(), 3, &tag()).await.unwrap();
    assert_eq!(scored.tokens.iter().collect::<Vec<_>>(), stats(&in_second));
    let mut fresh = session(alone, prompt).await;
    let scored = fresh.score(&in_second.ids(), 3, &tag()).await.unwrap();
    assert_eq!(scored.tokens.iter().collect::<Vec<_>>(), stats(&in_second));

    drop((first, judge, fresh));
    for engine in [live, alone] {
        let pages = engine.pages("model").await.unwrap();
        assert_eq!(pages.free + pages.cached, PAGES);
        engine.ledger().await.unwrap().check().unwrap();
    }
}

#[test]
fn small_models_of_each_family() {
    block_on(async {
        for name in ["llama_tied", "llama_gqa7", "mistral", "qwen2_tied", "qwen3_untied"] {
            let (live, alone) = (tiny(name, 5), tiny(name, 1000));
            let vocab = live.models()[0].vocab_size as u32;
            let ids = |count: u32, step: u32| {
                (0..count).map(|n| TokenId((n * step + 1) % vocab)).collect()
            };
            let (prompt, other): (Vec<_>, Vec<_>) = (ids(41, 7), ids(9, 5));
            all_as_alone(&live, &alone, &prompt, &other).await;
        }
    });
}

#[test]
fn the_default_model() {
    block_on(async {
        let ((live, tokenizer), (alone, _)) = (default_model(5), default_model(1000));
        let prompt = tokenizer.encode("A short list of rivers in Europe: the Danube, the").unwrap();
        let other = tokenizer.encode(" Rhine, and in Africa: the").unwrap();
        all_as_alone(&live, &alone, &prompt, &other).await;
    });
}

/// Logits of every position of a text by the default model.
fn logits_of(files: &ModelFiles, kv: KvType, ids: &[TokenId]) -> Vec<Vec<f32>> {
    let options = LoadOptions { threads: 2, pages: PAGES, kv, ..LoadOptions::default() };
    let mut model = model::load(files, &options).unwrap();
    let table: Vec<PageId> = (0..PAGES as u32).map(PageId).collect();
    let row = |(position, &token)| Row { slot: 0, position, token, adapter: None };
    let rows: Vec<Row> = ids.iter().enumerate().map(row).collect();
    model.forward(&Batch { rows: &rows, tables: &[&table] }).unwrap();
    let place = |p: usize| HiddenAt { page: table[p / 16], offset: p % 16 };
    let places: Vec<HiddenAt> = (0..ids.len()).map(place).collect();
    let mut logits = vec![0.0; ids.len() * model.vocab_size()];
    model.logits(&places, &mut logits).unwrap();
    logits.chunks(model.vocab_size()).map(<[f32]>::to_vec).collect()
}

/// Σ p (ln p - ln q) of two rows of logits, in nats.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let log_sum = |x: &[f32]| {
        let most = f64::from(x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        most + x.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln()
    };
    let (p_sum, q_sum) = (log_sum(p), log_sum(q));
    let term = |(&p, &q): (&f32, &f32)| {
        let (p, q) = (f64::from(p) - p_sum, f64::from(q) - q_sum);
        p.exp() * (p - q)
    };
    p.iter().zip(q).map(term).sum()
}

/// Most that keys and values in f16 may move a next token's distribution from where f32 has it: the
/// mean over a text in nats, and at any one position. 4.4e-3 and 2.8e-2 were measured: products with
/// block formats round activations to 8 bits, so a number that f16 moves over the edge of a rounding
/// moves more than f16 itself does.
const MEAN_DIVERGENCE: f64 = 1e-2;
const MOST_DIVERGENCE: f64 = 0.1;

#[test]
fn keys_and_values_in_f16_hardly_move_the_next_tokens_distribution() {
    let files = ModelFiles::Gguf(unsay::store::Gguf::open(&support::default_model()).unwrap());
    let tokenizer = Tokenizer::of_model(&files).unwrap();
    let text = std::fs::read_to_string(support::crate_root().join("README.md")).unwrap();
    let mut ids = tokenizer.encode(&text).unwrap();
    ids.truncate(600);
    assert_eq!(ids.len(), 600, "a text long enough");
    let whole = logits_of(&files, KvType::F32, &ids);
    let rounded = logits_of(&files, KvType::F16, &ids);
    let divergences: Vec<f64> = whole.iter().zip(&rounded).map(|(p, q)| divergence(p, q)).collect();
    let mean = divergences.iter().sum::<f64>() / divergences.len() as f64;
    let most = divergences.iter().copied().fold(0.0, f64::max);
    println!("KL of f16 from f32 over 600 positions: {mean:.2e} on average, {most:.2e} at most");
    assert!(divergences.iter().all(|kl| *kl > -1e-9), "a divergence is never negative");
    assert!(mean < MEAN_DIVERGENCE && most < MOST_DIVERGENCE, "{mean} on average, {most} at most");
}

/// Any piece of a reply, made a stop string, cuts the same reply just before its first place.
#[test]
fn stop_strings_cut_real_text() {
    block_on(async {
        let (engine, tokenizer) = default_model(128);
        let prompt = tokenizer.encode("Once upon a time there was a little").unwrap();
        let free = Sampling { max_tokens: 32, ..Sampling::default() };
        let mut open = session(&engine, &prompt).await;
        let start = open.mark().await.unwrap();
        let whole = draw(&mut open, &free).await;
        let text = tokenizer.decode(&whole.ids());
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(7).collect();
        for (&from, length) in places.iter().zip([1, 2, 3, 5, 8, 13].into_iter().cycle()) {
            let piece: String = text[from..].chars().take(length).collect();
            open.rewind(start).await.unwrap();
            let stop = Sampling { stop_strings: vec![piece.clone()], ..free.clone() };
            let cut = draw(&mut open, &stop).await;
            let at = text.find(&piece).unwrap();
            let said =
                [tokenizer.decode(&cut.ids()).into_bytes(), cut.finish.tail.clone()].concat();
            assert_eq!(String::from_utf8(said).unwrap(), text[..at], "stopped at {piece:?}");
            assert_eq!(cut.finish.reason, FinishReason::StopString);
            assert_eq!(cut.finish.stop, Some(Stop::Text(piece)));
            assert_eq!(cut.ids(), whole.ids()[..cut.tokens.len()]);
            assert_eq!(open.len().await, Ok(prompt.len() + cut.tokens.len()));
            let cost = cut.finish.cost;
            assert_eq!((cost.cached_tokens as usize, cost.computed_tokens), (prompt.len(), 0));
        }
    });
}
