//! Timed whole runs of commands on chosen CPUs, in balanced order: what `steer bench` and `steer threads` share.
//!
//! Input: commands, places (CPUs), limits. Output: times of each arm with a median and its interval, paired comparisons of arms,
//! and what disturbed the runs.

pub mod commands;
pub mod disturbance;
pub mod error;
pub mod places;
pub mod result;
pub mod runner;
pub mod series;
pub mod threads;
