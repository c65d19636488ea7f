//! Sums of monomials with exact coefficients, and quotients of two such sums.
//!
//! A monomial is a product of powers of generators: variables, pi, e, i, primes (to powers between 0 and
//! 1, so that every surd of rational numbers has one form), and expressions of which nothing is known but
//! that they are the same as themselves. Products of prime powers with exponents in [0, 1) are linearly
//! independent over the rationals (Besicovitch 1940), pi and e are transcendental: so without unknown
//! generators, and with not both of pi and e, a sum is zero only if it has no terms.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, Zero};

use super::limits::{MAX_BITS, MAX_TERMS, Steps, Stop};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Generator {
    Prime(u64),
    Imaginary,
    Pi,
    Euler,
    Variable(String),
    /// A function of something, by its normal form.
    Unknown(String),
}

impl Generator {
    fn is_constant(&self) -> bool {
        !matches!(self, Self::Variable(_) | Self::Unknown(_))
    }
}

/// Powers of generators, in their order, none of them to the power 0.
pub(super) type Monomial = Vec<(Generator, Ratio<i64>)>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Poly(BTreeMap<Monomial, BigRational>);

impl Poly {
    pub(super) fn constant(value: BigRational) -> Self {
        Self::term(Vec::new(), value)
    }

    pub(super) fn generator(generator: Generator) -> Self {
        Self::term(vec![(generator, Ratio::one())], BigRational::one())
    }

