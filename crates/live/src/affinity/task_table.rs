//! The task table: steered threads, with the affinity mask that each has by itself and the one that the engine has set.
//!
//! Input: forks, exits, samples. Output: [`ThreadInfo`]s, and the events that follow from them.
use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpunumbers::CpuNumbers;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::{ThreadEvent, ThreadEventKind, ThreadInfo};
use countersteer_model::units::{CpuId, Nanos, ProgramId, ThreadId};
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::task::affinity;

use crate::undo::entry::{JournalEntry, Touched};

/// Steered thread. Masks are by the kernel's numbers of CPUs.
#[derive(Clone, Debug)]
pub(super) struct SteeredTask {
    /// Attributes of the thread without this engine, as found or as changed by another program since.
    pub(super) before: Before,
    pub(super) program: ProgramId,
    pub(super) name: Arc<str>,
    /// Mask that was set here.
    pub(super) placed: Option<CpuSet>,
    /// Mask that was requested here; a cpuset may have left less of it in `placed`, and gives the rest back when it grows.
    wanted: Option<CpuSet>,
    /// Mask by the topology's numbers.
    allowed: Arc<CpuSet>,
    /// Nice value that was set here.
    pub(super) nice: Option<i8>,
    cpu: CpuId,
    runnable: bool,
    /// Running time since the last look.
    ran: Nanos,
}

impl SteeredTask {
    /// True if a mask is the thread's own, or was set here.
    pub(super) fn has_own_or_ours(&self, mask: &CpuSet) -> bool {
        mask == self.placed.as_ref().unwrap_or(&self.before.cpus)
            || self.wanted.as_ref() == Some(mask)
    }

    /// Stores the CPU of the thread, and reports a migration if it changed.
    fn seen_on(&mut self, cpu: CpuId, at: Nanos, events: &mut Vec<ThreadEvent>) {
        let from = std::mem::replace(&mut self.cpu, cpu);
        if from != cpu {
            let thread = ThreadId(self.before.tid);
            let kind = ThreadEventKind::Migrate { from, to: cpu };
            events.push(ThreadEvent { at, thread, kind });
        }
    }
}

#[derive(Debug)]
pub(super) struct TaskTable {
    pub(super) members: BTreeMap<u32, SteeredTask>,
    numbers: CpuNumbers,
    /// One copy of each mask.
    sets: BTreeMap<CpuSet, Arc<CpuSet>>,
    /// TID after which the next look begins.
    next: u32,
    /// TID from which the next masks are compared.
    next_mask: u32,
    /// Programs of threads that had ended before they could be read from /proc; they may have created others.
    ghosts: BTreeMap<u32, ProgramFamily>,
}

/// Program and its name.
pub(super) type ProgramFamily = (ProgramId, Arc<str>);

/// Part of a period from which a running thread counts as one that never slept.
const BUSY: f64 = 0.9;
/// Part of a period below which a thread that was asleep counts as asleep again.
const HARDLY: f64 = 0.01;
/// Number of threads that slept and hardly ran, or did not run, whose CPU is read each period.
const LOOKED_AT: usize = 8;

/// Attributes of a thread before it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// Start time in clock ticks since the machine started.
    pub(super) started: u64,
    pub(super) session: u32,
    pub(super) nice: i8,
    pub(super) cpus: CpuSet,
}

impl Before {
    /// Journal entry before its mask is changed.
    pub(super) fn affinity(&self) -> JournalEntry {
        JournalEntry::Affinity(self.touched(self.cpus.clone()))
    }

    /// Journal entry before its nice value is changed.
    pub(super) fn nice(&self) -> JournalEntry {
        JournalEntry::Nice(self.touched(self.nice))
    }

    const fn touched<V>(&self, value: V) -> Touched<V> {
        Touched {
            pid: self.pid,
            tid: self.tid,
            started: self.started,
            session: self.session,
            value,
        }
    }
}

impl TaskTable {
    pub(super) fn new(numbers: CpuNumbers) -> Self {
        Self {
            members: BTreeMap::new(),
            numbers,
            sets: BTreeMap::new(),
            next: 0,
            next_mask: 0,
            ghosts: BTreeMap::new(),
        }
    }

