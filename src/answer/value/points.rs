//! The value of an expression where its variables have values, to 256 bits.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::exact::{binomial_of, factorial_of};
use super::float::{BITS, MAX_EXPONENT, Real};
use super::limits::{Steps, Stop};
use super::token::Function;
use super::tree::Expr;

/// Two values agree that differ by less than `2^-AGREED` of their size, which is 50 decimal digits.
const AGREED: i64 = 166;
/// However large two values are, they are known to six decimals where they are said to agree.
const DECIMALS: i64 = -20;
/// The largest integer power that is multiplied out.
const MAX_POWER: i64 = 1 << 33;

#[derive(Clone, Debug)]
pub(super) struct Complex {
    pub re: Real,
    pub im: Real,
}

impl Complex {
    fn real(re: Real) -> Self {
        Self { re, im: Real::zero() }
    }

    fn is_real(&self) -> bool {
        self.im.is_zero()
    }

    fn plus(&self, other: &Self) -> Self {
        Self { re: self.re.plus(&other.re), im: self.im.plus(&other.im) }
    }

    fn negative(&self) -> Self {
        Self { re: self.re.negative(), im: self.im.negative() }
    }

    fn times(&self, other: &Self) -> Self {
        if self.is_real() && other.is_real() {
            return Self::real(self.re.times(&other.re));
        }
        let re = self.re.times(&other.re).minus(&self.im.times(&other.im));
        let im = self.re.times(&other.im).plus(&self.im.times(&other.re));
        Self { re, im }
    }

    fn inverse(&self) -> Option<Self> {
        if self.is_real() {
            return Some(Self::real(self.re.inverse()?));
        }
        let square = self.re.times(&self.re).plus(&self.im.times(&self.im)).inverse()?;
        Some(Self { re: self.re.times(&square), im: self.im.negative().times(&square) })
    }

    fn size(&self) -> Option<Real> {
        if self.is_real() {
            let negative = self.re.is_negative();
            return Some(if negative { self.re.negative() } else { self.re.clone() });
        }
        self.re.times(&self.re).plus(&self.im.times(&self.im)).root()
    }

    /// The natural logarithm, its imaginary part in (−π, π].
    fn ln(&self) -> Option<Self> {
        if self.is_real() && !self.re.is_negative() {
            return Some(Self::real(self.re.ln()?));
        }
        Some(Self { re: self.size()?.ln()?, im: self.angle()? })
    }

    fn angle(&self) -> Option<Real> {
        if self.re.may_be_zero() {
            let quarter = Real::pi().half();
            let negative = self.im.is_negative();
            let sure = !self.im.may_be_zero();
            return sure.then(|| if negative { quarter.negative() } else { quarter });
        }
        // On the cut itself only where there is no imaginary part at all.
        if self.re.is_negative() && self.im.may_be_zero() && !self.im.is_zero() {
            return None;
        }
        let steep = self.im.times(&self.re.inverse()?).arctan()?;
        Some(match (self.re.is_negative(), self.im.is_negative()) {
            (false, _) => steep,
            (true, false) => steep.plus(&Real::pi()),
            (true, true) => steep.minus(&Real::pi()),
        })
    }

    fn exp(&self) -> Option<Self> {
        let size = self.re.exp()?;
        if self.is_real() {
            return Some(Self::real(size));
        }
        let (cos, sin) = self.im.turn()?;
        Some(Self { re: size.times(&cos), im: size.times(&sin) })
    }
}

/// Whether two values are one: none where they are too close to tell, given their errors.
pub(super) fn agree(one: &Complex, other: &Complex) -> Option<bool> {
    let apart = one.plus(&other.negative());
    if !apart.re.may_be_zero() || !apart.im.may_be_zero() {
        return Some(false);
    }
    let parts = [&one.re, &one.im, &other.re, &other.im];
    // Of zeros there are 50 decimals, of all else 50 digits, of which six stand after the point.
    let zero = parts.iter().all(|part| part.may_be_zero());
    let scale = if zero { 0 } else { parts.into_iter().map(Real::size).max()? };
    let error = apart.re.error().max(apart.im.error());
    (error <= (scale - AGREED).min(DECIMALS)).then_some(true)
}

