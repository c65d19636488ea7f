//! Predicted against measured memory: the default model hosted twice in one process, with other
//! contexts and other ways to keep keys and values, its pages filled by dialogues until their shared
//! sum is written; then, with those closed, by dialogues of one model alone, and of the other alone,
//! so that the memory moves between them.

mod measure;

use measure::{MODEL, record, resident, stop};
use serde_json::json;
use unsay::device::KvType;
use unsay::engine::plan::{Budget, MemorySize};
use unsay::engine::{EngineError, Sampling, Session, Tag};
use unsay::llm::{Host, HostModel, HostOptions, Hosting};
use unsay::store::Cache;
use unsay::text::TokenId;

/// For the pages of both models together.
const PAGE_MEMORY: u64 = 448 << 20;
/// Positions that each dialogue is filled to.
const DIALOGUE: usize = 1024;

fn main() {
    let before = measure::peak_memory("self");
    let hosting = plan();
    println!("{}", hosting.memory());
    let host = hosting.load(None).unwrap_or_else(|e| stop(&e.to_string()));
    let loaded = (measure::peak_memory("self"), resident("self"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    let stopped = |e: EngineError| stop(&e.to_string());
    let mut moves = Vec::new();
    for (name, models) in [("both", &[0, 1][..]), ("verifier", &[1]), ("generator", &[0])] {
        // What the last dialogues held is free or may be given up once they are closed.
        drop(runtime.block_on(fill(&host, models)).unwrap_or_else(stopped));
        let (peak, now) = (measure::peak_memory("self"), resident("self"));
        println!("{name}: {} MB at most, {} MB now", peak / 1_000_000, now / 1_000_000);
        moves.push(json!({"filled_by": name, "peak": peak, "resident": now}));
    }
    let (peak, filled) = (measure::peak_memory("self"), resident("self"));
    let plan = &host.plan;
    let (predicted, fixed) = (plan.total, plan.total - plan.page_memory);
    let percent =
        |measured: u64, predicted: u64| 100.0 * (measured as f64 / predicted as f64 - 1.0);
    println!(
        "loaded: {} MB at most, {} MB now; {} MB planned without pages ({:+.1} %)",
        loaded.0 / 1_000_000,
        loaded.1 / 1_000_000,
        fixed / 1_000_000,
        percent(loaded.0, fixed)
    );
    println!(
        "filled: {} MB at most, {} MB now; {} MB planned ({:+.2} %)",
        peak / 1_000_000,
        filled / 1_000_000,
        predicted / 1_000_000,
        percent(peak, predicted)
    );
    let facts = json!({
        "unit": "bytes of resident memory",
        "profile": if cfg!(debug_assertions) { "dev" } else { "bench" },
        "models": [format!("{MODEL}, f16, context 8192"), format!("{MODEL}, f32, context 2048")],
        "plan": plan,
        "at_start": before,
        "loaded_peak": loaded.0,
        "loaded": loaded.1,
        "predicted_peak": predicted,
        "measured_peak": peak,
        "measured_after_filling": filled,
        "filled": moves,
        "ratio": peak as f64 / predicted as f64,
        "target": "within 3 %: 0.97 to 1.03",
    });
    record("budget", facts);
    if percent(peak, predicted).abs() > 3.0 {
        stop(&format!("measured memory is {:+.2} % off", percent(peak, predicted)));
    }
}

fn plan() -> Hosting {
    let cache = Cache::locate().unwrap_or_else(|e| stop(&e.to_string()));
    let model = |name: &str, kv, context| {
        let model = HostModel::open(MODEL, &cache).unwrap_or_else(|e| stop(&e.to_string()));
        HostModel { name: name.to_owned(), kv, context: Some(context), ..model }
    };
    let models = vec![model("generator", KvType::F16, 8192), model("verifier", KvType::F32, 2048)];
    let page_memory = Some(MemorySize(PAGE_MEMORY));
    let budget = Budget { page_memory, ..Budget::default() };
    let options = HostOptions { threads: measure::threads(), budget, ..HostOptions::default() };
    Hosting::plan(models, options).unwrap_or_else(|e| stop(&e.to_string()))
}

/// Opens dialogues on these models in turn and fills them, until the pages that they hold are the
/// whole sum. The last ones are as long as what is left.
async fn fill(host: &Host, models: &[usize]) -> Result<Vec<Session>, EngineError> {
    let mut sessions = Vec::new();
    let mut left = host.plan.page_memory;
    for turn in 0.. {
        let model = &host.plan.models[models[turn % models.len()]];
        let pages = (left / model.page_bytes).min((DIALOGUE / 16) as u64);
        if pages == 0 {
            break;
        }
        // No two dialogues begin alike. A dialogue's last page is full, and no other is held for it.
        let first = 1 + turn + 100 * models.len() + 1000 * models[0];
        sessions.push(dialogue(host, &model.name, 16 * pages as usize, first).await?);
        left -= pages * model.page_bytes;
    }
    println!("{} dialogues; {} bytes of pages are left", sessions.len(), left);
    Ok(sessions)
}

/// A dialogue of exactly `length` positions: a prompt of its own and a sampled reply. Its last ids
/// are scored too, as a verifier would, while pages for that are still there.
async fn dialogue(
    host: &Host,
    model: &str,
    length: usize,
    turn: usize,
) -> Result<Session, EngineError> {
    let reply = 8.min(length - 1);
    let mut session = host.engine.open(model, None).await?;
    // Ordinary ids, none of them special.
    let id = |position: usize| TokenId(1000 + ((turn * 7919 + position * 31) % 40_000) as u32);
    let ids: Vec<TokenId> = (0..length - reply).map(id).collect();
    let (prompt, scored) = ids.split_at(ids.len().saturating_sub(32).max(1));
    session.append(prompt).await?;
    let tag = Tag::new("budget", 1);
    session.score(scored, 4, &tag).await?;
    session.append(scored).await?;
    // The bias keeps replies from ending early.
    let bias = (0..17).map(|id| (TokenId(id), -1e9)).collect();
    let sampling = Sampling {
        temperature: 0.9,
        top_p: 0.95,
        max_tokens: reply,
        stream: turn as u64,
        bias,
        ..Sampling::default()
    };
    let said = session.generate(&sampling, &tag).await?.collect().await?;
    // The row of the last token drawn is forwarded when the dialogue goes on.
    session.score(&[said.tokens[0].id()], 0, &tag).await?;
    Ok(session)
}