    /// Adds a thread of a program. `own` has the former mask and nice value of its family; `is_ours` is true for a mask that
    /// this engine sets. Returns `None` for a thread that has ended.
    pub(super) fn add(
        &mut self,
        (pid, tid): (u32, u32),
        (program, name): ProgramFamily,
        own: Option<(&CpuSet, i8)>,
        is_ours: impl Fn(&CpuSet) -> bool,
    ) -> Option<&SteeredTask> {
        let found = PROC
            .stat(pid, tid)
            .filter(|s| !s.kernel)
            .zip(affinity::stored_mask(tid).ok());
        let Some((stat, mask)) = found else {
            self.ghosts.insert(tid, (program, name));
            return None;
        };
        let inherited = own.filter(|(own, _)| is_ours(&mask) && **own != mask);
        let cpus = inherited.map_or_else(|| mask.clone(), |(own, _)| own.clone());
        let placed = inherited.map(|_| mask.clone());
        let nice = own.map_or(stat.nice, |(_, nice)| nice);
        let set_nice = (nice != stat.nice).then_some(stat.nice);
        let before = Before {
            pid,
            tid,
            started: stat.started,
            session: stat.session,
            nice,
            cpus,
        };
        let allowed = self.set(&mask);
        let cpu = self.numbers.own(stat.cpu).unwrap_or_default();
        let runnable = stat.runnable;
        let ran = Nanos::ZERO;
        let member = SteeredTask {
            before,
            program,
            name,
            placed,
            wanted: None,
            allowed,
            nice: set_nice,
            cpu,
            runnable,
            ran,
        };
        self.members.insert(tid, member);
        self.members.get(&tid)
    }

    /// Mask by the topology's numbers.
    fn set(&mut self, os: &CpuSet) -> Arc<CpuSet> {
        let own = self.numbers.own_set(os);
        Arc::clone(
            self.sets
                .entry(own.clone())
                .or_insert_with(|| Arc::new(own)),
        )
    }

    /// Program of a thread's relatives, and the former attributes of one of them.
    pub(super) fn family(
        &self,
        parent: u32,
        pid: u32,
    ) -> Option<(ProgramFamily, Option<(CpuSet, i8)>)> {
        let of = |pid: u32| self.members.values().find(|m| m.before.pid == pid);
        let relative = self
            .members
            .get(&parent)
            .or_else(|| of(pid))
            .or_else(|| of(parent));
        let known = relative.map(|m| {
            (
                (m.program, Arc::clone(&m.name)),
                Some((m.before.cpus.clone(), m.before.nice)),
            )
        });
        known.or_else(|| Some((self.ghosts.get(&parent)?.clone(), None)))
    }

