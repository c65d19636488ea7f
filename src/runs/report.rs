//! The table of a run, made from its journal alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::answer::Scores;
use crate::llm::Cost;
use crate::methods::ralu::repair::{Judgment, Repair};
use crate::stats;

use super::plan::Plan;
use super::record::{Ended, Record, Verdict};

/// Resamples of the bootstrap, and the seed of its draw.
const RESAMPLES: usize = 10_000;
const DRAW: u64 = 0;

/// A run in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub task: String,
    pub model: String,
    pub model_digest: String,
    pub prompts_digest: String,
    /// Items of the whole set that papers report on.
    pub whole: usize,
    /// Items that each row should have: the plan's, times its seeds.
    pub wanted: usize,
    pub seeds: usize,
    pub rows: Vec<Row>,
    /// Each further row against the first.
    pub comparisons: Vec<Comparison>,
}

/// One method.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// As in tables.
    pub name: String,
    /// As the plan names it.
    pub method: String,
    pub finished: usize,
    pub right: usize,
    pub wrong: usize,
    pub undecided: usize,
    pub failed: usize,
    /// Percent right of what is finished: the mean over seeds that have something finished.
    pub accuracy: Option<f64>,
    /// The sample's standard deviation over those seeds, in points; none where the replies are drawn at
    /// temperature 0, since all seeds are then one run.
    pub std: Option<f64>,
    pub deterministic: bool,
    pub cost: Cost,
    /// Of items, summed; what ran side by side counts for each.
    pub seconds: f64,
    pub rounds: u64,
    pub format_failures: u64,
    /// Shares beside the verdicts, over what was answered.
    pub scores: Scores,
    /// What the method's own judge is worth, where it has one (RaLU, A.3).
    pub repair: Option<Repair>,
}

/// A method against the first one, on the items that both have finished.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub name: String,
    pub against: String,
    pub pairs: usize,
    pub right_to_right: u64,
    pub right_to_wrong: u64,
    pub wrong_to_right: u64,
    pub wrong_to_wrong: u64,
    /// McNemar's exact test, two-sided. Pairs are taken as independent, also those of one item's seeds.
    pub mcnemar_p: f64,
    /// Difference of accuracies in points, over items (each the mean over its seeds), with the 95 %
    /// interval of a paired bootstrap over items.
    pub difference: Option<f64>,
    pub interval: Option<(f64, f64)>,
}

