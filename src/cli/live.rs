//! The live view of a problem being solved: turns as they are generated, verdicts with their
//! confidence, what was taken back struck through, and the cost at the end. On a pipe the same
//! words come plain: no colours, no strokes, each reply once it is whole.

use std::io::Write;
use std::sync::Mutex;

use console::Style;
use tokio::sync::Notify;

use crate::llm::{Cost, Event, FinishReason, Role, Sink, Verdict};

/// A sink that writes for a person to read.
pub struct Live {
    state: Mutex<State>,
    lost: Notify,
}

struct State {
    out: Box<dyn Write + Send>,
    /// Replies are written piece by piece.
    streaming: bool,
    /// System prompts and history are written too.
    verbose: bool,
    /// A reply is being written, piece by piece.
    in_reply: bool,
    stage: String,
    costs: Vec<StageCost>,
    units: usize,
    /// The first write that failed; nothing is written after it.
    error: Option<std::io::Error>,
}

/// What one stage of a method cost, over all its calls.
#[derive(Clone, Debug)]
pub struct StageCost {
    pub stage: String,
    pub calls: u32,
    pub cost: Cost,
}

impl Live {
    /// Writes to `out`; `streaming` shows replies as they are generated, `verbose` what is said to
    /// the model too.
    pub fn new(out: Box<dyn Write + Send>, streaming: bool, verbose: bool) -> Self {
        let state = State {
            out,
            streaming,
            verbose,
            in_reply: false,
            stage: String::new(),
            costs: Vec::new(),
            units: 0,
            error: None,
        };
        Self { state: Mutex::new(state), lost: Notify::new() }
    }

    /// Waits until nothing can be written any more.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }

    /// The first write that failed.
    pub fn error(&self) -> Option<std::io::Error> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).error.take()
    }
}

impl Sink for Live {
    fn event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.error.is_some() {
            return;
        }
        if let Err(error) = state.show(event) {
            state.error = Some(error);
            self.lost.notify_one();
        }
    }
}

