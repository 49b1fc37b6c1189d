//! Policies: from what is known about threads to where they should run.
//!
//! A policy is a [`Policy`] and its [`PolicyDef`]. It never knows which engine runs it, reads no clock and does no I/O. The crate
//! `countersteer-policies` holds those that ship and the table of their names.
//!
//! When things happen: the driver observes until the next policy period (or, for a policy with
//! [`Policy::wants_events`], until thread events have happened), brings the metrics up to date, calls
//! [`Policy::decide`] once, and applies the placement before any more time passes. The first call comes at time zero, when
//! the threads of the workload exist and no metric does.

#![warn(missing_docs)]

mod hint_class;
mod params;
mod seats;

use std::sync::Arc;

pub use hint_class::{HintClass, weights};
pub use params::{ParamDef, Params, PolicyError};
pub use seats::{Rank, Seats, active};

use crate::engine::{Forecast, ThreadEvent, ThreadInfo};
use crate::metric::MetricBank;
use crate::placement::Placement;
use crate::topology::Topology;
use crate::units::{Nanos, ThreadId};

/// The random numbers that policies draw from; seeded by the driver.
pub type PolicyRng = rand_pcg::Pcg64;

/// Decides placements.
pub trait Policy: Send {
    /// Names of the metrics it reads. They may change with a decision; values then come with the next samples.
    fn metrics(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether to call it at thread events too, not only every period.
    fn wants_events(&self) -> bool {
        false
    }

    /// Whether it makes use of changes of phase. They are told where instructions and cycles are counted, so it should name a metric
    /// that needs them.
    fn heeds_phases(&self) -> bool {
        false
    }

    /// Another time between decisions than was planned, from now on.
    fn period(&self) -> Option<Nanos> {
        None
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
    /// Threads that are alive, by id.
    pub threads: &'a [ThreadInfo],
    /// What befell threads since the last call.
    pub events: &'a [ThreadEvent],
    /// Latest metrics.
    pub metrics: &'a MetricBank,
    /// Predictions, where the engine can make them.
    pub forecast: Option<&'a mut dyn Forecast>,
}

impl View<'_> {
    /// The latest value of a metric of a thread.
    #[must_use]
    pub fn metric(&self, thread: ThreadId, name: &str) -> Option<f64> {
        self.metrics.get(thread, name)
    }
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
