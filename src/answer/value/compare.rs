//! Whether two values are the same, kind by kind.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use num_rational::BigRational;
use num_traits::One;

use super::exact::exact;
use super::limits::{EXACT_STEPS, Steps};
use super::parse::negate;
use super::read::ranges;
use super::scalar::{self, compare_scaled, compare_stated, graded, sign};
use super::shape::{Equation, Quantity, Range, Value};
use super::token::Bracket;
use super::tree::Expr;
use super::units::Unit;
use super::{Equality, Graded, Ground};
use Equality::{Different, Equal, Undecided};

/// Compares two values.
pub(super) fn compare(one: &Value, other: &Value, steps: &Steps) -> Graded {
    if steps.take(1).is_err() {
        return graded(Undecided, Ground::TooLarge);
    }
    match (one, other) {
        (Value::Equation(a), Value::Equation(b)) => equations(a, b, steps),
        (Value::Equation(equation), value) | (value, Value::Equation(equation)) => {
            match settled(equation, steps) {
                Some(side) => compare(side, value, steps),
                None => graded(Undecided, Ground::Kinds),
            }
        }
        (Value::Choice(a, rest), Value::Choice(b, other_rest)) => {
            choices((*a, rest.as_deref()), (*b, other_rest.as_deref()), steps)
        }
        (Value::Choice(letter, rest), value) | (value, Value::Choice(letter, rest)) => {
            choice_and(*letter, rest.as_deref(), value, steps)
        }
        (Value::Quantity(a), Value::Quantity(b)) => quantities(a, b, steps),
        (Value::Infinity(a), Value::Infinity(b)) => told(a == b, Ground::Exact),
        (Value::Infinity(_), Value::Quantity(q)) | (Value::Quantity(q), Value::Infinity(_)) => {
            let constant = q.expr.variables().is_empty();
            graded(if constant { Different } else { Undecided }, Ground::Kinds)
        }
        (
            Value::Based { digits, base, value },
            Value::Based { digits: other_digits, base: other_base, value: other },
        ) => match (base == other_base, value == other) {
            (true, _) => told(digits == other_digits, Ground::Base),
            (false, true) => graded(Undecided, Ground::Base),
            (false, false) => graded(Different, Ground::Base),
        },
        (Value::Based { value, .. }, Value::Quantity(q))
        | (Value::Quantity(q), Value::Based { value, .. }) => {
            let found = scalar::compare(&Expr::Number(value.clone()), &q.expr, steps).equality;
            graded(if found == Different { Different } else { Undecided }, Ground::Base)
        }
        (Value::Ratio { parts: a, clock: c }, Value::Ratio { parts: b, clock: d }) => {
            match ratios(a, b, *c || *d, steps) {
                found if c == d || found.equality != Equal => found,
                _ => graded(Undecided, Ground::Ratio),
            }
        }
        (Value::Words(a), Value::Words(b)) => words(a, b),
        (Value::List(a), Value::List(b)) => unordered(a, b, steps),
        (
            Value::Tuple { open, close, items },
            Value::Tuple { open: other_open, close: other_close, items: others },
        ) => tuples((*open, *close, items), (*other_open, *other_close, others), steps),
        (Value::Matrix(a), Value::Matrix(b)) => matrices(a, b, steps),
        (Value::Ranges { variable: a, ranges }, Value::Ranges { variable: b, ranges: others }) => {
            let found = intervals(ranges, others, steps);
            let named_apart = a.is_some() && b.is_some() && a != b;
            if named_apart && found.equality == Equal {
                graded(Undecided, Ground::Kinds)
            } else {
                found
            }
        }
        (Value::Ranges { ranges: mine, .. }, value @ (Value::Tuple { .. } | Value::List(_)))
        | (value @ (Value::Tuple { .. } | Value::List(_)), Value::Ranges { ranges: mine, .. }) => {
            match ranges(value.clone()) {
                Some(others) => intervals(mine, &others, steps),
                None => graded(Undecided, Ground::Kinds),
            }
        }
        (Value::List(items), value @ (Value::Quantity(_) | Value::Infinity(_)))
        | (value @ (Value::Quantity(_) | Value::Infinity(_)), Value::List(items)) => {
            unordered(items, std::slice::from_ref(value), steps)
        }
        (Value::List(list), Value::Tuple { items, .. })
        | (Value::Tuple { items, .. }, Value::List(list)) => {
            let found = unordered(list, items, steps);
            let same = found.equality != Different;
            if same { graded(Undecided, Ground::Brackets) } else { found }
        }
        // `1 < 2` says nothing.
        (Value::Above { expr, .. }, Value::Above { expr: other, .. })
            if !says_something(expr, steps) || !says_something(other, steps) =>
        {
            graded(Undecided, Ground::Interval)
        }
        (Value::Above { expr, strict }, Value::Above { expr: other, strict: other_strict }) => {
            let found = compare_scaled(expr, other, true, steps);
            if strict == other_strict || found.equality != Equal {
                found
            } else {
                graded(Different, Ground::Interval)
            }
        }
        _ => graded(Undecided, Ground::Kinds),
    }
}

