//! `steer top`: what threads do to the hardware, interval by interval.
//!
//! Ticks of a session become snapshots (`sample`), snapshots a state (`state`), which keys change (`input`) and which is drawn
//! on a terminal (`view`, `live`) or printed (`plain`). What can be shown is one table (`columns`);
//! waits that are measured one by one have percentiles (`tails`).

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
