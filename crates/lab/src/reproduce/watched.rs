//! Simulation of a mix with a recorder of migrations and slices.

use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

use super::moves::MoveRecorder;
use super::run::{CaseRun, experiment};
use super::slices::SliceRecorder;
use crate::experiment::{Finished, LoadedMachine, Onlooker, SimOptions};

/// Finished simulation with its migrations and slices.
pub(crate) struct WatchedRun {
    pub finished: Finished,
    pub watch: MixWatch,
}

/// Recorder of migrations and slices during a mix.
pub(crate) struct MixWatch {
    pub slices: SliceRecorder,
    pub moves: MoveRecorder,
}

impl Recorder for MixWatch {
    fn observation(&mut self, topology: &Topology, seen: &Observation, metrics: &MetricBank) {
        self.slices.observation(topology, seen, metrics);
        self.moves.observation(topology, seen, metrics);
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

/// Runs a simulation and records migrations, and slices if `events` is not empty.
pub(super) fn watched(
    machine: &Arc<LoadedMachine>,
    run: &CaseRun<'_>,
    options: &SimOptions,
    events: &[Event],
    once: bool,
) -> anyhow::Result<WatchedRun> {
    let mut watch = MixWatch {
        slices: SliceRecorder::new(&machine.topology, options.period_ms * 1e-3),
        moves: MoveRecorder::new(&machine.topology),
    };
    let onlooker = Onlooker {
        recorder: Some(&mut watch),
        events,
        once,
        spans: !events.is_empty(),
    };
    let finished = experiment(machine, run, options).run_watched(onlooker)?;
    Ok(WatchedRun { finished, watch })
}
