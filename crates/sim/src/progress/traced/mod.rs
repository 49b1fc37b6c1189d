//! Traced progress model: computes the rates of running threads whose recorded accesses pass through simulated caches.
//!
//! Input: traces of programs with their profiles, and from the engine the running thread of each CPU. Output: the results of the
//! analytic model, with actual instead of expected misses.
//!
//! Time advances in steps. In each step, every running thread executes as many instructions as its last rate allows, through the
//! private caches of its core (`thread`). The misses of these caches then pass to the shared caches in the order of (time, CPU)
//! (`weave`). The duration of the step's instructions follows from the actual misses, by the interval analysis of the analytic
//! model (`analytic::Timing`). The next step makes up for the difference to the step's length. Threads thus interact
//! only at shared caches, only running threads cost time, and equal calls give equal results. The scheme follows Zsim's bound and
//! weave phases (Sanchez and Kozyrakis, ISCA 2013) and CMPSched$im, section 3.3.
//!
//! Private caches belong to cores: a thread that returns finds its lines unless other threads evicted them. A store to a line of
//! a program with several threads invalidates the line in all other cores, once per step.
//!
//! Left out: misses of instruction fetches fill caches but cost no time. Caches behind cores are not inclusive. Prefetching
//! affects the timing but not the caches.

mod account;
mod gaps;
mod machine;
mod sampling;
mod thread;
mod weave;

use std::fmt;
use std::sync::Arc;

use countersteer_cache::source::{ProgramCopy, TraceSource};
use countersteer_model::profile::Profile;
use countersteer_model::score::SampledAccuracy;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CacheId, CoreTypeId, CpuId, Nanos, ThreadId};

use super::analytic::{Analytic, Beside, ClassCpu, MemoryDomain};
use super::{
    Evictions, ModelError, ModelId, ProgressConfig, ProgressModel, SteadyRates, TrueCounters,
};
use machine::TracedMachine;
use sampling::{DetailSampling, Situation};
use thread::{StepPlace, TracedProgram, TracedThread};

/// Maximum length of a step, in nanoseconds.
const STEP_NS: u64 = 20_000;
/// Minimum length of a step in nanoseconds, unless the engine advances to an earlier time.
const LEAST_NS: u64 = 500;
const NOBODY: u32 = u32::MAX;
/// Damping factor: fraction of the difference to the newly computed demand and memory latency that each step applies.
const DAMPING: f64 = 0.25;

/// Traces, each with the profile to which it belongs.
#[derive(Clone, Default)]
pub struct Traces(pub Vec<(Arc<Profile>, Arc<dyn TraceSource>)>);

impl Traces {
    /// Returns the reason why a traced program could not continue; `None` if all could.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.0.iter().find_map(|(_, source)| source.failure())
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(profile, _)| profile.name());
        f.debug_list().entries(names).finish()
    }
}

/// Progress model of traced simulation.
pub struct Traced {
    /// Analytic model, used for results that do not depend on simulated caches: speeds alone, forecasts.
    analytic: Analytic,
    topology: Arc<Topology>,
    config: ProgressConfig,
    traces: Traces,
    machine: TracedMachine,
    cpus: Vec<ClassCpu>,
    programs: Vec<TracedProgram>,
    threads: Vec<TracedThread>,
    /// Number of copies of programs added so far; each copy has its own address space.
    instances: u16,
    /// Copy of a program that was added last; `None` until it has threads.
    copy: Option<Arc<dyn ProgramCopy>>,
    on_cpu: Vec<u32>,
    before_on_cpu: Vec<u32>,
    memories: Vec<MemoryDomain>,
    finished: Vec<u32>,
    spent: account::TracedEnergy,
    clock: u64,
    /// State of sampled simulation; `None` if all accesses pass through the caches.
    sampling: Option<DetailSampling>,
}

