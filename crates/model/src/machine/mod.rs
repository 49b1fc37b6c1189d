//! Machines: what a `machines/*.toml` file says.
//!
//! Input: TOML text. Output: a checked [`Machine`]; the topology is derived from it and is what policies
//! and schedulers look at.

mod check;
mod frequency;
mod held;
mod models;
mod pipeline;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::events::Event;
use crate::models::{ModelFile, StepModel};
use crate::textfile::{TextError, parse_toml};
use crate::units::CpuId;

pub use frequency::{Frequencies, Governor, IdleStates, OperatingPoint, Point, PowerLimit};
pub use held::SfSpread;
pub use models::{is_for, models_for, swaps_for};
pub use pipeline::{CorePipeline, Latencies, MAX_PORT_SETS, Queue, Unit, UnitSet};

/// The schema name that every machine file carries.
pub const SCHEMA: &str = "countersteer.machine/1";

/// A machine: core types, where their CPUs are, caches, memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// `countersteer.machine/1`.
    pub schema: String,
    /// Short name, lower case with dashes.
    pub name: String,
    /// One line for lists.
    pub title: String,
    /// Where the figures are from, and which are estimates.
    pub source: String,
    /// How Linux treats it.
    pub linux: LinuxKind,
    /// Timer interrupts per second.
    #[serde(default = "default_hz")]
    pub hz: u32,
    /// Power of the package that no core accounts for.
    #[serde(default)]
    pub static_power_w: f64,
    /// The governor of core types that have operating points.
    #[serde(default, skip_serializing_if = "is_default")]
    pub governor: Governor,
    /// What the package may take for long; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit: Option<PowerLimit>,
    /// The operating system's numbers of CPUs 0, 1, 2, ... in order; left out when they are the same, as on every machine
    /// with all its CPUs online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_cpus: Option<CpuSet>,
    /// Core types, in any order; of two alike in capacity and frequency, the faster first.
    pub core_type: Vec<CoreType>,
    /// Which CPUs are of which type. Together they are `0 .. n` without holes.
    pub cores: Vec<Cores>,
    /// Caches shared by several cores, in any order.
    #[serde(default)]
    pub cache: Vec<SharedCache>,
    /// Memory domains; each CPU belongs to one.
    pub memory: Vec<Memory>,
    /// Trained models of speed-up and energy factors, which go before those that are shipped; the last of several that fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model: Vec<ModelFile>,
}

/// Which of Linux's ways to treat unequal cores applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinuxKind {
    /// All cores alike.
    Symmetric,
    /// Hybrid with SMT: cores ranked by priority, no misfit migration, no energy model.
    SmtHybrid,
    /// Asymmetric capacity, misfit migration, no energy model.
    Capacity,
    /// Asymmetric capacity and an energy model.
    EnergyAware,
}

/// A core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreType {
    /// Short name; tabulated profiles refer to it.
    pub name: String,
    /// Evidence that sets it apart from the machine's other types, such as `PMU cpu_atom` or a gap between clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Instructions dispatched per cycle at most.
    pub dispatch_width: f64,
    /// Reorder window in instructions; for an in-order core, what it overlaps at all.
    pub window: u32,
    /// Name of its pipeline: ports, queues, latencies, prefetchers. Without one, width and window are all that bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// Issues in program order: hides no latency.
    #[serde(default)]
    pub in_order: bool,
    /// Hardware threads per core that are switched on.
    #[serde(default = "one")]
    pub smt: u32,
    /// Sustained frequency; measured and simulated figures of the type hold at it.
    pub freq_ghz: f64,
    /// Capacity as the kernel has it, 1 to 1,024; the fastest type has 1,024, and so has every type where the kernel does
    /// not tell capacities apart ([`LinuxKind::Symmetric`], [`LinuxKind::SmtHybrid`]).
    pub capacity: u32,
    /// Cycles to refill the front end after a mispredicted branch; its resolution comes on top.
    pub branch_penalty_cycles: f64,
    /// Level-one data cache.
    pub l1d: PrivateCache,
    /// Level-two cache private to the core, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<PrivateCache>,
    /// Performance counters that take any event.
    #[serde(default = "four")]
    pub counters: u32,
    /// Counters besides that count cycles alone, and, with a second one, instructions.
    #[serde(default = "two")]
    pub fixed_counters: u32,
    /// Events, by portable name, that these cores have no counter for; they count all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<String>,
    /// Energy model.
    pub power: CorePower,
    /// Idle states; without them an idle core is in the deep one at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleStates>,
    /// Operating points; without them it runs at `freq_ghz` all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<Frequencies>,
    /// Speed-up factors of threads that run here, as step tables over counters; derived where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sf_steps: Option<StepModel>,
}