/// What variables are at a point.
pub(super) trait Point {
    fn of(&self, variable: &str) -> Option<BigRational>;
}

/// A point where there are no variables.
pub(super) struct Nowhere;

impl Point for Nowhere {
    fn of(&self, _: &str) -> Option<BigRational> {
        None
    }
}

/// The variables at one of the points where expressions are compared.
pub(super) struct Sample<'n> {
    pub number: usize,
    pub names: &'n [String],
    /// Beyond all numbers that occur.
    pub far: &'n BigRational,
}

/// Points that are looked at; and how many of them must be in the domain of both sides.
pub(super) const POINTS: usize = 20;
/// More of them, far out on both sides, for what is made of pieces.
pub(super) const FAR_POINTS: usize = 8;
pub(super) const ENOUGH: usize = 4;

impl Point for Sample<'_> {
    fn of(&self, variable: &str) -> Option<BigRational> {
        let at = self.names.iter().position(|name| name == variable)?;
        let mixed = mix((self.number * 64 + at) as u64);
        let part = BigRational::new(BigInt::from(mixed % 990 + 5), BigInt::from(1_009));
        let whole = |n: u64| BigRational::from_integer(BigInt::from(mixed / 1_024 % n));
        Some(match self.number {
            0..5 => part,
            5..8 => part + whole(3) + BigRational::one(),
            8..14 => whole(11) + BigRational::one(),
            14..16 => -part,
            // Every pattern of signs of three variables.
            POINTS.. => {
                let size = (part + BigRational::one()) * self.far;
                if self.number >> (at % 3) & 1 == 0 { size } else { -size }
            }
            _ if mixed.is_multiple_of(2) => part + whole(40),
            _ => -part - whole(5),
        })
    }
}

/// A number whose bits have nothing to do with each other's neighbours.
fn mix(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 29;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 32)
}

/// Evaluation at one point, over the real or the complex numbers.
pub(super) struct Evaluation<'e> {
    pub point: &'e dyn Point,
    /// What is not real has no value.
    pub real: bool,
    pub steps: &'e Steps,
}

