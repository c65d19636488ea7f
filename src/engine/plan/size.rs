//! Amounts of memory as users write and read them.

use std::fmt;
use std::str::FromStr;

/// An amount of memory in bytes; read from texts such as `6GiB`, `1.5 GB`, `6144MiB` or plain bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct MemorySize(pub u64);

/// Why a text is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("{text:?} is no amount of memory; write e.g. 6GiB, 6GB, 6144MiB or a number of bytes")]
    NotASize { text: String },
    #[error(
        "{text:?} has the unit {unit:?}; B, kB, MB, GB and TB (powers of 1,000) and KiB, MiB, GiB and \
         TiB (powers of 1,024) are known"
    )]
    Unit { text: String, unit: String },
    #[error("{text:?} is negative; an amount of memory is at least 1 byte")]
    Negative { text: String },
    #[error("{text:?} is no memory at all; give at least 1 byte")]
    Zero { text: String },
    #[error("{text:?} is beyond what a machine can address; the most is 8388607TiB")]
    TooLarge { text: String },
}

impl FromStr for MemorySize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let owned = || text.to_owned();
        let trimmed = text.trim();
        let (negative, rest) = match trimmed.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, trimmed),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = (&rest[..end], rest[end..].trim());
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || part.contains('.') || (number.contains('.') && part.is_empty()) {
            return Err(SizeError::NotASize { text: owned() });
        }
        if negative {
            return Err(SizeError::Negative { text: owned() });
        }
        let factor =
            factor(unit).ok_or_else(|| SizeError::Unit { text: owned(), unit: unit.to_owned() })?;
        let bytes = bytes(whole, part, factor).filter(|&bytes| bytes <= isize::MAX as u64);
        match bytes {
            None => Err(SizeError::TooLarge { text: owned() }),
            Some(0) => Err(SizeError::Zero { text: owned() }),
            Some(bytes) => Ok(Self(bytes)),
        }
    }
}

/// Bytes of one unit.
fn factor(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    })
}

/// `whole.part * factor`, rounded down; None where it does not fit.
fn bytes(whole: &str, part: &str, factor: u64) -> Option<u64> {
    let whole: u64 = whole.parse().ok()?;
    // Digits beyond the eighteenth are below a byte of any unit.
    let part = &part[..part.len().min(18)];
    let tenths = 10u128.pow(part.len() as u32);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let part = part * u128::from(factor) / tenths;
    whole.checked_mul(factor)?.checked_add(u64::try_from(part).ok()?)
}

impl fmt::Display for MemorySize {
    /// Whole MiB, e.g. `1,188 MiB`; below 10 MiB with one digit behind the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", mebibytes(self.0))
    }
}

/// MiB to the nearest, with commas; below 10 with one digit behind the point.
pub(super) fn mebibytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes > 0 && bytes < 10 * MIB {
        // At least 0.1, so that what is there is not shown as nothing.
        return format!("{:.1}", (bytes as f64 / MIB as f64).max(0.1));
    }
    grouped(bytes / MIB + u64::from(bytes % MIB >= MIB / 2))
}

/// A number with a comma before every three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<u64, SizeError> {
        text.parse::<MemorySize>().map(|size| size.0)
    }

    #[test]
    fn what_users_write_is_read() {
        for (text, bytes) in [
            ("6GB", 6_000_000_000),
            ("6GiB", 6 << 30),
            ("6144MiB", 6 << 30),
            ("6442450944", 6 << 30),
            ("6442450944B", 6 << 30),
            (" 6 gib ", 6 << 30),
            ("1.5GiB", 3 << 29),
            ("0.5kB", 500),
            ("1.999999999999999999999999KiB", 2047),
            ("512KiB", 512 << 10),
            ("2TB", 2_000_000_000_000),
            ("1", 1),
        ] {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused_with_the_text() {
        use SizeError::*;
        let text = |text: &str| text.to_owned();
        for word in ["", "GiB", "six", "1..5GiB", ".5GiB", "5.GiB", "+5GiB", "NaN", "infGiB"] {
            assert_eq!(read(word), Err(NotASize { text: text(word) }), "{word}");
        }
        for (word, unit) in [("6 bananas", "bananas"), ("6G", "G"), ("6M", "M"), ("1e9", "e9")] {
            assert_eq!(read(word), Err(Unit { text: text(word), unit: text(unit) }), "{word}");
        }
        assert_eq!(read("-5GiB"), Err(Negative { text: text("-5GiB") }));
        for word in ["0", "0GiB", "0.0", "0.0001B"] {
            assert_eq!(read(word), Err(Zero { text: text(word) }), "{word}");
        }
        for word in ["8388608TiB", "99999999999999999999", "99999999999TiB"] {
            assert_eq!(read(word), Err(TooLarge { text: text(word) }), "{word}");
        }
        assert!(read("6 bananas").unwrap_err().to_string().contains("GiB"));
    }

    #[test]
    fn amounts_are_shown_in_mebibytes() {
        for (bytes, shown) in [
            (0, "0 MiB"),
            (1, "0.1 MiB"),
            (3 << 19, "1.5 MiB"),
            (92 << 20, "92 MiB"),
            ((92 << 20) + (1 << 19), "93 MiB"),
            (1188 << 20, "1,188 MiB"),
            (1_234_567 << 20, "1,234,567 MiB"),
        ] {
            assert_eq!(MemorySize(bytes).to_string(), shown);
        }
    }
}