impl CoreType {
    /// Frequencies it may have, slowest first: its operating points, or the one that it always has.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let only = Point {
            ghz: self.freq_ghz,
            power: 1.0,
        };
        let points = self.frequency.as_ref().map(|f| f.scaled(self.freq_ghz));
        points.unwrap_or_else(|| vec![only])
    }

    /// Row of [`Self::points`] at `freq_ghz`.
    #[must_use]
    pub fn nominal_point(&self) -> usize {
        let points = self.frequency.iter().flat_map(|f| &f.points);
        points.take_while(|p| p.ghz < self.freq_ghz).count()
    }

    /// Row of [`Self::points`] of the fastest while `active` cores of the type run something.
    #[must_use]
    pub fn fastest_point(&self, active: usize) -> usize {
        let frequency = self.frequency.as_ref();
        frequency.map_or(0, |f| f.fastest(active, self.freq_ghz))
    }

    /// Energy (nJ) of a core that idles for so many ns.
    #[must_use]
    pub fn idle_nj(&self, ns: f64) -> f64 {
        let states = self.idle.as_ref();
        states.map_or(self.power.idle_w * ns, |s| {
            s.energy_nj(ns, self.power.idle_w)
        })
    }

    /// Whether these cores have a counter for an event.
    #[must_use]
    pub fn counts(&self, event: Event) -> bool {
        self.uncounted.iter().all(|name| name != event.def().name)
    }
}

/// A cache private to a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateCache {
    /// Capacity.
    pub size_kib: f64,
    /// Associativity.
    pub ways: u32,
    /// Load-to-use latency.
    pub latency_cycles: f64,
}

/// A cache shared by several CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedCache {
    /// 2, 3 or 4 (system level).
    pub level: u32,
    /// The CPUs that share it.
    pub cpus: CpuSet,
    /// Capacity.
    pub size_kib: f64,
    /// Associativity.
    pub ways: u32,
    /// Load-to-use latency; in nanoseconds, since it rarely runs at the core's clock.
    pub latency_ns: f64,
    /// Energy of an access.
    #[serde(default)]
    pub access_nj: f64,
}

/// CPUs of one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// Name of a core type.
    #[serde(rename = "type")]
    pub core_type: String,
    /// The logical CPUs.
    pub cpus: CpuSet,
    /// Distance between the numbers of SMT siblings: 1 when they are neighbours.
    #[serde(default = "one")]
    pub sibling_step: u32,
    /// Threads online per core, where that is fewer than the type's `smt`: some siblings are offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Processor socket.
    #[serde(default)]
    pub socket: u32,
}

impl Cores {
    /// The CPUs core by core: each core takes the lowest free CPU and its siblings. `None` if they make no whole cores.
    #[must_use]
    pub fn split(&self, core_type: &CoreType) -> Option<Vec<Vec<CpuId>>> {
        check::split_into_cores(
            &self.cpus,
            self.threads.unwrap_or(core_type.smt),
            self.sibling_step,
        )
    }
}

/// A memory domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The CPUs it is local to.
    pub cpus: CpuSet,
    /// Unloaded latency.
    pub latency_ns: f64,
    /// Sustained bandwidth, reads and writes together.
    pub bandwidth_gb_s: f64,
    /// Energy of a line transferred.
    #[serde(default)]
    pub access_nj: f64,
}

/// Power of a core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorePower {
    /// In a deep idle state.
    pub idle_w: f64,
    /// Clocked and doing nothing: leakage and clock tree, paid while a thread runs.
    pub active_w: f64,
    /// Per instruction.
    pub instruction_nj: f64,
    /// On top, per scalar floating-point instruction.
    #[serde(default)]
    pub fp_nj: f64,
    /// On top, per vector instruction.
    #[serde(default)]
    pub simd_nj: f64,
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
    /// # Errors
    /// Syntax, unknown fields, or an impossible machine, with the line.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        let machine: Self = parse_toml(path, text)?;
        check::check(&machine).map_err(|problem| problem.locate(path, text))?;
        Ok(machine)
    }

    /// Logical CPUs.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cores.iter().map(|c| c.cpus.len()).sum()
    }

    /// The operating system's CPU numbers, indexed by this machine's.
    #[must_use]
    pub fn os_cpu_numbers(&self) -> Vec<CpuId> {
        let all = || CpuSet::first(u32::try_from(self.cpu_count()).unwrap_or(u32::MAX));
        self.os_cpus.clone().unwrap_or_else(all).iter().collect()
    }

    /// The machine as a TOML file.
    ///
    /// # Errors
    /// None for a checked machine.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}
