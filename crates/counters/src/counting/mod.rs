//! Counting of threads, period by period: a [`session::Session`] over one of the [`task_counters::TaskCounters`].
//!
//! Input: a [`request::CountRequest`]. Output: forks, execs and exits of threads in the order of time, and samples that add up to
//! the totals. Threads have counters of their own ([`per_thread`]), or BPF programs count them ([`bpf`]).

pub(crate) mod bpf;
mod event_sorter;
pub(crate) mod follow;
mod per_thread;
pub(crate) mod present;
pub(crate) mod request;
pub(crate) mod run;
pub(crate) mod session;
mod targets;
mod task_counters;
mod tasks;
mod trees;
