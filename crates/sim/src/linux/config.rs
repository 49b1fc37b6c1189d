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
    /// A newly idle CPU looks at a domain with the probability that it found something there before (`NI_RANDOM`); counted by
    /// time, too, so that rare searches are always made (`NI_RATE`).
    pub newidle_by_success: bool,
    pub newidle_by_rate: bool,
    /// Of 1,024 searches so many are made at first: half of them after boot.
    pub newidle_ratio: u32,
    /// Threads that had more than their share stay where they are at the first try of a balance
    /// (`task_is_ineligible_on_dst_cpu`).
    pub eligible_first: bool,
    /// A new thread may take the CPU from the running one at once.
    pub fork_preempts: bool,
    /// The threads of a process are gathered under one last-level cache (`SCHED_CACHE`, `llc_balancing/enabled`).
    pub llc_balancing: bool,
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
            newidle_by_success: false,
            newidle_by_rate: false,
            newidle_ratio: 512,
            eligible_first: false,
            fork_preempts: true,
            llc_balancing: false,
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

/// The release that is simulated unless another is named.
pub const DEFAULT_KERNEL: &str = "7.2";

// Each as its last update in the stable series has it.
fn v6_12() -> LinuxConfig {
    LinuxConfig {
        newidle_by_success: true,
        ..LinuxConfig::installed()
    }
}

fn v6_18() -> LinuxConfig {
    LinuxConfig {
        eligible_first: true,
        ..v6_12()
    }
}

fn v7_2() -> LinuxConfig {
    LinuxConfig {
        hrtick: true,
        newidle_by_rate: true,
        // A system that has been up for a while had seldom reason to search, so that it always does.
        newidle_ratio: 1024,
        fork_preempts: false,
        llc_balancing: true,
        ..v6_18()
    }
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
        config: v6_12,
    },
    KernelDef {
        name: "6.18",
        prose: "EEVDF; balancing prefers threads that are owed time",
        config: v6_18,
    },
    KernelDef {
        name: DEFAULT_KERNEL,
        prose: "EEVDF; high-resolution ticks end slices when they are over, and processes are gathered under last-level caches, as Debian configures it",
        config: v7_2,
    },
];

/// The kernel of a release.
#[must_use]
pub fn kernel(name: &str) -> Option<&'static KernelDef> {
    KERNELS.iter().find(|k| k.name == name)
}

/// Something that can be switched on and off in a running kernel.
pub struct SwitchDef {
    pub name: &'static str,
    pub prose: &'static str,
    pub set: fn(&mut LinuxConfig, bool),
}

pub static SWITCHES: &[SwitchDef] = &[
    SwitchDef {
        name: "llc_balancing",
        prose: "the threads of a process are gathered under one last-level cache (since 7.2)",
        set: |config, on| config.llc_balancing = on,
    },
    SwitchDef {
        name: "lazy",
        prose: "a thread woken from another CPU preempts at the next tick",
        set: |config, on| config.lazy_preemption = on,
    },
    SwitchDef {
        name: "hrtick",
        prose: "slices end when they are over, not at the next tick",
        set: |config, on| config.hrtick = on,
    },
];

/// The configuration of a release with switches, as in `7.2` or `7.2:llc_balancing=off`.
///
/// # Errors
/// A release or a switch that does not exist, in words.
pub fn kernel_config(spec: &str) -> Result<LinuxConfig, String> {
    let (name, switches) = spec.split_once(':').unwrap_or((spec, ""));
    let names = |all: Vec<&str>| all.join(", ");
    let found = kernel(name).ok_or_else(|| {
        let known = names(KERNELS.iter().map(|k| k.name).collect());
        format!("there is no kernel {name}; there are {known}")
    })?;
    let mut config = (found.config)();
    for switch in switches.split(',').filter(|s| !s.is_empty()) {
        let (name, value) = switch.split_once('=').unwrap_or((switch, ""));
        let def = SWITCHES.iter().find(|s| s.name == name).ok_or_else(|| {
            let known = names(SWITCHES.iter().map(|s| s.name).collect());
            format!("there is no switch {name}; there are {known}")
        })?;
        let on = match value {
            "on" => true,
            "off" => false,
            _ => return Err(format!("{name} is on or off")),
        };
        (def.set)(&mut config, on);
    }
    Ok(config)
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
