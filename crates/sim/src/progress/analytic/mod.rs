//! Analytic progress model: computes the rates of running threads from program profiles.
//!
//! Input: profiles, and from the engine the running thread of each CPU. Output: the times at which threads finish their work,
//! their counters, their occupancy of each shared cache, and the energy spent. The model knows nothing about schedulers.
//!
//! - `interval` computes cycles per instruction from recorded behaviour (interval analysis). `core_bounds` bounds the speed
//!   between miss events by width, ports and dependences. `measured` uses the speeds in tabulated profiles. Both fill
//!   `table`s over cache occupancy, once per program and class of CPUs.
//! - `shared` moves occupancies of shared caches towards those of footprint composition. `memory` increases latency with
//!   load. `cores` tracks the contents of private caches.
//! - `running` applies rates. Rates hold until an event changes them, so that threads are integrated lazily and finish times
//!   are exact.
//! - `steady` forecasts static mappings, and `slices` those with several threads on a CPU.

mod agenda;
mod ceiling;
mod class;
mod config;
mod core_bounds;
mod cores;
mod curves;
mod efficiency;
mod interval;
mod measured;
mod memory;
mod model;
mod parts;
mod pool;
mod reach;
mod running;
mod shared;
mod shared_data;
mod sharing;
mod siblings;
mod signature;
mod slices;
mod spent;
mod steady;
mod switching;
pub mod synthetic;
mod table;
mod thread;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CacheId, CoreTypeId, CpuId, Nanos, ThreadId};

use agenda::Agenda;
use class::{CpuClass, NONE};
pub use config::ProgressConfig;
use cores::CoreContents;
pub(super) use memory::MemoryDomain;
use model::ProgramModel;
use parts::CacheDivision;
use pool::{Pool, Stepping};
use shared::AnalyticCache;
use table::RateTable;
use thread::AnalyticThread;

pub(super) use class::ClassCpu;
pub(super) use class::MAX_LEVELS;
pub(super) use interval::{Cycles, MeasuredMisses, Timing};
pub(super) use siblings::Beside;
pub use siblings::SHARED_PARTS;
pub use signature::signature;
use spent::AnalyticEnergy;
pub use spent::EnergyParts;

use super::{Ceilings, ModelError, ModelId, ProgressModel, SteadyRates, TrueCounters};

pub struct Analytic {
    topology: Arc<Topology>,
    config: ProgressConfig,
    stepping: Stepping,
    classes: Vec<CpuClass>,
    /// For each core type: index of the class on which a program is fastest alone.
    best: Vec<u32>,
    cpus: Vec<ClassCpu>,
    models: Vec<ProgramModel>,
    /// Rate tables of all programs; forecasts share them.
    tables: Arc<Vec<RateTable>>,
    threads: Vec<AnalyticThread>,
    /// Threads of each copy of a program.
    copies: Vec<Vec<u32>>,
    /// Index of the thread on each CPU; [`NONE`] if the CPU is idle.
    on_cpu: Vec<u32>,
    /// Index of the last thread that was switched in on each CPU; [`NONE`] if there is none.
    on_cpu_before: Vec<u32>,
    caches: Vec<AnalyticCache>,
    /// Partitions of shared caches. Each part is an entry of `caches` after those of the topology.
    divisions: BTreeMap<u32, CacheDivision>,
    pools: Vec<Pool>,
    memories: Vec<MemoryDomain>,
    /// True if a memory domain is slower for CPUs of other domains.
    remote: bool,
    cores: Vec<CoreContents>,
    /// Times of the next events: one row per pool, then one per memory domain.
    agenda: Agenda,
    stale_pools: Vec<u32>,
    dirty_memories: Vec<u32>,
    finished: Vec<u32>,
    spent: AnalyticEnergy,
    clock: u64,
}

impl Analytic {
    /// Creates the model of an idle machine at time zero.
    #[must_use]
    pub fn new(topology: Arc<Topology>, config: ProgressConfig) -> Self {
        let (classes, cpus) = class::classify(&topology);
        let best = class::best_classes(&topology, &classes);
        Self::with(topology, config, (classes, best), cpus)
    }

