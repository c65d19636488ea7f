//! Expressions to quotients in normal form, exactly.

use num_bigint::BigInt;
use num_integer::{Integer, binomial};
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::limits::{Steps, Stop};
use super::poly::{Generator, Monomial, Poly, Quotient, root_of};
use super::token::Function;
use super::tree::Expr;

/// Arguments of factorials up to this are computed.
const MAX_FACTORIAL: u32 = 2_500;
/// Characters of an unknown generator's name.
const MAX_KEY: usize = 4_000;

/// The normal form of an expression.
pub(super) fn exact(expr: &Expr, steps: &Steps) -> Result<Quotient, Stop> {
    steps.take(1)?;
    let generator = |g| Ok(Quotient::of(Poly::generator(g)));
    match expr {
        Expr::Number(value) => number(value.clone()),
        Expr::Symbol(name) => generator(Generator::Variable(name.clone())),
        Expr::Pi => generator(Generator::Pi),
        Expr::Euler => generator(Generator::Euler),
        Expr::Imaginary => generator(Generator::Imaginary),
        Expr::Infinity => Err(Stop::Undefined),
        Expr::Signed(..) => Err(Stop::Unread),
        Expr::Sum(terms) => {
            let mut sum = Quotient::of(Poly::default());
            for term in terms {
                sum = sum.plus(&exact(term, steps)?, steps)?;
            }
            Ok(sum)
        }
        Expr::Product(parts) => {
            let mut product = Quotient::of(Poly::constant(BigRational::one()));
            for part in parts {
                product = product.times(&exact(part, steps)?, steps)?;
            }
            Ok(product)
        }
        Expr::Negative(inner) => Ok(exact(inner, steps)?.negative()),
        Expr::Inverse(inner) => exact(inner, steps)?.inverse(steps),
        Expr::Power(base, exponent) => power(&exact(base, steps)?, &exact(exponent, steps)?, steps),
        Expr::Root(index, inner) => {
            let one_of = BigRational::new(BigInt::one(), BigInt::from(*index));
            power(&exact(inner, steps)?, &Quotient::of(Poly::constant(one_of)), steps)
        }
        Expr::Degrees(inner) => {
            let part = Quotient::of(Poly::term(
                vec![(Generator::Pi, Ratio::one())],
                BigRational::new(1.into(), 180.into()),
            ));
            exact(inner, steps)?.times(&part, steps)
        }
        Expr::Factorial(inner) => {
            let inner = exact(inner, steps)?;
            match inner.as_rational() {
                Some(n) => number(BigRational::from_integer(factorial_of(&n, steps)?)),
                None => unknown("!", &[&inner]),
            }
        }
        Expr::Binomial(above, below) => choose(&exact(above, steps)?, &exact(below, steps)?, steps),
        Expr::Call(function, inner) => call(*function, &exact(inner, steps)?),
        Expr::LogBase(base, inner) => {
            unknown("log", &[&exact(base, steps)?, &exact(inner, steps)?])
        }
    }
}

fn number(value: BigRational) -> Result<Quotient, Stop> {
    Ok(Quotient::of(Poly::constant(value)))
}

fn unknown(name: &str, of: &[&Quotient]) -> Result<Quotient, Stop> {
    let keys: Vec<String> = of.iter().map(|quotient| quotient.key()).collect();
    let key = format!("{name}[{}]", keys.join(";"));
    if key.len() > MAX_KEY {
        return Err(Stop::TooLarge);
    }
    Ok(Quotient::of(Poly::generator(Generator::Unknown(key))))
}

