//! Placements: decisions of a policy about the CPUs of threads, with reasons.
//!
//! Placements are the output of [`crate::policy`] and the input of [`crate::engine::Engine::apply`] and of the record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::topology::Topology;
use crate::units::{CpuId, GroupId, ProgramId, ThreadId};

/// Decision of a policy. Threads without an entry keep their previous placement.
///
/// ```
/// use countersteer_model::cpuset::CpuSet;
/// use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
/// use countersteer_model::units::ThreadId;
///
/// let cpus: CpuSet = "0-1".parse()?;
/// let reason = Reason::rule("few misses").saw("llc_mpki", Some(0.2));
/// let placement = Placement {
///     threads: vec![ThreadPlacement::new(ThreadId(7), Target::Cpus(cpus.into()), reason)],
///     ..Placement::default()
/// };
/// assert_eq!(placement.threads[0].reason.rule, "few misses");
/// // Way classes and frequency limits stay as they are.
/// assert!(placement.caches.is_none() && placement.clocks.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Threads to place, with at most one entry per thread.
    pub threads: Vec<ThreadPlacement>,
    /// Thresholds for placing new and waking threads between decisions; `None` keeps the previous table.
    pub admission: Option<AdmissionTable>,
    /// Partitions of the last-level caches by program or thread; `None` keeps the previous ones, an empty list removes all.
    pub caches: Option<Vec<WayClass>>,
    /// Limits on the frequencies of CPUs, with at most one entry per CPU; `None` keeps the previous ones, an empty list removes all.
    pub clocks: Option<Vec<ClockLimit>>,
}

/// Upper limit on the frequency of a CPU. CPUs of one clock have the lowest of their limits.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockLimit {
    /// Identifier of the CPU.
    pub cpu: CpuId,
    /// Highest frequency in MHz.
    pub most_mhz: u32,
    /// Reason for the limit, for records and reports.
    pub reason: Reason,
}

/// Placement of one thread: its CPUs, weight and frequency hint.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadPlacement {
    /// Identifier of the thread.
    pub thread: ThreadId,
    /// CPUs on which the thread may run.
    pub target: Target,
    /// Linux weight of the thread for its share of CPU time (1,024 is nice 0); `None` leaves the weight unchanged.
    pub weight: Option<u32>,
    /// Frequency hint for the thread, if the machine supports one. `None` leaves the hint unchanged; [`Clamp::FREE`]
    /// removes it.
    pub clamp: Option<Clamp>,
    /// Reason for the placement, for records and reports.
    pub reason: Reason,
}

/// Frequency hint: limits on the utilisation of a thread, on a scale on which the largest CPU has capacity 1,024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clamp {
    /// Lower limit on the utilisation, even if the thread demands less.
    pub least: u32,
    /// Upper limit on the utilisation, even if the thread demands more.
    pub most: u32,
}

/// Class of threads that share a partition of the last-level caches. Threads in no class use all of the caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayClass {
    /// Name that identifies the class from one decision to the next.
    pub name: Cow<'static, str>,
    /// Programs or threads in the class.
    pub members: Members,
    /// Partition of each last-level cache for the class. In a cache without an entry, the class may use all ways.
    pub shares: Vec<CacheShare>,
}

/// Members of a cache class: programs or threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// All threads of these programs, including those created later.
    Programs(Vec<ProgramId>),
    /// These threads, and threads that they fork later.
    Threads(Vec<ThreadId>),
}

/// Partition of one last-level cache, and of the memory bandwidth behind it, for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShare {
    /// Identifier of the cache's core group, of the kind [`crate::topology::GroupBy::Llc`].
    pub llc: GroupId,
    /// Ways of the cache that the class may use; `None` means all.
    pub ways: Option<Ways>,
    /// Limit on memory bandwidth in percent of the total; `None` means no limit.
    pub bandwidth: Option<u32>,
}

/// Contiguous ways of a cache, numbered as in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// Index of the first way; if `None`, the engine allocates the classes one after another.
    pub first: Option<u32>,
    /// Number of ways.
    pub count: u32,
}

