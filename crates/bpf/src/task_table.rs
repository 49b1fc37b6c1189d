//! Tasks: the followed threads.
//!
//! Input: reports of the scheduler, counts. Output: thread events, samples, [`ThreadInfo`]s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_live::placer::own_sample;
use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{Span, ThreadEvent, ThreadEventKind, ThreadInfo};
use countersteer_model::sample::Samples;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use countersteer_sysfs::task::affinity;

use crate::generated::{shared, types};
use crate::targets::BpfTargets;

/// Longest time after a thread's exit for its last counts, or number of observations.
const LATE: Nanos = Nanos::from_millis(10);
const LATE_OBSERVATIONS: u32 = 2;

/// Followed thread.
pub(crate) struct FollowedTask {
    pub pid: u32,
    program: u32,
    cpu: CpuId,
    runnable: bool,
    /// CPU and runnable state at the observation before.
    before: (CpuId, bool),
    /// True if it has run since then.
    ran: bool,
    nice: i8,
    /// Its place, as a target.
    pub target: u32,
    /// CPUs that its own affinity mask allows, if not all.
    narrow: Option<Arc<CpuSet>>,
    /// Its speed-up factor as computed in the kernel, in Q16 fixed point; 0 if unknown.
    pub factor_q16: u64,
}

pub(crate) struct FollowedTasks {
    pub threads: BTreeMap<u32, FollowedTask>,
    pub events: Vec<ThreadEvent>,
    /// Run intervals that have ended since the last observation.
    pub spans: Vec<Span>,
    /// Threads that have ended, by program, since the last call that took them.
    pub ended: Vec<(ThreadId, ProgramId)>,
    samples: Samples,
    /// Threads that have exited, with the time and the number of observations since: their last counts may be still to come.
    departed: BTreeMap<u32, (u64, u32)>,
    names: BTreeMap<u32, Arc<str>>,
    numbers: CpuNumbers,
    cpus: u32,
    /// Start on the kernel's clock, in ns.
    start_ns: u64,
}

impl FollowedTasks {
    pub fn new(numbers: CpuNumbers, cpus: usize) -> Self {
        Self {
            threads: BTreeMap::new(),
            events: Vec::new(),
            spans: Vec::new(),
            ended: Vec::new(),
            samples: Samples::default(),
            departed: BTreeMap::new(),
            names: BTreeMap::new(),
            numbers,
            cpus: cpus as u32,
            start_ns: 0,
        }
    }

    pub const fn begin(&mut self, now_ns: u64) {
        self.start_ns = now_ns;
    }

    pub fn name(&mut self, program: u32, name: Arc<str>) {
        self.names.insert(program, name);
    }

    pub fn since(&self, at_ns: u64) -> Nanos {
        Nanos(at_ns.saturating_sub(self.start_ns))
    }

    fn own(&self, os: u32) -> CpuId {
        self.numbers.own(CpuId(os)).unwrap_or_default()
    }

    /// Adds a thread, which is followed from now on.
    pub fn add(&mut self, at_ns: u64, tid: u32, pid: u32, program: u32, os_cpu: u32) {
        let known = FollowedTask {
            pid,
            program,
            cpu: self.own(os_cpu),
            runnable: true,
            before: (self.own(os_cpu), true),
            ran: false,
            nice: 0,
            target: shared::TARGET_ANYWHERE,
            narrow: None,
            factor_q16: 0,
        };
        // Its fork may have been reported meanwhile.
        if self.threads.insert(tid, known).is_none() {
            self.event(at_ns, tid, ThreadEventKind::New);
        }
    }

    /// Threads of a program and of a process, with their processes.
    pub fn of(&self, program: ProgramId, pid: u32) -> Vec<(u32, u32)> {
        let of = self
            .threads
            .iter()
            .filter(|(_, k)| k.program == program.0 || k.pid == pid);
        of.map(|(tid, k)| (*tid, k.pid)).collect()
    }