    pub(super) fn term(monomial: Monomial, factor: BigRational) -> Self {
        let mut poly = Self::default();
        if !factor.is_zero() {
            poly.0.insert(monomial, factor);
        }
        poly
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn is_one(&self) -> bool {
        self.as_rational().is_some_and(|value| value.is_one())
    }

    /// The number that this is, if it is one.
    pub(super) fn as_rational(&self) -> Option<BigRational> {
        match self.0.first_key_value() {
            None => Some(BigRational::zero()),
            Some((monomial, value)) if monomial.is_empty() && self.0.len() == 1 => {
                Some(value.clone())
            }
            _ => None,
        }
    }

    pub(super) fn only_term(&self) -> Option<(&Monomial, &BigRational)> {
        self.0.first_key_value().filter(|_| self.0.len() == 1)
    }

    /// Whether "not zero" is proven where this has terms.
    pub(super) fn is_decided(&self) -> bool {
        let generators = || self.0.keys().flatten().map(|(generator, _)| generator);
        let unknown = generators().any(|g| matches!(g, Generator::Unknown(_)));
        let both = generators().any(|g| *g == Generator::Pi)
            && generators().any(|g| *g == Generator::Euler);
        !unknown && !both
    }

    /// A text that only equal sums share.
    pub(super) fn key(&self) -> String {
        let term = |(monomial, value): (&Monomial, &BigRational)| format!("{value}{monomial:?}");
        self.0.iter().map(term).collect::<Vec<_>>().join("+")
    }

    pub(super) fn plus(&self, other: &Self) -> Result<Self, Stop> {
        let mut sum = self.clone();
        for (monomial, value) in &other.0 {
            sum.add(monomial.clone(), value.clone());
        }
        sum.checked()
    }

    fn add(&mut self, monomial: Monomial, value: BigRational) {
        use std::collections::btree_map::Entry;
        match self.0.entry(monomial) {
            Entry::Vacant(place) => {
                if !value.is_zero() {
                    place.insert(value);
                }
            }
            Entry::Occupied(mut place) => {
                *place.get_mut() += value;
                if place.get().is_zero() {
                    place.remove();
                }
            }
        }
    }

    fn checked(self) -> Result<Self, Stop> {
        let large = |value: &BigRational| value.numer().bits() + value.denom().bits() > MAX_BITS;
        let over = self.0.len() > MAX_TERMS || self.0.values().any(large);
        if over { Err(Stop::TooLarge) } else { Ok(self) }
    }

    pub(super) fn negative(&self) -> Self {
        Self(self.0.iter().map(|(monomial, value)| (monomial.clone(), -value)).collect())
    }

    pub(super) fn times(&self, other: &Self, steps: &Steps) -> Result<Self, Stop> {
        if self.is_one() || other.is_one() {
            return Ok(if self.is_one() { other.clone() } else { self.clone() });
        }
        let mut product = Self::default();
        for (mine, factor) in &self.0 {
            for (theirs, other_factor) in &other.0 {
                let length = (mine.len() + theirs.len()) as u64;
                steps.take(2 + length + weight(factor) + weight(other_factor))?;
                let (monomial, lift) = multiply(mine, theirs)?;
                let value = factor * other_factor;
                product.add(monomial, if lift.is_one() { value } else { value * lift });
            }
            if product.0.len() > MAX_TERMS {
                return Err(Stop::TooLarge);
            }
        }
        product.checked()
    }

    /// Times the powers of variables that leave none below a fraction line.
    fn cleared(&self) -> Result<Self, Stop> {
        let mut lowest: BTreeMap<&Generator, Ratio<i64>> = BTreeMap::new();
        for (generator, power) in self.0.keys().flatten() {
            if !generator.is_constant() && *power < Ratio::zero() {
                let known = lowest.entry(generator).or_insert(*power);
                *known = (*known).min(*power);
            }
        }
        let lift: Monomial = lowest.into_iter().map(|(g, power)| (g.clone(), -power)).collect();
        let mut cleared = Self::default();
        for (monomial, value) in &self.0 {
            let (monomial, factor) = multiply(monomial, &lift)?;
            cleared.add(monomial, value * factor);
        }
        Ok(cleared)
    }

    /// The sum as one over variables, whose coefficients are constants.
    fn by_variables(&self) -> BTreeMap<Monomial, Poly> {
        let mut groups: BTreeMap<Monomial, Poly> = BTreeMap::new();
        for (monomial, value) in &self.0 {
            let (constant, variable): (Monomial, Monomial) =
                monomial.iter().cloned().partition(|(generator, _)| generator.is_constant());
            groups.entry(variable).or_default().add(constant, value.clone());
        }
        groups
    }

    /// Whether one is the other times a constant that is not zero; its sign too, where it is rational.
    pub(super) fn proportional(
        &self,
        other: &Self,
        steps: &Steps,
    ) -> Result<Option<Option<bool>>, Stop> {
        let (this, other) = (self.cleared()?, other.cleared()?);
        let (mine, theirs) = (this.by_variables(), other.by_variables());
        let (Some((one, factor)), Some((another, other_factor))) =
            (mine.last_key_value(), theirs.last_key_value())
        else {
            return Ok((this.is_zero() && other.is_zero()).then_some(Some(true)));
        };
        if one != another {
            return Ok(None);
        }
        let left = this.times(other_factor, steps)?;
        let right = other.times(factor, steps)?;
        if left != right {
            return Ok(None);
        }
        let sign = match (factor.as_rational(), other_factor.as_rational()) {
            (Some(a), Some(b)) => Some(a.is_positive() == b.is_positive()),
            _ => None,
        };
        Ok(Some(sign))
    }
}

/// Steps that arithmetic with a rational number costs beyond one: its size squared, as for its divisors.
fn weight(value: &BigRational) -> u64 {
    let words = (value.numer().bits() + value.denom().bits()) / 64;
    words * words / 8
}

/// The product of two monomials, and the rational number that falls out of it.
fn multiply(one: &Monomial, other: &Monomial) -> Result<(Monomial, BigRational), Stop> {
    let mut powers: BTreeMap<Generator, Ratio<i64>> = one.iter().cloned().collect();
    for (generator, power) in other {
        let sum = powers.entry(generator.clone()).or_insert_with(Ratio::zero);
        *sum += power;
        if sum.numer().abs() > 1 << 20 || *sum.denom() > 1 << 20 {
            return Err(Stop::TooLarge);
        }
    }
    let mut lift = BigRational::one();
    for (generator, power) in &mut powers {
        match generator {
            Generator::Imaginary => {
                let turns = power.to_integer().rem_euclid(4);
                if turns >= 2 {
                    lift = -lift;
                }
                *power = Ratio::from_integer(turns % 2);
            }
            Generator::Prime(prime) => {
                let whole = power.floor();
                *power -= whole;
                let whole = whole.to_integer();
                lift *= integer_power(&BigRational::from_integer((*prime).into()), whole)?;
            }
            _ => {}
        }
    }
    Ok((powers.into_iter().filter(|(_, power)| !power.is_zero()).collect(), lift))
}

/// A rational number to an integer power.
pub(super) fn integer_power(base: &BigRational, power: i64) -> Result<BigRational, Stop> {
    if base.is_zero() && power < 0 {
        return Err(Stop::Undefined);
    }
    let bits = base.numer().bits().max(base.denom().bits());
    let trivial = base.is_zero() || base.abs().is_one();
    let size = bits.saturating_mul(power.unsigned_abs());
    if !trivial && size > MAX_BITS {
        return Err(Stop::TooLarge);
    }
    let small = if trivial { power.rem_euclid(2) + 2 } else { power };
    let exponent = i32::try_from(small).map_err(|_| Stop::TooLarge)?;
    Ok(if power == 0 { BigRational::one() } else { base.pow(exponent) })
}

/// A quotient of two sums. The divisor is not zero; it is 1 where it would have one term.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quotient {
    pub above: Poly,
    pub below: Poly,
}

impl Quotient {
    pub(super) fn of(above: Poly) -> Self {
        Self { above, below: Poly::constant(BigRational::one()) }
    }

