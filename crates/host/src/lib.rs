//! Countersteer: host.

pub mod record_run;
pub mod signals;
pub mod topology;
pub mod vendor_events;
pub mod virtuals;