    /// Removes a thread that is not followed any more, and reports its exit.
    pub fn leave(&mut self, at_ns: u64, tid: u32) {
        if self.end(tid) {
            self.event(at_ns, tid, ThreadEventKind::Exit);
        }
    }

    /// Removes a thread; returns true if it was known.
    fn end(&mut self, tid: u32) -> bool {
        let known = self.threads.remove(&tid);
        self.ended.extend(
            known
                .iter()
                .map(|known| (ThreadId(tid), ProgramId(known.program))),
        );
        known.is_some()
    }

    fn event(&mut self, at_ns: u64, tid: u32, kind: ThreadEventKind) {
        self.events.push(ThreadEvent {
            at: self.since(at_ns),
            thread: ThreadId(tid),
            kind,
        });
    }

    /// Processes a report of the scheduler.
    pub fn take(&mut self, event: &types::event) {
        let kind = match event.kind {
            shared::EVENT_NEW => {
                return self.add(event.at_ns, event.tid, event.tgid, event.program, event.to);
            }
            shared::EVENT_EXEC => {
                // The program's other threads have ended, and the caller has taken the number of its process.
                if let Some(known) = self.threads.remove(&event.from) {
                    self.threads.insert(event.tid, known);
                }
                ThreadEventKind::Exec
            }
            shared::EVENT_EXIT => {
                self.end(event.tid);
                self.departed.insert(event.tid, (event.at_ns, 0));
                ThreadEventKind::Exit
            }
            shared::EVENT_WAKE => ThreadEventKind::Wake,
            shared::EVENT_SLEEP => ThreadEventKind::Sleep,
            shared::EVENT_MIGRATE => ThreadEventKind::Migrate {
                from: self.own(event.from),
                to: self.own(event.to),
            },
            shared::EVENT_SWITCH => return self.span(event),
            _ => return,
        };
        self.event(event.at_ns, event.tid, kind);
    }

    /// Adds the run interval of a thread that has left its CPU.
    fn span(&mut self, event: &types::event) {
        let end = self.since(event.at_ns);
        let start = self.since(event.at_ns.saturating_sub(event.ran_ns));
        self.spans.push(Span {
            thread: ThreadId(event.tid),
            cpu: self.own(event.to),
            start,
            end,
        });
    }

    /// Updates a thread's CPU and state.
    pub fn look(&mut self, seen: &types::command) {
        let cpu = self.own(seen.cpu);
        let Some(known) = self.threads.get_mut(&seen.tid) else {
            return;
        };
        known.cpu = cpu;
        known.runnable = seen.runnable != 0;
        known.target = seen.old_target;
        known.nice = seen.nice.clamp(-20, 19) as i8;
        known.factor_q16 = seen.metric_q16;
        known.narrow = None;
        if seen.nr_allowed < self.cpus {
            known.narrow = affinity::mask(seen.tid)
                .ok()
                .map(|mask| Arc::new(self.numbers.own_set(&mask)));
        }
    }

    /// Adds the counts of threads that are followed, or were until just now.
    pub fn count(&mut self, counted: &Samples, topology: &Topology) {
        for (thread, row) in counted.of_threads() {
            if !self.threads.contains_key(&thread.0) && !self.departed.contains_key(&thread.0) {
                continue;
            }
            let since = |at: Nanos| self.since(at.0);
            if let Some(sample) = own_sample(&row, topology, &self.numbers, since) {
                self.samples.push_with(sample, row.counts);
                if let Some(task) = self.threads.get_mut(&thread.0) {
                    task.ran = true;
                }
            }
        }
    }

