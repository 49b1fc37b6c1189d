//! Configuration of the scheduler in the kernel.

use std::sync::Arc;
use std::time::Duration;

use countersteer_live::placer::CounterPlan;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMode {
    /// Only followed threads; all others stay with the kernel's own scheduler.
    Partial,
    Full,
}

#[derive(Clone, Debug)]
pub struct ScxConfig {
    pub topology: Arc<Topology>,
    /// The kernel's numbers of its CPUs.
    pub numbers: CpuNumbers,
    /// Initial events to count, with their plan; `None` to count nothing.
    pub counters: Option<CounterPlan>,
    pub mode: EngineMode,
    pub period: Nanos,
    /// Time slice: time on a CPU before other threads may run.
    pub slice: Nanos,
    /// Queue depth above which idle CPUs take threads of other targets; `None` for never.
    pub steal_above: Option<u32>,
    /// True to report wakeups, sleeps and migrations, not only forks, execs and exits.
    pub report_switches: bool,
    /// Longest wait of a runnable thread, after which the kernel ejects the scheduler.
    pub watchdog: Duration,
    /// Fault injection for tests: threads of this target get lost.
    pub lose_target: Option<u32>,
    /// For tests: limits the targets to fewer than the scheduler has room for.
    pub most_targets: Option<u32>,
}

impl ScxConfig {
    /// Default configuration for a machine.
    #[must_use]
    pub fn new(topology: Arc<Topology>, numbers: CpuNumbers) -> Self {
        Self {
            slice: usual_slice(topology.groups[0].cpus.len()),
            topology,
            numbers,
            counters: None,
            mode: EngineMode::Partial,
            period: Nanos::from_millis(100),
            steal_above: None,
            report_switches: true,
            watchdog: Duration::from_secs(5),
            lose_target: None,
            most_targets: None,
        }
    }
}

/// Time slice of the kernel's own scheduler: it grows with the number of CPUs, up to eight.
fn usual_slice(cpus: usize) -> Nanos {
    Nanos::from_micros(700 * u64::from(1 + cpus.clamp(1, 8).ilog2()))
}
