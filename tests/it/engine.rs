//! The engine through its handle, on a decoder without weights.

mod books;
pub(crate) mod fake;
mod invariance;
mod many;
mod properties;
mod real;
mod refusals;
mod replies;
mod thread;
