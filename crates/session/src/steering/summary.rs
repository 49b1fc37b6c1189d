//! Summary of a steered run, for `--json` and the control socket.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::waits::Wait;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramTally {
    pub name: String,
    /// Number of all its threads.
    pub threads: u64,
    /// Number of its living threads.
    pub living: u64,
    /// CPU time in seconds by core type, fastest first.
    pub cpu_s: Vec<f64>,
    /// Instructions, if they are counted.
    pub instructions: f64,
    pub cycles: f64,
    /// Work in the program's own unit, if it reports any (see `docs/steering.md`).
    pub work: f64,
    /// Elapsed time until it ended; `None` while it runs.
    pub elapsed_s: Option<f64>,
    /// Exit code as a shell reports it.
    pub exit_code: Option<i32>,
    /// Run-queue latency of its threads; `None` if the kernel does not report it.
    pub wait: Option<Wait>,
}

/// Time from an observation until all threads are where the policy placed them, over decisions that moved any.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EffectTimes {
    /// Median in ms.
    pub median_ms: f64,
    /// 99th percentile in ms.
    pub p99_ms: f64,
    pub most_ms: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SteeringSummary {
    /// Programs in the workload's order.
    pub programs: Vec<ProgramTally>,
    /// Sum of short-lived threads between two observations, and of ended programs in runs without an end.
    pub short_lived: Option<ProgramTally>,
    /// Names of the columns of `cpu_s`.
    pub core_types: Vec<String>,
    pub elapsed_s: f64,
    pub decisions: u64,
    /// Number of threads with a changed confinement, summed over decisions.
    pub changed: u64,
    /// Number of threads that could not be confined.
    pub refused: u64,
    /// Number of affinity masks that other programs changed, and that are kept.
    pub overruled: u64,
    /// Frequency hints and cache partitions that are unsupported or were rejected.
    #[serde(rename = "unheeded")]
    pub unsupported: u64,
    /// Number of times that a thread ran outside its place by work stealing; `None` if places have no queues.
    pub stolen: Option<u64>,
    /// Times until decisions took effect; `None` if nothing ever changed.
    pub effect: Option<EffectTimes>,
    /// Observed migrations between CPUs.
    pub migrations: u64,
    /// Phase changes that the engine detected.
    pub phases: u64,
    /// Samples of threads outside their placement, and all samples of placed threads. Counted are samples that begin half a
    /// period after the placement took effect, or later.
    pub misplaced: (u64, u64),
    /// Relative speed gain of the wanted places over the current ones, predicted by the policy's speed-up factors.
    pub predicted_gain: Option<f64>,
    /// Reason why the policy was dropped, if it was.
    pub dropped: Option<String>,
}

impl SteeringSummary {
    /// Adds the run-queue latency of each program.
    pub fn take_waits(&mut self, waits: &BTreeMap<Arc<str>, Wait>) {
        for program in &mut self.programs {
            program.wait = waits.get(program.name.as_str()).copied();
        }
    }
}
