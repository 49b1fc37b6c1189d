//! Errors of the core as Python exceptions.

use std::any::Any;

use countersteer_model::policy::panic_text;
use pyo3::exceptions::PyException;
use pyo3::{PyErr, create_exception};

create_exception!(
    _countersteer,
    CountersteerError,
    PyException,
    "What went wrong, where, and what to do about it."
);

/// Exception that a run raises for a policy's failure.
pub fn failure(payload: Box<dyn Any + Send>) -> PyErr {
    let payload = match payload.downcast::<PyErr>() {
        Ok(error) => return *error,
        Err(payload) => payload,
    };
    let text = panic_text(payload.as_ref()).unwrap_or("a policy panicked");
    CountersteerError::new_err(text.to_owned())
}

/// Exception for an error of the core, with all its causes.
pub fn raised(error: impl Into<anyhow::Error>) -> PyErr {
    CountersteerError::new_err(format!("{:#}", error.into()))
}
