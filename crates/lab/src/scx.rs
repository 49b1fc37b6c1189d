//! Schedulers of sched_ext as policies of experiments.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use countersteer_model::topology::Topology;
use countersteer_policies::scx::{NAME, PATH};
use countersteer_scx::{Ext, Library};
use countersteer_sim::scheduler::Scheduler;

use crate::error::{FaultKind, failure};

/// Schedulers that were compiled so far, by the path of their sources.
static BUILT: Mutex<Option<HashMap<PathBuf, Arc<Library>>>> = Mutex::new(None);

/// Compiled scheduler of a path; each path is compiled once per process.
fn library(path: PathBuf) -> anyhow::Result<Arc<Library>> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_default();
    if let Some(known) = built.get(&path) {
        return Ok(Arc::clone(known));
    }
    let library = Arc::new(Library::build(&path)?);
    built.insert(path, Arc::clone(&library));
    Ok(library)
}

/// True if a specification names a scheduler that replaces Linux's own.
pub(crate) fn is_named(spec: &str) -> bool {
    countersteer_policies::params(spec).is_ok_and(|(def, _)| def.name == NAME)
}

/// Starts the scheduler that a specification names on a machine; `None` for policies that Linux's own scheduler carries out.
///
/// # Errors
/// Fails if the scheduler does not compile, lacks a variable, or does not start.
pub fn scheduler(
    spec: &str,
    topology: &Arc<Topology>,
    seed: u64,
) -> anyhow::Result<Option<Box<dyn Scheduler>>> {
    let (def, params) = countersteer_policies::params(spec)?;
    if def.name != NAME {
        return Ok(None);
    }
    if params.text(PATH).is_empty() {
        return Err(failure(
            FaultKind::Usage,
            "policy `scx` needs the sources of a scheduler: scx:path=FILE.bpf.c",
        ));
    }
    let library = library(params.text(PATH).into())?;
    let variables: Vec<_> = (params.iter().filter(|(key, _)| *key != PATH))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let ext = Ext::start(&library, topology, &variables, seed)?;
    Ok(Some(Box::new(ext)))
}
