//! Scheduling domains: the sets of CPUs that balance with each other, level by level.
//!
//! Input: a [`Topology`]. Output: a tree whose leaves are CPUs and whose inner nodes are domains. Domains are SMT cores, clusters
//! around a shared level-two cache, last-level caches, memory nodes, and the machine. The children of a domain are its groups.
//! Models `sd_init`, `build_sched_domains` and the removal of degenerate levels (kernel/sched/topology.c), and the counters of
//! `sched_domain_shared`. The counters are exact here, so that a check for work to balance takes constant time. Simplified: all
//! NUMA nodes have equal distances. Partial and full asymmetry of capacities are distinguished only in the search for an idle CPU
//! at wake-ups.

use countersteer_model::machine::LinuxKind;
use countersteer_model::topology::Topology;

use super::entity::NONE;
use super::mask::Mask;

/// Level of a domain, named after the resource that its CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DomainLevel {
    /// Single CPU, which is a group but never a domain.
    Cpu,
    Core,
    /// Domain of several cores that share a level-two cache.
    Cluster,
    Llc,
    /// Domain of a memory node that has several last-level caches.
    Package,
    Numa,
}

/// Scheduling domain or single CPU, and at the same time a group of its parent domain.
#[derive(Clone, Debug)]
pub(super) struct SchedDomain {
    pub level: DomainLevel,
    pub parent: u32,
    /// Indices of the domain's groups; empty for a CPU.
    pub children: Vec<u32>,
    pub cpus: Vec<u32>,
    pub mask: Mask,
    pub cores: u32,
    /// Sum of the CPUs' capacities.
    pub capacity: f64,
    /// Smallest capacity of a CPU in the domain.
    pub min_capacity: u32,
    /// Largest capacity of a CPU in the domain.
    pub max_capacity: u32,
    pub asym_capacity: bool,
    /// True if cores of higher priority are filled first (`SD_ASYM_PACKING`).
    pub asym_packing: bool,
    /// True if threads are spread over the parent's groups before two threads share a group (`SD_PREFER_SIBLING`).
    pub prefer_sibling: bool,
    /// Index of the CPU of highest priority.
    pub preferred: u32,
    /// Tolerated imbalance between groups in per cent: 117 tolerates a difference of 17 %.
    pub imbalance_pct: u64,
    /// Number of failed balances after which cache-hot threads are moved too.
    pub cache_nice_tries: u32,
    /// Number of threads up to which an imbalance between NUMA nodes is tolerated (`imb_numa_nr`).
    pub numa_slack: u32,
    pub runnable: u32,
    pub idle_cpus: u32,
    /// Number of CPUs with more than one runnable thread.
    pub overloaded: u32,
    /// Number of cores whose CPUs are all idle.
    pub idle_cores: u32,
    /// True if a balance inside this domain failed because of pinned threads. The parent must then not rely on the thread counts.
    pub imbalanced: bool,
    /// Counter that increases with every change of the thread counts and idle counts of this node.
    pub generation: u64,
}

impl SchedDomain {
    pub(super) fn weight(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// True if the CPUs are SMT siblings, which share the capacity of one core.
    pub(super) fn shares_capacity(&self) -> bool {
        self.level == DomainLevel::Core
    }

    pub(super) fn shares_llc(&self) -> bool {
        self.level <= DomainLevel::Llc
    }

    /// Index of the CPU that balances on behalf of the group if none of the group's CPUs is idle.
    pub(super) fn balance_cpu(&self) -> u32 {
        self.cpus[0]
    }
}

/// Function that returns a CPU's key at one level; CPUs with equal keys belong to one domain.
type DomainKey = fn(&Topology, usize) -> u32;

/// All scheduling domains of a machine.
#[derive(Clone, Debug)]
pub(super) struct Domains {
    /// Nodes of the domain tree: CPUs first, then domains, inner domains before outer ones.
    pub nodes: Vec<SchedDomain>,
    /// For each CPU: index of its LLC domain, else of the largest domain below that level, else of the CPU.
    pub llc: Vec<u32>,
    /// For each CPU: index of its cluster, else of its core domain, else of the CPU.
    pub cluster: Vec<u32>,
    /// For each CPU: index of its core domain; of the CPU if the core has no other CPU.
    pub core: Vec<u32>,
    /// For each CPU: index of the smallest domain around it that contains all capacities; `NONE` if all capacities are equal.
    pub full_capacity: Vec<u32>,
    /// For each CPU: priority for packing on SMT hybrids, where larger is better; zero on other machines.
    pub priority: Vec<u32>,
    pub root: u32,
    /// True if at least one core has several CPUs.
    pub smt: bool,
    /// True if at least one cluster is smaller than its last-level cache's domain.
    pub clusters: bool,
    /// True if CPU capacities differ and Linux knows them.
    pub asymmetric: bool,
}

/// Returns a CPU's capacity as Linux sees it: 1,024 on machines that do not report capacities.
pub(super) fn capacity(topology: &Topology, cpu: usize) -> u32 {
    match topology.linux {
        LinuxKind::Symmetric | LinuxKind::SmtHybrid => 1024,
        LinuxKind::Capacity | LinuxKind::EnergyAware => topology.cpus[cpu].capacity.clamp(1, 1024),
    }
}

impl Domains {
    pub(super) fn new(topology: &Topology) -> Self {
        Self::of(topology, &Mask::none(topology.cpus.len()))
    }