fn power(base: &Quotient, exponent: &Quotient, steps: &Steps) -> Result<Quotient, Stop> {
    let Some(rational) = exponent.as_rational() else {
        return unknown("power", &[base, exponent]);
    };
    if rational.is_integer() {
        let whole = rational.to_integer().to_i64().ok_or(Stop::TooLarge)?;
        if whole == 0 && base.above.is_zero() {
            return Err(Stop::Undefined);
        }
        return base.power(whole, steps);
    }
    let (Some(above), Some(below)) = (rational.numer().to_i64(), rational.denom().to_i64()) else {
        return unknown("power", &[base, exponent]);
    };
    if above.abs() > 1 << 16 || below > 1 << 10 {
        return unknown("power", &[base, exponent]);
    }
    match base.as_rational() {
        Some(value) => {
            steps.take(200)?;
            surd(&value, above, below, base, exponent)
        }
        None => unknown("power", &[base, exponent]),
    }
}

/// A rational number to the power `above / below`, in lowest terms and no integer.
fn surd(
    value: &BigRational,
    above: i64,
    below: i64,
    base: &Quotient,
    exponent: &Quotient,
) -> Result<Quotient, Stop> {
    if value.is_zero() {
        return if above > 0 { Ok(Quotient::of(Poly::default())) } else { Err(Stop::Undefined) };
    }
    let negative = value.is_negative();
    // Even roots of negative numbers beyond the square root are left to numbers.
    if negative && below.is_even() && below != 2 {
        return unknown("power", &[base, exponent]);
    }
    let Some(size) = root_of(&value.abs(), Ratio::new(above, below))? else {
        return unknown("power", &[base, exponent]);
    };
    if !negative {
        return Ok(Quotient::of(size));
    }
    let turn: Monomial = vec![(Generator::Imaginary, Ratio::one())];
    if below == 2 {
        let turn = Quotient::of(Poly::term(turn, BigRational::one()));
        return Quotient::of(size).times(&turn.power(above, &Steps::new())?, &Steps::new());
    }
    // Odd roots of negative numbers are the real ones.
    Ok(Quotient::of(if above.is_odd() { size.negative() } else { size }))
}

/// The factorial of a whole number.
pub(super) fn factorial_of(n: &BigRational, steps: &Steps) -> Result<BigInt, Stop> {
    if !n.is_integer() || n.is_negative() {
        return Err(Stop::Undefined);
    }
    let n = n.to_integer().to_u32().filter(|n| *n <= MAX_FACTORIAL).ok_or(Stop::TooLarge)?;
    steps.take(1 + u64::from(n))?;
    Ok((1..=n).fold(BigInt::one(), |product, k| product * k))
}

fn choose(above: &Quotient, below: &Quotient, steps: &Steps) -> Result<Quotient, Stop> {
    match (above.as_rational(), below.as_rational()) {
        (Some(n), Some(k)) => number(BigRational::from_integer(binomial_of(&n, &k, steps)?)),
        _ => unknown("binomial", &[above, below]),
    }
}

/// In how many ways `k` of `n` are chosen, both whole numbers.
pub(super) fn binomial_of(n: &BigRational, k: &BigRational, steps: &Steps) -> Result<BigInt, Stop> {
    let whole = |x: &BigRational| {
        if !x.is_integer() || x.is_negative() {
            return Err(Stop::Undefined);
        }
        x.to_integer().to_u32().filter(|n| *n <= MAX_FACTORIAL).ok_or(Stop::TooLarge)
    };
    let (n, k) = (whole(n)?, whole(k)?);
    steps.take(1 + u64::from(n))?;
    Ok(if k > n { BigInt::zero() } else { binomial(BigInt::from(n), BigInt::from(k)) })
}

fn call(function: Function, of: &Quotient) -> Result<Quotient, Stop> {
    let rational = of.as_rational();
    match (function, rational) {
        (Function::Abs, Some(value)) => number(value.abs()),
        (Function::Floor, Some(value)) => number(value.floor()),
        (Function::Ceiling, Some(value)) => number(value.ceil()),
        (Function::Named(letter), _) => unknown(&format!("named {letter}"), &[of]),
        _ => unknown(&format!("{function:?}"), &[of]),
    }
}
