//! The affinity engine: threads are confined to CPUs by their affinity masks, on any Linux.
//!
//! Input: placements. Output: masks. A user needs no privilege for processes of their own. Counters are used if they are
//! permitted. Without them threads are found in /proc at each period.
//!
//! - A thread's own mask, and the part of it that a cpuset leaves, is never exceeded: a target without any of its CPUs is
//!   refused.
//! - A mask that is neither the thread's own nor the one set here was set by another program, or by a cpuset: it becomes the
//!   thread's own. A few masks are compared each period, since a policy may not move the thread for a long time.
//! - Kernel threads are never touched.
//! - New threads inherit the affinity mask of their parent. An admission table places them within `ADMISSION` (the first one
//!   after a quiet time within a longer time), and the policy at its next decision. Other events reach the policy with at most
//!   one period's delay.
//! - Each change is journalled before it is made ([`Journal`]). It is restored when the engine is dropped or, if it was killed,
//!   by [`crate::undo::restore()`].

mod leave;
mod place;
mod processes;
mod recount;
mod samples;
mod scan;
mod task_table;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use countersteer_counters::{BpfLoader, Session, TaskEvent};
use countersteer_model::counters::SetPlan;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{self, Applied, Observation, ThreadEvent, ThreadEventKind};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{AdmissionTable, Placement};
use countersteer_model::sample::Samples;
use countersteer_model::topology::Topology;
use countersteer_model::units::{Nanos, ProgramId, ThreadId};

use crate::placer::{CounterPlan, EngineError, Placer, ProcessRoot, core_types};
use crate::undo::Journal;

use leave::Ignored;
pub use place::may_renice;
use scan::ProcessScan;
use task_table::TaskTable;

/// Time within which an admission table places a new thread.
pub(crate) const ADMISSION: Nanos = Nanos::from_millis(10);

/// Time within which it places the first new thread after `QUIET` without forks, since looking for threads wakes this process.
const FIRST_ADMISSION: Nanos = Nanos::from_millis(50);
const QUIET: Nanos = Nanos::from_millis(2000);

/// Configuration of the engine.
#[derive(Clone, Debug)]
pub struct AffinityConfig {
    pub topology: Arc<Topology>,
    /// The kernel's numbers of its CPUs.
    pub numbers: CpuNumbers,
    /// Events to count, with their plan; `None` to count nothing.
    pub counters: Option<CounterPlan>,
    pub period: Nanos,
    /// True if nothing is to be changed; [`Applied`] then has the changes that would be made.
    pub dry: bool,
    /// Loader for counting threads by BPF programs.
    pub bpf: Option<BpfLoader>,
}

/// Engine that steers threads by their affinity masks.
pub(crate) struct AffinityEngine {
    config: AffinityConfig,
    session: Session,
    /// True if counters are to be used.
    counting: bool,
    /// Scan for threads whose forks are not reported.
    scan: ProcessScan,
    tasks: TaskTable,
    /// Affinity mask and nice value of each program when it was attached.
    owns: BTreeMap<ProgramId, (CpuSet, i8)>,
    admission: Option<(AdmissionTable, MetricBank)>,
    events: Vec<ThreadEvent>,
    /// Threads that have ended since the last observation.
    ended: Vec<(ThreadId, ProgramId)>,
    last: Nanos,
    blind: Option<String>,
    renices: bool,
    /// Threads that were detached.
    ignored: Ignored,
    /// Samples of former counters, for the next observation.
    read_before: Samples,
    /// Time of the last fork.
    forked: Nanos,
    /// Number of records that the session has lost.
    lost: u64,
    /// Number of threads whose mask another program has changed since the last decision.
    overruled: u32,
}