impl Report {
    /// Counts a run.
    pub fn of<'a>(plan: &Plan, records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut by_method: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
        for record in records {
            by_method.entry(record.key.method.clone()).or_default().push(record);
        }
        let labels: Vec<String> = plan.methods.iter().map(super::MethodPlan::label).collect();
        let of = |label: &str| by_method.get(label).map_or(&[][..], Vec::as_slice);
        let deterministic = plan.temperature == Some(0.0);
        let rows: Vec<Row> =
            labels.iter().map(|label| Row::of(label, of(label), deterministic)).collect();
        let comparisons = labels
            .iter()
            .zip(&rows)
            .skip(1)
            .map(|(label, row)| Comparison::of(&rows[0].name, of(&labels[0]), &row.name, of(label)))
            .collect();
        Self {
            task: plan.task.clone(),
            model: plan.model.clone(),
            model_digest: plan.model_digest.clone(),
            prompts_digest: plan.prompts_digest.clone(),
            whole: plan.whole,
            wanted: plan.items.len() * plan.seeds.len(),
            seeds: plan.seeds.len(),
            rows,
            comparisons,
        }
    }

    /// The tables as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "# {} · {}\n", self.task, self.model);
        let _ = writeln!(
            out,
            "Model {}, prompts {}. {} of {} items × {} seed(s) for each row.\n",
            short(&self.model_digest),
            short(&self.prompts_digest),
            self.wanted / self.seeds.max(1),
            self.whole,
            self.seeds
        );
        table(
            &mut out,
            &[
                "method",
                "accuracy %",
                "right of finished",
                "wrong",
                "undecided",
                "failed",
                "prompt",
                "cached",
                "computed",
                "generated",
                "seconds",
                "rounds",
                "off format",
            ],
            &self.rows.iter().map(|row| row.cells(self)).collect::<Vec<_>>(),
        );
        let shares: Vec<Vec<String>> = self
            .rows
            .iter()
            .flat_map(|row| row.scores.iter().map(move |(name, score)| (row, name, score)))
            .map(|(row, name, score)| {
                let percent = format!("{:.1}", 100.0 * score.sum / score.of);
                let of = format!("{} of {}", rounded(score.sum), rounded(score.of));
                vec![row.name.clone(), name.clone(), percent, of]
            })
            .collect();
        if !shares.is_empty() {
            out.push('\n');
            table(&mut out, &["of what was answered", "share", "%", "sum"], &shares);
        }
        if !self.comparisons.is_empty() {
            out.push('\n');
            table(
                &mut out,
                &[
                    "against the first",
                    "pairs",
                    "right → right",
                    "right → wrong",
                    "wrong → right",
                    "wrong → wrong",
                    "McNemar p",
                    "difference, points [95 %]",
                ],
                &self.comparisons.iter().map(Comparison::cells).collect::<Vec<_>>(),
            );
        }
        let judges: Vec<_> =
            self.rows.iter().filter_map(|row| Some((row, row.repair.as_ref()?))).collect();
        if !judges.is_empty() {
            out.push('\n');
            let cells = |(row, repair): &(&Row, &Repair)| {
                let share =
                    |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.3}"));
                let pays = match repair.pays() {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "–",
                };
                vec![
                    row.name.clone(),
                    repair.questions.to_string(),
                    share(repair.alpha),
                    share(repair.beta),
                    share(repair.p),
                    share(repair.gamma),
                    share(repair.right_all_the_same),
                    pays.to_owned(),
                ]
            };
            table(
                &mut out,
                &[
                    "the method's own judge",
                    "questions",
                    "α",
                    "β",
                    "p",
                    "γ repair",
                    "right all the same",
                    "repair pays",
                ],
                &judges.iter().map(cells).collect::<Vec<_>>(),
            );
        }
        out.push_str(
            "\nUndecided and failed items count as not right. `wrong` in transitions is all that is not \
             right. Seconds are summed over items, those side by side too; cached and computed depend on \
             what ran beside an item, the rest does not.\n",
        );
        out
    }

    /// One line for each method, for other programs.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "task,model,row,method,wanted,finished,right,wrong,undecided,failed,accuracy,std,\
             deterministic,prompt_tokens,cached_tokens,computed_tokens,generated_tokens,seconds,rounds,\
             format_failures\n",
        );
        for row in &self.rows {
            let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.4}"));
            let cells = [
                quoted(&self.task),
                quoted(&self.model),
                quoted(&row.name),
                quoted(&row.method),
                self.wanted.to_string(),
                row.finished.to_string(),
                row.right.to_string(),
                row.wrong.to_string(),
                row.undecided.to_string(),
                row.failed.to_string(),
                number(row.accuracy),
                number(row.std),
                row.deterministic.to_string(),
                row.cost.prompt_tokens.to_string(),
                row.cost.cached_tokens.to_string(),
                row.cost.computed_tokens.to_string(),
                row.cost.generated_tokens.to_string(),
                format!("{:.3}", row.seconds),
                row.rounds.to_string(),
                row.format_failures.to_string(),
            ];
            let _ = writeln!(out, "{}", cells.join(","));
        }
        out
    }
}

