//! Policies that are written in Python.
//!
//! Input: an object that makes deciders, and what the driver sees, as arrays. Output: placements. A decider that raises, or returns
//! anything but a place for each thread, ends its run with the traceback, as a policy in Rust that panics does.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::{Arc, PoisonError, RwLock};

use countersteer_core::placement::{Placement, Reason, Target, ThreadPlacement};
use countersteer_core::policy::{
    MakePolicy, Needs, ParamDef, Params, Policy, PolicyDef, PolicyError, PolicyRng, View,
};
use countersteer_core::topology::Topology;
use countersteer_core::units::{GroupId, Nanos};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{CountersteerError, raised};

/// Policies in Python that one process may have: [`MakePolicy`] is a function without memory, so each has a function of its own.
const SLOTS: usize = 32;

/// The factories of the policies, by slot; a name that is added again takes the place of its former one.
static ADDED: RwLock<Vec<Added>> = RwLock::new(Vec::new());

struct Added {
    name: &'static str,
    /// Called with the topology's core types and the parameters as text; returns a decider.
    factory: Py<PyAny>,
    needs: Needs,
}

/// Names, summaries and sources of all policies.
#[pyfunction]
pub fn policies() -> Vec<(&'static str, &'static str, &'static str)> {
    let all = countersteer_policies::all();
    all.iter().map(|p| (p.name, p.summary, p.source)).collect()
}

/// Adds a policy, or replaces one that was added under this name before.
#[pyfunction]
#[pyo3(signature = (name, summary, factory, metrics, params, *, events = false, period_ms = None))]
pub fn add_policy(
    name: &str,
    summary: &str,
    factory: Py<PyAny>,
    metrics: Vec<String>,
    params: Vec<(String, String)>,
    events: bool,
    period_ms: Option<f64>,
) -> PyResult<()> {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    let needs = Needs {
        metrics: metrics.into_iter().map(leaked).collect(),
        events,
        period: period_ms.map(|ms| Nanos::from_secs_f64(ms * 1e-3)),
        ..Needs::NOTHING
    };
    if let Some(known) = added.iter_mut().find(|known| known.name == name) {
        known.factory = factory;
        known.needs = needs;
        return Ok(());
    }
    let make = MAKERS.get(added.len()).copied().ok_or_else(|| {
        raised(anyhow::anyhow!(
            "a process may have {SLOTS} policies in Python"
        ))
    })?;
    let params = params.into_iter().map(|(key, default)| ParamDef {
        key: leaked(key),
        default: leaked(default),
        prose: "of the Python class",
    });
    let name = leaked(name.into());
    let def = PolicyDef {
        name,
        summary: leaked(summary.into()),
        source: "a Python class",
        params: Box::leak(params.collect()),
        make,
    };
    countersteer_policies::add(Box::leak(Box::new([def]))).map_err(raised)?;
    added.push(Added {
        name,
        factory,
        needs,
    });
    Ok(())
}

/// The tables of policies live as long as the process.
fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// What a decider's failure left, as the exception that the run raises.
pub fn failure(payload: Box<dyn Any + Send>) -> PyErr {
    let text = payload.downcast_ref::<String>().cloned().or_else(|| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
    });
    CountersteerError::new_err(text.unwrap_or_else(|| "a policy panicked".into()))
}

/// A policy that asks a Python object.
struct Decider {
    object: Py<PyAny>,
    name: &'static str,
    needs: Needs,
}

fn make<const SLOT: usize>(
    params: &Params,
    topology: &Arc<Topology>,
) -> Result<Box<dyn Policy>, PolicyError> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    let Some(row) = added.get(SLOT) else {
        return Err(PolicyError::Unknown {
            name: format!("slot {SLOT}"),
            known: String::new(),
        });
    };
    let object = Python::attach(|py| decider(py, row, params, topology));
    let object = object.map_err(|why| PolicyError::BadValue {
        key: row.name.into(),
        value: String::new(),
        why,
    })?;
    Ok(Box::new(Decider {
        object,
        name: row.name,
        needs: row.needs.clone(),
    }))
}

fn decider(
    py: Python<'_>,
    row: &Added,
    params: &Params,
    topology: &Topology,
) -> Result<Py<PyAny>, String> {
    let made = (|| {
        let given = PyDict::new(py);
        let def = countersteer_policies::by_name(row.name);
        for param in def.iter().flat_map(|def| def.params) {
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
        let decided =
            Python::attach(|py| self.ask(py, view).map_err(|error| traceback(py, &error)));
        match decided {
            Ok(placement) => placement,
            // Without the message of a panic in Rust, which would name this line.
            Err(why) => resume_unwind(Box::new(format!("policy `{}`: {why}", self.name))),
        }
    }
}

impl Decider {
    fn ask(&self, py: Python<'_>, view: &View<'_>) -> PyResult<Placement> {
        let threads = view.threads;
        let ints = |of: &dyn Fn(&countersteer_core::engine::ThreadInfo) -> i64| {
            let bytes: Vec<u8> = threads.iter().flat_map(|t| of(t).to_ne_bytes()).collect();
            PyBytes::new(py, &bytes)
        };
        let columns = PyDict::new(py);
        columns.set_item("thread", ints(&|t| i64::from(t.id.0)))?;
        columns.set_item("program", ints(&|t| i64::from(t.program.0)))?;
        columns.set_item("cpu", ints(&|t| i64::from(t.cpu.0)))?;
        columns.set_item("runnable", ints(&|t| i64::from(t.runnable)))?;
        columns.set_item("nice", ints(&|t| i64::from(t.nice)))?;
        let of_core_type = |cpu| i64::from(view.topology.core_type_of(cpu).0);
        columns.set_item("core_type", ints(&|t| of_core_type(t.cpu)))?;
        let metrics = PyDict::new(py);
        for name in &self.needs.metrics {
            let column = view.metrics.column(name);
            let value = |thread| view.metrics.at(thread, column?);
            let values = threads.iter().map(|t| value(t.id).unwrap_or(f64::NAN));
            let bytes: Vec<u8> = values.flat_map(f64::to_ne_bytes).collect();
            metrics.set_item(*name, PyBytes::new(py, &bytes))?;
        }
        let programs: Vec<(u32, &str)> = view.programs.iter().map(|p| (p.id.0, &*p.name)).collect();
        let now_s = view.now.as_secs_f64();
        let answer = (self.object).call_method1(
            py,
            "_decide",
            (now_s, threads.len(), columns, metrics, programs),
        )?;
        let (places, rule): (Vec<i64>, String) = answer.extract(py)?;
        Ok(placement(view, &places, &rule))
    }
}

/// Places by row of the view's threads: a core group, or less than 0 for threads that stay.
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

fn traceback(py: Python<'_>, error: &PyErr) -> String {
    let traceback = error.traceback(py).and_then(|t| t.format().ok());
    format!("{}{error}", traceback.unwrap_or_default())
}

macro_rules! makers {
    ($($slot:literal)*) => { [$(make::<$slot>),*] };
}

static MAKERS: [MakePolicy; SLOTS] = makers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);