/// CPUs on which a thread may run, as a policy states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All CPUs of a core group.
    Group(GroupId),
    /// Explicit set of CPUs.
    Cpus(Arc<CpuSet>),
    /// All CPUs that the program's own affinity mask allows.
    Anywhere,
}

/// Admission table: thresholds of a metric by which an engine places threads at once, without calling the policy.
///
/// It places new threads, and threads that wake after they slept through the last decision. In the simulator, a thread that
/// slept for a shorter time keeps its placement. The engine in the kernel places every waking thread whose metric is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionTable {
    /// Metric that is compared with the rows; a thread without a value gets the last row.
    pub metric: Cow<'static, str>,
    /// Pairs (smallest value, core group) in descending order. The first row applies whose value the thread's metric
    /// reaches. Without rows, engines place no thread by themselves any more.
    pub rows: Vec<(f64, GroupId)>,
}

/// Reason for a placement, for records and reports.
///
/// ```
/// use countersteer_model::placement::Reason;
///
/// let reason = Reason::rule("misses most").saw("llc_mpki", Some(12.5)).saw("ipc", None);
/// assert_eq!(reason.rule, "misses most");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reason {
    /// Description of the rule that led to the placement.
    pub rule: Cow<'static, str>,
    /// Names and values of the metrics that the rule used.
    pub seen: Vec<(Cow<'static, str>, f64)>,
    /// Predicted benefit of each alternative core group.
    pub alternatives: Vec<(GroupId, f64)>,
    /// Unit of the predicted values of the alternatives.
    pub unit: Cow<'static, str>,
}

/// Combination of all placements of a policy so far. A policy does not repeat placements, so this state restores them after
/// a pause or on another engine.
#[derive(Clone, Debug, Default)]
pub struct PlacementState {
    threads: BTreeMap<ThreadId, ThreadPlacement>,
    admission: Option<AdmissionTable>,
    caches: Option<Vec<WayClass>>,
    clocks: Option<Vec<ClockLimit>>,
}

impl PlacementState {
    /// Adds the policy's next placement to the state.
    pub fn add(&mut self, placement: &Placement) {
        for next in &placement.threads {
            let before = self.threads.insert(next.thread, next.clone());
            if let (Some(before), Some(now)) = (before, self.threads.get_mut(&next.thread)) {
                now.weight = now.weight.or(before.weight);
                now.clamp = now.clamp.or(before.clamp);
            }
        }
        if placement.admission.is_some() {
            self.admission.clone_from(&placement.admission);
        }
        if placement.caches.is_some() {
            self.caches.clone_from(&placement.caches);
        }
        if placement.clocks.is_some() {
            self.clocks.clone_from(&placement.clocks);
        }
    }

    /// Removes the threads for which `lives` returns false.
    pub fn retain(&mut self, lives: impl Fn(ThreadId) -> bool) {
        self.threads.retain(|id, _| lives(*id));
    }

    /// Returns the state as one placement, with threads in ascending order of ids.
    #[must_use]
    pub fn placement(&self) -> Placement {
        Placement {
            threads: self.threads.values().cloned().collect(),
            admission: self.admission.clone(),
            caches: self.caches.clone(),
            clocks: self.clocks.clone(),
        }
    }
}

impl ThreadPlacement {
    /// Creates a placement of a thread, without a weight or a frequency hint.
    #[must_use]
    pub const fn new(thread: ThreadId, target: Target, reason: Reason) -> Self {
        Self {
            thread,
            target,
            weight: None,
            clamp: None,
            reason,
        }
    }
}

impl Clamp {
    /// Capacity of the largest CPU, the end of the utilisation scale.
    pub const MOST: u32 = 1024;
    /// Frequency hint without limits, which removes an earlier hint.
    pub const FREE: Self = Self {
        least: 0,
        most: Self::MOST,
    };
    /// Frequency hint that demands the full speed.
    pub const FULL: Self = Self {
        least: Self::MOST,
        most: Self::MOST,
    };

