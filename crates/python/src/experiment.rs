//! Machines, workloads, experiments and comparisons.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use countersteer_lab::{self as lab, LoadedMachine, experiment, library, plan};
use countersteer_model::topology::GroupBy;
use countersteer_report::chart::vega;
use countersteer_report::html::answers;
use countersteer_report::judge::{Facts, Ranking, judge};
use countersteer_report::record::Detail;
use countersteer_report::table::{self, CompareRun, program_columns, score_columns};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{failure, raised};
use crate::record::Record;
use crate::results::of_blame;
use crate::table::Table;

/// A machine: core types, caches, CPUs, power.
#[pyclass(frozen, module = "countersteer")]
pub struct Machine {
    pub loaded: Arc<LoadedMachine>,
}

/// Programs that run together, with their profiles.
#[pyclass(frozen, module = "countersteer")]
pub struct Workload {
    pub loaded: Arc<lab::Loaded>,
}

/// One policy on one machine with one workload and one seed, in the simulator.
#[pyclass(frozen, module = "countersteer")]
pub struct Experiment {
    pub experiment: lab::Experiment,
}

/// Runs that are compared.
#[pyclass(frozen, module = "countersteer")]
pub struct Comparison {
    runs: Vec<CompareRun>,
    records: Vec<Py<Record>>,
}

/// Names of the shipped machines.
#[pyfunction]
pub fn machines() -> Vec<String> {
    library::machine_names()
}

/// Names of the shipped workloads.
#[pyfunction]
pub fn workloads() -> Vec<String> {
    library::workload_names()
}

#[pymethods]
impl Machine {
    /// Loads a machine by name, or its file.
    #[staticmethod]
    fn load(name: &str) -> PyResult<Self> {
        let loaded = experiment::machine(name).map_err(raised)?;
        Ok(Self { loaded })
    }

    /// Detects this machine, or the one whose `/proc` and `/sys` are below `root`.
    #[staticmethod]
    #[pyo3(signature = (root = "/"))]
    fn detect(root: &str) -> PyResult<Self> {
        let machine = countersteer_sysfs::topology::detect(Path::new(root)).map_err(raised)?;
        let loaded = LoadedMachine::with_models(machine, None).map_err(raised)?;
        Ok(Self {
            loaded: Arc::new(loaded),
        })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.loaded.machine.name
    }

    /// Text of its file.
    #[getter]
    fn toml(&self) -> &str {
        &self.loaded.text.text
    }

    /// Core types, fastest first.
    #[getter]
    fn core_types(&self) -> Vec<String> {
        let types = &self.loaded.topology.core_types;
        types
            .iter()
            .map(|core_type| core_type.name.clone())
            .collect()
    }

    /// Core groups of a kind (`core-type`, `llc`, `node`, `socket`, `core`, `cpu`, `machine`): ids, names and CPUs.
    fn groups(&self, by: &str) -> PyResult<Vec<(u32, String, Vec<u32>)>> {
        let by: GroupBy = serde_json::from_value(by.into()).map_err(raised)?;
        let groups = self.loaded.topology.groups_by(by).iter();
        let cpus = |cpus: &countersteer_model::cpuset::CpuSet| cpus.iter().map(|c| c.0).collect();
        Ok(groups
            .map(|group| (group.id.0, group.name.clone(), cpus(&group.cpus)))
            .collect())
    }

    fn __repr__(&self) -> String {
        let cpus = self.loaded.topology.groups[0].cpus.len();
        format!(
            "Machine({}: {cpus} CPUs, {})",
            self.name(),
            self.core_types().join(", ")
        )
    }
}

#[pymethods]
impl Workload {
    /// Loads a workload by name, or its file; its programs must have profiles (`steer profile` records them).
    #[staticmethod]
    fn load(name: &str) -> PyResult<Self> {
        let loaded = plan::load_recorded(name).map_err(raised)?;
        Ok(Self {
            loaded: Arc::new(loaded),
        })
    }

    /// Parses a workload from the text of a file, with shipped profiles.
    #[staticmethod]
    #[pyo3(signature = (text, name = "workload"))]
    fn parse(text: String, name: &str) -> PyResult<Self> {
        let loaded = plan::of_text(name, text).map_err(raised)?;
        Ok(Self {
            loaded: Arc::new(loaded),
        })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.loaded.name
    }

    /// Text of its file.
    #[getter]
    fn toml(&self) -> &str {
        &self.loaded.text.text
    }

    fn __repr__(&self) -> String {
        format!(
            "Workload({}: {} programs)",
            self.name(),
            self.loaded.programs.len()
        )
    }
}

#[pymethods]
impl Experiment {
    /// Upper bound of the system throughput (`sustained_stp` of a comparison's JSON) of any policy on this machine with this
    /// workload; None if nothing bounds it.
    fn bound(&self) -> PyResult<Option<f64>> {
        lab::bound::sustained_stp(&self.experiment).map_err(raised)
    }

    /// Makes an experiment; `options` are those of the simulation: `period_ms`, `rounds`, `max_seconds`, `kernel`,
    /// `counter_noise`, ...
    #[new]
    #[pyo3(signature = (machine, workload, policy, seed = 1, *, record = false, **options))]
    fn new(
        machine: &Machine,
        workload: &Workload,
        policy: &str,
        seed: u64,
        record: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let experiment = lab::Experiment {
            machine: Arc::clone(&machine.loaded),
            workload: Arc::clone(&workload.loaded),
            policy: policy.into(),
            seed,
            options: sim_options(options)?,
            detail: record.then_some(Detail::Everything),
        };
        countersteer_policies::parse(policy, &machine.loaded.topology).map_err(raised)?;
        Ok(Self { experiment })
    }

