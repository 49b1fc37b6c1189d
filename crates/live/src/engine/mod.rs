//! Live engine, which steers the threads of real programs.
//!
//! A placer puts threads on CPUs, and resources apply the rest of a placement. The engine runs the workload: it starts
//! programs at their times, passes signals on, reads hints, writes advice, and ends the run with the last program.
//!
//! Input: a placer and a workload. Output: an [`Engine`] for the driver.
mod config;
mod fallback;
mod forecast;
mod hints;
mod last_resort;
mod programs;
mod requests;
mod signatures;
mod virtual_counters;
mod wakeups;

use std::sync::Arc;
use std::time::Instant;

use countersteer_model::engine::{
    Applied, Engine, Forecast, Observation, ThreadInfo, Watch, Watched,
};
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::signals::EndSignals;

use crate::affinity::AffinityEngine;
use crate::placer::{EngineError, Placer, ProcessRoot, Recount};
use crate::resources::{ResourceConfig, Resources};
use crate::undo::{Journal, restore};
use crate::workload::{LiveWorkload, ProcessSearch, Started};
use fallback::{Fallback, inward, outward};
use hints::HintPages;
use programs::{LivePrograms, placed_at_launch};
use requests::DecisionRequests;
use signatures::Signatures;

pub use config::LiveConfig;
pub use last_resort::LastResort;
use last_resort::Released;
pub use requests::{DecisionRequest, Stealing};
pub use virtual_counters::VirtualCounters;

/// Engine that steers the threads of a workload on this machine.
pub struct LiveEngine {
    topology: Arc<Topology>,
    dry: bool,
    placer: Box<dyn Placer>,
    /// State for falling back to affinity; `None` unless a scheduler in the kernel is the placer.
    fallback: Option<Fallback>,
    /// Start of the current placer, by the clock of the run.
    base: Nanos,
    /// Names of all placers so far.
    placers: Vec<&'static str>,
    /// Frequency hints and cache partitions.
    resources: Resources,
    /// Undo journal for changes by the placer and the resources.
    journal: Journal,
    /// Callback that chooses other counters if the metrics change.
    recount: Option<Box<dyn Recount>>,
    /// Requests for work stealing.
    stealing: Stealing,
    /// Programs of the workload.
    workload: LiveWorkload,
    /// Signals of this process.
    signals: EndSignals,
    /// Receiver of decision requests; `None` until one is created.
    requests: Option<DecisionRequests>,
    pages: HintPages,
    signatures: Signatures,
    programs: LivePrograms,
    counters: Option<VirtualCounters>,
    watched: Watched,
    /// Threads of the last observation.
    threads: Vec<ThreadInfo>,
    /// Time of the last observation.
    now: Nanos,
    /// Time at which the placer's last observation was made.
    observed: Instant,
    /// True once the initial processes are attached.
    begun: bool,
    /// True once a lack of context switches was reported.
    lacks_switches: bool,
    /// True once a signal has asked the run to end.
    asked_to_end: bool,
    released: Released,
    say: fn(&str),
}

impl LiveEngine {
    /// Creates an engine with the programs that it will run. The placer is the scheduler in the kernel if one is given,
    /// otherwise affinity.
    ///
    /// # Errors
    /// Fails if no journal can be written, or with EMFILE.
    pub fn open(
        config: LiveConfig,
        scheduler: Option<Box<dyn Placer>>,
        workload: LiveWorkload,
    ) -> Result<Self, EngineError> {
        let affinity = config.affinity;
        let topology = Arc::clone(&affinity.topology);
        let dry = affinity.dry;
        let resources = Resources::new(ResourceConfig {
            topology: Arc::clone(&topology),
            numbers: affinity.numbers.clone(),
            root: config.root,
            say: config.say,
        });
        let mut fallback = None;
        let placer = match scheduler {
            Some(scheduler) => {
                fallback = Some(Fallback::new(affinity));
                scheduler
            }
            None => Box::new(AffinityEngine::open(affinity)?),
        };
        // The journal is created last, because from here on the engine must remove it.
        let journal = Journal::create(&config.journals)?;
        let mut engine = Self {
            journal,
            pages: HintPages::new(&topology),
            topology,
            dry,
            placers: vec![placer.name()],
            placer,
            fallback,
            base: Nanos::ZERO,
            resources,
            recount: config.recount,
            stealing: config.stealing,
            workload,
            signals: config.signals,
            requests: None,
            signatures: Signatures::new(config.say),
            programs: LivePrograms::default(),
            counters: None,
            watched: Watched::default(),
            threads: Vec::new(),
            now: Nanos::ZERO,
            observed: Instant::now(),
            begun: false,
            lacks_switches: false,
            asked_to_end: false,
            released: Released::default(),
            say: config.say,
        };
        engine.wake_on_signals()?;
        Ok(engine)
    }

