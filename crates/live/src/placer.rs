//! Interface [`Placer`], which puts threads of this machine on CPUs. The affinity engine and the sched_ext scheduler implement
//! it.
use std::error::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use countersteer_counters::{CoreTypes, CounterError, Resolved};
use countersteer_model::counters::SetPlan;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::engine::{Applied, Observation, Watch};
use countersteer_model::placement::Placement;
use countersteer_model::sample::Sample;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};

use crate::undo::{Journal, JournalError};

/// Event sets to count, and their multiplexing plan.
pub type CounterPlan = (Vec<Vec<Resolved>>, SetPlan);

/// Function that ends a placer whose own thread hangs.
pub type PlacerStop = Box<dyn FnOnce() + Send>;

/// Process that is steered, together with all its threads and descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRoot {
    pub pid: u32,
    /// Program of the workload to which the process and its descendants belong.
    pub program: ProgramId,
    /// Name of that program, unique in the workload.
    pub name: Arc<str>,
}

/// Returns the core types by the kernel's CPU numbers, for counting sessions.
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

/// Converts the head of a counting session's sample to the topology's CPUs and an engine's clock, given by `since`. `None` if
/// the thread did not run, or ran on a CPU outside the topology.
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

/// Callback that chooses counters while an engine runs.
pub trait Recount {
    /// Returns the counters for these metrics with this period. `None` if they are counted already, or if nothing can be
    /// counted.
    fn counters(&mut self, metrics: &[&'static str], period: Nanos) -> Option<CounterPlan>;

    /// Reports that the new counters could not be opened; the former ones continue.
    fn failed(&mut self, why: &str);
}

/// Reason for which threads of this machine cannot be steered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The journal cannot be written. No change is made without an entry.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// Counters or programs failed.
    #[error("{0}")]
    Counters(#[from] CounterError),
    /// Other counters cannot be opened; the former ones continue.
    #[error("{0}")]
    Uncounted(String),
    /// The kernel ended the scheduler at this time of the placer's clock. All threads continue as without it.
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

/// Placer, which follows threads of this machine and puts them on the CPUs of placements. It writes each change to the borrowed
/// journal before the change is made. The engine restores the changes in the journal.
pub trait Placer {
    /// Returns the placer's name in records.
    fn name(&self) -> &'static str;

    /// Attaches a process: steers its threads and its descendants from now on.
    ///
    /// # Errors
    /// Fails if the process does not exist or may not be steered.
    fn attach(&mut self, root: &ProcessRoot, journal: &mut Journal) -> Result<(), EngineError>;

    /// Detaches a process, together with the processes that it has started for its program. Their attributes are restored, and
    /// they are no longer steered. In observations, their threads have ended.
    ///
    /// # Errors
    /// Fails if the placer lost its threads.
    fn detach(&mut self, root: &ProcessRoot, journal: &mut Journal) -> Result<(), EngineError>;

    /// Observes the threads, as [`observe`](countersteer_model::engine::Engine::observe) of engines does.
    ///
    /// # Errors
    /// Fails if the placer lost its threads or its source of counters.
    fn observe(
        &mut self,
        watch: &Watch<'_>,
        until: Nanos,
        journal: &mut Journal,
    ) -> Result<Observation, EngineError>;

    /// Applies CPUs, weights and admission tables, as [`apply`](countersteer_model::engine::Engine::apply) of engines does.
    ///
    /// # Errors
    /// Fails if the placer can no longer place any thread.
    fn apply(
        &mut self,
        placement: &Placement,
        journal: &mut Journal,
    ) -> Result<Applied, EngineError>;

    /// Makes [`Placer::observe`] return early once `file` becomes readable. The effect ends after the first time.
    fn wake_on(&mut self, file: OwnedFd);

    /// Returns the PID of an observed thread's process; `None` if unknown.
    fn process_of(&self, thread: ThreadId) -> Option<u32>;

    /// Replaces the counters, with this period.
    ///
    /// # Errors
    /// Fails with [`EngineError::Uncounted`] if the new counters cannot be opened; the former ones then continue.
    fn recount(
        &mut self,
        counters: CounterPlan,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), EngineError>;

    /// Returns the reason for which requested counters are not used; `None` if they are used.
    fn blindness(&self) -> Option<&str>;

    /// True if observations list the run intervals of threads, if the watch requests them.
    fn reports_switches(&self) -> bool {
        false
    }

    /// Sets the queue depth threshold above which idle CPUs steal waiting threads; `None` disables stealing. Returns the number
    /// of stolen threads; `None` for a placer without queues.
    ///
    /// # Errors
    /// Fails if the scheduler no longer exists.
    fn steal_above(&mut self, _queued: Option<u32>) -> Result<Option<u64>, EngineError> {
        Ok(None)
    }

    /// Returns a function that another thread calls to end the placer if its own thread hangs. `None` for a placer that has ended
    /// once its changes of threads are undone.
    fn stop(&self) -> Option<PlacerStop> {
        None
    }

    /// Restores the placer's changes of threads, before another placer takes over.
    fn leave(&mut self, _journal: &mut Journal) {}

    /// Returns the number of kernel records lost since the last call, because they did not fit between two observations. `None`
    /// if unknown.
    fn lost(&mut self) -> Option<u64> {
        None
    }

    /// Returns a message for the user about placements that could not be applied. `None` if there is none, or if it was
    /// returned before.
    fn complaint(&mut self) -> Option<String> {
        None
    }
}