impl State {
    fn show(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::Began { method, model, question, .. } => self.began(method, model, question),
            Event::Stage { name } => self.stage(name),
            Event::Said { role, text, .. } => self.said(*role, text),
            Event::Piece { text, .. } => self.piece(text),
            Event::Replied { text, finish, confidence, cost, .. } => {
                self.replied(text, finish, *confidence, cost)
            }
            Event::FormatFailure { what, retry, limit, .. } => {
                let note = if retry < limit {
                    format!("asked again ({} of {limit})", retry + 1)
                } else {
                    "given up".to_owned()
                };
                let mark = yellow().apply_to("? off format:");
                writeln!(self.out, "  {mark} {} — {note}", clean(what))
            }
            Event::Rewound { messages, tokens, .. } => self.rewound(messages, *tokens),
            Event::Units { units, syntax_errors, .. } => self.units(units, syntax_errors),
            Event::Judged { unit, candidate, verdict, confidence, fix, .. } => {
                self.judged(*unit, *candidate, *verdict, *confidence, fix.as_deref())
            }
            Event::Settled { unit, how, .. } => {
                writeln!(self.out, "  {}", dim().apply_to(format!("unit {unit} settled: {how}")))
            }
            Event::Ran { outcome, answer, stdout } => self.ran(outcome, answer.as_deref(), stdout),
            Event::Answered { answer, seconds, .. } => {
                writeln!(self.out)?;
                let answer = bold().apply_to(clean(answer));
                writeln!(self.out, "{} {answer}", green().apply_to("answer:"))?;
                self.table(*seconds)
            }
            Event::Failed { why, seconds, .. } => {
                writeln!(self.out)?;
                writeln!(self.out, "{} {}", red().apply_to("no answer:"), clean(why))?;
                self.table(*seconds)
            }
        }?;
        self.out.flush()
    }

    fn began(&mut self, method: &str, model: &str, question: &str) -> std::io::Result<()> {
        let title = bold().apply_to(format!("unsay · {method} · {model}"));
        writeln!(self.out, "{title}")?;
        self.block(question, &Style::new())
    }

    fn stage(&mut self, name: &str) -> std::io::Result<()> {
        self.stage = name.to_owned();
        writeln!(self.out)?;
        writeln!(self.out, "{}", cyan().apply_to(format!("── {name} ──")))
    }

    fn said(&mut self, role: Role, text: &str) -> std::io::Result<()> {
        let who = match role {
            Role::System => "system",
            Role::User => "asked",
            Role::Assistant => "recalled",
        };
        if !self.verbose && role == Role::System {
            return Ok(());
        }
        writeln!(self.out, "  {}", dim().apply_to(format!("{who}:")))?;
        let shown = if self.verbose { text.to_owned() } else { excerpt(text, 12) };
        self.block(&shown, &dim())
    }

    fn piece(&mut self, text: &str) -> std::io::Result<()> {
        if !self.streaming {
            return Ok(());
        }
        if !self.in_reply {
            writeln!(self.out, "  {}", dim().apply_to("replied:"))?;
            write!(self.out, "  │ ")?;
            self.in_reply = true;
        }
        for (i, line) in clean(text).split('\n').enumerate() {
            if i > 0 {
                write!(self.out, "\n  │ ")?;
            }
            write!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn replied(
        &mut self,
        text: &str,
        finish: &FinishReason,
        confidence: Option<f64>,
        cost: &Cost,
    ) -> std::io::Result<()> {
        if std::mem::take(&mut self.in_reply) {
            writeln!(self.out)?;
        } else {
            writeln!(self.out, "  replied:")?;
            self.block(text, &Style::new())?;
        }
        let mut facts = vec![format!("{} tokens", cost.generated_tokens)];
        if let Some(c) = confidence {
            facts.push(format!("confidence {c:.2}"));
        }
        facts.push(format!(
            "prompt {} = {} cached + {} computed",
            cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens
        ));
        facts.push(format!("{:.2} s", cost.seconds));
        match finish {
            FinishReason::MaxTokens => facts.push("cut at the token limit".to_owned()),
            FinishReason::ContextFull => facts.push("the context is full".to_owned()),
            FinishReason::Deadline => facts.push("cut at its deadline".to_owned()),
            FinishReason::Cancelled => facts.push("cancelled".to_owned()),
            FinishReason::StopId | FinishReason::StopString => {}
        }
        writeln!(self.out, "  {}", dim().apply_to(facts.join(" · ")))?;
        self.count(cost);
        Ok(())
    }

    fn count(&mut self, cost: &Cost) {
        if self.costs.last().is_none_or(|last| last.stage != self.stage) {
            let stage = self.stage.clone();
            self.costs.push(StageCost { stage, calls: 0, cost: Cost::default() });
        }
        if let Some(last) = self.costs.last_mut() {
            last.calls += 1;
            last.cost += *cost;
        }
    }

    fn rewound(&mut self, messages: &[(Role, String)], tokens: u64) -> std::io::Result<()> {
        let mark =
            magenta().apply_to(format!("↶ taken back ({tokens} tokens, the template's included):"));
        writeln!(self.out, "  {mark}")?;
        let struck = Style::new().dim().strikethrough();
        for (_, text) in messages {
            // It was on the screen a moment ago; a few lines say which it is.
            let shown = if self.verbose { text.clone() } else { excerpt(text, 8) };
            self.block(&shown, &struck)?;
        }
        Ok(())
    }

    fn units(&mut self, units: &[String], errors: &[String]) -> std::io::Result<()> {
        self.units = units.len();
        if let Some(first) = errors.first() {
            let mark = yellow().apply_to("? the program does not parse whole:");
            writeln!(self.out, "  {mark} {}; it is judged as it stands", clean(first))?;
        }
        let unit = if units.len() == 1 { "unit" } else { "units" };
        writeln!(self.out, "  the program is read as {} {unit}", units.len())
    }

    fn judged(
        &mut self,
        unit: usize,
        candidate: usize,
        verdict: Verdict,
        confidence: Option<f64>,
        fix: Option<&str>,
    ) -> std::io::Result<()> {
        let of = if self.units > 0 { format!(" of {}", self.units) } else { String::new() };
        let confidence = confidence.map_or(String::new(), |c| format!(", confidence {c:.2}"));
        let word = match verdict {
            Verdict::Ok => green().apply_to("✓ OK"),
            Verdict::Wrong => red().apply_to("✗ WRONG"),
            Verdict::Unparsed => yellow().apply_to("? no verdict"),
        };
        writeln!(self.out, "  {word} unit {unit}{of}, candidate {candidate}{confidence}")?;
        if let Some(fix) = fix {
            writeln!(self.out, "  {}", green().apply_to("fix:"))?;
            self.block(fix, &green())?;
        }
        Ok(())
    }

    fn ran(&mut self, outcome: &str, answer: Option<&str>, stdout: &str) -> std::io::Result<()> {
        let answer = answer.map_or(String::new(), |a| format!(", ans = {}", clean(a)));
        writeln!(self.out, "  ran in the sandbox: {}{answer}", clean(outcome))?;
        if stdout.trim().is_empty() { Ok(()) } else { self.block(&excerpt(stdout, 8), &dim()) }
    }

    /// `text` with a bar before each line.
    fn block(&mut self, text: &str, style: &Style) -> std::io::Result<()> {
        for line in clean(text).trim_end_matches('\n').split('\n') {
            writeln!(self.out, "  │ {}", style.apply_to(line))?;
        }
        Ok(())
    }

    fn table(&mut self, seconds: f64) -> std::io::Result<()> {
        writeln!(self.out)?;
        self.out.write_all(cost_table(&self.costs, seconds).as_bytes())
    }
}

/// The cost table: a row a stage, and their sum. Columns in tokens, but calls and seconds.
pub fn cost_table(stages: &[StageCost], wall_seconds: f64) -> String {
    let mut rows = stages.to_vec();
    let mut total = StageCost { stage: "total".to_owned(), calls: 0, cost: Cost::default() };
    for row in stages {
        total.calls += row.calls;
        total.cost += row.cost;
    }
    rows.push(total);
    let wide = rows.iter().map(|r| r.stage.chars().count()).max().unwrap_or(5).max(5);
    let mut text = format!(
        "{:wide$}  {:>5}  {:>8}  {:>8}  {:>8}  {:>9}  {:>8}\n",
        "cost", "calls", "prompt", "cached", "computed", "generated", "seconds"
    );
    for row in &rows {
        let c = &row.cost;
        text.push_str(&format!(
            "{:wide$}  {:>5}  {:>8}  {:>8}  {:>8}  {:>9}  {:>8.2}\n",
            row.stage,
            row.calls,
            c.prompt_tokens,
            c.cached_tokens,
            c.computed_tokens,
            c.generated_tokens,
            c.seconds
        ));
    }
    text.push_str(&format!("{wall_seconds:.2} s in all, the sandbox and the reading included\n"));
    text
}

/// Text that a terminal shows as it is: a model's control characters (escape sequences among
/// them) become visible marks and act on nothing.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            '\u{7f}' => '␡',
            c if (c as u32) < 0x20 => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
            // So do the marks that turn the direction of writing.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Characters of a line that an excerpt shows.
const EXCERPT_WIDTH: usize = 240;

/// The first `lines` lines, none of them endless, and how many more there are.
fn excerpt(text: &str, lines: usize) -> String {
    let all = text.lines().count();
    let kept = if all <= lines + 1 { all } else { lines };
    let mut shown: Vec<String> = text.lines().take(kept).map(shortened).collect();
    if kept < all {
        shown.push(format!("… {} more lines", all - kept));
    }
    shown.join("\n")
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(EXCERPT_WIDTH) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

fn dim() -> Style {
    Style::new().dim()
}

fn bold() -> Style {
    Style::new().bold()
}

fn green() -> Style {
    Style::new().green()
}

fn red() -> Style {
    Style::new().red()
}

fn yellow() -> Style {
    Style::new().yellow()
}

fn cyan() -> Style {
    Style::new().cyan()
}

fn magenta() -> Style {
    Style::new().magenta()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_of_a_model_become_visible_and_harmless() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n\tc\u{7f}\u{9b}"), "a␛[2Jb␍\n\tc␡\u{fffd}");
    }

    #[test]
    fn an_excerpt_says_how_much_is_left_out() {
        assert_eq!(excerpt("1\n2\n3\n4", 2), "1\n2\n… 2 more lines");
        assert_eq!(excerpt("1\n2\n3", 2), "1\n2\n3");
        let long = "x".repeat(EXCERPT_WIDTH + 5);
        assert_eq!(excerpt(&long, 3).chars().count(), EXCERPT_WIDTH + 1);
    }

    #[test]
    fn the_table_adds_up() {
        let cost = Cost {
            prompt_tokens: 10,
            cached_tokens: 4,
            computed_tokens: 6,
            generated_tokens: 3,
            seconds: 0.5,
            ..Cost::default()
        };
        let stage = |name: &str| StageCost { stage: name.to_owned(), calls: 2, cost };
        let table = cost_table(&[stage("program"), stage("align")], 1.25);
        let total = table.lines().find(|l| l.starts_with("total")).unwrap();
        let numbers: Vec<&str> = total.split_whitespace().skip(1).collect();
        assert_eq!(numbers, ["4", "20", "8", "12", "6", "1.00"]);
        assert!(table.ends_with("1.25 s in all, the sandbox and the reading included\n"));
    }
}
