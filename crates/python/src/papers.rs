//! Experiments of the papers.

use countersteer_lab::reproduce::Catalogue;
use pyo3::prelude::*;

use crate::error::raised;

/// All cases as (name, paper, figure or table, title).
#[pyfunction]
pub fn cases() -> PyResult<Vec<(String, String, String, String)>> {
    let catalogue = Catalogue::shipped().map_err(raised)?;
    let listed = catalogue.list().into_iter();
    Ok(listed
        .map(|case| (case.name, case.paper, case.item, case.title))
        .collect())
}

/// Runs the cases of a name or of its beginning; returns the output of `steer reproduce --json`.
#[pyfunction]
pub fn reproduce(py: Python<'_>, name: String) -> PyResult<String> {
    let run = || {
        let catalogue = Catalogue::shipped()?;
        let named = catalogue.named(&[name])?.into_iter();
        let done: Vec<_> = named
            .map(|(paper, case)| catalogue.run(paper, case))
            .collect::<Result<_, _>>()?;
        anyhow::Ok(serde_json::to_string(&done)?)
    };
    py.detach(run).map_err(raised)
}