    /// Builds the domains of all CPUs but those that are offline, which are in no domain.
    pub(super) fn of(topology: &Topology, offline: &Mask) -> Self {
        let n = topology.cpus.len();
        let mut domains = Self {
            nodes: (0..n).map(|cpu| leaf(topology, cpu)).collect(),
            llc: (0..n as u32).collect(),
            cluster: (0..n as u32).collect(),
            core: (0..n as u32).collect(),
            full_capacity: vec![NONE; n],
            priority: priorities(topology),
            root: 0,
            smt: false,
            clusters: false,
            asymmetric: false,
        };
        let levels: [(DomainLevel, DomainKey); 5] = [
            (DomainLevel::Core, |t, c| t.cpus[c].core),
            (DomainLevel::Cluster, cluster_key),
            (DomainLevel::Llc, llc_key),
            (DomainLevel::Package, |t, c| t.cpus[c].memory),
            (DomainLevel::Numa, |_, _| 0),
        ];
        let online = |cpu: &u32| !offline.has(*cpu as usize);
        let mut tops: Vec<u32> = (0..n as u32).filter(online).collect();
        for (level, key) in levels {
            tops = domains.add_level(topology, level, key, &tops);
            let index = match level {
                DomainLevel::Core => &mut domains.core,
                DomainLevel::Cluster => &mut domains.cluster,
                DomainLevel::Llc => &mut domains.llc,
                _ => continue,
            };
            for top in &tops {
                for cpu in &domains.nodes[*top as usize].cpus {
                    index[*cpu as usize] = *top;
                }
            }
        }
        domains.root = tops.first().copied().unwrap_or(0);
        domains.finish(topology);
        domains
    }

    /// Joins the topmost nodes that have equal keys, and returns the new topmost nodes. A level that joins nothing is left out,
    /// like degenerate domains in the kernel.
    fn add_level(
        &mut self,
        topology: &Topology,
        level: DomainLevel,
        key: DomainKey,
        tops: &[u32],
    ) -> Vec<u32> {
        let mut keyed: Vec<(u32, u32)> = tops
            .iter()
            .map(|t| (key(topology, self.nodes[*t as usize].cpus[0] as usize), *t))
            .collect();
        keyed.sort_unstable_by_key(|(k, t)| (*k, self.nodes[*t as usize].cpus[0]));
        let mut next = Vec::new();
        for same in keyed.chunk_by(|a, b| a.0 == b.0) {
            if same.len() == 1 {
                next.push(same[0].1);
                continue;
            }
            let id = self.nodes.len() as u32;
            let children: Vec<u32> = same.iter().map(|(_, t)| *t).collect();
            let node = self.join(level, children.clone());
            self.nodes.push(node);
            for child in children {
                self.nodes[child as usize].parent = id;
            }
            next.push(id);
        }
        next.sort_unstable_by_key(|t| self.nodes[*t as usize].cpus[0]);
        next
    }

