//! Counting session of the scheduler, as the affinity engine has one.
//!
//! Input: events, processes. Output: samples. Without events, only the running time of threads is counted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use countersteer_counters::{BpfLoader, CounterError, Pmus, Session, resolve};
use countersteer_live::placer::{CounterPlan, core_types};
use countersteer_model::counters::{PlannedSet, SetPlan, parse_set};
use countersteer_model::sample::Samples;
use countersteer_model::units::Nanos;

use crate::config::ScxConfig;
use crate::follow::{Judging, load_judging};

/// Counters of the threads that the scheduler places.
pub(crate) struct BpfCounting {
    session: Session,
    judging: Arc<Judging>,
}

impl BpfCounting {
    /// Opens the counters; no thread is counted yet.
    ///
    /// # Errors
    /// Fails if the events cannot be counted on this machine.
    pub fn open(
        config: &ScxConfig,
        counters: Option<CounterPlan>,
        period: Nanos,
        judging: Arc<Judging>,
    ) -> Result<Self, CounterError> {
        let counters = match counters {
            Some(counters) => counters,
            None => time_only(period)?,
        };
        let judge = Arc::clone(&judging);
        let session = Session::without_threads(
            counters,
            period,
            config.numbers.os_set(&config.topology.groups[0].cpus),
            core_types(&config.topology, &config.numbers),
            Some(BpfLoader {
                load: Arc::new(move |request| load_judging(request, &judge)),
                must: false,
            }),
        )?;
        Ok(Self { session, judging })
    }

    /// True if the kernel computes speed-up factors of threads from these counts.
    pub fn judges(&self) -> bool {
        self.judging.judges()
    }

    /// Counts a process's threads from now on, and their descendants; skips a process that has ended.
    ///
    /// # Errors
    /// Fails if the process may not be counted.
    pub fn attach(&mut self, pid: u32) -> Result<(), CounterError> {
        // A process that was detached and returns is still counted.
        if self.session.knows(pid) {
            return Ok(());
        }
        match self.session.attach(pid) {
            Err(CounterError::Gone { .. }) => Ok(()),
            other => other,
        }
    }

    /// Makes room for new threads, if the counts are not read for a while.
    pub fn make_room(&mut self) {
        self.session.make_room();
    }

    /// Reads the counts since the last call, on the kernel's clock and by its CPU numbers, and switches to the next set.
    ///
    /// # Errors
    /// Fails if counters cannot be switched any more.
    pub fn read(&mut self, take: impl FnMut(&Samples)) -> Result<(), CounterError> {
        self.session.listen();
        // The scheduler reports forks, execs and exits.
        drop(self.session.task_events());
        self.session.turn(take)
    }

    /// Takes the last counts and continues as `next`, which counts these processes: [`Session::exchange`].
    ///
    /// # Errors
    /// Fails if counters cannot be read any more. If `next` cannot count a process, nothing has changed.
    pub fn exchange(
        &mut self,
        mut next: Self,
        pids: &BTreeSet<u32>,
        take: impl FnMut(&Samples),
    ) -> Result<(), CounterError> {
        pids.iter().try_for_each(|pid| next.attach(*pid))?;
        self.session.exchange(next.session, take)?;
        // The scheduler reports forks, execs and exits.
        drop(self.session.task_events());
        self.judging = next.judging;
        Ok(())
    }
}

/// Set whose samples have the running time of threads, and no counts.
fn time_only(period: Nanos) -> Result<CounterPlan, CounterError> {
    const CLOCK: &str = "task_clock";
    let pmus = Pmus::read(Path::new("/"))?;
    let mut set = resolve(CLOCK, &parse_set(CLOCK).unwrap_or_default(), &pmus)?;
    set.iter_mut().for_each(|event| event.planned.event = None);
    let events = set.iter().map(|event| event.planned.clone()).collect();
    let plan = SetPlan::new(vec![PlannedSet { events }], Some(period));
    Ok((vec![set], plan.unwrap_or(SetPlan::nothing())))
}
