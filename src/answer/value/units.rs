//! Units of measure: what is the same in them, and how one converts into another.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive};

use super::token::{Bracket, Item, Token};

/// A unit as powers of what it measures, and how many of that unit it is. Units that nothing is known of
/// measure themselves.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unit {
    pub measures: BTreeMap<String, i32>,
    pub factor: BigRational,
    /// What the number is multiplied by that stands before it: `18 million dollars`. No part of the unit.
    pub scale: BigRational,
    /// Every part is in the table, so that two such units are told apart.
    pub known: bool,
}

/// What is measured, the names, and the size as numerator and divisor.
const TABLE: [(&str, &str, i64, i64); 44] = [
    ("length", "mm millimeter millimetre", 1, 1_000),
    ("length", "cm centimeter centimetre", 1, 100),
    ("length", "dm decimeter", 1, 10),
    ("length", "m meter metre", 1, 1),
    ("length", "km kilometer kilometre", 1_000, 1),
    ("length", "in inch inches", 127, 5_000),
    ("length", "ft foot feet", 381, 1_250),
    ("length", "yd yard", 1_143, 1_250),
    ("length", "mi mile", 201_168, 125),
    ("mass", "mg milligram", 1, 1_000),
    ("mass", "g gm gram", 1, 1),
    ("mass", "kg kilogram kilo", 1_000, 1),
    ("mass", "lb pound", 45_359_237, 100_000),
    ("mass", "oz ounce", 45_359_237, 1_600_000),
    ("time", "s sec second", 1, 1),
    ("time", "min minute", 60, 1),
    ("time", "h hr hour", 3_600, 1),
    ("time", "day", 86_400, 1),
    ("time", "week", 604_800, 1),
    ("calendar", "month", 1, 1),
    ("calendar", "year yr", 12, 1),
    ("volume", "ml mL milliliter millilitre", 1, 1_000),
    ("volume", "l L liter litre", 1, 1),
    ("gallon", "gallon", 1, 1),
    ("gallon", "quart", 1, 4),
    ("gallon", "pint", 1, 8),
    ("money", "dollar buck", 1, 1),
    ("money", "cent ¢", 1, 100),
    ("euro", "euro", 1, 1),
    ("sterling", "sterling", 1, 1),
    ("rupee", "rupee", 1, 1),
    ("yen", "yen", 1, 1),
    ("angle", "degree deg", 1, 1),
    ("percent", "percent percentage", 1, 1),
    ("count", "unit", 1, 1),
    ("count", "dozen", 12, 1),
    ("count", "hundred", 100, 1),
    ("count", "thousand", 1_000, 1),
    ("count", "million", 1_000_000, 1),
    ("count", "billion", 1_000_000_000, 1),
    ("count", "trillion", 1_000_000_000_000, 1),
    ("count", "lakh", 100_000, 1),
    ("count", "crore", 10_000_000, 1),
    ("speed", "knot", 1, 1),
];

/// Words behind a number that make it another value, or deny it: with one of them nothing is read.
const CHANGERS: [&str; 84] = [
    "is",
    "was",
    "are",
    "were",
    "has",
    "does",
    "not",
    "no",
    "never",
    "isn't",
    "wasn't",
    "wrong",
    "incorrect",
    "false",
    "or",
    "but",
    "than",
    "if",
    "unless",
    "except",
    "without",
    "instead",
    "too",
    "less",
    "fewer",
    "minus",
    "plus",
    "times",
    "divided",
    "multiplied",
    "squared",
    "cubed",
    "doubled",
    "tripled",
    "halved",
    "negative",
    "below",
    "under",
    "above",
    "over",
    "least",
    "most",
    "about",
    "approximately",
    "around",
    "roughly",
    "nearly",
    "almost",
    "half",
    "halves",
    "third",
    "thirds",
    "fourth",
    "fourths",
    "quarter",
    "quarters",
    "fifth",
    "fifths",
    "sixth",
    "sixths",
    "sevenths",
    "eighths",
    "ninths",
    "tenth",
    "tenths",
    "hundredths",
    "thousandths",
    "millionths",
    "billionths",
    "ones",
    "tens",
    "zeros",
    "score",
    "gross",
    "reciprocal",
    "inverse",
    "factorial",
    "mod",
    "modulo",
    "base",
    "hex",
    "binary",
    "power",
    "root",
];

/// Plurals without an s, and words that may stand behind a count by themselves.
const COUNTED: [&str; 29] = [
    "people",
    "children",
    "men",
    "women",
    "mice",
    "geese",
    "teeth",
    "sheep",
    "fish",
    "deer",
    "dice",
    "cattle",
    "pence",
    "oxen",
    "left",
    "remaining",
    "more",
    "total",
    "altogether",
    "each",
    "old",
    "tall",
    "long",
    "wide",
    "deep",
    "away",
    "apart",
    "extra",
    "cc",
];

impl Unit {
    /// The unit of a known name.
    pub(super) fn named(name: &str) -> Self {
        let mut unit = Self::none();
        unit.multiply(name, 1);
        unit
    }

