//! Tokens to an expression. Recursive by brackets, roots and powers, to a depth that is bounded.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

use super::limits::{MAX_DEPTH, Stop};
use super::token::{Bracket, Function, Item, Literal, Token};
use super::tree::Expr;

/// An expression and what was said of its numbers.
#[derive(Debug)]
pub(super) struct Parsed {
    pub expr: Expr,
    /// The number as written, where the whole is one number.
    pub literal: Option<Literal>,
    /// The sign of money that stood before it.
    pub money: Option<&'static str>,
    /// Tokens that were read; a unit may follow.
    pub length: usize,
}

/// Reads the longest expression that begins here.
pub(super) fn parse(items: &[Item]) -> Result<Parsed, Stop> {
    let mut parser = Parser { items, at: 0, depth: 0, bars: 0, money: None, tight: false };
    let expr = parser.sum()?;
    let literal = lone_literal(&items[..parser.at]);
    Ok(Parsed { expr, literal, money: parser.money, length: parser.at })
}

fn lone_literal(items: &[Item]) -> Option<Literal> {
    let mut found = None;
    for item in items {
        match &item.token {
            Token::Number(literal) if found.is_none() => found = Some(literal.clone()),
            Token::Plus | Token::Minus | Token::Money(_) | Token::Degree | Token::Power => {}
            Token::Open(Bracket::Group) | Token::Close(Bracket::Group) => {}
            _ => return None,
        }
    }
    found
}

