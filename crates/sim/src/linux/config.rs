//! Configuration of the model of Linux.
//!
//! Input: none. Output: [`LinuxConfig`], whose default is a distribution kernel of the 6.12 series, and [`ContextSwitch`].

use countersteer_model::units::{CpuId, Nanos, ThreadId};
use serde::{Deserialize, Serialize};

/// Algorithm of the fair scheduling class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FairClass {
    /// Earliest eligible virtual deadline first (6.6 and later; modelled as in 6.12 to 7.x).
    #[default]
    Eevdf,
    /// Completely fair scheduler (up to 6.5).
    Cfs,
}

/// Tunables of the simulated scheduler; the defaults are those of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinuxConfig {
    pub scheduler: FairClass,
    /// Default time slice of EEVDF in nanoseconds, as debugfs shows it in `base_slice_ns` (already scaled by the number of CPUs).
    /// `None` stands for `unscaled_slice_ns` x (1 + ilog2(min(cpus, 8))).
    pub base_slice_ns: Option<u64>,
    /// Default time slice of EEVDF in nanoseconds on a machine with one CPU.
    pub unscaled_slice_ns: u64,
    /// True if a picked thread runs to the end of its slice, unless a thread with a shorter slice wakes (`RUN_TO_PARITY`).
    pub run_to_parity: bool,
    /// True if threads that go to sleep stay queued until their excess running time is paid back (`DELAY_DEQUEUE`).
    pub delay_dequeue: bool,
    /// True if the positive lag of a delayed thread is set to zero when the thread leaves the queue (`DELAY_ZERO`).
    pub delay_zero: bool,
    /// True if time slices end on time, by a high-resolution timer, and not at the next tick (`HRTICK`).
    pub hrtick: bool,
    /// True if a thread woken from another CPU preempts at the next tick and not at once (`PREEMPT_LAZY`). The waking CPU sends
    /// no interrupt, and a thread in user mode does not check for preemption.
    pub lazy_preemption: bool,
    /// True if the ticks of the CPUs are spread over the tick period (`skew_tick=1`) instead of coinciding.
    pub skew_tick: bool,
    /// Time in nanoseconds after its last run during which a thread counts as cache-hot (`sched_migration_cost_ns`).
    pub migration_cost_ns: u64,
    /// Maximum number of threads that one load balance moves (`sched_nr_migrate`).
    pub balance_threads: u32,
    /// Time in nanoseconds that a newly idle CPU needs to search one other CPU for work. A newly idle CPU does not search if its
    /// expected idle time is shorter than the whole search.
    pub newidle_cost_per_cpu_ns: u64,
    /// True if a newly idle CPU searches a domain with a probability equal to its earlier success rate there (`NI_RANDOM`).
    pub newidle_by_success: bool,
    /// True if the probability of a search is raised where searches are rare, so that rare searches are always made (`NI_RATE`).
    pub newidle_by_rate: bool,
    /// Initial probability that a newly idle CPU searches, in units of 1/1,024; 512 after boot.
    pub newidle_ratio: u32,
    /// True if the first attempt of a load balance leaves threads in place that received more than their share
    /// (`task_is_ineligible_on_dst_cpu`).
    pub eligible_first: bool,
    /// True if a new thread may preempt the running thread at once.
    pub fork_preempts: bool,
    /// True if the threads of a process are gathered under one last-level cache (`SCHED_CACHE`, `llc_balancing/enabled`).
    pub llc_balancing: bool,
    /// True if pages follow their threads to other memory nodes, and threads their pages (`kernel.numa_balancing`).
    pub numa_balancing: bool,
    /// Mean time in nanoseconds between wake-ups of kernel threads and daemons on a CPU. After each of these wake-ups, the CPU
    /// picks its next thread again. `None` on a quiet machine. See [`DISTURBED_EVERY_NS`].
    pub disturbed_every_ns: Option<u64>,
    /// Seed for all values that depend on timing in a real kernel: tick phase, balance phase, the CPU that idled last,
    /// disturbances.
    pub seed: u64,
}

/// Mean time in nanoseconds between wake-ups of kernel threads and daemons on a CPU of an installed system. The value, 20
/// wake-ups per second, is an estimate: an idle desktop shows 50 to several hundred per second in total.
///
/// Without disturbances, the slices of CPUs with two threads each would always end at the same ticks. The same threads would then
/// share a cache during the whole run, and the launch would decide which ones. The exact rate matters little as long as there are
/// many disturbances per run.
pub const DISTURBED_EVERY_NS: u64 = 50_000_000;

impl LinuxConfig {
    /// Returns the default kernel's configuration on an installed system, where kernel threads and daemons run now and then.
    #[must_use]
    pub fn installed() -> Self {
        Self {
            disturbed_every_ns: Some(DISTURBED_EVERY_NS),
            ..Self::default()
        }
    }
}

impl Default for LinuxConfig {
    /// Returns the configuration of a machine without kernel threads and daemons.
    fn default() -> Self {
        Self {
            scheduler: FairClass::Eevdf,
            base_slice_ns: None,
            unscaled_slice_ns: 700_000,
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
            numa_balancing: true,
            disturbed_every_ns: None,
            seed: 0,
        }
    }
}

/// Kernel release that can be simulated.
pub struct KernelDef {
    pub name: &'static str,
    pub prose: &'static str,
    pub config: fn() -> LinuxConfig,
}

/// Name of the kernel release that is simulated by default.
pub const DEFAULT_KERNEL: &str = "7.2";

// Each configuration describes the last update of its stable series.
fn v6_12() -> LinuxConfig {
    LinuxConfig {
        unscaled_slice_ns: 750_000,
        newidle_by_success: true,
        ..LinuxConfig::installed()
    }
}

fn v6_18() -> LinuxConfig {
    LinuxConfig {
        unscaled_slice_ns: 700_000,
        eligible_first: true,
        ..v6_12()
    }
}

fn v7_2() -> LinuxConfig {
    LinuxConfig {
        hrtick: true,
        newidle_by_rate: true,
        // On a system that has been up for a while, almost all searches succeeded, so that it always searches.
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

/// Returns the definition of a kernel release; `None` if the release is unknown.
#[must_use]
pub fn kernel(name: &str) -> Option<&'static KernelDef> {
    KERNELS.iter().find(|k| k.name == name)
}

/// Scheduler feature that can be switched on and off in a running kernel.
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
        name: "numa_balancing",
        prose: "pages follow their threads to other memory nodes, and threads their pages",
        set: |config, on| config.numa_balancing = on,
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

/// Parses a kernel release with optional switches, as in `7.2` or `7.2:llc_balancing=off`, into its configuration.
///
/// # Errors
/// Fails if the release or a switch does not exist, or if a value is neither `on` nor `off`.
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

/// Context switch of a CPU from one thread to another; `None` stands for the idle thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSwitch {
    pub cpu: CpuId,
    pub prev: Option<ThreadId>,
    /// Thread that runs after the switch.
    pub next: Option<ThreadId>,
    pub at: Nanos,
}
