//! An answer's text to tokens: LaTeX, plain text, and what models mix of both. One pass, no recursion.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::limits::{MAX_CHARS, MAX_TOKENS, Stop};
use super::names::{command, is_layout, is_short_word, plain_name, raised, sign, small_fraction};
use super::token::{Bracket, Item, Literal, Relation, Token};

/// The tokens of a text.
pub(super) fn lex(text: &str) -> Result<Vec<Item>, Stop> {
    if text.len() > MAX_CHARS {
        return Err(Stop::TooLarge);
    }
    let mut lexer = Lexer::new(text);
    while lexer.at < lexer.chars.len() {
        lexer.step();
        if lexer.too_large || lexer.items.len() > MAX_TOKENS {
            return Err(Stop::TooLarge);
        }
    }
    if lexer.braces.is_empty() { Ok(lexer.items) } else { Err(Stop::Unread) }
}

/// What an open brace is for, and how many arguments were still wanted around it.
#[derive(Clone, Copy, PartialEq)]
enum Brace {
    Group(u8),
    /// `\mathrm{…}`: as if its braces were not there.
    Silent(u8),
    Text(u8),
}

pub(super) struct Lexer {
    pub(super) chars: Vec<char>,
    pub(super) at: usize,
    items: Vec<Item>,
    braces: Vec<Brace>,
    /// Open brackets that hold lists, in which a comma always separates.
    pub(super) brackets: usize,
    /// Matrices that are open.
    matrices: usize,
    /// Arguments that a fraction still wants: each may be a single digit or letter.
    pub(super) wanted: u8,
    spaced: bool,
    /// Dollars that stand alone are money, in pairs they delimit.
    dollars_delimit: bool,
    /// A number was longer than numbers are read.
    too_large: bool,
}

impl Lexer {
    fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let bare = |at: &usize| chars[*at] == '$' && (*at == 0 || chars[*at - 1] != '\\');
        let dollars = (0..chars.len()).filter(bare).count();
        let dollars_delimit = dollars > 0 && dollars % 2 == 0;
        let (items, braces) = (Vec::new(), Vec::new());
        let (at, brackets, matrices, wanted, spaced) = (0, 0, 0, 0, false);
        Self {
            chars,
            at,
            items,
            braces,
            brackets,
            matrices,
            wanted,
            spaced,
            dollars_delimit,
            too_large: false,
        }
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Whether the text goes on with these characters, `ahead` of here.
    pub(super) fn follows(&self, ahead: usize, text: &str) -> bool {
        text.chars().enumerate().all(|(n, c)| self.peek(ahead + n) == Some(c))
    }

    fn in_text(&self) -> bool {
        self.braces.iter().any(|brace| matches!(brace, Brace::Text(_)))
    }

    fn push(&mut self, token: Token) {
        let item = Item { token, spaced: self.spaced, text: self.in_text() };
        self.items.push(item);
        self.spaced = false;
    }

    /// Adds a token that is a whole argument, where one is wanted.
    fn push_operand(&mut self, token: Token) {
        self.push(token);
        self.wanted = self.wanted.saturating_sub(1);
    }

    fn step(&mut self) {
        let Some(c) = self.peek(0) else { return };
        match c {
            _ if c.is_whitespace() || matches!(c, '~' | '\u{200b}' | '\u{2061}') => {
                self.at += 1;
                self.spaced = true;
            }
            '0'..='9' => self.number_or_based(),
            '.' if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => self.number_or_based(),
            '\\' => self.backslash(),
            _ if c.is_ascii_alphabetic() => self.letters(),
            _ => {
                self.at += 1;
                self.single(c);
            }
        }
    }

    fn number_or_based(&mut self) {
        if let Some((digits, base, length)) = self.based() {
            self.at += length;
            return self.push_operand(Token::Based(digits, base));
        }
        match self.number() {
            Some(literal) => self.push_operand(Token::Number(literal)),
            None => self.too_large = true,
        }
    }

