//! `steer replay`: a record's observations through a policy; the same policy must decide the same.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use countersteer_core::driver::{DriverConfig, drive};
use countersteer_core::engine::{Applied, Engine, Forecast, Observation, Watch};
use countersteer_core::placement::Placement;
use countersteer_core::topology::Topology;
use countersteer_core::units::Nanos;
use countersteer_report::ReportError;
use countersteer_report::record::{Manifest, ReplayEngine, compare_decisions, compare_shares};
use countersteer_sim::engine::Simulation;

use super::{print, print_json};
use crate::experiment::{SimOptions, policy_rng};
use crate::{library, plan};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Record
    record: PathBuf,
    /// Policy; the recorded one when absent
    #[arg(short = 'P', short_alias = 'p', long)]
    policy: Option<String>,
    /// Seed; the recorded one when absent
    #[arg(long)]
    seed: Option<u64>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A record that predicts as the simulator that made it would; those of real machines predict nothing.
struct Replay<'a> {
    record: ReplayEngine<'a>,
    /// Never run: only its predictions are asked for. What counted on a real machine made none.
    model: Option<Simulation>,
}

impl Engine for Replay<'_> {
    type Error = ReportError;

    fn topology(&self) -> &Arc<Topology> {
        self.record.topology()
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

/// The simulation that a record was made with.
fn model(manifest: &Manifest, topology: &Arc<Topology>, seed: u64) -> anyhow::Result<Simulation> {
    let plan = plan::plan(&plan::of_record(manifest)?, topology)?;
    let config = SimOptions::of_record(manifest).config(seed, false);
    Ok(Simulation::new(Arc::clone(topology), &plan, config)?)
}

/// Runs the command; exit code 1 says that the recorded policy decided differently this time.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let record = library::record(&args.record)?;
    let manifest = &record.manifest;
    let spec = args.policy.as_deref().unwrap_or(&manifest.policy);
    let seed = args.seed.unwrap_or(manifest.seed);
    let topology = record.topology()?;
    let mut policy = countersteer_policies::parse(spec, &topology)?;
    let model = (manifest.engine == "sim")
        .then(|| model(manifest, &topology, seed))
        .transpose()?;
    let mut engine = Replay {
        record: ReplayEngine::new(&record)?,
        model,
    };
    let driver = DriverConfig {
        period: Nanos(manifest.period_ns),
        until: Nanos::NEVER,
    };
    drive(
        &mut engine,
        policy.as_mut(),
        &mut [],
        driver,
        &mut policy_rng(seed),
    )?;
    let mut differences = compare_decisions(&record, engine.record.decisions());
    compare_shares(&record, engine.record.shares(), &mut differences);
    if args.json {
        print_json(&differences)?
    } else {
        print(&differences.to_string())?
    }
    let broken = !differences.is_empty() && spec == manifest.policy && seed == manifest.seed;
    Ok(if broken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
