//! Configuration of the model of Linux.
//!
//! Input: none. Output: [`LinuxConfig`], whose default is a distribution kernel of the 6.12 series, and [`Switch`].

use countersteer_model::units::{CpuId, Nanos, ThreadId};
use serde::{Deserialize, Serialize};

/// The algorithm of the fair class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FairClass {
    /// Earliest eligible virtual deadline first (6.6 and later; modelled as in 6.12 to 7.x).
    #[default]
    Eevdf,
    /// Completely fair scheduler (up to 6.5).
    Cfs,
}

/// Tunables of the scheduler; the defaults are the kernel's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinuxConfig {
    pub scheduler: FairClass,
    /// Slice of EEVDF, as `base_slice_ns` shows it (already scaled by the number of CPUs). None: 0.70 ms x (1 +
    /// ilog2(min(cpus, 8))).
    pub base_slice_ns: Option<u64>,
    /// A picked thread runs out its slice unless somebody with a shorter one wakes (`RUN_TO_PARITY`).
    pub run_to_parity: bool,
    /// Sleepers stay queued until they have paid for what they overran (`DELAY_DEQUEUE`).
    pub delay_dequeue: bool,
    /// What a delayed sleeper is owed when it leaves is forgotten (`DELAY_ZERO`).
    pub delay_zero: bool,
    /// Slices end when they end, not at the next tick (`HRTICK`).
    pub hrtick: bool,
    /// A thread woken from another CPU preempts at the next tick instead of at once (`PREEMPT_LAZY`: no interrupt is sent, and
    /// a thread that computes does not look).
    pub lazy_preemption: bool,
    /// Ticks of the CPUs are spread over the period (`skew_tick=1`) instead of coinciding.
    pub skew_tick: bool,
    /// A thread that ran within this time is cache-hot (`sched_migration_cost_ns`).
    pub migration_cost_ns: u64,
    /// Threads moved at most per balance (`sched_nr_migrate`).
    pub balance_threads: u32,
    /// Time a newly idle CPU needs to look for work, per CPU looked at; it does not look when it expects to idle for less.
    pub newidle_cost_per_cpu_ns: u64,
    /// Mean time between wake-ups of kernel threads and daemons that take a CPU for a moment, after which its queue is looked at
    /// anew; none on a quiet machine. See [`DISTURBED_EVERY_NS`].
    pub disturbed_every_ns: Option<u64>,
    /// What the kernel leaves to timing comes from here: tick phase, balance phase, which idle CPU idled last, disturbances.
    pub seed: u64,
}

/// Wake-ups per CPU that no workload asks for, on an installed system: 20 a second, an estimate (an idle desktop shows 50 to some
/// hundred a second in all).
///
/// Without any, slices of CPUs with two threads each end at the same ticks for ever, so that the same threads meet in the shared
/// cache in all of a run, and which ones is decided at launch. The rate matters little as long as it is high beside the length
/// of runs.
pub const DISTURBED_EVERY_NS: u64 = 50_000_000;

impl LinuxConfig {
    /// The kernel of the default on an installed system, which is never quite quiet.
    #[must_use]
    pub fn installed() -> Self {
        Self {
            disturbed_every_ns: Some(DISTURBED_EVERY_NS),
            ..Self::default()
        }
    }
}

impl Default for LinuxConfig {
    /// On a quiet machine.
    fn default() -> Self {
        Self {
            scheduler: FairClass::Eevdf,
            base_slice_ns: None,
            run_to_parity: true,
            delay_dequeue: true,
            delay_zero: true,
            hrtick: false,
            lazy_preemption: false,
            skew_tick: false,
            migration_cost_ns: 500_000,
            balance_threads: 32,
            newidle_cost_per_cpu_ns: 150,
            disturbed_every_ns: None,
            seed: 0,
        }
    }
}

/// A kernel that can be simulated.
pub struct KernelDef {
    pub name: &'static str,
    pub prose: &'static str,
    pub config: fn() -> LinuxConfig,
}

pub static KERNELS: &[KernelDef] = &[
    KernelDef {
        name: "6.5",
        prose: "the completely fair scheduler, its last release",
        config: || LinuxConfig {
            scheduler: FairClass::Cfs,
            ..LinuxConfig::installed()
        },
    },
    KernelDef {
        name: "6.12",
        prose: "EEVDF; slices end at ticks",
        config: LinuxConfig::installed,
    },
    KernelDef {
        name: "7.2",
        prose: "EEVDF; high-resolution ticks end slices when they are over, as Debian configures it",
        config: || LinuxConfig {
            hrtick: true,
            ..LinuxConfig::installed()
        },
    },
];

/// The kernel of a release.
#[must_use]
pub fn kernel(name: &str) -> Option<&'static KernelDef> {
    KERNELS.iter().find(|k| k.name == name)
}

/// A CPU went from one thread to another; `None` is the idle thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    pub cpu: CpuId,
    pub prev: Option<ThreadId>,
    /// The thread that runs from now on.
    pub next: Option<ThreadId>,
    pub at: Nanos,
}
