//! Chunks of a grid of experiments, for workers of any kind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersteer_lab::grid::Grid;
use pyo3::prelude::*;

use crate::error::{failure, raised};

/// Grid that was read last: workers run many chunks of one.
static LAST: Mutex<Option<(String, Arc<Grid>)>> = Mutex::new(None);

fn grid(text: &str) -> anyhow::Result<Arc<Grid>> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, grid)) = &*last
        && known == text
    {
        return Ok(Arc::clone(grid));
    }
    let grid = Arc::new(Grid::parse("the grid", text)?);
    *last = Some((text.to_owned(), Arc::clone(&grid)));
    Ok(grid)
}

/// Prepares a folder for the results of a grid (the text of its file); returns the numbers of the chunks that it lacks.
#[pyfunction]
pub fn chunks(py: Python<'_>, text: &str, folder: PathBuf) -> PyResult<Vec<usize>> {
    let missing = py.detach(|| {
        let grid = grid(text)?;
        grid.open(&folder)?;
        anyhow::Ok(grid.missing(&folder, 0, 1))
    });
    missing.map_err(raised)
}

/// Runs a chunk and writes its files; a chunk whose files exist is not run again.
#[pyfunction]
pub fn run_chunk(py: Python<'_>, text: &str, folder: PathBuf, chunk: usize) -> PyResult<usize> {
    let run = || grid(text)?.run_into(&folder, chunk);
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(run)));
    done.map_err(failure)?.map_err(raised)?;
    Ok(chunk)
}