    /// Returns a frequency hint with this capacity as the upper limit.
    #[must_use]
    pub fn at_most(capacity: u32) -> Self {
        Self {
            least: 0,
            most: capacity.min(Self::MOST),
        }
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: Vec<String>| ids.join(",");
        match self {
            Self::Programs(ids) => write!(
                f,
                "programs {}",
                list(ids.iter().map(|p| p.0.to_string()).collect())
            ),
            Self::Threads(ids) => write!(
                f,
                "threads {}",
                list(ids.iter().map(|t| t.0.to_string()).collect())
            ),
        }
    }
}

impl AdmissionTable {
    /// Returns the core group for a thread, given its value of the metric. `None` if the table has no rows.
    #[must_use]
    pub fn choose(&self, value: Option<f64>) -> Option<GroupId> {
        let reached = |row: &&(f64, GroupId)| value.is_some_and(|v| v >= row.0);
        self.rows
            .iter()
            .find(reached)
            .or(self.rows.last())
            .map(|row| row.1)
    }
}

impl Target {
    /// Returns the CPUs on which the thread may run.
    #[must_use]
    pub fn cpus(&self, topology: &Topology) -> Arc<CpuSet> {
        match self {
            Self::Group(id) => Arc::clone(&topology.group(*id).cpus),
            Self::Cpus(cpus) => Arc::clone(cpus),
            Self::Anywhere => Arc::clone(&topology.groups[0].cpus),
        }
    }

    /// Returns the target's name in records and reports.
    #[must_use]
    pub fn name(&self, topology: &Topology) -> String {
        match self {
            Self::Group(id) => topology.group(*id).name.clone(),
            Self::Cpus(cpus) => cpus.to_string(),
            Self::Anywhere => "anywhere".into(),
        }
    }
}

impl Reason {
    /// Creates a reason that has only a rule.
    #[must_use]
    pub fn rule(rule: impl Into<Cow<'static, str>>) -> Self {
        Self {
            rule: rule.into(),
            ..Self::default()
        }
    }

    /// Adds the name and value of a metric that the rule used, if the value is available.
    #[must_use]
    pub fn saw(mut self, metric: impl Into<Cow<'static, str>>, value: Option<f64>) -> Self {
        self.seen.extend(value.map(|v| (metric.into(), v)));
        self
    }

    /// Adds alternative core groups with their predicted values.
    #[must_use]
    pub fn against(
        mut self,
        unit: &'static str,
        alternatives: impl IntoIterator<Item = (GroupId, f64)>,
    ) -> Self {
        self.unit = unit.into();
        self.alternatives.extend(alternatives);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_placements_leave_what_they_do_not_name() {
        let place = |thread, target, clamp| ThreadPlacement {
            clamp,
            ..ThreadPlacement::new(ThreadId(thread), target, Reason::default())
        };
        let limit = |cpu, most_mhz| ClockLimit {
            cpu: CpuId(cpu),
            most_mhz,
            reason: Reason::default(),
        };
        let group = Target::Group(GroupId(1));
        let table = AdmissionTable::default();
        let mut state = PlacementState::default();
        state.add(&Placement {
            threads: vec![
                place(9, group.clone(), Some(Clamp::FULL)),
                place(7, group.clone(), None),
            ],
            admission: Some(table.clone()),
            clocks: Some(vec![limit(1, 800), limit(0, 900)]),
            ..Placement::default()
        });
        state.add(&Placement {
            threads: vec![place(9, Target::Anywhere, None)],
            caches: Some(Vec::new()),
            ..Placement::default()
        });
        let expected = Placement {
            threads: vec![
                place(7, group, None),
                place(9, Target::Anywhere, Some(Clamp::FULL)),
            ],
            admission: Some(table),
            caches: Some(Vec::new()),
            clocks: Some(vec![limit(1, 800), limit(0, 900)]),
        };
        assert_eq!(state.placement(), expected);
        state.retain(|_| false);
        assert!(state.placement().threads.is_empty());
    }
}
