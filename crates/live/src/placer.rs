//! The interface [`Placer`]: it puts threads of this machine on CPUs. The affinity engine and the sched_ext scheduler implement
//! it.
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

/// Process that an engine steers, with all its threads and descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub pid: u32,
    /// Program of the workload to which it and its descendants belong.
    pub program: ProgramId,
    /// Name of that program, unique in the workload.
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

/// Sample without values of a counting session's row, by the topology's CPUs and an engine's clock, which is `since`. `None` if
/// a thread did not run, or ran on a CPU that the topology lacks.
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
    /// Events for these metrics with this period; `None` if they are counted already, or nothing can be counted.
    fn counters(&mut self, metrics: &[&'static str], period: Nanos) -> Option<Counters>;

    /// Reports that they could not be opened; the former ones continue.
    fn failed(&mut self, why: &str);
}

/// Reason for which threads of this machine could not be steered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The journal cannot be written; no change is made without an entry.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// Counters or programs failed.
    #[error("{0}")]
    Counters(#[from] CounterError),
    /// Other counters cannot be opened; the former ones continue.
    #[error("{0}")]
    Uncounted(String),
    /// The kernel ended its scheduler at this time of the placer's clock; all threads continue as without it.
    #[error("{why}")]
    Ended {
        #[source]
        why: Box<dyn Error + Send + Sync>,
        at: Nanos,
    },
    /// The scheduler in the kernel failed.
    #[error("{0}")]
    Scheduler(#[source] Box<dyn Error + Send + Sync>),
}

/// Follows threads of this machine, and puts them where placements specify. It journals each change of them in the borrowed
/// journal before it is made; the engine restores the entries of the journal.
pub trait Placer {
    /// Name of the placer in records.
    fn name(&self) -> &'static str;

    /// Steers a process from now on, and its descendants.
    ///
    /// # Errors
    /// Fails if the process does not exist or may not be steered.
    fn attach(&mut self, root: &Root, journal: &mut Journal) -> Result<(), EngineError>;

    /// Detaches a process, and the processes that it has started for its program. They get their former attributes back and are
    /// not steered any more. In observations their threads have ended.
    ///
    /// # Errors
    /// Fails if the placer lost its threads.
    fn detach(&mut self, root: &Root, journal: &mut Journal) -> Result<(), EngineError>;

    /// Observes like [`observe`](countersteer_model::engine::Engine::observe) of engines.
    ///
    /// # Errors
    /// Fails if the placer lost its threads or its source of counters.
    fn observe(
        &mut self,
        watch: &Watch<'_>,
        until: Nanos,
        journal: &mut Journal,
    ) -> Result<Observation, EngineError>;

    /// Applies places, weights and admission tables, like [`apply`](countersteer_model::engine::Engine::apply) of engines.
    ///
    /// # Errors
    /// Fails if the placer can no longer place any thread.
    fn apply(
        &mut self,
        placement: &Placement,
        journal: &mut Journal,
    ) -> Result<Applied, EngineError>;

    /// Makes [`Placer::observe`] return early, once, when `file` becomes readable.
    fn wake_on(&mut self, file: OwnedFd);

    /// Process of an observed thread.
    fn process_of(&self, thread: ThreadId) -> Option<u32>;

    /// Counts other events from now on, with this period.
    ///
    /// # Errors
    /// [`EngineError::Uncounted`] if the former ones continue.
    fn recount(
        &mut self,
        counters: Counters,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), EngineError>;

    /// Reason for which counters are not used although they were requested; `None` if they are used.
    fn blindness(&self) -> Option<&str>;

    /// Sets the queue depth above which idle CPUs take waiting threads; `None` for never. Returns the number of stolen threads;
    /// `None` for a placer without queues.
    ///
    /// # Errors
    /// Fails if the scheduler does not exist any more.
    fn steal_above(&mut self, _queued: Option<u32>) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    /// Restores its changes of threads, before another placer takes over.
    fn leave(&mut self, _journal: &mut Journal) {}

    /// Records of the kernel that did not fit between two observations; `None` if unknown.
    fn lost(&mut self) -> Option<u64> {
        None
    }

    /// Message that users should read once: placements that could not be applied, if there were any.
    fn complaint(&mut self) -> Option<String> {
        None
    }
}
