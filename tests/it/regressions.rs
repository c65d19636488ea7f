//! Faults that users of other engines reported; the symptom must not occur here.

mod code;
mod engine;
mod grading;
mod instructions;
mod models;
mod text;
