//! Policies: from the state of threads to their placements.
//!
//! A policy is a [`Policy`] and its [`PolicyDef`]. It never knows which engine runs it, reads no clock and does no I/O. The
//! crate `countersteer-policies` contains the shipped ones and the table of their names.
//!
//! Order of events: the driver observes until the next policy period or, for a policy with [`Needs::events`], until thread
//! events have happened. It then updates the metrics, calls [`Policy::decide`] once, and applies the placement before any more
//! time passes. The first call is at time zero, when the threads of the workload exist but no metric does.

#![warn(missing_docs)]

mod core_slots;
mod groups;
mod hint_class;
mod params;

use std::any::Any;
use std::sync::Arc;

use rand::SeedableRng;

pub use core_slots::{CoreSlots, Present, Rank, active};
pub use groups::decide;
pub use hint_class::{HintClass, weights};
pub use params::{ParamDef, Params, PolicyError};

use crate::engine::{Forecast, ProgramInfo, ThreadEvent, ThreadInfo};
use crate::metric::{Column, MetricBank};
use crate::placement::{Clamp, Placement, Reason, Target, ThreadPlacement};
use crate::topology::{Group, GroupBy, Topology};
use crate::units::{Nanos, ProgramId, ThreadId};
use crate::usage::Usage;

/// Random number generator of policies, seeded by the driver.
pub type PolicyRng = rand_pcg::Pcg64;

/// Returns the policy's generator: a separate stream, so that its draws are independent of the kernel's.
#[must_use]
pub fn policy_rng(seed: u64) -> PolicyRng {
    PolicyRng::seed_from_u64(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Needs of a policy from the engine and the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of the metrics it reads.
    pub metrics: Vec<&'static str>,
    /// True if it decides at thread events too, not only every period.
    pub events: bool,
    /// True if changes of program phase are among the events. They are derived from instructions and cycles, so the policy
    /// should name a metric that counts these.
    pub phases: bool,
    /// Time between decisions; that of the run if absent.
    pub period: Option<Nanos>,
    /// Kind of core groups for which it decides once each, with a view of that group alone (PMCSched, section 3).
    pub groups: Option<GroupBy>,
}

impl Needs {
    /// Needs of a policy that decides every period and reads no metric.
    pub const NOTHING: Self = Self {
        metrics: Vec::new(),
        events: false,
        phases: false,
        period: None,
        groups: None,
    };

    /// Needs of a policy that decides at thread events too and reads no metric.
    pub const EVENTS: Self = Self {
        metrics: Vec::new(),
        events: true,
        phases: false,
        period: None,
        groups: None,
    };

    /// Returns the needs of a policy that reads these metrics every period.
    #[must_use]
    pub fn metrics(names: &[&'static str]) -> Self {
        Self {
            metrics: names.to_vec(),
            ..Self::NOTHING
        }
    }
}

/// Decides placements.
pub trait Policy: Send {
    /// Returns its needs. The driver asks at the start, and after a decision for which [`Policy::needs_changed`] is true.
    fn needs(&self) -> &Needs {
        const NOTHING: &Needs = &Needs::NOTHING;
        NOTHING
    }

    /// True if [`Policy::needs`] changed with the last decision. Only a policy that hands over to others implements it.
    fn needs_changed(&mut self) -> bool {
        false
    }

    /// Changes the parameters and keeps the state.
    ///
    /// # Errors
    /// Fails on an invalid value, or with [`PolicyError::Fixed`] if parameters cannot change after the start.
    fn tune(&mut self, _params: &Params, _topology: &Arc<Topology>) -> Result<(), PolicyError> {
        Err(PolicyError::Fixed)
    }

    /// Decides where threads run from now on.
    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement;
}

/// View of a policy.
pub struct View<'a> {
    /// Current time since the start.
    pub now: Nanos,
    /// The machine.
    pub topology: &'a Arc<Topology>,
    /// Core group to decide about, for a policy that asks for groups; its threads are those whose CPU is in it.
    pub group: Option<&'a Group>,
    /// Living threads, by id.
    pub threads: &'a [ThreadInfo],
    /// Programs of all threads, by id.
    pub programs: &'a [ProgramInfo],
    /// Events of threads since the last call.
    pub events: &'a [ThreadEvent],
    /// Latest metrics.
    pub metrics: &'a MetricBank,
    /// Predictions, if the engine can make them.
    pub forecast: Option<&'a mut dyn Forecast>,
}

impl View<'_> {
    /// Removes placements, frequency hints and cache partitions: every thread runs wherever its program allows.
    #[must_use]
    pub fn release(&self, why: &'static str) -> Placement {
        let place = |t: &ThreadInfo| ThreadPlacement {
            clamp: Some(Clamp::FREE),
            ..ThreadPlacement::new(t.id, Target::Anywhere, Reason::rule(why))
        };
        Placement {
            threads: self.threads.iter().map(place).collect(),
            admission: Some(Default::default()),
            caches: Some(Vec::new()),
        }
    }

    /// Returns the latest value of a metric of a thread.
    #[must_use]
    pub fn metric(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.metrics.get(thread, name)
    }

    /// Returns a reader of one metric for many threads. The name is looked up once; access in the order of ids is cheapest.
    #[must_use]
    pub fn column(&self, name: &str) -> Column<'_> {
        self.metrics.read_column(name)
    }

    /// True if a thread is among those to decide about.
    #[must_use]
    pub fn lives(&self, thread: ThreadId) -> bool {
        self.threads.binary_search_by_key(&thread, |t| t.id).is_ok()
    }

    /// Returns the data of a program.
    #[must_use]
    pub fn program(&self, program: ProgramId) -> Option<&ProgramInfo> {
        let row = self.programs.binary_search_by_key(&program, |p| p.id);
        row.ok().map(|row| &self.programs[row])
    }

    /// True if a program has threads or had some recently; a policy can forget the state of others. If no programs are listed,
    /// none has ended.
    #[must_use]
    pub fn may_return(&self, program: ProgramId) -> bool {
        self.programs.is_empty()
            || self.program(program).is_some()
            || self.program_usage(program).is_some()
    }

    /// Returns the usage of a thread; `None` before its first sample.
    #[must_use]
    pub fn usage(&self, thread: ThreadId) -> Option<&Usage> {
        self.metrics.usage().thread(thread)
    }

    /// Returns the usage of a program, including exited threads.
    #[must_use]
    pub fn program_usage(&self, program: ProgramId) -> Option<&Usage> {
        self.metrics.usage().program(program)
    }
}

/// Returns the message of a policy's panic.
#[must_use]
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Constructor of a policy for a machine; returns the invalid parameter on errors.
pub type MakePolicy = fn(&Params, &Arc<Topology>) -> Result<Box<dyn Policy>, PolicyError>;

/// Row of the policy table.
pub struct PolicyDef {
    /// Name in flags and records.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Paper and section, or the system it models.
    pub source: &'static str,
    /// Parameters, `name:key=value,...`.
    pub params: &'static [ParamDef],
    /// Constructor.
    pub make: MakePolicy,
}