struct Parser<'t> {
    items: &'t [Item],
    at: usize,
    depth: usize,
    /// Bars of absolute values that are open.
    bars: usize,
    money: Option<&'static str>,
    /// A number here is an exponent or a base without braces, and never the whole of a mixed one.
    tight: bool,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.ahead(0)
    }

    fn ahead(&self, n: usize) -> Option<&'t Token> {
        self.items.get(self.at + n).map(|item| &item.token)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token) -> Result<(), Stop> {
        if self.take(token) { Ok(()) } else { Err(Stop::Unread) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        if self.depth >= MAX_DEPTH {
            return Err(Stop::TooLarge);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn sum(&mut self) -> Result<Expr, Stop> {
        let mut terms = vec![self.signed(Parser::product)?];
        while let Some(Token::Plus | Token::Minus | Token::PlusMinus | Token::MinusPlus) =
            self.peek()
        {
            terms.push(self.signed(Parser::product)?);
        }
        Ok(match terms.pop() {
            Some(only) if terms.is_empty() => only,
            last => Expr::Sum(terms.into_iter().chain(last).collect()),
        })
    }

    /// Any signs, and what they stand before.
    fn signed(&mut self, read: impl FnOnce(&mut Self) -> Result<Expr, Stop>) -> Result<Expr, Stop> {
        let (mut negative, mut either) = (false, None);
        while let Some(token) = self.peek() {
            match token {
                Token::Plus => {}
                Token::Minus => negative = !negative,
                Token::PlusMinus if either.is_none() => either = Some(false),
                Token::MinusPlus if either.is_none() => either = Some(true),
                Token::Money(name) if self.depth == 0 => self.money = Some(name),
                _ => break,
            }
            self.at += 1;
        }
        let expr = read(self)?;
        let expr = if negative { negate(expr) } else { expr };
        Ok(match either {
            Some(turned) => Expr::Signed(turned, Box::new(expr)),
            None => expr,
        })
    }

    fn product(&mut self) -> Result<Expr, Stop> {
        let mut factors = vec![self.power()?];
        loop {
            let factor = match self.peek() {
                Some(Token::Times) => {
                    self.at += 1;
                    self.signed(Parser::power)?
                }
                Some(Token::Divide) => {
                    self.at += 1;
                    Expr::Inverse(Box::new(self.signed(Parser::power)?))
                }
                Some(token) if self.begins_factor(token) => self.power()?,
                _ => break,
            };
            factors.push(factor);
        }
        Ok(match factors.pop() {
            Some(only) if factors.is_empty() => only,
            last => Expr::Product(factors.into_iter().chain(last).collect()),
        })
    }

    /// Whether a factor begins here without a sign of multiplication. A number never does.
    fn begins_factor(&self, token: &Token) -> bool {
        match token {
            Token::Symbol(_) | Token::Pi | Token::Euler | Token::Imaginary | Token::Call(_) => true,
            Token::Fraction | Token::Binomial | Token::Root | Token::CubeRoot => true,
            // `9 (apples)`: a unit, not a factor.
            Token::Open(Bracket::Round) => {
                !matches!(self.ahead(1), Some(Token::Word(word)) if word.len() > 1)
            }
            Token::Open(kind) => *kind != Bracket::Curly && *kind != Bracket::Angle,
            Token::Bar => self.bars == 0,
            _ => false,
        }
    }

    fn power(&mut self) -> Result<Expr, Stop> {
        self.deeper(|parser| {
            let base = parser.atom()?;
            parser.raised(base)
        })
    }

    /// What follows an operand: `!`, `^`, degrees.
    fn raised(&mut self, mut base: Expr) -> Result<Expr, Stop> {
        if self.take(&Token::Factorial) {
            // `n!!` is another function.
            if self.peek() == Some(&Token::Factorial) {
                return Err(Stop::Unread);
            }
            base = Expr::Factorial(Box::new(base));
        }
        if self.degrees() {
            return Ok(Expr::Degrees(Box::new(base)));
        }
        if self.take(&Token::Power) {
            let exponent = self.tightly(|parser| parser.signed(Parser::power))?;
            base = Expr::Power(Box::new(base), Box::new(exponent));
            if self.take(&Token::Factorial) {
                base = Expr::Factorial(Box::new(base));
            }
        }
        Ok(base)
    }

    fn degrees(&mut self) -> bool {
        let group = [
            Token::Power,
            Token::Open(Bracket::Group),
            Token::Degree,
            Token::Close(Bracket::Group),
        ];
        let forms: [&[Token]; 3] = [&group[2..3], &[Token::Power, Token::Degree], &group];
        for form in forms {
            if form.iter().enumerate().all(|(n, token)| self.ahead(n) == Some(token)) {
                self.at += form.len();
                return true;
            }
        }
        false
    }

    fn atom(&mut self) -> Result<Expr, Stop> {
        let token = self.peek().ok_or(Stop::Unread)?;
        self.at += 1;
        match token {
            Token::Number(literal) => self.number(literal),
            Token::Symbol(name) => self.named(name),
            // A letter in `\text` is a variable where it stands in an expression.
            Token::Word(word) if word.len() == 1 => Ok(Expr::Symbol(word.clone())),
            Token::Pi => Ok(Expr::Pi),
            Token::Euler => Ok(Expr::Euler),
            Token::Imaginary => Ok(Expr::Imaginary),
            Token::Infinity => Ok(Expr::Infinity),
            Token::Fraction => {
                let above = self.argument()?;
                let below = self.argument()?;
                Ok(Expr::Product(vec![above, Expr::Inverse(Box::new(below))]))
            }
            Token::Binomial => {
                let above = self.argument()?;
                let below = self.argument()?;
                Ok(Expr::Binomial(Box::new(above), Box::new(below)))
            }
            Token::Root => self.root(),
            Token::CubeRoot => Ok(Expr::Root(3, Box::new(self.argument()?))),
            Token::Call(function) => self.call(*function),
            Token::Bar => {
                self.bars += 1;
                let inner = self.sum()?;
                self.expect(&Token::Bar)?;
                self.bars -= 1;
                Ok(Expr::Call(Function::Abs, Box::new(inner)))
            }
            Token::Open(kind) => self.bracketed(*kind),
            _ => Err(Stop::Unread),
        }
    }

    fn bracketed(&mut self, kind: Bracket) -> Result<Expr, Stop> {
        let bars = std::mem::take(&mut self.bars);
        let tight = std::mem::take(&mut self.tight);
        let inner = self.sum()?;
        self.expect(&Token::Close(kind))?;
        (self.bars, self.tight) = (bars, tight);
        match kind {
            Bracket::Group | Bracket::Round | Bracket::Square => Ok(inner),
            Bracket::Floor => Ok(Expr::Call(Function::Floor, Box::new(inner))),
            Bracket::Ceiling => Ok(Expr::Call(Function::Ceiling, Box::new(inner))),
            Bracket::Curly | Bracket::Angle => Err(Stop::Unread),
        }
    }

    /// What a fraction or a root stands over: a group, or the next operand alone.
    fn argument(&mut self) -> Result<Expr, Stop> {
        self.tightly(|parser| parser.deeper(Parser::atom))
    }

    fn tightly<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Stop>) -> Result<T, Stop> {
        let before = std::mem::replace(&mut self.tight, true);
        let result = read(self);
        self.tight = before;
        result
    }

    /// A number, mixed where a proper fraction of whole numbers follows: `7 \frac{3}{4}`, `4 1/3`.
    fn number(&mut self, literal: &Literal) -> Result<Expr, Stop> {
        let whole = Expr::Number(literal.value.clone());
        if self.tight || literal.decimals.is_some() || !literal.value.is_integer() {
            return Ok(whole);
        }
        let integer = |token: Option<&Token>| match token {
            Some(Token::Number(n)) if n.decimals.is_none() && n.value.is_integer() => {
                Some(n.value.to_integer())
            }
            _ => None,
        };
        let spaced = self.items.get(self.at).is_some_and(|item| item.spaced);
        if let (true, Some(above), Some(Token::Divide), Some(below)) =
            (spaced, integer(self.peek()), self.ahead(1), integer(self.ahead(2)))
        {
            self.at += 3;
            return mixed(&literal.value, above, below);
        }
        if self.peek() != Some(&Token::Fraction) {
            return Ok(whole);
        }
        let before = self.at;
        self.at += 1;
        let (above, below) = (self.argument()?, self.argument()?);
        match (above, below) {
            (Expr::Number(above), Expr::Number(below))
                if above.is_integer() && below.is_integer() =>
            {
                mixed(&literal.value, above.to_integer(), below.to_integer())
            }
            _ => {
                self.at = before;
                Ok(whole)
            }
        }
    }

    /// A variable, or `f(x)`.
    fn named(&mut self, name: &str) -> Result<Expr, Stop> {
        let letter = name.chars().next().filter(|c| name.len() == 1 && "fgh".contains(*c));
        match letter {
            Some(letter) if self.take(&Token::Open(Bracket::Round)) => {
                let inner = self.deeper(|parser| parser.bracketed(Bracket::Round))?;
                Ok(Expr::Call(Function::Named(letter), Box::new(inner)))
            }
            _ => Ok(Expr::Symbol(name.to_owned())),
        }
    }

    fn root(&mut self) -> Result<Expr, Stop> {
        let mut index = 2;
        if self.take(&Token::Open(Bracket::Square)) {
            let inner = self.deeper(|parser| parser.bracketed(Bracket::Square))?;
            index = match inner {
                Expr::Number(n) if n.is_integer() => n.to_integer().to_u32(),
                _ => None,
            }
            .filter(|n| (2..=64).contains(n))
            .ok_or(Stop::Unread)?;
        }
        Ok(Expr::Root(index, Box::new(self.argument()?)))
    }

    /// A function with its power, its base, and what it is of: a bracket, or factors up to the next sign.
    fn call(&mut self, function: Function) -> Result<Expr, Stop> {
        let (mut power, mut base) = (None, None);
        for _ in 0..2 {
            if self.take(&Token::Power) {
                power = Some(self.deeper(|parser| parser.signed(Parser::atom))?);
            }
            if function == Function::Log && self.take(&Token::Subscript) {
                base = Some(self.argument()?);
            }
        }
        let mut function = function;
        let inverse = power == Some(negate(Expr::integer(1)));
        if inverse {
            function = match function {
                Function::Sin => Function::Arcsin,
                Function::Cos => Function::Arccos,
                Function::Tan => Function::Arctan,
                _ => return Err(Stop::Unread),
            };
            power = None;
        }
        let of = match self.peek() {
            Some(Token::Open(Bracket::Round | Bracket::Square | Bracket::Group)) => {
                self.argument()?
            }
            _ => self.deeper(|parser| parser.signed(Parser::factors))?,
        };
        let of = Box::new(of);
        let value = match base {
            Some(base) => Expr::LogBase(Box::new(base), of),
            None => Expr::Call(function, of),
        };
        Ok(match power {
            Some(power) => Expr::Power(Box::new(value), Box::new(power)),
            None => value,
        })
    }

    /// Factors beside each other, none of them a bracket or a function: what `\sin 2\pi x` is of.
    fn factors(&mut self) -> Result<Expr, Stop> {
        let mut factors = vec![self.power()?];
        while let Some(token) = self.peek()
            && self.begins_factor(token)
            && !matches!(token, Token::Call(_) | Token::Open(_) | Token::Bar)
        {
            factors.push(self.power()?);
        }
        Ok(match factors.pop() {
            Some(only) if factors.is_empty() => only,
            last => Expr::Product(factors.into_iter().chain(last).collect()),
        })
    }
}

/// The opposite, a number's directly.
pub(super) fn negate(expr: Expr) -> Expr {
    match expr {
        Expr::Number(n) => Expr::Number(-n),
        Expr::Negative(inner) => *inner,
        other => Expr::Negative(Box::new(other)),
    }
}

fn mixed(whole: &BigRational, above: BigInt, below: BigInt) -> Result<Expr, Stop> {
    let proper = !above.is_negative() && above < below && !below.is_zero();
    if !proper {
        return Err(Stop::Unread);
    }
    Ok(Expr::Number(whole + BigRational::new(above, below)))
}
