//! Unsay: a local inference engine on which language models correct themselves.
//!
//! The rooms, from the ground up (a room uses only rooms above it in this list):
//! `stats` · `journal` · `store` · `text` · `device` · `model` · `reference` · `engine` · `llm` · `answer` · `program` ·
//! `tasks` · `methods` · `runs` · `cli`. ARCHITECTURE.md says what lives in each.

pub mod answer;
pub mod cli;
pub mod device;
pub mod engine;
pub mod journal;
pub mod llm;
pub mod methods;
pub mod model;
pub mod program;
pub mod reference;
pub mod runs;
pub mod stats;
pub mod store;
pub mod tasks;
pub mod text;
