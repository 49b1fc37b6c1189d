//! Topology: CPUs, core types, caches and core groups, as policies and schedulers see them.
//!
//! Input: a [`Machine`]. Output: dense tables, all indexed by the identifiers of [`crate::units`].

mod part;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::machine::{CoreType, Governor, LinuxKind, Machine, Memory, PowerLimit, models_for};
use crate::models::{self, Models};
use crate::units::{CacheId, CoreTypeId, CpuId, GroupId};

/// Topology of a machine as policies and schedulers see it.
///
/// ```
/// # use countersteer_model::machine::Machine;
/// use countersteer_model::topology::{GroupBy, Topology};
/// use countersteer_model::units::CpuId;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/quickia-2b-2s.toml");
/// # let machine = Machine::parse(path, &std::fs::read_to_string(path)?)?;
/// let topology = Topology::new(&machine);
/// let types = topology.groups_by(GroupBy::CoreType);
/// assert_eq!(types[0].cpus.to_string(), "0-1");
/// let of_cpu_3 = topology.group_of(CpuId(3), GroupBy::CoreType);
/// assert_eq!(of_cpu_3.map(|group| group.name.as_str()), Some("bonnell"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Topology {
    /// Name of the machine.
    pub name: String,
    /// Kind of treatment that Linux gives the core types.
    pub linux: LinuxKind,
    /// Timer interrupts per second of the kernel.
    pub hz: u32,
    /// Logical CPUs, indexed by number.
    pub cpus: Vec<Cpu>,
    /// Core types, fastest first (capacity, then frequency, then the file's order).
    pub core_types: Vec<CoreType>,
    /// Trained models of each core type, in the order of `core_types`.
    pub models: Vec<Models>,
    /// Shared caches, inner levels first. For a CPU without a shared cache, its private last level
    /// is included.
    pub caches: Vec<Cache>,
    /// Memory domains, each with its CPUs.
    pub memory: Vec<Memory>,
    /// Power of the package that belongs to no core, in watts.
    pub static_power_w: f64,
    /// Frequency governor of core types that have operating points.
    pub governor: Governor,
    /// Sustained power limit of the package; `None` without a limit.
    pub power_limit: Option<PowerLimit>,
    /// Core groups of all kinds; [`GroupBy::Machine`] has index 0.
    pub groups: Vec<Group>,
    /// Index in `groups` by CPU and kind, for a constant-time look-up of a CPU's group.
    group_rows: Vec<[GroupId; GROUP_KINDS]>,
}

/// Number of kinds of core groups.
const GROUP_KINDS: usize = 7;

/// Function that returns a CPU's group number for one kind of group, and the function that makes
/// the group's name.
type KeyOf = fn(&Cpu) -> (u32, fn(&Topology, u32) -> String);

/// Logical CPU with its core, caches and memory domain.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// Number of the CPU.
    pub id: CpuId,
    /// Index of the core; SMT siblings have the same.
    pub core: u32,
    /// Index among the SMT siblings of the core, from 0.
    pub thread: u32,
    /// Core type of the CPU.
    pub core_type: CoreTypeId,
    /// Capacity of the CPU as Linux defines it; 1,024 for the largest CPU.
    pub capacity: u32,
    /// Shared caches of the CPU, inner levels first. Never empty; the last entry is the last-level
    /// cache.
    pub caches: Vec<CacheId>,
    /// Index of the CPU's memory domain in [`Topology::memory`].
    pub memory: u32,
    /// Index of the processor socket.
    pub socket: u32,
    /// Index of the clock domain. CPUs of one clock domain always have the same frequency.
    pub clock: u32,
}

/// Cache outside the core, or a core's private last level.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Index of the cache in [`Topology::caches`].
    pub id: CacheId,
    /// Level of the cache, 1 to 4.
    pub level: u32,
    /// CPUs that share the cache.
    pub cpus: CpuSet,
    /// Capacity in 64-byte lines.
    pub lines: f64,
    /// Associativity of the cache.
    pub ways: u32,
    /// Load-to-use latency of a hit, in nanoseconds.
    pub latency_ns: f64,
    /// Energy of one access, in nJ.
    pub access_nj: f64,
    /// True if the cache is private to a core and listed only because it is the core's last level.
    pub private: bool,
}

/// Criterion of core groups.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum GroupBy {
    /// All CPUs.
    Machine,
    /// Core type, fastest first.
    CoreType,
    /// Last-level cache.
    Llc,
    /// Memory domain.
    Node,
    /// Socket.
    Socket,
    /// Physical core.
    Core,
    /// Logical CPU.
    Cpu,
}

