//! Expected lifetimes of threads, the threads that are too young for a move to pay off, and the threads that sleep much.
//!
//! Input: the threads of each decision with the CPU time that they have used. Output: the threads left to the kernel, and the
//! CPU time that each is expected to need.
//!
//! Linux can leave a thread on a slow core while a faster one is idle. A young thread therefore moves once to an idle core of a
//! faster type. It is free again at the next decision.
//!
//! A thread that sleeps and wakes often gets a core from the kernel at each wakeup, and a fast one may be idle. Confined to a
//! core, it would wait for that one. Whether it sleeps much is decided with hysteresis.
//!
//! A thread is expected to need as much CPU time again as it has used. Lifetimes of UNIX processes that last longer than a
//! second have a tail that falls with the inverse of time. The median of the remaining time is therefore the age
//! (Harchol-Balter and Downey, ACM TOCS 15(3), 1997). If the mean lifetime of the program's earlier threads promises more, it
//! is used instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Reason, Target, ThreadPlacement};
use countersteer_model::policy::{View, active};
use countersteer_model::topology::{Group, GroupBy};
use countersteer_model::units::{GroupId, Nanos, ThreadId};
use countersteer_model::usage::Usage;

use crate::reach::cores_alike;

/// Key of the policy parameter `young_ms`: expected CPU time in ms below which a thread is young.
pub(crate) const YOUNG: &str = "young_ms";

/// Limit on the number of programs with a mean lifetime. If it is reached, all are removed.
const MOST_PROGRAMS: usize = 4_096;
/// Weight of the newest lifetime in a program's mean.
const LATEST: f64 = 0.25;

/// Weight of the newest decision in the part of the time in which a thread is runnable.
const NEWEST: f64 = 0.05;
/// Part below which a thread sleeps much, and from which it no longer does.
const SLEEPS: f64 = 0.7;
const AWAKE: f64 = 0.85;

/// State of a living thread.
struct ThreadLife {
    program: Arc<str>,
    began: Nanos,
    /// CPU time that the thread had used when it began to execute its current program, in s.
    before_s: f64,
    /// CPU time since then, in s; elapsed time if the CPU time is unknown.
    age_s: f64,
    /// Affinity mask of the thread when it was last left to the kernel; `None` if it never was.
    left: Option<Arc<CpuSet>>,
    /// True once the thread moved to an idle faster core.
    moved: bool,
    /// True until the thread is free again after that move.
    confined: bool,
    /// Exponential mean of the decisions at which the thread was runnable.
    awake: f64,
    sleeps: bool,
}

impl ThreadLife {
    fn note_runnable(&mut self, runnable: bool) {
        self.awake += NEWEST * (f64::from(u8::from(runnable)) - self.awake);
        self.sleeps = self.awake < if self.sleeps { AWAKE } else { SLEEPS };
    }
}

/// Living threads, and the mean lifetimes of exited ones by program.
#[derive(Default)]
pub(crate) struct Lives {
    young_s: f64,
    threads: BTreeMap<ThreadId, ThreadLife>,
    /// Exponential mean of the CPU time of each program's exited threads, in s.
    programs: BTreeMap<Arc<str>, f64>,
}

impl Lives {
    /// Creates an empty table. Threads expected to need less than `young_s` seconds of CPU time are young.
    pub(crate) fn new(young_s: f64) -> Self {
        Self {
            young_s,
            ..Self::default()
        }
    }

    /// Returns the state of this table with the threshold of `other`, and leaves this table empty.
    pub(crate) fn tuned(&mut self, other: Self) -> Self {
        Self {
            young_s: other.young_s,
            ..std::mem::take(self)
        }
    }

    /// True if the threshold is zero, so that no thread is young.
    pub(crate) fn is_off(&self) -> bool {
        self.young_s <= 0.0
    }

