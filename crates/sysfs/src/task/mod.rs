//! Scheduling attributes of threads, read and set by system calls.

pub mod affinity;
pub mod nice;
pub mod sched_policy;
pub mod uclamp;
