//! A cursor over the bytes of a mapped file that never reads beyond their end.

use super::gguf::GgufProblem;

/// Reads little-endian numbers and strings in order. A length is checked before it is used.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// A cursor from `position` of the same bytes.
    pub(super) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position: position.min(bytes.len()) }
    }

    pub(super) fn position(&self) -> u64 {
        self.position as u64
    }

    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// The next `count` bytes; `field` names them in the error.
    pub(super) fn bytes(
        &mut self,
        count: u64,
        field: impl FnOnce() -> String,
    ) -> Result<&'a [u8], GgufProblem> {
        let (offset, left) = (self.position(), self.left());
        if count > left {
            return Err(GgufProblem::Truncated { field: field(), offset, needs: count, left });
        }
        let start = self.position;
        self.position += count as usize;
        Ok(&self.bytes[start..self.position])
    }

    pub(super) fn u8(&mut self, field: &str) -> Result<u8, GgufProblem> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(super) fn u32(&mut self, field: &str) -> Result<u32, GgufProblem> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &str) -> Result<u64, GgufProblem> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// The next `N` bytes as an array, to make a number of.
    pub(super) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], GgufProblem> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N as u64, || field.to_owned())?);
        Ok(out)
    }

    /// A string with its length before it.
    pub(super) fn string(&mut self, field: impl Fn() -> String) -> Result<&'a str, GgufProblem> {
        let len = u64::from_le_bytes({
            let mut out = [0; 8];
            out.copy_from_slice(self.bytes(8, || format!("the length of {}", field()))?);
            out
        });
        let bytes = self.bytes(len, &field)?;
        std::str::from_utf8(bytes).map_err(|_| GgufProblem::NotUtf8 { field: field() })
    }
}
