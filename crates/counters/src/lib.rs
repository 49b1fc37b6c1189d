//! Counting of hardware and kernel events with `perf_event_open`: per thread, per CPU, per control group, and around sections
//! of code.
//!
//! Input: event strings and a [`CountTarget`]. Output: [`countersteer_model::sample::Samples`], period by period, from a
//! [`Session`]. A [`region::Region`] counts between two points of a program.
//!
//! Every set of events is opened on the target once per CPU, with one ring buffer per CPU. All threads that the target creates
//! inherit the events. The kernel writes forks, names and exits into the ring buffer. It also writes the counts of a thread
//! whenever the thread has run for a fraction of the period; for this, `perf::open` requests samples of a clock in each group.
//! At a thread's exit it writes the final counts.
//!
//! So there is no file descriptor per thread, none is opened too late, and each counter is needed only once. Losses of a ring
//! buffer appear as a difference to the totals, which the kernel keeps separately, and are reported.
//!
//! If BPF programs may be loaded, they count threads instead (`counting::bpf`), which costs less.

mod counting;
mod error;
mod perf;
pub mod region;
pub mod reuse;

pub use counting::bpf::interface::{
    BpfLoader, BpfRequest, Follow, Load, OfScheduler, SetOfClass, TakeReport, TaskReport,
};
pub use counting::bpf::{may_load_programs, sees_all_threads};
pub use counting::follow::TaskEvent;
pub use counting::present::PresentProcesses;
pub use counting::request::{CountRequest, CountTarget};
pub use counting::run::{CountingSummary, Stopper, Tick, children_cpu_time};
pub use counting::session::Session;
pub use error::CounterError;
pub use perf::catalog::{EventProbe, may_count, probe, probe_event};
pub use perf::final_counts::reports_final_counts;
pub use perf::fit::fit_together;
pub use perf::limits::{is_among_the_last, permission};
pub use perf::percpu::{CpuCounters, CpuEvent};
pub use perf::pmu::{PmuEvent, PmuFolder, Pmus};
pub use perf::resolve::{CoreTypes, Encoding, Resolved, resolve};
pub use perf::vendor::{VendorError, add as add_vendor_events, own as own_vendor_lists};
