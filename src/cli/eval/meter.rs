//! What is told of a run under way: a bar in a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::super::output::note;
use crate::llm::Cost;
use crate::runs::{Plan, Progress, Record};

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(15);

/// Counts what is finished.
pub struct Meter {
    /// Of each method, as the plan names it: right and finished.
    rows: Vec<(String, usize, usize)>,
    begun: Instant,
    told: Instant,
    /// What this sitting cost, and how many items it finished.
    cost: Cost,
    here: usize,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// Begins with what earlier sittings finished.
    pub fn new<'a>(plan: &Plan, records: impl Iterator<Item = &'a Record>) -> Self {
        let rows = plan.methods.iter().map(|method| (method.label(), 0, 0)).collect();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(plan.jobs() as u64);
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        let mut meter = Self { rows, begun: now, told: now, cost: Cost::default(), here: 0, bar };
        records.for_each(|record| meter.count(record));
        meter
    }

    fn count(&mut self, record: &Record) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.0 == record.key.method) {
            row.1 += usize::from(record.ended.is_right());
            row.2 += 1;
        }
    }

    /// Another item is finished.
    pub fn tell(&mut self, progress: &Progress<'_>) {
        self.count(progress.record);
        self.cost += progress.record.cost;
        self.here += 1;
        let line = self.line(progress.jobs - progress.finished);
        match &self.bar {
            Some(bar) => {
                bar.set_position(progress.finished as u64);
                bar.set_message(line);
            }
            None if self.told.elapsed() >= EVERY || progress.finished == progress.jobs => {
                self.told = Instant::now();
                note!("{} of {}  {line}", progress.finished, progress.jobs);
            }
            None => {}
        }
    }

    /// Right so far, speed, waste and the time left.
    fn line(&self, left: usize) -> String {
        let rows: BTreeMap<_, _> = self
            .rows
            .iter()
            .map(|(name, right, of)| (name, format!("{name} {right}/{of}")))
            .collect();
        let rows: Vec<String> = rows.into_values().collect();
        let seconds = self.begun.elapsed().as_secs_f64();
        let speed = self.cost.generated_tokens as f64 / seconds;
        let distinct = self.cost.computed_tokens - self.cost.recomputed.total();
        let waste = self.cost.computed_tokens as f64 / distinct.max(1) as f64;
        let left = left as f64 * seconds / self.here as f64;
        format!(
            "right: {} · {speed:.0} tokens/s · waste {waste:.2} · {} left",
            rows.join(", "),
            time(left)
        )
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A time as people say it.
fn time(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}
