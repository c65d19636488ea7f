//! What an answer's text is made of.

use num_rational::BigRational;

/// A number as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Literal {
    pub value: BigRational,
    /// Digits after the point; none where there is no point, or where the digits repeat for ever.
    pub decimals: Option<usize>,
    /// Digits from the first that is not zero on.
    pub significant: usize,
    /// All digits that are written, so that `3:00` is told from `3:0`.
    pub width: usize,
    /// The digits go on (`0.142…`): what is written is cut off, not rounded.
    pub goes_on: bool,
}

/// Brackets come in pairs of a kind; intervals may mix `Round` and `Square`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bracket {
    /// `{…}`: holds together and is not seen.
    Group,
    Round,
    Square,
    /// `\{…\}`
    Curly,
    Angle,
    Floor,
    Ceiling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    NotEqual,
}

impl Relation {
    /// The relation read from right to left.
    pub(super) fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            same => same,
        }
    }
}

/// Functions of one argument; `Log` has its base beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Function {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Arcsin,
    Arccos,
    Arctan,
    Sinh,
    Cosh,
    Tanh,
    Ln,
    /// Base 10 where none is written.
    Log,
    Exp,
    Cis,
    Abs,
    Floor,
    Ceiling,
    /// `f(x)`, of which nothing is known but its letter.
    Named(char),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(Literal),
    /// `4343_6`: digits in capitals, and the base.
    Based(String, u32),
    Symbol(String),
    Word(String),
    Pi,
    Euler,
    Imaginary,
    Infinity,
    Call(Function),
    Fraction,
    Binomial,
    Root,
    CubeRoot,
    Plus,
    Minus,
    PlusMinus,
    MinusPlus,
    Times,
    Divide,
    Power,
    Factorial,
    Subscript,
    Open(Bracket),
    Close(Bracket),
    Bar,
    Comma,
    Semicolon,
    Colon,
    Relation(Relation),
    In,
    Union,
    Intersection,
    Without,
    Percent,
    Degree,
    /// A sign of money, by the name of its unit.
    Money(&'static str),
    /// Of a matrix; a determinant's is false.
    Begin(bool),
    End,
    Cell,
    Row,
    Reals,
    Empty,
    /// Something that has no meaning here, so that nothing that holds it is read.
    Unknown(String),
}

/// A token, and what stood around it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub token: Token,
    /// A space came before it.
    pub spaced: bool,
    /// It stood in `\text{…}`.
    pub text: bool,
}
