//! Attributes that the kernel schedules a thread by, read and set by system call.

pub mod affinity;
pub mod nice;
pub mod sched_policy;
pub mod uclamp;