impl AffinityEngine {
    /// Opens an engine that steers no thread yet.
    ///
    /// # Errors
    /// Fails if no journal can be written.
    pub fn open(config: AffinityConfig) -> Result<Self, EngineError> {
        let online: CpuSet = config.numbers.os_set(&config.topology.groups[0].cpus);
        let core_types = core_types(&config.topology, &config.numbers);
        let nothing = || (Vec::new(), SetPlan::nothing());
        let counters = config.counters.clone().unwrap_or_else(nothing);
        let open = |counters, loader| {
            Session::without_threads(
                counters,
                config.period,
                online.clone(),
                core_types.clone(),
                loader,
            )
        };
        let (session, blind) = match open(counters, config.bpf.clone()) {
            Ok(session) => (session, None),
            Err(error) => (open(nothing(), None)?, Some(error.to_string())),
        };
        let counting = config.counters.is_some() && blind.is_none();
        let scan = ProcessScan::default();
        let tasks = TaskTable::new(config.numbers.clone());
        let renices = may_renice();
        let owns = BTreeMap::new();
        let events = Vec::new();
        let ended = Vec::new();
        let last = Nanos::ZERO;
        let admission = None;
        let read_before = Samples::default();
        let ignored = Ignored::default();
        let forked = Nanos::ZERO;
        Ok(Self {
            config,
            session,
            counting,
            scan,
            tasks,
            owns,
            admission,
            events,
            ended,
            last,
            blind,
            renices,
            ignored,
            read_before,
            forked,
            lost: 0,
            overruled: 0,
        })
    }

    /// Processes the events of threads.
    fn follow(&mut self, journal: &mut Journal) -> Result<(), EngineError> {
        let mut events = self.session.task_events();
        self.look_for_lost();
        self.scan.look(self.session.now(), &mut events);
        self.take(events, journal)
    }

    /// Scans /proc from now on if the report of a fork may have been lost.
    fn look_for_lost(&mut self) {
        let lost = self.session.lost();
        if lost > self.lost {
            self.lost = lost;
            for (tid, member) in &self.tasks.members {
                self.scan.knows(member.before.pid, *tid);
            }
        }
    }

    fn take(
        &mut self,
        mut events: Vec<(Nanos, u32, TaskEvent)>,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        events.retain(|(_, tid, event)| !self.ignored.passes_over(*tid, event));
        for (at, tid, event) in events {
            let thread = ThreadId(tid);
            match event {
                TaskEvent::Forked { pid, parent } => {
                    self.forked(at, (pid, tid), parent, journal)?
                }
                TaskEvent::Exec => self.events.push(ThreadEvent {
                    at,
                    thread,
                    kind: ThreadEventKind::Exec,
                }),
                TaskEvent::Exited => {
                    // After a loss, /proc may show events again that were reported already.
                    if !self.end(tid, journal) && self.lost > 0 {
                        continue;
                    }
                    self.events.push(ThreadEvent {
                        at,
                        thread,
                        kind: ThreadEventKind::Exit,
                    });
                }
            }
        }
        Ok(())
    }

    /// Removes a thread, and with its last thread a program; returns true if it was known.
    fn end(&mut self, tid: u32, journal: &mut Journal) -> bool {
        journal.forget(tid);
        let Some(program) = self.tasks.remove(tid) else {
            return false;
        };
        self.ended.push((ThreadId(tid), program));
        if !self.tasks.has_of(program) {
            self.owns.remove(&program);
        }
        true
    }

    fn forked(
        &mut self,
        at: Nanos,
        (pid, tid): (u32, u32),
        parent: u32,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        if self.tasks.members.contains_key(&tid) {
            return Ok(());
        }
        self.forked = at;
        self.events.push(ThreadEvent {
            at,
            thread: ThreadId(tid),
            kind: ThreadEventKind::New,
        });
        let Some((of, own)) = self.tasks.family(parent, pid) else {
            return Ok(());
        };
        self.take_in((pid, tid), of, own, journal)
    }

