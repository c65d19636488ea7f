//! Speeds of unsay and llama.cpp on the same file and threads, measured in turn.
//!
//! Every round's prompts differ from their first token on, so that nothing of an earlier round is
//! cached. Ends of text are not drawn, so that replies have the same length on both sides.

use std::time::Instant;

use serde_json::{Value, json};
use unsay::engine::{EngineError, Sampling, Tag};
use unsay::text::TokenId;

use super::peer::Peer;
use super::{MODEL, Subject, median, stop};

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Work {
    pub prompt: usize,
    pub predict: usize,
    /// Rounds behind a first one, which warms both sides up.
    pub rounds: usize,
}

/// Figures of both sides, a pair for each round.
#[derive(Default)]
pub struct Pairs {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Pairs {
    fn add(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }

    /// Medians, the ratios of the rounds (above 1: unsay is faster) and their median.
    pub fn facts(&self, target: Option<f64>) -> Value {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(a, b)| a / b).collect();
        json!({
            "unsay": median(&self.ours),
            "llama.cpp": median(&self.theirs),
            "ratio": median(&ratios),
            "ratios": ratios,
            "target": target,
        })
    }
}

/// One sequence: tokens of its prompt read a second, tokens written a second behind it.
pub fn alone(subject: &Subject, peer: &mut Peer, work: Work) -> (Pairs, Pairs) {
    let (mut prefill, mut decode) = (Pairs::default(), Pairs::default());
    for round in 0..=work.rounds {
        let prompt = &prompts(subject, work.prompt, 1, round)[0];
        let mine = read_and_write(subject, prompt, work.predict);
        let served = peer.serve(std::slice::from_ref(prompt), work.predict);
        let [read, reading, written, writing] = served.requests[0];
        let its = [read / reading, written / writing];
        println!(
            "round {round}: prefill {:.1} against {:.1}, decode {:.1} against {:.1} tokens/s",
            mine[0], its[0], mine[1], its[1]
        );
        if round > 0 {
            prefill.add(mine[0], its[0]);
            decode.add(mine[1], its[1]);
        }
    }
    (prefill, decode)
}

/// Several sequences at the same time: all generated tokens over the seconds from the first request to
/// the last answer, prompts included.
pub fn together(subject: &Subject, peer: &mut Peer, count: usize, work: Work) -> Pairs {
    let mut pairs = Pairs::default();
    for round in 0..=work.rounds {
        let prompts = prompts(subject, work.prompt, count, round);
        let mine = write_together(subject, &prompts, work.predict);
        let served = peer.serve(&prompts, work.predict);
        let written: f64 = served.requests.iter().map(|request| request[2]).sum();
        let its = written / served.wall;
        println!("{count} together, round {round}: {mine:.1} against {its:.1} tokens/s");
        if round > 0 {
            pairs.add(mine, its);
        }
    }
    pairs
}

/// Ids of ordinary English text, so that both sides do the same work.
fn prompts(subject: &Subject, len: usize, count: usize, round: usize) -> Vec<Vec<TokenId>> {
    let line = "A river runs past the old mill, and the miller counts the sacks of flour. ";
    let lines = (len + count) / 12 + 8;
    let ids = subject.tokenizer.encode(&line.repeat(lines));
    let ids = ids.unwrap_or_else(|e| stop(&e.to_string()));
    let first = |n: usize| TokenId((200 + 50 * count + 10 * round + n) as u32);
    (0..count).map(|n| [&[first(n)], &ids[n..n + len - 1]].concat()).collect()
}

fn sampling(subject: &Subject, max_tokens: usize) -> Sampling {
    let ends = [subject.tokenizer.eos(), subject.tokenizer.eot()].into_iter().flatten();
    let bias = ends.map(|id| (id, -1e9)).collect();
    Sampling { max_tokens, bias, ..Sampling::default() }
}

fn block_on<T>(run: impl Future<Output = Result<T, EngineError>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|e| stop(&e.to_string()));
    runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()))
}

fn read_and_write(subject: &Subject, prompt: &[TokenId], predict: usize) -> [f64; 2] {
    let tag = Tag::new("bench", 1);
    block_on(async {
        let mut session = subject.engine.open(MODEL, None).await?;
        session.append(prompt).await?;
        let begun = Instant::now();
        session.generate(&sampling(subject, 1), &tag).await?.collect().await?;
        let prefill = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let reply = session.generate(&sampling(subject, predict), &tag).await?.collect().await?;
        let decode = begun.elapsed().as_secs_f64();
        if reply.tokens.len() != predict {
            stop("a reply ended early");
        }
        Ok([prompt.len() as f64 / prefill, predict as f64 / decode])
    })
}

fn write_together(subject: &Subject, prompts: &[Vec<TokenId>], predict: usize) -> f64 {
    let tag = Tag::new("bench", 1);
    block_on(async {
        let mut sessions = Vec::new();
        for prompt in prompts {
            let mut session = subject.engine.open(MODEL, None).await?;
            session.append(prompt).await?;
            sessions.push(session);
        }
        let begun = Instant::now();
        let mut replies = Vec::new();
        for session in &mut sessions {
            replies.push(session.generate(&sampling(subject, predict), &tag).await?);
        }
        let mut written = 0;
        for reply in replies {
            written += reply.collect().await?.tokens.len();
        }
        Ok(written as f64 / begun.elapsed().as_secs_f64())
    })
}