    /// Parses an experiment that was stored as JSON.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        let experiment = serde_json::from_str(text).map_err(raised)?;
        Ok(Self { experiment })
    }

    /// Experiment as JSON, machine, workload and profiles included: it gives the same result on other machines.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.experiment).map_err(raised)
    }

    #[getter]
    fn policy(&self) -> &str {
        &self.experiment.policy
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.experiment.seed
    }

    /// Slowdowns of the programs, and those that each causes for each other one, over `seeds` seeds from the experiment's on; slowdowns
    /// under other policies and with a partition of the cache.
    #[pyo3(signature = (seeds = 3, instead = vec!["mpi".to_owned(), "joint".to_owned()]))]
    fn blame(
        &self,
        py: Python<'_>,
        seeds: u64,
        instead: Vec<String>,
    ) -> PyResult<(Table, Table, Table, Option<Table>)> {
        let blame = || lab::blame::blame(&self.experiment, seeds.max(1), &instead);
        let found = py.detach(|| catch_unwind(AssertUnwindSafe(blame)));
        of_blame(&found.map_err(failure)?.map_err(raised)?)
    }

    /// Runs the experiment.
    fn run(&self, py: Python<'_>) -> PyResult<Comparison> {
        run_all(py, std::slice::from_ref(&self.experiment))
    }
}

#[pymethods]
impl Comparison {
    /// Runs experiments on all cores; results are in their order and do not depend on the number of cores.
    #[staticmethod]
    fn of(py: Python<'_>, experiments: Vec<PyRef<'_, Experiment>>) -> PyResult<Self> {
        let all: Vec<lab::Experiment> = experiments
            .iter()
            .map(|one| one.experiment.clone())
            .collect();
        run_all(py, &all)
    }

    /// Table with a row for each run.
    #[getter]
    fn scores(&self) -> PyResult<Table> {
        let batch = score_columns(&self.runs).map_err(raised)?;
        Ok(Table::new(vec![batch]))
    }

    /// Table with a row for each program of each run.
    #[getter]
    fn programs(&self) -> PyResult<Table> {
        let batch = program_columns(&self.runs).map_err(raised)?;
        Ok(Table::new(vec![batch]))
    }

    /// Records of the runs that kept one, in order.
    #[getter]
    fn records(&self, py: Python<'_>) -> Vec<Py<Record>> {
        self.records
            .iter()
            .map(|record| record.clone_ref(py))
            .collect()
    }

    /// JSON as printed by `steer compare --json`.
    fn to_json(&self) -> PyResult<String> {
        let rankings = judge(&self.runs, &Facts::default());
        serde_json::to_string(&table::JudgedComparison::new(self.runs.clone(), &rankings))
            .map_err(raised)
    }

    /// Policies ranked against `linux`, as `steer compare` prints them.
    fn __str__(&self) -> String {
        let rankings = judge(&self.runs, &Facts::default());
        let is_ranked = |r: &Ranking| !r.deployable.is_empty() || !r.simulator_only.is_empty();
        if rankings.iter().any(is_ranked) {
            return table::ranking(&rankings);
        }
        table::comparison(&self.runs)
    }

    fn __repr__(&self) -> String {
        format!("Comparison({} runs)", self.runs.len())
    }

    /// Names of the available charts.
    #[staticmethod]
    fn charts() -> Vec<&'static str> {
        vega::names().collect()
    }

    /// Chart of the report as a Vega-Lite specification, with its data inside.
    fn chart_json(&self, name: &str) -> PyResult<String> {
        let spec = vega::spec(name, &self.runs).ok_or_else(|| {
            let known = Self::charts().join(", ");
            raised(anyhow::anyhow!("there is no chart `{name}`: {known}"))
        })?;
        serde_json::to_string(&spec).map_err(raised)
    }

    /// Chart for altair, which must be installed.
    #[pyo3(signature = (name = "scores"))]
    fn chart<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let chart = py.import("altair")?.getattr("Chart")?;
        chart.call_method1("from_json", (self.chart_json(name)?,))
    }

    /// First screen of the report: policies in per cent of `linux`.
    fn _repr_html_(&self) -> String {
        answers(&self.runs).unwrap_or_else(|| {
            let text = self.__str__().replace('&', "&amp;").replace('<', "&lt;");
            format!("<pre>{text}</pre>")
        })
    }
}

/// Options of a simulation from keyword arguments.
pub fn sim_options(options: Option<&Bound<'_, PyDict>>) -> PyResult<lab::SimOptions> {
    let Some(options) = options else {
        return Ok(lab::SimOptions::default());
    };
    let json = options.py().import("json")?;
    let text: String = json.call_method1("dumps", (options,))?.extract()?;
    serde_json::from_str(&text).map_err(raised)
}

/// Runs experiments without the interpreter's lock; policies in Python take it for each decision.
fn run_all(py: Python<'_>, experiments: &[lab::Experiment]) -> PyResult<Comparison> {
    let run = || match experiments {
        // On the caller's thread, where an interrupt reaches a policy in Python.
        [one] => one.run().map(|finished| vec![finished]),
        all => experiment::run_all(all, &|| ()),
    };
    let finished = py.detach(|| catch_unwind(AssertUnwindSafe(run)));
    let finished = finished.map_err(failure)?.map_err(raised)?;
    let runs = experiments.iter().zip(&finished);
    let runs = runs.map(|(one, finished)| one.scored(finished)).collect();
    let records = finished.into_iter().filter_map(|one| one.record);
    let records = records.map(|record| Py::new(py, Record::new(record)));
    Ok(Comparison {
        runs,
        records: records.collect::<PyResult<_>>()?,
    })
}
