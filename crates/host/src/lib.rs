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
pub mod record_run;
mod resources;
pub mod undo;

pub use counters::region;
