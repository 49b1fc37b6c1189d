//! `steer top`: hardware metrics of threads, updated at each interval.
//!
//! `countersteer_session::top` counts and keeps the table. Keys (`input`) change it. It is drawn on a terminal (`view`, `live`) or
//! printed (`plain`). `web` shows printed intervals as charts.

pub mod input;
pub mod live;
pub mod plain;
pub mod view;
pub mod web;