/// A sum of shares: whole where it is, else to two places.
fn rounded(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl Row {
    fn of(label: &str, records: &[&Record], deterministic: bool) -> Self {
        let count = |is: &dyn Fn(&Ended) -> bool| records.iter().filter(|r| is(&r.ended)).count();
        let with = |wanted: Verdict| {
            count(&|ended| matches!(ended, Ended::Answered { verdict, .. } if *verdict == wanted))
        };
        let mut by_seed: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for record in records {
            by_seed.entry(record.key.seed).or_default().push(percent(record));
        }
        let seeds: Vec<f64> = by_seed.values().filter_map(|of| stats::mean(of)).collect();
        let mut cost = Cost::default();
        records.iter().for_each(|record| cost += record.cost);
        let judgments: Vec<Judgment> = records
            .iter()
            .filter_map(|record| {
                let first = record.first.as_ref()?;
                Some(Judgment {
                    program_right: first.verdict == Verdict::Right,
                    judged_wrong: first.wrong_units > 0,
                    answer_right: record.ended.is_right(),
                })
            })
            .collect();
        let mut scores = Scores::new();
        for record in records {
            let Ended::Answered { scores: of_item, .. } = &record.ended else { continue };
            for (name, score) in of_item {
                let sum = scores.entry(name.clone()).or_default();
                (sum.sum, sum.of) = (sum.sum + score.sum, sum.of + score.of);
            }
        }
        Self {
            name: records.first().map_or(label, |record| &record.row).to_owned(),
            method: label.to_owned(),
            finished: records.len(),
            right: with(Verdict::Right),
            wrong: with(Verdict::Wrong),
            undecided: with(Verdict::Undecided),
            failed: count(&|ended| matches!(ended, Ended::Failed { .. })),
            accuracy: stats::mean(&seeds),
            std: if deterministic { None } else { stats::std(&seeds) },
            deterministic,
            cost,
            seconds: records.iter().map(|record| record.seconds).sum(),
            rounds: records.iter().map(|record| u64::from(record.rounds)).sum(),
            format_failures: records.iter().map(|r| u64::from(r.format_failures)).sum(),
            scores,
            repair: (!judgments.is_empty()).then(|| Repair::of(&judgments)),
        }
    }

    fn cells(&self, report: &Report) -> Vec<String> {
        let accuracy = match (self.accuracy, self.std) {
            (None, _) => "–".to_owned(),
            (Some(mean), Some(std)) => format!("{mean:.1} ± {std:.1}"),
            (Some(mean), None) if self.deterministic => format!("{mean:.1} (deterministic, n = 1)"),
            (Some(mean), None) => format!("{mean:.1}"),
        };
        let finished = match self.finished == report.wanted {
            true => format!("{} of {}", self.right, self.finished),
            false => format!("{} of {} ({} wanted)", self.right, self.finished, report.wanted),
        };
        vec![
            self.name.clone(),
            accuracy,
            finished,
            self.wrong.to_string(),
            self.undecided.to_string(),
            self.failed.to_string(),
            self.cost.prompt_tokens.to_string(),
            self.cost.cached_tokens.to_string(),
            self.cost.computed_tokens.to_string(),
            self.cost.generated_tokens.to_string(),
            format!("{:.1}", self.seconds),
            self.rounds.to_string(),
            self.format_failures.to_string(),
        ]
    }
}

impl Comparison {
    fn of(against: &str, first: &[&Record], name: &str, records: &[&Record]) -> Self {
        let key = |record: &Record| (record.key.item.clone(), record.key.seed, record.key.sample);
        let others: BTreeMap<_, bool> =
            first.iter().map(|record| (key(record), record.ended.is_right())).collect();
        let mut cells = [[0u64; 2]; 2];
        let mut by_item: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for record in records {
            let Some(&was) = others.get(&key(record)) else { continue };
            let is = record.ended.is_right();
            cells[usize::from(was)][usize::from(is)] += 1;
            let difference = 100.0 * (f64::from(u8::from(is)) - f64::from(u8::from(was)));
            by_item.entry(&record.key.item).or_default().push(difference);
        }
        let differences: Vec<f64> = by_item.values().filter_map(|of| stats::mean(of)).collect();
        let [[wrong_to_wrong, wrong_to_right], [right_to_wrong, right_to_right]] = cells;
        Self {
            name: name.to_owned(),
            against: against.to_owned(),
            pairs: cells.iter().flatten().sum::<u64>() as usize,
            right_to_right,
            right_to_wrong,
            wrong_to_right,
            wrong_to_wrong,
            mcnemar_p: stats::mcnemar(right_to_wrong, wrong_to_right),
            difference: stats::mean(&differences),
            interval: stats::bootstrap(&differences, RESAMPLES, DRAW),
        }
    }

    fn cells(&self) -> Vec<String> {
        let difference = match (self.difference, self.interval) {
            (Some(mean), Some((low, high))) => format!("{mean:+.1} [{low:+.1}, {high:+.1}]"),
            _ => "–".to_owned(),
        };
        vec![
            format!("{} against {}", self.name, self.against),
            self.pairs.to_string(),
            self.right_to_right.to_string(),
            self.right_to_wrong.to_string(),
            self.wrong_to_right.to_string(),
            self.wrong_to_wrong.to_string(),
            format!("{:.4}", self.mcnemar_p),
            difference,
        ]
    }
}

fn percent(record: &Record) -> f64 {
    if record.ended.is_right() { 100.0 } else { 0.0 }
}

/// The first digits of a digest.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// A table whose columns line up also as plain text.
fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let cells =
        |row: &[String]| row.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| cells(row)).collect();
    let width = |column: usize| {
        let all = rows.iter().chain([&head]).map(|row| row[column].chars().count());
        all.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    out.push_str(&line(&head));
    let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    out.push_str(&line(&rules));
    rows.iter().for_each(|row| out.push_str(&line(row)));
}

