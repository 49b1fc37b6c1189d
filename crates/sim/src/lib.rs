//! Simulator: a fast model of a machine, its programs and the Linux scheduler.
//!
//! [`linux`] decides which thread runs on which CPU. [`progress`] computes the speed of each running thread. [`engine`] combines
//! both behind the interface (observe and apply) that real machines offer as well.
//!
//! Nothing here reads a file or a clock; a limit on wall-clock time comes with the caller's clock.

pub mod engine;
pub mod linux;
pub mod progress;
pub mod scheduler;
