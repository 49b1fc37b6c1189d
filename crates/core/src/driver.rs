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
    let mut places = policy.places();
    engine.expect(places)?;
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
        let turned = places != policy.places();
        if turned {
            places = !places;
            engine.expect(places)?;
        }
        if seen.at >= next || turned {
            next = seen.at + if places { period } else { engine.rest(period) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    use crate::testing;

    /// Nothing ever happens, and looking at it takes no time.
    struct Idle {
        topology: Arc<Topology>,
        observed: Vec<Nanos>,
        /// Nobody is to be placed.
        rests: bool,
    }

    impl Engine for Idle {
        type Error = std::convert::Infallible;

        fn topology(&self) -> &Arc<Topology> {
            &self.topology
        }

        fn observe(&mut self, until: Nanos, _: bool) -> Result<Observation, Self::Error> {
            self.observed.push(until);
            Ok(Observation {
                at: until,
                ..Observation::default()
            })
        }

        fn apply(&mut self, _: &Placement) -> Result<Applied, Self::Error> {
            Ok(Applied::default())
        }

        fn expect(&mut self, placements: bool) -> Result<(), Self::Error> {
            self.rests = !placements;
            Ok(())
        }

        fn rest(&self, period: Nanos) -> Nanos {
            assert!(self.rests);
            Nanos(period.0 * 10)
        }
    }

    /// Places threads from some decision on.
    struct Changing(u32);

    impl Policy for Changing {
        fn places(&self) -> bool {
            self.0 == 0
        }

        fn decide(&mut self, _: &mut View<'_>, _: &mut PolicyRng) -> Placement {
            self.0 = self.0.saturating_sub(1);
            Placement::default()
        }
    }

    fn observed(policy: &mut dyn Policy) -> Vec<u64> {
        let topology = testing::topology(testing::TWO_LLCS);
        let mut idle = Idle {
            topology,
            observed: Vec::new(),
            rests: false,
        };
        let config = DriverConfig {
            period: Nanos::from_millis(100),
            until: Nanos::from_millis(1500),
        };
        drive(
            &mut idle,
            policy,
            &mut NoRecord,
            config,
            &mut PolicyRng::seed_from_u64(1),
        )
        .unwrap();
        idle.observed.iter().map(|at| at.0 / 1_000_000).collect()
    }

    #[test]
    fn an_engine_rests_while_no_threads_are_to_be_placed() {
        assert_eq!(observed(&mut Changing(u32::MAX)), [0, 1000, 1500]);
        assert!(
            observed(&mut Changing(0))
                .into_iter()
                .eq((0..=15).map(|n| n * 100))
        );
        // At the second decision another policy takes over.
        assert_eq!(
            observed(&mut Changing(2)),
            [0, 1000, 1100, 1200, 1300, 1400, 1500]
        );
    }
}