    /// Creates the model of the same machine without threads, at the frequencies of `cpus`; programs must be added to `models`.
    fn empty(&self, cpus: Vec<ClassCpu>) -> Self {
        let (topology, config) = (Arc::clone(&self.topology), self.config.clone());
        Self {
            tables: Arc::clone(&self.tables),
            ..Self::with(topology, config, (Vec::new(), Vec::new()), cpus)
        }
    }

    fn with(
        topology: Arc<Topology>,
        config: ProgressConfig,
        (classes, best): (Vec<CpuClass>, Vec<u32>),
        cpus: Vec<ClassCpu>,
    ) -> Self {
        let mut pools = pool::pools(&cpus, topology.caches.len());
        if !config.contention {
            pools.iter_mut().for_each(|p| p.caches.clear());
        }
        let mut memories: Vec<_> = topology.memory.iter().map(MemoryDomain::new).collect();
        for cpu in &cpus {
            let of = &mut memories[cpu.memory as usize].pools;
            if !of.contains(&cpu.pool) {
                of.push(cpu.pool);
            }
        }
        let remote = memories.iter().any(|memory| memory.remote > 1.0);
        if remote {
            // Threads of all pools may have their pages in any domain.
            let all: Vec<u32> = (0..pools.len() as u32).collect();
            memories.iter_mut().for_each(|m| m.pools.clone_from(&all));
        }
        let mut cores = vec![
            CoreContents::new(1.0);
            cpus.iter().map(|c| c.core as usize + 1).max().unwrap_or(0)
        ];
        for cpu in &cpus {
            let core_type = &topology.core_types[cpu.core_type as usize];
            cores[cpu.core as usize] =
                CoreContents::new(core_type.l2.unwrap_or(core_type.l1d).size_kib * 16.0);
        }
        Self {
            on_cpu: vec![NONE; cpus.len()],
            on_cpu_before: vec![NONE; cpus.len()],
            caches: topology
                .caches
                .iter()
                .map(|c| AnalyticCache::new(c.lines))
                .collect(),
            divisions: BTreeMap::new(),
            agenda: Agenda::new(pools.len() + memories.len()),
            stale_pools: Vec::with_capacity(pools.len()),
            dirty_memories: Vec::with_capacity(2 * memories.len()),
            finished: Vec::with_capacity(cpus.len()),
            spent: AnalyticEnergy {
                core_nj: vec![0.0; topology.core_types.len()],
                cache_nj: 0.0,
                memory_nj: 0.0,
            },
            models: Vec::new(),
            tables: Arc::default(),
            threads: Vec::new(),
            copies: Vec::new(),
            clock: 0,
            topology,
            config,
            stepping: Stepping::default(),
            classes,
            best,
            cpus,
            pools,
            memories,
            remote,
            cores,
        }
    }

    /// Returns the CPUs in the form that progress models use.
    pub(super) fn cpus(&self) -> &[ClassCpu] {
        &self.cpus
    }

    /// Returns the timing models of a profile's behaviours, which compute cycles from actual misses. They are indexed by
    /// behaviour, then by class of CPUs.
    pub(super) fn timings(
        &self,
        profile: &countersteer_model::profile::Recorded,
    ) -> Vec<Vec<Timing>> {
        let of = |behaviour| {
            let classes = self.classes.iter();
            let timing = classes
                .map(|c| Timing::new(behaviour, &self.topology.core_types[c.core_type.index()], c));
            timing.collect()
        };
        profile.behaviours.iter().map(of).collect()
    }

    /// Instructions per second of a program alone on a core type, in one behaviour.
    pub(super) fn alone_ips_in(
        &self,
        model: ModelId,
        behaviour: u32,
        core_type: CoreTypeId,
    ) -> f64 {
        self.models[model.0 as usize].alone_ips(behaviour, core_type.index())
    }

