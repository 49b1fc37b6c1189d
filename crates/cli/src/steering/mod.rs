//! Steering threads of this machine: what an engine is made from, and what came of it.

pub mod here;
pub mod programs;
pub mod tally;
