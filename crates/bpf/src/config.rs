//! What the scheduler in the kernel is started with.

use std::sync::Arc;
use std::time::Duration;

use countersteer_live::placer::Counters;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only threads that are followed; all others stay with the kernel's own.
    Partial,
    Full,
}

#[derive(Clone, Debug)]
pub struct ScxConfig {
    pub topology: Arc<Topology>,
    /// The kernel's numbers of its CPUs.
    pub numbers: CpuNumbers,
    /// Events to count at first, with their plan; none for none.
    pub counters: Option<Counters>,
    pub mode: Mode,
    pub period: Nanos,
    /// Time on a CPU before others get their turn.
    pub slice: Nanos,
    /// CPUs without work take threads of other targets from queues longer than this; never, if absent.
    pub steal_above: Option<u32>,
    /// Report wakes, sleeps and migrations, not only forks, execs and exits.
    pub report_switches: bool,
    /// The kernel ejects the scheduler when a thread that could run has waited so long.
    pub watchdog: Duration,
    /// Fault injection for tests: threads of this target get lost.
    pub lose_target: Option<u32>,
    /// For tests: fewer targets than the scheduler has room for.
    pub most_targets: Option<u32>,
}

impl ScxConfig {
    /// What fits most, on this machine.
    #[must_use]
    pub fn new(topology: Arc<Topology>, numbers: CpuNumbers) -> Self {
        Self {
            slice: usual_slice(topology.groups[0].cpus.len()),
            topology,
            numbers,
            counters: None,
            mode: Mode::Partial,
            period: Nanos::from_millis(100),
            steal_above: None,
            report_switches: true,
            watchdog: Duration::from_secs(5),
            lose_target: None,
            most_targets: None,
        }
    }
}

/// The slice of the kernel's own scheduler: longer with more CPUs, up to eight.
fn usual_slice(cpus: usize) -> Nanos {
    Nanos::from_micros(700 * u64::from(1 + cpus.clamp(1, 8).ilog2()))
}
