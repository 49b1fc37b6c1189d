//! Placements: a policy's decisions about where threads run, with reasons.
//!
//! Output of [`crate::policy`]; input of [`crate::engine::Engine::apply`] and of the record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::topology::Topology;
use crate::units::{GroupId, ProgramId, ThreadId};

/// Decision of a policy. Threads that are not named keep their placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Threads to place, at most one entry each.
    pub threads: Vec<ThreadPlacement>,
    /// Placement rule for new and waking threads between decisions; `None` keeps the last one.
    pub admission: Option<AdmissionTable>,
    /// Partitions of the last-level caches by program or thread; `None` keeps the last ones, an empty list removes all.
    pub caches: Option<Vec<CacheClass>>,
}

/// Placement of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadPlacement {
    /// The thread.
    pub thread: ThreadId,
    /// Target.
    pub target: Target,
    /// Share of CPU time as a Linux weight (1,024 is nice 0); `None` leaves it.
    pub weight: Option<u32>,
    /// Frequency hint, if the machine supports one; `None` leaves it, [`Clamp::FREE`] removes a former hint.
    pub clamp: Option<Clamp>,
    /// Reason.
    pub reason: Reason,
}

/// Frequency hint: limits on the utilisation of a thread, relative to the largest CPU's capacity (1,024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clamp {
    /// Lower limit, even if it demands less.
    pub least: u32,
    /// Upper limit, even if it demands more.
    pub most: u32,
}

/// Threads that share a partition of the last-level caches. Threads in no class use all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheClass {
    /// Name, which identifies it from one decision to the next.
    pub name: Cow<'static, str>,
    /// Its programs or threads.
    pub members: Members,
    /// Its partition by cache; it has all of a cache that is not named.
    pub shares: Vec<CacheShare>,
}

/// Members of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// All threads of these programs, including future ones.
    Programs(Vec<ProgramId>),
    /// These threads, and those they fork.
    Threads(Vec<ThreadId>),
}

/// Partition of a last-level cache and of the memory bandwidth behind it, for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShare {
    /// The cache: a group of [`crate::topology::GroupBy::Llc`].
    pub llc: GroupId,
    /// Ways of the cache; `None` means all.
    pub ways: Option<Ways>,
    /// Memory bandwidth in percent of the total; `None` means all.
    pub bandwidth: Option<u32>,
}

/// Ways of a cache, numbered as in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// First way; if absent, the engine places the classes one after another.
    pub first: Option<u32>,
    /// Number of ways.
    pub count: u32,
}

/// Target of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A core group.
    Group(GroupId),
    /// A set of CPUs.
    Cpus(Arc<CpuSet>),
    /// All CPUs that the program itself allows.
    Anywhere,
}

/// Thresholds by which an engine places a thread at once, without the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionTable {
    /// Metric to compare; a thread without it gets the last row.
    pub metric: Cow<'static, str>,
    /// Pairs of (least value, group), descending; the first row whose value is reached applies.
    pub rows: Vec<(f64, GroupId)>,
}

/// Reason for a placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reason {
    /// Description of the rule that decided.
    pub rule: Cow<'static, str>,
    /// Metrics used.
    pub seen: Vec<(Cow<'static, str>, f64)>,
    /// Predicted value of each alternative.
    pub alternatives: Vec<(GroupId, f64)>,
    /// Unit of the alternatives' values.
    pub unit: Cow<'static, str>,
}

/// Combined placements of one policy so far. A policy does not repeat itself, so this state restores its placements after a
/// pause or on another engine.
#[derive(Clone, Debug, Default)]
pub struct PlacementState {
    threads: BTreeMap<ThreadId, ThreadPlacement>,
    admission: Option<AdmissionTable>,
    caches: Option<Vec<CacheClass>>,
}

impl PlacementState {
    /// Adds the next placement.
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
    }

    /// Forgets exited threads.
    pub fn retain(&mut self, lives: impl Fn(ThreadId) -> bool) {
        self.threads.retain(|id, _| lives(*id));
    }

    /// Returns the state as one placement, threads in ascending order.
    #[must_use]
    pub fn placement(&self) -> Placement {
        Placement {
            threads: self.threads.values().cloned().collect(),
            admission: self.admission.clone(),
            caches: self.caches.clone(),
        }
    }
}

impl ThreadPlacement {
    /// Returns a placement of a thread, without a weight or a frequency hint.
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
    /// Capacity of the largest CPU.
    pub const MOST: u32 = 1024;
    /// No hint.
    pub const FREE: Self = Self {
        least: 0,
        most: Self::MOST,
    };
    /// Full speed.
    pub const FULL: Self = Self {
        least: Self::MOST,
        most: Self::MOST,
    };

    /// Returns an upper limit at this capacity.
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
    /// Returns the group for a thread with this value of the metric; `None` if the table has no rows.
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
    /// Returns the CPUs of the target.
    #[must_use]
    pub fn cpus(&self, topology: &Topology) -> Arc<CpuSet> {
        match self {
            Self::Group(id) => Arc::clone(&topology.group(*id).cpus),
            Self::Cpus(cpus) => Arc::clone(cpus),
            Self::Anywhere => Arc::clone(&topology.groups[0].cpus),
        }
    }

    /// Returns its name in records and reports.
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
    /// Returns a reason without numbers.
    #[must_use]
    pub fn rule(rule: impl Into<Cow<'static, str>>) -> Self {
        Self {
            rule: rule.into(),
            ..Self::default()
        }
    }

    /// Adds a metric; unavailable ones are left out.
    #[must_use]
    pub fn saw(mut self, metric: impl Into<Cow<'static, str>>, value: Option<f64>) -> Self {
        self.seen.extend(value.map(|v| (metric.into(), v)));
        self
    }

    /// Adds alternatives with their predicted values.
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
        let group = Target::Group(GroupId(1));
        let table = AdmissionTable::default();
        let mut state = PlacementState::default();
        state.add(&Placement {
            threads: vec![
                place(9, group.clone(), Some(Clamp::FULL)),
                place(7, group.clone(), None),
            ],
            admission: Some(table.clone()),
            caches: None,
        });
        state.add(&Placement {
            threads: vec![place(9, Target::Anywhere, None)],
            admission: None,
            caches: Some(Vec::new()),
        });
        let expected = Placement {
            threads: vec![
                place(7, group, None),
                place(9, Target::Anywhere, Some(Clamp::FULL)),
            ],
            admission: Some(table),
            caches: Some(Vec::new()),
        };
        assert_eq!(state.placement(), expected);
        state.retain(|_| false);
        assert!(state.placement().threads.is_empty());
    }
}
