//! Linux as its files and system calls show it: processes, threads and their attributes, control groups, resctrl, sensors, CPUs and
//! caches.
//!
//! Input: a root directory (`/`, or a fake one) or numbers of processes and threads. Output: what is read there, or the change made.
//! Nothing here counts events or decides anything. What a machine lacks is [`unavailable::Unavailable`], with the remedy.

pub mod cgroup;
pub mod files;
pub mod launch;
pub mod pidfd;
pub mod poll;
pub mod procfs;
pub mod resctrl;
pub mod sched_ext;
pub mod sensors;
pub mod signals;
pub mod task;
pub mod topology;
pub mod unavailable;
pub mod waits;
