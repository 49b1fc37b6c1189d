//! Steering of this machine's threads: construction of engines, and their results.

pub mod ab_trial;
pub mod cleanup;
pub mod engine;
pub mod error;
pub mod executables;
pub mod exposition;
pub mod foreground;
pub mod here;
pub mod host;
pub mod job;
pub mod programs;
pub mod rivals;
pub mod socket;
pub mod summary;
pub mod supervisor;
pub mod tally;
pub mod waits;
mod watchdog;
pub mod whole_runs;