    /// Updates the living threads and their CPU time. The age of a thread that executes another program starts again at zero.
    pub(crate) fn note(&mut self, view: &View<'_>) {
        let ended: Vec<ThreadId> = self
            .threads
            .keys()
            .copied()
            .filter(|id| !view.lives(*id))
            .collect();
        for life in ended
            .iter()
            .filter_map(|id| self.threads.remove(id))
            .collect::<Vec<_>>()
        {
            self.end(life);
        }
        let mut usage = view.metrics.usage().read_threads();
        for info in view.threads {
            let used_s = usage.get(info.id).map(Usage::total_cpu_s);
            let program = program(view, info);
            let begin = || ThreadLife {
                program: Arc::clone(program),
                began: view.now,
                before_s: used_s.unwrap_or(0.0),
                age_s: 0.0,
                left: None,
                moved: false,
                confined: false,
                awake: 1.0,
                sleeps: false,
            };
            let life = self.threads.entry(info.id).or_insert_with(begin);
            if life.program == *program {
                life.age_s = used_s.map_or_else(
                    || view.now.since(life.began).as_secs_f64(),
                    |used_s| used_s - life.before_s,
                );
            } else {
                let ended = std::mem::replace(life, begin());
                self.end(ended);
            }
            if let Some(life) = self.threads.get_mut(&info.id) {
                life.note_runnable(info.runnable);
            }
        }
    }

    fn end(&mut self, life: ThreadLife) {
        if self.programs.len() >= MOST_PROGRAMS {
            self.programs.clear();
        }
        let mean = self.programs.entry(life.program).or_insert(life.age_s);
        *mean += LATEST * (life.age_s - *mean);
    }

    /// Returns the CPU time that a thread is expected to need, in s.
    pub(crate) fn expected_s(&self, thread: ThreadId) -> f64 {
        let Some(life) = self.threads.get(&thread) else {
            return 0.0;
        };
        let mean = self.programs.get(&life.program);
        life.age_s.max(mean.map_or(0.0, |mean| mean - life.age_s))
    }

    /// True if a thread is young, so that it is left to the kernel.
    pub(crate) fn is_young(&self, thread: ThreadId) -> bool {
        self.expected_s(thread) < self.young_s
    }

    /// True if a thread sleeps much of the time.
    pub(crate) fn sleeps(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|life| life.sleeps)
    }

    /// Returns placements of threads that are left to the kernel: young ones, and those that sleep much. A young thread on a slow core moves once to an idle core of a faster type. Other threads
    /// are placed on all CPUs if they were not left to the kernel before, or if their affinity mask changed since.
    pub(crate) fn leave(&mut self, view: &View<'_>, young: &[&ThreadInfo]) -> Vec<ThreadPlacement> {
        let faster = self.faster(view, young);
        let mut placements = Vec::new();
        for info in young {
            let expected_s = self.expected_s(info.id);
            let Some(life) = self.threads.get_mut(&info.id) else {
                continue;
            };
            let mut place = |target, rule| {
                let reason = Reason::rule(rule).saw("expected CPU seconds", Some(expected_s));
                placements.push(ThreadPlacement::new(info.id, target, reason));
            };
            if let Some(core) = faster.get(&info.id) {
                (life.moved, life.confined) = (true, true);
                life.left = Some(Arc::clone(&info.allowed));
                place(Target::Group(*core), MOVED);
            } else if life.left.as_ref() != Some(&info.allowed) {
                if !std::mem::take(&mut life.confined) {
                    life.left = Some(Arc::clone(&info.allowed));
                }
                let rule = if life.sleeps { SLEEPER } else { LEFT };
                place(Target::Anywhere, rule);
            }
        }
        placements
    }

    /// Returns the idle cores to which young threads move: the fastest cores, for the threads on the slowest ones.
    fn faster(&self, view: &View<'_>, young: &[&ThreadInfo]) -> BTreeMap<ThreadId, GroupId> {
        let topology = view.topology;
        let stays = |life: &ThreadLife| life.moved || life.sleeps;
        let moved = |id: ThreadId| self.threads.get(&id).is_none_or(stays);
        let core_type = |t: &ThreadInfo| topology.cpus[t.cpu.index()].core_type;
        let mut slow: Vec<&ThreadInfo> = young
            .iter()
            .copied()
            .filter(|t| t.runnable && core_type(t).index() > 0 && !moved(t.id))
            .collect();
        if slow.is_empty() || cores_alike(&topology.core_types) {
            return BTreeMap::new();
        }
        slow.sort_by_key(|t| std::cmp::Reverse(core_type(t)));
        let busy: CpuSet = active(view).iter().map(|t| t.cpu).collect();
        let cores = topology.groups_by(GroupBy::Core).iter();
        let mut idle: Vec<&Group> = cores.filter(|core| !core.cpus.intersects(&busy)).collect();
        idle.sort_by_key(|core| core.core_type);
        let mut moves = BTreeMap::new();
        for info in slow {
            let suits = |core: &&Group| {
                core.core_type < Some(core_type(info)) && core.cpus.is_subset(&info.allowed)
            };
            if let Some(row) = idle.iter().position(suits) {
                moves.insert(info.id, idle.remove(row).id);
            }
        }
        moves
    }
}

