//! Whether a text is what Python's `json.loads` reads.

/// Values within values; Python gives up near this depth.
const DEEPEST: usize = 990;

/// Whether a text is one JSON value. `NaN` and infinities are values; signs below U+0020 may not stand in
/// a text as they are.
pub fn is_json(text: &str) -> bool {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    reader.value(0).is_some() && reader.space().is_none()
}

struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    /// Passes white space; answers with the byte behind it.
    fn space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn takes(&mut self, word: &str) -> Option<()> {
        let there = self.bytes[self.at..].starts_with(word.as_bytes());
        self.at += if there { word.len() } else { 0 };
        there.then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match self.space()? {
            b'{' => self.items(b'}', |reader| {
                reader.space();
                reader.string()?;
                reader.space();
                reader.takes(":")?;
                reader.value(depth + 1)
            }),
            b'[' => self.items(b']', |reader| reader.value(depth + 1)),
            b'"' => self.string(),
            _ => {
                let words = ["null", "true", "false", "NaN", "Infinity", "-Infinity"];
                let word = words.into_iter().find_map(|word| self.takes(word));
                word.or_else(|| self.number())
            }
        }
    }

    /// What stands between brackets, a comma between two.
    fn items(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.at += 1;
        if self.space()? == close {
            self.at += 1;
            return Some(());
        }
        loop {
            item(self)?;
            let sign = self.space()?;
            self.at += 1;
            match sign {
                b',' => {}
                sign if sign == close => return Some(()),
                _ => return None,
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        self.takes("\"")?;
        loop {
            let sign = *self.bytes.get(self.at)?;
            self.at += 1;
            match sign {
                b'"' => return Some(()),
                b'\\' => {
                    let escaped = *self.bytes.get(self.at)?;
                    self.at += 1;
                    match escaped {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        b'u' => {
                            let digits = self.bytes.get(self.at..self.at + 4)?;
                            digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                            self.at += 4;
                        }
                        _ => return None,
                    }
                }
                0..0x20 => return None,
                _ => {}
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let _sign = self.takes("-");
        if self.takes("0").is_none() {
            self.digits()?;
        }
        // A fraction or exponent that is not whole is left standing, and nothing may.
        let whole = self.at;
        if self.takes(".").is_some() && self.digits().is_none() {
            self.at = whole;
        }
        let before = self.at;
        if self.takes("e").or_else(|| self.takes("E")).is_some() {
            let _sign = self.takes("+").or_else(|| self.takes("-"));
            if self.digits().is_none() {
                self.at = before;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_reads_is_json() {
        let deep = format!("{}1{}", "[".repeat(900), "]".repeat(900));
        for text in
            ["{}", "[ ]", "{\"a\": [1, -2.5e+3, \"\\ud800 é\\n\"]}\n", "NaN", "-0", "\"a\"", &deep]
        {
            assert!(is_json(text), "{text}");
        }
        for text in [
            "",
            "{",
            "{a: 1}",
            "{'a': 1}",
            "[1,]",
            "{\"a\": 1,}",
            "01",
            "1.",
            "+1",
            ".5",
            "1e",
            "1 2",
            "\"a\nb\"",
            "\"\\x\"",
            "\"\\u12\"",
            "True",
            "[1}",
            "{\"a\" 1}",
            "\u{a0}1",
            "// 1\n1",
        ] {
            assert!(!is_json(text), "{text}");
        }
        assert!(!is_json(&"[".repeat(1_000_000)));
    }
}