    fn join(&self, level: DomainLevel, children: Vec<u32>) -> SchedDomain {
        let parts: Vec<&SchedDomain> = children.iter().map(|c| &self.nodes[*c as usize]).collect();
        let mut cpus: Vec<u32> = parts.iter().flat_map(|p| p.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        let mut mask = parts[0].mask.clone();
        cpus.iter().for_each(|c| mask.set(*c as usize));
        let preferred = parts.iter().map(|p| p.preferred).reduce(|a, b| {
            if self.priority[b as usize] > self.priority[a as usize] {
                b
            } else {
                a
            }
        });
        let min = parts.iter().map(|p| p.min_capacity).min();
        let max = parts.iter().map(|p| p.max_capacity).max();
        SchedDomain {
            level,
            parent: NONE,
            idle_cpus: cpus.len() as u32,
            cpus,
            mask,
            cores: if level == DomainLevel::Core {
                1
            } else {
                parts.iter().map(|p| p.cores).sum()
            },
            capacity: parts.iter().map(|p| p.capacity).sum(),
            min_capacity: min.unwrap_or(1024),
            max_capacity: max.unwrap_or(1024),
            asym_capacity: min != max,
            preferred: preferred.unwrap_or(0),
            // Values from `sd_init` (kernel/sched/topology.c).
            imbalance_pct: if level == DomainLevel::Core { 110 } else { 117 },
            cache_nice_tries: match level {
                DomainLevel::Cpu | DomainLevel::Core => 0,
                DomainLevel::Cluster | DomainLevel::Llc | DomainLevel::Package => 1,
                DomainLevel::Numa => 2,
            },
            idle_cores: if level == DomainLevel::Core {
                1
            } else {
                parts.iter().map(|p| p.idle_cores).sum()
            },
            children,
            ..parts[0].clone()
        }
    }

    /// Sets the properties of the domains that depend on the whole tree.
    fn finish(&mut self, topology: &Topology) {
        let n = topology.cpus.len();
        self.smt = self.nodes.iter().any(|d| d.level == DomainLevel::Core);
        self.clusters = self.nodes.iter().any(|d| d.level == DomainLevel::Cluster);
        let root = &self.nodes[self.root as usize];
        self.asymmetric = root.asym_capacity;
        let min = root.min_capacity;
        let max = root.max_capacity;
        let packing = topology.linux == LinuxKind::SmtHybrid;
        for id in n..self.nodes.len() {
            let parent = self.nodes[id].parent;
            // `sd_init` (kernel/sched/topology.c) clears `SD_PREFER_SIBLING` below a domain of asymmetric capacity and on NUMA
            // levels.
            let spread = parent == NONE || !self.nodes[parent as usize].asym_capacity;
            let slack = self.numa_slack(id);
            let node = &mut self.nodes[id];
            node.prefer_sibling = spread && node.level != DomainLevel::Numa;
            node.asym_packing = packing
                && matches!(
                    node.level,
                    DomainLevel::Cluster | DomainLevel::Llc | DomainLevel::Package
                );
            node.numa_slack = slack;
        }
        if self.asymmetric {
            for cpu in 0..n {
                let sees_all = |d: &u32| {
                    let d = &self.nodes[*d as usize];
                    d.min_capacity == min && d.max_capacity == max
                };
                let smallest = self.path(cpu).find(sees_all).unwrap_or(self.root);
                self.full_capacity[cpu] = smallest;
            }
        }
    }

    /// Number of threads up to which an imbalance between NUMA nodes is tolerated: an eighth of the CPUs, or one per LLC
    /// (`build_sched_domains`).
    fn numa_slack(&self, id: usize) -> u32 {
        let node = &self.nodes[id];
        let llcs = node
            .cpus
            .iter()
            .map(|c| self.llc[*c as usize])
            .collect::<std::collections::BTreeSet<_>>()
            .len();
        if llcs <= 1 {
            (node.weight() >> 3).max(1)
        } else {
            llcs as u32
        }
    }

    /// Iterates over the domains that contain a CPU, inner ones first.
    pub(super) fn path(&self, cpu: usize) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.nodes[cpu].parent;
        std::iter::from_fn(move || {
            let node = at;
            (node != NONE).then(|| {
                at = self.nodes[node as usize].parent;
                node
            })
        })
    }

    /// Returns the group of domain `node` that contains `cpu`; `cpu` if there is none.
    pub(super) fn local_group(&self, node: u32, cpu: usize) -> u32 {
        let mut at = cpu as u32;
        while self.nodes[at as usize].parent != node {
            at = self.nodes[at as usize].parent;
            if at == NONE {
                return cpu as u32;
            }
        }
        at
    }

    pub(super) fn node(&self, id: u32) -> &SchedDomain {
        &self.nodes[id as usize]
    }

    pub(super) fn shares_cache(&self, a: usize, b: usize) -> bool {
        self.llc[a] == self.llc[b]
    }

    pub(super) fn shares_cluster(&self, a: usize, b: usize) -> bool {
        self.cluster[a] == self.cluster[b]
    }

    /// True if all CPUs of the core of `cpu` are idle.
    pub(super) fn core_is_idle(&self, cpu: usize) -> bool {
        let core = self.node(self.core[cpu]);
        core.idle_cpus == core.weight()
    }

