//! Whether two expressions are the same: exactly where their normal forms decide, else at points.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

use super::exact::exact;
use super::limits::{EXACT_STEPS, Steps, Stop};
use super::points::{
    Complex, ENOUGH, Evaluation, FAR_POINTS, Nowhere, POINTS, Point, Sample, agree,
};
use super::token::{Function, Literal};
use super::tree::Expr;
use super::{Equality, Graded, Ground};

/// Decimals, and digits from the first that is not zero on, that a rounded number must state.
const STATED: usize = 6;

pub(super) fn graded(equality: Equality, rule: Ground) -> Graded {
    Graded { equality, rule }
}

fn verdict(same: bool, rule: Ground) -> Graded {
    graded(if same { Equality::Equal } else { Equality::Different }, rule)
}

impl From<Stop> for Graded {
    fn from(stop: Stop) -> Self {
        let rule = match stop {
            Stop::Unread => Ground::Unread,
            Stop::Undefined => Ground::Undefined,
            Stop::TooLarge => Ground::TooLarge,
        };
        graded(Equality::Undecided, rule)
    }
}

/// Compares two expressions.
pub(super) fn compare(one: &Expr, other: &Expr, steps: &Steps) -> Graded {
    match steps.within(EXACT_STEPS, |steps| by_forms(one, other, steps)) {
        Ok(Some(same)) => verdict(same, Ground::Exact),
        Err(Stop::Undefined) => Stop::Undefined.into(),
        Ok(None) | Err(_) => by_points(one, other, steps),
    }
}

/// Whether the normal forms are the same; none where they do not decide.
fn by_forms(one: &Expr, other: &Expr, steps: &Steps) -> Result<Option<bool>, Stop> {
    let (one, other) = (exact(one, steps)?, exact(other, steps)?);
    if let (Some(x), Some(y)) = (one.as_rational(), other.as_rational()) {
        // Both are in lowest terms.
        return Ok(Some(x.numer() == y.numer() && x.denom() == y.denom()));
    }
    let left = one.above.times(&other.below, steps)?;
    let right = other.above.times(&one.below, steps)?;
    let rest = left.plus(&right.negative())?;
    Ok((rest.is_zero() || rest.is_decided()).then(|| rest.is_zero()))
}

/// Compares the values at points; at one where there are no variables.
fn by_points(one: &Expr, other: &Expr, steps: &Steps) -> Graded {
    let found = at_points(&[one, other], steps, |values| agree(&values[0], &values[1]));
    let same = found.rule == Ground::Points && found.equality == Equality::Equal;
    if same && in_pieces(one, steps) != in_pieces(other, steps) {
        return graded(Equality::Undecided, Ground::Pieces);
    }
    found
}

/// Whether an expression is another formula in one region of its variables than in the next: absolute values,
/// whole parts, even roots, inverse functions.
fn in_pieces(expr: &Expr, steps: &Steps) -> bool {
    let varies = |inner: &Expr| !inner.variables().is_empty();
    expr.any(&|part| match part {
        Expr::Call(function, inner) => {
            use Function::{Abs, Arccos, Arcsin, Arctan, Ceiling, Floor};
            matches!(function, Abs | Floor | Ceiling | Arcsin | Arccos | Arctan) && varies(inner)
        }
        Expr::Root(index, inner) => index.is_even() && varies(inner),
        Expr::Power(base, exponent) => varies(base) && is_even_part(exponent, steps),
        _ => false,
    })
}

/// Whether an exponent is a fraction with an even divisor, such as 1/2, 0.5 or -3/4.
fn is_even_part(exponent: &Expr, steps: &Steps) -> bool {
    let form = steps.within(EXACT_STEPS, |steps| exact(exponent, steps));
    let value = form.ok().and_then(|form| form.as_rational());
    value.is_some_and(|value| value.denom().is_even())
}

/// A number beyond all that occur in some expressions, and beyond what they come to as divisors.
fn far(exprs: &[&Expr]) -> BigRational {
    let three = BigRational::from_integer(BigInt::from(3));
    exprs.iter().fold(three, |far, expr| beyond(expr, far))
}

