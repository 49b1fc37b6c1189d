//! Caches of the machine in traced simulation.
//!
//! Input: a topology, and accesses of threads on CPUs. Output: misses of the private caches, logged for the weave phase.

use std::collections::BTreeSet;

use countersteer_cache::cache::LINE_BITS;
use countersteer_cache::prefetch::Prefetch;
use countersteer_cache::private::{AccessKind, CoreRequest, Private, ServingLevel as By};
use countersteer_cache::shared::{Inclusion, SharedTree};
use countersteer_cache::space::Spaces;
use countersteer_cache::wire::BlockHead;
use countersteer_cache::{Cache, Geometry, LineKey, Replacement};
use countersteer_model::topology::Topology;
use countersteer_model::units::CacheId;

use crate::progress::analytic::{ClassCpu, MAX_LEVELS};

/// Numbers of misses and memory transfers of a CPU's accesses in a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTransfers {
    pub private_misses: f64,
    /// Number of requests for lines that another core had modified.
    pub shared_modified: f64,
    /// Number of references to each shared level, inner first.
    pub references: [f64; MAX_LEVELS],
    /// Number of misses in each shared level, inner first.
    pub misses: [f64; MAX_LEVELS],
    /// Number of lines transferred from and to memory, including those of instruction fetches.
    pub memory_lines: f64,
}

/// Number of lines that a program holds in each shared level of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldLines {
    pub lines: [f64; MAX_LEVELS],
}

/// Request of a core to the shared caches, logged for the weave phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub at_ps: u64,
    pub cpu: u32,
    pub data: bool,
    pub request: CoreRequest,
}

/// Creates a cache. The caches of checked machines have at least one set and 1 to 64 ways, so that creation succeeds.
fn cache(lines: f64, ways: u32) -> Cache {
    let ways = ways.clamp(1, countersteer_cache::cache::MOST_WAYS);
    let geometry = Geometry::of_bytes(lines * 64.0, ways);
    match Cache::new(geometry, Replacement::Lru) {
        Ok(cache) => cache,
        Err(error) => unreachable!("{error}"),
    }
}

pub struct TracedMachine {
    pub(super) cores: Vec<Private>,
    pub(super) shared: SharedTree,
    /// Index in `shared` of each cache of the topology; `None` if the cache is private.
    nodes: Vec<Option<usize>>,
    /// For each CPU: indices in `shared` of its shared caches, inner first.
    pub(super) chains: Vec<Vec<usize>>,
    /// Indices in `shared` of the last-level caches, without duplicates.
    pub(super) last: Vec<usize>,
    pub(super) core_of: Vec<usize>,
    pub(super) log: Vec<Logged>,
    pub(super) served: Vec<StepTransfers>,
    requests: Vec<CoreRequest>,
    /// Address spaces of each copy of a program, indexed by owner.
    spaces: Vec<Spaces>,
}

impl TracedMachine {
    pub fn new(topology: &Topology, cpus: &[ClassCpu]) -> Self {
        let mut shared = SharedTree::default();
        let mut nodes: Vec<Option<usize>> = vec![None; topology.caches.len()];
        // Outer caches come first, so that each cache finds its parent.
        for cpu in cpus {
            let mut parent = None;
            for id in cpu.chain[..cpu.levels].iter().rev() {
                let of = &topology.caches[*id as usize];
                let node = &mut nodes[*id as usize];
                let added = node.unwrap_or_else(|| {
                    let cache = cache(of.lines, of.ways).scattered();
                    shared.add(cache, Inclusion::NonInclusive, parent)
                });
                *node = Some(added);
                parent = Some(added);
            }
        }
        let cores = cpus.iter().map(|c| c.core as usize + 1).max().unwrap_or(0);
        let private = |core: usize| {
            let core_type = cpus
                .iter()
                .find(|c| c.core as usize == core)
                .map_or(0, |c| c.core_type);
            let core_type = &topology.core_types[core_type as usize];
            let l1 = cache(core_type.l1d.size_kib * 16.0, core_type.l1d.ways);
            let l2 = core_type
                .l2
                .map(|l2| cache(l2.size_kib * 16.0, l2.ways).scattered());
            Private::new(l1.clone(), l1, l2, Prefetch::None)
        };
        let chain = |cpu: &ClassCpu| {
            cpu.chain[..cpu.levels]
                .iter()
                .filter_map(|id| nodes[*id as usize])
                .collect()
        };
        let chains: Vec<Vec<usize>> = cpus.iter().map(chain).collect();
        let last: BTreeSet<usize> = chains.iter().filter_map(|c| c.last().copied()).collect();
        Self {
            cores: (0..cores).map(private).collect(),
            chains,
            last: last.into_iter().collect(),
            core_of: cpus.iter().map(|c| c.core as usize).collect(),
            served: vec![StepTransfers::default(); cpus.len()],
            log: Vec::new(),
            requests: Vec::new(),
            spaces: Vec::new(),
            shared,
            nodes,
        }
    }

