//! Speed of the simulator: simulated instructions per second on this host.
//!
//! Source: CMPSched$im, section 3. The speed depends on the host, so documents state only if it reaches the paper's
//! speed.

use std::sync::Arc;
use std::time::Instant;

use super::case::{Case, Method};
use super::programs::{Cast, PlannedMember};
use super::values::CaseValues;
use crate::experiment::{Experiment, LoadedMachine, Onlooker};

/// Rows of the case: the first program alone, and the whole mix.
pub const ROWS: [&str; 2] = ["one", "mix"];
/// Name of the only arm of the case.
pub const ARM: &str = "host";

/// Measures the speed of one simulator thread with the first program of a mix, then with the whole mix.
pub fn measure(machine: &Arc<LoadedMachine>, mix: &str, cast: &Cast) -> anyhow::Result<CaseValues> {
    let members = cast.single_copies(mix)?;
    let mut values = CaseValues::default();
    for (row, members) in ROWS.iter().zip([&members[..1], members.as_slice()]) {
        values.add_row(row);
        values.add(row, ARM, "mips", mips(machine, members, cast)?);
    }
    Ok(values)
}

/// Returns the speed in million instructions per second, excluding the time to read profiles and traces.
fn mips(
    machine: &Arc<LoadedMachine>,
    members: &[PlannedMember<'_>],
    cast: &Cast,
) -> anyhow::Result<f64> {
    let experiment = Experiment {
        machine: Arc::clone(machine),
        workload: cast.workload("speed", members, 1)?,
        policy: countersteer_policies::LINUX.to_owned(),
        seed: 1,
        options: cast.options(1, 100.0),
        detail: None,
    };
    let start = Instant::now();
    let finished = experiment.run_watched(Onlooker {
        once: true,
        ..Onlooker::default()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let instructions: f64 = finished.usage.iter().map(|usage| usage.instructions).sum();
    Ok(instructions * 1e-6 / seconds)
}

/// Returns sentences with the measured speeds; empty for other cases.
pub fn words(case: &Case, values: &CaseValues) -> Vec<String> {
    let Method::Speed { mix } = &case.method else {
        return Vec::new();
    };
    let names = ["one program", mix];
    let figures = ROWS.iter().zip(names).filter_map(|(row, name)| {
        let mips = values.get(row, ARM, "mips")?;
        Some(format!("{name}: {mips:.0} million instructions per second"))
    });
    figures.collect()
}
