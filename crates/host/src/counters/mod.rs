//! Counters of the kernel: events of PMUs and of the kernel itself, per thread, per CPU, per cgroup.
//!
//! Input: event specifications and a target. Output: [`countersteer_model::counters::Readings`], period by period.
//!
//! How threads are followed: every set of events is opened on the target once per CPU and inherited by all that it gives
//! birth to, with one ring buffer per CPU. The kernel writes into it births, names and deaths; the counts of a thread
//! whenever it has run for a part of the period ([`open`] asks for a sample of a clock in each group); and
//! its final counts when it ends. So there is no file descriptor per thread, none is opened too late, and each counter is
//! needed once. What a ring loses shows as a difference to the totals, which the kernel keeps apart, and is reported.
//!
//! Who may have programs of its own inside the kernel can have threads followed there instead ([`inside`]), which costs less.

mod catalog;
mod crowd;
mod ends;
mod error;
mod fit;
mod follow;
mod inside;
mod limits;
mod notes;
mod open;
mod percpu;
mod perf;
mod pmu;
mod record;
pub mod region;
mod request;
mod resolve;
mod returns;
mod run;
mod session;
mod sys;
mod targets;
mod task_counters;
mod task_counting;
mod tasks;
mod trees;
mod vendor;

pub use catalog::{Probe, probe, probe_event};
pub use crowd::Crowd;
pub use ends::kernel_tells;
pub use error::CounterError;
pub use fit::fit_together;
pub use follow::Fate;
pub use inside::sees_all_threads;
pub use limits::{is_among_the_last, permission};
pub use percpu::{CpuCounters, CpuEvent};
pub use pmu::{Pmu, PmuEvent, Pmus};
pub use request::{Request, Target};
pub use resolve::{CoreTypes, Encoding, Resolved, resolve};
pub use run::{Stopper, Summary, Tick};
pub use session::Session;
pub use task_counting::{Errand, Follow, Hear, Heard, Inside, Kind, Load, OfScheduler};
pub use vendor::{VendorError, add as add_vendor_events, own as own_vendor_lists};