    /// Makes an access on CPU `row` at time `at_ns` of the step. Returns true if it is a data access that missed the first-level
    /// cache.
    #[inline]
    pub fn access(&mut self, row: usize, access: AccessKind, key: LineKey, at_ns: f64) -> bool {
        let served = self.cores[self.core_of[row]].access(access, key, &mut self.requests);
        if !self.requests.is_empty() {
            self.log_requests(row, access, at_ns);
        }
        access != AccessKind::Fetch && served != By::First
    }

    #[inline(never)]
    fn log_requests(&mut self, row: usize, access: AccessKind, at_ns: f64) {
        let data = access != AccessKind::Fetch;
        let (at_ps, cpu) = ((at_ns * 1000.0) as u64, row as u32);
        for request in self.requests.drain(..) {
            if data && matches!(request, CoreRequest::Demand { .. }) {
                self.served[row].private_misses += 1.0;
            }
            self.log.push(Logged {
                at_ps,
                cpu,
                data,
                request,
            });
        }
    }

    /// Returns the mark that separates the lines of a block's process from those of the owner's other processes.
    pub fn mark(&mut self, owner: u16, head: &BlockHead) -> u64 {
        let owner = usize::from(owner);
        if self.spaces.len() <= owner {
            self.spaces.resize_with(owner + 1, Spaces::default);
        }
        self.spaces[owner].mark(head, LINE_BITS)
    }

    /// Returns the counts of CPU `row` since the last call, and resets them.
    pub(crate) fn take_served(&mut self, row: usize) -> StepTransfers {
        std::mem::take(&mut self.served[row])
    }

    pub fn held(&self, row: usize, owner: u16) -> HeldLines {
        let mut held = HeldLines::default();
        for (lines, node) in held.lines.iter_mut().zip(&self.chains[row]) {
            *lines = self.shared.cache(*node).tally(usize::from(owner)).lines as f64;
        }
        held
    }

    /// Returns the index in `shared` of a cache of the topology; `None` if the cache is private.
    pub(super) fn node(&self, cache: CacheId) -> Option<usize> {
        self.nodes.get(cache.index()).copied().flatten()
    }

    /// Number of lines of all programs in the shared last-level caches.
    pub(crate) fn last_level_lines(&self, programs: u16) -> f64 {
        let caches = self.last.iter().map(|node| self.shared.cache(*node));
        let held = caches.map(|cache| {
            let lines = (1..=programs).map(|owner| cache.tally(usize::from(owner)).lines);
            lines.sum::<u64>()
        });
        held.sum::<u64>() as f64
    }

    /// Number of lines of a program in a cache of the topology. For a private cache, these are its lines in the outermost private
    /// cache of `core`.
    pub fn lines(&self, cache: CacheId, owner: u16, core: Option<usize>) -> f64 {
        let owner = usize::from(owner);
        if let Some(node) = self.node(cache) {
            return self.shared.cache(node).tally(owner).lines as f64;
        }
        let own = core.and_then(|core| self.cores.get(core));
        own.map_or(0.0, |own| {
            own.second.as_ref().unwrap_or(&own.data).tally(owner).lines as f64
        })
    }
}