    /// True if all other CPUs of the core of `cpu` are idle; `idle` is the state of `cpu`.
    pub(super) fn others_of_core_idle(&self, cpu: usize, idle: bool) -> bool {
        let core = self.node(self.core[cpu]);
        core.idle_cpus + u32::from(!idle) == core.weight()
    }

    /// Updates the thread counts of a CPU and its domains after the CPU's number of runnable threads changed.
    pub(super) fn count_runnable(&mut self, cpu: usize, before: u32, after: u32) {
        let was = before > 1;
        let is = after > 1;
        let mut at = cpu as u32;
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            node.runnable = node.runnable + after - before;
            node.overloaded = node.overloaded + u32::from(is) - u32::from(was);
            node.generation += 1;
            at = node.parent;
        }
    }

    /// Updates the idle counts of a CPU and its domains after the CPU became idle or busy.
    pub(super) fn count_idle(&mut self, cpu: usize, idle: bool) {
        let core = self.core[cpu];
        let mut at = cpu as u32;
        let mut core_changes = false;
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            let was_full = node.idle_cpus == node.cpus.len() as u32;
            if idle {
                node.idle_cpus += 1;
            } else {
                node.idle_cpus -= 1;
            }
            if at == core {
                core_changes = was_full != (node.idle_cpus == node.cpus.len() as u32);
            }
            if core_changes {
                if idle {
                    node.idle_cores += 1;
                } else {
                    node.idle_cores -= 1;
                }
            }
            node.generation += 1;
            at = node.parent;
        }
    }
}

fn leaf(topology: &Topology, cpu: usize) -> SchedDomain {
    let mut mask = Mask::none(topology.cpus.len());
    mask.set(cpu);
    let capacity = capacity(topology, cpu);
    SchedDomain {
        level: DomainLevel::Cpu,
        parent: NONE,
        children: Vec::new(),
        cpus: vec![cpu as u32],
        mask,
        cores: 1,
        capacity: f64::from(capacity),
        min_capacity: capacity,
        max_capacity: capacity,
        asym_capacity: false,
        asym_packing: false,
        prefer_sibling: false,
        preferred: cpu as u32,
        imbalance_pct: 117,
        cache_nice_tries: 0,
        numa_slack: 0,
        runnable: 0,
        idle_cpus: 1,
        overloaded: 0,
        idle_cores: 1,
        imbalanced: false,
        generation: 1,
    }
}

/// Returns the priorities of all CPUs: faster core types have higher priorities, SMT siblings have equal ones.
fn priorities(topology: &Topology) -> Vec<u32> {
    let types = topology.core_types.len() as u32;
    let hybrid = topology.linux == LinuxKind::SmtHybrid;
    topology
        .cpus
        .iter()
        .map(|c| if hybrid { types - c.core_type.0 } else { 0 })
        .collect()
}

/// Returns the key of a CPU's last-level cache as Linux sees it, that is, without system-level caches.
fn llc_key(topology: &Topology, cpu: usize) -> u32 {
    let caches = &topology.cpus[cpu].caches;
    let known = caches
        .iter()
        .rev()
        .find(|c| topology.caches[c.index()].level <= 3);
    known.or(caches.last()).map_or(u32::MAX, |c| c.0)
}

/// Beginnings of the names of Arm's core types; a machine file names no architecture.
const ARM: [&str; 8] = [
    "cortex-",
    "neoverse-",
    "kryo",
    "oryon",
    "firestorm",
    "icestorm",
    "avalanche",
    "blizzard",
];

/// Returns the key of a CPU's level-two cache; of its core if there is no such cache or it is the last level.
///
/// `cpu_clustergroup_mask`: on x86, CPUs that share a level-two cache are a cluster. On Arm, the firmware names the clusters
/// (`parse_cluster`, drivers/base/arch_topology.c). A machine file has no firmware, so its cores are taken to have none.
fn cluster_key(topology: &Topology, cpu: usize) -> u32 {
    let of = &topology.cpus[cpu];
    let name = &topology.core_types[of.core_type.index()].name;
    if ARM.iter().any(|prefix| name.starts_with(prefix)) {
        return topology.caches.len() as u32 + of.core;
    }
    let caches = &topology.cpus[cpu].caches;
    let llc = llc_key(topology, cpu);
    let shared = caches
        .iter()
        .find(|c| topology.caches[c.index()].level == 2 && c.0 != llc);
    shared.map_or_else(
        || topology.caches.len() as u32 + topology.cpus[cpu].core,
        |c| c.0,
    )
}
