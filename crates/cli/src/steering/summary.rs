//! The summary of a steered run, as `--json` prints it and the control socket gives it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::waits::Wait;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ProgramTally {
    pub name: String,
    /// Threads that it had in all.
    pub threads: u64,
    /// Threads that it has now.
    pub living: u64,
    /// CPU time by core type, fastest first.
    pub cpu_s: Vec<f64>,
    /// Instructions, where they are counted.
    pub instructions: f64,
    pub cycles: f64,
    /// Work, in units of the program's own, if it tells (see `docs/steering.md`).
    pub work: f64,
    /// How long it took, if it ended.
    pub elapsed_s: Option<f64>,
    /// Its exit code, as a shell would tell it.
    pub exit_code: Option<i32>,
    /// How long its threads waited for CPUs, where the kernel tells.
    pub wait: Option<Wait>,
}

/// How long it took from what was seen until all threads were where the policy wanted them, over decisions that moved any.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EffectTimes {
    /// Half of the decisions took less.
    pub median_ms: f64,
    /// All but a hundredth took less.
    pub p99_ms: f64,
    pub most_ms: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Programs in the workload's order.
    pub programs: Vec<ProgramTally>,
    /// Threads that lived for less than the time between two looks, and programs that have ended in runs without an end, all together.
    pub short_lived: Option<ProgramTally>,
    /// Names of the columns of `cpu_s`.
    pub core_types: Vec<String>,
    pub elapsed_s: f64,
    pub decisions: u64,
    /// Threads that were confined anew, summed over decisions.
    pub changed: u64,
    /// Threads that could not be.
    pub refused: u64,
    /// Frequency hints and cache partitions that are unsupported or were rejected.
    #[serde(rename = "unheeded")]
    pub unsupported: u64,
    /// Times that a thread ran outside of its place since too many waited there; none where places have no queues.
    pub stolen: Option<u64>,
    /// How long decisions took to hold; none if nothing was ever changed.
    pub effect: Option<EffectTimes>,
    /// Moves between CPUs that were seen.
    pub migrations: u64,
    /// Changes of phase that the engine noticed.
    pub phases: u64,
    /// Samples of threads outside of where they were placed two periods before or earlier, and all samples of such threads.
    pub misplaced: (u64, u64),
    /// By how much faster threads would be where the policy wants them than where they are, by its speed-up factors.
    pub predicted_gain: Option<f64>,
    /// Why the policy was dropped, if it was.
    pub dropped: Option<String>,
}

impl Summary {
    /// Gives programs what was found out about their waits.
    pub fn take_waits(&mut self, waits: &BTreeMap<Arc<str>, Wait>) {
        for program in &mut self.programs {
            program.wait = waits.get(program.name.as_str()).copied();
        }
    }
}
