//! Linux as seen through its files and system calls: processes, threads and their attributes, control groups, resctrl, sensors,
//! CPUs and caches.
//!
//! Input: a root directory (`/`, or a fake one), or PIDs and TIDs. Output: the values read, or the change made. This crate
//! neither counts events nor makes decisions. A feature that the machine lacks is [`unavailable::Unavailable`], with the remedy.

pub mod cgroup;
pub mod described;
pub mod files;
pub mod launch;
pub mod pidfd;
pub mod poll;
pub mod procfs;
pub mod resctrl;
pub mod rivals;
pub mod sched_ext;
pub mod sensors;
pub mod signals;
pub mod task;
pub mod topology;
pub mod unavailable;
pub mod waits;
