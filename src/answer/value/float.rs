//! Real numbers to 256 bits, each with a bound on its error.
//!
//! Elementary functions are power series after a reduction of the argument, in fixed point with 64 bits
//! beyond what is kept. Errors are bounds on their size as powers of two, and grow as the operations let
//! them grow.

use std::sync::OnceLock;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Bits that are kept.
pub(super) const BITS: i64 = 256;
/// Bits after the point in series.
const FIXED: i64 = BITS + 64;
/// An error that there is none of.
const NONE: i64 = i64::MIN / 8;
/// Bits of the largest exponent of e.
pub(super) const MAX_EXPONENT: i64 = 24;
/// Below this size two powers of a series are enough, and digits are kept from the first one on.
const SMALL: i64 = -80;
/// Largest and smallest exponents that are computed with.
const RANGE: i64 = 1 << 40;

/// `digits · 2^exponent`, give or take `2^error`.
#[derive(Clone, Debug)]
pub(super) struct Real {
    digits: BigInt,
    exponent: i64,
    error: i64,
}

impl Real {
    pub(super) fn zero() -> Self {
        Self { digits: BigInt::zero(), exponent: 0, error: NONE }
    }

    pub(super) fn integer(value: i64) -> Self {
        Self { digits: BigInt::from(value), exponent: 0, error: NONE }
    }

    pub(super) fn rational(value: &BigRational) -> Self {
        let divisor = value.denom().bits() as i64;
        let shift = (BITS + 8 + divisor - value.numer().bits() as i64).max(0);
        if value.is_integer() && value.numer().bits() as i64 <= BITS {
            return Self { digits: value.numer().clone(), exponent: 0, error: NONE };
        }
        let digits = (value.numer() << shift) / value.denom();
        let exact = Self { digits, exponent: -shift, error: NONE };
        exact.kept(-shift + 1)
    }

    fn fixed(digits: BigInt, error: i64) -> Self {
        Self { digits, exponent: -FIXED, error: NONE }.kept(error)
    }

    /// This value with an error of at least that size, cut to the bits that are kept.
    fn kept(mut self, error: i64) -> Self {
        self.error = self.error.max(error);
        if self.error < NONE / 2 {
            self.error = NONE;
        }
        let over = self.digits.bits() as i64 - BITS;
        if over > 0 {
            // Toward zero, for both signs.
            let size = self.digits.magnitude() >> over;
            self.digits = BigInt::from_biguint(self.digits.sign(), size);
            self.exponent += over;
            self.error = larger(self.error, self.exponent);
        }
        self
    }

    /// The power of two just above its size; very low for zero.
    pub(super) fn size(&self) -> i64 {
        if self.digits.is_zero() { NONE } else { self.exponent + self.digits.bits() as i64 }
    }

    pub(super) fn error(&self) -> i64 {
        self.error
    }