    fn single(&mut self, c: char) {
        let token = match c {
            '+' => Token::Plus,
            '-' => Token::Minus,
            '*' if self.peek(0) == Some('*') => {
                self.at += 1;
                Token::Power
            }
            '*' => Token::Times,
            '/' => Token::Divide,
            '^' => Token::Power,
            '_' => return self.subscript(),
            '!' if self.peek(0) == Some('=') => {
                self.at += 1;
                Token::Relation(Relation::NotEqual)
            }
            '!' => Token::Factorial,
            '(' | '[' | '{' => return self.open(c),
            ')' | ']' | '}' => return self.close(c),
            '|' => Token::Bar,
            ',' => Token::Comma,
            ';' => Token::Semicolon,
            ':' => Token::Colon,
            '=' => Token::Relation(Relation::Equal),
            '<' | '>' => self.inequality(c),
            '&' => Token::Cell,
            '%' => Token::Percent,
            '$' if self.dollars_delimit => return,
            '$' => Token::Money("dollar"),
            // A full stop that ends a sentence, and quotes, say nothing.
            '.' if !self.follows(0, ".") => return,
            '"' | '`' | '\u{201c}' | '\u{201d}' | '\u{2018}' => return,
            _ => return self.foreign(c),
        };
        self.push(token);
    }

    fn inequality(&mut self, c: char) -> Token {
        let or_equal = self.peek(0) == Some('=');
        self.at += usize::from(or_equal);
        Token::Relation(match (c, or_equal) {
            ('<', false) => Relation::Less,
            ('<', true) => Relation::LessEqual,
            (_, false) => Relation::Greater,
            (_, true) => Relation::GreaterEqual,
        })
    }

    /// Signs and letters outside ASCII.
    fn foreign(&mut self, c: char) {
        if let Some((numerator, divisor)) = small_fraction(c) {
            let value = BigRational::new(BigInt::from(numerator), BigInt::from(divisor));
            // After a whole number it is the rest of a mixed one.
            if let Some(Item { token: Token::Number(before), .. }) = self.items.last_mut()
                && before.decimals.is_none()
            {
                before.value += value;
                return;
            }
            return self.push_operand(Token::Number(Literal::exact(value)));
        }
        if let Some(digit) = raised(c) {
            let mut value = digit;
            while let Some(next) = self.peek(0).and_then(raised) {
                value = value.saturating_mul(10).saturating_add(next);
                self.at += 1;
            }
            self.push(Token::Power);
            let value = BigRational::from_integer(BigInt::from(value));
            return self.push(Token::Number(Literal::exact(value)));
        }
        match sign(c) {
            Some(token @ (Token::Pi | Token::Symbol(_) | Token::Infinity)) => {
                self.push_operand(token);
            }
            Some(token @ Token::Open(kind)) => {
                self.brackets += usize::from(kind == Bracket::Round);
                self.push(token);
            }
            Some(token @ Token::Close(kind)) => {
                self.brackets = self.brackets.saturating_sub(usize::from(kind == Bracket::Round));
                self.push(token);
            }
            Some(token) => self.push(token),
            None if c.is_alphabetic() => {
                let word = self.word(c);
                self.push(Token::Word(word));
            }
            None => self.push(Token::Unknown(c.to_string())),
        }
    }

    /// A word that began with `first`, letters of any alphabet.
    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(c) = self.peek(0).filter(|c| c.is_alphabetic() && sign(*c).is_none()) {
            word.push(c);
            self.at += 1;
        }
        word
    }

    fn open(&mut self, c: char) {
        match c {
            '{' => {
                self.braces.push(Brace::Group(self.wanted.saturating_sub(1)));
                self.wanted = 0;
                self.push(Token::Open(Bracket::Group));
            }
            _ => {
                self.brackets += 1;
                let kind = if c == '(' { Bracket::Round } else { Bracket::Square };
                self.push(Token::Open(kind));
            }
        }
    }

    fn close(&mut self, c: char) {
        match c {
            '}' => match self.braces.pop() {
                Some(Brace::Group(wanted)) => {
                    self.push(Token::Close(Bracket::Group));
                    self.wanted = wanted;
                }
                Some(Brace::Silent(wanted) | Brace::Text(wanted)) => self.wanted = wanted,
                None => self.push(Token::Unknown("}".to_owned())),
            },
            _ => {
                self.brackets = self.brackets.saturating_sub(1);
                let kind = if c == ')' { Bracket::Round } else { Bracket::Square };
                self.push(Token::Close(kind));
            }
        }
    }

    /// A subscript names a variable: `x_1`, `a_{n}`. After anything else it is a sign of its own.
    fn subscript(&mut self) {
        let symbol = match self.items.last() {
            Some(Item { token: Token::Symbol(name), .. }) => Some(name.clone()),
            _ => None,
        };
        let Some((name, index)) = symbol.and_then(|name| Some((name, self.index()?))) else {
            return self.push(Token::Subscript);
        };
        if let Some(item) = self.items.last_mut() {
            item.token = Token::Symbol(format!("{name}_{index}"));
        }
    }

    /// The letters and digits of an index, with or without braces.
    fn index(&mut self) -> Option<String> {
        let braced = self.peek(0) == Some('{');
        let mut length = usize::from(braced);
        let mut index = String::new();
        while let Some(c) = self.peek(length).filter(char::is_ascii_alphanumeric) {
            index.push(c);
            length += 1;
            if !braced {
                break;
            }
        }
        if index.is_empty() || (braced && self.peek(length) != Some('}')) {
            return None;
        }
        self.at += length + usize::from(braced);
        Some(index)
    }
}

