//! Sessions on this machine, as values: counting, steering by a policy, trials, timings, miss curves of running programs.
//!
//! Input: programs or processes of this machine, and a request. Output: results, records, and errors with kinds. Nothing here
//! parses a command line. Recorders, the cleanup after a killed run and whole runs of a trial are processes of their own. For
//! them, a program names the `steer` of this version ([`this_program::set_steer`]). [`notice`] passes on what a user should know
//! meanwhile. No function writes to stdout or stderr, or ends the process.

#[macro_use]
pub mod notice;

pub mod advice;
pub mod auto;
pub mod bench;
pub mod bpf;
pub mod count;
pub mod counted;
pub mod counting_record;
pub mod daemon;
pub mod derivable;
pub mod doctor;
pub mod error;
pub mod http;
pub mod interrupt;
pub mod library;
pub mod live;
pub mod modules;
pub mod native;
pub mod online;
pub mod recorded;
pub mod remote;
pub mod serving;
pub mod steering;
pub mod top;
pub mod trial;
pub mod verdicts;
pub mod virtuals;
pub mod waits;

pub use countersteer_profiler::this_program;