impl Evaluation<'_> {
    pub(super) fn value(&self, expr: &Expr) -> Result<Complex, Stop> {
        self.steps.take(1)?;
        match expr {
            Expr::Number(value) => Ok(Complex::real(Real::rational(value))),
            Expr::Symbol(name) => {
                let value = self.point.of(name).ok_or(Stop::Undefined)?;
                Ok(Complex::real(Real::rational(&value)))
            }
            Expr::Pi => Ok(Complex::real(Real::pi())),
            Expr::Euler => self.exp(&Complex::real(Real::integer(1))),
            Expr::Imaginary => Ok(Complex { re: Real::zero(), im: Real::integer(1) }),
            Expr::Infinity | Expr::Signed(..) => Err(Stop::Undefined),
            Expr::Sum(terms) => terms.iter().try_fold(Complex::real(Real::zero()), |sum, term| {
                Ok(sum.plus(&self.value(term)?))
            }),
            Expr::Product(parts) => {
                parts.iter().try_fold(Complex::real(Real::integer(1)), |product, part| {
                    Ok(product.times(&self.value(part)?))
                })
            }
            Expr::Negative(inner) => Ok(self.value(inner)?.negative()),
            Expr::Inverse(inner) => self.value(inner)?.inverse().ok_or(Stop::Undefined),
            Expr::Root(index, inner) => {
                let power = BigRational::new(BigInt::one(), BigInt::from(*index));
                self.rational_power(&self.value(inner)?, &power)
            }
            Expr::Power(base, exponent) => self.power(base, exponent),
            Expr::Degrees(inner) => {
                let part = BigRational::new(BigInt::one(), BigInt::from(180));
                let part = Real::pi().times(&Real::rational(&part));
                Ok(self.value(inner)?.times(&Complex::real(part)))
            }
            Expr::Factorial(inner) => {
                let n = self.rational(inner).ok_or(Stop::Undefined)?;
                integer(factorial_of(&n, self.steps)?)
            }
            Expr::Binomial(above, below) => {
                let n = self.rational(above).ok_or(Stop::Undefined)?;
                let k = self.rational(below).ok_or(Stop::Undefined)?;
                integer(binomial_of(&n, &k, self.steps)?)
            }
            Expr::LogBase(base, inner) => {
                let (base, inner) = (self.ln(&self.value(base)?)?, self.ln(&self.value(inner)?)?);
                Ok(inner.times(&base.inverse().ok_or(Stop::Undefined)?))
            }
            Expr::Call(function, inner) => self.call(*function, &self.value(inner)?),
        }
    }

    /// The value of an expression of nothing but rational operations.
    fn rational(&self, expr: &Expr) -> Option<BigRational> {
        self.steps.take(1).ok()?;
        let small = |x: &BigRational| x.numer().bits() + x.denom().bits() < 512;
        match expr {
            Expr::Number(value) => Some(value.clone()),
            Expr::Symbol(name) => self.point.of(name),
            Expr::Negative(inner) => Some(-self.rational(inner)?),
            Expr::Inverse(inner) => {
                let value = self.rational(inner)?;
                (!value.is_zero()).then(|| value.recip())
            }
            Expr::Sum(parts) => parts.iter().try_fold(BigRational::zero(), |sum, part| {
                Some(sum + self.rational(part)?).filter(small)
            }),
            Expr::Product(parts) => parts.iter().try_fold(BigRational::one(), |product, part| {
                Some(product * self.rational(part)?).filter(small)
            }),
            Expr::Power(base, exponent) => {
                let base = self.rational(base)?;
                let exponent = self.rational(exponent)?;
                let power = exponent.is_integer().then(|| exponent.to_integer().to_i64())??;
                let power = i32::try_from(power).ok().filter(|n| (0..64).contains(n))?;
                Some(base.pow(power)).filter(small)
            }
            _ => None,
        }
    }

    fn power(&self, base: &Expr, exponent: &Expr) -> Result<Complex, Stop> {
        if let Some(power) = self.rational(exponent) {
            return self.rational_power(&self.value(base)?, &power);
        }
        let exponent = self.value(exponent)?;
        if *base == Expr::Euler {
            return self.exp(&exponent);
        }
        let base = self.value(base)?;
        self.exp(&exponent.times(&self.ln(&base)?))
    }

    fn rational_power(&self, base: &Complex, power: &BigRational) -> Result<Complex, Stop> {
        self.steps.take(4)?;
        if power.is_integer() {
            let power = power.to_integer().to_i64().ok_or(Stop::TooLarge)?;
            return integer_power(base, power, self.steps);
        }
        let negative = base.re.is_negative() && !base.re.may_be_zero();
        if base.is_real() && !negative && *power.denom() == BigInt::from(2) {
            let root = Complex::real(base.re.root().ok_or(Stop::Undefined)?);
            let above = power.numer().to_i64().ok_or(Stop::TooLarge)?;
            return integer_power(&root, above, self.steps);
        }
        if base.is_real() && base.re.may_be_zero() {
            let exact = base.re.is_zero() && power.is_positive();
            return if exact { Ok(Complex::real(Real::zero())) } else { Err(Stop::Undefined) };
        }
        let exponent = Complex::real(Real::rational(power));
        if !base.is_real() || !negative {
            return self.exp(&exponent.times(&self.ln(base)?));
        }
        // Odd roots of negative numbers are real; even ones have values among complex numbers only.
        if power.denom().bit(0) {
            let size = self.exp(&exponent.times(&self.ln(&base.negative())?))?;
            return Ok(if power.numer().bit(0) { size.negative() } else { size });
        }
        if self.real {
            return Err(Stop::Undefined);
        }
        self.exp(&exponent.times(&self.ln(base)?))
    }

    fn ln(&self, of: &Complex) -> Result<Complex, Stop> {
        self.steps.take(20)?;
        if self.real && of.re.is_negative() {
            return Err(Stop::Undefined);
        }
        of.ln().ok_or(Stop::Undefined)
    }

    fn exp(&self, of: &Complex) -> Result<Complex, Stop> {
        self.steps.take(20)?;
        if of.re.size() > MAX_EXPONENT {
            return Err(Stop::TooLarge);
        }
        of.exp().ok_or(Stop::Undefined)
    }

    fn call(&self, function: Function, of: &Complex) -> Result<Complex, Stop> {
        self.steps.take(10)?;
        match function {
            Function::Exp => return self.exp(of),
            Function::Ln => return self.ln(of),
            Function::Log => {
                let ten = self.ln(&Complex::real(Real::integer(10)))?;
                return Ok(self.ln(of)?.times(&ten.inverse().ok_or(Stop::Undefined)?));
            }
            Function::Abs => return of.size().map(Complex::real).ok_or(Stop::Undefined),
            Function::Cis => {
                let turned = of.times(&Complex { re: Real::zero(), im: Real::integer(1) });
                return self.exp(&turned);
            }
            _ => {}
        }
        if !of.is_real() {
            return Err(Stop::Undefined);
        }
        self.steps.take(10)?;
        real_call(function, &of.re).map(Complex::real).ok_or(Stop::Undefined)
    }
}

