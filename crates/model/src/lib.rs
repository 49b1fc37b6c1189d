//! Pure core of Countersteer, without I/O, clock or threads.
//!
//! Data flows one way: a source yields samples, samples become metrics, a policy turns metrics into a placement, an engine
//! applies the placement. All of it is recorded. Each module is one noun of that sentence.

pub mod bounds;
pub mod by_id;
pub mod control;
pub mod corun;
pub mod counters;
pub mod cpunumbers;
pub mod cpuset;
mod departed;
pub mod driver;
pub mod engine;
pub mod events;
pub mod evidence;
pub mod hint;
pub mod latency;
pub mod machine;
pub mod metric;
mod missing;
pub mod models;
pub mod observation;
pub mod phase;
pub mod placement;
pub mod policy;
pub mod printable;
pub mod profile;
pub mod rules;
pub mod sample;
pub mod score;
pub mod signature;
pub mod suggestion;
pub mod testing;
pub mod textfile;
mod toml_lines;
pub mod topology;
pub mod trial;
pub mod units;
pub mod usage;
pub mod workload;
