//! The roster: threads that are followed, and what they counted.
//!
//! Input: what the kernel tells, and the ledgers that it keeps. Output: thread events, samples, [`ThreadInfo`]s.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ThreadEvent, ThreadEventKind, ThreadInfo};
use countersteer_model::sample::{Owner, Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ProgramId, ThreadId};
use countersteer_sysfs::task::affinity;

use crate::counting::Layout;
use crate::generated::{shared, types};
use crate::kernel::Told;
use crate::targets::Targets;

/// A thread that is followed.
pub(crate) struct Known {
    pub pid: u32,
    program: u32,
    cpu: CpuId,
    runnable: bool,
    nice: i8,
    /// Its place, as a target.
    pub target: u32,
    /// CPUs that its own affinity leaves it, where they are not all.
    narrow: Option<Arc<CpuSet>>,
    /// The metric of the admission table, as the kernel has it; 0 for unknown.
    pub metric_q16: u64,
    /// Its ledger's count of changes when that was last read.
    pub changes: u64,
    /// What sums were when they were last read, by row.
    sums: BTreeMap<usize, types::sum>,
}

pub(crate) struct Roster {
    pub threads: BTreeMap<u32, Known>,
    pub events: Vec<ThreadEvent>,
    /// Threads that have ended, by program, since they were taken last.
    pub ended: Vec<(ThreadId, ProgramId)>,
    pub samples: Samples,
    names: BTreeMap<u32, Arc<str>>,
    numbers: CpuNumbers,
    layout: Vec<Layout>,
    cpus: u32,
    /// The beginning on the kernel's clock.
    start_ns: u64,
}