fn real_call(function: Function, x: &Real) -> Option<Real> {
    let one = || Real::integer(1);
    match function {
        Function::Sin => Some(x.turn()?.1),
        Function::Cos => Some(x.turn()?.0),
        Function::Tan => x.turn().and_then(|(cos, sin)| Some(sin.times(&cos.inverse()?))),
        Function::Cot => x.turn().and_then(|(cos, sin)| Some(cos.times(&sin.inverse()?))),
        Function::Sec => x.turn()?.0.inverse(),
        Function::Csc => x.turn()?.1.inverse(),
        Function::Arctan => x.arctan(),
        Function::Arcsin => arcsin(x),
        Function::Arccos => Some(Real::pi().half().minus(&arcsin(x)?)),
        Function::Sinh | Function::Cosh | Function::Tanh => {
            let (up, down) = (x.exp()?, x.negative().exp()?);
            let (sum, difference) = (up.plus(&down), up.minus(&down));
            match function {
                Function::Sinh => Some(difference.half()),
                Function::Cosh => Some(sum.half()),
                _ => Some(difference.times(&sum.inverse()?)),
            }
        }
        Function::Floor | Function::Ceiling => {
            let (nearest, same) = x.nearest()?;
            let whole = Real::rational(&BigRational::from_integer(nearest));
            let above = x.minus(&whole).is_negative();
            Some(match (same, function, above) {
                (false, Function::Floor, true) => whole.minus(&one()),
                (false, Function::Ceiling, false) => whole.plus(&one()),
                _ => whole,
            })
        }
        _ => None,
    }
}

fn arcsin(x: &Real) -> Option<Real> {
    let one = Real::integer(1);
    let rest = one.minus(&x.times(x));
    if rest.is_zero() {
        let quarter = Real::pi().half();
        return Some(if x.is_negative() { quarter.negative() } else { quarter });
    }
    if rest.is_negative() || rest.may_be_zero() {
        return None;
    }
    x.times(&rest.root()?.inverse()?).arctan()
}

fn integer(value: BigInt) -> Result<Complex, Stop> {
    Ok(Complex::real(Real::rational(&BigRational::from_integer(value))))
}

fn integer_power(base: &Complex, power: i64, steps: &Steps) -> Result<Complex, Stop> {
    if power == 0 && base.re.may_be_zero() && base.im.may_be_zero() {
        return Err(Stop::Undefined);
    }
    if power.abs() > MAX_POWER || base.re.size() > 64 * BITS {
        return Err(Stop::TooLarge);
    }
    let mut base = if power < 0 { base.inverse().ok_or(Stop::Undefined)? } else { base.clone() };
    let mut left = power.unsigned_abs();
    let mut result = Complex::real(Real::integer(1));
    while left > 0 {
        steps.take(1)?;
        if left & 1 == 1 {
            result = result.times(&base);
        }
        left >>= 1;
        if left > 0 {
            base = base.times(&base);
        }
    }
    Ok(result)
}
