//! The driver: observe, measure, decide, apply, record. The same loop for every engine.

use std::sync::Arc;

use crate::engine::{Applied, Engine, Observation};
use crate::metric::MetricBank;
use crate::phase::Phases;
use crate::placement::Placement;
use crate::policy::{Policy, PolicyRng, View};
use crate::topology::Topology;
use crate::units::Nanos;

/// Where the loop leaves its trace.
pub trait Recorder {
    /// Called after every observation.
    fn observation(&mut self, topology: &Topology, observation: &Observation, metrics: &MetricBank);

    /// Whether what was recorded suffices: the loop then ends as if its time were over.
    fn is_enough(&self) -> bool {
        false
    }

    /// Called after every decision.
    fn decision(&mut self, topology: &Topology, at: Nanos, placement: &Placement, applied: Applied);
}

/// Records nothing.
pub struct NoRecord;

impl Recorder for NoRecord {
    fn observation(&mut self, _: &Topology, _: &Observation, _: &MetricBank) {}
    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

/// How the loop is run.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Time between decisions.
    pub period: Nanos,
    /// When to stop at the latest.
    pub until: Nanos,
}

/// Runs a policy on an engine until the workload or the time is over; returns when that was.
///
/// # Errors
/// Those of the engine.
pub fn drive<E: Engine>(
    engine: &mut E,
    policy: &mut dyn Policy,
    recorder: &mut dyn Recorder,
    config: DriverConfig,
    rng: &mut PolicyRng,
) -> Result<Nanos, E::Error> {
    let topology = Arc::clone(engine.topology());
    let mut wanted = policy.metrics();
    let mut period = config.period;
    let mut metrics = MetricBank::new(&topology, &wanted);
    let mut phases = None;
    let mut next = Nanos::ZERO;
    loop {
        let mut seen = engine.observe(next.min(config.until), policy.wants_events())?;
        if policy.heeds_phases() {
            phases
                .get_or_insert_with(|| Phases::new(&topology))
                .notice(&mut seen);
        }
        metrics.update(&seen);
        recorder.observation(&topology, &seen, &metrics);
        if seen.finished || seen.at >= config.until || recorder.is_enough() {
            return Ok(seen.at);
        }
        let mut view = View {
            now: seen.at,
            topology: &topology,
            threads: &seen.threads,
            events: &seen.events,
            metrics: &metrics,
            forecast: engine.forecast(),
        };
        let placement = policy.decide(&mut view, rng);
        let now = (policy.metrics(), policy.period().unwrap_or(config.period));
        let changed = (now.0 != wanted, now.1 != period);
        if changed.0 {
            // Another policy decides from now on.
            metrics = MetricBank::new(&topology, &now.0);
        }
        (wanted, period) = now;
        let applied = engine.apply(&placement)?;
        recorder.decision(&topology, seen.at, &placement, applied);
        if changed.0 || changed.1 {
            engine.tune(&wanted, period)?;
        }
        if seen.at >= next {
            next = seen.at + period;
        }
    }
}
