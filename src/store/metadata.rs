//! The key-value part of a GGUF file. Scalars are read when the file is opened; strings and arrays
//! stay in the mapping and are read when asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cursor::Cursor;
use super::gguf::{GgufError, GgufProblem};

/// Deepest nesting of arrays that is read.
const MAX_DEPTH: u32 = 3;

/// The type of a value or of an array's elements, with the format's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl Kind {
    fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Self, GgufProblem> {
        use Kind::*;
        let code = cursor.u32(&format!("the type of `{key}`"))?;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64]
            .into_iter()
            .find(|kind| *kind as u32 == code)
            .ok_or_else(|| GgufProblem::UnknownValueType { field: format!("`{key}`"), code })
    }

    /// Bytes of one element in the file; the fewest it can have for strings and arrays.
    const fn min_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

/// One value of the metadata; strings and arrays by where they lie.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// Bytes of the file that were seen to be UTF-8.
    String(Range<usize>),
    Array {
        kind: Kind,
        count: u64,
        /// Byte at which the first element begins. The whole array was walked.
        start: usize,
    },
}

impl Value {
    pub(super) fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(n) => Some(n),
            Self::Signed(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Unsigned(n) => format!("the integer {n}"),
            Self::Signed(n) => format!("the integer {n}"),
            Self::F32(x) => format!("the number {x}"),
            Self::F64(x) => format!("the number {x}"),
            Self::Bool(b) => format!("{b}"),
            Self::String(_) => "a string".to_owned(),
            Self::Array { kind, count, .. } => format!("an array of {count} {}", kind.name()),
        }
    }
}

/// Reads a type and the value that follows it.
pub(super) fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufProblem> {
    let kind = Kind::read(cursor, key)?;
    read_of_kind(cursor, key, kind)
}

fn read_of_kind(cursor: &mut Cursor<'_>, key: &str, kind: Kind) -> Result<Value, GgufProblem> {
    let field = || format!("the value of `{key}`");
    Ok(match kind {
        Kind::String => {
            let text = cursor.string(field)?;
            let end = cursor.position() as usize;
            Value::String(end - text.len()..end)
        }
        Kind::Array => {
            let kind = Kind::read(cursor, key)?;
            let count = cursor.u64(&format!("the length of `{key}`"))?;
            let start = cursor.position() as usize;
            walk_array(cursor, key, kind, count, 1)?;
            Value::Array { kind, count, start }
        }
        scalar => read_scalar(cursor, &field(), scalar)?,
    })
}

fn read_scalar(cursor: &mut Cursor<'_>, field: &str, kind: Kind) -> Result<Value, GgufProblem> {
    Ok(match kind {
        Kind::U8 => Value::Unsigned(cursor.u8(field)?.into()),
        Kind::I8 => Value::Signed(i8::from_le_bytes(cursor.array(field)?).into()),
        Kind::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(field)?).into()),
        Kind::I16 => Value::Signed(i16::from_le_bytes(cursor.array(field)?).into()),
        Kind::U32 => Value::Unsigned(cursor.u32(field)?.into()),
        Kind::I32 => Value::Signed(i32::from_le_bytes(cursor.array(field)?).into()),
        Kind::U64 => Value::Unsigned(cursor.u64(field)?),
        Kind::I64 => Value::Signed(i64::from_le_bytes(cursor.array(field)?)),
        Kind::F32 => Value::F32(f32::from_le_bytes(cursor.array(field)?)),
        Kind::F64 => Value::F64(f64::from_le_bytes(cursor.array(field)?)),
        Kind::Bool => match cursor.u8(field)? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            value => return Err(GgufProblem::NotBool { field: field.to_owned(), value }),
        },
        Kind::String | Kind::Array => {
            return Err(GgufProblem::UnknownValueType {
                field: field.to_owned(),
                code: kind as u32,
            });
        }
    })
}

/// Steps over an array, checking its count before and every length within.
fn walk_array(
    cursor: &mut Cursor<'_>,
    key: &str,
    kind: Kind,
    count: u64,
    depth: u32,
) -> Result<(), GgufProblem> {
    let most = cursor.left() / kind.min_bytes();
    if count > most {
        let field = format!("the length of `{key}`");
        return Err(GgufProblem::TooMany { field, count, most });
    }
    match kind {
        Kind::String => {
            for index in 0..count {
                cursor.string(|| format!("element {index} of `{key}`"))?;
            }
        }
        Kind::Array => {
            if depth == MAX_DEPTH {
                return Err(GgufProblem::TooDeep { field: format!("`{key}`"), most: MAX_DEPTH });
            }
            for _ in 0..count {
                let kind = Kind::read(cursor, key)?;
                let count = cursor.u64(&format!("the length of an array in `{key}`"))?;
                walk_array(cursor, key, kind, count, depth + 1)?;
            }
        }
        fixed => {
            cursor.bytes(count * fixed.min_bytes(), || format!("the elements of `{key}`"))?;
        }
    }
    Ok(())
}

