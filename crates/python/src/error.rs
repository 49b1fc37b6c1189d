//! Errors of the core as Python exceptions.

use pyo3::exceptions::PyException;
use pyo3::{PyErr, create_exception};

create_exception!(
    _countersteer,
    CountersteerError,
    PyException,
    "What went wrong, where, and what to do about it."
);

/// An error of the core with all its causes.
pub fn raised(error: impl Into<anyhow::Error>) -> PyErr {
    CountersteerError::new_err(format!("{:#}", error.into()))
}