/// Core group, the unit of placement. Placements assign threads to a group, and the kernel balances
/// load inside.
#[derive(Clone, Debug)]
pub struct Group {
    /// Index of the group in [`Topology::groups`].
    pub id: GroupId,
    /// Kind of the group: the property that its CPUs share.
    pub by: GroupBy,
    /// Name of the group: `golden-cove`, `llc1`, `core7`, ...
    pub name: String,
    /// CPUs of the group.
    pub cpus: Arc<CpuSet>,
    /// Number of physical cores in the group.
    pub cores: u32,
    /// Core type of the group; `None` if the cores are of several types.
    pub core_type: Option<CoreTypeId>,
}

/// Returns the models of each core type. Models in the machine's file take precedence over shipped
/// ones.
fn models(machine: &Machine, core_types: &[CoreType]) -> Vec<Models> {
    models_for(&machine.name, core_types, |core_type| {
        let own = machine.model.iter().filter(|m| m.core_type == core_type);
        let mut files = models::shipped_for(core_type);
        files.extend(own.cloned());
        files
    })
}

impl Topology {
    /// Derives the topology of a machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let mut core_types = machine.core_type.clone();
        core_types.sort_by(|a, b| {
            b.capacity
                .cmp(&a.capacity)
                .then(b.freq_ghz.total_cmp(&a.freq_ghz))
        });
        let mut topology = Self {
            name: machine.name.clone(),
            linux: machine.linux,
            hz: machine.hz,
            cpus: cpus(machine, &core_types),
            models: models(machine, &core_types),
            core_types,
            caches: Vec::new(),
            memory: machine.memory.clone(),
            static_power_w: machine.static_power_w,
            governor: machine.governor,
            power_limit: machine.power_limit,
            groups: Vec::new(),
            group_rows: Vec::new(),
        };
        topology.add_caches(machine);
        topology.add_groups();
        topology
    }

    /// Returns the core groups of one kind, in order.
    #[must_use]
    pub fn groups_by(&self, by: GroupBy) -> &[Group] {
        let start = self.groups.partition_point(|g| g.by < by);
        let end = self.groups.partition_point(|g| g.by <= by);
        &self.groups[start..end]
    }

    /// Returns the group of one kind that contains `cpu`; `None` for an unknown CPU.
    #[must_use]
    pub fn group_of(&self, cpu: CpuId, by: GroupBy) -> Option<&Group> {
        self.group_rows
            .get(cpu.index())
            .map(|row| self.group(row[by as usize]))
    }

    /// Returns the group with an identifier.
    #[must_use]
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.index()]
    }

    /// Returns the group with a name; `None` if there is none.
    #[must_use]
    pub fn group_named(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|g| g.name == name)
    }

    /// Returns the core type of a CPU.
    #[must_use]
    pub fn core_type_of(&self, cpu: CpuId) -> CoreTypeId {
        self.cpus[cpu.index()].core_type
    }

    /// Returns the last-level cache of a CPU.
    #[must_use]
    pub fn llc_of(&self, cpu: CpuId) -> CacheId {
        self.cpus[cpu.index()]
            .caches
            .last()
            .copied()
            .unwrap_or_default()
    }

    /// Returns the fastest and the slowest core type; both are equal if there is only one.
    #[must_use]
    pub fn extremes(&self) -> (CoreTypeId, CoreTypeId) {
        (
            CoreTypeId(0),
            CoreTypeId::from_index(self.core_types.len().saturating_sub(1)),
        )
    }

    fn add_caches(&mut self, machine: &Machine) {
        let mut shared: Vec<_> = machine.cache.iter().collect();
        shared.sort_by_key(|c| (c.level, c.cpus.lowest()));
        for c in shared {
            let id = CacheId::from_index(self.caches.len());
            for cpu in c.cpus.iter() {
                self.cpus[cpu.index()].caches.push(id);
            }
            self.caches.push(Cache {
                id,
                level: c.level,
                cpus: c.cpus.clone(),
                lines: c.size_kib * 16.0,
                ways: c.ways,
                latency_ns: c.latency_ns,
                access_nj: c.access_nj,
                private: false,
            });
        }
        for first in 0..self.cpus.len() {
            if self.cpus[first].caches.is_empty() {
                self.add_private_last_level(first);
            }
        }
    }

    fn add_private_last_level(&mut self, first: usize) {
        let core = self.cpus[first].core;
        let core_type = &self.core_types[self.cpus[first].core_type.index()];
        let (level, cache) = core_type.l2.map_or((1, core_type.l1d), |l2| (2, l2));
        let id = CacheId::from_index(self.caches.len());
        let cpus: CpuSet = self
            .cpus
            .iter()
            .filter(|c| c.core == core)
            .map(|c| c.id)
            .collect();
        let latency_ns = cache.latency_cycles / core_type.freq_ghz;
        for cpu in cpus.iter() {
            self.cpus[cpu.index()].caches.push(id);
        }
        let lines = cache.size_kib * 16.0;
        let ways = cache.ways;
        self.caches.push(Cache {
            id,
            level,
            cpus,
            lines,
            ways,
            latency_ns,
            access_nj: 0.0,
            private: true,
        });
    }

    fn add_groups(&mut self) {
        let kinds: [(GroupBy, KeyOf); GROUP_KINDS] = [
            (GroupBy::Machine, |_| (0, |_, _| "machine".into())),
            (GroupBy::CoreType, |c| {
                (c.core_type.0, |t, k| t.core_types[k as usize].name.clone())
            }),
            (GroupBy::Llc, |c| {
                (c.caches.last().map_or(0, |l| l.0), |_, k| {
                    format!("cache{k}")
                })
            }),
            (GroupBy::Node, |c| (c.memory, |_, k| format!("node{k}"))),
            (GroupBy::Socket, |c| (c.socket, |_, k| format!("socket{k}"))),
            (GroupBy::Core, |c| (c.core, |_, k| format!("core{k}"))),
            (GroupBy::Cpu, |c| (c.id.0, |_, k| format!("cpu{k}"))),
        ];
        for (by, key) in kinds {
            let mut members: std::collections::BTreeMap<u32, (CpuSet, String)> =
                std::collections::BTreeMap::new();
            for cpu in &self.cpus {
                let (k, name) = key(cpu);
                members
                    .entry(k)
                    .or_insert_with(|| (CpuSet::default(), name(self, k)))
                    .0
                    .insert(cpu.id);
            }
            for (nth, (_, (cpus, mut name))) in members.into_iter().enumerate() {
                if by == GroupBy::Llc {
                    name = format!("llc{nth}");
                }
                let group = self.group_from(by, name, cpus);
                self.groups.push(group);
            }
        }
        self.group_rows = vec![[GroupId(0); GROUP_KINDS]; self.cpus.len()];
        for group in &self.groups {
            for cpu in group.cpus.iter() {
                self.group_rows[cpu.index()][group.by as usize] = group.id;
            }
        }
    }

    fn group_from(&self, by: GroupBy, name: String, cpus: CpuSet) -> Group {
        let mut cores: Vec<u32> = cpus.iter().map(|c| self.cpus[c.index()].core).collect();
        cores.sort_unstable();
        cores.dedup();
        let first = cpus.lowest().map(|c| self.core_type_of(c));
        let core_type = first.filter(|t| cpus.iter().all(|c| self.core_type_of(c) == *t));
        Group {
            id: GroupId::from_index(self.groups.len()),
            by,
            name,
            cpus: Arc::new(cpus),
            cores: u32::try_from(cores.len()).unwrap_or(u32::MAX),
            core_type,
        }
    }
}

