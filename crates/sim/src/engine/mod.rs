//! The simulator as an engine: threads of simulated programs on simulated CPUs under the Linux model.
//!
//! Input: a [`Plan`] (programs with profiles) and a topology. Three parts share the work: [`crate::linux`] decides who runs
//! where, [`crate::progress`] says how far each running thread gets, and this module moves programs through their lives
//! (start, serial and parallel part, bursts and sleeps, restart) and shows the outside what counters would show.

mod alone;
mod forecast;
mod frequency;
mod hints;
mod pmu;
mod program;
mod signatures;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersteer_core::cpuset::CpuSet;
use countersteer_core::engine::{
    Applied, Engine, Forecast, Observation, ProgramInfo, Span, ThreadEvent, ThreadEventKind,
    ThreadInfo, Watch, Watched,
};
use countersteer_core::events::Event;
use countersteer_core::machine::Governor;
use countersteer_core::metric::{MetricBank, groups_on};
use countersteer_core::placement::{AdmissionTable, Clamp, Placement, Target};
use countersteer_core::profile::Profile;
use countersteer_core::score::Outcome;
use countersteer_core::topology::Topology;
use countersteer_core::units::{CacheId, CpuId, GroupId, Nanos, ProgramId, ThreadId};

use self::alone::Alone;
use self::frequency::Clocks;
use self::pmu::Pmu;
pub use self::program::{Plan, PlannedProgram};
use self::program::{Program, Step};
use crate::linux::{Linux, LinuxConfig, Switch};
use crate::progress::{
    Analytic, ModelError, ModelId, ProgressConfig, ProgressModel, Traced, Traces,
};

/// How a simulation is run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    pub seed: u64,
    pub linux: LinuxConfig,
    pub progress: ProgressConfig,
    /// Relative standard deviation of a counter reading.
    pub counter_noise: f64,
    /// CPU time that reading one thread's counters takes.
    pub sample_cost: Nanos,
    /// Finished runs of the slowest program that end the experiment.
    pub rounds: u32,
    /// Keeps every stretch of running.
    pub trace: bool,
    /// Who chooses frequencies, if not whom the machine file names.
    pub governor: Option<Governor>,
}

/// A simulation that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A profile cannot be simulated on this machine.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Nothing would ever happen again, though the workload is not finished.
    #[error(
        "the simulation is stuck at {at}: no thread can run and nothing is due; this is a defect of the simulator"
    )]
    Stuck { at: Nanos },
    /// It takes longer than it may.
    #[error(
        "the simulation was stopped after {budget:?} (`--max-wall`), at {at} of its own time; give it more time, a smaller workload or `--max-seconds`"
    )]
    OutOfTime { at: Nanos, budget: Duration },
}

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u32 = 16;

/// How long a simulation may take.
#[derive(Clone, Copy, Debug)]
struct Budget {
    given: Duration,
    since: Instant,
    steps: u32,
}

impl Budget {
    fn spend(&mut self, at: Nanos) -> Result<(), SimError> {
        self.steps = (self.steps + 1) % STEPS_PER_LOOK;
        if self.steps == 0 && self.since.elapsed() > self.given {
            let budget = self.given;
            return Err(SimError::OutOfTime { at, budget });
        }
        Ok(())
    }
}

pub struct Simulation {
    topology: Arc<Topology>,
    config: SimConfig,
    now: Nanos,
    linux: Linux,
    progress: Box<dyn ProgressModel>,
    pmu: Pmu,
    /// Programs end instead of beginning anew.
    runs_once: bool,
    watched: Watched,
    models: Vec<(Arc<Profile>, ModelId)>,
    /// Those asked for so far, of whole programs and of parts.
    signatures: Vec<signatures::Known>,
    /// By program.
    infos: Vec<ProgramInfo>,
    programs: Vec<Program>,
    threads: Vec<Thread>,
    timers: BinaryHeap<Reverse<(Nanos, Timer)>>,
    events: Vec<ThreadEvent>,
    spans: Vec<Span>,
    /// Emptied and filled again at every step, to save allocations.
    switch_buffer: Vec<Switch>,
    finished_buffer: Vec<ThreadId>,
    admission: Option<AdmissionTable>,
    /// Where the table sends each thread, by the metrics of the last observation.
    admission_groups: Vec<Option<GroupId>>,
    migrations: u64,
    switches: u64,
    budget: Option<Budget>,
    clocks: Option<Clocks>,
    /// By thread; empty until a policy clamps one.
    clamps: Vec<Clamp>,
    /// Caches that classes of threads divide among them.
    divided: Vec<CacheId>,
}

