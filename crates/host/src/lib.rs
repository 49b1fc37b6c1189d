//! Countersteer: host.

pub mod affinity;
pub mod counters;
pub mod doctor;
pub mod keeper;
pub mod live;
pub mod online;
pub mod record_run;
pub mod signals;
pub mod topology;
pub mod virtuals;

pub use counters::region;