    /// Removes a thread. Its lines stay in the shared caches until other threads evict them.
    pub fn remove_thread(&mut self, thread: ThreadId, now: Nanos) {
        self.advance(now);
        let id = thread.0;
        let cpu = self.threads[thread.index()].cpu;
        if cpu != NONE {
            self.set_running(CpuId(cpu), None, now);
        }
        if let Some(members) = self
            .copies
            .get_mut(self.threads[thread.index()].copy as usize)
        {
            members.retain(|member| *member != id);
        }
        self.threads[thread.index()] = AnalyticThread::free();
        for resident in self
            .caches
            .iter_mut()
            .flat_map(|c| &mut c.residents)
            .filter(|r| r.thread == id)
        {
            resident.thread = NONE;
        }
        self.cores.iter_mut().for_each(|c| c.forget(id));
        self.on_cpu_before
            .iter_mut()
            .filter(|t| **t == id)
            .for_each(|t| *t = NONE);
        self.finished.retain(|t| *t != id);
    }

    /// Seconds that one thread alone takes for a whole run on an otherwise idle machine, at unloaded memory latency.
    #[must_use]
    pub fn alone_seconds(&self, model: ModelId, core_type: CoreTypeId) -> f64 {
        self.models[model.0 as usize].total() / self.alone_ips(model, core_type)
    }
}

impl ProgressModel for Analytic {
    fn add_program(&mut self, profile: Arc<Profile>) -> Result<ModelId, ModelError> {
        let model = ProgramModel::new(
            &profile,
            &self.topology,
            &self.classes,
            &self.best,
            Arc::make_mut(&mut self.tables),
        )?;
        self.models.push(model);
        Ok(ModelId(self.models.len() as u32 - 1))
    }

    fn begin_program(&mut self) {
        self.copies.push(Vec::new());
    }

    fn add_thread(&mut self, thread: ThreadId, model: ModelId) {
        if self.threads.len() <= thread.index() {
            self.threads
                .resize(thread.index() + 1, AnalyticThread::free());
        }
        self.threads[thread.index()] = AnalyticThread::new(model.0, self.clock);
        if let Some(members) = self.copies.last_mut() {
            members.push(thread.0);
            self.threads[thread.index()].copy = self.copies.len() as u32 - 1;
        }
    }

    fn set_work(
        &mut self,
        thread: ThreadId,
        offset: f64,
        instructions: f64,
        stride: f64,
        now: Nanos,
    ) {
        self.advance(now);
        self.close(thread.0);
        let t = &mut self.threads[thread.index()];
        t.begin(&self.models[t.model as usize], offset, instructions, stride);
        let cpu = t.cpu;
        if cpu != NONE {
            self.retable(thread.0);
            self.rerate(thread.0);
            self.turn(thread.0);
            self.rerate_siblings(cpu);
        }
        self.update_companions(thread.0);
    }

    fn set_point(&mut self, cpu: CpuId, point: usize, now: Nanos) {
        self.advance(now);
        self.reclock(cpu.0, point);
    }

    fn set_home(&mut self, thread: ThreadId, node: u32, now: Nanos) {
        self.advance(now);
        if self.remote && (node as usize) < self.memories.len() {
            self.rehome(thread.0, node);
            self.settle();
        }
    }

    fn divide(&mut self, cache: CacheId, parts: &[(f64, Vec<ThreadId>)], now: Nanos) -> bool {
        if self.topology.caches[cache.index()].private {
            return false;
        }
        self.advance(now);
        let numbers = |threads: &Vec<ThreadId>| threads.iter().map(|t| t.0).collect();
        let parts: Vec<_> = parts
            .iter()
            .map(|(share, threads)| (*share, numbers(threads)))
            .collect();
        self.divide_cache(cache.0, &parts);
        true
    }

    fn set_running(&mut self, cpu: CpuId, next: Option<ThreadId>, now: Nanos) {
        self.advance(now);
        let row = cpu.index();
        let previous = self.on_cpu[row];
        let next = next.map_or(NONE, |t| t.0);
        if previous == next {
            return;
        }
        if next != NONE && self.threads[next as usize].cpu != NONE {
            let elsewhere = self.threads[next as usize].cpu;
            self.switch_out(next);
            self.update_siblings(elsewhere);
        }
        if previous != NONE {
            self.switch_out(previous);
        }
        if next != NONE {
            let comes = self.threads[next as usize].last_cpu != cpu.0;
            self.switch_in(next, cpu.0);
            if comes {
                self.update_companions(next);
            }
        }
        if (previous == NONE) != (next == NONE) {
            self.update_siblings(cpu.0);
        }
        if next != NONE {
            self.rerate(next);
            self.turn(next);
        }
        self.rerate_siblings(cpu.0);
    }

