//! Python's plain values outside Python: what a function was given and what it returned.
//!
//! They come as `driver.py` writes them, and equal what Python calls equal: `1 == 1.0 == True`, a list is
//! no tuple, sets have no order. A value that is no plain data (`Other`) equals nothing, itself included;
//! NaN equals NaN, since both sides of a comparison say the same with it.

use std::fmt::Write;

use sha2::{Digest as _, Sha256};

use super::super::json::Json;

/// A value of Python's.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    None,
    Bool(bool),
    /// Decimal digits, with a sign where it is negative.
    Int(String),
    /// A huge one, in hexadecimal as Python writes it.
    Huge(String),
    Float(f64),
    Complex(f64, f64),
    /// A `Fraction` or `Decimal` as numerator and denominator.
    Ratio(String, String),
    Text(String),
    /// A text with half surrogates: its bytes in hexadecimal.
    Torn(String),
    /// Bytes in hexadecimal.
    Bytes(String),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Set(Vec<Value>),
    FrozenSet(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A long value: the SHA-256 of its key in hexadecimal.
    Digest(String),
    /// No plain data: the name of its type.
    Other(String),
}

impl Value {
    /// A value of a data set's JSON or of the driver's. The error says what cannot be read.
    pub fn of(json: &Json) -> Result<Value, String> {
        Ok(match json {
            Json::Null => Self::None,
            Json::Bool(one) => Self::Bool(*one),
            Json::Number(digits) => number(digits)?,
            Json::Text(text) => Self::Text(text.clone()),
            Json::List(values) => Self::List(all(values)?),
            Json::Object(fields) => match fields.as_slice() {
                [(kind, inner)] => Self::marked(kind, inner)?,
                _ => return Err("an object of several fields".to_owned()),
            },
        })
    }

    fn marked(kind: &str, inner: &Json) -> Result<Value, String> {
        let broken = || format!("a broken value of kind `{kind}`");
        let text = || inner.text().map(str::to_owned).ok_or_else(broken);
        let list = || inner.list().ok_or_else(broken);
        let pair = || match inner.list() {
            Some([one, other]) => Ok((one, other)),
            _ => Err(broken()),
        };
        Ok(match kind {
            "t" => Self::Tuple(all(list()?)?),
            "s" => Self::Set(all(list()?)?),
            "f" => Self::FrozenSet(all(list()?)?),
            "b" => Self::Bytes(text()?),
            "u" => Self::Torn(text()?),
            "h" => Self::Huge(text()?),
            "k" => Self::Digest(text()?),
            "x" => Self::Other(text()?),
            "c" => match pair().map(|(re, im)| (Self::of(re), Self::of(im)))? {
                (Ok(Self::Float(re)), Ok(Self::Float(im))) => Self::Complex(re, im),
                _ => return Err(broken()),
            },
            "q" => match pair()? {
                (Json::Text(above), Json::Text(below)) => Self::Ratio(above.clone(), below.clone()),
                _ => return Err(broken()),
            },
            "d" => {
                let one = |entry: &Json| match entry.list() {
                    Some([key, value]) => Ok((Self::of(key)?, Self::of(value)?)),
                    _ => Err(broken()),
                };
                Self::Dict(list()?.iter().map(one).collect::<Result<_, _>>()?)
            }
            _ => return Err(broken()),
        })
    }

    /// A value of a data set's JSON, where an object is a dict with texts as its keys.
    pub fn of_data(json: &Json) -> Result<Value, String> {
        Ok(match json {
            Json::List(values) => {
                Self::List(values.iter().map(Self::of_data).collect::<Result<_, _>>()?)
            }
            Json::Object(fields) => {
                let one = |(key, value): &(String, Json)| {
                    Ok::<_, String>((Self::Text(key.clone()), Self::of_data(value)?))
                };
                Self::Dict(fields.iter().map(one).collect::<Result<_, _>>()?)
            }
            plain => Self::of(plain)?,
        })
    }

