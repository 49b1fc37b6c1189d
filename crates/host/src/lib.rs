//! Countersteer: host.

pub mod affinity;
pub mod doctor;
pub mod keeper;
pub mod live;
pub mod online;
pub mod page;
pub mod placer;
mod resources;
pub mod undo;