    pub(super) fn as_rational(&self) -> Option<BigRational> {
        self.above.as_rational().filter(|_| self.below.is_one())
    }

    /// Nothing with a variable is below a fraction line.
    pub(super) fn is_whole(&self) -> bool {
        let negative = |(generator, power): &(Generator, Ratio<i64>)| {
            !generator.is_constant() && *power < Ratio::zero()
        };
        self.below.is_one() && !self.above.0.keys().flatten().any(negative)
    }

    pub(super) fn key(&self) -> String {
        format!("({})/({})", self.above.key(), self.below.key())
    }

    pub(super) fn plus(&self, other: &Self, steps: &Steps) -> Result<Self, Stop> {
        if self.below == other.below {
            return Ok(Self { above: self.above.plus(&other.above)?, below: self.below.clone() });
        }
        let left = self.above.times(&other.below, steps)?;
        let right = other.above.times(&self.below, steps)?;
        Ok(Self { above: left.plus(&right)?, below: self.below.times(&other.below, steps)? })
    }

    pub(super) fn negative(&self) -> Self {
        Self { above: self.above.negative(), below: self.below.clone() }
    }

    pub(super) fn times(&self, other: &Self, steps: &Steps) -> Result<Self, Stop> {
        let above = self.above.times(&other.above, steps)?;
        let below = if self.below.is_one() {
            other.below.clone()
        } else if other.below.is_one() {
            self.below.clone()
        } else {
            self.below.times(&other.below, steps)?
        };
        Ok(Self { above, below })
    }

    pub(super) fn inverse(&self, steps: &Steps) -> Result<Self, Stop> {
        if self.above.is_zero() {
            return Err(Stop::Undefined);
        }
        let (above, below) = (self.below.clone(), &self.above);
        match below.only_term() {
            None => Ok(Self { above, below: below.clone() }),
            Some((monomial, value)) => {
                let turned: Monomial =
                    monomial.iter().map(|(g, power)| (g.clone(), -power)).collect();
                let (monomial, lift) = multiply(&turned, &Vec::new())?;
                let inverse = if lift.is_one() { value.recip() } else { lift / value };
                let inverse = Poly::term(monomial, inverse);
                Ok(Self::of(above.times(&inverse, steps)?))
            }
        }
    }

    pub(super) fn power(&self, power: i64, steps: &Steps) -> Result<Self, Stop> {
        if power < 0 {
            return self.inverse(steps)?.power(-power, steps);
        }
        if let Some(value) = self.as_rational() {
            return Ok(Self::of(Poly::constant(integer_power(&value, power)?)));
        }
        let single = self.above.only_term().is_some() && self.below.only_term().is_some();
        if power > 64 && !single {
            return Err(Stop::TooLarge);
        }
        let (mut result, mut base) = (Self::of(Poly::constant(BigRational::one())), self.clone());
        let mut left = power;
        while left > 0 {
            if left.is_odd() {
                result = result.times(&base, steps)?;
            }
            left /= 2;
            if left > 0 {
                base = base.times(&base, steps)?;
            }
        }
        Ok(result)
    }
}

/// A positive rational number to a rational power: a product of prime powers. None where a prime factor
/// is too large to be found.
pub(super) fn root_of(value: &BigRational, power: Ratio<i64>) -> Result<Option<Poly>, Stop> {
    let (Some(above), Some(below)) = (factors(value.numer()), factors(value.denom())) else {
        return Ok(None);
    };
    let mut monomial: BTreeMap<Generator, Ratio<i64>> = BTreeMap::new();
    let below = below.into_iter().map(|(prime, times)| (prime, -times));
    for (prime, times) in above.into_iter().chain(below) {
        *monomial.entry(Generator::Prime(prime)).or_insert_with(Ratio::zero) += power * times;
    }
    let (monomial, lift) = multiply(&monomial.into_iter().collect(), &Vec::new())?;
    Ok(Some(Poly::term(monomial, lift)))
}

/// Primes and how often each divides.
fn factors(value: &BigInt) -> Option<Vec<(u64, i64)>> {
    const TRIALS: u64 = 1 << 16;
    let mut rest = u64::try_from(value).ok()?;
    let mut found = Vec::new();
    let mut prime = 2;
    while prime < TRIALS && prime * prime <= rest {
        let mut times = 0;
        while rest % prime == 0 {
            rest /= prime;
            times += 1;
        }
        if times > 0 {
            found.push((prime, times));
        }
        prime += if prime == 2 { 1 } else { 2 };
    }
    let root = rest.isqrt();
    match rest {
        1 => {}
        // No prime below its root divides it.
        _ if root < TRIALS => found.push((rest, 1)),
        _ if root * root == rest && root.isqrt() < TRIALS => found.push((root, 2)),
        _ => return None,
    }
    Some(found)
}
