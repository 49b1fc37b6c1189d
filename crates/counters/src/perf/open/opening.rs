//! Counters to be opened: sets, CPUs and target of a request, divided into groups that the kernel can count.
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::events::EventDef;
use countersteer_model::units::CpuId;
use countersteer_sysfs::cgroup::remedy_without_counters;

use super::super::catalog::{Probe, TASK_CLOCK, probe};
use super::super::final_counts::NOTHING;
use super::super::limits;
use super::super::resolve::{CoreTypes, Encoding, Resolved};
use super::super::sys::abi;
use crate::CounterError;

/// Kind and config of the kernel's own event of a thread that leaves its CPU.
pub(crate) const SWITCHES: (u32, u64) = (
    abi::PERF_TYPE_SOFTWARE,
    abi::PERF_COUNT_SW_CONTEXT_SWITCHES as u64,
);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom<'a> {
    /// Threads and their descendants, each for itself.
    Threads(&'a [u32]),
    /// Threads and their descendants, all together.
    Total(&'a [u32]),
    Cpus,
    /// Control group, by the descriptor of its folder.
    Cgroup(&'a OwnedFd),
}

/// Rate at which a thread's counts are reported as it leaves a CPU; each report interrupts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Each(u64),
    /// Each time, but at most about this many times per second.
    PerSecond(u64),
}

pub(crate) struct Opening<'a> {
    pub(crate) sets: &'a [Vec<Resolved>],
    pub(crate) cpus: &'a CpuSet,
    pub(crate) core_types: &'a CoreTypes,
    /// Running time in ns after which a thread is sampled; 0 for no samples.
    pub(crate) sample_ns: u64,
    /// Sampling by events instead: set, place in the set, number of events per sample.
    pub(crate) every: Option<(usize, usize, u64)>,
    /// True if such a sample ends the wait for records.
    pub(crate) prompt: bool,
    /// True if the kernel reports final counts.
    pub(crate) reports_final_counts: bool,
    /// Rate at which a thread's counts are reported as it leaves a CPU.
    pub(crate) leaving: Leaving,
    /// True if the first set begins with the program.
    pub(crate) on_exec: bool,
    /// True if threads that cannot be counted are skipped.
    pub(crate) lenient: bool,
    pub(crate) target: String,
}

/// Event of a group: place in the set, event, encoding.
pub(crate) type Member<'a> = (usize, &'a Resolved, &'a Encoding);

/// Group to be opened.
pub(crate) struct Group<'a> {
    pub(crate) cpu: CpuId,
    pub(crate) set: usize,
    /// Position among the groups of the CPU.
    pub(crate) nth: usize,
    pub(crate) members: Vec<Member<'a>>,
    pub(crate) clock: bool,
    pub(crate) counts: bool,
}

impl Leaving {
    /// Period, and true if it is a frequency.
    pub(crate) const fn rate(self) -> (u64, bool) {
        match self {
            Self::Each(times) => (times, false),
            Self::PerSecond(times) => (times, true),
        }
    }
}

/// Prefix of the name of control group targets, in front of their path.
pub(crate) const CGROUP: &str = "CPUs for ";

