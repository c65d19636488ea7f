//! The engine through its handle, on a decoder without weights.

pub(crate) mod fake;
mod properties;
