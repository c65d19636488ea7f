//! What kinds of answers there are.

use num_rational::BigRational;

use super::token::{Bracket, Literal};
use super::tree::Expr;
use super::units::Unit;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Quantity(Box<Quantity>),
    /// Infinity; true where it is the negative one.
    Infinity(bool),
    /// `11_8`
    Based {
        digits: String,
        base: u32,
        value: BigRational,
    },
    /// `2:3`, or the time of day `3:00`.
    Ratio {
        parts: Vec<Expr>,
        clock: bool,
    },
    /// `(B)`, with what may follow the letter.
    Choice(char, Option<Box<Value>>),
    Words(String),
    /// In order, between brackets: a point, a vector, an interval.
    Tuple {
        open: Bracket,
        close: Bracket,
        items: Vec<Value>,
    },
    /// Without order: a set, values beside each other, the two of `±`.
    List(Vec<Value>),
    Ranges {
        variable: Option<String>,
        ranges: Vec<Range>,
    },
    Matrix(Vec<Vec<Value>>),
    Equation(Equation),
    /// The expression is above zero (or not below it, where not `strict`).
    Above {
        expr: Expr,
        strict: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Quantity {
    pub expr: Expr,
    pub unit: Option<Unit>,
    /// The number as written, where it is one number.
    pub literal: Option<Literal>,
}

/// An interval; an end that is none is infinite.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub low: Option<Expr>,
    pub has_low: bool,
    pub high: Option<Expr>,
    pub has_high: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Equation {
    /// What is said to have a value: a variable, `f(x)`, words, a point.
    pub name: Option<String>,
    /// The sides but for the name.
    pub values: Vec<Value>,
    /// Left minus right, where there are two sides and both are expressions.
    pub difference: Option<Expr>,
}

impl Value {
    pub(super) fn expr(expr: Expr) -> Self {
        Quantity { expr, unit: None, literal: None }.into()
    }

    /// The expression, where it is one without a unit.
    pub(super) fn as_expr(&self) -> Option<&Expr> {
        match self {
            Self::Quantity(quantity) if quantity.unit.is_none() => Some(&quantity.expr),
            _ => None,
        }
    }
}

impl From<Quantity> for Value {
    fn from(quantity: Quantity) -> Self {
        Self::Quantity(Box::new(quantity))
    }
}

impl Range {
    /// All numbers but those at or beyond the ends.
    pub(super) fn open(low: Option<Expr>, high: Option<Expr>) -> Self {
        Self { low, has_low: false, high, has_high: false }
    }

    /// What a pair in round or square brackets is as an interval. A square bracket holds no infinity.
    pub(super) fn of_tuple(open: Bracket, close: Bracket, items: &[Value]) -> Option<Self> {
        let [low, high] = items else { return None };
        let has_low = open == Bracket::Square;
        let has_high = close == Bracket::Square;
        let bracket = |kind| matches!(kind, Bracket::Round | Bracket::Square);
        let end = |value: &Value, negative: bool, within: bool| match value {
            Value::Infinity(sign) => (*sign == negative && !within).then_some(None),
            value => value.as_expr().cloned().map(Some),
        };
        if !bracket(open) || !bracket(close) {
            return None;
        }
        Some(Self {
            low: end(low, true, has_low)?,
            has_low,
            high: end(high, false, has_high)?,
            has_high,
        })
    }
}
