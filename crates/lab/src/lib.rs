//! Experiments as values: a machine, a workload and a policy, run in the simulator.
//!
//! An [`Experiment`] contains the texts of its machine, workload and profiles. So it can be stored as JSON and run elsewhere
//! with the same result. A [`Sweep`] is a set of experiments. [`reproduce`] runs the papers' experiments.
//!
//! ```
//! use countersteer_lab::Experiment;
//!
//! let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", "hsf")?;
//! experiment.options.rounds = 1;
//! let finished = experiment.run()?;
//! assert_eq!(finished.score.programs.len(), finished.usage.len());
//! # Ok::<(), anyhow::Error>(())
//! ```

mod alone;
pub mod blame;
pub mod bound;
pub mod company;
pub mod error;
pub mod experiment;
pub mod grid;
pub mod import;
pub mod library;
mod loaded;
pub mod models;
pub mod native;
pub mod partition;
pub mod plan;
pub mod probe;
pub mod published;
pub mod replay;
pub mod reproduce;
mod scx;
pub mod sweep;
pub mod threads;
pub mod traces;
mod until;

pub use experiment::{Experiment, Finished, LoadedMachine, SimOptions};
pub use plan::Loaded;
pub use sweep::Sweep;
