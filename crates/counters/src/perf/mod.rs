//! Access to `perf_event_open`: events of a machine's PMUs, the encoding of event strings, opening of counters, and records of
//! ring buffers.
//!
//! Input: sysfs, event strings, CPUs and threads. Output: open event groups, their counts, and [`record`]s of their ring
//! buffers. This module does not follow threads; [`crate::counting`] does.

pub(crate) mod catalog;
pub(crate) mod final_counts;
pub(crate) mod fit;
pub(crate) mod hotplug;
pub(crate) mod limits;
pub(crate) mod open;
pub(crate) mod percpu;
pub(crate) mod pmu;
pub(crate) mod record;
pub(crate) mod resolve;
pub(crate) mod sys;
pub(crate) mod vendor;
