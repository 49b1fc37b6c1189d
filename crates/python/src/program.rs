//! `steer` itself, within the interpreter.
//!
//! Input: a command line in words. Output: the command's output, and its exit code. It knows the policies in Python that were
//! added before.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Sets the command that starts `steer` as a process of its own, and the folder of its files.
#[pyfunction]
pub fn give_own(words: Vec<OsString>, folder: PathBuf) {
    countersteer_cli::this_program::give(words, folder);
}

/// Runs the command line, as `steer` does; returns the exit code. Ends this process if it is only a helper process.
#[pyfunction]
pub fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    let code = py.detach(|| countersteer_cli::steer_words(&words));
    // An exit code does not reveal its number, only whether it equals another.
    let mut all = 0..=u8::MAX;
    all.find(|n| ExitCode::from(*n) == code).unwrap_or(1)
}
