//! Names that answers use: functions, letters, units, numbers in words.

use super::token::{Bracket, Function, Relation, Token};

/// A function by its name, as LaTeX and as plain text have it.
pub(super) fn function(name: &str) -> Option<Function> {
    use Function::*;
    Some(match name {
        "sin" => Sin,
        "cos" => Cos,
        "tan" | "tg" => Tan,
        "cot" | "ctg" => Cot,
        "sec" => Sec,
        "csc" | "cosec" => Csc,
        "arcsin" | "asin" => Arcsin,
        "arccos" | "acos" => Arccos,
        "arctan" | "atan" => Arctan,
        "sinh" => Sinh,
        "cosh" => Cosh,
        "tanh" => Tanh,
        "ln" => Ln,
        "log" | "lg" => Log,
        "exp" => Exp,
        "cis" => Cis,
        "abs" => Abs,
        "floor" => Floor,
        "ceil" | "ceiling" => Ceiling,
        _ => return None,
    })
}

/// A plain word that is a sign of mathematics.
pub(super) fn plain_name(name: &str) -> Option<Token> {
    Some(match name {
        "sqrt" | "Sqrt" => Token::Root,
        "cbrt" => Token::CubeRoot,
        "pi" | "Pi" | "PI" => Token::Pi,
        "infinity" | "Infinity" | "infty" | "inf" | "oo" => Token::Infinity,
        "theta" | "alpha" | "beta" | "gamma" | "lambda" => Token::Symbol(name.to_owned()),
        _ => Token::Call(function(name)?),
    })
}

/// What a LaTeX command means where it takes no braces of its own.
pub(super) fn command(name: &str) -> Option<Token> {
    Some(match name {
        "pi" => Token::Pi,
        "infty" => Token::Infinity,
        "imath" => Token::Imaginary,
        "cdot" | "times" | "ast" | "cdotp" => Token::Times,
        "div" => Token::Divide,
        "pm" => Token::PlusMinus,
        "mp" => Token::MinusPlus,
        "le" | "leq" | "leqslant" => Token::Relation(Relation::LessEqual),
        "ge" | "geq" | "geqslant" => Token::Relation(Relation::GreaterEqual),
        "lt" => Token::Relation(Relation::Less),
        "gt" => Token::Relation(Relation::Greater),
        "ne" | "neq" => Token::Relation(Relation::NotEqual),
        "in" => Token::In,
        "cup" => Token::Union,
        "cap" => Token::Intersection,
        "setminus" | "backslash" | "smallsetminus" => Token::Without,
        "circ" | "degree" => Token::Degree,
        "lfloor" => Token::Open(Bracket::Floor),
        "rfloor" => Token::Close(Bracket::Floor),
        "lceil" => Token::Open(Bracket::Ceiling),
        "rceil" => Token::Close(Bracket::Ceiling),
        "langle" => Token::Open(Bracket::Angle),
        "rangle" => Token::Close(Bracket::Angle),
        "lbrace" => Token::Open(Bracket::Curly),
        "rbrace" => Token::Close(Bracket::Curly),
        "lbrack" => Token::Open(Bracket::Square),
        "rbrack" => Token::Close(Bracket::Square),
        "lvert" | "rvert" | "vert" | "mid" => Token::Bar,
        "colon" => Token::Colon,
        "emptyset" | "varnothing" => Token::Empty,
        "sqrt" => Token::Root,
        "alpha" | "beta" | "gamma" | "delta" | "epsilon" | "varepsilon" | "zeta" | "eta"
        | "theta" | "vartheta" | "iota" | "kappa" | "lambda" | "mu" | "nu" | "xi" | "rho"
        | "sigma" | "tau" | "upsilon" | "phi" | "varphi" | "chi" | "psi" | "omega" | "Gamma"
        | "Delta" | "Theta" | "Lambda" | "Sigma" | "Phi" | "Psi" | "Omega" | "ell" => {
            Token::Symbol(name.to_owned())
        }
        _ => Token::Call(function(name)?),
    })
}

/// Commands that only move or size what is around them.
pub(super) fn is_layout(name: &str) -> bool {
    const LAYOUT: [&str; 24] = [
        "left",
        "right",
        "big",
        "Big",
        "bigg",
        "Bigg",
        "bigl",
        "bigr",
        "Bigl",
        "Bigr",
        "biggl",
        "biggr",
        "Biggl",
        "Biggr",
        "middle",
        "displaystyle",
        "textstyle",
        "limits",
        "quad",
        "qquad",
        "nolimits",
        "thinspace",
        "hfill",
        "scriptstyle",
    ];
    LAYOUT.contains(&name)
}