fn told(same: bool, rule: Ground) -> Graded {
    graded(if same { Equal } else { Different }, rule)
}

/// All must be equal; one that differs decides.
fn all(each: impl IntoIterator<Item = Graded>, rule: Ground) -> Graded {
    let mut unsure = None;
    for found in each {
        match found.equality {
            Equal => {}
            Different => return graded(Different, rule),
            Undecided => unsure = Some(found),
        }
    }
    unsure.unwrap_or(graded(Equal, rule))
}

fn quantities(one: &Quantity, other: &Quantity, steps: &Steps) -> Graded {
    let percent = |q: &Quantity| q.unit.as_ref().is_some_and(Unit::is_percent);
    let found = match (&one.unit, &other.unit) {
        (Some(mine), Some(theirs)) => {
            return with_units((one, mine), (other, theirs), steps);
        }
        _ => plain(one, other, steps),
    };
    // `60 m` may have been a product.
    let loose = one.unit.is_some() != other.unit.is_some();
    let product = |q: &Quantity| q.unit.is_none() && !q.expr.variables().is_empty();
    if found.equality == Different && loose && (product(one) || product(other)) {
        return graded(Undecided, Ground::Unit);
    }
    // `50\%` is 50. That it is also 0.5 is neither granted nor denied.
    if found.equality == Different && percent(one) != percent(other) {
        let (hundredth, whole) = if percent(one) { (one, other) } else { (other, one) };
        let part = BigRational::new(1.into(), 100.into());
        if scalar::compare(&times(&hundredth.expr, part), &whole.expr, steps).equality == Equal {
            return graded(Undecided, Ground::Percent);
        }
    }
    found
}

fn plain(one: &Quantity, other: &Quantity, steps: &Steps) -> Graded {
    // `b` and `B` may be one option or two variables.
    if let (Expr::Symbol(a), Expr::Symbol(b)) = (&one.expr, &other.expr)
        && a != b
        && a.len() == 1
        && a.eq_ignore_ascii_case(b)
    {
        return graded(Undecided, Ground::Kinds);
    }
    let (mine, theirs) = (one.literal.as_ref(), other.literal.as_ref());
    compare_stated((&one.expr, mine), (&other.expr, theirs), steps)
}

fn times(expr: &Expr, factor: BigRational) -> Expr {
    Expr::Product(vec![Expr::Number(factor), expr.clone()])
}

fn with_units(
    (one, mine): (&Quantity, &Unit),
    (other, theirs): (&Quantity, &Unit),
    steps: &Steps,
) -> Graded {
    if mine.measures != theirs.measures {
        let apart = mine.known && theirs.known && !mine.is_percent() && !theirs.is_percent();
        return graded(if apart { Different } else { Undecided }, Ground::Unit);
    }
    let factor = &mine.factor / &theirs.factor;
    if factor.is_one() {
        return plain(one, other, steps);
    }
    let found = scalar::compare(&times(&one.expr, factor), &other.expr, steps);
    graded(found.equality, if found.equality == Undecided { found.rule } else { Ground::Unit })
}

/// The one value of an equation: what its name is said to be, or what a chain of equal constants comes to.
fn settled<'v>(equation: &'v Equation, steps: &Steps) -> Option<&'v Value> {
    let (first, rest) = equation.values.split_first()?;
    if equation.name.is_some() && rest.is_empty() {
        return Some(first);
    }
    let constant = |value: &Value| value.as_expr().is_some_and(|e| e.variables().is_empty());
    let agree = equation.values.iter().all(constant)
        && rest.iter().all(|value| compare(first, value, steps).equality == Equal);
    agree.then_some(first)
}

/// Whether a relation of an expression to zero depends on anything: `x = x` and `1 = 2` do not.
fn says_something(expr: &Expr, steps: &Steps) -> bool {
    let form = || steps.within(EXACT_STEPS, |steps| exact(expr, steps));
    !expr.variables().is_empty() && form().map_or(true, |form| form.as_rational().is_none())
}