/// A cell of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{First, Key};
    use super::super::{MethodPlan, SCHEMA};
    use super::*;

    fn plan(temperature: Option<f32>) -> Plan {
        let method = |text: &str| MethodPlan::read(text).unwrap();
        Plan {
            schema: SCHEMA,
            task: "sums".into(),
            data: "sums.jsonl".into(),
            data_digest: "00".into(),
            whole: 8,
            items: vec!["a".into(), "b".into(), "c".into(), "d".into()],
            methods: vec![method("direct"), method("ralu:synthesis=rebuilt")],
            model: "m".into(),
            model_digest: "0123456789abcdef".into(),
            quantise: None,
            adapter: None,
            merge: false,
            thinking: None,
            thinking_budget: None,
            kv: "f16".into(),
            context: None,
            prompts_digest: "fedcba9876543210".into(),
            prompts: None,
            seeds: vec![0, 1],
            temperature,
            max_tokens: None,
        }
    }

    fn record(method: &str, item: &str, seed: u64, ended: Ended) -> Record {
        Record {
            schema: SCHEMA,
            key: Key {
                task: "sums".into(),
                item: item.into(),
                method: method.into(),
                model_digest: String::new(),
                prompts_digest: String::new(),
                seed,
                sample: 0,
            },
            row: if method == "direct" {
                "direct".into()
            } else {
                "ralu[synthesis=rebuilt]".into()
            },
            ended,
            first: None,
            rounds: 2,
            format_failures: 1,
            cost: Cost {
                prompt_tokens: 10,
                cached_tokens: 7,
                computed_tokens: 3,
                generated_tokens: 5,
                ..Cost::default()
            },
            seconds: 0.5,
        }
    }

    fn answered(verdict: Verdict) -> Ended {
        Ended::Answered { answer: "1".into(), verdict, rule: "value".into(), scores: Scores::new() }
    }

    /// Letters for verdicts: right, wrong, undecided, failed.
    fn records() -> Vec<Record> {
        let ended = |letter: char| match letter {
            'r' => answered(Verdict::Right),
            'w' => answered(Verdict::Wrong),
            'u' => answered(Verdict::Undecided),
            _ => Ended::Failed { failure: "format".into(), why: "no".into() },
        };
        let mut all = Vec::new();
        for (method, seed, letters) in [
            ("direct", 0, "rrwu"),
            ("direct", 1, "rwwf"),
            ("ralu:synthesis=rebuilt", 0, "rwrr"),
            ("ralu:synthesis=rebuilt", 1, "rrwr"),
        ] {
            for (item, letter) in ["a", "b", "c", "d"].into_iter().zip(letters.chars()) {
                all.push(record(method, item, seed, ended(letter)));
            }
        }
        all
    }

    #[test]
    fn the_table_is_what_a_hand_counts() {
        let report = Report::of(&plan(None), &records());
        let [direct, ralu] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!((direct.finished, direct.right, direct.wrong), (8, 3, 3));
        assert_eq!((direct.undecided, direct.failed), (1, 1));
        // 2 and 1 of 4: 50 and 25 percent.
        assert_eq!(direct.accuracy, Some(37.5));
        assert!((direct.std.unwrap() - 312.5f64.sqrt()).abs() < 1e-9);
        assert_eq!((ralu.right, ralu.accuracy, ralu.std), (6, Some(75.0), Some(0.0)));
        assert_eq!((direct.cost.prompt_tokens, direct.seconds, direct.rounds), (80, 4.0, 16));
        assert_eq!(ralu.name, "ralu[synthesis=rebuilt]");
        let [against] = &report.comparisons[..] else { panic!("{report:?}") };
        // Seed 0: rr rw wr ur; seed 1: rr wr ww fr.
        assert_eq!((against.right_to_right, against.right_to_wrong), (2, 1));
        assert_eq!((against.wrong_to_right, against.wrong_to_wrong), (4, 1));
        assert_eq!(against.pairs, 8);
        // 2 (1 + 5) / 32.
        assert!((against.mcnemar_p - 0.375).abs() < 1e-12);
        // Means by item: 0, 0, 50, 100.
        assert_eq!(against.difference, Some(37.5));
        let (low, high) = against.interval.unwrap();
        assert!((0.0..37.5).contains(&low) && (37.5..=100.0).contains(&high));
    }

    #[test]
    fn what_is_missing_is_said_and_greedy_seeds_are_one_run() {
        let all = records();
        let report = Report::of(&plan(Some(0.0)), all.iter().filter(|r| r.key.item != "d"));
        assert_eq!(report.rows[0].std, None);
        let text = report.markdown();
        assert!(text.contains("(deterministic, n = 1)"), "{text}");
        assert!(text.contains("3 of 6 (8 wanted)"), "{text}");
        assert!(!text.contains('±'), "{text}");
        let none = Report::of(&plan(None), &[]);
        assert_eq!((none.rows[1].accuracy, none.comparisons[0].difference), (None, None));
        assert!(none.markdown().contains("0 of 0 (8 wanted)"));
    }

    #[test]
    fn a_judge_is_measured_where_first_programs_are_known() {
        let mut all = records();
        for record in all.iter_mut().filter(|record| record.key.method != "direct") {
            let verdict = if record.key.item == "a" { Verdict::Right } else { Verdict::Wrong };
            let wrong_units = u32::from(record.key.item != "b");
            record.first = Some(First { verdict, units: 3, wrong_units });
        }
        let report = Report::of(&plan(None), &all);
        let repair = report.rows[1].repair.as_ref().unwrap();
        assert_eq!(report.rows[0].repair, None);
        // Right first programs: a twice, both judged WRONG. Of six wrong ones b's two passed.
        assert_eq!((repair.alpha, repair.p), (Some(0.0), Some(0.25)));
        assert!((repair.beta.unwrap() - 4.0 / 6.0).abs() < 1e-12);
        // Judged WRONG: a a c c d d, of which all but c at seed 1 end right.
        assert!((repair.gamma.unwrap() - 5.0 / 6.0).abs() < 1e-12);
        assert!(report.markdown().contains("repair pays"));
    }

    #[test]
    fn other_programs_read_one_line_a_method() {
        let csv = Report::of(&plan(None), &records()).csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            "sums,m,direct,direct,8,8,3,3,1,1,37.5000,17.6777,false,80,56,24,40,4.000,16,8"
        );
        assert!(
            lines[2].starts_with("sums,m,ralu[synthesis=rebuilt],ralu:synthesis=rebuilt,8,8,6,")
        );
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
