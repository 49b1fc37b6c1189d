//! The simulator as an engine: threads of simulated programs on simulated CPUs under the Linux model.
//!
//! Input: a [`Plan`] (programs with profiles) and a topology. [`crate::linux`] decides which thread runs on which CPU.
//! [`crate::progress`] computes the speed of each running thread. This module moves programs through their life cycle: start,
//! serial and parallel part, bursts and sleeps, restart. It reports the values that counters would show.

mod alone;
mod ceiling;
mod control;
mod forecast;
mod frequency;
mod hints;
mod life;
mod observe;
mod outcome;
mod pages;
mod pmu;
mod program;
mod signatures;
mod switches;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ProgramInfo, Span, ThreadEvent, Watched};
use countersteer_model::events::Event;
use countersteer_model::machine::Governor;
use countersteer_model::placement::{AdmissionTable, Clamp};
use countersteer_model::profile::Profile;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CacheId, CpuId, GroupId, Nanos, ProgramId, ThreadId};

pub use self::alone::cpus_alone;
pub use self::ceiling::{PerformanceLimits, ProgramLimits, WorkRow};
use self::frequency::ClockDomains;
pub use self::outcome::ProgramUsage;
use self::pages::Homes;
use self::pmu::CountingState;
pub use self::pmu::not_offered;
use self::program::SimulatedProgram;
pub use self::program::{Plan, PlannedHotplug, PlannedProgram};
use crate::linux::{ContextSwitch, Linux, LinuxConfig};
use crate::progress::{
    Analytic, ModelError, ModelId, ProgressConfig, ProgressModel, Traced, Traces,
};
use crate::scheduler::Scheduler;

/// Configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimConfig {
    pub seed: u64,
    pub linux: LinuxConfig,
    pub progress: ProgressConfig,
    /// Relative standard deviation of the noise on counter values.
    pub counter_noise: f64,
    /// CPU time that reading the counters of one thread costs.
    pub sample_cost: Nanos,
    /// Number of runs that each program must finish before the simulation ends.
    pub rounds: u32,
    /// True if every run interval of every thread is kept.
    pub trace: bool,
    /// Frequency governor; `None` selects the governor of the machine file.
    pub governor: Option<Governor>,
}

/// Reasons why a simulation cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A profile cannot be simulated on this machine.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No event is due, although the workload is not finished.
    #[error(
        "the simulation is stuck at {at}: no thread can run and nothing is due; this is a defect of the simulator"
    )]
    Stuck { at: Nanos },
    /// A scheduler that replaces the model of Linux has failed.
    #[error("the scheduler stopped at {at}: {why}")]
    Scheduler { at: Nanos, why: String },
    /// The simulation exceeds its limit on wall-clock time.
    #[error(
        "the simulation was stopped after {budget:?} (`--max-wall`), at {at} of its own time; give it more time, a smaller workload or `--max-seconds`"
    )]
    OutOfTime { at: Nanos, budget: Duration },
}

/// Number of simulation steps between two checks of the wall clock.
const STEPS_PER_LOOK: u32 = 16;

/// Limit on the wall-clock time of a simulation, by a clock of the caller.
struct WallClockBudget {
    given: Duration,
    elapsed: Box<dyn Fn() -> Duration + Send + Sync>,
    steps: u32,
}

impl WallClockBudget {
    fn spend(&mut self, at: Nanos) -> Result<(), SimError> {
        self.steps = (self.steps + 1) % STEPS_PER_LOOK;
        if self.steps == 0 && (self.elapsed)() > self.given {
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
    linux: Box<dyn Scheduler>,
    progress: Box<dyn ProgressModel>,
    pmu: CountingState,
    /// True if programs end after one run instead of restarting.
    runs_once: bool,
    watched: Watched,
    models: Vec<(Arc<Profile>, ModelId)>,
    /// Signatures requested so far, for whole programs and for parts of their runs.
    signatures: Vec<signatures::ModelSignature>,
    /// Name and path of each program, indexed by program.
    infos: Vec<ProgramInfo>,
    programs: Vec<SimulatedProgram>,
    threads: Vec<EngineThread>,
    timers: BinaryHeap<Reverse<(Nanos, EngineTimer)>>,
    events: Vec<ThreadEvent>,
    spans: Vec<Span>,
    /// True if the policy asked for context switches.
    reports_switches: bool,
    /// Buffer for context switches, which every step reuses to save allocations.
    switch_buffer: Vec<ContextSwitch>,
    /// Buffer for threads whose work ended, which every step reuses to save allocations.
    finished_buffer: Vec<ThreadId>,
    admission: Option<AdmissionTable>,
    /// For each thread: group that the admission table selects by the metrics of the last observation.
    admission_groups: Vec<Option<GroupId>>,
    /// Times of the last observation and of the one before.
    observed: [Nanos; 2],
    migrations: u64,
    switches: u64,
    budget: Option<WallClockBudget>,
    clocks: Option<ClockDomains>,
    /// Utilisation clamps, indexed by thread; empty until a policy clamps a thread.
    clamps: Vec<Clamp>,
    control: control::ControlledState,
    /// Caches that are currently partitioned among classes of threads.
    divided: Vec<CacheId>,
    /// Pages of threads; `None` on a machine on which all memory counts as local.
    homes: Option<Homes>,
}

/// Kinds of the engine's timers; at equal times, the order of the variants decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EngineTimer {
    Hotplug { event: usize },
    Start { program: usize },
    Wake { thread: ThreadId },
    Scan,
}

#[derive(Clone, Debug)]
struct EngineThread {
    program: usize,
    /// CPUs that the program may use.
    allowed: Arc<CpuSet>,
    /// CPUs in the thread's present affinity mask.
    confined: Arc<CpuSet>,
    alive: bool,
    /// CPU on which the thread runs or last ran.
    cpu: CpuId,
    running_since: Option<Nanos>,
    runnable: bool,
    /// Time at which the thread last went to sleep.
    slept: Nanos,
    /// Running time of the thread on each core type, up to the last context switch.
    ran_by_type: Vec<Nanos>,
}

impl EngineThread {
    /// Creates a thread of a program that has not started; the thread may run on all CPUs.
    fn of(program: usize, topology: &Topology) -> Self {
        let everywhere = &topology.groups[0].cpus;
        Self {
            program,
            allowed: Arc::clone(everywhere),
            confined: Arc::clone(everywhere),
            alive: false,
            cpu: CpuId(0),
            running_since: None,
            runnable: false,
            slept: Nanos::ZERO,
            ran_by_type: vec![Nanos::ZERO; topology.core_types.len()],
        }
    }
}

impl Simulation {
    /// Prepares a simulation; nothing runs before the first [`Engine::observe`](countersteer_model::engine::Engine::observe).
    ///
    /// # Errors
    /// Fails if this machine cannot run a profile.
    pub fn new(topology: Arc<Topology>, plan: &Plan, config: SimConfig) -> Result<Self, SimError> {
        let analytic = Analytic::new(Arc::clone(&topology), config.progress.clone());
        Self::with_model(topology, plan, config, Box::new(analytic))
    }