fn equations(one: &Equation, other: &Equation, steps: &Steps) -> Graded {
    if let (Some(a), Some(b)) = (&one.difference, &other.difference)
        && says_something(a, steps)
        && says_something(b, steps)
    {
        let found = compare_scaled(a, b, false, steps);
        let named = one.name.is_some() && one.name == other.name;
        if found.equality == Equal || !named {
            return graded(
                found.equality,
                if found.equality == Undecided { found.rule } else { Ground::Equation },
            );
        }
    }
    match (settled(one, steps), settled(other, steps)) {
        (Some(a), Some(b)) => {
            let found = compare(a, b, steps);
            let apart = one.name.is_some() && other.name.is_some() && one.name != other.name;
            if apart && found.equality == Equal {
                graded(Undecided, Ground::Equation)
            } else {
                found
            }
        }
        _ => graded(Undecided, Ground::Equation),
    }
}

fn choices(
    (one, rest): (char, Option<&Value>),
    (other, other_rest): (char, Option<&Value>),
    steps: &Steps,
) -> Graded {
    if !one.eq_ignore_ascii_case(&other) {
        return graded(Different, Ground::Choice);
    }
    // The same letter with other words is not the same option for sure.
    match (rest, other_rest) {
        (Some(a), Some(b)) if compare(a, b, steps).equality != Equal => {
            graded(Undecided, Ground::Choice)
        }
        _ => graded(Equal, Ground::Choice),
    }
}

fn choice_and(letter: char, rest: Option<&Value>, value: &Value, steps: &Steps) -> Graded {
    if let Some(Expr::Symbol(name)) = value.as_expr()
        && name.len() == 1
    {
        return told(name.eq_ignore_ascii_case(&letter.to_string()), Ground::Choice);
    }
    match rest {
        Some(rest) => compare(rest, value, steps),
        None => graded(Undecided, Ground::Kinds),
    }
}

fn ratios(one: &[Expr], other: &[Expr], clock: bool, steps: &Steps) -> Graded {
    if one.len() != other.len() {
        return graded(Different, Ground::Ratio);
    }
    let pair = |(a, b): (&Expr, &Expr)| scalar::compare(a, b, steps);
    let same = all(one.iter().zip(other).map(pair), Ground::Ratio);
    if clock || same.equality == Equal {
        return same;
    }
    let crossed = one.iter().zip(other).map(|(a, b)| {
        let left = Expr::Product(vec![a.clone(), other[0].clone()]);
        let right = Expr::Product(vec![b.clone(), one[0].clone()]);
        scalar::compare(&left, &right, steps)
    });
    all(crossed, Ground::Ratio)
}

fn words(one: &str, other: &str) -> Graded {
    if one == other {
        return graded(Equal, Ground::Words);
    }
    const OPPOSITES: [(&str, &str); 3] = [("yes", "no"), ("true", "false"), ("even", "odd")];
    let opposite =
        OPPOSITES.iter().any(|(a, b)| (one == *a && other == *b) || (one == *b && other == *a));
    graded(if opposite { Different } else { Undecided }, Ground::Words)
}

/// Two lists without order: each item of one has its own in the other. They differ where an item of either
/// differs from all of the other.
fn unordered(one: &[Value], other: &[Value], steps: &Steps) -> Graded {
    if one.len() != other.len() {
        return graded(Different, Ground::Items);
    }
    // Where one side names its values and the other does not, only the order tells which is which.
    if names(one) != names(other) && names(one).max(names(other)) > 1 {
        let pairs = one.iter().zip(other).map(|(a, b)| compare(a, b, steps));
        return match all(pairs, Ground::Items) {
            found if found.equality == Equal => found,
            _ => graded(Undecided, Ground::Items),
        };
    }
    let mut free: Vec<usize> = (0..other.len()).collect();
    let mut rest = Vec::new();
    for (row, value) in one.iter().enumerate() {
        let found = free.iter().position(|at| compare(value, &other[*at], steps).equality == Equal);
        match found {
            Some(at) => drop(free.remove(at)),
            None => rest.push(row),
        }
    }
    if rest.is_empty() {
        return graded(Equal, Ground::Items);
    }
    let apart = |a: &Value, b: &Value| compare(a, b, steps).equality == Different;
    let alone = rest.iter().any(|row| other.iter().all(|value| apart(&one[*row], value)))
        || free.iter().any(|at| one.iter().all(|value| apart(value, &other[*at])));
    graded(if alone { Different } else { Undecided }, Ground::Items)
}

/// How many names the values of a list have.
fn names(values: &[Value]) -> usize {
    let named = values.iter().filter_map(|value| match value {
        Value::Equation(equation) => equation.name.as_ref(),
        _ => None,
    });
    named.collect::<BTreeSet<_>>().len()
}

type Bracketed<'v> = (Bracket, Bracket, &'v [Value]);

