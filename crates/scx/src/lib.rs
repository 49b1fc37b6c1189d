//! Schedulers written for sched_ext, inside the simulator.
//!
//! A scheduler's BPF sources are compiled for this machine against headers that declare what the simulator offers, and loaded.
//! [`Ext`] then schedules the threads of a simulation with it, on any simulated machine. Input: a scheduler's sources
//! ([`Library::build`]), a topology and values of the scheduler's variables. Output: a
//! [`Scheduler`](countersteer_sim::scheduler::Scheduler) for the engine.
//!
//! Order and conditions of the calls follow kernel/sched/ext.c and ext_idle.c of Linux 7.2. The following are not modelled: threads
//! of other classes, nested control groups (all threads are in the root), hotplug, core scheduling, and the time that the
//! scheduler's own code takes. Locks are free, because one CPU runs at a time. The user-space half of a scheduler does not run:
//! what it would set from the machine is set here (see `PRESETS`), and other variables keep the values of the sources.

mod abi;
mod compiler;
mod cores;
mod division;
mod error;
mod flags;
mod idle;
mod kfuncs;
mod layout;
mod library;
mod maps;
mod object;
mod scheduler;
mod start;
mod state;
mod userspace;
mod world;

pub use error::ScxError;
pub use library::Library;
pub use scheduler::Ext;
