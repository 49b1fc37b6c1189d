//! Request of a counting session: target, event sets, periods.
//!
//! Input: the user's request. Output: an [`Opening`], by which counters are opened.

use std::path::PathBuf;

use countersteer_model::counters::Plan;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;

use crate::perf::open::{CGROUP, Leaving, Opening};
use crate::perf::resolve::{CoreTypes, Resolved};
use crate::perf::{final_counts, limits};

#[derive(Clone, Debug)]
pub enum Target {
    /// Program to start, and its descendants.
    Launch(Vec<String>),
    /// Processes with all their threads, and descendants created from now on.
    Processes(Vec<u32>),
    /// Those of these processes that exist and may be counted; counting continues after all have ended.
    Present(Vec<u32>),
    /// Threads, and descendants created from now on.
    Threads(Vec<u32>),
    Cpus,
    /// Control group, by CPU.
    Cgroup(PathBuf),
}

/// Events to count, threads or CPUs to count them on, and the sampling interval.
#[derive(Clone, Debug)]
pub struct Request {
    pub target: Target,
    pub sets: Vec<Vec<Resolved>>,
    /// Sets as a plan.
    pub plan: Plan,
    /// Sampling interval; `None`: a thread is read at its end.
    pub interval: Option<Nanos>,
    /// Number of samples after which the session ends.
    pub samples: Option<u64>,
    pub duration: Option<Nanos>,
    /// Sampling by events: set, place in the set, number of events per sample. `None`: by time.
    pub every: Option<(usize, usize, u64)>,
    /// True if samples of `every` are reported at once instead of in batches, since something else is read with each.
    pub prompt: bool,
    /// CPUs on which events are counted.
    pub cpus: CpuSet,
    /// CPUs to which a started program is confined.
    pub bind: Option<CpuSet>,
    /// True if everything is counted together instead of thread by thread.
    pub total: bool,
    /// File for the output of a started program, which then has no input either. `None`: it has the streams of this process.
    pub output: Option<PathBuf>,
    pub core_types: CoreTypes,
}

/// Number of samples of a running thread per period.
const SAMPLES_PER_PERIOD: u64 = 10;
/// Spacing of samples in a short period, which has at least two: each sample interrupts the thread.
pub(super) const SPACING_NS: u64 = 5_000_000;
/// Least running time between two samples of a thread.
pub(super) const LEAST_SAMPLE_NS: u64 = 500_000;
/// Interval between samples of threads that leave their CPUs all the time, if nothing is reported before the end.
const SELDOM_NS: u64 = 100_000_000;

impl Request {
    /// Opening of the counters; samples of a short period are `spacing_ns` apart, or half a period.
    pub(super) fn opening(&self, spacing_ns: u64) -> Opening<'_> {
        let launched = matches!(self.target, Target::Launch(_));
        let sample_ns = self.interval.map_or(0, |i| sample_ns(i.0, spacing_ns));
        let often = 1_000_000_000 / if sample_ns > 0 { sample_ns } else { SELDOM_NS };
        let leaving = often.min(limits::samples_per_second());
        let numbers = |ids: &[u32]| {
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let target = match &self.target {
            Target::Launch(command) => format!("`{}`", command.first().map_or("", String::as_str)),
            Target::Processes(pids) => format!("process {}", numbers(pids)),
            Target::Present(_) => "running processes".into(),
            Target::Threads(tids) => format!("thread {}", numbers(tids)),
            Target::Cpus => "all CPUs".into(),
            Target::Cgroup(path) => format!("{CGROUP}{}", path.display()),
        };
        Opening {
            sets: &self.sets,
            cpus: &self.cpus,
            core_types: &self.core_types,
            sample_ns,
            every: self.every,
            prompt: self.prompt,
            reports_final_counts: final_counts::reports_final_counts(),
            leaving: if self.every.is_some() {
                Leaving::Each(1)
            } else {
                Leaving::PerSecond(leaving)
            },
            on_exec: launched,
            lenient: matches!(self.target, Target::Present(_)),
            target,
        }
    }
}

/// Running time in ns after which a thread is sampled, by the length of a period.
pub(super) fn sample_ns(period: u64, spacing_ns: u64) -> u64 {
    (period / SAMPLES_PER_PERIOD)
        .max(spacing_ns.min(period / 2))
        .max(LEAST_SAMPLE_NS)
}

#[cfg(test)]
pub(super) mod testing {
    use countersteer_model::counters::{PlannedEvent, PlannedSet};

    use super::*;

    /// Request for `sets` sets of a clock and page faults, of one thread on one CPU.
    pub fn request(sets: usize, interval_ms: Option<u64>) -> Request {
        let event = |name: &str| PlannedEvent {
            name: name.into(),
            unit: String::new(),
            scale: 1.0,
            event: None,
        };
        let set = PlannedSet {
            events: vec![event("task_clock"), event("page_faults")],
        };
        let interval = interval_ms.map(Nanos::from_millis);
        Request {
            target: Target::Threads(vec![1]),
            sets: Vec::new(),
            plan: Plan::new(vec![set; sets], interval).unwrap(),
            interval,
            samples: None,
            duration: None,
            every: None,
            prompt: false,
            cpus: CpuSet::first(1),
            bind: None,
            total: false,
            output: None,
            core_types: CoreTypes {
                names: vec!["cpu".into()],
                by_cpu: vec![0],
            },
        }
    }
}
