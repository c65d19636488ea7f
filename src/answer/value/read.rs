//! Tokens to a value: which kind of answer it is, by its outermost signs.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed};

use super::limits::{MAX_ITEMS, Stop};
use super::names::number_word;
use super::parse::{Parsed, parse};
use super::relations;
use super::shape::{Quantity, Range, Value};
use super::token::{Bracket, Item, Token};
use super::tree::Expr;
use super::units::{Unit, unit};

/// Lists, brackets and sets within each other.
const MAX_NESTING: usize = 12;

/// The value that these tokens are.
pub(super) fn read(items: &[Item], depth: usize) -> Result<Value, Stop> {
    let items = without_groups(items);
    if depth > MAX_NESTING {
        return Err(Stop::TooLarge);
    }
    if items.is_empty() {
        return Err(Stop::Unread);
    }
    if let Some(value) = choice(items, depth)? {
        return Ok(value);
    }
    if let Some(word) = capitals(items) {
        return Ok(word);
    }
    let top = top_level(items)?;
    let at_top = |such: &dyn Fn(&Token) -> bool| top.iter().any(|at| such(&items[*at].token));
    if at_top(&|token| *token == Token::Union) {
        return union(&split(items, &top, |token| *token == Token::Union), depth);
    }
    if at_top(&is_separator) {
        return list(items, &top, depth);
    }
    if at_top(&|token| matches!(token, Token::Relation(_) | Token::In)) {
        return relations::read(items, &top, depth);
    }
    if at_top(&|token| *token == Token::Without) {
        return without(&split(items, &top, |token| *token == Token::Without), depth);
    }
    if at_top(&|token| *token == Token::Colon) {
        return ratio(&split(items, &top, |token| *token == Token::Colon))
            .or_else(|stop| words(items).ok_or(stop));
    }
    if let Some(value) = bracketed(items, &top, depth)? {
        return Ok(value);
    }
    single(items).or_else(|stop| words(items).ok_or(stop))
}

/// Without braces that hold everything.
pub(super) fn without_groups(mut items: &[Item]) -> &[Item] {
    while let [first, inner @ .., last] = items
        && first.token == Token::Open(Bracket::Group)
        && last.token == Token::Close(Bracket::Group)
        && closes_last(inner)
    {
        items = inner;
    }
    items
}

/// Whether what is within two braces never closes the first of them.
fn closes_last(inner: &[Item]) -> bool {
    let mut depth = 0usize;
    for item in inner {
        match item.token {
            Token::Open(Bracket::Group) => depth += 1,
            Token::Close(Bracket::Group) if depth == 0 => return false,
            Token::Close(Bracket::Group) => depth -= 1,
            _ => {}
        }
    }
    depth == 0
}

/// The places of tokens that no bracket and no matrix holds. Closing brackets count as outside, opening
/// ones do not. Round and square ones may close each other.
pub(super) fn top_level(items: &[Item]) -> Result<Vec<usize>, Stop> {
    let mut open: Vec<Bracket> = Vec::new();
    let mut matrices = 0usize;
    let mut top = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match item.token {
            Token::Begin(_) => matrices += 1,
            Token::End => matrices = matrices.checked_sub(1).ok_or(Stop::Unread)?,
            Token::Open(kind) => open.push(kind),
            Token::Close(kind) => {
                let mixes = |kind| matches!(kind, Bracket::Round | Bracket::Square);
                let opened = open.pop().ok_or(Stop::Unread)?;
                if opened != kind && !(mixes(opened) && mixes(kind)) {
                    return Err(Stop::Unread);
                }
            }
            _ => {}
        }
        if open.is_empty() && matrices == 0 {
            top.push(at);
        }
    }
    if open.is_empty() && matrices == 0 { Ok(top) } else { Err(Stop::Unread) }
}

/// The parts between tokens of the top level.
pub(super) fn split<'t>(
    items: &'t [Item],
    top: &[usize],
    at: impl Fn(&Token) -> bool,
) -> Vec<&'t [Item]> {
    let mut parts = Vec::new();
    let mut start = 0;
    for &place in top.iter().filter(|place| at(&items[**place].token)) {
        parts.push(&items[start..place]);
        start = place + 1;
    }
    parts.push(&items[start..]);
    parts
}

