//! Countersteer: host.

pub mod signals;
