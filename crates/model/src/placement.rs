//! Placements: where a policy wants threads, and why.
//!
//! Output of [`crate::policy`]; input of [`crate::engine::Engine::apply`] and of the record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::topology::Topology;
use crate::units::{GroupId, ProgramId, ThreadId};

/// What a policy decided. Threads that are not named stay as they were placed before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Threads to place, at most one entry each.
    pub threads: Vec<ThreadPlacement>,
    /// How engines place new and waking threads between decisions; `None` keeps the last one.
    pub admission: Option<AdmissionTable>,
    /// Partitions of the last-level caches by program or thread; `None` keeps what was said last, an empty list gives everything back.
    pub caches: Option<Vec<CacheClass>>,
}

/// Where one thread goes.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadPlacement {
    /// The thread.
    pub thread: ThreadId,
    /// Where to.
    pub target: Target,
    /// Share of CPU time as a Linux weight (1,024 is nice 0); `None` leaves it.
    pub weight: Option<u32>,
    /// How fast its CPU should run for it, where the machine lets that be set; `None` leaves it, [`Clamp::FREE`] takes a
    /// former hint back.
    pub clamp: Option<Clamp>,
    /// Why.
    pub reason: Reason,
}

/// A hint at a frequency: what a thread is taken to ask of its CPU, as a part of the largest CPU's capacity (1,024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clamp {
    /// At least so much, even if it asks for less.
    pub least: u32,
    /// At most so much, even if it asks for more.
    pub most: u32,
}

/// Threads that have part of the last-level caches together. Whoever is in no class uses all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheClass {
    /// Its name, by which it is known from one decision to the next.
    pub name: Cow<'static, str>,
    /// Its programs or threads.
    pub members: Members,
    /// What it has, by cache; of caches that are not named it has everything.
    pub shares: Vec<CacheShare>,
}

/// The members of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// All threads of these programs, those to come too.
    Programs(Vec<ProgramId>),
    /// These threads, and those they fork.
    Threads(Vec<ThreadId>),
}

/// A class's part of a last-level cache and of the memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShare {
    /// The cache: a group of [`crate::topology::GroupBy::Llc`].
    pub llc: GroupId,
    /// Ways of it; all when absent.
    pub ways: Option<Ways>,
    /// Memory bandwidth, in per cent of what there is; all when absent.
    pub bandwidth: Option<u32>,
}

/// Ways of a cache, as the topology counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// The first one; without it, the engine puts one class behind the other.
    pub first: Option<u32>,
    /// How many.
    pub count: u32,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A core group.
    Group(GroupId),
    /// A set of CPUs.
    Cpus(Arc<CpuSet>),
    /// Wherever the program itself is allowed.
    Anywhere,
}

/// Thresholds by which an engine places a thread at once, without asking the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionTable {
    /// The metric that is compared; a thread without it goes to the last row.
    pub metric: Cow<'static, str>,
    /// (least value, group), descending; the first row whose value is reached wins.
    pub rows: Vec<(f64, GroupId)>,
}

/// Why a thread is where it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reason {
    /// The rule that decided, in words.
    pub rule: Cow<'static, str>,
    /// Metrics that were seen.
    pub seen: Vec<(Cow<'static, str>, f64)>,
    /// What each alternative was predicted to be worth.
    pub alternatives: Vec<(GroupId, f64)>,
    /// Unit of the alternatives' values.
    pub unit: Cow<'static, str>,
}

/// What all placements of one policy so far amount to. A policy does not repeat itself, so this is what is said where its placements
/// are to be in force again: after a pause, or by another engine.
#[derive(Clone, Debug, Default)]
pub struct PlacementState {
    threads: BTreeMap<ThreadId, ThreadPlacement>,
    admission: Option<AdmissionTable>,
    caches: Option<Vec<CacheClass>>,
}

impl PlacementState {
    /// Takes in the next placement.
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

    /// Forgets threads but those that live.
    pub fn retain(&mut self, lives: impl Fn(ThreadId) -> bool) {
        self.threads.retain(|id, _| lives(*id));
    }

    /// All of it as one placement, threads in ascending order.
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
    /// A place for a thread, with nothing said about its weight or frequency.
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
    /// The largest CPU's capacity.
    pub const MOST: u32 = 1024;
    /// No hint.
    pub const FREE: Self = Self {
        least: 0,
        most: Self::MOST,
    };
    /// As fast as it goes.
    pub const FULL: Self = Self {
        least: Self::MOST,
        most: Self::MOST,
    };

    /// No more than this capacity.
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
    /// Where a thread with this value of the metric goes; nowhere in particular if the table has no rows.
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
    /// The CPUs meant.
    #[must_use]
    pub fn cpus(&self, topology: &Topology) -> Arc<CpuSet> {
        match self {
            Self::Group(id) => Arc::clone(&topology.group(*id).cpus),
            Self::Cpus(cpus) => Arc::clone(cpus),
            Self::Anywhere => Arc::clone(&topology.groups[0].cpus),
        }
    }

    /// Its name in records and reports.
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
    /// A reason that needs no figures.
    #[must_use]
    pub fn rule(rule: impl Into<Cow<'static, str>>) -> Self {
        Self {
            rule: rule.into(),
            ..Self::default()
        }
    }

    /// Adds a metric that was seen; unavailable ones are left out.
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
