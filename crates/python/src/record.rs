//! Records of runs, simulated or live.

use std::path::PathBuf;

use countersteer_report::record;
use pyo3::prelude::*;

use crate::error::raised;
use crate::table::Table;

/// Record of a run: observations, metrics, decisions with reasons.
#[pyclass(frozen, module = "countersteer")]
pub struct Record {
    record: record::Record,
}

impl Record {
    pub fn new(record: record::Record) -> Self {
        Self { record }
    }
}

/// Reads the record in a folder.
#[pyfunction]
pub fn read_record(py: Python<'_>, path: PathBuf) -> PyResult<Record> {
    let record = py.detach(|| record::Record::load(&path)).map_err(raised)?;
    Ok(Record { record })
}

#[pymethods]
impl Record {
    /// Names of the tables that a record may have.
    #[staticmethod]
    fn tables() -> Vec<&'static str> {
        record::Record::table_names().collect()
    }

    /// Table by name, empty if the run left no row of it.
    fn table(&self, name: &str) -> PyResult<Table> {
        let batches = self.record.batches(name).map_err(raised)?;
        let known = || Self::tables().join(", ");
        batches.map(Table::new).ok_or_else(|| {
            raised(anyhow::anyhow!(
                "a record has no table `{name}`: {}",
                known()
            ))
        })
    }

    /// Configuration and results of the run, as JSON text.
    #[getter]
    fn manifest_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.record.manifest).map_err(raised)
    }

    #[getter]
    fn policy(&self) -> &str {
        &self.record.manifest.policy
    }

    #[getter]
    fn machine(&self) -> &str {
        &self.record.manifest.machine.name
    }

    /// Writes the record as a folder; replaces an existing record.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.record.save(&path)).map_err(raised)
    }

    fn __repr__(&self) -> String {
        let manifest = &self.record.manifest;
        format!(
            "Record({} on {} under {}, {:.1} s)",
            manifest.workload.name,
            manifest.machine.name,
            manifest.policy,
            self.record.end().as_secs_f64()
        )
    }
}
