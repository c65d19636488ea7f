//! The one integration-test binary: a module for each room, through its public door.

mod cli;
mod engine;
mod grade;
mod grading;
mod hosting;
mod llm;
mod model;
mod pieces;
mod ralu;
mod regressions;
mod runs;
mod sandbox;
mod store;
mod support;
mod tasks;
mod text;
mod thinking;
mod units;
