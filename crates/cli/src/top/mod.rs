//! `steer top`: hardware metrics of threads, interval by interval.
//!
//! Ticks of a session become snapshots (`sample`), and snapshots become a state (`state`), which keys change (`input`). The state
//! is drawn on a terminal (`view`, `live`) or printed (`plain`). One table defines all columns (`columns`). Individually measured
//! run-queue latency has percentiles (`tails`).

pub mod columns;
pub mod input;
pub mod live;
pub mod plain;
pub mod sample;
pub mod state;
pub mod tails;
pub mod view;

#[cfg(test)]
mod testing;