fn cpus(machine: &Machine, core_types: &[CoreType]) -> Vec<Cpu> {
    let mut cpus = Vec::with_capacity(machine.cpu_count());
    let mut clocks = 0u32;
    for range in &machine.cores {
        let Some(row) = core_types.iter().position(|t| t.name == range.core_type) else {
            continue;
        };
        let shared = core_types[row].frequency.as_ref().is_some_and(|f| f.shared);
        clocks += 1;
        for (nth, core) in range
            .split(&core_types[row])
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            clocks += u32::from(!shared && nth > 0);
            for (thread, id) in core.iter().enumerate() {
                let memory = machine
                    .memory
                    .iter()
                    .position(|m| m.cpus.contains(*id))
                    .unwrap_or(0);
                cpus.push(Cpu {
                    id: *id,
                    core: core[0].0,
                    thread: thread as u32,
                    core_type: CoreTypeId::from_index(row),
                    capacity: core_types[row].capacity,
                    caches: Vec::new(),
                    memory: memory as u32,
                    socket: range.socket,
                    clock: clocks - 1,
                });
            }
        }
    }
    cpus.sort_by_key(|c| c.id);
    let mut firsts: Vec<u32> = cpus.iter().map(|c| c.core).collect();
    firsts.dedup();
    firsts.sort_unstable();
    firsts.dedup();
    for cpu in &mut cpus {
        cpu.core = firsts.partition_point(|f| *f < cpu.core) as u32;
    }
    cpus
}
