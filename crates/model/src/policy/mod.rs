//! Policies: from what is known about threads to where they should run.
//!
//! A policy is a [`Policy`] and its [`PolicyDef`]. It never knows which engine runs it, reads no clock and does no I/O. The crate
//! `countersteer-policies` holds those that ship and the table of their names.
//!
//! When things happen: the driver observes until the next policy period (or, for a policy with
//! [`Needs::events`], until thread events have happened), brings the metrics up to date, calls
//! [`Policy::decide`] once, and applies the placement before any more time passes. The first call comes at time zero, when
//! the threads of the workload exist and no metric does.

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

/// The random numbers that policies draw from; seeded by the driver.
pub type PolicyRng = rand_pcg::Pcg64;

/// The policy's random numbers: a stream of its own, so that its draws do not depend on the kernel's.
#[must_use]
pub fn policy_rng(seed: u64) -> PolicyRng {
    PolicyRng::seed_from_u64(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// What a policy needs of the engine and the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of the metrics it reads.
    pub metrics: Vec<&'static str>,
    /// It decides at thread events too, not only every period.
    pub events: bool,
    /// Changes of program phase are among the events. They are derived from instructions and cycles, so the policy should name a
    /// metric that has these counted.
    pub phases: bool,
    /// Time between decisions; that of the run where absent.
    pub period: Option<Nanos>,
    /// It decides once for each core group of this kind, with a view of that group alone (PMCSched, section 3).
    pub groups: Option<GroupBy>,
}

impl Needs {
    /// The needs of a policy that decides every period and reads no metric.
    pub const NOTHING: Self = Self {
        metrics: Vec::new(),
        events: false,
        phases: false,
        period: None,
        groups: None,
    };

    /// The needs of a policy that decides at thread events too and reads no metric.
    pub const EVENTS: Self = Self {
        metrics: Vec::new(),
        events: true,
        phases: false,
        period: None,
        groups: None,
    };

    /// The needs of a policy that reads these metrics every period.
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
    /// What it needs. The driver asks at the start, and after a decision for which [`Policy::needs_changed`] is true.
    fn needs(&self) -> &Needs {
        const NOTHING: &Needs = &Needs::NOTHING;
        NOTHING
    }

    /// Whether [`Policy::needs`] has changed with the last decision. Only a policy that hands over to others has to say so.
    fn needs_changed(&mut self) -> bool {
        false
    }

    /// Takes over other parameters and keeps what it remembers.
    ///
    /// # Errors
    /// A value that cannot be used, or [`PolicyError::Fixed`] where parameters hold from the start.
    fn tune(&mut self, _params: &Params, _topology: &Arc<Topology>) -> Result<(), PolicyError> {
        Err(PolicyError::Fixed)
    }

    /// Says where threads should run from now on.
    fn decide(&mut self, view: &mut View<'_>, rng: &mut PolicyRng) -> Placement;
}

/// What a policy sees.
pub struct View<'a> {
    /// The present, since the start.
    pub now: Nanos,
    /// The machine.
    pub topology: &'a Arc<Topology>,
    /// The core group that is decided about, for a policy that asks for groups; its threads are those whose CPU is in it.
    pub group: Option<&'a Group>,
    /// Threads that are alive, by id.
    pub threads: &'a [ThreadInfo],
    /// Programs of all threads, by id.
    pub programs: &'a [ProgramInfo],
    /// What befell threads since the last call.
    pub events: &'a [ThreadEvent],
    /// Latest metrics.
    pub metrics: &'a MetricBank,
    /// Predictions, where the engine can make them.
    pub forecast: Option<&'a mut dyn Forecast>,
}

impl View<'_> {
    /// Takes placements, frequency hints and cache partitions back: every thread runs wherever its program is allowed to.
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

    /// The latest value of a metric of a thread.
    #[must_use]
    pub fn metric(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.metrics.get(thread, name)
    }

    /// One metric of many threads: its name is looked up once, and threads in the order of their ids cost least.
    #[must_use]
    pub fn column(&self, name: &str) -> Column<'_> {
        self.metrics.read_column(name)
    }

    /// Whether a thread is among those that are decided about.
    #[must_use]
    pub fn lives(&self, thread: ThreadId) -> bool {
        self.threads.binary_search_by_key(&thread, |t| t.id).is_ok()
    }

    /// What is known of a program.
    #[must_use]
    pub fn program(&self, program: ProgramId) -> Option<&ProgramInfo> {
        let row = self.programs.binary_search_by_key(&program, |p| p.id);
        row.ok().map(|row| &self.programs[row])
    }

    /// Whether a program has threads or had some lately; what a policy remembers of others can be forgotten. Where no
    /// programs are listed, none has ended.
    #[must_use]
    pub fn may_return(&self, program: ProgramId) -> bool {
        self.programs.is_empty()
            || self.program(program).is_some()
            || self.program_usage(program).is_some()
    }

    /// What a thread has used; none before its first sample.
    #[must_use]
    pub fn usage(&self, thread: ThreadId) -> Option<&Usage> {
        self.metrics.usage().thread(thread)
    }

    /// What a program has used, threads that have exited included.
    #[must_use]
    pub fn program_usage(&self, program: ProgramId) -> Option<&Usage> {
        self.metrics.usage().program(program)
    }
}

/// What a policy that panicked said.
#[must_use]
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Makes a policy for a machine, or says which parameter is wrong.
pub type MakePolicy = fn(&Params, &Arc<Topology>) -> Result<Box<dyn Policy>, PolicyError>;

/// A row of the policy table.
pub struct PolicyDef {
    /// The name that flags and records use.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Paper and section, or the system it models.
    pub source: &'static str,
    /// Parameters, `name:key=value,...`.
    pub params: &'static [ParamDef],
    /// Makes one.
    pub make: MakePolicy,
}