    /// Returns the engine with virtual counters, whose values are added to samples.
    #[must_use]
    pub fn reading(mut self, counters: VirtualCounters) -> Self {
        self.counters = Some(counters);
        self
    }

    /// Creates a handle by which another thread makes this engine observe at once.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn decision_request(&mut self) -> Result<DecisionRequest, EngineError> {
        let (requests, request) = DecisionRequests::new()?;
        self.requests = Some(requests);
        self.wake_on_requests();
        Ok(request)
    }

    /// Returns the means by which another thread undoes everything if this engine's thread hangs.
    #[must_use]
    pub fn last_resort(&self) -> LastResort {
        LastResort {
            journal: self.journal.path().to_owned(),
            stop: self.placer.stop(),
            released: self.released.clone(),
        }
    }

    /// Returns the names of all placers so far, in order.
    #[must_use]
    pub fn placers(&self) -> String {
        self.placers.join(", then ")
    }

    /// Returns the reason for which requested counters are not used; `None` if they are used.
    #[must_use]
    pub fn blindness(&self) -> Option<&str> {
        self.placer.blindness()
    }

    /// Returns the number of kernel records lost since the last call, because they did not fit between two observations.
    /// `None` if unknown.
    pub fn lost(&mut self) -> Option<u64> {
        self.placer.lost()
    }

    /// Returns the programs of the workload.
    #[must_use]
    pub const fn workload(&self) -> &LiveWorkload {
        &self.workload
    }

    /// Attaches a process: steers its threads and its descendants from now on.
    ///
    /// # Errors
    /// Fails if the process does not exist or may not be steered.
    pub fn attach(&mut self, root: &ProcessRoot) -> Result<(), EngineError> {
        if let Some(fallback) = &mut self.fallback {
            fallback.attached(root);
        }
        self.placer.attach(root, &mut self.journal)
    }

    /// Detaches a process, together with the processes that it has started for its program, and restores their attributes.
    ///
    /// # Errors
    /// Fails if the placer lost its threads.
    pub fn detach(&mut self, root: &ProcessRoot) -> Result<(), EngineError> {
        let is_of =
            |t: &ThreadInfo| t.program == root.program || PROC.process_of(t.id.0) == Some(root.pid);
        let threads = std::mem::take(&mut self.threads);
        let (gone, rest): (Vec<_>, Vec<_>) = threads.into_iter().partition(is_of);
        self.threads = rest;
        self.resources.let_go(&gone);
        self.placer.detach(root, &mut self.journal)?;
        gone.iter().for_each(|t| self.journal.forget(t.id.0));
        Ok(())
    }

    /// Attaches the initial processes at the first call, and starts the programs that are due.
    fn start(&mut self) -> Result<(), EngineError> {
        if !std::mem::replace(&mut self.begun, true) {
            for root in self.workload.roots() {
                self.attach(&root)?;
                self.wake_at_end(root.pid);
            }
        }
        let ProcessSearch { new, left } = self.workload.find(self.now);
        for root in &left {
            self.detach(root)?;
        }
        // Descendants of detached processes were detached with them, but may belong to the workload themselves.
        let again = if left.is_empty() {
            Vec::new()
        } else {
            self.workload.roots()
        };
        for root in again {
            let _ = self.attach(&root);
        }
        for root in new {
            // A process that has ended since it was found cannot be attached and is skipped.
            if self.attach(&root).is_ok() {
                self.wake_at_end(root.pid);
            }
        }
        for Started {
            row,
            root,
            launch_on,
        } in self.workload.start(self.now)?
        {
            self.attach(&root)?;
            if let Some(cpus) = launch_on {
                self.place(&placed_at_launch(root.pid, cpus))?;
            }
            self.wake_at_end(root.pid);
            self.workload.release(row)?;
        }
        Ok(())
    }

    /// Opens the counters for the events that the watch needs, if the watch changed.
    fn follow_watch(&mut self, watch: &Watch<'_>) -> Result<(), EngineError> {
        if let Some(fallback) = &mut self.fallback {
            fallback.config.period = watch.period;
        }
        if !self.watched.changes(watch) {
            return Ok(());
        }
        if let Some(counters) = &mut self.counters {
            counters.turn_to(watch.metrics);
        }
        let Some(recount) = &mut self.recount else {
            return Ok(());
        };
        let Some(counters) = recount.counters(watch.metrics, watch.period) else {
            return Ok(());
        };
        let recounted = self
            .placer
            .recount(counters.clone(), watch.period, &mut self.journal);
        match recounted {
            Ok(()) => {
                if let Some(fallback) = &mut self.fallback {
                    fallback.config.counters = Some(counters);
                }
                Ok(())
            }
            Err(EngineError::Uncounted(why)) => {
                recount.failed(&why);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes one observation through the placer, by the clock of the run.
    fn observe_threads(
        &mut self,
        watch: &Watch<'_>,
        until: Nanos,
    ) -> Result<Observation, EngineError> {
        let by_placer = inward(until, self.base);
        self.mention_switches(watch);
        let seen = match self.placer.observe(watch, by_placer, &mut self.journal) {
            Ok(seen) => outward(seen, self.base),
            Err(EngineError::Ended { why, at }) if self.fallback.is_some() => {
                self.fall_back(&why.to_string(), at)?;
                let watch = Watch {
                    events: true,
                    ..*watch
                };
                return self.observe_threads(&watch, until.max(at));
            }
            Err(error) => return Err(error),
        };
        self.threads.clone_from(&seen.threads);
        if let Some(fallback) = &mut self.fallback {
            fallback.observed(&self.threads);
        }
        self.resources.note(&self.threads, &mut self.journal);
        let taken = self.placer.steal_above(self.stealing.above())?;
        self.stealing.set_count(taken);
        self.observed = Instant::now();
        Ok(seen)
    }

    /// Reports, once, that the policy does not learn of context switches.
    fn mention_switches(&mut self, watch: &Watch<'_>) {
        let lacks = watch.switches && !self.placer.reports_switches();
        if lacks && !std::mem::replace(&mut self.lacks_switches, true) {
            (self.say)(
                "the policy asks for context switches, which only the sched_ext scheduler reports (`--engine scx`): it decides without them",
            );
        }
    }

    /// Replaces a scheduler that the kernel has ended by the affinity engine.
    fn fall_back(&mut self, why: &str, at: Nanos) -> Result<(), EngineError> {
        let Some(fallback) = self.fallback.take() else {
            return Ok(());
        };
        (self.say)(&format!("{why}; masks take over"));
        self.base = at;
        self.placer.leave(&mut self.journal);
        self.placer = fallback.take_over(&self.threads, &mut self.journal)?;
        self.placers.push(self.placer.name());
        self.wake_on_signals()?;
        self.wake_on_requests();
        for pid in self.workload.running() {
            self.wake_at_end(pid);
        }
        Ok(())
    }

    /// Applies a placement: CPUs of threads through the placer, and the other resources.
    fn place(&mut self, placement: &Placement) -> Result<Applied, EngineError> {
        if let Some(fallback) = &mut self.fallback {
            fallback.placed(placement);
        }
        let placed = self.placer.apply(placement, &mut self.journal);
        if let Some(complaint) = self.placer.complaint() {
            (self.say)(&complaint);
        }
        let mut applied = match placed {
            // The next observation detects the end of the scheduler, and falls back to affinity.
            Err(EngineError::Ended { .. }) if self.fallback.is_some() => Applied::default(),
            placed => placed?,
        };
        applied.took = Nanos(self.observed.elapsed().as_nanos() as u64);
        if !self.dry {
            applied.unsupported +=
                self.resources
                    .apply(placement, &self.threads, &mut self.journal);
        }
        Ok(applied)
    }
}

impl Drop for LiveEngine {
    fn drop(&mut self) {
        if !self.released.is_true() {
            restore::close(&self.journal, self.resources.undoing());
        }
    }
}

impl Engine for LiveEngine {
    type Error = EngineError;

    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn observe(&mut self, watch: &Watch<'_>, until: Nanos) -> Result<Observation, EngineError> {
        let mut seen = Observation::default();
        loop {
            let part_ends = if seen.finished {
                self.now
            } else {
                self.start()?;
                until.min(self.workload.next_start())
            };
            self.follow_watch(watch)?;
            let part = self.observe_threads(watch, part_ends)?;
            self.now = part.at;
            (seen.at, seen.threads, seen.tells_phases) = (part.at, part.threads, part.tells_phases);
            seen.events.extend(part.events);
            seen.ended.extend(part.ended);
            seen.spans.extend(part.spans);
            if seen.samples.is_empty() {
                seen.samples = part.samples;
            } else {
                seen.samples.append(&part.samples);
            }
            let had_finished = seen.finished;
            seen.finished |= self.workload.reap(part.at) | self.pass_signal();
            if seen.finished && !had_finished {
                // Threads may have been forked and have run between the observation and the exit of the last program.
                continue;
            }
            let requested = self.is_requested();
            if seen.finished
                || requested
                || self.now >= until
                || (watch.events && !seen.events.is_empty())
            {
                seen.samples.sort();
                if let Some(counters) = &mut self.counters {
                    counters.read(&mut seen);
                }
                self.programs.fill(&mut seen);
                self.pages
                    .hear(&mut seen, |thread| self.placer.process_of(thread));
                return Ok(seen);
            }
        }
    }

    fn apply(&mut self, placement: &Placement) -> Result<Applied, EngineError> {
        let applied = self.place(placement)?;
        if !self.dry {
            self.pages.say(placement);
        }
        Ok(applied)
    }

    fn forecast(&mut self) -> Option<&mut dyn Forecast> {
        Some(self)
    }
}
