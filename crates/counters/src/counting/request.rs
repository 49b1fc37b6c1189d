//! Request of a counting session: target, event sets and periods.
//!
//! Input: the user's request. Output: an [`GroupOpening`], from which counters are opened.

use std::path::{Path, PathBuf};

use countersteer_model::counters::{PlannedSet, SetPlan, SpecError, parse_set};
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;

use crate::CounterError;
use crate::perf::open::{CGROUP, GroupOpening, Leaving};
use crate::perf::pmu::Pmus;
use crate::perf::resolve::{CoreTypes, Resolved, resolve};
use crate::perf::{final_counts, limits};

#[derive(Clone, Debug)]
pub enum CountTarget {
    /// Program to be started, with its descendants.
    Launch(Vec<String>),
    /// Processes (by PID) with all their threads, and descendants created from now on.
    Processes(Vec<u32>),
    /// Processes (by PID) of which some may no longer exist, or may not be counted. Counting continues after all have ended.
    Present(Vec<u32>),
    /// Threads (by TID), and descendants created from now on.
    Threads(Vec<u32>),
    /// All threads on the requested CPUs.
    Cpus,
    /// Control group (path of its folder), counted on each CPU.
    Cgroup(PathBuf),
}

/// Events to count, the threads or CPUs to count them on, and the sampling interval.
#[derive(Clone, Debug)]
pub struct CountRequest {
    pub target: CountTarget,
    pub sets: Vec<Vec<Resolved>>,
    /// Plan by which the sets take turns, with the names of their events.
    pub plan: SetPlan,
    /// Sampling interval; `None` if a thread is read only at its exit.
    pub interval: Option<Nanos>,
    /// Number of samples after which the session ends; `None` for no limit.
    pub samples: Option<u64>,
    /// Time after which the session ends; `None` for no limit.
    pub duration: Option<Nanos>,
    /// Sampling by events: index of the set, index of the event in the set, number of events per sample. `None` for sampling
    /// by time.
    pub every: Option<(usize, usize, u64)>,
    /// True if samples of `every` are reported at once instead of in batches, because other values are read with each
    /// sample.
    pub prompt: bool,
    /// CPUs on which events are counted.
    pub cpus: CpuSet,
    /// CPUs to which the started program is bound; `None` for all CPUs.
    pub bind: Option<CpuSet>,
    /// True if the threads are counted as one total instead of one by one.
    pub total: bool,
    /// File for the output of a started program, which then has no input either. `None`: the program uses the streams of
    /// this process.
    pub output: Option<PathBuf>,
    /// Core types of the machine.
    pub core_types: CoreTypes,
}

/// Number of samples of a running thread per period.
const SAMPLES_PER_PERIOD: u64 = 10;
/// Minimum time in ns between samples in a short period, because each sample interrupts the thread. A period has at least
/// two samples all the same.
pub(super) const SPACING_NS: u64 = 5_000_000;
/// Minimum running time in ns between two samples of a thread.
pub(super) const LEAST_SAMPLE_NS: u64 = 500_000;
/// Interval in ns between samples of threads that frequently leave their CPUs, if samples are reported only at the end.
const SELDOM_NS: u64 = 100_000_000;

impl CountRequest {
    /// Returns a request without limits of time, for threads one by one.
    #[must_use]
    pub fn new(
        target: CountTarget,
        (sets, plan): (Vec<Vec<Resolved>>, SetPlan),
        interval: Option<Nanos>,
        cpus: CpuSet,
        core_types: CoreTypes,
    ) -> Self {
        Self {
            target,
            sets,
            plan,
            interval,
            samples: None,
            duration: None,
            every: None,
            prompt: false,
            cpus,
            bind: None,
            total: false,
            output: None,
            core_types,
        }
    }

    /// Returns a request for event sets of this machine, such as `task_clock,page_faults`, on all CPUs.
    ///
    /// # Errors
    /// Fails for events that this machine does not have, sets that cannot be multiplexed, and unreadable files of the kernel.
    pub fn of_events(
        target: CountTarget,
        events: &[&str],
        interval: Option<Nanos>,
    ) -> Result<Self, CounterError> {
        let pmus = Pmus::read(Path::new("/"))?;
        let resolved = |text: &&str| resolve(text, &parse_set(text)?, &pmus);
        let sets: Result<Vec<_>, SpecError> = events.iter().map(resolved).collect();
        let sets = sets?;
        let planned = |set: &Vec<Resolved>| PlannedSet {
            events: set.iter().map(|event| event.planned.clone()).collect(),
        };
        let plan = SetPlan::new(sets.iter().map(planned).collect(), interval)?;
        let core_types = CoreTypes::of(&pmus);
        Ok(Self::new(
            target,
            (sets, plan),
            interval,
            pmus.online,
            core_types,
        ))
    }

    /// Returns the description of the counters to be opened. Samples of a short period are `spacing_ns` apart, or half a
    /// period.
    pub(super) fn opening(&self, spacing_ns: u64) -> GroupOpening<'_> {
        let launched = matches!(self.target, CountTarget::Launch(_));
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
            CountTarget::Launch(command) => {
                format!("`{}`", command.first().map_or("", String::as_str))
            }
            CountTarget::Processes(pids) => format!("process {}", numbers(pids)),
            CountTarget::Present(_) => "running processes".into(),
            CountTarget::Threads(tids) => format!("thread {}", numbers(tids)),
            CountTarget::Cpus => "all CPUs".into(),
            CountTarget::Cgroup(path) => format!("{CGROUP}{}", path.display()),
        };
        GroupOpening {
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
            lenient: matches!(self.target, CountTarget::Present(_)),
            target,
        }
    }
}

/// Returns the running time in ns after which a thread is sampled, for a period of this length in ns.
pub(super) fn sample_ns(period: u64, spacing_ns: u64) -> u64 {
    (period / SAMPLES_PER_PERIOD)
        .max(spacing_ns.min(period / 2))
        .max(LEAST_SAMPLE_NS)
}

#[cfg(test)]
pub(super) mod testing {
    use countersteer_model::counters::PlannedEvent;

    use super::*;

    /// Request for `sets` sets of a clock and page faults, of one thread on one CPU.
    pub fn request(sets: usize, interval_ms: Option<u64>) -> CountRequest {
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
        let plan = SetPlan::new(vec![set; sets], interval).unwrap();
        let core_types = CoreTypes {
            names: vec!["cpu".into()],
            by_cpu: vec![0],
        };
        let target = CountTarget::Threads(vec![1]);
        let cpus = CpuSet::first(1);
        CountRequest::new(target, (Vec::new(), plan), interval, cpus, core_types)
    }
}
