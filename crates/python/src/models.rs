//! Models of speed-up and energy factors: training, evaluation, lists.
//!
//! Input: names of machines, or folders of records. Output: paths of models, and JSON text for tables and models.

use std::path::PathBuf;

use countersteer_lab::models;
use countersteer_train::material::materials;
use pyo3::prelude::*;
use serde::Serialize;

use crate::error::raised;

fn text(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(raised)
}

/// Trains models and writes them below a folder. Returns their paths.
#[pyfunction]
pub fn train_models(
    py: Python<'_>,
    machines: Vec<String>,
    records: Vec<PathBuf>,
    output: PathBuf,
) -> PyResult<Vec<PathBuf>> {
    py.detach(|| {
        let mut paths = Vec::new();
        for material in materials(&machines, &records) {
            material?.train(|model| {
                paths.push(model.write(&output)?);
                Ok(())
            })?;
        }
        Ok(paths)
    })
    .map_err(|error: anyhow::Error| raised(error))
}

/// Accuracy of models on families of programs that were left out, as JSON text: an array of objects.
#[pyfunction]
pub fn judge_models(
    py: Python<'_>,
    machines: Vec<String>,
    records: Vec<PathBuf>,
) -> PyResult<String> {
    let rows = py.detach(|| {
        let mut rows = Vec::new();
        for material in materials(&machines, &records) {
            rows.extend(material?.evaluate()?);
        }
        Ok(rows)
    });
    text(&rows.map_err(|error: anyhow::Error| raised(error))?)
}

/// One's own models and the shipped ones, as JSON text: an array of objects.
#[pyfunction]
pub fn known_models() -> PyResult<String> {
    text(&models::known().map_err(raised)?)
}

/// A model by its path in the list, or by its file, as JSON text.
#[pyfunction]
pub fn model(name: &str) -> PyResult<String> {
    text(&models::by_name(name).map_err(raised)?)
}