    /// Zero without any error.
    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_zero() && self.error == NONE
    }

    /// Zero as far as its error tells.
    pub(super) fn may_be_zero(&self) -> bool {
        self.size() <= self.error + 1
    }

    pub(super) fn is_negative(&self) -> bool {
        self.digits.is_negative()
    }

    pub(super) fn negative(&self) -> Self {
        Self { digits: -&self.digits, ..self.clone() }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let (high, low) =
            if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let error = larger(self.error, other.error);
        let shift = high.exponent - low.exponent;
        if high.digits.is_zero() || low.digits.is_zero() {
            let value = if high.digits.is_zero() { low } else { high };
            return Self { error, ..value.clone() };
        }
        // What is far below the other's last digit is an error of it.
        if shift > 2 * BITS + 8 {
            return Self { error: larger(error, low.size()), ..high.clone() };
        }
        let digits = (&high.digits << shift) + &low.digits;
        Self { digits, exponent: low.exponent, error }.kept(NONE)
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        self.plus(&other.negative())
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        let digits = &self.digits * &other.digits;
        let error = larger(
            larger(self.error + other.size(), other.error + self.size()),
            self.error + other.error,
        );
        let error = if self.is_zero() || other.is_zero() { NONE } else { error };
        let exponent = self.exponent + other.exponent;
        Self { digits, exponent, error: NONE }.kept(error)
    }

    /// One over this. None where it may be zero.
    pub(super) fn inverse(&self) -> Option<Self> {
        if self.may_be_zero() || self.size().abs() > RANGE {
            return None;
        }
        let shift = self.digits.bits() as i64 + BITS + 8;
        let digits = (BigInt::one() << shift) / &self.digits;
        let exponent = -shift - self.exponent;
        let error = larger(exponent, self.error - 2 * self.size() + 3);
        Some(Self { digits, exponent, error: NONE }.kept(error))
    }

    /// The square root of a value that is not negative.
    pub(super) fn root(&self) -> Option<Self> {
        if self.is_zero() {
            return Some(Self::zero());
        }
        if self.may_be_zero() {
            return Some(Self { error: (self.error + 3) / 2, ..Self::zero() });
        }
        if self.is_negative() || self.size().abs() > RANGE {
            return None;
        }
        let mut shift = (2 * BITS + 16 - self.digits.bits() as i64).max(0);
        shift += (self.exponent - shift) & 1;
        let digits = (&self.digits << shift).sqrt();
        let exponent = (self.exponent - shift) / 2;
        let root = Self { digits, exponent, error: NONE };
        let error = larger(exponent, self.error - root.size() + 2);
        Some(root.kept(error))
    }

    /// The digits with `FIXED` bits after the point.
    fn to_fixed(&self) -> BigInt {
        let shift = self.exponent + FIXED;
        if shift >= 0 { &self.digits << shift } else { &self.digits >> -shift }
    }

    /// The nearest integer, and whether the value is as good as that integer.
    pub(super) fn nearest(&self) -> Option<(BigInt, bool)> {
        if self.size() > 2 * BITS || self.error > -8 {
            return None;
        }
        let half = BigInt::one() << (FIXED - 1);
        let nearest: BigInt = (self.to_fixed() + half) >> FIXED;
        let exact = Self { digits: nearest.clone(), exponent: 0, error: NONE };
        Some((nearest, self.minus(&exact).may_be_zero()))
    }

    pub(super) fn exp(&self) -> Option<Self> {
        if self.size() > MAX_EXPONENT || self.error > 0 {
            return None;
        }
        let x = self.to_fixed();
        let turns: BigInt = &x / ln_two();
        let rest = &x - &turns * ln_two();
        let mut value = series(&(rest >> 8));
        for _ in 0..8 {
            value = (&value * &value) >> FIXED;
        }
        let turns = turns.to_i64()?;
        let result = Self { digits: value, exponent: turns - FIXED, error: NONE };
        let size = result.size();
        Some(result.kept(larger(size - BITS - 16, self.error + size + 1)))
    }

    /// The natural logarithm of a positive value.
    pub(super) fn ln(&self) -> Option<Self> {
        if self.is_negative() || self.may_be_zero() || self.size().abs() > RANGE {
            return None;
        }
        // Between 3/4 and 3/2, so that near 1 nothing cancels.
        let mut turns = self.size();
        let scaled =
            |turns: i64| Self { exponent: self.exponent - turns, ..self.clone() }.to_fixed();
        let mut x = scaled(turns);
        if x < (BigInt::from(3) << (FIXED - 2)) {
            turns -= 1;
            x = scaled(turns);
        }
        let one = BigInt::one() << FIXED;
        let z = ((&x - &one) << FIXED) / (&x + &one);
        let value = (arctanh(&z) << 1) + ln_two() * turns;
        let error = larger(
            larger(-BITS - 32, turns.abs().max(1).ilog2() as i64 - BITS - 32),
            self.error - self.size() + 2,
        );
        Some(Self::fixed(value, error))
    }

    /// Cosine and sine.
    pub(super) fn turn(&self) -> Option<(Self, Self)> {
        if self.size() > 30 || self.error > -2 {
            return None;
        }
        if self.size() < SMALL {
            let one = Self::integer(1);
            let square = self.times(self);
            return Some((one.minus(&square.half()), self.near(6, 120)));
        }
        let x = self.to_fixed();
        let quarter: BigInt = pi() >> 1;
        let doubled: BigInt = (&x << 1) + &quarter;
        let turns = doubled.div_floor(&(&quarter << 1));
        let rest = x - &turns * &quarter;
        let square = (&rest * &rest) >> FIXED;
        let cos = alternating(&square, 0);
        let sin = (alternating(&square, 1) * &rest) >> FIXED;
        let error = larger(-BITS - 16, self.error + 1);
        let real = |value: BigInt| Self::fixed(value, error);
        let (cos, sin) = (real(cos), real(sin));
        Some(match turns.to_i64()?.rem_euclid(4) {
            0 => (cos, sin),
            1 => (sin.negative(), cos),
            2 => (cos.negative(), sin.negative()),
            _ => (sin, cos.negative()),
        })
    }

    pub(super) fn arctan(&self) -> Option<Self> {
        if self.size() > 2 {
            let inverse = self.inverse()?.arctan()?;
            let quarter = Self::pi().half();
            let quarter = if self.is_negative() { quarter.negative() } else { quarter };
            return Some(quarter.minus(&inverse));
        }
        if self.size() < SMALL {
            return Some(self.near(3, 5));
        }
        let one = BigInt::one() << FIXED;
        let mut x = self.to_fixed();
        for _ in 0..4 {
            let hypotenuse = ((&one * &one) + &x * &x).sqrt();
            x = (x << FIXED) / (&one + hypotenuse);
        }
        let square = (&x * &x) >> FIXED;
        let mut power = x;
        let mut sum = BigInt::zero();
        let mut n = 1;
        while !power.is_zero() && power != -BigInt::one() {
            let term = &power / n;
            sum = if n % 4 == 1 { sum + term } else { sum - term };
            power = (power * &square) >> FIXED;
            n += 2;
        }
        Some(Self::fixed(sum << 4, larger(-BITS - 16, self.error + 1)))
    }

    /// `x - x³/a + x⁵/b` for a small x: its next term is beyond the bits that are kept.
    fn near(&self, a: i64, b: i64) -> Self {
        let part = |divisor: i64| Self::rational(&BigRational::new(1.into(), divisor.into()));
        let square = self.times(self);
        let fourth = square.times(&square).times(&part(b));
        let factor = Self::integer(1).minus(&square.times(&part(a))).plus(&fourth);
        self.times(&factor)
    }

    pub(super) fn half(&self) -> Self {
        Self { exponent: self.exponent - 1, ..self.clone() }
    }

    pub(super) fn pi() -> Self {
        Self::fixed(pi().clone(), -BITS - 32)
    }
}

