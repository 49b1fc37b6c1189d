//! Integration tests of records, replays, answers, tables and reports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod golden;
mod hints;
mod judged;
mod kernel_cpus;
mod pages;
mod records;
mod synthetic;
mod tabulated;
mod traces;
