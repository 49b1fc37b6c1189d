//! `steer top`: hardware metrics of threads, updated at each interval.
//!
//! The counting session delivers samples at each interval, and `sample` converts them to a snapshot. `state` collects
//! snapshots, and keys (`input`) change the state. The state is drawn on a terminal (`view`, `live`) or printed (`plain`). One
//! table defines all columns (`columns`). `tails` supplies percentiles of run-queue latency. `web` shows printed intervals as charts.

pub mod columns;
pub mod input;
pub mod live;
pub mod plain;
pub mod sample;
pub mod state;
pub mod tails;
pub mod view;
pub mod web;

#[cfg(test)]
mod testing;