/// A bound on the sum of two errors.
fn larger(one: i64, other: i64) -> i64 {
    let (high, low) = (one.max(other), one.min(other));
    if low <= NONE / 2 { high } else { high + 1 }
}

/// The exponential series of a small value.
fn series(x: &BigInt) -> BigInt {
    let mut term = BigInt::one() << FIXED;
    let mut sum = term.clone();
    let mut n = 1u32;
    while !term.is_zero() && n < 200 {
        term = ((&term * x) >> FIXED) / n;
        if term == -BigInt::one() {
            break;
        }
        sum += &term;
        n += 1;
    }
    sum
}

/// `1 - y/2! + y²/4! …` from `first` 0, `1 - y/3! + y²/5! …` from 1.
fn alternating(y: &BigInt, first: u32) -> BigInt {
    let mut term = BigInt::one() << FIXED;
    let mut sum = term.clone();
    let mut n = first;
    while !term.is_zero() && n < 200 {
        term = ((&term * y) >> FIXED) / ((n + 1) * (n + 2));
        n += 2;
        sum = if (n - first) % 4 == 2 { sum - &term } else { sum + &term };
    }
    sum
}

/// The inverse hyperbolic tangent of a value of at most a fifth.
fn arctanh(z: &BigInt) -> BigInt {
    let square = (z * z) >> FIXED;
    let mut power = z.clone();
    let mut sum = BigInt::zero();
    let mut n = 1u32;
    while !power.is_zero() && n < 1_000 {
        sum += &power / n;
        power = (power * &square) >> FIXED;
        if power == -BigInt::one() {
            break;
        }
        n += 2;
    }
    sum
}

fn ln_two() -> &'static BigInt {
    static VALUE: OnceLock<BigInt> = OnceLock::new();
    VALUE.get_or_init(|| arctanh(&((BigInt::one() << FIXED) / 3)) << 1)
}

/// Pi by Machin's formula: 16 arctan 1/5 − 4 arctan 1/239.
fn pi() -> &'static BigInt {
    static VALUE: OnceLock<BigInt> = OnceLock::new();
    fn arctan_of_inverse(n: u32) -> BigInt {
        let guard = 32;
        let mut power = (BigInt::one() << (FIXED + guard)) / n;
        let mut sum = BigInt::zero();
        let mut k = 1u32;
        while !power.is_zero() {
            sum = if k % 4 == 1 { sum + &power / k } else { sum - &power / k };
            power /= n * n;
            k += 2;
        }
        sum >> guard
    }
    VALUE.get_or_init(|| arctan_of_inverse(5) * 16 - arctan_of_inverse(239) * 4)
}