    /// Appends it as the driver reads it.
    pub fn write(&self, to: &mut String) {
        let marked = |to: &mut String, mark: char, text: &str| {
            let _ = write!(to, "{{\"{mark}\":{}}}", quoted(text));
        };
        let several = |to: &mut String, mark: &str, values: &[Value], close: &str| {
            to.push_str(mark);
            for (at, value) in values.iter().enumerate() {
                to.push_str(if at > 0 { "," } else { "" });
                value.write(to);
            }
            to.push_str(close);
        };
        match self {
            Self::None => to.push_str("null"),
            Self::Bool(one) => to.push_str(if *one { "true" } else { "false" }),
            Self::Int(digits) => to.push_str(digits),
            Self::Float(float) => write_float(*float, to),
            Self::Complex(re, im) => {
                to.push_str("{\"c\":[");
                write_float(*re, to);
                to.push(',');
                write_float(*im, to);
                to.push_str("]}");
            }
            Self::Ratio(above, below) => {
                let _ = write!(to, "{{\"q\":[\"{above}\",\"{below}\"]}}");
            }
            Self::Text(text) => to.push_str(&quoted(text)),
            Self::Torn(text) => marked(to, 'u', text),
            Self::Bytes(text) => marked(to, 'b', text),
            Self::Huge(text) => marked(to, 'h', text),
            Self::Digest(text) => marked(to, 'k', text),
            Self::Other(name) => marked(to, 'x', name),
            Self::List(values) => several(to, "[", values, "]"),
            Self::Tuple(values) => several(to, "{\"t\":[", values, "]}"),
            Self::Set(values) => several(to, "{\"s\":[", values, "]}"),
            Self::FrozenSet(values) => several(to, "{\"f\":[", values, "]}"),
            Self::Dict(pairs) => {
                to.push_str("{\"d\":[");
                for (at, (key, value)) in pairs.iter().enumerate() {
                    to.push_str(if at > 0 { ",[" } else { "[" });
                    key.write(to);
                    to.push(',');
                    value.write(to);
                    to.push(']');
                }
                to.push_str("]}");
            }
        }
    }

    /// Whether Python's `==` holds between them, as far as both are plain data.
    pub fn equals(&self, other: &Value) -> bool {
        let digest = |value: &Value| match value {
            Self::Digest(digest) => Some(digest.clone()),
            other => Some(hex(&Sha256::digest(other.key()?.as_bytes()))),
        };
        let same = |one: Option<String>, other: Option<String>| one.is_some() && one == other;
        match (self, other) {
            (Self::Digest(_), _) | (_, Self::Digest(_)) => same(digest(self), digest(other)),
            _ => same(self.key(), other.key()),
        }
    }

    /// A text that two values share if and only if they are equal; none for what equals nothing.
    pub fn key(&self) -> Option<String> {
        let mut key = String::new();
        self.write_key(&mut key)?;
        Some(key)
    }

    fn write_key(&self, to: &mut String) -> Option<()> {
        let mut sorted = |mark: char, mut keys: Vec<String>| {
            keys.sort_unstable();
            keys.dedup();
            let _ = write!(to, "{mark}{}{{{}}}", keys.len(), keys.concat());
        };
        let mark = match self {
            // A digest stands for a whole value, never for a part of one.
            Self::Other(_) | Self::Digest(_) => return None,
            Self::Set(values) | Self::FrozenSet(values) => {
                sorted('S', values.iter().map(Self::key).collect::<Option<_>>()?);
                return Some(());
            }
            Self::Dict(pairs) => {
                let one = |(key, value): &(Value, Value)| Some(key.key()? + &value.key()?);
                sorted('D', pairs.iter().map(one).collect::<Option<_>>()?);
                return Some(());
            }
            Self::List(_) => 'L',
            Self::Tuple(_) => 'T',
            _ => ' ',
        };
        match self {
            Self::List(values) | Self::Tuple(values) => {
                let _ = write!(to, "{mark}{}[", values.len());
                values.iter().try_for_each(|value| value.write_key(to))?;
                to.push(']');
            }
            Self::None => to.push_str("N;"),
            Self::Bool(one) => to.push_str(if *one { "n1;" } else { "n0;" }),
            Self::Int(digits) => {
                let _ = write!(to, "n{digits};");
            }
            Self::Float(float) => float_key(*float, to),
            // A complex number without an imaginary part equals the real one.
            Self::Complex(re, im) => {
                float_key(*re, to);
                if *im != 0.0 {
                    to.push('i');
                    float_key(*im, to);
                }
            }
            Self::Ratio(above, below) => ratio_key(above, below, to),
            Self::Text(text) => {
                let _ = write!(to, "s{}:{text}", text.len());
            }
            Self::Torn(hex) => {
                let _ = write!(to, "u{hex};");
            }
            Self::Bytes(hex) => {
                let _ = write!(to, "b{hex};");
            }
            Self::Huge(hex) => {
                let _ = write!(to, "h{hex};");
            }
            Self::Set(_)
            | Self::FrozenSet(_)
            | Self::Dict(_)
            | Self::Digest(_)
            | Self::Other(_) => {}
        }
        Some(())
    }
}

fn all(values: &[Json]) -> Result<Vec<Value>, String> {
    values.iter().map(Value::of).collect()
}

