//! Equations, inequalities and membership.

use super::limits::Stop;
use super::parse::negate;
use super::read::{ranges, read as read_value, split, words};
use super::shape::{Equation, Range, Value};
use super::token::{Bracket, Item, Relation, Token};
use super::tree::Expr;

/// Tokens with a relation at their top level.
pub(super) fn read(items: &[Item], top: &[usize], depth: usize) -> Result<Value, Stop> {
    let relation = |token: &Token| match token {
        Token::Relation(relation) => Some(*relation),
        _ => None,
    };
    if top.iter().any(|at| items[*at].token == Token::In) {
        return member(&split(items, top, |token| *token == Token::In), depth);
    }
    let relations: Vec<Relation> =
        top.iter().filter_map(|at| relation(&items[*at].token)).collect();
    let sides = split(items, top, |token| relation(token).is_some());
    // `= 5` says what `5` says.
    if let ([[], rest], [Relation::Equal]) = (&sides[..], &relations[..]) {
        return read_value(rest, depth + 1);
    }
    if relations.iter().all(|relation| *relation == Relation::Equal) {
        return equation(&sides, depth).or_else(|stop| words(items).ok_or(stop));
    }
    inequality(&sides, &relations, depth)
}

/// `x \in [1, 2]`
fn member(parts: &[&[Item]], depth: usize) -> Result<Value, Stop> {
    let [[Item { token: Token::Symbol(name), .. }], right] = parts else {
        return Err(Stop::Unread);
    };
    let ranges = ranges(read_value(right, depth + 1)?).ok_or(Stop::Unread)?;
    Ok(Value::Ranges { variable: Some(name.clone()), ranges })
}

fn equation(sides: &[&[Item]], depth: usize) -> Result<Value, Stop> {
    let values: Result<Vec<Value>, Stop> =
        sides.iter().map(|side| read_value(side, depth + 1)).collect();
    let mut name = name(sides[0]);
    // The left side need not be an expression where it is only a name.
    let mut values = match (values, &name) {
        (Ok(values), _) => values,
        (Err(_), Some(_)) => {
            let mut rest = Vec::new();
            for side in &sides[1..] {
                rest.push(read_value(side, depth + 1)?);
            }
            return Ok(Value::Equation(Equation { name, values: rest, difference: None }));
        }
        (Err(stop), None) => return Err(stop),
    };
    let difference = match &values[..] {
        [left, right] => match (left.as_expr(), right.as_expr()) {
            (Some(left), Some(right)) => Some(Expr::Sum(vec![left.clone(), negate(right.clone())])),
            _ => None,
        },
        _ => None,
    };
    // `5 = x`
    if name.is_none()
        && let [[_, ..], [Item { token: Token::Symbol(right), .. }]] = sides
        && values[0].as_expr().is_some_and(|expr| expr.variables().is_empty())
    {
        name = Some(right.clone());
        values.pop();
        return Ok(Value::Equation(Equation { name, values, difference }));
    }
    // A variable that has a value by itself has none.
    let symbol = match sides[0] {
        [Item { token: Token::Symbol(symbol), .. }] => Some(symbol),
        _ => None,
    };
    let own = |value: &Value| {
        let expr = match value {
            Value::Quantity(quantity) => &quantity.expr,
            _ => return false,
        };
        symbol.is_some_and(|symbol| expr.variables().contains(symbol))
    };
    if values[1..].iter().any(own) {
        name = None;
    }
    if name.is_some() {
        values.remove(0);
    }
    Ok(Value::Equation(Equation { name, values, difference }))
}

/// What is left of an equals sign, where it only names: a variable, points in capitals, `f(x)`, words, a
/// tuple of variables.
fn name(items: &[Item]) -> Option<String> {
    let letters = |items: &[Item]| {
        let each = items.iter().map(|item| match &item.token {
            Token::Symbol(name) | Token::Word(name) => Some(name.clone()),
            _ => None,
        });
        each.collect::<Option<Vec<String>>>().map(|names| names.join(" "))
    };
    let capitals = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    match items {
        [] => None,
        [Item { token: Token::Symbol(name), .. }] => Some(name.clone()),
        [head, open, inner @ .., close]
            if matches!(head.token, Token::Symbol(_))
                && open.token == Token::Open(Bracket::Round)
                && close.token == Token::Close(Bracket::Round)
                && inner.len() == 1 =>
        {
            Some(format!("{}({})", letters(&items[..1])?, letters(inner)?))
        }
        [open, inner @ .., close]
            if open.token == Token::Open(Bracket::Round)
                && close.token == Token::Close(Bracket::Round) =>
        {
            let names: Vec<Item> =
                inner.iter().filter(|item| item.token != Token::Comma).cloned().collect();
            (names.len() > 1).then(|| letters(&names))?
        }
        _ => {
            let worded = items.iter().any(|item| matches!(&item.token, Token::Word(_)));
            letters(items).filter(|name| worded || capitals(name))
        }
    }
}

