//! Placements: where a policy wants threads, and why.
//!
//! Output of [`crate::policy`]; input of [`crate::engine::Engine::apply`] and of the record.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::topology::Topology;
use crate::units::{GroupId, ThreadId};

/// What a policy decided. Threads that are not named stay as they were placed before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// Threads to place, at most one entry each.
    pub threads: Vec<ThreadPlacement>,
    /// How engines place new and waking threads between decisions; `None` keeps the last one.
    pub admission: Option<AdmissionTable>,
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
    /// Why.
    pub reason: Reason,
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

impl AdmissionTable {
    /// Where a thread with this value of the metric goes; nowhere in particular if the table has no rows.
    #[must_use]
    pub fn choose(&self, value: Option<f64>) -> Option<GroupId> {
        let reached = |row: &&(f64, GroupId)| value.is_some_and(|v| v >= row.0);
        self.rows.iter().find(reached).or(self.rows.last()).map(|row| row.1)
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
        Self { rule: rule.into(), ..Self::default() }
    }

    /// Adds a metric that was seen; unavailable ones are left out.
    #[must_use]
    pub fn saw(mut self, metric: impl Into<Cow<'static, str>>, value: Option<f64>) -> Self {
        self.seen.extend(value.map(|v| (metric.into(), v)));
        self
    }

    /// Adds alternatives with their predicted values.
    #[must_use]
    pub fn against(mut self, unit: &'static str, alternatives: impl IntoIterator<Item = (GroupId, f64)>) -> Self {
        self.unit = unit.into();
        self.alternatives.extend(alternatives);
        self
    }
}
