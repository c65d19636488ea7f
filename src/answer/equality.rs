//! Whether two answers are the same number. Three-valued: what is not a number is not decided.

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Equality {
    Equal,
    Different,
    /// At least one side is no number that could be read exactly, and the texts differ.
    Undecided,
}

/// Compares two answers exactly: integers, decimals and fractions, and no tolerance.
pub fn compare(one: &str, other: &str) -> Equality {
    match (Number::read(one), Number::read(other)) {
        (Some(a), Some(b)) => a.compare(&b),
        _ if one.trim() == other.trim() && !one.trim().is_empty() => Equality::Equal,
        _ => Equality::Undecided,
    }
}

/// `numerator / divisor`, each a decimal.
struct Number {
    numerator: Decimal,
    divisor: Option<Decimal>,
}

impl Number {
    fn read(text: &str) -> Option<Self> {
        let text = text
            .trim()
            .trim_matches(['$', '€', '£', '*', ' '])
            .trim_end_matches(['.', '%', '$', ' '])
            .replace('−', "-");
        let (numerator, divisor) = match text.split_once('/') {
            Some((n, d)) => (n, Some(Decimal::read(d).filter(|d| !d.digits.is_empty())?)),
            None => (text.as_str(), None),
        };
        Some(Self { numerator: Decimal::read(numerator)?, divisor })
    }

    fn compare(&self, other: &Self) -> Equality {
        let same = match (&self.divisor, &other.divisor) {
            (None, None) => self.numerator == other.numerator,
            _ => match (self.cross(other), other.cross(self)) {
                (Some(a), Some(b)) => a == b,
                _ => return Equality::Undecided,
            },
        };
        if same { Equality::Equal } else { Equality::Different }
    }

    /// This numerator times the other's divisor, in units of 10^-(all decimals of both sides).
    fn cross(&self, other: &Self) -> Option<i128> {
        let one = Decimal { negative: false, digits: "1".into(), decimals: 0 };
        let divisor = other.divisor.as_ref().unwrap_or(&one);
        let mine = self.divisor.as_ref().unwrap_or(&one);
        let lift = u32::try_from(other.numerator.decimals + mine.decimals).ok()?;
        self.numerator
            .scaled()?
            .checked_mul(divisor.scaled()?)?
            .checked_mul(10i128.checked_pow(lift)?)
    }
}

/// A decimal of any length: digits without leading zeros, `decimals` of them after the point and
/// the last of those not zero.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    decimals: usize,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let text = text.trim_start_matches(['$', '€', '£', ' ']);
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let whole = without_thousands(whole)?;
        let part = part.trim_end_matches('0');
        let digit = |c: char| c.is_ascii_digit();
        let any = text.chars().any(digit);
        if !any || !whole.chars().all(digit) || !part.chars().all(digit) {
            return None;
        }
        let digits = format!("{whole}{part}").trim_start_matches('0').to_owned();
        Some(Self { negative: negative && !digits.is_empty(), digits, decimals: part.len() })
    }

    fn scaled(&self) -> Option<i128> {
        let value = if self.digits.is_empty() { 0 } else { self.digits.parse::<i128>().ok()? };
        Some(if self.negative { -value } else { value })
    }
}

/// `1,234,567` without its commas; a comma elsewhere makes it no number.
fn without_thousands(whole: &str) -> Option<String> {
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let rest: Vec<&str> = groups.collect();
    if rest.is_empty() {
        return Some(first.to_owned());
    }
    let sound = (1..=3).contains(&first.len()) && rest.iter().all(|g| g.len() == 3);
    sound.then(|| format!("{first}{}", rest.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Equality::{Different, Equal, Undecided};

    #[test]
    fn numbers_compare_exactly() {
        let cases = [
            ("39", "39.0", Equal),
            ("$1,234", "1234", Equal),
            ("-0", "0.00", Equal),
            (".5", "1/2", Equal),
            ("3/4", "6/8", Equal),
            ("0.3333", "1/3", Different),
            ("10000", "10001", Different),
            ("-4", "4", Different),
            ("12345678901234567890123456789012345678901234567890", "1", Different),
            ("12345678901234567890123456789012345678901234567890/7", "1", Undecided),
            ("5%", "5", Equal),
            ("seven", "7", Undecided),
            ("(B)", "(B)", Equal),
            ("1/0", "1/0", Equal),
            ("1,2", "12", Undecided),
            ("1.5/0.5", "3", Equal),
            ("", "", Undecided),
            ("é", "7", Undecided),
        ];
        for (one, other, verdict) in cases {
            assert_eq!(compare(one, other), verdict, "{one} and {other}");
            assert_eq!(compare(other, one), verdict, "{other} and {one}");
        }
    }
}
