//! Programs that models write: read (control-flow graph, logic units) and run (the sandbox, and
//! nowhere else). Uses no other room.

pub mod cfg;
pub mod picture;
pub mod sandbox;
pub mod units;