impl Traced {
    /// Creates the model of an idle machine at time zero.
    #[must_use]
    pub fn new(topology: Arc<Topology>, config: ProgressConfig, traces: Traces) -> Self {
        let analytic = Analytic::new(Arc::clone(&topology), config.clone());
        let cpus = analytic.cpus().to_vec();
        Self {
            machine: TracedMachine::new(&topology, &cpus),
            on_cpu: vec![NOBODY; cpus.len()],
            before_on_cpu: vec![NOBODY; cpus.len()],
            memories: topology.memory.iter().map(MemoryDomain::new).collect(),
            spent: account::TracedEnergy::new(&topology),
            analytic,
            topology,
            config,
            traces,
            cpus,
            programs: Vec::new(),
            threads: Vec::new(),
            instances: 0,
            copy: None,
            finished: Vec::new(),
            clock: 0,
            sampling: None,
        }
    }

    fn working(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let running = self.on_cpu.iter().copied().enumerate();
        running.filter(|(_, t)| *t != NOBODY && self.threads[*t as usize].left > 0.0)
    }

    /// Lets all running threads execute for `ns` nanoseconds.
    fn step(&mut self, ns: u64) {
        let working: Vec<(usize, u32)> = self.working().collect();
        let mut sampling = self.sampling.take();
        if let Some(sampling) = &mut sampling {
            let situations: Vec<Situation> = working
                .iter()
                .map(|(row, id)| self.situation(*row, *id))
                .collect();
            let now_ns = self.clock as f64;
            let programs = self.instances;
            if sampling.leaves_out(now_ns, &situations, &self.machine, programs) {
                self.leave_out(ns, &working, situations, sampling);
            } else {
                let before: Vec<TrueCounters> = working
                    .iter()
                    .map(|(_, id)| self.threads[*id as usize].counted)
                    .collect();
                self.in_detail(ns, &working);
                let rows = working.iter().zip(situations).zip(&before);
                for (((_, id), situation), before) in rows {
                    let thread = &self.threads[*id as usize];
                    let (counted, cost_ns) = thread.counted_since(before);
                    sampling.detailed(thread.owner, situation, &counted, cost_ns);
                }
                sampling.pass(ns as f64, true);
            }
        } else {
            self.in_detail(ns, &working);
        }
        self.sampling = sampling;
        self.spent
            .pass(&self.topology, &self.cpus, &self.on_cpu, ns);
        self.clock += ns;
    }

    /// Lets all running threads execute for `ns` nanoseconds, with all their accesses through the caches.
    fn in_detail(&mut self, ns: u64, working: &[(usize, u32)]) {
        for (row, id) in working {
            let thread = &mut self.threads[*id as usize];
            thread.run(*row, ns as f64, &mut self.machine);
        }
        let sharing = |owner: u16| {
            let of = self.threads.iter().filter(|t| t.owner == owner);
            of.take(2).count() > 1
        };
        self.machine.weave(sharing);
        // Demand is averaged over steps, because the demand of single steps fluctuates with the debts of threads.
        for memory in &mut self.memories {
            memory.demand *= 1.0 - DAMPING;
            memory.slope *= 1.0 - DAMPING;
        }
        let beside: Vec<Beside> = working.iter().map(|(row, _)| self.beside(*row)).collect();
        for ((row, id), beside) in working.iter().copied().zip(&beside) {
            let cpu = &self.cpus[row];
            let place = StepPlace {
                cpu,
                siblings: self.siblings(row),
                beside,
                factor: self.memories[cpu.memory as usize].factor,
                ns: ns as f64,
                power: &self.topology.core_types[cpu.core_type as usize].power,
            };
            let served = self.machine.take_served(row);
            let thread = &mut self.threads[id as usize];
            let program = &self.programs[thread.program as usize];
            let held = self.machine.held(row, thread.owner);
            let (energy, steepness) = thread.settle(program, &place, &served, &held);
            let demand = DAMPING * energy.memory_lines / ns as f64;
            let memory = &mut self.memories[cpu.memory as usize];
            memory.demand += demand;
            memory.slope += demand * steepness;
            self.spent.add(&energy);
            if thread.left <= 0.0 {
                self.finished.push(id);
            }
        }
        if self.config.contention {
            for memory in &mut self.memories {
                let wanted = memory.solve(0.0).unwrap_or(memory.factor);
                memory.factor += DAMPING * (wanted - memory.factor);
            }
        }
    }

