//! The Python extension `countersteer._countersteer`: experiments, comparisons, records, policies.
//!
//! Input: names, files, and Python objects that decide. Output: values of the Rust core; tables by the Arrow PyCapsule
//! interface, which polars, pyarrow, duckdb and pandas read without copies. All computation is in the core.

mod cache;
mod counting;
mod error;
mod experiment;
mod gains;
mod mind;
mod models;
mod papers;
mod policy;
mod program;
mod record;
mod results;
mod session;
mod sweep;
mod table;

use pyo3::prelude::*;

#[pymodule]
mod _countersteer {
    #[pymodule_export]
    use super::cache::{misses, profile, record_profile, shares};
    #[pymodule_export]
    use super::counting::Counters;
    #[pymodule_export]
    use super::error::CountersteerError;
    #[pymodule_export]
    use super::experiment::{Comparison, Experiment, Machine, Workload, machines, workloads};
    #[pymodule_export]
    use super::models::{judge_models, known_models, model, train_models};
    #[pymodule_export]
    use super::papers::{cases, reproduce};
    #[pymodule_export]
    use super::policy::{add_policy, policies};
    #[pymodule_export]
    use super::program::{give_own, main};
    #[pymodule_export]
    use super::record::{Record, read_record};
    #[pymodule_export]
    use super::session::{Samples, run, stat, threads, trial};
    #[pymodule_export]
    use super::sweep::{chunks, run_chunk};
    #[pymodule_export]
    use super::table::Table;
}