    fn charge(&mut self, thread: ThreadId, cost: Nanos, now: Nanos) {
        self.advance(now);
        let t = &mut self.threads[thread.index()];
        if t.cpu == NONE {
            return;
        }
        t.integrate(self.clock);
        t.stall(cost.0, self.clock);
        self.respeed(thread.0);
    }

    fn next_event(&mut self) -> Nanos {
        self.settle();
        Nanos(self.agenda.earliest())
    }

    fn advance(&mut self, now: Nanos) {
        while self.clock < now.0 || self.agenda.earliest() <= self.clock {
            self.settle();
            let due = self.agenda.earliest();
            if due > now.0 {
                break;
            }
            self.clock = self.clock.max(due);
            self.handle(self.agenda.first());
            self.settle();
        }
        self.clock = self.clock.max(now.0);
    }

    fn take_finished(&mut self, finished: &mut Vec<ThreadId>) {
        finished.extend(self.finished.drain(..).map(ThreadId));
    }

    fn counters(&mut self, thread: ThreadId, now: Nanos) -> TrueCounters {
        self.advance(now);
        self.close(thread.0);
        *self.threads[thread.index()].counted()
    }

    fn occupancy_lines(&self, thread: ThreadId, cache: CacheId) -> f64 {
        let of = &self.topology.caches[cache.index()];
        let t = &self.threads[thread.index()];
        let at_home = t.cpu != NONE && self.topology.cpus[t.cpu as usize].caches.contains(&cache);
        if of.private {
            let core = of
                .cpus
                .lowest()
                .map_or(0, |c| self.cpus[c.index()].core as usize);
            let lines = if at_home {
                self.tables[t.table as usize].useful_lines
            } else {
                self.cores[core].remains(thread.0)
            };
            return lines.min(of.lines);
        }
        if !self.config.contention {
            let level = self
                .cpus
                .get(t.cpu as usize)
                .and_then(|c| c.chain.iter().position(|row| *row == cache.0));
            return level.map_or(0.0, |k| {
                self.tables[t.table as usize].levels[k]
                    .filled(f64::MAX, &mut 0)
                    .0
            });
        }
        let division = self.divisions.get(&cache.0);
        let row = division.map_or(cache.0, |d| d.row(thread.0));
        let cache = &self.caches[row as usize];
        cache
            .find(thread.0, t.rows[0])
            .map_or(0.0, |i| cache.residents[i].counted())
    }

    fn energy_j(&mut self, now: Nanos) -> f64 {
        self.energy(now).total_j()
    }

    fn true_sf(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        let Some(model) = self.models.get(t.model as usize) else {
            return 1.0;
        };
        let (fast, slow) = self.topology.extremes();
        let behaviour = t.behaviour(model);
        model.alone_ips(behaviour, fast.index()) / model.alone_ips(behaviour, slow.index())
    }

    fn true_ef(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        let Some(model) = self.models.get(t.model as usize) else {
            return 1.0;
        };
        self.efficiency_factor(ModelId(t.model), t.behaviour(model))
    }

    fn position(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        let model = self.models.get(t.model as usize);
        model.map_or(0.0, |model| t.position(model))
    }

    fn alone_ips(&self, model: ModelId, core_type: CoreTypeId) -> f64 {
        let model = &self.models[model.0 as usize];
        model.alone_ips(model.average(), core_type.index())
    }

    fn alone_part_s(&self, model: ModelId, core_type: CoreTypeId, from: f64, to: f64) -> f64 {
        self.models[model.0 as usize].alone_part_s(core_type.index(), from, to)
    }

    fn ceilings(&self) -> Option<Ceilings> {
        Some(ceiling::of(self))
    }

    fn steady_state(&self, assignment: &[(ModelId, CpuId, f64)]) -> Vec<SteadyRates> {
        steady::forecast(self, assignment)
    }
}