    /// Returns the use of the core by the SMT siblings of a CPU in the previous step.
    fn beside(&self, row: usize) -> Beside {
        let mut beside = Beside::default();
        let running = self.siblings(row);
        for sibling in &self.cpus[row].siblings {
            let thread = self.on_cpu[*sibling as usize];
            if thread != NOBODY {
                let thread = &self.threads[thread as usize];
                let program = &self.programs[thread.program as usize];
                thread.take(program, &self.cpus[row], running, &mut beside);
            }
        }
        beside
    }

    /// Number of threads of a copy of a program; at least 1.
    fn sharers(&self, owner: u16) -> usize {
        let of = self.threads.iter().filter(|t| t.owner == owner);
        of.count().max(1)
    }

    /// Number of CPUs of a core that run a thread, including CPU `row`.
    fn siblings(&self, row: usize) -> u32 {
        let others = self.cpus[row].siblings.iter();
        1 + others
            .filter(|s| self.on_cpu[**s as usize] != NOBODY)
            .count() as u32
    }
}

impl ProgressModel for Traced {
    fn add_program(&mut self, profile: Arc<Profile>) -> Result<ModelId, ModelError> {
        let found = self
            .traces
            .0
            .iter()
            .find(|(known, _)| Arc::ptr_eq(known, &profile) || **known == *profile);
        let (Profile::Recorded(recorded), Some((_, source))) = (&*profile, found) else {
            let profile = profile.name().to_owned();
            return Err(ModelError::NoTrace { profile });
        };
        let timings = self.analytic.timings(recorded);
        self.programs
            .push(TracedProgram::new(recorded, Arc::clone(source), timings));
        self.analytic.add_program(profile)
    }

    fn begin_program(&mut self) {
        self.instances = self.instances.wrapping_add(1) % countersteer_cache::cache::OWNERS as u16;
        self.copy = None;
    }

    fn add_thread(&mut self, thread: ThreadId, model: ModelId) {
        if self.threads.len() <= thread.index() {
            self.threads
                .resize_with(thread.index() + 1, TracedThread::nobody);
        }
        let owner = self.instances;
        let nth = self
            .threads
            .iter()
            .filter(|t| t.owner == owner && t.program == model.0)
            .count() as u32;
        let source = &self.programs[model.0 as usize].source;
        let copy = self.copy.get_or_insert_with(|| source.copy());
        self.threads[thread.index()] = TracedThread::new(model.0, owner, copy.stream(nth));
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
        let t = &mut self.threads[thread.index()];
        t.begin(
            &self.programs[t.program as usize],
            offset,
            instructions,
            stride,
        );
    }

    fn set_running(&mut self, cpu: CpuId, next: Option<ThreadId>, now: Nanos) {
        self.advance(now);
        let row = cpu.index();
        let next = next.map_or(NOBODY, |t| t.0);
        let previous = std::mem::replace(&mut self.on_cpu[row], next);
        if previous == next {
            return;
        }
        if next == NOBODY {
            return;
        }
        for (other, on) in self.on_cpu.iter_mut().enumerate() {
            if other != row && *on == next {
                *on = NOBODY;
            }
        }
        let thread = &mut self.threads[next as usize];
        if self.config.costs {
            if self.before_on_cpu[row] != next {
                thread.debt_ns += self.config.context_switch_ns;
            }
            if thread.last_cpu != NOBODY && thread.last_cpu != cpu.0 {
                thread.debt_ns += self.config.migration_ns;
            }
        }
        thread.last_cpu = cpu.0;
        self.before_on_cpu[row] = next;
    }

    fn charge(&mut self, thread: ThreadId, cost: Nanos, now: Nanos) {
        self.advance(now);
        if self.on_cpu.contains(&thread.0) {
            self.threads[thread.index()].debt_ns += cost.0 as f64;
        }
    }