fn tuples(one: Bracketed, other: Bracketed, steps: &Steps) -> Graded {
    let ((open, close, items), (other_open, other_close, others)) = (one, other);
    if items.len() != others.len() {
        return graded(Different, Ground::Items);
    }
    let pairs = items.iter().zip(others);
    let found = all(pairs.map(|(a, b)| compare(a, b, steps)), Ground::Items);
    if (open, close) == (other_open, other_close) || found.equality != Equal {
        return found;
    }
    // Of two items the brackets say whether the ends belong to an interval; of more they are a habit.
    let habit = open != Bracket::Square && other_open != Bracket::Square || items.len() > 2;
    let pair = (open == Bracket::Angle) == (close == Bracket::Angle);
    let matching = open == close && other_open == other_close;
    graded(if habit && matching && pair { Undecided } else { Different }, Ground::Brackets)
}

fn matrices(one: &[Vec<Value>], other: &[Vec<Value>], steps: &Steps) -> Graded {
    let shape = |rows: &[Vec<Value>]| (rows.len(), rows.first().map(Vec::len));
    let cells = |rows: &[Vec<Value>]| rows.iter().flatten().cloned().collect::<Vec<Value>>();
    if shape(one) != shape(other) {
        return graded(Different, Ground::Items);
    }
    let (mine, theirs) = (cells(one), cells(other));
    all(mine.iter().zip(&theirs).map(|(a, b)| compare(a, b, steps)), Ground::Items)
}

fn intervals(one: &[Range], other: &[Range], steps: &Steps) -> Graded {
    let (one, other) = (in_order(one, steps), in_order(other, steps));
    if one.len() != other.len() {
        return graded(Different, Ground::Interval);
    }
    let end = |a: &Option<Expr>, b: &Option<Expr>| match (a, b) {
        (None, None) => graded(Equal, Ground::Interval),
        (Some(a), Some(b)) => scalar::compare(a, b, steps),
        _ => graded(Different, Ground::Interval),
    };
    let pairs = one.iter().zip(&other).flat_map(|(a, b)| {
        let closed = a.has_low == b.has_low && a.has_high == b.has_high;
        [told(closed, Ground::Interval), end(&a.low, &b.low), end(&a.high, &b.high)]
    });
    all(pairs, Ground::Interval)
}

/// Intervals by their lower ends, those that touch made one. As they are where an end is no real number.
fn in_order(ranges: &[Range], steps: &Steps) -> Vec<Range> {
    sorted(ranges, steps).unwrap_or_else(|| ranges.to_vec())
}

fn sorted(ranges: &[Range], steps: &Steps) -> Option<Vec<Range>> {
    let order = |a: &Expr, b: &Expr| {
        let difference = Expr::Sum(vec![a.clone(), negate(b.clone())]);
        Some(sign(&difference, steps).ok()?.cmp(&0))
    };
    let mut rest: Vec<Range> = Vec::new();
    for range in ranges {
        let full = match (&range.low, &range.high) {
            (Some(low), Some(high)) => match order(low, high)? {
                Ordering::Less => true,
                Ordering::Equal => range.has_low && range.has_high,
                Ordering::Greater => return None,
            },
            _ => true,
        };
        if full {
            rest.push(range.clone());
        }
    }
    let lower = |a: &Range, b: &Range| match (&a.low, &b.low) {
        (None, _) => Some(true),
        (_, None) => Some(false),
        (Some(x), Some(y)) => Some(match order(x, y)? {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => a.has_low || !b.has_low,
        }),
    };
    let mut done: Vec<Range> = Vec::new();
    while !rest.is_empty() {
        let mut first = 0;
        for at in 1..rest.len() {
            if !lower(&rest[first], &rest[at])? {
                first = at;
            }
        }
        let next = rest.remove(first);
        let touches = match done.last().map(|last| (&last.high, last.has_high, &next.low)) {
            Some((Some(high), has_high, Some(low))) => match order(low, high)? {
                Ordering::Less => true,
                Ordering::Equal => has_high || next.has_low,
                Ordering::Greater => false,
            },
            Some(_) => true,
            None => false,
        };
        match done.last_mut().filter(|_| touches) {
            Some(last) => {
                let further = match (&last.high, &next.high) {
                    (None, _) => false,
                    (_, None) => true,
                    (Some(x), Some(y)) => match order(y, x)? {
                        Ordering::Greater => true,
                        Ordering::Less => false,
                        Ordering::Equal => next.has_high,
                    },
                };
                if further {
                    (last.high, last.has_high) = (next.high, next.has_high);
                }
            }
            None => done.push(next),
        }
    }
    Some(done)
}
