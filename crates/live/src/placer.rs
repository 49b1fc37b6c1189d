//! The interface [`Placer`] of what puts threads of this machine on CPUs: the affinity engine, and the sched_ext scheduler in the kernel.
use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use countersteer_counters::{CoreTypes, CounterError, Resolved};
use countersteer_model::counters::Plan;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::{Applied, Observation, Watch};
use countersteer_model::placement::Placement;
use countersteer_model::sample::Sample;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};

use crate::undo::{Journal, JournalError};

/// Events to count, with their plan.
pub type Counters = (Vec<Vec<Resolved>>, Plan);

/// A process that an engine steers, with all its threads and whatever it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub pid: u32,
    /// The program of the workload that it belongs to; so does what it starts.
    pub program: ProgramId,
    /// That program's name, unique in the workload.
    pub name: Arc<str>,
}

/// Core types by the kernel's numbers of CPUs, for counting sessions.
#[must_use]
pub fn core_types(topology: &Topology, numbers: &CpuNumbers) -> CoreTypes {
    let online = numbers.os_set(&topology.groups[0].cpus);
    let most = online.iter().last().map_or(0, |cpu| cpu.index() + 1);
    let row = |os: usize| {
        let own = numbers.own(CpuId::from_index(os));
        own.map_or(0, |cpu| topology.core_type_of(cpu).0)
    };
    CoreTypes {
        names: topology.core_types.iter().map(|t| t.name.clone()).collect(),
        by_cpu: (0..most).map(row).collect(),
    }
}

/// The head of what a counting session has counted, by the topology's CPUs and an engine's clock, which is `since`. None where a
/// thread did not run, or on a CPU that the topology lacks.
pub fn own_sample(
    row: &Sample,
    topology: &Topology,
    numbers: &CpuNumbers,
    since: impl Fn(Nanos) -> Nanos,
) -> Option<Sample> {
    let cpu = row.cpu.and_then(|cpu| numbers.own(cpu))?;
    (row.ran() > Nanos::ZERO).then(|| Sample {
        cpu: Some(cpu),
        core_type: topology.core_type_of(cpu),
        start: since(row.start),
        end: since(row.end),
        ..*row
    })
}

/// Chooses counters while an engine runs.
pub trait Recount {
    /// Events for these metrics, read so often; `None` where they are those that are counted already, or nothing can be counted.
    fn counters(&mut self, metrics: &[&'static str], period: Nanos) -> Option<Counters>;

    /// They could not be opened; those before are counted on.
    fn failed(&mut self, why: &str);
}

/// Why threads of this machine could not be steered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Nothing is changed that was not written down.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// Counters or programs.
    #[error("{0}")]
    Counters(#[from] CounterError),
    /// Other counters cannot be opened; the former ones go on.
    #[error("{0}")]
    Uncounted(String),
    /// The kernel ended its scheduler at this time of the placer's clock; all threads run on as without it.
    #[error("{why}")]
    Ended {
        #[source]
        why: Box<dyn Error + Send + Sync>,
        at: Nanos,
    },
    /// The scheduler in the kernel.
    #[error("{0}")]
    Scheduler(#[source] Box<dyn Error + Send + Sync>),
}

/// Follows threads of this machine, and puts them where placements say. What it changes of them is written into the journal that
/// it is lent, before it is changed; the engine restores what the journal has.
pub trait Placer {
    /// The name that records have.
    fn name(&self) -> &'static str;

    /// Steers a process from now on, and what it starts.
    ///
    /// # Errors
    /// It is gone or may not be steered.
    fn attach(&mut self, root: &Root, journal: &mut Journal) -> Result<(), EngineError>;

    /// Lets a process go, and what it has started for its program: they have what they had, and are not steered any more. In
    /// observations their threads have ended.
    ///
    /// # Errors
    /// The placer lost its threads.
    fn detach(&mut self, root: &Root, journal: &mut Journal) -> Result<(), EngineError>;

    /// As [`observe`](countersteer_model::engine::Engine::observe) of engines.
    ///
    /// # Errors
    /// The placer lost its threads or its source of counters.
    fn observe(
        &mut self,
        watch: &Watch<'_>,
        until: Nanos,
        journal: &mut Journal,
    ) -> Result<Observation, EngineError>;

    /// As [`apply`](countersteer_model::engine::Engine::apply) of engines, for places, weights and admission tables.
    ///
    /// # Errors
    /// The placer can no longer place any thread.
    fn apply(
        &mut self,
        placement: &Placement,
        journal: &mut Journal,
    ) -> Result<Applied, EngineError>;

    /// Makes [`Placer::observe`] return early, once, when something can be read here.
    fn wake_on(&mut self, file: OwnedFd);

    /// The process of a thread that was observed.
    fn process_of(&self, thread: ThreadId) -> Option<u32>;

    /// Counts other events from now on, read so often.
    ///
    /// # Errors
    /// [`EngineError::Uncounted`] where the former ones go on.
    fn recount(
        &mut self,
        counters: Counters,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), EngineError>;

    /// Why counters are not used, if they are not although they were asked for.
    fn blindness(&self) -> Option<&str>;

    /// Idle CPUs take waiting threads from queues longer than this from now on; never, if absent. How often one was taken; `None`
    /// of a placer without queues.
    ///
    /// # Errors
    /// The scheduler is not there any more.
    fn steal_above(&mut self, _queued: Option<u32>) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    /// Gives back what it has changed of threads, before another placer takes over.
    fn leave(&mut self, _journal: &mut Journal) {}

    /// Records of the kernel that did not fit between two observations; `None` where that is not known.
    fn lost(&mut self) -> Option<u64> {
        None
    }

    /// What users should read once: placements that could not be, if there were any.
    fn complaint(&mut self) -> Option<String> {
        None
    }
}
