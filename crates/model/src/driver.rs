//! Control loop, common to all engines: observe, measure, decide, apply, record.

use std::sync::Arc;

use crate::engine::{Applied, Engine, Observation, Watch};
use crate::metric::MetricBank;
use crate::phase::Phases;
use crate::placement::Placement;
use crate::policy::{Policy, PolicyRng, View, decide};
use crate::topology::Topology;
use crate::units::Nanos;

/// Receiver of every observation and decision of the control loop.
pub trait Recorder {
    /// Receives an observation.
    fn observation(&mut self, topology: &Topology, observation: &Observation, metrics: &MetricBank);

    /// True if the recorder needs no more data. The loop then ends as at its time limit.
    fn is_enough(&self) -> bool {
        false
    }

    /// Receives a decision.
    fn decision(&mut self, topology: &Topology, at: Nanos, placement: &Placement, applied: Applied);
}

/// Settings of the control loop.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// Time between decisions.
    pub period: Nanos,
    /// Time at which the run ends at the latest, since its start.
    pub until: Nanos,
}

/// Runs a policy on an engine until the workload has finished or the time limit is reached. Returns the end time. Recorders
/// are called in the given order.
///
/// # Errors
/// Fails with the error of the engine.
pub fn drive<E: Engine>(
    engine: &mut E,
    policy: &mut dyn Policy,
    recorders: &mut [&mut dyn Recorder],
    config: DriverConfig,
    rng: &mut PolicyRng,
) -> Result<Nanos, E::Error> {
    let topology = Arc::clone(engine.topology());
    let mut needs = policy.needs().clone();
    let mut metrics = MetricBank::new(&topology, &needs.metrics);
    let mut phases = None;
    let mut next = Nanos::ZERO;
    loop {
        let watch = Watch {
            metrics: &needs.metrics,
            period: needs.period.unwrap_or(config.period),
            events: needs.events,
            switches: needs.switches,
            values: Some(&metrics),
        };
        let mut seen = engine.observe(&watch, next.min(config.until))?;
        if needs.phases {
            phases
                .get_or_insert_with(|| Phases::new(&topology))
                .notice(&mut seen);
        }
        metrics.update(&seen);
        for recorder in recorders.iter_mut() {
            recorder.observation(&topology, &seen, &metrics);
        }
        if seen.finished || seen.at >= config.until || recorders.iter().any(|r| r.is_enough()) {
            return Ok(seen.at);
        }
        if needs.switches && !seen.spans.is_empty() {
            policy.switched(&seen.spans);
        }
        let mut view = View {
            now: seen.at,
            topology: &topology,
            group: None,
            threads: &seen.threads,
            programs: &seen.programs,
            events: &seen.events,
            metrics: &metrics,
            forecast: engine.forecast(),
        };
        let placement = decide(policy, &mut view, rng);
        let applied = engine.apply(&placement)?;
        for recorder in recorders.iter_mut() {
            recorder.decision(&topology, seen.at, &placement, applied);
        }
        if policy.needs_changed() {
            let before = std::mem::replace(&mut needs, policy.needs().clone());
            if needs.metrics != before.metrics {
                metrics = metrics.succeed(&topology, &needs.metrics);
            }
        }
        if seen.at >= next {
            next = seen.at + needs.period.unwrap_or(config.period);
        }
    }
}