fn beyond(expr: &Expr, far: BigRational) -> BigRational {
    const MOST_BITS: u64 = 64;
    let far = match expr {
        Expr::Number(value)
            if !value.is_zero()
                && far.numer().bits() < MOST_BITS
                && value.numer().bits().max(value.denom().bits()) < MOST_BITS =>
        {
            let size = value.abs();
            far * if size < BigRational::one() { size.recip() } else { size }
        }
        _ => far,
    };
    expr.parts().into_iter().fold(far, |far, part| beyond(part, far))
}

/// Whether `holds` at the points where all expressions have a value, over the real numbers, or over the
/// complex ones where `i` occurs or nothing has a real value.
fn at_points(
    exprs: &[&Expr],
    steps: &Steps,
    mut holds: impl FnMut(&[Complex]) -> Option<bool>,
) -> Graded {
    let mut names: Vec<String> = exprs.iter().flat_map(|expr| expr.variables()).collect();
    names.sort();
    names.dedup();
    let imaginary = exprs.iter().any(|expr| expr.any(&|e| *e == Expr::Imaginary));
    let values = |point: &dyn Point, real: bool| -> Result<Vec<Complex>, Stop> {
        let evaluation = Evaluation { point, real, steps };
        exprs.iter().map(|expr| evaluation.value(expr)).collect()
    };
    if names.is_empty() {
        let mut found = values(&Nowhere, !imaginary);
        if found.as_ref().is_err_and(|stop| *stop == Stop::Undefined) && !imaginary {
            found = values(&Nowhere, false);
        }
        return match found.map(|values| holds(&values)) {
            Ok(Some(same)) => verdict(same, Ground::Digits),
            Ok(None) => graded(Equality::Undecided, Ground::Precision),
            Err(stop) => stop.into(),
        };
    }
    let mut shared = 0;
    let pieces = exprs.iter().any(|expr| in_pieces(expr, steps));
    let far = if pieces { far(exprs) } else { BigRational::one() };
    for number in 0..POINTS + if pieces { FAR_POINTS } else { 0 } {
        let sample = Sample { number, names: &names, far: &far };
        match values(&sample, !imaginary) {
            Ok(values) => match holds(&values) {
                Some(true) => shared += 1,
                Some(false) => return verdict(false, Ground::Points),
                None => {}
            },
            Err(Stop::TooLarge) if steps.is_spent() => return Stop::TooLarge.into(),
            Err(_) => {}
        }
    }
    if shared >= ENOUGH {
        verdict(true, Ground::Points)
    } else {
        graded(Equality::Undecided, Ground::FewPoints)
    }
}

/// Compares two numbers of which one may be a decimal that was rounded.
pub(super) fn compare_stated(
    (one, stated): (&Expr, Option<&Literal>),
    (other, other_stated): (&Expr, Option<&Literal>),
    steps: &Steps,
) -> Graded {
    let decimal = |literal: Option<&Literal>| literal.is_some_and(|l| l.decimals.is_some());
    match (decimal(stated), decimal(other_stated)) {
        (true, false) => rounded(one, stated, other, steps),
        (false, true) => rounded(other, other_stated, one, steps),
        _ if [stated, other_stated].into_iter().flatten().any(|l| l.goes_on) => {
            graded(Equality::Undecided, Ground::Rounded)
        }
        _ => compare(one, other, steps),
    }
}

/// A decimal against a value: exactly where the value has an end as a decimal; else the decimal must be
/// the value rounded to the digits that it states, and state enough of them.
fn rounded(decimal: &Expr, stated: Option<&Literal>, value: &Expr, steps: &Steps) -> Graded {
    let plain = compare(decimal, value, steps);
    let Some(literal) = stated.filter(|_| plain.equality == Equality::Different) else {
        return plain;
    };
    let rational = steps
        .within(EXACT_STEPS, |steps| exact(value, steps))
        .ok()
        .and_then(|form| form.as_rational());
    if !value.variables().is_empty() || rational.is_some_and(|value| has_end(value.denom())) {
        return plain;
    }
    match is_rounded(decimal, literal, value, steps) {
        Ok(Some(true)) => {
            let enough = literal.decimals >= Some(STATED) && literal.significant >= STATED;
            verdict(enough, if enough { Ground::Rounded } else { Ground::FewDigits })
        }
        Ok(Some(false)) if literal.goes_on => graded(Equality::Undecided, Ground::Rounded),
        _ => plain,
    }
}

