//! Policies that are written in Python.
//!
//! Input: an object that makes deciders, and the driver's view as arrays. Output: placements. A decider is dropped with the
//! traceback if it raises, takes too long, or returns anything but a place for each thread. The same happens to a policy in
//! Rust that panics: the simulation ends, and real threads are left to Linux.

use std::panic::resume_unwind;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context;
use countersteer_model::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_model::policy::{
    MakePolicy, Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_model::topology::Topology;
use countersteer_model::units::{GroupId, Nanos};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raised;
use crate::mind::{Failure, Mind, Question, traceback};

/// Limit on the policies in Python in one process: [`MakePolicy`] is a function without state, so each policy has a function of
/// its own.
const SLOTS: usize = 32;

/// Factories of the policies, by slot; a name that is added again replaces its former one.
static ADDED: RwLock<Vec<Added>> = RwLock::new(Vec::new());

struct Added {
    name: &'static str,
    params: &'static [ParamDef],
    /// Called with the topology's core types and the parameters as text; returns a decider.
    factory: Py<PyAny>,
    needs: Needs,
    /// Time limit of a decision.
    limit: Duration,
}

impl Added {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            name: self.name,
            params: self.params,
            factory: self.factory.clone_ref(py),
            needs: self.needs.clone(),
            limit: self.limit,
        }
    }
}

/// Names, summaries and sources of all policies.
#[pyfunction]
pub fn policies() -> Vec<(&'static str, &'static str, &'static str)> {
    let all = countersteer_policies::all();
    all.iter().map(|p| (p.name, p.summary, p.source)).collect()
}

/// Adds a policy, or replaces one that was added under this name before.
#[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
#[pyfunction]
#[pyo3(signature = (name, summary, factory, metrics, params, *, events = false, period_ms = None, limit_s = 5.0))]
pub fn add_policy(
    name: &str,
    summary: &str,
    factory: Py<PyAny>,
    metrics: Vec<String>,
    params: Vec<(String, String)>,
    events: bool,
    period_ms: Option<f64>,
    limit_s: f64,
) -> PyResult<()> {
    let limit = Duration::try_from_secs_f64(limit_s).map_err(raised)?;
    let needs = Needs {
        metrics: metrics.into_iter().map(leaked).collect(),
        events,
        period: period_ms.map(|ms| Nanos::from_secs_f64(ms * 1e-3)),
        ..Needs::NOTHING
    };
    let params = params.into_iter().map(|(key, default)| ParamDef {
        key: leaked(key),
        default: leaked(default),
        prose: "of the Python class",
    });
    let row = Added {
        name: leaked(name.into()),
        params: Box::leak(params.collect()),
        factory,
        needs,
        limit,
    };
    // The former factory is dropped after the lock: its finalizer may run Python code.
    let former = put(row, leaked(summary.into())).map_err(raised)?;
    drop(former);
    Ok(())
}

/// Puts a policy into the tables; returns the row that it replaces, if any.
fn put(row: Added, summary: &'static str) -> anyhow::Result<Option<Added>> {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    let known = added.iter().position(|known| known.name == row.name);
    let slot = known.unwrap_or(added.len());
    let make = MAKERS.get(slot).copied();
    let def = PolicyDef {
        name: row.name,
        summary,
        source: "a Python class",
        params: row.params,
        make: make.with_context(|| format!("a process may have {SLOTS} policies in Python"))?,
    };
    if known.is_some() {
        countersteer_policies::replace(Box::leak(Box::new(def)));
        return Ok(Some(std::mem::replace(&mut added[slot], row)));
    }
    countersteer_policies::add(Box::leak(Box::new([def])))?;
    added.push(row);
    Ok(None)
}

/// Leaks a text, since the tables of policies live as long as the process.
fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// Policy that calls a Python object.
struct Decider {
    mind: Mind,
    name: &'static str,
    needs: Needs,
}

fn make<const SLOT: usize>(
    params: &Params,
    topology: &Arc<Topology>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let Some(row) = Python::attach(|py| row(py, SLOT)) else {
        return Err(PolicyError::Unknown {
            name: format!("slot {SLOT}"),
            known: String::new(),
        });
    };
    let object = Python::attach(|py| decider(py, &row, params, topology));
    let object = object.map_err(|why| PolicyError::BadValue {
        key: row.name.into(),
        value: String::new(),
        why,
    })?;
    Ok(Box::new(Decider {
        mind: Mind::new(object, row.limit),
        name: row.name,
        needs: row.needs,
    }))
}

/// Copy of the row of a slot. Python code may wait for any thread, so none is run while the table is locked.
fn row(py: Python<'_>, slot: usize) -> Option<Added> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    added.get(slot).map(|row| row.clone_ref(py))
}

fn decider(
    py: Python<'_>,
    row: &Added,
    params: &Params,
    topology: &Topology,
) -> Result<Py<PyAny>, String> {
    let made = (|| {
        let given = PyDict::new(py);
        for param in row.params {
            given.set_item(param.key, params.text(param.key))?;
        }
        let groups = topology.groups.iter();
        let groups: Vec<(u32, String, String, Vec<u32>)> = groups
            .map(|group| {
                let by = serde_json::to_value(group.by).unwrap_or_default();
                let by = by.as_str().unwrap_or_default().to_owned();
                let cpus = group.cpus.iter().map(|cpu| cpu.0).collect();
                (group.id.0, group.name.clone(), by, cpus)
            })
            .collect();
        row.factory.call1(py, (groups, given))
    })();
    made.map_err(|error: PyErr| traceback(py, &error))
}

impl Policy for Decider {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let asked = Question::new(view, &self.needs.metrics);
        match self.mind.ask(asked) {
            Ok((places, rule)) => placement(view, &places, &rule),
            // Without the message of a panic in Rust, which would name this line.
            Err(Failure::Raised(why)) => {
                resume_unwind(Box::new(format!("policy `{}`: {why}", self.name)))
            }
            Err(Failure::Interrupted(error)) => resume_unwind(Box::new(error)),
        }
    }
}

/// Placement by row of the view's threads: a core group, or less than 0 for threads that stay.
fn placement(view: &View<'_>, places: &[i64], rule: &str) -> Placement {
    let threads = view.threads.iter().zip(places);
    let threads = threads.filter_map(|(thread, place)| {
        let group = GroupId(u32::try_from(*place).ok()?);
        let reason = Reason::rule(rule.to_owned());
        Some(ThreadPlacement::new(
            thread.id,
            Target::Group(group),
            reason,
        ))
    });
    Placement {
        threads: threads.collect(),
        ..Placement::default()
    }
}

macro_rules! makers {
    ($($slot:literal)*) => { [$(make::<$slot>),*] };
}

static MAKERS: [MakePolicy; SLOTS] = makers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);
