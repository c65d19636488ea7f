//! JSON as data sets hold it: Python's `NaN` and `Infinity` are allowed, and numbers keep their digits,
//! however many they are.

/// A JSON value; a number is the text that stood there.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    /// In the order of the file.
    Object(Vec<(String, Json)>),
}

/// Values within values; deeper ones are refused.
const DEEPEST: usize = 200;

impl Json {
    /// Reads a text that holds one value and nothing else. The error says what is wrong, and at which byte.
    pub fn read(text: &str) -> Result<Json, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.at < text.len() {
            return Err(reader.wrong("something follows the value"));
        }
        Ok(value)
    }

    /// A field of an object, the last where it stands twice, as Python has it; none of anything else.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Self::Object(fields) => fields.iter().rfind(|(key, _)| key == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// A text's words.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list's values.
    pub fn list(&self) -> Option<&[Json]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    /// A whole number that fits.
    pub fn whole(&self) -> Option<i64> {
        match self {
            Self::Number(digits) => digits.strip_suffix(".0").unwrap_or(digits).parse().ok(),
            _ => None,
        }
    }

    /// A text or a number in words; a number such as `51.0` without its zero decimals.
    pub fn word(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.trim().to_owned()),
            Self::Number(digits) => match digits.split_once('.') {
                Some((whole, zeros)) if zeros.bytes().all(|b| b == b'0') => Some(whole.to_owned()),
                _ => Some(digits.clone()),
            },
            _ => None,
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("{what} (byte {} of the record)", self.at + 1)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Takes `word` if it comes next.
    fn takes(&mut self, word: &str) -> bool {
        let there = self.rest().starts_with(word);
        self.at += if there { word.len() } else { 0 };
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        self.space();
        if depth > DEEPEST {
            return Err(self.wrong("too deep"));
        }
        match self.rest().chars().next() {
            Some('{') => self.object(depth),
            Some('[') => self.list(depth),
            Some('"') => Ok(Json::Text(self.string()?)),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number(),
            _ => {
                for (word, value) in [
                    ("null", Json::Null),
                    ("true", Json::Bool(true)),
                    ("false", Json::Bool(false)),
                    ("NaN", Json::Number("NaN".to_owned())),
                    ("Infinity", Json::Number("Infinity".to_owned())),
                ] {
                    if self.takes(word) {
                        return Ok(value);
                    }
                }
                Err(self.wrong(if self.rest().is_empty() {
                    "it ends too early"
                } else {
                    "no JSON value"
                }))
            }
        }
    }

    fn number(&mut self) -> Result<Json, String> {
        let start = self.at;
        if self.takes("-Infinity") {
            return Ok(Json::Number("-Infinity".to_owned()));
        }
        let inside = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let length = self.rest().find(|c| !inside(c)).unwrap_or(self.rest().len());
        self.at += length;
        let digits = &self.text[start..self.at];
        if digits.parse::<f64>().is_err() || digits.ends_with('.') {
            return Err(self.wrong("no number"));
        }
        Ok(Json::Number(digits.to_owned()))
    }

    fn list(&mut self, depth: usize) -> Result<Json, String> {
        let mut values = Vec::new();
        self.takes("[");
        self.space();
        if self.takes("]") {
            return Ok(Json::List(values));
        }
        loop {
            values.push(self.value(depth + 1)?);
            self.space();
            if self.takes("]") {
                return Ok(Json::List(values));
            }
            if !self.takes(",") {
                return Err(self.wrong("a list is not closed"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        let mut fields = Vec::new();
        self.takes("{");
        self.space();
        if self.takes("}") {
            return Ok(Json::Object(fields));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.space();
            if !self.takes(":") {
                return Err(self.wrong("a field without its value"));
            }
            fields.push((key, self.value(depth + 1)?));
            self.space();
            if self.takes("}") {
                return Ok(Json::Object(fields));
            }
            if !self.takes(",") {
                return Err(self.wrong("an object is not closed"));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.takes("\"") {
            return Err(self.wrong("a text is missing"));
        }
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.find(['"', '\\']).ok_or_else(|| self.wrong("a text is not closed"))?;
            text.push_str(&rest[..plain]);
            let quote = rest[plain..].starts_with('"');
            self.at += plain + 1;
            if quote {
                return Ok(text);
            }
            text.push(self.escaped()?);
        }
    }

    /// What a backslash stands for. Half of a pair of surrogates is the sign for what cannot be read.
    fn escaped(&mut self) -> Result<char, String> {
        let Some(c) = self.rest().chars().next() else {
            return Err(self.wrong("a text is not closed"));
        };
        self.at += c.len_utf8();
        Ok(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.hex()?;
                let before = self.at;
                if (0xd800..0xdc00).contains(&first) && self.takes("\\u") {
                    let second = self.hex()?;
                    if (0xdc00..0xe000).contains(&second) {
                        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
                    }
                    self.at = before;
                }
                char::from_u32(first).unwrap_or('\u{fffd}')
            }
            _ => return Err(self.wrong("an unknown escape")),
        })
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        let code = code.ok_or_else(|| self.wrong("an unknown escape"))?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits_and_pythons_words_are_read() {
        let digits = "123456789012345678901234567890";
        let value = Json::read(&format!("[{digits}, NaN, -Infinity, 1e-7, 51.0]")).unwrap();
        let numbers = ["123456789012345678901234567890", "NaN", "-Infinity", "1e-7", "51.0"];
        assert_eq!(value, Json::List(numbers.map(|n| Json::Number(n.to_owned())).to_vec()));
        assert_eq!(value.list().unwrap()[4].word().unwrap(), "51");
    }

    #[test]
    fn texts_are_unescaped() {
        let value =
            Json::read(r#" {"a": "\"\\\/\n\u00e9\ud83d\ude00\ud800x", "b": null} "#).unwrap();
        assert_eq!(value.get("a").unwrap().text().unwrap(), "\"\\/\né😀\u{fffd}x");
        assert_eq!(value.get("b"), Some(&Json::Null));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\" 1}", "\"a", "1 2", "1.2.3", "\"\\u12\"", "nul", "1."]
        {
            assert!(Json::read(text).is_err(), "{text}");
        }
        assert!(Json::read(&"[".repeat(100_000)).is_err());
    }
}
