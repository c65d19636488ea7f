//! The engine through its handle, on a decoder without weights.

mod books;
pub(crate) mod fake;
mod properties;
mod refusals;
mod replies;
mod thread;