    /// True if a process is steered already.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.members.get(&pid).is_some_and(|m| m.before.pid == pid)
    }

    /// Removes a thread that has exited; returns its program.
    pub(super) fn remove(&mut self, tid: u32) -> Option<ProgramId> {
        let member = self.members.remove(&tid);
        let ghost = self.ghosts.remove(&tid);
        member.map(|m| m.program).or_else(|| Some(ghost?.0))
    }

    /// True if a program has a live thread, or one that may have created others.
    pub(super) fn has_of(&self, program: ProgramId) -> bool {
        self.members.values().any(|m| m.program == program)
            || self.ghosts.values().any(|(of, _)| *of == program)
    }

    /// Stores that a thread was confined to this mask, or that it has its own again.
    pub(super) fn placed(&mut self, tid: u32, wanted: &CpuSet, mask: &CpuSet) {
        let allowed = self.set(mask);
        if let Some(member) = self.members.get_mut(&tid) {
            member.placed = Some(mask.clone()).filter(|m| *m != member.before.cpus);
            member.wanted = Some(wanted.clone());
            member.allowed = allowed;
        }
    }

    /// Another program has set a thread's mask, which is the thread's own from now on.
    pub(super) fn overruled(&mut self, tid: u32, mask: CpuSet) {
        let allowed = self.set(&mask);
        if let Some(member) = self.members.get_mut(&tid) {
            (member.placed, member.wanted, member.allowed) = (None, None, allowed);
            member.before.cpus = mask;
        }
    }

    /// Compares the masks of some confined threads with those that were set here; returns the number of changed ones.
    pub(super) fn look_at_masks(&mut self) -> u32 {
        let members = self.members.range(self.next_mask..);
        let placed = members.filter(|(_, m)| m.placed.is_some());
        let chosen = placed.take(LOOKED_AT);
        let chosen: Vec<_> = chosen.map(|(tid, m)| (*tid, m.placed.clone())).collect();
        self.next_mask = match chosen.last() {
            Some((last, _)) if chosen.len() == LOOKED_AT => last + 1,
            _ => 0,
        };
        // A thread that has just ended has no mask.
        let found = chosen
            .into_iter()
            .filter_map(|(tid, mask)| Some((tid, affinity::mask_beside(tid, &mask?).ok()?)));
        let is_changed = |(tid, mask): &(u32, CpuSet)| {
            let member = self.members.get(tid);
            member.is_some_and(|m| !m.has_own_or_ours(mask))
        };
        let changed: Vec<(u32, CpuSet)> = found.filter(is_changed).collect();
        let number = changed.len() as u32;
        for (tid, mask) in changed {
            self.overruled(tid, mask);
        }
        number
    }

    pub(super) fn ran(
        &mut self,
        tid: u32,
        cpu: CpuId,
        time: Nanos,
        at: Nanos,
        events: &mut Vec<ThreadEvent>,
    ) {
        if let Some(member) = self.members.get_mut(&tid) {
            member.ran += time;
            member.seen_on(cpu, at, events);
        }
    }

    /// Ends a period: finds out which threads sleep, and the CPU of each. Only some of the sleeping threads that hardly ran are
    /// read from /proc, since a thread that wakes up for longer is counted soon. With `all`, for threads without counters, all
    /// are read.
    pub(super) fn look(
        &mut self,
        at: Nanos,
        period: Nanos,
        all: bool,
        events: &mut Vec<ThreadEvent>,
    ) {
        let part = |part: f64| (period.0 as f64 * part) as u64;
        let busy = part(BUSY);
        let hardly = part(HARDLY);
        let idle = if all {
            self.members.len() + 1
        } else {
            LOOKED_AT
        };
        let asleep = |m: &SteeredTask| m.ran.0 < hardly && !m.runnable;
        let sleepers = self.members.range(self.next..).filter(|(_, m)| asleep(m));
        let chosen: Vec<u32> = sleepers.take(idle).map(|(tid, _)| *tid).collect();
        self.next = chosen
            .last()
            .filter(|_| chosen.len() == idle)
            .map_or(0, |last| last + 1);
        let doubtful = |(tid, m): (&u32, &SteeredTask)| {
            let doubtful = m.ran.0 < busy && (!asleep(m) || chosen.binary_search(tid).is_ok());
            doubtful.then_some(*tid)
        };
        let doubted: Vec<u32> = self.members.iter().filter_map(doubtful).collect();
        for (tid, member) in &mut self.members {
            let ran = std::mem::take(&mut member.ran);
            let was = member.runnable;
            if doubted.binary_search(tid).is_err() {
                member.runnable = ran.0 >= busy.max(1);
            } else {
                let stat = PROC.stat(member.before.pid, *tid);
                member.runnable = stat.is_some_and(|s| s.runnable);
                if let Some(cpu) = stat.and_then(|s| self.numbers.own(s.cpu)) {
                    member.seen_on(cpu, at, events);
                }
            }
            let mut tell = |kind| {
                events.push(ThreadEvent {
                    at,
                    thread: ThreadId(*tid),
                    kind,
                })
            };
            if !was && (ran.0 > 0 || member.runnable) {
                tell(ThreadEventKind::Wake);
            }
            if !member.runnable && (was || ran.0 > 0) {
                tell(ThreadEventKind::Sleep);
            }
        }
    }

    /// Threads as input of a policy, by id.
    pub(super) fn infos(&self) -> Vec<ThreadInfo> {
        let info = |(tid, m): (&u32, &SteeredTask)| ThreadInfo {
            id: ThreadId(*tid),
            program: m.program,
            name: Arc::clone(&m.name),
            cpu: m.cpu,
            runnable: m.runnable,
            nice: m.nice.unwrap_or(m.before.nice),
            allowed: Arc::clone(&m.allowed),
            hint: None,
        };
        self.members.iter().map(info).collect()
    }
}