/// Whether a value with no end as a decimal becomes this decimal by rounding (by cutting off, where the
/// decimal goes on). None where it is no real number, or too close to tell.
fn is_rounded(
    decimal: &Expr,
    literal: &Literal,
    value: &Expr,
    steps: &Steps,
) -> Result<Option<bool>, Stop> {
    let places = u32::try_from(literal.decimals.unwrap_or(0)).map_err(|_| Stop::TooLarge)?;
    let unit = BigRational::new(BigInt::one(), BigInt::from(10).pow(places));
    let middle = match decimal {
        Expr::Number(value) => value.clone(),
        _ => return Ok(None),
    };
    let (below, above) = match (literal.goes_on, middle.is_negative()) {
        (false, _) => (&unit / BigInt::from(2), &unit / BigInt::from(2)),
        (true, false) => (BigRational::zero(), unit),
        (true, true) => (unit, BigRational::zero()),
    };
    let signs = [Expr::Number(middle.clone() - below), Expr::Number(middle + above)]
        .map(|end| sign(&Expr::Sum(vec![value.clone(), super::parse::negate(end)]), steps));
    Ok(match signs {
        [Ok(low), Ok(high)] => Some(low > 0 && high < 0),
        _ => None,
    })
}

/// The sign of a constant real expression. An error where it is not real, or too close to zero to tell.
pub(super) fn sign(expr: &Expr, steps: &Steps) -> Result<i8, Stop> {
    if let Ok(form) = steps.within(EXACT_STEPS, |steps| exact(expr, steps)) {
        if form.above.is_zero() {
            return Ok(0);
        }
        if let Some(value) = form.as_rational() {
            return Ok(if value.is_negative() { -1 } else { 1 });
        }
    }
    let value = Evaluation { point: &Nowhere, real: true, steps }.value(expr)?;
    if !value.im.is_zero() || value.re.may_be_zero() {
        return Err(Stop::Undefined);
    }
    Ok(if value.re.is_negative() { -1 } else { 1 })
}

/// Whether a fraction in lowest terms of this divisor has an end as a decimal. Of divisors far longer than
/// any decimal that is read it is enough that they are.
fn has_end(divisor: &BigInt) -> bool {
    if divisor.bits() > 4_096 {
        return true;
    }
    let mut rest = divisor.clone();
    for prime in [2u32, 5] {
        while rest.is_multiple_of(&BigInt::from(prime)) {
            rest /= prime;
        }
    }
    rest.is_one()
}

/// Whether two differences of sides are the same but for a constant factor: the same equation. With
/// `positive`, the factor is: the same inequality.
pub(super) fn compare_scaled(one: &Expr, other: &Expr, positive: bool, steps: &Steps) -> Graded {
    let forms = steps.within(EXACT_STEPS, |steps| (exact(one, steps), exact(other, steps)));
    if let (Ok(a), Ok(b)) = &forms
        && let Ok(found) = steps.within(EXACT_STEPS, |steps| a.above.proportional(&b.above, steps))
    {
        // Divisors change where an inequality holds.
        let divided = !(a.is_whole() && b.is_whole());
        match found {
            Some(_) if !positive => return verdict(true, Ground::Exact),
            Some(Some(sign)) if !divided => return verdict(sign, Ground::Exact),
            None if a.above.is_decided() && b.above.is_decided() && !divided => {
                return verdict(false, Ground::Exact);
            }
            _ => {}
        }
    }
    if positive {
        return graded(Equality::Undecided, Ground::FewPoints);
    }
    let mut first: Option<Complex> = None;
    let ratios = Expr::Product(vec![one.clone(), Expr::Inverse(Box::new(other.clone()))]);
    if one.variables() != other.variables() || one.variables().is_empty() {
        return graded(Equality::Undecided, Ground::Kinds);
    }
    at_points(&[&ratios], steps, |values| match &first {
        None => {
            first = Some(values[0].clone());
            Some(true)
        }
        Some(first) => agree(first, &values[0]),
    })
}