/// Signs outside ASCII.
pub(super) fn sign(c: char) -> Option<Token> {
    Some(match c {
        '−' | '–' | '—' | '﹣' | '－' => Token::Minus,
        '×' | '·' | '⋅' | '∙' | '✕' => Token::Times,
        '÷' | '⁄' | '∕' => Token::Divide,
        '±' => Token::PlusMinus,
        '∓' => Token::MinusPlus,
        '√' => Token::Root,
        '∛' => Token::CubeRoot,
        'π' => Token::Pi,
        '∞' => Token::Infinity,
        '∪' | '⋃' => Token::Union,
        '∩' => Token::Intersection,
        '∖' => Token::Without,
        '∈' => Token::In,
        '≤' | '⩽' => Token::Relation(Relation::LessEqual),
        '≥' | '⩾' => Token::Relation(Relation::GreaterEqual),
        '≠' => Token::Relation(Relation::NotEqual),
        '°' | 'º' => Token::Degree,
        '∅' => Token::Empty,
        'ℝ' => Token::Reals,
        '⌊' => Token::Open(Bracket::Floor),
        '⌋' => Token::Close(Bracket::Floor),
        '⌈' => Token::Open(Bracket::Ceiling),
        '⌉' => Token::Close(Bracket::Ceiling),
        '⟨' => Token::Open(Bracket::Angle),
        '⟩' => Token::Close(Bracket::Angle),
        '（' => Token::Open(Bracket::Round),
        '）' => Token::Close(Bracket::Round),
        '，' | '、' => Token::Comma,
        '€' => Token::Money("euro"),
        '£' => Token::Money("pound"),
        '¥' => Token::Money("yen"),
        '₹' => Token::Money("rupee"),
        '¢' => Token::Word("cent".to_owned()),
        'α'..='ω' | 'Γ'..='Ω' => Token::Symbol(greek(c)),
        _ => return None,
    })
}

/// Greek letters have the names that LaTeX gives them, as far as both forms are met.
fn greek(c: char) -> String {
    let name = match c {
        'α' => "alpha",
        'β' => "beta",
        'γ' => "gamma",
        'δ' => "delta",
        'θ' => "theta",
        'λ' => "lambda",
        'μ' => "mu",
        'ρ' => "rho",
        'σ' => "sigma",
        'τ' => "tau",
        'φ' => "phi",
        'ω' => "omega",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// `½` and its like: numerator and divisor.
pub(super) fn small_fraction(c: char) -> Option<(u32, u32)> {
    Some(match c {
        '½' => (1, 2),
        '⅓' => (1, 3),
        '⅔' => (2, 3),
        '¼' => (1, 4),
        '¾' => (3, 4),
        '⅕' => (1, 5),
        '⅖' => (2, 5),
        '⅗' => (3, 5),
        '⅘' => (4, 5),
        '⅙' => (1, 6),
        '⅚' => (5, 6),
        '⅛' => (1, 8),
        '⅜' => (3, 8),
        '⅝' => (5, 8),
        '⅞' => (7, 8),
        _ => return None,
    })
}

/// `²` and its like.
pub(super) fn raised(c: char) -> Option<u32> {
    "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|digit| digit == c).and_then(|at| u32::try_from(at).ok())
}

/// Words of two and three letters that are no products of variables. Longer ones are words anyway.
pub(super) fn is_short_word(word: &str) -> bool {
    const WORDS: [&str; 72] = [
        "no", "or", "to", "of", "is", "at", "by", "am", "pm", "an", "as", "if", "it", "on", "and",
        "the", "not", "yes", "odd", "for", "all", "are", "men", "day", "one", "two", "six", "ten",
        "red", "per", "cm", "mm", "km", "kg", "mg", "ml", "mL", "ft", "in", "hr", "hrs", "min",
        "sec", "mph", "lb", "lbs", "oz", "yd", "yds", "mi", "kph", "sq", "gm", "gms", "Rs", "rs",
        "USD", "pts", "dm", "cc", "mins", "secs", "No", "Yes", "The", "Two", "One", "kms", "dog",
        "cat", "any", "AM",
    ];
    WORDS.contains(&word)
}

/// A whole number in words.
pub(super) fn number_word(word: &str) -> Option<u32> {
    const WORDS: [&str; 21] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
        "twenty",
    ];
    let at = WORDS.iter().position(|known| known.eq_ignore_ascii_case(word))?;
    u32::try_from(at).ok()
}