/// A whole number where it has digits only, else a float.
fn number(digits: &str) -> Result<Value, String> {
    let bare = digits.strip_prefix('-').unwrap_or(digits);
    if !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit()) {
        let digits = if bare == "0" { bare } else { digits };
        return Ok(Value::Int(digits.to_owned()));
    }
    digits.parse().map(Value::Float).map_err(|_| format!("`{digits}` is no number"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write_float(float: f64, to: &mut String) {
    let _ = match float {
        _ if float.is_nan() => write!(to, "NaN"),
        _ if float.is_infinite() => write!(to, "{}Infinity", if float < 0.0 { "-" } else { "" }),
        _ => write!(to, "{float:?}"),
    };
}

/// That of the whole number where it is one, else its bits.
fn float_key(float: f64, to: &mut String) {
    let _ = match float {
        _ if float == 0.0 => write!(to, "n0;"),
        _ if float.is_nan() => write!(to, "nan;"),
        _ if float.fract() == 0.0 => write!(to, "n{float:.0};"),
        _ => write!(to, "f{:x};", float.to_bits()),
    };
}

/// That of the number where one of the other kinds is equal to it. Ratios come in lowest terms.
fn ratio_key(above: &str, below: &str, to: &mut String) {
    const EXACT: u64 = 1 << 53;
    let float = || {
        let (above, below): (i64, u64) = (above.parse().ok()?, below.parse().ok()?);
        let exact = above.unsigned_abs() <= EXACT && below <= EXACT && below.is_power_of_two();
        exact.then_some(above as f64 / below as f64)
    };
    match float() {
        Some(float) => float_key(float, to),
        None if below == "1" => {
            let _ = write!(to, "n{above};");
        }
        None => {
            let _ = write!(to, "q{above}/{below};");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(wire: &str) -> Value {
        Value::of(&Json::read(wire).unwrap()).unwrap()
    }

    #[test]
    fn values_come_back_as_they_were_written() {
        for wire in [
            r#"[null,true,0,-7,123456789012345678901234567890,1.5,1e-7,NaN,-Infinity,"a\"é"]"#,
            r#"{"t":[{"s":[1,2]},{"f":[]},{"d":[[1,"a"],[{"t":[1]},[]]]},{"c":[1.0,-2.5]}]}"#,
            r#"[{"b":"00ff"},{"u":"eda080"},{"q":["1","3"]},{"x":"Odd"}]"#,
        ] {
            let mut written = String::new();
            value(wire).write(&mut written);
            assert_eq!(written, wire);
        }
        for broken in [r#"{"c":[1,2]}"#, r#"{"z":1}"#, r#"{"t":1}"#, r#"{"t":[],"s":[]}"#] {
            assert!(Value::of(&Json::read(broken).unwrap()).is_err(), "{broken}");
        }
    }

    #[test]
    fn equal_is_what_python_calls_equal() {
        for (one, other, same) in [
            ("1", "1.0", true),
            ("1", "true", true),
            ("0.0", "-0.0", true),
            ("0.1", "0.1", true),
            ("9007199254740993", "9007199254740992.0", false),
            ("1e23", "99999999999999991611392", true),
            ("NaN", "NaN", true),
            ("Infinity", "-Infinity", false),
            ("1", r#"{"c":[1.0,0.0]}"#, true),
            (r#"{"c":[1.0,2.0]}"#, r#"{"c":[1.0,-2.0]}"#, false),
            (r#"{"q":["1","2"]}"#, "0.5", true),
            (r#"{"q":["1","10"]}"#, "0.1", false),
            (r#"{"q":["7","1"]}"#, "7", true),
            ("[1,2]", r#"{"t":[1,2]}"#, false),
            ("[]", "null", false),
            ("\"1\"", "1", false),
            (r#"{"b":"31"}"#, "\"1\"", false),
            (r#"{"s":[1,2]}"#, r#"{"f":[2,1.0]}"#, true),
            (r#"{"s":[1,2]}"#, r#"{"s":[1]}"#, false),
            (r#"{"d":[["a",1],["b",[2]]]}"#, r#"{"d":[["b",[2]],["a",true]]}"#, true),
            (r#"{"d":[["a",1]]}"#, r#"{"d":[["a",2]]}"#, false),
            (r#"{"d":[]}"#, r#"{"s":[]}"#, false),
            (r#"["ab","c"]"#, r#"["a","bc"]"#, false),
            (r#"[[1],[2]]"#, r#"[[1,2],[]]"#, false),
            (r#"{"x":"Odd"}"#, r#"{"x":"Odd"}"#, false),
            (r#"[{"x":"Odd"}]"#, r#"[{"x":"Odd"}]"#, false),
        ] {
            assert_eq!(value(one).equals(&value(other)), same, "{one} {other}");
            assert_eq!(value(other).equals(&value(one)), same, "{other} {one}");
        }
    }
}