fn is_separator(token: &Token) -> bool {
    matches!(token, Token::Comma | Token::Semicolon) || is_word(token, &["and", "or"])
}

fn is_word(token: &Token, words: &[&str]) -> bool {
    matches!(token, Token::Word(word) if words.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

/// Values beside each other: no order. Inequalities joined by `or` are one set of numbers.
fn list(items: &[Item], top: &[usize], depth: usize) -> Result<Value, Stop> {
    let parts = split(items, top, is_separator);
    if parts.len() > MAX_ITEMS {
        return Err(Stop::TooLarge);
    }
    let filled: Vec<&[Item]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    // A comma at the end or an `and` at the beginning joins nothing.
    if let [only] = filled[..] {
        return if only.len() < items.len() { read(only, depth + 1) } else { Err(Stop::Unread) };
    }
    let alternatives = top.iter().any(|at| is_word(&items[*at].token, &["or"]));
    let mut values = Vec::new();
    for part in filled {
        match read(part, depth + 1) {
            // `±` gives two values of this list, a set in braces is one.
            Ok(Value::List(both)) if part[0].token != Token::Open(Bracket::Curly) => {
                values.extend(both);
            }
            Ok(value) => values.push(value),
            Err(stop) => return words(items).ok_or(stop),
        }
    }
    if values.len() > MAX_ITEMS {
        return Err(Stop::TooLarge);
    }
    if !alternatives && let Some(sum) = in_units(&values) {
        return Ok(sum);
    }
    let ranges = values.iter().all(|value| matches!(value, Value::Ranges { .. }));
    if ranges && alternatives {
        return joined(values);
    }
    // Prose with commas is one text, not a set of its parts.
    let prose = |value: &Value| matches!(value, Value::Words(text) if text.contains(' '));
    if values.iter().any(prose)
        && let Some(text) = words(items)
    {
        return Ok(text);
    }
    relations::share_name(&mut values);
    Ok(Value::List(values))
}

/// `1 hour and 30 minutes`: values of one measure, each in a smaller unit than the one before, are a sum.
fn in_units(values: &[Value]) -> Option<Value> {
    let quantities: Option<Vec<&Quantity>> = values
        .iter()
        .map(|value| match value {
            Value::Quantity(quantity) if quantity.unit.is_some() => Some(quantity.as_ref()),
            _ => None,
        })
        .collect();
    let quantities = quantities?;
    let first = quantities.first()?.unit.as_ref()?;
    let (mut terms, mut last) = (Vec::new(), None);
    for quantity in quantities {
        let unit = quantity.unit.as_ref()?;
        if unit.measures != first.measures || last.is_some_and(|last| unit.factor >= last) {
            return None;
        }
        last = Some(unit.factor.clone());
        let part = Expr::Number(&unit.factor / &first.factor);
        terms.push(Expr::Product(vec![part, quantity.expr.clone()]));
    }
    let (expr, unit) = (Expr::Sum(terms), Some(first.clone()));
    Some(Quantity { expr, unit, literal: None }.into())
}

fn union(parts: &[&[Item]], depth: usize) -> Result<Value, Stop> {
    let values: Result<Vec<Value>, Stop> = parts.iter().map(|part| read(part, depth + 1)).collect();
    joined(values?)
}

/// Intervals and sets of numbers as one set.
fn joined(values: Vec<Value>) -> Result<Value, Stop> {
    let (mut named, mut all) = (None, Vec::new());
    for value in values {
        if let Value::Ranges { variable: Some(name), .. } = &value {
            named = Some(name.clone());
        }
        all.extend(ranges(value).ok_or(Stop::Unread)?);
    }
    Ok(Value::Ranges { variable: named, ranges: all })
}

/// What a value is as a set of intervals.
pub(super) fn ranges(value: Value) -> Option<Vec<Range>> {
    match value {
        Value::Ranges { ranges, .. } => Some(ranges),
        Value::Tuple { open, close, items } => Some(vec![Range::of_tuple(open, close, &items)?]),
        Value::List(values) => values
            .iter()
            .map(|value| {
                let point = value.as_expr()?.clone();
                let (low, high) = (Some(point.clone()), Some(point));
                Some(Range { low, has_low: true, high, has_high: true })
            })
            .collect(),
        _ => None,
    }
}

/// `\mathbb{R} \setminus \{3\}`: all numbers but some.
fn without(parts: &[&[Item]], depth: usize) -> Result<Value, Stop> {
    let [[Item { token: Token::Reals, .. }], rest] = parts else { return Err(Stop::Unread) };
    match read(rest, depth + 1)? {
        Value::List(values) if values.len() == 1 => {
            let point = values[0].as_expr().ok_or(Stop::Unread)?.clone();
            Ok(relations::all_but(None, point))
        }
        _ => Err(Stop::Unread),
    }
}

fn ratio(parts: &[&[Item]]) -> Result<Value, Stop> {
    let mut exprs = Vec::new();
    let mut width = 0;
    for part in parts {
        let parsed = parse(part)?;
        if parsed.length != part.len() || parsed.money.is_some() {
            return Err(Stop::Unread);
        }
        width = parsed.literal.map_or(0, |literal| literal.width);
        exprs.push(parsed.expr);
    }
    Ok(Value::Ratio { clock: exprs.len() == 2 && width == 2, parts: exprs })
}

/// One value in brackets: a tuple, an interval, a set, a matrix.
fn bracketed(items: &[Item], top: &[usize], depth: usize) -> Result<Option<Value>, Stop> {
    let [first, inner @ .., last] = items else { return Ok(None) };
    match (&first.token, &last.token) {
        (Token::Begin(true), Token::End) if top.len() == 1 => matrix(inner, depth).map(Some),
        (Token::Open(open), Token::Close(close)) if top.len() == 1 => {
            within(*open, *close, inner, depth)
        }
        _ => Ok(None),
    }
}

fn within(
    open: Bracket,
    close: Bracket,
    inner: &[Item],
    depth: usize,
) -> Result<Option<Value>, Stop> {
    if open == Bracket::Curly {
        return set(inner, depth).map(Some);
    }
    if !matches!(open, Bracket::Round | Bracket::Square | Bracket::Angle) {
        return Ok(None);
    }
    let top = top_level(inner)?;
    let parts = split(inner, &top, |token| matches!(token, Token::Comma | Token::Semicolon));
    if parts.len() > MAX_ITEMS {
        return Err(Stop::TooLarge);
    }
    if parts.len() == 1 {
        return if open == Bracket::Round && close == Bracket::Round {
            read(inner, depth + 1).map(Some)
        } else {
            Ok(None)
        };
    }
    if has_thousands(&parts) {
        return Err(Stop::Unread);
    }
    let items: Result<Vec<Value>, Stop> =
        parts.into_iter().map(|part| read(part, depth + 1)).collect();
    Ok(Some(Value::Tuple { open, close, items: items? }))
}

/// Whether items between brackets may be one number: `(1,000)` is a thousand as likely as it is a point.
fn has_thousands(parts: &[&[Item]]) -> bool {
    let group = |part: &&[Item]| match part {
        [Item { token: Token::Number(n), spaced: false, .. }] => {
            n.width == 3 && n.decimals.is_none() && n.significant < 3
        }
        _ => false,
    };
    parts.iter().skip(1).any(group)
}

/// `{1, 2}`, `{x | x > 3}`, `{}`.
fn set(inner: &[Item], depth: usize) -> Result<Value, Stop> {
    if inner.is_empty() {
        return Ok(Value::List(Vec::new()));
    }
    let builder = matches!(inner, [first, bar, ..]
        if matches!(first.token, Token::Symbol(_)) && matches!(bar.token, Token::Bar | Token::Colon));
    if builder {
        return read(&inner[2..], depth + 1);
    }
    if has_thousands(&split(inner, &top_level(inner)?, |token| *token == Token::Comma)) {
        return Err(Stop::Unread);
    }
    match read(inner, depth + 1)? {
        list @ Value::List(_) => Ok(list),
        one => Ok(Value::List(vec![one])),
    }
}

fn matrix(inner: &[Item], depth: usize) -> Result<Value, Stop> {
    let top = top_level(inner)?;
    let mut rows = split(inner, &top, |token| *token == Token::Row);
    // A row that was ended and not begun.
    if rows.len() > 1 && rows.last().is_some_and(|row| row.is_empty()) {
        rows.pop();
    }
    let mut cells = 0;
    let mut matrix = Vec::new();
    for row in rows {
        let top = top_level(row)?;
        let parts = split(row, &top, |token| *token == Token::Cell);
        cells += parts.len();
        if cells > MAX_ITEMS {
            return Err(Stop::TooLarge);
        }
        let values: Result<Vec<Value>, Stop> =
            parts.into_iter().map(|part| read(part, depth + 1)).collect();
        matrix.push(values?);
    }
    let sound = matrix.iter().all(|row| row.len() == matrix[0].len());
    if sound { Ok(Value::Matrix(matrix)) } else { Err(Stop::Unread) }
}

/// `(B)`, `(C) the letter and more`, `B) 12`.
fn choice(items: &[Item], depth: usize) -> Result<Option<Value>, Stop> {
    let letter = |item: &Item| match &item.token {
        Token::Symbol(name) | Token::Word(name) if name.len() == 1 => name.chars().next(),
        _ => None,
    };
    let round = |item: &Item, open: bool| {
        let bracket = Bracket::Round;
        item.token == if open { Token::Open(bracket) } else { Token::Close(bracket) }
    };
    let (found, rest) = match items {
        [open, name, close, rest @ ..] if round(open, true) && round(close, false) => {
            (letter(name), rest)
        }
        [name, close, rest @ ..] if round(close, false) => (letter(name), rest),
        _ => (None, items),
    };
    let Some(letter) = found else { return Ok(None) };
    match rest {
        [] => Ok(Some(Value::Choice(letter, None))),
        [next, ..]
            if ('A'..='H').contains(&letter)
                && (next.spaced || next.text)
                && !matches!(next.token, Token::Plus | Token::Minus | Token::Times) =>
        {
            let value = read(rest, depth + 1).ok().map(Box::new);
            Ok(Some(Value::Choice(letter, value)))
        }
        _ => Ok(None),
    }
}

/// `HHT`, `XI`: capital letters alone are a word, in which order counts, and no product.
fn capitals(items: &[Item]) -> Option<Value> {
    let letter = |item: &Item| match &item.token {
        Token::Symbol(name) | Token::Word(name) => {
            name.chars().all(|c| c.is_ascii_uppercase()).then(|| name.to_lowercase())
        }
        _ => None,
    };
    let word: Option<String> = items.iter().map(letter).collect();
    word.filter(|_| items.len() > 1).map(Value::Words)
}

/// One expression with its unit, or one of the values that are no expressions.
fn single(items: &[Item]) -> Result<Value, Stop> {
    match items {
        [Item { token: Token::Reals, .. }] => {
            return Ok(Value::Ranges { variable: None, ranges: vec![Range::open(None, None)] });
        }
        [Item { token: Token::Empty, .. }] => return Ok(Value::List(Vec::new())),
        [Item { token: Token::Based(digits, base), .. }] => {
            let value = BigInt::parse_bytes(digits.as_bytes(), *base).ok_or(Stop::Unread)?;
            let digits = digits.trim_start_matches('0').to_owned();
            let value = BigRational::from_integer(value);
            return Ok(Value::Based { digits, base: *base, value });
        }
        [Item { token: Token::Word(word), .. }] => {
            if let Some(number) = number_word(word) {
                return Ok(Value::expr(Expr::integer(i64::from(number))));
            }
        }
        _ => {}
    }
    let (parsed, mut unit) = with_unit(items)?;
    if let Some(money) = parsed.money {
        let money = if money == "pound" { "sterling" } else { money };
        unit = Some(unit.map_or_else(|| Unit::named(money), |unit| unit.with_money(money)));
    }
    let (mut expr, degrees) = undegreed(parsed.expr);
    if degrees && unit.is_none() {
        unit = Some(Unit::named("degree"));
    }
    let mut literal = parsed.literal;
    // 3 dozen are 36, and so are 3 dozen eggs; a unit of nothing is none.
    if let Some(unit) = &mut unit
        && !unit.scale.is_one()
    {
        if !expr.variables().is_empty() {
            return Err(Stop::Unread);
        }
        let scale = std::mem::replace(&mut unit.scale, BigRational::one());
        expr = Expr::Product(vec![Expr::Number(scale), expr]);
        literal = None;
    }
    unit.take_if(|unit| unit.measures.is_empty());
    match expr {
        Expr::Infinity => return Ok(Value::Infinity(false)),
        Expr::Negative(inner) if *inner == Expr::Infinity => return Ok(Value::Infinity(true)),
        Expr::Signed(_, ref inner) if **inner == Expr::Infinity => return Err(Stop::Unread),
        _ => {}
    }
    if expr.any(&|e| matches!(e, Expr::Signed(..))) {
        let side = |lower| {
            let expr = expr.with_sign(lower);
            Value::from(Quantity { expr, unit: unit.clone(), literal: None })
        };
        return Ok(Value::List(vec![side(false), side(true)]));
    }
    Ok(Quantity { expr, unit, literal }.into())
}

/// An expression and the unit behind it. `60 m` is a number and a unit; `60m` may be a product.
fn with_unit(items: &[Item]) -> Result<(Parsed, Option<Unit>), Stop> {
    if let [head @ .., last] = items
        && matches!(head.last(), Some(Item { token: Token::Number(_), .. }))
        && last.spaced
        && let Token::Symbol(name) = &last.token
        && "mghsL".contains(name.as_str())
        && let Ok(parsed) = parse(head)
        && parsed.length == head.len()
        && parsed.literal.is_some()
    {
        return Ok((parsed, Some(Unit::named(name))));
    }
    let parsed = parse(items)?;
    let unit = match &items[parsed.length..] {
        [] => None,
        rest => Some(unit(rest, is_at_most_one(&parsed.expr)).ok_or(Stop::Unread)?),
    };
    // Unknown words behind variables are a text: `mrs hilt`.
    if unit.as_ref().is_some_and(|unit| !unit.known) && !parsed.expr.variables().is_empty() {
        return Err(Stop::Unread);
    }
    Ok((parsed, unit))
}

/// Whether something is counted in the singular: a number up to one, or a fraction of numbers.
fn is_at_most_one(expr: &Expr) -> bool {
    match expr {
        Expr::Number(value) => value.abs() <= BigRational::one(),
        Expr::Product(parts) => match &parts[..] {
            [Expr::Number(above), Expr::Inverse(below)] => {
                matches!(&**below, Expr::Number(below) if above.abs() <= below.abs())
            }
            _ => false,
        },
        _ => false,
    }
}

/// An angle in degrees as its number.
fn undegreed(expr: Expr) -> (Expr, bool) {
    match expr {
        Expr::Degrees(inner) => (*inner, true),
        Expr::Negative(inner) => {
            let (inner, degrees) = undegreed(*inner);
            (super::parse::negate(inner), degrees)
        }
        other => (other, false),
    }
}

/// Tokens as text, where there is a word among them: words in small letters, numbers and signs as they are.
pub(super) fn words(items: &[Item]) -> Option<Value> {
    let mut any = false;
    let mut parts: Vec<String> = Vec::new();
    // Letters beside each other, which are variables elsewhere, are a word here.
    let mut letters = false;
    for item in items {
        let letter = match &item.token {
            Token::Symbol(name) if name.len() == 1 => Some(name.as_str()),
            Token::Euler => Some("e"),
            Token::Imaginary => Some("i"),
            _ => None,
        };
        let goes_on = letters && !item.spaced;
        letters = letter.is_some();
        if let (Some(letter), true, Some(last)) = (letter, goes_on, parts.last_mut()) {
            *last = format!("{last}{letter}").to_lowercase();
            continue;
        }
        parts.push(match &item.token {
            Token::Word(word) => {
                any = true;
                word.to_lowercase()
            }
            Token::Symbol(name) => name.clone(),
            Token::Number(literal) => literal.value.to_string(),
            Token::Comma | Token::Semicolon => continue,
            Token::Open(Bracket::Group) | Token::Close(Bracket::Group) => continue,
            Token::Euler => "e".to_owned(),
            Token::Imaginary => "i".to_owned(),
            other => format!("{other:?}"),
        });
    }
    any.then(|| Value::Words(parts.join(" ")))
}
