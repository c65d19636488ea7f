//! The commands that show one thing each: units, token ids, a continuation, its log-probabilities.

use std::io::{BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::arguments::{GenerateArgs, ReplayArgs, ScoreArgs, TokenizeArgs, UnitsArgs};
use super::failure::Failure;
use super::host::Host;
use super::output::{note, say};
use super::{host, output, wait};
use crate::engine::{Cost, FinishReason, GenerationEvent, Sampling, Session, Tag, TokenStats};
use crate::program::units::{ReadOptions, read};
use crate::program::{cfg, picture};
use crate::text::{Detokenizer, TokenId, Tokenizer};

/// `unsay units FILE.py`
pub fn units(args: &UnitsArgs) -> Result<ExitCode, Failure> {
    let source = read_text(&args.file)?;
    if let Some(path) = &args.graph {
        return draw(&source, path);
    }
    let options = ReadOptions { entry_point: args.entry_point.as_deref(), ..Default::default() };
    let reading = read(&source, &options);
    for error in &reading.syntax_errors {
        note!(
            "{}:{}:{}: not Python: {}",
            args.file.display(),
            error.line,
            error.column,
            error.text
        );
    }
    if args.json {
        print_json(&reading.units)?;
        return Ok(ExitCode::SUCCESS);
    }
    for unit in &reading.units {
        say!("unit {} ({}), lines {:?}", unit.id, unit.label, unit.lines);
        say!("{}\n", unit.text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a program's graph as a picture.
fn draw(source: &str, path: &Path) -> Result<ExitCode, Failure> {
    let program = cfg::parse(source)
        .map_err(|e| Failure::usage(format!("there is no graph of this program: {e}")))?;
    let svg = picture::svg(&program);
    if path == Path::new("-") {
        output::text(&svg)?;
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::write(path, svg)
        .map_err(|e| Failure::usage(format!("cannot write {}: {e}", path.display())))?;
    Ok(ExitCode::SUCCESS)
}

/// `unsay tokenize TEXT`
pub fn tokenize(args: &TokenizeArgs) -> Result<ExitCode, Failure> {
    let tokenizer = Tokenizer::of_model(&host::open(&args.model)?)?;
    let ids = if args.special {
        tokenizer.encode_template(&args.text)?
    } else {
        tokenizer.encode(&args.text)?
    };
    if args.json {
        print_json(&ids)?;
        return Ok(ExitCode::SUCCESS);
    }
    for id in &ids {
        say!("{:>8}  {:?}", id.0, token_text(&tokenizer, *id));
    }
    Ok(ExitCode::SUCCESS)
}

/// `unsay generate --prompt P`
pub fn generate(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    if args.samples > 1 && args.temperature == 0.0 {
        note!("at temperature 0 all samples are the same; give --temperature for others");
    }
    let host = host::host(&args.model, host::Tell::Nothing)?;
    let prompt = prompt_ids(&host.tokenizer, &args.prompt)?;
    let sampling = Sampling {
        temperature: args.temperature,
        seed: args.seed,
        max_tokens: args.max_tokens,
        top_logprobs: args.top,
        ..Sampling::default()
    };
    wait(async {
        let mut session = host.engine.open(&host.name, host.adapter).await?;
        session.append(&prompt).await?;
        if args.samples == 1 {
            stream(&host, &mut session, &sampling, args.json).await?;
        } else {
            sample(&host, &session, &sampling, args).await?;
        }
        Ok(ExitCode::SUCCESS)
    })?
}

/// One continuation, told as it comes.
async fn stream(
    host: &Host,
    session: &mut Session,
    sampling: &Sampling,
    as_json: bool,
) -> Result<(), Failure> {
    let mut reply = session.generate(sampling, Tag::new("generate", 1)).await?;
    let mut pieces = Detokenizer::new();
    let (mut text, mut tokens) = (String::new(), Vec::new());
    while let Some(event) = reply.next().await {
        match event? {
            GenerationEvent::Token(token) => {
                let piece = pieces.push(&host.tokenizer, token.id());
                if !as_json {
                    output::text(&piece)?;
                }
                text.push_str(&piece);
                tokens.push(token.stats);
            }
            GenerationEvent::Finish(finish) => {
                let rest = pieces.finish();
                text.push_str(&rest);
                if as_json {
                    let tokens = named(&host.tokenizer, &tokens);
                    print_json(
                        &json!({"text": text, "tokens": tokens, "finish": finish.reason, "cost": finish.cost, "memory": host.plan()}),
                    )?;
                } else {
                    output::text(&rest)?;
                    say!("");
                    if finish.reason == FinishReason::ContextFull {
                        note!("it ends there since the context is full");
                    }
                    tell_cost(host, &finish.cost);
                }
            }
        }
    }
    Ok(())
}

/// Several continuations at the same time: the prompt is read once.
async fn sample(
    host: &Host,
    session: &Session,
    sampling: &Sampling,
    args: &GenerateArgs,
) -> Result<(), Failure> {
    let streams: Vec<u64> = (0..u64::from(args.samples)).collect();
    let samples = session.samples(&streams, sampling, Tag::new("generate", 1)).await?;
    let mut total = Cost::default();
    let mut shown = Vec::new();
    for (number, sample) in samples.iter().enumerate() {
        total += sample.finish.cost;
        let text = host.tokenizer.decode(&sample.ids());
        if args.json {
            let stats: Vec<TokenStats> = sample.tokens.iter().map(|t| t.stats.clone()).collect();
            let tokens = named(&host.tokenizer, &stats);
            let finish = &sample.finish;
            shown.push(
                json!({"text": text, "tokens": tokens, "finish": finish.reason, "cost": finish.cost}),
            );
        } else {
            say!("── sample {} ──\n{text}", number + 1);
        }
    }
    if args.json {
        return print_json(&json!({"samples": shown, "cost": total, "memory": host.plan()}));
    }
    let full = samples.iter().filter(|s| s.finish.reason == FinishReason::ContextFull).count();
    if full > 0 {
        note!("{full} of them end where they do since the context is full");
    }
    tell_cost(host, &total);
    Ok(())
}

fn tell_cost(host: &Host, cost: &Cost) {
    note!(
        "prompt {} = {} cached + {} computed, {} generated tokens in {:.2} s ({})",
        cost.prompt_tokens,
        cost.cached_tokens,
        cost.computed_tokens,
        cost.generated_tokens,
        cost.seconds,
        host.loaded
    );
}

/// `unsay score --prompt P --continuation C`
pub fn score(args: &ScoreArgs) -> Result<ExitCode, Failure> {
    let host = host::host(&args.model, host::Tell::Nothing)?;
    let prompt = prompt_ids(&host.tokenizer, &args.prompt)?;
    let continuation = host.tokenizer.encode_behind(&args.continuation)?;
    if continuation.is_empty() {
        return Err(Failure::usage("the continuation is empty, so there is nothing to score"));
    }
    wait(async {
        let mut session = host.engine.open(&host.name, host.adapter).await?;
        session.append(&prompt).await?;
        let scored = session.score(&continuation, args.top, Tag::new("score", 1)).await?;
        let sum: f64 = scored.tokens.iter().map(|t| f64::from(t.logprob)).sum();
        if args.json {
            let tokens = named(&host.tokenizer, &scored.tokens);
            print_json(&json!({"tokens": tokens, "logprob": sum, "cost": scored.cost}))?;
            return Ok(ExitCode::SUCCESS);
        }
        say!("{:>10} {:>9} {:>8}  token", "logprob", "percent", "rank");
        for token in &scored.tokens {
            let text = token_text(&host.tokenizer, token.id);
            let percent = 100.0 * f64::from(token.logprob).exp();
            // The most probable token has rank 1 where people count.
            let rank = token.rank + 1;
            say!("{:>10.4} {percent:>9.4} {rank:>8}  {text:?}", token.logprob);
            for &(id, logprob) in &token.top {
                let text = token_text(&host.tokenizer, id);
                let percent = 100.0 * f64::from(logprob).exp();
                say!("{logprob:>10.4} {percent:>9.4} {:>8}    {text:?}", "");
            }
        }
        let mean = sum / scored.tokens.len() as f64;
        say!("{sum:>10.4} in all, {mean:.4} a token");
        Ok(ExitCode::SUCCESS)
    })?
}

/// `unsay replay LOG`
pub fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let log = std::fs::File::open(&args.log)
        .map_err(|e| Failure::usage(format!("cannot read {}: {e}", args.log.display())))?;
    let replayed = host::replay(&args.model, BufReader::new(log))?;
    if args.json {
        print_json(&replayed)?;
    } else {
        say!(
            "the same again: {} calls, {} steps, {} rows of logits, every decision and every bit",
            replayed.calls,
            replayed.steps,
            replayed.rows_read
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The ids that a raw text conditions on, with the BOS that the model wants.
fn prompt_ids(tokenizer: &Tokenizer, text: &str) -> Result<Vec<TokenId>, Failure> {
    let mut ids: Vec<TokenId> = Vec::new();
    if tokenizer.adds_bos() {
        ids.extend(tokenizer.bos());
    }
    ids.extend(tokenizer.encode(text)?);
    if ids.is_empty() {
        return Err(Failure::usage("the prompt is empty, so nothing can follow from it"));
    }
    Ok(ids)
}

fn named(tokenizer: &Tokenizer, tokens: &[TokenStats]) -> Vec<serde_json::Value> {
    tokens
        .iter()
        .map(|t| {
            let mut token = json!({
                "id": t.id, "text": token_text(tokenizer, t.id), "logprob": t.logprob,
                "entropy": t.entropy, "rank": t.rank, "mean_logprob": t.mean_logprob,
            });
            if !t.top.is_empty() {
                let other = |&(id, logprob): &(TokenId, f32)| {
                    json!({"id": id, "text": token_text(tokenizer, id), "logprob": logprob})
                };
                token["top"] = t.top.iter().map(other).collect();
            }
            token
        })
        .collect()
}

/// A token's bytes as text, what is no whole character shown as U+FFFD.
fn token_text(tokenizer: &Tokenizer, id: TokenId) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned()
}

/// The text of a file, or of standard input where the path is `-`.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(path).map(|all| bytes = all)
    };
    read.map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::usage(format!("{} is not UTF-8 (byte {at})", path.display()))
            .hint("convert it, e.g. with `iconv -t utf-8`")
    })?;
    Ok(without_mark(text))
}

/// A text without the mark of byte order that some editors put before it.
pub fn without_mark(text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|e| Failure::stated(format!("cannot write JSON: {e}")))?;
    output::line(format_args!("{text}"))
}