/// Something this module waits for; the order breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Start { program: usize },
    Wake { thread: ThreadId },
}

#[derive(Clone, Debug)]
struct Thread {
    program: usize,
    /// CPUs the program may use.
    allowed: Arc<CpuSet>,
    /// CPUs it is confined to for now.
    confined: Arc<CpuSet>,
    alive: bool,
    /// Where it runs or last ran.
    cpu: CpuId,
    running_since: Option<Nanos>,
    runnable: bool,
    /// Time on a CPU, by core type, up to the last switch.
    ran_by_type: Vec<Nanos>,
}

/// What a program used in the whole run, exact.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ProgramUsage {
    /// Time its threads were on a CPU, by core type.
    pub cpu_s: Vec<f64>,
    pub instructions: f64,
    pub llc_misses: f64,
}

impl Simulation {
    /// Prepares a simulation; nothing runs before the first [`Engine::observe`].
    ///
    /// # Errors
    /// A profile that this machine cannot run.
    pub fn new(topology: Arc<Topology>, plan: &Plan, config: SimConfig) -> Result<Self, SimError> {
        let analytic = Analytic::new(Arc::clone(&topology), config.progress.clone());
        Self::with_model(topology, plan, config, Box::new(analytic))
    }

    /// The same with the programs' recorded accesses going through simulated caches.
    ///
    /// # Errors
    /// A program that was not traced.
    pub fn traced(
        topology: Arc<Topology>,
        plan: &Plan,
        config: SimConfig,
        traces: Traces,
    ) -> Result<Self, SimError> {
        let traced = Traced::new(Arc::clone(&topology), config.progress.clone(), traces);
        Self::with_traced(topology, plan, config, traced)
    }

    /// The same where only samples go through the caches.
    ///
    /// # Errors
    /// A program that was not traced.
    pub fn sampled(
        topology: Arc<Topology>,
        plan: &Plan,
        config: SimConfig,
        traces: Traces,
    ) -> Result<Self, SimError> {
        let traced = Traced::new(Arc::clone(&topology), config.progress.clone(), traces).sampled();
        Self::with_traced(topology, plan, config, traced)
    }

    fn with_traced(
        topology: Arc<Topology>,
        plan: &Plan,
        config: SimConfig,
        traced: Traced,
    ) -> Result<Self, SimError> {
        let mut sim = Self::with_model(topology, plan, config, Box::new(traced))?;
        // That model knows no frequencies but `freq_ghz`.
        sim.clocks = None;
        Ok(sim)
    }

    fn with_model(
        topology: Arc<Topology>,
        plan: &Plan,
        config: SimConfig,
        mut progress: Box<dyn ProgressModel>,
    ) -> Result<Self, SimError> {
        let mut linux_config = config.linux.clone();
        linux_config.seed = config.seed;
        let linux = Linux::new(&topology, linux_config);
        let mut sim = Self {
            pmu: Pmu::new(config.seed, config.counter_noise, &topology),
            runs_once: false,
            watched: Watched::default(),
            models: Vec::new(),
            signatures: Vec::new(),
            infos: Vec::new(),
            programs: Vec::new(),
            threads: Vec::new(),
            timers: BinaryHeap::new(),
            events: Vec::new(),
            spans: Vec::new(),
            switch_buffer: Vec::new(),
            finished_buffer: Vec::new(),
            admission: None,
            admission_groups: Vec::new(),
            migrations: 0,
            switches: 0,
            budget: None,
            clocks: Clocks::new(&topology, config.governor.unwrap_or(topology.governor)),
            clamps: Vec::new(),
            divided: Vec::new(),
            now: Nanos::ZERO,
            topology,
            config,
            linux,
            progress: {
                progress.advance(Nanos::ZERO);
                progress
            },
        };
        for planned in &plan.programs {
            sim.add_program(planned)?;
        }
        Ok(sim)
    }