impl Lexer {
    fn letters(&mut self) {
        if let Some((digits, base, length)) = self.based() {
            self.at += length;
            return self.push_operand(Token::Based(digits, base));
        }
        if self.wanted > 0
            && let Some(c) = self.peek(0)
        {
            self.at += 1;
            return self.push_operand(symbol(c));
        }
        let start = self.at;
        let joins = |c: char, next: Option<char>| {
            c == '\'' && next.is_some_and(|n| n.is_ascii_alphabetic())
        };
        while let Some(c) = self.peek(0)
            && (c.is_ascii_alphabetic()
                || (self.at > start + 1 && joins(c, self.peek(1)))
                || (c.is_alphabetic() && sign(c).is_none()))
        {
            self.at += 1;
        }
        let run: String = self.chars[start..self.at].iter().collect();
        let after_digit =
            !self.spaced && matches!(self.items.last(), Some(Item { token: Token::Number(_), .. }));
        match run.as_str() {
            "Rs" | "rs" | "INR" => return self.push(Token::Money("rupee")),
            "USD" => return self.push(Token::Money("dollar")),
            _ => {}
        }
        if let Some(token) = plain_name(&run) {
            return self.push(token);
        }
        if self.in_text() && !(run.len() == 1 && after_digit) {
            return self.push(Token::Word(run));
        }
        self.math_letters(&run);
    }

    /// Letters outside `\text`: a word, or variables beside each other.
    fn math_letters(&mut self, run: &str) {
        const CALLS: [&str; 6] = ["sin", "cos", "tan", "log", "ln", "cot"];
        if run.chars().count() == 1 || !is_word(run) {
            let stem = run.strip_suffix("pi").filter(|stem| stem.len() < 3);
            for c in stem.unwrap_or(run).chars() {
                self.push(symbol(c));
            }
            if stem.is_some() {
                self.push(Token::Pi);
            }
            return;
        }
        // `sinx`: the function and its variable.
        for name in CALLS {
            if let Some(rest) = run.strip_prefix(name)
                && rest.len() == 1
                && let Some(token) = plain_name(name)
            {
                self.push(token);
                return rest.chars().for_each(|c| self.push(symbol(c)));
            }
        }
        self.push(Token::Word(run.to_owned()));
    }