    /// Prepares a simulation in which the programs' recorded accesses pass through simulated caches.
    ///
    /// # Errors
    /// Fails if a program was not traced.
    pub fn traced(
        topology: Arc<Topology>,
        plan: &Plan,
        config: SimConfig,
        traces: Traces,
    ) -> Result<Self, SimError> {
        let traced = Traced::new(Arc::clone(&topology), config.progress.clone(), traces);
        Self::with_traced(topology, plan, config, traced)
    }

    /// Prepares a traced simulation in which only samples of the accesses pass through the caches.
    ///
    /// # Errors
    /// Fails if a program was not traced.
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
        // The traced model supports only the frequency `freq_ghz`.
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
            pmu: CountingState::new(config.seed, config.counter_noise, &topology),
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
            reports_switches: false,
            switch_buffer: Vec::new(),
            finished_buffer: Vec::new(),
            admission: None,
            admission_groups: Vec::new(),
            observed: [Nanos::ZERO; 2],
            migrations: 0,
            switches: 0,
            budget: None,
            clocks: ClockDomains::new(&topology, config.governor.unwrap_or(topology.governor)),
            clamps: Vec::new(),
            control: control::ControlledState::new(&topology, &plan.hotplug),
            divided: Vec::new(),
            homes: Homes::new(&topology),
            now: Nanos::ZERO,
            topology,
            config,
            linux: Box::new(linux),
            progress: {
                progress.advance(Nanos::ZERO);
                progress
            },
        };
        if sim.homes.is_some() && sim.config.linux.numa_balancing {
            sim.timers.push(Reverse((pages::SCAN, EngineTimer::Scan)));
        }
        for planned in &plan.programs {
            sim.add_program(planned)?;
        }
        for (event, planned) in plan.hotplug.iter().enumerate() {
            sim.timers
                .push(Reverse((planned.at, EngineTimer::Hotplug { event })));
        }
        Ok(sim)
    }

    /// Limits the wall-clock time; the simulation fails once `elapsed` exceeds `budget`.
    #[must_use]
    pub fn within(
        mut self,
        budget: Duration,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.budget = Some(WallClockBudget {
            given: budget,
            elapsed: Box::new(elapsed),
            steps: 0,
        });
        self
    }

    /// Replaces the model of Linux by another scheduler. Call this before the first step.
    #[must_use]
    pub fn scheduled_by(mut self, scheduler: Box<dyn Scheduler>) -> Self {
        self.linux = scheduler;
        self
    }

    /// Counts `events` in addition to the events that the observed metrics need.
    #[must_use]
    pub fn counting_events(mut self, events: &[Event]) -> Self {
        self.pmu.count_also(events, &self.topology);
        self
    }

    /// Makes programs end after one run instead of restarting.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.runs_once = true;
        self
    }

    fn add_program(&mut self, planned: &PlannedProgram) -> Result<(), SimError> {
        let model = self.model_of(&planned.profile)?;
        let row = self.programs.len();
        let first = ThreadId::from_index(self.threads.len());
        self.programs
            .push(SimulatedProgram::new(planned, model, first));
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
            let mut thread = EngineThread::of(row, &self.topology);
            if let Some(allowed) = &planned.control.allowed {
                thread.allowed = Arc::clone(allowed);
                thread.confined = Arc::clone(allowed);
            }
            self.threads.push(thread);
        }
        self.timers.push(Reverse((
            planned.start,
            EngineTimer::Start { program: row },
        )));
        Ok(())
    }

    /// Returns the identifier of a profile's progress model, which copies of a program share.
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

    /// Runs until time `until` or the end of the workload; with `early`, returns after any thread event.
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
                .min(
                    self.clocks
                        .as_ref()
                        .map_or(Nanos::NEVER, ClockDomains::next),
                );
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
            if let Some(why) = self.control.refused.take().or_else(|| self.linux.failure()) {
                return Err(SimError::Scheduler { at: self.now, why });
            }
            let switched = self.forward_switches();
            self.govern(switched);
            if self.finished() || (next > until) || (early && !self.events.is_empty()) {
                return Ok(());
            }
        }
    }
}
