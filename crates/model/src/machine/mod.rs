//! Machines from `machines/*.toml` files.
//!
//! Input: TOML text. Output: a checked [`Machine`]. The topology is derived from the machine; policies and schedulers see only
//! the topology.

mod check;
mod frequency;
mod held;
mod models;
mod pipeline;
mod sets_by_cpu;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::events::Event;
use crate::models::{ModelFile, StepModel};
use crate::textfile::{TextError, parse_described};
use crate::units::CpuId;

pub use frequency::{Frequencies, Governor, IdleStates, OperatingPoint, Point, PowerLimit};
pub use held::SfSpread;
pub use models::{is_for, models_for, swaps_for};
pub use pipeline::{Buffers, CorePipeline, Latencies, MAX_PORT_SETS, UnitSet, WorkUnit};

/// Schema identifier in every machine file.
pub const SCHEMA: &str = "countersteer.machine/1";
/// Machine: core types, their CPUs, caches, memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// `countersteer.machine/1`.
    pub schema: String,
    /// Short name of the machine, in lower case with dashes.
    pub name: String,
    /// Description in one line, for lists.
    pub title: String,
    /// Origin of the values in this file, and the values that are estimates.
    pub source: String,
    /// Treatment of the core types by Linux's scheduler.
    pub linux: LinuxKind,
    /// Timer interrupts per second.
    #[serde(default = "default_hz")]
    pub hz: u32,
    /// Power of the package that belongs to no core, in watts.
    #[serde(default)]
    pub static_power_w: f64,
    /// Governor of core types with operating points.
    #[serde(default, skip_serializing_if = "is_default")]
    pub governor: Governor,
    /// Sustained power limit of the package; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<PowerLimit>,
    /// The operating system's numbers of CPUs 0, 1, 2, ... in order; absent if they are equal, as on every machine with all its
    /// CPUs online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_cpus: Option<CpuSet>,
    /// Core types, in any order; of two with equal capacity and frequency, the faster first.
    pub core_type: Vec<CoreType>,
    /// CPUs of each core type. Together the entries contain all CPU numbers from 0 on, without holes.
    pub cores: Vec<Cores>,
    /// Caches shared by several cores, in any order.
    #[serde(default)]
    pub cache: Vec<SharedCache>,
    /// Memory domains; each CPU belongs to one.
    pub memory: Vec<Memory>,
    /// Trained models of speed-up and energy factors, which take precedence over the shipped ones; the last of several that fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model: Vec<ModelFile>,
}

/// Treatment of unequal cores by Linux's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinuxKind {
    /// All cores are equal.
    Symmetric,
    /// Hybrid cores with SMT: the kernel ranks cores by priority, without misfit migration or an energy model.
    SmtHybrid,
    /// Asymmetric capacities with misfit migration, without an energy model.
    Capacity,
    /// Asymmetric capacities with an energy model.
    EnergyAware,
}

/// Core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreType {
    /// Short name of the core type, to which tabulated profiles refer.
    pub name: String,
    /// Evidence that distinguishes this type from the machine's other types, such as `PMU cpu_atom` or a gap between clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Largest number of instructions dispatched per cycle.
    pub dispatch_width: f64,
    /// Reorder buffer in instructions; for an in-order core, the number of instructions that overlap.
    pub window: u32,
    /// Name of the pipeline model: ports, registers, latencies, prefetchers. Without one, only width and window limit the speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// True if the core issues in program order and hides no latency.
    #[serde(default)]
    pub in_order: bool,
    /// Enabled hardware threads per core.
    #[serde(default = "one")]
    pub smt: u32,
    /// Sustained frequency, at which measured and simulated values of the type hold.
    pub freq_ghz: f64,
    /// The kernel's capacity, 1 to 1,024. The fastest type has 1,024, and so has every type if the kernel does not distinguish
    /// capacities ([`LinuxKind::Symmetric`], [`LinuxKind::SmtHybrid`]).
    pub capacity: u32,
    /// Cycles to refill the front end after a branch misprediction, in addition to its resolution.
    pub branch_penalty_cycles: f64,
    /// Nanoseconds by which memory is farther from these cores than `latency_ns` of their memory domain.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub memory_extra_ns: f64,
    /// Level-one data cache.
    pub l1d: PrivateCache,
    /// Level-two cache private to the core, if the core has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<PrivateCache>,
    /// Number of performance counters that can count any event.
    #[serde(default = "four")]
    pub counters: u32,
    /// Number of further counters: the first counts only cycles, the second only instructions.
    #[serde(default = "two")]
    pub fixed_counters: u32,
    /// Portable names of the events that these cores cannot count; they count all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<String>,
    /// Parameters of the energy model.
    pub power: CorePower,
    /// Idle states; without them an idle core enters the deep state at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleStates>,
    /// Operating points; without them the type always runs at `freq_ghz`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<Frequencies>,
    /// Model of the speed-up factors of threads that run on this type, over counters. Without it, the factors are derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sf_steps: Option<StepModel>,
}

