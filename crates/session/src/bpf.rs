//! Choice of the counting method: BPF programs, or counters that new threads and processes inherit.

use std::sync::Arc;

use countersteer_counters::{BpfLoader, BpfRequest, Follow};
use countersteer_sysfs::waits::{WaitSource, Whose};

/// Counting method: BPF programs with per-CPU counters, or counters that new threads and processes inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Bpf {
    /// Use BPF programs if they can be loaded and support the request
    Auto,
    /// Use BPF programs, or fail with the reason
    Always,
    /// Use inherited counters, and for run-queue latency the kernel's sums
    Never,
}

#[cfg(not(feature = "scx"))]
const NONE_BUILT: &str = "this `steer` was built without them; build it with --features scx";

/// Returns a loader of the counting BPF programs; `None` if `--bpf never` excludes them.
pub fn loader(when: Bpf) -> Option<BpfLoader> {
    (when != Bpf::Never).then_some(BpfLoader {
        load: Arc::new(load),
        must: when == Bpf::Always,
    })
}

#[cfg(feature = "scx")]
fn load(request: &BpfRequest<'_>) -> Result<Box<dyn Follow>, String> {
    countersteer_bpf::follow::load(request)
}

#[cfg(not(feature = "scx"))]
fn load(_: &BpfRequest<'_>) -> Result<Box<dyn Follow>, String> {
    Err(NONE_BUILT.into())
}

/// Loads BPF programs that measure run-queue latency in the kernel; returns the reason if they cannot be loaded.
#[cfg(feature = "scx")]
pub fn measure(whose: &Whose) -> Result<Box<dyn WaitSource>, String> {
    countersteer_bpf::latency::load(whose)
}

#[cfg(not(feature = "scx"))]
pub fn measure(_: &Whose) -> Result<Box<dyn WaitSource>, String> {
    Err(NONE_BUILT.into())
}