/// The metadata of a GGUF file: getters that take what files really hold (integers of any width
/// where the number fits) and say what is wrong otherwise.
#[derive(Clone)]
pub struct Metadata {
    path: PathBuf,
    map: Arc<memmap2::Mmap>,
    entries: BTreeMap<String, Value>,
}

impl Metadata {
    pub(super) fn new(
        path: PathBuf,
        map: Arc<memmap2::Mmap>,
        entries: BTreeMap<String, Value>,
    ) -> Self {
        Self { path, map, entries }
    }

    /// The file that the metadata is of.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether the file has this key.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// An integer from 0 to 2³² - 1, of whatever width.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        self.get(key, "an integer from 0 to 4294967295", |value| {
            value.as_u64().and_then(|n| u32::try_from(n).ok())
        })
    }

    /// An integer from 0 to 2⁶⁴ - 1, of whatever width.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        self.get(key, "an unsigned integer", Value::as_u64)
    }

    /// A number; double precision is rounded.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        self.get(key, "a floating-point number", |value| match *value {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        })
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        self.get(key, "a truth value", |value| match *value {
            Value::Bool(b) => Some(b),
            _ => None,
        })
    }

    /// A string.
    pub fn string(&self, key: &str) -> Result<&str, GgufError> {
        self.get(key, "a string", |value| match value {
            Value::String(range) => std::str::from_utf8(self.map.get(range.clone())?).ok(),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>, GgufError> {
        let wanted = "an array of strings";
        let (kind, count, start) = self.array(key, wanted)?;
        if kind != Kind::String {
            return Err(self.wrong_type(key, wanted));
        }
        let mut cursor = Cursor::at(&self.map, start);
        (0..count)
            .map(|index| cursor.string(|| format!("element {index} of `{key}`")))
            .collect::<Result<_, _>>()
            .map_err(|problem| self.error(problem))
    }

    /// An array of integers from 0 to 2³² - 1, of whatever width.
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>, GgufError> {
        self.scalars(key, "an array of integers from 0 to 4294967295", |value| {
            value.as_u64().and_then(|n| u32::try_from(n).ok())
        })
    }

    /// An array of integers from -2³¹ to 2³¹ - 1, of whatever width.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, GgufError> {
        self.scalars(key, "an array of 32-bit integers", |value| match *value {
            Value::Unsigned(n) => i32::try_from(n).ok(),
            Value::Signed(n) => i32::try_from(n).ok(),
            _ => None,
        })
    }

    /// An array of numbers; double precision is rounded.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>, GgufError> {
        self.scalars(key, "an array of floating-point numbers", |value| match *value {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        })
    }

    /// An array of truth values.
    pub fn bools(&self, key: &str) -> Result<Vec<bool>, GgufError> {
        self.scalars(key, "an array of truth values", |value| match *value {
            Value::Bool(b) => Some(b),
            _ => None,
        })
    }

    /// Elements of an array of whatever kind.
    pub fn array_len(&self, key: &str) -> Result<usize, GgufError> {
        // The array was walked, so it is no longer than the file.
        Ok(self.array(key, "an array")?.1 as usize)
    }

    /// What a key holds, for people: its type and its value or length.
    pub fn describe(&self, key: &str) -> Option<String> {
        self.entries.get(key).map(Value::describe)
    }

    fn get<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, GgufError> {
        let value = self.entries.get(key);
        let value =
            value.ok_or_else(|| self.error(GgufProblem::Missing { key: key.to_owned() }))?;
        read(value).ok_or_else(|| self.wrong_type(key, wanted))
    }

    fn array(&self, key: &str, wanted: &'static str) -> Result<(Kind, u64, usize), GgufError> {
        self.get(key, wanted, |value| match *value {
            Value::Array { kind, count, start } => Some((kind, count, start)),
            _ => None,
        })
    }

    fn scalars<T>(
        &self,
        key: &str,
        wanted: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, GgufError> {
        let (kind, count, start) = self.array(key, wanted)?;
        if matches!(kind, Kind::String | Kind::Array) {
            return Err(self.wrong_type(key, wanted));
        }
        let mut cursor = Cursor::at(&self.map, start);
        let mut numbers = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let value = read_scalar(&mut cursor, key, kind).map_err(|e| self.error(e))?;
            numbers.push(read(&value).ok_or_else(|| self.wrong_type(key, wanted))?);
        }
        Ok(numbers)
    }

    fn wrong_type(&self, key: &str, wanted: &'static str) -> GgufError {
        let found = self.describe(key).unwrap_or_default();
        self.error(GgufProblem::WrongType { key: key.to_owned(), wanted, found })
    }

    fn error(&self, problem: GgufProblem) -> GgufError {
        GgufError { path: self.path.clone(), problem }
    }
}
