//! The task table: threads that are steered, with the affinity mask that each has by itself and the one that the engine has set.
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

use crate::undo::entry::{Entry, Touched};

/// A thread that is steered. Masks are by the kernel's numbers of CPUs.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// What the thread has without this engine, as it was found or as another program has changed it since.
    pub(super) before: Before,
    pub(super) program: ProgramId,
    pub(super) name: Arc<str>,
    /// What it was confined to here.
    pub(super) placed: Option<CpuSet>,
    /// Its confinement by the topology's numbers.
    allowed: Arc<CpuSet>,
    /// Nice value that was set here.
    pub(super) nice: Option<i8>,
    cpu: CpuId,
    runnable: bool,
    /// It ran since the last look, for so long.
    ran: Nanos,
}

impl Task {
    /// It was seen on a CPU, perhaps another than before.
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
    pub(super) members: BTreeMap<u32, Task>,
    numbers: CpuNumbers,
    /// One copy of each confinement.
    sets: BTreeMap<CpuSet, Arc<CpuSet>>,
    /// The thread behind which the next look begins.
    next: u32,
    /// Programs of threads that had ended before they could be looked at; they may have created others.
    ghosts: BTreeMap<u32, Family>,
}

/// A program and its name.
pub(super) type Family = (ProgramId, Arc<str>);

/// Part of a period for which a thread must have run to be taken for one that never slept.
const BUSY: f64 = 0.9;
/// Part of a period below which one that was asleep is taken for one that is asleep again.
const HARDLY: f64 = 0.01;
/// Number of threads that slept and hardly ran, or did not run, whose CPU is read each period.
const LOOKED_AT: usize = 8;

/// A thread as it was before it was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// When it was started, in clock ticks since the machine started.
    pub(super) started: u64,
    pub(super) session: u32,
    pub(super) nice: i8,
    pub(super) cpus: CpuSet,
}

impl Before {
    /// What a journal keeps before its mask is changed.
    pub(super) fn affinity(&self) -> Entry {
        Entry::Affinity(self.touched(self.cpus.clone()))
    }

    /// What a journal keeps before its nice value is changed.
    pub(super) fn nice(&self) -> Entry {
        Entry::Nice(self.touched(self.nice))
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
            ghosts: BTreeMap::new(),
        }
    }

    /// Adds a thread of a program; `inherited` tells whether a mask is one that this engine sets, and what the thread's family
    /// had before. Returns nothing for one that has ended.
    pub(super) fn add(
        &mut self,
        (pid, tid): (u32, u32),
        (program, name): Family,
        own: Option<(&CpuSet, i8)>,
        is_ours: impl Fn(&CpuSet) -> bool,
    ) -> Option<&Task> {
        let found = PROC
            .stat(pid, tid)
            .filter(|s| !s.kernel)
            .zip(affinity::mask(tid).ok());
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
        let member = Task {
            before,
            program,
            name,
            placed,
            allowed,
            nice: set_nice,
            cpu,
            runnable,
            ran,
        };
        self.members.insert(tid, member);
        self.members.get(&tid)
    }

    /// A confinement by the topology's numbers.
    fn set(&mut self, os: &CpuSet) -> Arc<CpuSet> {
        let own = self.numbers.own_set(os);
        Arc::clone(
            self.sets
                .entry(own.clone())
                .or_insert_with(|| Arc::new(own)),
        )
    }

    /// The program of a thread's relatives, and what one of them had before it was touched.
    pub(super) fn family(&self, parent: u32, pid: u32) -> Option<(Family, Option<(CpuSet, i8)>)> {
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

    /// Whether a process is steered already.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.members.get(&pid).is_some_and(|m| m.before.pid == pid)
    }

    /// Forgets a thread that has exited; returns its program.
    pub(super) fn remove(&mut self, tid: u32) -> Option<ProgramId> {
        let member = self.members.remove(&tid);
        let ghost = self.ghosts.remove(&tid);
        member.map(|m| m.program).or_else(|| Some(ghost?.0))
    }

    /// Whether a program has a thread that lives, or that may have created others.
    pub(super) fn has_of(&self, program: ProgramId) -> bool {
        self.members.values().any(|m| m.program == program)
            || self.ghosts.values().any(|(of, _)| *of == program)
    }

    /// Takes note that a thread was confined here, or let go.
    pub(super) fn placed(&mut self, tid: u32, mask: &CpuSet) {
        let allowed = self.set(mask);
        if let Some(member) = self.members.get_mut(&tid) {
            member.placed = Some(mask.clone()).filter(|m| *m != member.before.cpus);
            member.allowed = allowed;
        }
    }

    /// Another program has set a thread's mask: that is its own from now on.
    pub(super) fn overruled(&mut self, tid: u32, mask: CpuSet) {
        let allowed = self.set(&mask);
        if let Some(member) = self.members.get_mut(&tid) {
            (member.placed, member.allowed) = (None, allowed);
            member.before.cpus = mask;
        }
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

    /// Ends a period: finds out which threads sleep, and the CPU of each. Of sleeping threads that hardly ran only some are read from /proc,
    /// since one that wakes up for longer is counted soon; all of them with `all`, where threads are not counted.
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
        let asleep = |m: &Task| m.ran.0 < hardly && !m.runnable;
        let sleepers = self.members.range(self.next..).filter(|(_, m)| asleep(m));
        let chosen: Vec<u32> = sleepers.take(idle).map(|(tid, _)| *tid).collect();
        self.next = chosen
            .last()
            .filter(|_| chosen.len() == idle)
            .map_or(0, |last| last + 1);
        let doubtful = |(tid, m): (&u32, &Task)| {
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

    /// Threads as a policy sees them, by id.
    pub(super) fn infos(&self) -> Vec<ThreadInfo> {
        let info = |(tid, m): (&u32, &Task)| ThreadInfo {
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
