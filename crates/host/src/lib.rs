//! Countersteer: host.

pub mod signals;
pub mod topology;
