//! Replay: shows the observations of a record to a policy. The same policy must make the same decisions.

use std::sync::Arc;

use countersteer_model::driver::{DriverConfig, drive};
use countersteer_model::engine::{Applied, Engine, Forecast, Observation, Watch};
use countersteer_model::placement::Placement;
use countersteer_model::policy::policy_rng;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_report::ReportError;
use countersteer_report::record::{Differences, Manifest, Record, ReplayEngine};
use countersteer_sim::engine::Simulation;

use crate::experiment::SimOptions;
use crate::plan;

/// Engine that replays a record, with the predictions of the simulator that made the record. Records of
/// real machines have no predictions.
struct Replay<'a> {
    record: ReplayEngine<'a>,
    /// Simulation that makes predictions and never runs; `None` for records of real machines.
    model: Option<Simulation>,
    /// Machine that the policy was given.
    believed: Arc<Topology>,
}

impl Engine for Replay<'_> {
    type Error = ReportError;

    fn topology(&self) -> &Arc<Topology> {
        &self.believed
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, ReportError> {
        self.record.observe(watch, until)
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, ReportError> {
        self.record.apply(placement)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        self.model.as_mut()?.forecast()
    }
}

/// Creates the simulation that made a record.
fn model(manifest: &Manifest, topology: &Arc<Topology>, seed: u64) -> anyhow::Result<Simulation> {
    let plan = plan::plan(&plan::of_record(manifest)?, topology)?;
    let config = SimOptions::of_record(manifest).config(seed, false);
    Ok(Simulation::new(Arc::clone(topology), &plan, config)?)
}

/// Compares the decisions of `policy` on the observations of a record with those in the record.
///
/// # Errors
/// Fails if the policy does not exist, or if parts of the record are inconsistent.
pub fn replay(record: &Record, policy: &str, seed: u64) -> anyhow::Result<Differences> {
    replay_with(ReplayEngine::new(record)?, policy, seed)
}

/// Compares the decisions of `policy` as [`replay`] does, on the observations of an engine at the start of its record.
///
/// # Errors
/// Fails if the policy does not exist, or if parts of the record are inconsistent or damaged.
pub fn replay_with(
    record: ReplayEngine<'_>,
    policy: &str,
    seed: u64,
) -> anyhow::Result<Differences> {
    let manifest = record.manifest();
    let topology = Arc::clone(record.topology());
    let options = SimOptions::of_record(manifest);
    let believed = options.believed(&topology)?;
    let mut policy = options.policy(policy, &believed)?;
    let model = (manifest.engine == "sim")
        .then(|| model(manifest, &topology, seed))
        .transpose()?;
    let driver = DriverConfig {
        period: Nanos(manifest.period_ns),
        until: Nanos::NEVER,
    };
    let mut engine = Replay {
        record,
        model,
        believed,
    };
    drive(
        &mut engine,
        &mut policy,
        &mut [],
        driver,
        &mut policy_rng(seed),
    )?;
    Ok(engine.record.differences()?)
}