/// Rules of placements of young threads.
const LEFT: &str = "young: a move may not pay back, so Linux places it";
/// Rule of placements of threads that sleep much.
pub(crate) const SLEEPER: &str = "sleeps much of the time: Linux places it at each wakeup";
const MOVED: &str = "young: a faster core is idle, so it moves there once";

/// Returns a name for a thread's program that is the same in all runs: the path of the executable file, or the program's name
/// if the path is unknown.
fn program<'a>(view: &View<'a>, info: &'a ThreadInfo) -> &'a Arc<str> {
    let known = view.programs.binary_search_by_key(&info.program, |p| p.id);
    let path = known.ok().and_then(|row| view.programs[row].path.as_ref());
    path.unwrap_or(&info.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;
    use countersteer_model::metric::MetricBank;
    use countersteer_model::topology::Topology;
    use countersteer_model::units::{CpuId, ProgramId};

    /// Passes threads of these ids and programs to `lives` at a time in ms.
    fn note(lives: &mut Lives, ms: u64, threads: &[(u32, &str)]) {
        let machine = include_str!("../tests/toy/two-big-two-small.toml");
        let machine = Machine::parse("m", machine);
        let topology = Arc::new(Topology::new(&machine.unwrap()));
        let info = |(id, name): &(u32, &str)| ThreadInfo {
            id: ThreadId(*id),
            program: ProgramId(*id),
            name: (*name).into(),
            cpu: CpuId(0),
            runnable: true,
            nice: 0,
            allowed: Arc::clone(&topology.groups[0].cpus),
            hint: None,
        };
        let threads: Vec<ThreadInfo> = threads.iter().map(info).collect();
        lives.note(&View {
            now: Nanos::from_millis(ms),
            topology: &topology,
            group: None,
            threads: &threads,
            programs: &[],
            events: &[],
            metrics: &MetricBank::new(&topology, &[]),
            forecast: None,
        });
    }

    #[test]
    fn a_thread_is_expected_to_go_on_as_long_as_it_has_run() {
        let mut lives = Lives::new(1.0);
        note(&mut lives, 0, &[(1, "xz")]);
        note(&mut lives, 900, &[(1, "xz")]);
        assert!(lives.is_young(ThreadId(1)));
        note(&mut lives, 1_100, &[(1, "xz")]);
        assert!(!lives.is_young(ThreadId(1)));
        assert!((lives.expected_s(ThreadId(1)) - 1.1).abs() < 1e-9);
        // The thread executes another program.
        note(&mut lives, 1_200, &[(1, "gzip")]);
        assert!(lives.is_young(ThreadId(1)));
    }

    #[test]
    fn what_earlier_threads_of_a_program_had_counts() {
        let mut lives = Lives::new(1.0);
        note(&mut lives, 0, &[(1, "long"), (2, "short")]);
        note(&mut lives, 50, &[(1, "long"), (2, "short")]);
        note(&mut lives, 100, &[(1, "long")]);
        note(&mut lives, 5_000, &[(1, "long")]);
        note(&mut lives, 5_100, &[(3, "long"), (4, "short")]);
        assert!(!lives.is_young(ThreadId(3)));
        assert!(lives.is_young(ThreadId(4)));
        assert!((lives.expected_s(ThreadId(3)) - 5.0).abs() < 1e-9);
    }
}
