//! The CPU form of the operations.