    fn backslash(&mut self) {
        self.at += 1;
        let Some(c) = self.peek(0) else { return };
        if c.is_ascii_alphabetic() {
            let start = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_alphabetic()) {
                self.at += 1;
            }
            let name: String = self.chars[start..self.at].iter().collect();
            return self.command(&name);
        }
        self.at += 1;
        let token = match c {
            '{' => {
                self.brackets += 1;
                Token::Open(Bracket::Curly)
            }
            '}' => {
                self.brackets = self.brackets.saturating_sub(1);
                Token::Close(Bracket::Curly)
            }
            '%' => Token::Percent,
            '$' => Token::Money("dollar"),
            '|' => Token::Bar,
            '\\' if self.matrices > 0 => {
                if self.peek(0) == Some('[') {
                    while self.peek(0).is_some_and(|c| c != ']') {
                        self.at += 1;
                    }
                    self.at += 1;
                }
                Token::Row
            }
            // A backslash that was escaped once too often.
            '\\' => {
                self.at -= usize::from(self.peek(0).is_some_and(|c| c.is_ascii_alphabetic()));
                return;
            }
            '!' | '(' | ')' | '[' | ']' => return,
            ',' | ';' | ':' | ' ' | '\n' | '\t' | '/' => {
                self.spaced = true;
                return;
            }
            _ => Token::Unknown(c.to_string()),
        };
        self.push(token);
    }

    fn command(&mut self, name: &str) {
        match name {
            "frac" | "dfrac" | "tfrac" | "cfrac" => {
                self.push(Token::Fraction);
                self.wanted = 2;
            }
            "binom" | "dbinom" | "tbinom" => {
                self.push(Token::Binomial);
                self.wanted = 2;
            }
            "text" | "textbf" | "textit" | "textrm" | "mbox" | "textnormal" | "textsf" | "hbox"
            | "emph" | "texttt" => self.braced(Brace::Text(self.wanted)),
            "mathrm" | "mathbf" | "mathit" | "mathsf" | "operatorname" | "boxed" | "fbox"
            | "boldsymbol" | "bold" | "mathnormal" => self.braced(Brace::Silent(self.wanted)),
            "approx" => self.push(Token::Relation(Relation::Equal)),
            "mathbb" if self.follows(0, "{R}") => {
                self.at += 3;
                self.push(Token::Reals);
            }
            "begin" | "end" => self.environment(name == "begin"),
            _ if is_layout(name) => {
                // `\left.` stands for no bracket.
                if matches!(name, "left" | "right") && self.peek(0) == Some('.') {
                    self.at += 1;
                }
            }
            _ => match command(name) {
                Some(token @ (Token::Pi | Token::Symbol(_) | Token::Infinity)) => {
                    self.push_operand(token);
                }
                Some(token) => {
                    match token {
                        Token::Open(Bracket::Curly | Bracket::Square) => self.brackets += 1,
                        Token::Close(Bracket::Curly | Bracket::Square) => {
                            self.brackets = self.brackets.saturating_sub(1);
                        }
                        _ => {}
                    }
                    self.push(token);
                }
                None => self.push(Token::Unknown(name.to_owned())),
            },
        }
    }

    /// A command whose braces are not seen.
    fn braced(&mut self, brace: Brace) {
        while self.peek(0).is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        if self.peek(0) == Some('{') {
            self.at += 1;
            self.braces.push(brace);
        } else {
            self.push(Token::Unknown("text".to_owned()));
        }
    }

    fn environment(&mut self, begins: bool) {
        let rest = &self.chars[self.at..];
        let end = rest.iter().take(20).position(|c| *c == '}');
        let name: String = match end {
            Some(end) if rest.first() == Some(&'{') => rest[1..end].iter().collect(),
            _ => return self.push(Token::Unknown("begin".to_owned())),
        };
        self.at += name.chars().count() + 2;
        match name.trim_end_matches('*') {
            "matrix" | "pmatrix" | "bmatrix" | "Bmatrix" | "smallmatrix" | "array" | "vmatrix" => {
                if begins {
                    self.matrices += 1;
                    if name == "array" && self.peek(0) == Some('{') {
                        while self.peek(0).is_some_and(|c| c != '}') {
                            self.at += 1;
                        }
                        self.at += 1;
                    }
                    self.push(Token::Begin(name != "vmatrix"));
                } else {
                    self.matrices = self.matrices.saturating_sub(1);
                    self.push(Token::End);
                }
            }
            _ => self.push(Token::Unknown(name)),
        }
    }
}

/// A letter that stands for itself.
fn symbol(c: char) -> Token {
    match c {
        'e' => Token::Euler,
        'i' => Token::Imaginary,
        _ => Token::Symbol(c.to_string()),
    }
}

/// Whether letters outside `\text` are a word rather than a product of variables: known short words,
/// three letters with one of e, i, o, u among them, and anything longer that is no row of the alphabet.
fn is_word(run: &str) -> bool {
    if is_short_word(run) {
        return true;
    }
    let letters: Vec<char> = run.chars().collect();
    let row = letters.windows(2).all(|pair| pair[0] as u32 + 1 == pair[1] as u32);
    match letters.len() {
        0..=2 => false,
        3 => !row && !run.ends_with("pi") && letters.iter().any(|c| "eiouEIOU".contains(*c)),
        _ => !row,
    }
}

impl Literal {
    /// A number that states no decimals.
    pub(super) fn exact(value: BigRational) -> Self {
        Self { value, decimals: None, significant: 0, width: 0, goes_on: false }
    }
}