impl CoreType {
    /// Returns the operating points of the core type, slowest first, or its single frequency as one point.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let only = Point {
            ghz: self.freq_ghz,
            power: 1.0,
        };
        let points = self.frequency.as_ref().map(|f| f.scaled(self.freq_ghz));
        points.unwrap_or_else(|| vec![only])
    }

    /// Returns the index in [`Self::points`] of the point at `freq_ghz`.
    #[must_use]
    pub fn nominal_point(&self) -> usize {
        let points = self.frequency.iter().flat_map(|f| &f.points);
        points.take_while(|p| p.ghz < self.freq_ghz).count()
    }

    /// Returns the index in [`Self::points`] of the fastest permitted point while `active` cores of the type are busy.
    #[must_use]
    pub fn fastest_point(&self, active: usize) -> usize {
        let frequency = self.frequency.as_ref();
        frequency.map_or(0, |f| f.fastest(active, self.freq_ghz))
    }

    /// Returns the energy (nJ) of a core that idles for `ns` nanoseconds.
    #[must_use]
    pub fn idle_nj(&self, ns: f64) -> f64 {
        let states = self.idle.as_ref();
        states.map_or(self.power.idle_w * ns, |s| {
            s.energy_nj(ns, self.power.idle_w)
        })
    }

    /// True if cores of this type can count an event.
    #[must_use]
    pub fn counts(&self, event: Event) -> bool {
        self.uncounted.iter().all(|name| name != event.def().name)
    }
}

/// Cache private to a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateCache {
    /// Capacity of the cache.
    pub size_kib: f64,
    /// Associativity.
    pub ways: u32,
    /// Load-to-use latency.
    pub latency_cycles: f64,
}

/// Cache shared by several CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedCache {
    /// Level of the cache: 2, 3 or 4 (system level).
    pub level: u32,
    /// CPUs that share the cache.
    pub cpus: CpuSet,
    /// Capacity of the cache.
    pub size_kib: f64,
    /// Associativity.
    pub ways: u32,
    /// Load-to-use latency in nanoseconds, because the cache rarely runs at the core's clock.
    pub latency_ns: f64,
    /// Energy of one access.
    #[serde(default)]
    pub access_nj: f64,
}

/// CPUs of one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// Name of the core type.
    #[serde(rename = "type")]
    pub core_type: String,
    /// Numbers of the logical CPUs.
    pub cpus: CpuSet,
    /// Distance between the numbers of SMT siblings: 1 if the numbers are consecutive.
    #[serde(default = "one")]
    pub sibling_step: u32,
    /// Threads online per core if fewer than the type's `smt`: some siblings are offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Index of the processor socket.
    #[serde(default)]
    pub socket: u32,
}

impl Cores {
    /// Returns the CPUs of each core: each core takes the lowest free CPU and its siblings. `None` if the CPUs form no whole
    /// cores.
    #[must_use]
    pub fn split(&self, core_type: &CoreType) -> Option<Vec<Vec<CpuId>>> {
        check::split_into_cores(
            &self.cpus,
            self.threads.unwrap_or(core_type.smt),
            self.sibling_step,
        )
    }
}