impl Opening<'_> {
    /// True if only user mode may be counted.
    ///
    /// # Errors
    /// Fails if that is not enough for the events.
    pub(crate) fn user_only(&self) -> Result<bool, CounterError> {
        match probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) {
            Probe::UserOnly => {}
            Probe::Forbidden => return Err(self.forbidden("task_clock", 2)),
            _ => return Ok(false),
        }
        let blind = self
            .sets
            .iter()
            .flatten()
            .find(|e| e.in_kernel || !e.space.user);
        blind.map_or(
            Ok(true),
            |event| Err(self.forbidden(&event.planned.name, 1)),
        )
    }

    /// Kind and config of the additional events of a group with these members. They report a thread's counts when it leaves a
    /// CPU and, by the last of them, when it exits.
    pub(crate) fn exit_events(
        &self,
        ring: bool,
        user_only: bool,
        members: &[&Member<'_>],
    ) -> Vec<(u32, u64)> {
        if !ring {
            return Vec::new();
        }
        // An event by which samples are taken does not count as one for context switches.
        let is_there = self.every.is_none() && members.iter().any(|member| is_switches(member));
        let switch = (!user_only && !is_there).then_some(SWITCHES);
        let last = self.reports_final_counts.then_some(NOTHING);
        switch.into_iter().chain(last).collect()
    }

    /// Running time after which the clock of a set's groups requests a sample; 0 for never.
    pub(crate) fn clock_period(&self, set: usize, place: Option<usize>) -> u64 {
        match self.every {
            None => self.sample_ns,
            Some((of_set, at, period)) if of_set == set && place == Some(at) => period,
            Some(_) => 0,
        }
    }

    fn forbidden(&self, event: &str, wanted: i32) -> CounterError {
        let paranoid = limits::paranoid().unwrap_or_default();
        CounterError::Forbidden {
            event: event.into(),
            target: self.target.clone(),
            paranoid,
            wanted,
        }
    }

    pub(crate) fn refused(&self, event: &str, source: io::Error) -> CounterError {
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                self.forbidden(event, if self.target.contains("CPU") { 0 } else { 1 })
            }
            Some(libc::EMFILE | libc::ENFILE) => CounterError::TooManyFiles {
                needed: 1 << 16,
                limit: 0,
            },
            Some(libc::ENOENT) if EventDef::by_name(event).is_some_and(EventDef::is_software) => {
                self.uncounted(event, source)
            }
            _ => CounterError::Refused {
                event: event.into(),
                target: self.target.clone(),
                source,
            },
        }
    }

    /// Error for an event that the kernel counts elsewhere, but not for some control groups.
    fn uncounted(&self, event: &str, source: io::Error) -> CounterError {
        match self.target.strip_prefix(CGROUP).map(Path::new) {
            Some(path) => CounterError::CgroupUncounted {
                path: path.into(),
                remedy: remedy_without_counters(path),
            },
            None => CounterError::Refused {
                event: event.into(),
                target: self.target.clone(),
                source,
            },
        }
    }

    /// Groups of every set on every CPU.
    pub(crate) fn groups(&self, whom: Whom<'_>) -> Vec<Group<'_>> {
        let together = matches!(whom, Whom::Total(_)) && self.core_types.names.len() == 1;
        let cpus: Vec<CpuId> = self
            .cpus
            .iter()
            .take(if together { 1 } else { usize::MAX })
            .collect();
        let sets = || self.sets.iter().enumerate();
        let on = |cpu: &CpuId| {
            let mut groups: Vec<_> = sets()
                .flat_map(|(nth, set)| groups_of_set(*cpu, nth, set))
                .collect();
            groups
                .iter_mut()
                .enumerate()
                .for_each(|(nth, group)| group.nth = nth);
            groups
        };
        cpus.iter().flat_map(on).collect()
    }
}

pub(crate) fn is_clock((_, _, encoding): &Member<'_>) -> bool {
    encoding.software && encoding.config[0] == TASK_CLOCK
}

/// True if this event counts every context switch of its thread.
pub(crate) fn is_switches((_, event, encoding): &Member<'_>) -> bool {
    let everywhere = event.space.user && event.space.kernel;
    (encoding.kind, encoding.config[0]) == SWITCHES && everywhere
}

/// Number of counters that one thread needs.
pub(crate) fn files_per_thread(sets: &[Vec<Resolved>], cpus: &CpuSet) -> u64 {
    let sets = || sets.iter().enumerate();
    cpus.iter()
        .flat_map(|cpu| sets().map(move |(nth, set)| files(&groups_of_set(cpu, nth, set))))
        .sum()
}

/// Number of files of groups: besides its members, a group has a clock and two events that request samples.
pub(crate) fn files(groups: &[Group<'_>]) -> u64 {
    groups.iter().map(|g| g.members.len() as u64 + 3).sum()
}

fn groups_of_set(cpu: CpuId, set: usize, events: &[Resolved]) -> Vec<Group<'_>> {
    let mut groups = vec![Group {
        cpu,
        set,
        nth: 0,
        members: Vec::new(),
        clock: true,
        counts: true,
    }];
    for (place, event) in events.iter().enumerate() {
        let Some(encoding) = event.on(cpu) else {
            continue;
        };
        let found = groups.iter_mut().find(|g| match g.members.first() {
            _ if encoding.software => g.clock,
            Some((_, _, known)) => !g.clock && known.pmu == encoding.pmu && !encoding.system,
            None => false,
        });
        match found {
            Some(group) => group.members.push((place, event, encoding)),
            None => groups.push(Group {
                cpu,
                set,
                nth: 0,
                members: vec![(place, event, encoding)],
                clock: false,
                counts: !encoding.system,
            }),
        }
    }
    // If a PMU counts, its running time is the relevant one.
    if groups.iter().any(|g| !g.clock && g.counts) {
        groups[0].counts = false;
    }
    groups
}
