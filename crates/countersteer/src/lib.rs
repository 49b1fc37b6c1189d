//! Countersteer as a library: experiments in the simulator ([`lab`]) and sessions on this machine ([`session`]).
//!
//! A policy runs in both unchanged, and both write the same record ([`report`]). [`profiler`] records programs, and [`train`] fits
//! models of speed-up factors. The programs of `examples/ideas` use this crate alone. Authors of policies need less:
//! `countersteer-policy`.
//!
//! ```
//! use countersteer::lab::Experiment;
//!
//! let mut experiment = Experiment::named("quickia-2b-2s", "unequal-cores", "hsf")?;
//! experiment.options.rounds = 1;
//! let score = experiment.run()?.score;
//! assert!(score.stp > 1.0);
//! # Ok::<(), anyhow::Error>(())
//! ```

pub use countersteer_cache as cache;
pub use countersteer_lab as lab;
pub use countersteer_model as model;
pub use countersteer_policies as policies;
pub use countersteer_profiler as profiler;
pub use countersteer_report as report;
pub use countersteer_session as session;
pub use countersteer_train as train;