    fn none() -> Self {
        let (factor, scale) = (BigRational::one(), BigRational::one());
        Self { measures: BTreeMap::new(), factor, scale, known: true }
    }

    pub(super) fn is_percent(&self) -> bool {
        self.measures.contains_key("percent")
    }

    /// The same with money that its number has a sign of.
    pub(super) fn with_money(mut self, name: &str) -> Self {
        let money = Self::named(name);
        if money.measures.keys().all(|measure| !self.measures.contains_key(measure)) {
            self.multiply(name, 1);
        }
        self
    }

    fn multiply(&mut self, word: &str, power: i32) {
        let entry = entry(word);
        self.known &= entry.is_some();
        let (measure, factor) = match entry {
            // Pieces are counted: their unit is none.
            Some(("count", factor)) => {
                self.scale *= factor.pow(power);
                return;
            }
            Some((measure, factor)) => (measure.to_owned(), factor),
            None => (singular(&word.to_lowercase()).to_owned(), BigRational::one()),
        };
        self.factor *= factor.pow(power);
        let sum = self.measures.entry(measure.clone()).or_insert(0);
        *sum += power;
        if *sum == 0 {
            self.measures.remove(&measure);
        }
    }
}

fn entry(word: &str) -> Option<(&'static str, BigRational)> {
    let lower = word.to_lowercase();
    let forms = [word, lower.as_str(), singular(&lower)];
    let (measure, _, above, below) =
        TABLE.iter().find(|(_, names, ..)| names.split(' ').any(|name| forms.contains(&name)))?;
    Some((measure, BigRational::new(BigInt::from(*above), BigInt::from(*below))))
}

/// A plural's singular, as far as an `s` makes it.
fn singular(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 1 && !stem.ends_with('s') => stem,
        _ => word,
    }
}

/// Whether words that are in no table name what is counted: there is a plural among them or a known unit
/// beside them, or the count is of at most one; and none of them changes the number.
fn name_things(words: &[String], beside_known: bool, one: bool) -> bool {
    let plural = |word: &str| word.len() > 3 && singular(word).len() < word.len();
    let counted = |word: &String| plural(word) || COUNTED.contains(&word.as_str());
    let changes = |word: &String| CHANGERS.contains(&word.as_str());
    let few = words.len() <= 6;
    few && !words.iter().any(changes) && (beside_known || one || words.iter().any(counted))
}

/// The unit that all these tokens are; none where they are no unit. `one`: it is of at most one.
pub(super) fn unit(items: &[Item], one: bool) -> Option<Unit> {
    let mut unit = Unit::none();
    let (mut sign, mut next_power) = (1, 1);
    let mut last: Option<(String, i32)> = None;
    let mut unknown: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        at += 1;
        match &item.token {
            Token::Word(word) => match word.to_lowercase().as_str() {
                "per" => sign = -1,
                "square" | "sq" => next_power = 2,
                "cubic" | "cu" => next_power = 3,
                "of" | "the" | "each" | "a" | "an" | "in" if last.is_some() => {}
                "mph" => {
                    unit.multiply("mile", 1);
                    unit.multiply("hour", -1);
                }
                "kmph" | "kph" | "kmh" => {
                    unit.multiply("km", 1);
                    unit.multiply("hour", -1);
                }
                lower => {
                    let power = sign * std::mem::replace(&mut next_power, 1);
                    if entry(word).is_some() {
                        unit.multiply(word, power);
                    } else {
                        unknown.push(lower.to_owned());
                    }
                    last = Some((word.clone(), power));
                }
            },
            Token::Symbol(name) if at > 1 && "mshgL".contains(name.as_str()) => {
                unit.multiply(name, sign);
                last = Some((name.clone(), sign));
            }
            Token::Percent => unit.multiply("percent", 1),
            Token::Degree => unit.multiply("degree", 1),
            Token::Money(name) => unit.multiply(name, sign),
            Token::Divide => sign = -1,
            Token::Times => {}
            Token::Open(Bracket::Round | Bracket::Group)
            | Token::Close(Bracket::Round | Bracket::Group) => {}
            Token::Power => {
                let (word, power) = last.take()?;
                let number = items[at..].iter().find_map(|item| match &item.token {
                    Token::Number(n) => Some(n.value.clone()),
                    _ => None,
                });
                let times = number?.to_i32().filter(|n| n.abs() <= 4 && n.is_positive())?;
                unit.multiply(&word, power * (times - 1));
                let length =
                    items[at..].iter().position(|item| matches!(item.token, Token::Number(_)))?;
                at += length + 1;
            }
            _ => return None,
        }
    }
    // `18 square` and `18 per` name nothing.
    if next_power != 1 || matches!(items.last()?.token, Token::Divide) {
        return None;
    }
    if !unknown.is_empty() {
        if !name_things(&unknown, !unit.measures.is_empty(), one) {
            return None;
        }
        unit.known = false;
        let names: Vec<&str> = unknown.iter().map(|word| singular(word)).collect();
        unit.measures.insert(names.join(" "), 1);
    }
    (!items.is_empty()).then_some(unit)
}
