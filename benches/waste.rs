//! The waste ratio of three ways to work: a step-revision loop, ten samples of one prompt, and
//! dialogues that begin alike, with sessions closed between them; each with its ledger. (`ralu`
//! measures RaLU's.) 1.00 is the least that any engine can do.

mod measure;

use measure::{Subject, record, stop};
use serde_json::{Value, json};
use unsay::engine::{Cost, EngineError, EngineOptions, Sampling, Session, Tag};
use unsay::text::TokenId;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    let mut rows = Vec::new();
    for name in ["step revision", "ten samples", "dialogues that begin alike"] {
        let subject =
            measure::host(EngineOptions { measure_waste: true, ..EngineOptions::default() });
        let run = async {
            match name {
                "step revision" => step_revision(&subject).await?,
                "ten samples" => ten_samples(&subject).await?,
                _ => dialogues(&subject).await?,
            }
            let ledger = subject.engine.ledger().await?;
            ledger.check()?;
            let waste = ledger.models[0].waste.and_then(|waste| waste.ratio());
            Ok::<(Cost, Option<f64>), EngineError>((ledger.total(), waste))
        };
        let (cost, ratio) = runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()));
        println!(
            "{name}: {} prompt = {} cached + {} computed, {} generated; waste {ratio:?}",
            cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens, cost.generated_tokens
        );
        rows.push(json!({ "work": name, "tokens": cost, "ratio": ratio }));
    }
    record("waste", json!({ "rows": Value::from(rows), "target": 1.0, "model": measure::MODEL }));
}

fn ids(subject: &Subject, text: &str) -> Vec<TokenId> {
    subject.tokenizer.encode(text).unwrap_or_else(|e| stop(&e.to_string()))
}

fn drawing(stream: u64, tokens: usize) -> Sampling {
    Sampling { temperature: 0.7, seed: 1, stream, max_tokens: tokens, ..Sampling::default() }
}

async fn draw(session: &mut Session, stream: u64, tokens: usize) -> Result<(), EngineError> {
    let tag = Tag::new("bench", 1);
    session.generate(&drawing(stream, tokens), &tag).await?.collect().await?;
    Ok(())
}

/// Four steps of a path; each is scored, taken back once, drawn anew, and the second step is revised
/// at the end, with all that follows it.
async fn step_revision(subject: &Subject) -> Result<(), EngineError> {
    let question = ids(
        subject,
        "Question: A box holds twelve eggs. How many eggs do seven boxes hold, \
        if three eggs of each box are broken?\nLet us solve it step by step.\n",
    );
    let verdict = ids(subject, "\nIs this step right? Answer yes or no:");
    let tag = Tag::new("bench", 1);
    let mut path = subject.engine.open(measure::MODEL, None).await?;
    path.append(&question).await?;
    let mut starts = Vec::new();
    for pass in 0..2 {
        for step in starts.len()..4 {
            let start = path.mark().await?;
            starts.push(start);
            for attempt in 0..2u64 {
                path.rewind(start).await?;
                path.append(&ids(subject, &format!("Step {}:", step + 1))).await?;
                draw(&mut path, 100 * pass + 10 * step as u64 + attempt, 24).await?;
                path.score(&verdict, 0, &tag).await?;
            }
        }
        if pass == 0 {
            path.rewind(starts[1]).await?;
            starts.truncate(1);
        }
    }
    Ok(())
}

async fn ten_samples(subject: &Subject) -> Result<(), EngineError> {
    let question =
        ids(subject, "Question: Tom has 3 apples and buys 4 bags of 6. How many has he?\n");
    let mut asked = subject.engine.open(measure::MODEL, None).await?;
    asked.append(&question).await?;
    let streams: Vec<u64> = (0..10).collect();
    let samples = asked.samples(&streams, &drawing(0, 48), Tag::new("bench", 1)).await?;
    // Each is scored afterwards by a session that did not draw it.
    for sample in samples {
        let mut judge = asked.fork().await?;
        judge.score(&sample.ids(), 0, Tag::new("bench", 2)).await?;
    }
    Ok(())
}

/// A long common beginning, then a question of its own; each session closed before the next.
async fn dialogues(subject: &Subject) -> Result<(), EngineError> {
    let system = ids(
        subject,
        &"You check units of a program, one at a time, and say what is wrong. ".repeat(12),
    );
    for question in 0..8u64 {
        let mut dialogue = subject.engine.open(measure::MODEL, None).await?;
        dialogue.append(&system).await?;
        for turn in 0..3u64 {
            dialogue.append(&ids(subject, &format!("Question {question}, unit {turn}: "))).await?;
            draw(&mut dialogue, 10 * question + turn, 16).await?;
        }
    }
    Ok(())
}