impl Roster {
    pub fn new(numbers: CpuNumbers, cpus: usize) -> Self {
        let (threads, events, ended, samples, names) = Default::default();
        let layout = vec![Layout::none(); shared::MAX_SETS as usize];
        Self {
            threads,
            events,
            ended,
            samples,
            names,
            numbers,
            layout,
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

    /// What the sets from `first` on hold now.
    pub fn lay_out(&mut self, first: u32, sets: Vec<Layout>) {
        self.layout[first as usize..]
            .iter_mut()
            .zip(sets)
            .for_each(|(into, set)| *into = set);
    }

    pub fn since(&self, at_ns: u64) -> Nanos {
        Nanos(at_ns.saturating_sub(self.start_ns))
    }

    fn own(&self, os: u32) -> CpuId {
        self.numbers.own(CpuId(os)).unwrap_or_default()
    }

    /// A thread is followed from now on.
    pub fn meet(&mut self, at_ns: u64, tid: u32, pid: u32, program: u32, os_cpu: u32) {
        let target = shared::TARGET_ANYWHERE;
        let changes = 0;
        let sums = BTreeMap::new();
        let narrow = None;
        let cpu = self.own(os_cpu);
        let known = Known {
            pid,
            program,
            cpu,
            runnable: true,
            nice: 0,
            target,
            narrow,
            metric_q16: 0,
            changes,
            sums,
        };
        // Its birth may have been told meanwhile.
        if self.threads.insert(tid, known).is_none() {
            self.event(at_ns, tid, ThreadEventKind::New);
        }
    }

    /// Threads of a program, and of a process, with their processes.
    pub fn of(&self, program: ProgramId, pid: u32) -> Vec<(u32, u32)> {
        let of = self
            .threads
            .iter()
            .filter(|(_, k)| k.program == program.0 || k.pid == pid);
        of.map(|(tid, k)| (*tid, k.pid)).collect()
    }

    /// A thread is not followed any more.
    pub fn leave(&mut self, at_ns: u64, tid: u32) {
        if self.end(tid) {
            self.event(at_ns, tid, ThreadEventKind::Exit);
        }
    }

    /// Forgets a thread; whether it was known.
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

    /// Takes in what the kernel told.
    pub fn hear(&mut self, told: &Told) {
        let head = &told.head;
        let kind = match head.kind {
            shared::TOLD_NEW => {
                return self.meet(head.at_ns, head.tid, head.tgid, head.program, head.to);
            }
            shared::TOLD_EXEC => {
                // The program's other threads are gone, and who called has the number of its process now.
                if let Some(known) = self.threads.remove(&head.from) {
                    self.threads.insert(head.tid, known);
                }
                ThreadEventKind::Exec
            }
            shared::TOLD_EXIT => {
                self.end(head.tid);
                ThreadEventKind::Exit
            }
            shared::TOLD_WAKE => ThreadEventKind::Wake,
            shared::TOLD_SLEEP => ThreadEventKind::Sleep,
            shared::TOLD_PHASE => ThreadEventKind::Phase,
            shared::TOLD_MIGRATE => ThreadEventKind::Migrate {
                from: self.own(head.from),
                to: self.own(head.to),
            },
            _ => {
                if let Some(sum) = &told.sum {
                    let cpu = self.own(head.to);
                    self.sample(head.tid, head.from as usize, sum, cpu, head.at_ns);
                }
                return;
            }
        };
        self.event(head.at_ns, head.tid, kind);
    }

    /// Takes in a thread's whereabouts and, if it changed, its ledger.
    pub fn look(&mut self, told: &types::command, ledger: Option<&types::ledger>, now_ns: u64) {
        let cpu = self.own(told.cpu);
        let Some(known) = self.threads.get_mut(&told.tid) else {
            return;
        };
        (known.cpu, known.runnable, known.target) = (cpu, told.runnable != 0, told.old_target);
        known.nice = told.nice.clamp(-20, 19) as i8;
        (known.narrow, known.metric_q16) = (None, told.metric_q16);
        if told.nr_allowed < self.cpus {
            known.narrow = affinity::mask(told.tid)
                .ok()
                .map(|mask| Arc::new(self.numbers.own_set(&mask)));
        }
        let Some(ledger) = ledger else { return };
        known.changes = ledger.changes;
        for (row, sum) in ledger
            .sums
            .iter()
            .enumerate()
            .filter(|(_, s)| s.time_ns > 0)
        {
            self.sample(told.tid, row, sum, cpu, now_ns);
        }
    }

    /// What a sum gained since it was last looked at.
    fn sample(&mut self, tid: u32, row: usize, sum: &types::sum, cpu: CpuId, at_ns: u64) {
        let at = self.since(at_ns);
        let Some(known) = self.threads.get_mut(&tid) else {
            return;
        };
        let before = known.sums.insert(row, *sum).unwrap_or_default();
        let time = sum.time_ns.saturating_sub(before.time_ns);
        if time == 0 {
            return;
        }
        let core_type = row / shared::MAX_SETS as usize;
        let set = row % shared::MAX_SETS as usize;
        let layout = &self.layout[set];
        let counted = sum.running_ns.saturating_sub(before.running_ns);
        let blind = layout.counted.events().is_empty();
        let enabled = if blind {
            time
        } else {
            sum.enabled_ns
                .saturating_sub(before.enabled_ns)
                .max(counted)
        };
        let running = if blind { time } else { counted };
        let present = if counted > 0 {
            layout.present[core_type].into()
        } else {
            0
        };
        let owner = Owner::Thread {
            pid: known.pid,
            tid,
        };
        let core_type = CoreTypeId::from_index(core_type);
        let sample = Sample {
            start: at.since(Nanos(time)),
            end: at,
            enabled: Nanos(enabled),
            running: Nanos(running),
            present,
            ..Sample::new(owner, Some(cpu), core_type, layout.set)
        };
        let gained = |slot: usize| sum.counts[slot].saturating_sub(before.counts[slot]) as f64;
        let slots = 0..layout.counted.events().len();
        (self.samples).push_by(sample, &layout.counted, slots.map(gained));
    }

    /// Threads as a policy sees them, by id.
    pub fn infos(&self, targets: &Targets) -> Vec<ThreadInfo> {
        let unknown: Arc<str> = "?".into();
        let allowed = |k: &Known| {
            let target = targets.cpus(k.target);
            let Some(narrow) = &k.narrow else {
                return Arc::clone(target);
            };
            let both = narrow.intersection(target);
            // Affinity goes before a placement.
            if both.is_empty() {
                Arc::clone(narrow)
            } else {
                Arc::new(both)
            }
        };
        let info = |(tid, k): (&u32, &Known)| ThreadInfo {
            id: ThreadId(*tid),
            program: ProgramId(k.program),
            name: Arc::clone(self.names.get(&k.program).unwrap_or(&unknown)),
            cpu: k.cpu,
            runnable: k.runnable,
            nice: k.nice,
            allowed: allowed(k),
            told: None,
        };
        self.threads.iter().map(info).collect()
    }
}