    /// The same, which fails once it has taken so much time of the clock on the wall, from now on.
    #[must_use]
    pub fn within(mut self, budget: Duration) -> Self {
        self.budget = Some(Budget {
            given: budget,
            since: Instant::now(),
            steps: 0,
        });
        self
    }

    /// The same, counting these events besides what is watched.
    #[must_use]
    pub fn counting_events(mut self, events: &[Event]) -> Self {
        self.pmu.count_also(events, &self.topology);
        self
    }

    /// The same, with programs that end instead of beginning anew.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.runs_once = true;
        self
    }

    fn add_program(&mut self, planned: &PlannedProgram) -> Result<(), SimError> {
        let model = self.model_of(&planned.profile)?;
        let row = self.programs.len();
        let first = ThreadId::from_index(self.threads.len());
        self.programs.push(Program::new(planned, model, first));
        self.progress.begin_program();
        self.infos.push(ProgramInfo {
            id: ProgramId::from_index(row),
            name: Arc::clone(&planned.name),
            path: Some(planned.profile.name().into()),
        });
        for _ in 0..planned.threads {
            let id = ThreadId::from_index(self.threads.len());
            self.progress.add_thread(id, model);
            self.pmu.add_thread();
            let everywhere = Arc::clone(&self.topology.groups[0].cpus);
            self.threads.push(Thread {
                program: row,
                allowed: Arc::clone(&everywhere),
                confined: everywhere,
                alive: false,
                cpu: CpuId(0),
                running_since: None,
                runnable: false,
                ran_by_type: vec![Nanos::ZERO; self.topology.core_types.len()],
            });
        }
        self.timers
            .push(Reverse((planned.start, Timer::Start { program: row })));
        Ok(())
    }

    /// The progress model of a profile; copies of a program share it.
    fn model_of(&mut self, profile: &Arc<Profile>) -> Result<ModelId, ModelError> {
        match self
            .models
            .iter()
            .find(|(known, _)| Arc::ptr_eq(known, profile))
        {
            Some((_, model)) => Ok(*model),
            None => {
                let model = self.progress.add_program(Arc::clone(profile))?;
                self.models.push((Arc::clone(profile), model));
                Ok(model)
            }
        }
    }

    pub fn outcome(&mut self) -> Outcome {
        self.progress.advance(self.now);
        let programs = (0..self.programs.len())
            .map(|row| self.program_outcome(row))
            .collect();
        Outcome {
            programs,
            elapsed_s: self.now.as_secs_f64(),
            energy_j: self.progress.energy_j(self.now),
            migrations: self.migrations,
            switches: self.switches,
            evicted: self.progress.evicted(),
        }
    }

    /// What each program has used so far, in the workload's order.
    pub fn usage(&mut self) -> Vec<ProgramUsage> {
        self.progress.advance(self.now);
        (0..self.programs.len())
            .map(|row| self.program_usage(row))
            .collect()
    }

    fn program_usage(&mut self, row: usize) -> ProgramUsage {
        let mut usage = ProgramUsage {
            cpu_s: vec![0.0; self.topology.core_types.len()],
            ..ProgramUsage::default()
        };
        for id in self.programs[row].threads() {
            let counters = self.progress.counters(id, self.now);
            usage.instructions += counters.instructions;
            usage.llc_misses += counters.llc_misses;
            let thread = &self.threads[id.index()];
            for (sum, ran) in usage.cpu_s.iter_mut().zip(&thread.ran_by_type) {
                *sum += ran.as_secs_f64();
            }
            if let Some(start) = thread.running_since {
                let core_type = self.topology.core_type_of(thread.cpu).index();
                usage.cpu_s[core_type] += self.now.since(start).as_secs_f64();
            }
        }
        usage
    }

    fn program_outcome(&mut self, row: usize) -> countersteer_core::score::ProgramOutcome {
        let program = &self.programs[row];
        let alone = Alone::new(&self.topology, &*self.progress);
        let (alone_fast_s, alone_slow_s) = (alone.fast_s(program), alone.slow_s(program));
        let mut instructions = 0.0;
        let mut cycles = 0.0;
        let first = program.threads().next();
        let sampled = first.and_then(|id| self.progress.sampled(id));
        for id in program.threads() {
            let counters = self.progress.counters(id, self.now);
            instructions += counters.instructions;
            cycles += counters.cycles;
        }
        countersteer_core::score::ProgramOutcome {
            name: program.name.to_string(),
            nice: program.nice,
            completions_s: program.completions_s.clone(),
            alone_fast_s,
            alone_slow_s,
            instructions,
            cycles,
            sampled,
        }
    }

    fn finished(&self) -> bool {
        self.programs
            .iter()
            .all(|p| p.completions_s.len() >= self.config.rounds as usize)
    }

    /// Runs until `until`, or until the workload is finished, or, with `early`, until something befell a thread.
    fn run(&mut self, until: Nanos, early: bool) -> Result<(), SimError> {
        loop {
            let due = self
                .timers
                .peek()
                .map_or(Nanos::NEVER, |Reverse((at, _))| *at);
            let next = self
                .linux
                .next_event()
                .min(self.progress.next_event())
                .min(due)
                .min(self.clocks.as_ref().map_or(Nanos::NEVER, Clocks::next));
            if next == Nanos::NEVER {
                return Err(SimError::Stuck { at: self.now });
            }
            if let Some(budget) = &mut self.budget {
                budget.spend(self.now)?;
            }
            self.now = next.min(until).max(self.now);
            self.progress.advance(self.now);
            self.finish_work();
            self.fire_timers();
            self.linux.advance(self.now);
            let switched = self.forward_switches();
            self.govern(switched);
            if self.finished() || (next > until) || (early && !self.events.is_empty()) {
                return Ok(());
            }
        }
    }

    /// Handles threads whose work ended now.
    fn finish_work(&mut self) {
        let mut finished = std::mem::take(&mut self.finished_buffer);
        self.progress.take_finished(&mut finished);
        for id in finished.drain(..) {
            let row = self.threads[id.index()].program;
            let now = self.now;
            match self.programs[row].work_done(id, now) {
                Step::Work => self.give_work(row, id),
                Step::Sleep(length) => {
                    self.timers
                        .push(Reverse((now + length, Timer::Wake { thread: id })));
                    self.block(id);
                }
                Step::Wait => self.block(id),
                Step::Parallel => {
                    for sibling in self.programs[row].threads() {
                        self.give_work(row, sibling);
                        self.wake(sibling, Some(self.threads[id.index()].cpu));
                    }
                }
                Step::Restart if self.runs_once => self.block(id),
                Step::Restart => self.restart(row, id),
            }
        }
        self.finished_buffer = finished;
    }

    fn fire_timers(&mut self) {
        while let Some(Reverse((_, timer))) = self
            .timers
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= self.now)
        {
            self.timers.pop();
            match timer {
                Timer::Start { program } => self.start(program),
                Timer::Wake { thread } => {
                    self.give_work(self.threads[thread.index()].program, thread);
                    self.wake(thread, None);
                }
            }
        }
    }

    /// Launches a program: those of its threads that have something to do come to life.
    fn start(&mut self, row: usize) {
        self.programs[row].begin_run(self.now);
        let mut parent = None;
        for id in self.programs[row].threads() {
            if self.programs[row].has_work(id) {
                self.give_work(row, id);
                self.fork(row, id, parent);
                parent = parent.or(Some(self.threads[id.index()].cpu));
            }
        }
    }

    /// A thread comes to life where the admission table, the workload's launch place or the kernel says.
    fn fork(&mut self, row: usize, id: ThreadId, parent: Option<CpuId>) {
        let now = self.now;
        let by_table = self.admission_target(id);
        let thread = &mut self.threads[id.index()];
        thread.confined = by_table.unwrap_or_else(|| Arc::clone(&thread.allowed));
        let launch = self.programs[row].launch_on.as_ref();
        thread.cpu = self.linux.fork(
            id,
            self.programs[row].nice,
            launch.unwrap_or(&thread.confined),
            parent,
            now,
        );
        if launch.is_some() {
            self.linux.set_affinity(id, &thread.confined, now);
        }
        thread.alive = true;
        thread.runnable = true;
        self.event(id, ThreadEventKind::New);
    }

    /// A program ran to its end: the same threads run it again, as a shell's loop with exec would.
    fn restart(&mut self, row: usize, last: ThreadId) {
        let now = self.now;
        self.programs[row].begin_run(now);
        let waker = self.threads[last.index()].cpu;
        for id in self.programs[row].threads() {
            self.event(id, ThreadEventKind::Exec);
            self.give_work(row, id);
            if self.programs[row].has_work(id) {
                self.wake(id, Some(waker));
            } else {
                self.block(id);
            }
        }
    }

    fn give_work(&mut self, row: usize, id: ThreadId) {
        if let Some(work) = self.programs[row].next_work(id) {
            self.progress
                .set_work(id, work.offset, work.instructions, work.stride, self.now);
        }
    }

    fn block(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id.index()];
        if thread.runnable {
            thread.runnable = false;
            self.linux.block(id, self.now);
            self.event(id, ThreadEventKind::Sleep);
        }
    }

    fn wake(&mut self, id: ThreadId, waker: Option<CpuId>) {
        if self.threads[id.index()].runnable {
            return;
        }
        if !self.threads[id.index()].alive {
            let row = self.threads[id.index()].program;
            return self.fork(row, id, waker);
        }
        self.threads[id.index()].runnable = true;
        if let Some(cpus) = self.admission_target(id) {
            self.confine(id, &cpus);
        }
        self.linux.wake(id, waker, self.now);
        self.event(id, ThreadEventKind::Wake);
    }

    fn event(&mut self, thread: ThreadId, kind: ThreadEventKind) {
        self.events.push(ThreadEvent {
            at: self.now,
            thread,
            kind,
        });
    }

    /// Tells the progress model who runs where, and notes moves and stretches of running.
    fn forward_switches(&mut self) -> bool {
        let mut switches = std::mem::take(&mut self.switch_buffer);
        switches.extend(self.linux.take_switches());
        let any = !switches.is_empty();
        for switch in switches.drain(..) {
            self.switches += 1;
            if let Some(prev) = switch.prev {
                self.switched_out(prev);
            }
            if let Some(next) = switch.next {
                self.switched_in(next, switch.cpu);
            }
            self.progress.set_running(switch.cpu, switch.next, self.now);
        }
        self.switch_buffer = switches;
        any
    }

    fn switched_out(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id.index()];
        let llc = self.topology.llc_of(thread.cpu);
        self.pmu
            .switched_out(id, self.progress.occupancy_lines(id, llc));
        let start = thread.running_since.take();
        if let Some(start) = start {
            let row = self.topology.core_type_of(thread.cpu).index();
            thread.ran_by_type[row] += self.now.since(start);
        }
        let start = start.filter(|start| self.config.trace && self.now > *start);
        self.spans.extend(start.map(|start| Span {
            thread: id,
            cpu: thread.cpu,
            start,
            end: self.now,
        }));
    }

    fn switched_in(&mut self, id: ThreadId, cpu: CpuId) {
        let from = self.threads[id.index()].cpu;
        if from != cpu {
            self.migrations += 1;
            self.event(id, ThreadEventKind::Migrate { from, to: cpu });
            if self.topology.core_type_of(from) != self.topology.core_type_of(cpu) {
                self.sample(id);
            }
        }
        let thread = &mut self.threads[id.index()];
        thread.cpu = cpu;
        thread.running_since = Some(self.now);
    }

    /// Closes a thread's counting interval.
    fn sample(&mut self, id: ThreadId) {
        let cpu = self.threads[id.index()].cpu;
        let counters = self.progress.counters(id, self.now);
        let lines = self.progress.occupancy_lines(id, self.topology.llc_of(cpu));
        let truth = pmu::Truth {
            sf: self.progress.true_sf(id),
            ef: self.pmu.wants_ef().then(|| self.progress.true_ef(id)),
        };
        self.pmu.sample(
            id,
            cpu,
            self.topology.core_type_of(cpu),
            self.now,
            &counters,
            lines,
            truth,
        );
    }

    /// Where the admission table sends a thread, if there is a table.
    fn admission_target(&self, id: ThreadId) -> Option<Arc<CpuSet>> {
        let group = (*self.admission_groups.get(id.index())?)?;
        Some(Arc::clone(&self.topology.group(group).cpus))
    }

    /// Looks up where threads are sent that come or wake before the next observation.
    fn admit_by(&mut self, values: Option<&MetricBank>) {
        let Some(table) = &self.admission else {
            return;
        };
        let column = values.and_then(|bank| Some((bank, bank.column(&table.metric)?)));
        let value = |id| column.and_then(|(bank, column)| bank.at(id, column));
        let ids = (0..self.threads.len()).map(ThreadId::from_index);
        self.admission_groups = ids.map(|id| table.choose(value(id))).collect();
    }

    /// Confines a thread; says whether that changed anything.
    fn confine(&mut self, id: ThreadId, cpus: &Arc<CpuSet>) -> bool {
        let thread = &mut self.threads[id.index()];
        if *thread.confined == **cpus {
            return false;
        }
        thread.confined = Arc::clone(cpus);
        self.linux.set_affinity(id, cpus, self.now);
        true
    }

    fn place(&mut self, id: ThreadId, target: &Target, applied: &mut Applied) {
        let Some(thread) = self.threads.get(id.index()).filter(|t| t.alive) else {
            applied.gone += 1;
            return;
        };
        let wanted = match target {
            Target::Anywhere => Arc::clone(&thread.allowed),
            other => other.cpus(&self.topology),
        };
        if !wanted.intersects(&thread.allowed) {
            applied.refused += 1;
        } else if self.confine(id, &wanted) {
            applied.changed += 1;
        }
    }
}

