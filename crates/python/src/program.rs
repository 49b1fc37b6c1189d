//! `steer` itself, within the interpreter.
//!
//! Input: a command line in words. Output: what the command prints, and its exit code. Policies in Python that were added before are
//! among those that it knows.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use pyo3::prelude::*;

use crate::error::{failure, raised};

/// Says how `steer` is started as a process of its own, and where the files lie that belong to it.
#[pyfunction]
pub fn give_own(words: Vec<OsString>, folder: PathBuf) {
    countersteer::this_program::give(words, folder);
}

/// Does what the command line asks for, as `steer` does; the exit code. Ends this process where there is nothing to do but to help.
#[pyfunction]
pub fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    let code = py.detach(|| countersteer::steer_words(&words));
    // An exit code does not tell its number, only whether it equals another.
    let mut all = 0..=u8::MAX;
    all.find(|n| ExitCode::from(*n) == code).unwrap_or(1)
}

/// Does what the command line asks for, within a process that goes on; whether the command's exit code is 0.
#[pyfunction]
pub fn call(py: Python<'_>, words: Vec<OsString>) -> PyResult<bool> {
    let run = || countersteer::call(&words);
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(run)));
    let code = done.map_err(failure)?.map_err(raised)?;
    Ok(code == ExitCode::SUCCESS)
}
