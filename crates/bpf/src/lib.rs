//! Programs inside the kernel: a sched_ext scheduler that enforces placements, and programs that count threads.
//!
//! The engine's input is placements of a policy; its output is observations of the followed threads. The scheduler itself is
//! `bpf/engine.bpf.c`; this crate loads it, sends it commands and receives its events. [`follow`] does the same with
//! `bpf/follow.bpf.c`, which only counts, with any scheduler. [`latency`] does it with `bpf/latency.bpf.c`, which measures the
//! run-queue latency of threads.
//!
//! Building this crate needs clang, libelf and zlib, so other crates use it under the feature `scx` only.

mod config;
mod counting;
mod engine;
mod error;
mod events;
pub mod follow;
mod kernel;
pub mod latency;
mod object;
mod placer;
mod probe;
mod processes;
mod targets;
mod task_table;

pub use config::{EngineMode, ScxConfig};
pub use engine::{EngineStatistics, ScxEngine};
pub use error::KernelEngineError;
pub use probe::{NoScx, probe};

/// Code that `build.rs` generates: skeletons of the compiled programs, with their structures, and shared constants.
#[allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/engine.skel.rs"));
    pub mod shared {
        include!(concat!(env!("OUT_DIR"), "/shared.rs"));
    }
    pub mod follow {
        include!(concat!(env!("OUT_DIR"), "/follow.skel.rs"));
        pub mod shared {
            include!(concat!(env!("OUT_DIR"), "/follow.rs"));
        }
    }
    /// Programs that measure run-queue latency.
    pub mod latency {
        include!(concat!(env!("OUT_DIR"), "/latency.skel.rs"));
        pub mod shared {
            include!(concat!(env!("OUT_DIR"), "/latency.rs"));
        }
    }
    /// Program that begins to follow running threads.
    pub mod adopt {
        include!(concat!(env!("OUT_DIR"), "/adopt.skel.rs"));
    }
}
