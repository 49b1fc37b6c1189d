//! Profiles of programs, their miss curves, and the shares of programs in a shared cache.

use std::path::PathBuf;

use countersteer_lab::{company, experiment, library};
use countersteer_model::profile::Profile;
use countersteer_profiler::{Measure, ProfileOptions};
use pyo3::prelude::*;

use crate::error::raised;
use crate::results::of_company;
use crate::session::detached;
use crate::table::Table;

const LINE_BYTES: f64 = 64.0;

/// A checked profile, as JSON text.
#[pyfunction]
pub fn profile(path: PathBuf) -> PyResult<String> {
    let profile = library::profile(&path).map_err(raised)?;
    let text = match &profile {
        Profile::Recorded(recorded) => serde_json::to_string(recorded),
        Profile::Tabulated(tabulated) => serde_json::to_string(tabulated),
    };
    text.map_err(raised)
}

/// Records a program and writes its profile. The program has no input, and its output is discarded.
#[pyfunction]
#[pyo3(signature = (command, output, name=None, max_instructions=None, sampled=false))]
pub fn record_profile(
    py: Python<'_>,
    command: Vec<String>,
    output: PathBuf,
    name: Option<String>,
    max_instructions: Option<u64>,
    sampled: bool,
) -> PyResult<()> {
    if command.is_empty() {
        return Err(raised(anyhow::anyhow!("name a program to record")));
    }
    detached(py, || {
        let mut options = ProfileOptions::new(command);
        options.name = name;
        options.max_instructions = max_instructions;
        (options.stdin_null, options.stdout_null) = (true, true);
        if sampled {
            options.measure = Measure::Sampled;
        }
        let recorded = countersteer_profiler::profile(&options)?;
        countersteer_profiler::write(&recorded.profile, &output)?;
        Ok(())
    })
}

/// Misses per kilo-instruction of a profile in fully associative caches of these sizes in bytes.
#[pyfunction]
pub fn misses(path: PathBuf, sizes: Vec<u64>) -> PyResult<Vec<f64>> {
    let profile = library::profile(&path).map_err(raised)?;
    let curve = profile.miss_curve().ok_or_else(|| {
        let path = path.display();
        raised(anyhow::anyhow!(
            "{path} has misses for fewer than two cache sizes"
        ))
    })?;
    let lines = sizes.iter().map(|bytes| *bytes as f64 / LINE_BYTES);
    Ok(lines.map(|lines| curve.mpki(lines)).collect())
}

/// Shares of programs in a last-level cache of a machine's kind, and the core type. Without sizes, the machine's own size.
#[pyfunction]
pub fn shares(
    py: Python<'_>,
    machine: &str,
    profiles: Vec<PathBuf>,
    sizes: Vec<u64>,
) -> PyResult<(Table, String)> {
    let found = py.detach(|| {
        let machine = experiment::machine(machine)?;
        let programs = profiles.iter().map(|path| company::profile(path));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        let own = [company::own_size(&machine)];
        let sizes = if sizes.is_empty() { &own[..] } else { &sizes };
        company::company(&machine, &programs, sizes)
    });
    let found = found.map_err(raised)?;
    Ok((of_company(&found)?, found.core_type))
}