    /// Adds a thread, which may have inherited a mask that was set here.
    fn take_in(
        &mut self,
        ids: (u32, u32),
        of: (ProgramId, Arc<str>),
        own: Option<(CpuSet, i8)>,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        let own = own.or_else(|| self.owns.get(&of.0).cloned());
        let set = &journal.changes().affinity.set;
        let is_ours = |mask: &CpuSet| set.contains(mask);
        let program = of.0;
        let added = self.tasks.add(
            ids,
            of,
            own.as_ref().map(|(cpus, nice)| (cpus, *nice)),
            is_ours,
        );
        if added.is_none() {
            self.ended.push((ThreadId(ids.1), program));
        }
        if let Some(member) = added {
            if member.placed.is_some() {
                journal.write(member.before.affinity())?;
            }
            if member.nice.is_some() {
                journal.write(member.before.nice())?;
            }
        }
        if self.admission.is_some() {
            self.admit_thread(ids.1, journal)?;
        }
        Ok(())
    }
}

impl Placer for AffinityEngine {
    fn name(&self) -> &'static str {
        "affinity"
    }

    fn attach(&mut self, root: &ProcessRoot, journal: &mut Journal) -> Result<(), EngineError> {
        self.take_on(root, journal)
    }

    fn detach(&mut self, root: &ProcessRoot, journal: &mut Journal) -> Result<(), EngineError> {
        self.let_go(root, journal);
        Ok(())
    }

    fn observe(
        &mut self,
        watch: &engine::Watch<'_>,
        until: Nanos,
        journal: &mut Journal,
    ) -> Result<Observation, EngineError> {
        let hasty = watch.events || self.admission.is_some();
        loop {
            let now = self.session.now();
            if now >= until {
                break;
            }
            let soon = if now.since(self.forked) < QUIET {
                ADMISSION
            } else {
                FIRST_ADMISSION
            };
            let woken = self
                .session
                .wait(if hasty { until.min(now + soon) } else { until })?;
            if woken {
                // Possibly because a process has ended.
                self.session.listen_closely();
            }
            self.follow(journal)?;
            if woken || (watch.events && !self.events.is_empty()) {
                break;
            }
        }
        self.session.listen();
        self.follow(journal)?;
        let at = self.session.now();
        let samples = self.read(at)?;
        let is_uncounted = !self.scan.is_empty();
        self.tasks
            .look(at, at.since(self.last), is_uncounted, &mut self.events);
        self.overruled += self.tasks.look_at_masks();
        self.last = at;
        if let Some((_, bank)) = &mut self.admission {
            bank.update(&Observation {
                samples: samples.clone(),
                events: self.events.clone(),
                ..Observation::default()
            });
        }
        let events = std::mem::take(&mut self.events);
        let ended = std::mem::take(&mut self.ended);
        Ok(Observation {
            at,
            threads: self.tasks.infos(),
            events,
            ended,
            samples,
            ..Observation::default()
        })
    }

    fn apply(
        &mut self,
        placement: &Placement,
        journal: &mut Journal,
    ) -> Result<Applied, EngineError> {
        let mut applied = Applied::default();
        for entry in &placement.threads {
            self.place(entry.thread.0, &entry.target, journal, &mut applied)?;
            if let Some(weight) = entry.weight {
                self.weigh(entry.thread.0, weight, journal)?;
            }
        }
        if let Some(table) = &placement.admission {
            let bank = match self.admission.take() {
                Some((old, bank)) if old.metric == table.metric => bank,
                _ => MetricBank::new(&self.config.topology, &[table.metric.as_ref()]),
            };
            // Without rows it places no thread, and the engine need not wait for new threads.
            self.admission = (!table.rows.is_empty()).then(|| (table.clone(), bank));
        }
        applied.overruled = std::mem::take(&mut self.overruled);
        Ok(applied)
    }

    fn wake_on(&mut self, file: OwnedFd) {
        self.session.wake_on(file);
    }

    fn process_of(&self, thread: ThreadId) -> Option<u32> {
        self.tasks.members.get(&thread.0).map(|m| m.before.pid)
    }

    fn recount(
        &mut self,
        counters: CounterPlan,
        period: Nanos,
        journal: &mut Journal,
    ) -> Result<(), EngineError> {
        self.count_anew(counters, period, journal)
    }

    fn blindness(&self) -> Option<&str> {
        self.blind.as_deref()
    }
}