/// Memory domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// CPUs to which the memory is local.
    pub cpus: CpuSet,
    /// Latency of an access without load.
    pub latency_ns: f64,
    /// Sustained bandwidth, reads and writes together.
    pub bandwidth_gb_s: f64,
    /// Strength q of queueing: at utilisation u of the bandwidth, latency is 1 + q u^2 / (1 - u) times that without load.
    #[serde(
        default = "default_queueing",
        skip_serializing_if = "is_default_queueing"
    )]
    pub queueing: f64,
    /// Latency from a CPU of another memory node, relative to that from these CPUs. With the default of 1, all pages are local.
    #[serde(default = "default_remote", skip_serializing_if = "is_local")]
    pub remote: f64,
    /// Energy of the transfer of one cache line.
    #[serde(default)]
    pub access_nj: f64,
}

/// Strength of queueing where no measurement is known: the best fit to eleven published curves at up to 90 % of the bandwidth, with a
/// root mean square error of 8 % (`docs/machines.md`). At 50, 70 and 90 %, latency is 1.1, 1.3 and 2.2 times that without load.
pub const DEFAULT_QUEUEING: f64 = 0.15;

const fn default_queueing() -> f64 {
    DEFAULT_QUEUEING
}

#[allow(clippy::float_cmp)] // The default as it was written.
fn is_default_queueing(queueing: &f64) -> bool {
    *queueing == DEFAULT_QUEUEING
}

const fn default_remote() -> f64 {
    1.0
}

#[allow(clippy::float_cmp)] // The default as it was written.
fn is_local(remote: &f64) -> bool {
    *remote == default_remote()
}

/// Power of a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorePower {
    /// Power in a deep idle state.
    pub idle_w: f64,
    /// Power of a core that is clocked but executes nothing (leakage and clock tree). It is drawn while a thread runs.
    pub active_w: f64,
    /// Energy per instruction.
    pub instruction_nj: f64,
    /// Additional energy per scalar floating-point instruction.
    #[serde(default)]
    pub fp_nj: f64,
    /// Additional energy per vector instruction.
    #[serde(default)]
    pub simd_nj: f64,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_default(governor: &Governor) -> bool {
    *governor == Governor::default()
}

const fn default_hz() -> u32 {
    250
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

const fn four() -> u32 {
    4
}

impl Machine {
    /// Parses and checks a machine file.
    ///
    /// ```
    /// use countersteer_model::machine::Machine;
    ///
    /// # let text = include_str!("../../../../machines/quickia-2b-2s.toml");
    /// let machine = Machine::parse("quickia-2b-2s.toml", text)?;
    /// assert_eq!((machine.cpu_count(), machine.core_type.len()), (4, 2));
    /// // A mistake is reported with the file and its line.
    /// let wrong = text.replacen("freq_ghz", "freq_mhz", 1);
    /// let error = Machine::parse("quickia-2b-2s.toml", &wrong).unwrap_err();
    /// assert!(error.to_string().contains("quickia-2b-2s.toml:"));
    /// # Ok::<(), countersteer_model::textfile::TextError>(())
    /// ```
    ///
    /// # Errors
    /// Fails on a syntax error, an unknown field, or an impossible machine; the error contains the line.
    ///
    /// ```
    /// use countersteer_model::machine::Machine;
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/quickia-2b-2s.toml");
    /// let text = std::fs::read_to_string(path)?;
    /// let machine = Machine::parse("quickia-2b-2s.toml", &text)?;
    /// assert_eq!(machine.cpu_count(), 4);
    /// assert_eq!(machine.core_type[0].name, "penryn");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let machine: Self = parse_described(path, text)?;
        check::check(&machine).map_err(|problem| problem.locate(path, text))?;
        Ok(machine)
    }

    /// Returns the number of logical CPUs of the machine.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cores.iter().map(|c| c.cpus.len()).sum()
    }

    /// Returns the operating system's number of each CPU, indexed by the machine's CPU number.
    #[must_use]
    pub fn os_cpu_numbers(&self) -> Vec<CpuId> {
        let all = || CpuSet::first(u32::try_from(self.cpu_count()).unwrap_or(u32::MAX));
        self.os_cpus.clone().unwrap_or_else(all).iter().collect()
    }

    /// Returns the machine as the text of a TOML file.
    ///
    /// # Errors
    /// Never fails for a checked machine.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}