    /// Infers wakeups, sleeps and migrations since the last observation from the counts and the present CPUs, if the scheduler
    /// does not report each. A policy learns from them that a thread wants a CPU although it sleeps at present.
    pub fn infer_switches(&mut self, at_ns: u64) {
        let at = self.since(at_ns);
        for (tid, task) in &mut self.threads {
            let ran = std::mem::take(&mut task.ran);
            let now = (task.cpu, task.runnable);
            let (from, was_runnable) = std::mem::replace(&mut task.before, now);
            let kinds = [
                (!was_runnable && (ran || task.runnable)).then_some(ThreadEventKind::Wake),
                (from != task.cpu).then_some(ThreadEventKind::Migrate { from, to: task.cpu }),
                (!task.runnable && (was_runnable || ran)).then_some(ThreadEventKind::Sleep),
            ];
            let events = kinds.into_iter().flatten();
            self.events.extend(events.map(|kind| ThreadEvent {
                at,
                thread: ThreadId(*tid),
                kind,
            }));
        }
    }

    /// Samples since the last call, by thread, then time.
    pub fn take_samples(&mut self, now_ns: u64) -> Samples {
        self.departed.retain(|_, (exited_ns, observations)| {
            *observations += 1;
            *observations < LATE_OBSERVATIONS || now_ns.saturating_sub(*exited_ns) < LATE.0
        });
        self.samples.sort();
        self.samples.take()
    }

    /// Processes with followed threads.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.threads.values().map(|known| known.pid).collect()
    }

    /// Threads as input of a policy, by id.
    pub fn infos(&self, targets: &BpfTargets) -> Vec<ThreadInfo> {
        let unknown: Arc<str> = "?".into();
        let allowed = |k: &FollowedTask| {
            let target = targets.cpus(k.target);
            let Some(narrow) = &k.narrow else {
                return Arc::clone(target);
            };
            let both = narrow.intersection(target);
            // The affinity mask takes precedence over a placement.
            if both.is_empty() {
                Arc::clone(narrow)
            } else {
                Arc::new(both)
            }
        };
        let info = |(tid, k): (&u32, &FollowedTask)| ThreadInfo {
            id: ThreadId(*tid),
            program: ProgramId(k.program),
            name: Arc::clone(self.names.get(&k.program).unwrap_or(&unknown)),
            cpu: k.cpu,
            runnable: k.runnable,
            nice: k.nice,
            allowed: allowed(k),
            hint: None,
        };
        self.threads.iter().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::sample::{Event, Sample};
    use countersteer_model::testing::{SMT, topology};

    use super::*;

    fn seen(tid: u32, cpu: u32, runnable: bool) -> types::command {
        types::command {
            tid,
            cpu,
            runnable: u32::from(runnable),
            nr_allowed: 2,
            ..types::command::default()
        }
    }

    fn kinds(tasks: &mut FollowedTasks) -> Vec<ThreadEventKind> {
        tasks.infer_switches(10);
        let events = std::mem::take(&mut tasks.events);
        events.into_iter().map(|e| e.kind).collect()
    }

    #[test]
    fn a_thread_that_sleeps_right_now_but_ran_is_seen_to_have_woken() {
        let mut tasks = FollowedTasks::new(CpuNumbers::new(vec![CpuId(0), CpuId(1)]), 2);
        tasks.add(1, 7, 7, 0, 0);
        tasks.events.clear();
        tasks.look(&seen(7, 0, false));
        assert_eq!(kinds(&mut tasks), [ThreadEventKind::Sleep]);
        tasks.look(&seen(7, 0, false));
        assert_eq!(kinds(&mut tasks), [], "it slept all the time");
        let topology = topology(SMT);
        let core_type = topology.core_type_of(CpuId(1));
        let sample = Sample::of_thread(ThreadId(7), CpuId(1), core_type, Nanos(9), Nanos(4));
        let counted = Samples::of(sample, 1, &[(Event::Cycles, 12.0)]);
        tasks.count(&counted, &topology);
        tasks.look(&seen(7, 1, false));
        let migrates = ThreadEventKind::Migrate {
            from: CpuId(0),
            to: CpuId(1),
        };
        let all = [ThreadEventKind::Wake, migrates, ThreadEventKind::Sleep];
        assert_eq!(kinds(&mut tasks), all);
        tasks.look(&seen(7, 1, true));
        assert_eq!(kinds(&mut tasks), [ThreadEventKind::Wake]);
    }
}
