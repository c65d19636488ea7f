//! Numbers as they are written: thousands, decimals, repeating digits, powers of ten, other bases.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};

use super::lex::Lexer;
use super::limits::MAX_DIGITS;
use super::names::number_word;
use super::token::Literal;

impl Lexer {
    /// The number that begins here. None where it has more digits than are looked at.
    pub(super) fn number(&mut self) -> Option<Literal> {
        if self.wanted > 0 {
            // `\frac12`: a digit is an argument.
            let digit = self.peek(0)?.to_digit(10)?;
            self.at += 1;
            return Some(Literal::exact(BigRational::from_integer(BigInt::from(digit))));
        }
        let mut digits = self.digits();
        if (1..=3).contains(&digits.len()) && !digits.starts_with('0') {
            while let Some(length) = self.thousands() {
                self.at += length;
                digits.push_str(&self.digits());
            }
        }
        let mut part = String::new();
        let point = self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit());
        if point {
            self.at += 1;
            part = self.digits();
            while self.follows(0, "\\,") && (2..5).all(|n| self.is_digit(n)) {
                self.at += 2;
                part.push_str(&self.digits());
            }
        } else if self.peek(0) == Some('.') && self.repeats(1).is_some() {
            self.at += 1;
        }
        if digits.len() + part.len() > MAX_DIGITS {
            return None;
        }
        let scale = BigInt::from(10).pow(u32::try_from(part.len()).ok()?);
        let all = format!("0{digits}{part}").parse::<BigInt>().ok()?;
        let value = BigRational::new(all, scale.clone());
        if let Some((block, length)) = self.repeats(0) {
            self.at += length;
            return Some(Literal::exact(value + repeated(&block, &scale)?));
        }
        let goes_on = point && self.ellipsis();
        if goes_on && let Some(exact) = self.guessed(&digits, &part) {
            return Some(Literal::exact(exact));
        }
        let significant = format!("{digits}{part}").trim_start_matches('0').len();
        let decimals = point.then_some(part.len());
        let width = digits.len() + part.len();
        Some(self.scaled(Literal { value, decimals, significant, width, goes_on }))
    }

    fn is_digit(&self, ahead: usize) -> bool {
        self.peek(ahead).is_some_and(|c| c.is_ascii_digit())
    }

    fn digits(&mut self) -> String {
        let start = self.at;
        while self.is_digit(0) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// The length of a separator of thousands, where one and three digits follow. A bare comma or space
    /// is one outside brackets only: in `(100,200)` it separates.
    fn thousands(&self) -> Option<usize> {
        const SIGNS: [&str; 9] =
            [",\\! ", ",\\!", "\\!,", "{,}", "\\,", "\\ ", "\u{2009}", "\u{202f}", "\u{a0}"];
        let three = |at: usize| (0..3).all(|n| self.is_digit(at + n)) && !self.is_digit(at + 3);
        let sign = SIGNS.iter().find(|sign| self.follows(0, sign) && three(sign.chars().count()));
        if let Some(sign) = sign {
            return Some(sign.chars().count());
        }
        let bare = self.brackets == 0 && matches!(self.peek(0), Some(',' | ' ')) && three(1);
        // `4 100/3` is a mixed number, not thousands.
        let mixed = self.peek(0) == Some(' ') && self.peek(4) == Some('/');
        (bare && !mixed).then_some(1)
    }

    /// `\overline{36}` or `\bar{3}`: the digits, and the length of the whole.
    fn repeats(&self, ahead: usize) -> Option<(String, usize)> {
        let sign = ["\\overline{", "\\bar{"].into_iter().find(|sign| self.follows(ahead, sign))?;
        let begin = ahead + sign.len();
        let mut block = String::new();
        while let Some(c) = self.peek(begin + block.len()).filter(char::is_ascii_digit) {
            block.push(c);
        }
        let closed = self.peek(begin + block.len()) == Some('}');
        let sound = closed && (1..=40).contains(&block.len());
        sound.then(|| (block.clone(), begin + block.len() + 1 - ahead))
    }

    /// Passes over a sign that digits go on.
    fn ellipsis(&mut self) -> bool {
        let signs = ["...", "…", "\\ldots", "\\dots", "\\cdots"];
        let sign = signs.into_iter().find(|sign| self.follows(0, sign));
        self.at += sign.map_or(0, |sign| sign.chars().count());
        sign.is_some()
    }

    /// The value of digits that go on, where their end repeats at least three times (twice for blocks of
    /// three and more): `0.333…`, `0.1666…`, `0.142857142857…`.
    fn guessed(&self, digits: &str, part: &str) -> Option<BigRational> {
        let block = (1..=12.min(part.len() / 2)).find(|length| {
            let times = if *length < 3 { 3 } else { 2 };
            let block = &part[part.len() - length..];
            part.len() >= length * times
                && (1..=times).all(|n| &part[part.len() - n * length..][..*length] == block)
        })?;
        let scale = BigInt::from(10).pow(u32::try_from(part.len()).ok()?);
        let all = format!("0{digits}{part}").parse::<BigInt>().ok()?;
        let rest = repeated(&part[part.len() - block..], &scale)?;
        Some(BigRational::new(all, scale) + rest)
    }

    /// The number times ten to the power that follows it as `e5`.
    fn scaled(&mut self, literal: Literal) -> Literal {
        let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
        let length = (0..4).take_while(|n| self.is_digit(1 + sign + n)).count();
        let ends = !self.peek(1 + sign + length).is_some_and(char::is_alphanumeric);
        if !matches!(self.peek(0), Some('e' | 'E')) || !(1..=3).contains(&length) || !ends {
            return literal;
        }
        let power: String = self.chars[self.at + 1 + sign..][..length].iter().collect();
        let negative = self.peek(1) == Some('-');
        self.at += 1 + sign + length;
        let ten = BigInt::from(10).pow(power.parse().unwrap_or(0));
        let value = if negative { literal.value / ten } else { literal.value * ten };
        Literal::exact(value)
    }

    /// `2BC_{16}`, `4343_6`: the digits, their base, and the length of it all.
    pub(super) fn based(&self) -> Option<(String, u32, usize)> {
        if self.wanted > 0 {
            return None;
        }
        let mut digits = String::new();
        while let Some(c) =
            self.peek(digits.len()).filter(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
        {
            digits.push(c);
        }
        let sure = digits.chars().any(|c| c.is_ascii_digit()) || digits.len() > 1;
        if !sure || self.peek(digits.len()) != Some('_') || digits.len() > MAX_DIGITS {
            return None;
        }
        let (base, length) = self.base(digits.len() + 1)?;
        let sound = (2..=36).contains(&base) && digits.chars().all(|c| c.is_digit(base));
        let length = digits.len() + 1 + length;
        sound.then_some((digits, base, length))
    }

    /// The base that is written `ahead` of here, and the length of its writing.
    fn base(&self, ahead: usize) -> Option<(u32, usize)> {
        if let Some(digit) = self.peek(ahead).and_then(|c| c.to_digit(10)) {
            return Some((digit, 1));
        }
        if self.peek(ahead) != Some('{') {
            return None;
        }
        let inner: String = self.chars[self.at + ahead..].iter().skip(1).take(24).collect();
        let word = inner.strip_prefix("\\text{").and_then(|rest| rest.split_once("}}"));
        if let Some((word, _)) = word {
            let base = number_word(word.trim()).or_else(|| word.trim().parse().ok())?;
            return Some((base, "{\\text{".len() + word.chars().count() + 2));
        }
        let (number, _) = inner.split_once('}')?;
        Some((number.trim().parse().ok()?, number.chars().count() + 2))
    }
}

/// What a block of digits adds that repeats for ever after `1 / scale`.
fn repeated(block: &str, scale: &BigInt) -> Option<BigRational> {
    let nines = BigInt::from(10).pow(u32::try_from(block.len()).ok()?) - BigInt::one();
    let digits = block.parse::<BigInt>().ok()?;
    if nines.is_zero() { None } else { Some(BigRational::new(digits, nines * scale)) }
}
