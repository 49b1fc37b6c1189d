//! Countersteer: host.

pub mod affinity;
pub mod counters;
pub mod doctor;
pub mod keeper;
pub mod live;
pub mod online;
pub mod own;
pub mod page;
pub mod placer;
pub mod procfs;
pub mod record_run;
mod resctrl;
mod resources;
mod sched_policy;
pub mod signals;
pub mod task;
pub mod topology;
mod uclamp;
mod unavailable;
pub mod undo;
pub mod virtuals;
pub mod waits;

pub use counters::region;
