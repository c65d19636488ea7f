//! Expressions as trees. Depth is bounded by the parser, so walks over them may recurse.

use num_rational::BigRational;

use super::token::Function;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(BigRational),
    Symbol(String),
    Pi,
    Euler,
    Imaginary,
    /// Has a meaning only alone or negated.
    Infinity,
    Sum(Vec<Expr>),
    Product(Vec<Expr>),
    Negative(Box<Expr>),
    Inverse(Box<Expr>),
    Power(Box<Expr>, Box<Expr>),
    /// The root of an index, which is an integer from 2 on.
    Root(u32, Box<Expr>),
    Call(Function, Box<Expr>),
    /// The logarithm to a base, of a value.
    LogBase(Box<Expr>, Box<Expr>),
    Factorial(Box<Expr>),
    Binomial(Box<Expr>, Box<Expr>),
    /// Degrees: a hundred-and-eightieth of pi where it stands within an expression.
    Degrees(Box<Expr>),
    /// `± x`; true where the sign is `∓`.
    Signed(bool, Box<Expr>),
}

impl Expr {
    pub(super) fn integer(value: i64) -> Self {
        Self::Number(BigRational::from_integer(value.into()))
    }

    /// The expressions directly below this one.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Number(_) | Self::Symbol(_) | Self::Pi | Self::Euler => Vec::new(),
            Self::Imaginary | Self::Infinity => Vec::new(),
            Self::Sum(parts) | Self::Product(parts) => parts.iter().collect(),
            Self::Negative(a) | Self::Inverse(a) | Self::Root(_, a) | Self::Call(_, a) => vec![a],
            Self::Factorial(a) | Self::Degrees(a) | Self::Signed(_, a) => vec![a],
            Self::Power(a, b) | Self::LogBase(a, b) | Self::Binomial(a, b) => vec![a, b],
        }
    }

    /// Whether this expression or one within it is such.
    pub(super) fn any(&self, such: &dyn Fn(&Self) -> bool) -> bool {
        such(self) || self.parts().into_iter().any(|part| part.any(such))
    }

    /// The names of its variables, each once, in order.
    pub(super) fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.gather(&mut names);
        names.sort();
        names.dedup();
        names
    }

    fn gather(&self, names: &mut Vec<String>) {
        if let Self::Symbol(name) = self {
            names.push(name.clone());
        }
        self.parts().into_iter().for_each(|part| part.gather(names));
    }

    /// Without `±`: all upper signs, or all lower ones.
    pub(super) fn with_sign(&self, lower: bool) -> Self {
        let boxed = |e: &Self| Box::new(e.with_sign(lower));
        let all = |parts: &[Self]| parts.iter().map(|part| part.with_sign(lower)).collect();
        match self {
            Self::Signed(turned, a) if *turned == lower => a.with_sign(lower),
            Self::Signed(_, a) => Self::Negative(boxed(a)),
            Self::Sum(parts) => Self::Sum(all(parts)),
            Self::Product(parts) => Self::Product(all(parts)),
            Self::Negative(a) => Self::Negative(boxed(a)),
            Self::Inverse(a) => Self::Inverse(boxed(a)),
            Self::Root(n, a) => Self::Root(*n, boxed(a)),
            Self::Call(f, a) => Self::Call(*f, boxed(a)),
            Self::Factorial(a) => Self::Factorial(boxed(a)),
            Self::Degrees(a) => Self::Degrees(boxed(a)),
            Self::Power(a, b) => Self::Power(boxed(a), boxed(b)),
            Self::LogBase(a, b) => Self::LogBase(boxed(a), boxed(b)),
            Self::Binomial(a, b) => Self::Binomial(boxed(a), boxed(b)),
            leaf => leaf.clone(),
        }
    }
}
