//! Logic units of ten thousand programs: microseconds each, beside the least that reading Python with this
//! grammar can take, which is tree-sitter's parse alone. The programs are made here: functions of nested
//! branches, loops, `try` and `match`, 20 to 200 lines long.

mod measure;

use std::time::Instant;

use measure::{median, record, stop};
use serde_json::json;
use unsay::program::units::{ReadOptions, read};

const PROGRAMS: u64 = 10_000;
const ROUNDS: usize = 5;

fn main() {
    let programs: Vec<String> = (0..PROGRAMS).map(program).collect();
    let bytes: usize = programs.iter().map(String::len).sum();
    let lines: usize = programs.iter().map(|text| text.lines().count()).sum();
    let mut parser = tree_sitter::Parser::new();
    parser
        .set_language(&tree_sitter_python::LANGUAGE.into())
        .unwrap_or_else(|e| stop(&e.to_string()));
    let (mut reads, mut parses, mut units) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        units = programs.iter().map(|text| read(text, &ReadOptions::default()).units.len()).sum();
        reads.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let trees = programs.iter().filter(|text| parser.parse(text, None).is_some()).count();
        parses.push(begun.elapsed().as_secs_f64());
        if trees != programs.len() {
            stop("a program was not parsed");
        }
    }
    let each = |seconds: &[f64]| 1e6 * median(seconds) / PROGRAMS as f64;
    let ratios: Vec<f64> = reads.iter().zip(&parses).map(|(read, parse)| read / parse).collect();
    let facts = json!({
        "programs": PROGRAMS,
        "lines_each": lines as f64 / PROGRAMS as f64,
        "bytes_each": bytes as f64 / PROGRAMS as f64,
        "units_each": units as f64 / PROGRAMS as f64,
        "microseconds_each": each(&reads),
        "microseconds_each_of_the_parse_alone": each(&parses),
        "ratio": median(&ratios),
        "ratio_is": "reading into units / tree-sitter's parse of the same text, alternated",
    });
    println!("{facts:#}");
    record("units", facts);
}

/// A program that its number decides.
fn program(seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut text = String::from("import math\n\n");
    for function in 0..1 + dice.roll(3) {
        text.push_str(&format!("def step_{function}(values, limit=10):\n"));
        text.push_str("    total = 0\n");
        for _ in 0..3 + dice.roll(8) {
            block(&mut dice, 1, &mut text);
        }
        text.push_str("    return total\n\n");
    }
    text.push_str("ans = step_0([3, 1, 2])\n");
    text
}

fn block(dice: &mut Dice, depth: usize, text: &mut String) {
    let pad = "    ".repeat(depth);
    let n = dice.roll(90);
    if depth >= 4 {
        text.push_str(&format!("{pad}total += values[{n} % len(values)]\n"));
        return;
    }
    match dice.roll(8) {
        0 => {
            text.push_str(&format!("{pad}if total > {n}:\n"));
            block(dice, depth + 1, text);
            text.push_str(&format!("{pad}elif total == {n}:\n"));
            block(dice, depth + 1, text);
            text.push_str(&format!("{pad}else:\n"));
            block(dice, depth + 1, text);
        }
        1 => {
            text.push_str(&format!("{pad}for n, value in enumerate(values):\n"));
            block(dice, depth + 1, text);
            text.push_str(&format!("{pad}    if value > {n}:\n{pad}        break\n"));
        }
        2 => {
            text.push_str(&format!("{pad}while total < {n}:\n{pad}    total += 1\n"));
            block(dice, depth + 1, text);
        }
        3 => {
            text.push_str(&format!("{pad}try:\n"));
            block(dice, depth + 1, text);
            text.push_str(&format!("{pad}except (ValueError, IndexError) as error:\n"));
            text.push_str(&format!("{pad}    print(error)\n{pad}finally:\n"));
            block(dice, depth + 1, text);
        }
        4 => {
            text.push_str(&format!("{pad}match total:\n{pad}    case {n}:\n"));
            block(dice, depth + 2, text);
            text.push_str(&format!("{pad}    case _:\n"));
            block(dice, depth + 2, text);
        }
        5 => text.push_str(&format!(
            "{pad}pairs = [(a, b) for a in values for b in values if a + b < {n}]\n"
        )),
        6 => text.push_str(&format!(
            "{pad}total = (math.floor(total / 3)\n{pad}         + {n})  # rounded down\n"
        )),
        _ => text.push_str(&format!("{pad}print(f\"total is {{total + {n}}}\")\n")),
    }
}

/// A small generator of numbers; only the bench's programs depend on it.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}