impl Engine for Simulation {
    type Error = SimError;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, SimError> {
        if self.watched.changes(watch) {
            self.pmu.count(&self.topology, |core_type| {
                groups_on(&self.topology, core_type, watch.metrics)
            });
        }
        self.admit_by(watch.values);
        self.run(until, watch.events)?;
        let finished = self.finished();
        let mut threads = Vec::with_capacity(self.threads.len());
        for row in 0..self.threads.len() {
            let id = ThreadId::from_index(row);
            if !self.threads[row].alive {
                continue;
            }
            self.sample(id);
            let thread = &self.threads[row];
            if thread.running_since.is_some() && self.config.sample_cost > Nanos::ZERO {
                self.progress.charge(id, self.config.sample_cost, self.now);
            }
            let program = &self.programs[thread.program];
            threads.push(ThreadInfo {
                id,
                program: ProgramId::from_index(thread.program),
                name: Arc::clone(&program.name),
                cpu: thread.cpu,
                runnable: thread.runnable,
                nice: program.nice,
                allowed: Arc::clone(&thread.confined),
                told: None,
            });
        }
        if finished {
            (0..self.threads.len()).for_each(|row| self.close_span(row));
        }
        if self.now >= until && until > Nanos::ZERO {
            self.pmu.turn();
        }
        Ok(Observation {
            at: self.now,
            programs: self.programs_of(&threads),
            threads,
            events: std::mem::take(&mut self.events),
            samples: self.pmu.take_samples(),
            spans: std::mem::take(&mut self.spans),
            finished,
            ..Observation::default()
        })
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, SimError> {
        let mut applied = Applied::default();
        for entry in &placement.threads {
            self.place(entry.thread, &entry.target, &mut applied);
            let unheeded = |c| !self.clamp(entry.thread, c);
            applied.unheeded += u32::from(entry.clamp.is_some_and(unheeded));
            if let Some(weight) = entry.weight {
                self.linux.set_weight(entry.thread, weight, self.now);
            }
        }
        if let Some(classes) = &placement.caches {
            applied.unheeded += self.divide(classes);
        }
        if let Some(table) = &placement.admission {
            self.admission = Some(table.clone());
        }
        self.forward_switches();
        self.govern(true);
        Ok(applied)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        Some(self)
    }
}

impl Simulation {
    fn programs_of(&self, threads: &[ThreadInfo]) -> Vec<ProgramInfo> {
        let mut alive = vec![false; self.infos.len()];
        for thread in threads {
            alive[thread.program.index()] = true;
        }
        let infos = self.infos.iter().zip(alive);
        let infos = infos.filter(|(_, alive)| *alive);
        infos.map(|(info, _)| info.clone()).collect()
    }

    fn close_span(&mut self, row: usize) {
        let thread = &mut self.threads[row];
        let start = thread
            .running_since
            .filter(|start| self.config.trace && self.now > *start);
        let id = ThreadId::from_index(row);
        let cpu = thread.cpu;
        self.spans.extend(start.map(|start| Span {
            thread: id,
            cpu,
            start,
            end: self.now,
        }));
    }
}
