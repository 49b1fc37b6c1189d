//! Counters to be opened: the sets, CPUs and target of a request, divided into groups that the kernel can count.
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::events::EventDef;
use countersteer_model::units::CpuId;
use countersteer_sysfs::cgroup::remedy_without_counters;

use super::super::catalog::{EventProbe, TASK_CLOCK, probe};
use super::super::final_counts::NOTHING;
use super::super::limits;
use super::super::resolve::{CoreTypes, Encoding, Resolved};
use super::super::sys::abi;
use crate::CounterError;

/// Kind and config of the kernel's event that counts context switches.
pub(crate) const SWITCHES: (u32, u64) = (
    abi::PERF_TYPE_SOFTWARE,
    abi::PERF_COUNT_SW_CONTEXT_SWITCHES as u64,
);

#[derive(Clone, Copy, Debug)]
pub(crate) enum CountedTasks<'a> {
    /// Threads (by TID) and their descendants, counted one by one.
    Threads(&'a [u32]),
    /// Threads (by TID) and their descendants, counted as one total.
    Total(&'a [u32]),
    /// All threads on the CPUs.
    Cpus,
    /// Control group, by the descriptor of its folder.
    Cgroup(&'a OwnedFd),
}

/// Rate at which a thread's counts are reported when it leaves a CPU. Each report interrupts the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Each(u64),
    /// Each time that the thread leaves a CPU, but at most about this many times per second.
    PerSecond(u64),
}

pub(crate) struct GroupOpening<'a> {
    pub(crate) sets: &'a [Vec<Resolved>],
    pub(crate) cpus: &'a CpuSet,
    pub(crate) core_types: &'a CoreTypes,
    /// Running time in ns after which a thread is sampled; 0 for no samples.
    pub(crate) sample_ns: u64,
    /// Sampling by events instead of by time: index of the set, index of the event in the set, number of events per sample.
    pub(crate) every: Option<(usize, usize, u64)>,
    /// True if each sample of `every` ends the wait for records.
    pub(crate) prompt: bool,
    /// True if the kernel reports the final counts of threads.
    pub(crate) reports_final_counts: bool,
    /// Rate at which a thread's counts are reported when it leaves a CPU.
    pub(crate) leaving: Leaving,
    /// True if the first set is switched on by the `exec` of the started program.
    pub(crate) on_exec: bool,
    /// True if threads that cannot be counted are skipped instead of being an error.
    pub(crate) lenient: bool,
    /// Name of the target in messages.
    pub(crate) target: String,
}

/// Event of a group: its index in the set, the event, and its encoding.
pub(crate) type GroupMember<'a> = (usize, &'a Resolved, &'a Encoding);

/// Group of events to be opened.
pub(crate) struct OpeningGroup<'a> {
    pub(crate) cpu: CpuId,
    pub(crate) set: usize,
    /// Index of the group among those of its CPU.
    pub(crate) nth: usize,
    /// Events of the group.
    pub(crate) members: Vec<GroupMember<'a>>,
    /// True if the task clock leads the group.
    pub(crate) clock: bool,
    /// True if the group's running time is the time that the set counted.
    pub(crate) counts: bool,
}

impl Leaving {
    /// Returns the sampling period, and true if it is a number of samples per second.
    pub(crate) const fn rate(self) -> (u64, bool) {
        match self {
            Self::Each(times) => (times, false),
            Self::PerSecond(times) => (times, true),
        }
    }
}

/// Prefix of a control group's name in messages, followed by its path.
pub(crate) const CGROUP: &str = "CPUs for ";

impl GroupOpening<'_> {
    /// True if only user mode may be counted.
    ///
    /// # Errors
    /// Fails if counting user mode is not enough for the events.
    pub(crate) fn user_only(&self) -> Result<bool, CounterError> {
        match probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) {
            EventProbe::UserOnly => {}
            EventProbe::Forbidden => return Err(self.forbidden("task_clock", 2)),
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

    /// Returns kind and config of the additional events of a group with these members. They report a thread's counts when it
    /// leaves a CPU. The last of them reports them at the exit, too.
    pub(crate) fn exit_events(
        &self,
        ring: bool,
        user_only: bool,
        members: &[&GroupMember<'_>],
    ) -> Vec<(u32, u64)> {
        if !ring {
            return Vec::new();
        }
        // With sampling by events, the set's own event for context switches cannot report counts at each switch.
        let is_there = self.every.is_none() && members.iter().any(|member| is_switches(member));
        let switch = (!user_only && !is_there).then_some(SWITCHES);
        let last = self.reports_final_counts.then_some(NOTHING);
        switch.into_iter().chain(last).collect()
    }

    /// Returns the running time in ns after which the clock of a set's groups requests a sample; 0 for no samples.
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

    /// Returns the error for an event that the kernel counts elsewhere, but not for this control group.
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

    /// Returns the groups of every set on every CPU.
    pub(crate) fn groups(&self, whom: CountedTasks<'_>) -> Vec<OpeningGroup<'_>> {
        let together = matches!(whom, CountedTasks::Total(_)) && self.core_types.names.len() == 1;
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

pub(crate) fn is_clock((_, _, encoding): &GroupMember<'_>) -> bool {
    encoding.software && encoding.config[0] == TASK_CLOCK
}

/// True if this event counts every context switch of its thread.
pub(crate) fn is_switches((_, event, encoding): &GroupMember<'_>) -> bool {
    let everywhere = event.space.user && event.space.kernel;
    (encoding.kind, encoding.config[0]) == SWITCHES && everywhere
}

/// Returns the number of counters that one thread needs.
pub(crate) fn files_per_thread(sets: &[Vec<Resolved>], cpus: &CpuSet) -> u64 {
    let sets = || sets.iter().enumerate();
    cpus.iter()
        .flat_map(|cpu| sets().map(move |(nth, set)| files(&groups_of_set(cpu, nth, set))))
        .sum()
}

/// Returns the number of files that groups need. Besides its members, a group has a clock and two events that report counts.
pub(crate) fn files(groups: &[OpeningGroup<'_>]) -> u64 {
    groups.iter().map(|g| g.members.len() as u64 + 3).sum()
}

fn groups_of_set(cpu: CpuId, set: usize, events: &[Resolved]) -> Vec<OpeningGroup<'_>> {
    let mut groups = vec![OpeningGroup {
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
            None => groups.push(OpeningGroup {
                cpu,
                set,
                nth: 0,
                members: vec![(place, event, encoding)],
                clock: false,
                counts: !encoding.system,
            }),
        }
    }
    // If events of a PMU count, their running time is the relevant one, not that of the clock's group.
    if groups.iter().any(|g| !g.clock && g.counts) {
        groups[0].counts = false;
    }
    groups
}