/// `x = 1, 2` and `x = 1, x = 2`: the values of one name are values.
pub(super) fn share_name(values: &mut [Value]) {
    let named = |value: &Value| match value {
        Value::Equation(Equation { name: Some(name), values, .. }) if values.len() == 1 => {
            Some(name.clone())
        }
        _ => None,
    };
    let Some(first) = values.first().and_then(named) else { return };
    let shared = values[1..].iter().all(|value| match value {
        Value::Equation(_) => named(value).as_ref() == Some(&first),
        _ => true,
    });
    if !shared {
        return;
    }
    for value in values {
        if let Value::Equation(Equation { values: inner, .. }) = value
            && let Some(only) = inner.pop()
        {
            *value = only;
        }
    }
}

fn inequality(sides: &[&[Item]], relations: &[Relation], depth: usize) -> Result<Value, Stop> {
    let mut exprs = Vec::new();
    for side in sides {
        exprs.push(match read_value(side, depth + 1)? {
            Value::Infinity(negative) if negative => negate(Expr::Infinity),
            Value::Infinity(_) => Expr::Infinity,
            value => value.as_expr().ok_or(Stop::Unread)?.clone(),
        });
    }
    let symbol = |expr: &Expr| match expr {
        Expr::Symbol(name) => Some(name.clone()),
        _ => None,
    };
    match (&exprs[..], relations) {
        ([left, right], [relation]) => {
            if let Some(name) = symbol(left).filter(|name| !right.variables().contains(name)) {
                return one_sided(name, *relation, right.clone());
            }
            if let Some(name) = symbol(right).filter(|name| !left.variables().contains(name)) {
                return one_sided(name, relation.turned(), left.clone());
            }
            let (above, below) = match relation {
                Relation::Greater | Relation::GreaterEqual => (left, right),
                Relation::Less | Relation::LessEqual => (right, left),
                Relation::Equal | Relation::NotEqual => return Err(Stop::Unread),
            };
            let strict = matches!(relation, Relation::Greater | Relation::Less);
            let expr = Expr::Sum(vec![above.clone(), negate(below.clone())]);
            Ok(Value::Above { expr, strict })
        }
        ([left, middle, right], [first, second]) => {
            let name = symbol(middle).ok_or(Stop::Unread)?;
            let (low, high, first, second) = match (first, second) {
                (Relation::Less | Relation::LessEqual, Relation::Less | Relation::LessEqual) => {
                    (left, right, *first, *second)
                }
                (
                    Relation::Greater | Relation::GreaterEqual,
                    Relation::Greater | Relation::GreaterEqual,
                ) => (right, left, second.turned(), first.turned()),
                _ => return Err(Stop::Unread),
            };
            let range = Range {
                low: end(low),
                has_low: first == Relation::LessEqual && end(low).is_some(),
                high: end(high),
                has_high: second == Relation::LessEqual && end(high).is_some(),
            };
            Ok(Value::Ranges { variable: Some(name), ranges: vec![range] })
        }
        _ => Err(Stop::Unread),
    }
}

/// An end of an interval: none where it is infinite.
fn end(expr: &Expr) -> Option<Expr> {
    (!expr.any(&|e| *e == Expr::Infinity)).then(|| expr.clone())
}

fn one_sided(name: String, relation: Relation, end: Expr) -> Result<Value, Stop> {
    if end.any(&|e| *e == Expr::Infinity) {
        return Err(Stop::Unread);
    }
    let mut range = Range::open(None, None);
    match relation {
        Relation::Less => range.high = Some(end),
        Relation::LessEqual => (range.high, range.has_high) = (Some(end), true),
        Relation::Greater => range.low = Some(end),
        Relation::GreaterEqual => (range.low, range.has_low) = (Some(end), true),
        Relation::NotEqual => return Ok(all_but(Some(name), end)),
        Relation::Equal => return Err(Stop::Unread),
    }
    Ok(Value::Ranges { variable: Some(name), ranges: vec![range] })
}

/// All numbers but one.
pub(super) fn all_but(variable: Option<String>, point: Expr) -> Value {
    let ranges = vec![Range::open(None, Some(point.clone())), Range::open(Some(point), None)];
    Value::Ranges { variable, ranges }
}
