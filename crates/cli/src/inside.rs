//! Whether threads are followed and counted by BPF programs.

use clap::ValueEnum;
use countersteer_host::counters::{Errand, Follow, Inside};

/// Who counts threads: BPF programs beside counters of CPUs, or counters of the threads' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bpf {
    /// BPF programs where they may be loaded and can do what is asked
    Auto,
    /// BPF programs, or an error that says why not
    Always,
    /// Counters of the threads' own
    Never,
}

/// How threads may be followed inside the kernel.
pub fn inside(when: Bpf) -> Option<Inside<'static>> {
    (when != Bpf::Never).then_some(Inside {
        load: &load,
        must: when == Bpf::Always,
    })
}

#[cfg(feature = "scx")]
fn load(errand: &Errand<'_>) -> Result<Box<dyn Follow>, String> {
    countersteer_scx::follow::load(errand)
}

#[cfg(not(feature = "scx"))]
fn load(_: &Errand<'_>) -> Result<Box<dyn Follow>, String> {
    Err("this `steer` was built without them (--no-default-features)".into())
}