    fn next_event(&mut self) -> Nanos {
        if !self.finished.is_empty() {
            return Nanos(self.clock);
        }
        let ends = self
            .working()
            .map(|(_, t)| self.threads[t as usize].due_ns());
        let earliest = ends.fold(f64::INFINITY, f64::min);
        if earliest.is_infinite() {
            return Nanos::NEVER;
        }
        Nanos(self.clock + (earliest as u64).clamp(LEAST_NS, STEP_NS))
    }

    fn advance(&mut self, now: Nanos) {
        while self.clock < now.0 {
            let left = now.0 - self.clock;
            if self.working().next().is_none() {
                self.spent
                    .pass(&self.topology, &self.cpus, &self.on_cpu, left);
                self.clock = now.0;
                return;
            }
            self.step(left.min(STEP_NS));
        }
    }

    fn take_finished(&mut self, finished: &mut Vec<ThreadId>) {
        finished.extend(self.finished.drain(..).map(ThreadId));
    }

    fn counters(&mut self, thread: ThreadId, now: Nanos) -> TrueCounters {
        self.advance(now);
        let t = &self.threads[thread.index()];
        let (suffered, caused) = self.machine.evictions(t.owner, self.instances);
        let (more_suffered, more_caused) = self.expected_evictions(t.owner);
        let part = 1.0 / self.sharers(t.owner) as f64;
        TrueCounters {
            evictions: Some(Evictions {
                suffered: (suffered as f64 + more_suffered) * part,
                caused: (caused as f64 + more_caused) * part,
            }),
            ..t.counted
        }
    }

    fn evicted(&self) -> Vec<Vec<u64>> {
        let mut evicted = self.machine.evicted(self.instances);
        let sampling = self.sampling.as_ref();
        let expected = sampling.map_or_else(Vec::new, |sampling| sampling.expected(&evicted));
        for (counts, expected) in evicted.iter_mut().zip(&expected) {
            for (count, expected) in counts.iter_mut().zip(expected) {
                *count += *expected as u64;
            }
        }
        evicted
    }

    fn sampled(&self, thread: ThreadId) -> Option<SampledAccuracy> {
        let sampling = self.sampling.as_ref()?;
        sampling.sampled(self.threads[thread.index()].owner)
    }

    fn occupancy_lines(&self, thread: ThreadId, cache: CacheId) -> f64 {
        let t = &self.threads[thread.index()];
        let core = self
            .cpus
            .get(t.last_cpu as usize)
            .map(|cpu| cpu.core as usize);
        self.machine.lines(cache, t.owner, core) / self.sharers(t.owner) as f64
    }

    fn energy_j(&mut self, now: Nanos) -> f64 {
        self.advance(now);
        self.spent.total_j(&self.topology, self.clock)
    }

    fn true_sf(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        let program = &self.programs[t.program as usize];
        let (fast, slow) = self.topology.extremes();
        let behaviour = program.behaviour(t.position);
        let model = ModelId(t.program);
        self.analytic.alone_ips_in(model, behaviour, fast)
            / self.analytic.alone_ips_in(model, behaviour, slow)
    }

    fn true_ef(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        let behaviour = self.programs[t.program as usize].behaviour(t.position);
        self.analytic
            .efficiency_factor(ModelId(t.program), behaviour)
    }

    fn position(&self, thread: ThreadId) -> f64 {
        self.threads[thread.index()].position
    }

    fn alone_ips(&self, model: ModelId, core_type: CoreTypeId) -> f64 {
        self.analytic.alone_ips(model, core_type)
    }

    fn alone_part_s(&self, model: ModelId, core_type: CoreTypeId, from: f64, to: f64) -> f64 {
        self.analytic.alone_part_s(model, core_type, from, to)
    }

    fn steady_state(&self, assignment: &[(ModelId, CpuId, f64)]) -> Vec<SteadyRates> {
        self.analytic.steady_state(assignment)
    }
}
