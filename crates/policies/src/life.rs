//! Expected lifetimes of threads, and which threads are too young to be worth a move.
//!
//! Input: the threads of each decision with the CPU time that they have used. Output: the threads left to the kernel, and the
//! CPU time that each is expected to need.
//!
//! A thread is expected to need as much CPU time again as it has used. Lifetimes of UNIX processes that last longer than a
//! second have a tail that falls with the inverse of time. The median of the remaining time is therefore the age
//! (Harchol-Balter and Downey, ACM TOCS 15(3), 1997). The mean of the program's earlier threads counts if it is more.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::engine::ThreadInfo;
use countersteer_model::placement::{Reason, Target, ThreadPlacement};
use countersteer_model::policy::View;
use countersteer_model::units::{Nanos, ThreadId};
use countersteer_model::usage::Usage;

/// Key of the parameter for the expected CPU time below which a thread is young.
pub(crate) const YOUNG: &str = "young_ms";

/// Limit on the number of programs with a mean; all are removed once it is reached.
const MOST_PROGRAMS: usize = 4_096;
/// Weight of the last lifetime in a program's mean.
const LATEST: f64 = 0.25;

/// Thread that is alive.
struct Life {
    program: Arc<str>,
    began: Nanos,
    /// CPU time used before the thread began to run its program, in s.
    before_s: f64,
    /// CPU time since then, in s; elapsed time if no CPU time is known.
    age_s: f64,
    /// CPUs that the thread was allowed when it was last left to the kernel.
    left: Option<Arc<CpuSet>>,
}

/// Live threads, and mean lifetimes of ended ones.
#[derive(Default)]
pub(crate) struct Lives {
    young_s: f64,
    threads: BTreeMap<ThreadId, Life>,
    /// Exponential mean of the CPU time of a program's ended threads, in s.
    programs: BTreeMap<Arc<str>, f64>,
}

impl Lives {
    /// Empty table; threads expected to need less than `young_s` of CPU time are young.
    pub(crate) fn new(young_s: f64) -> Self {
        Self {
            young_s,
            ..Self::default()
        }
    }

    /// Takes the state over with the parameter of `other`.
    pub(crate) fn tuned(&mut self, other: Self) -> Self {
        Self {
            young_s: other.young_s,
            ..std::mem::take(self)
        }
    }

    /// True if no thread is ever young.
    pub(crate) fn is_off(&self) -> bool {
        self.young_s <= 0.0
    }

    /// Updates the live threads and their CPU time. A thread that executes another program begins again.
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
            let begin = || Life {
                program: Arc::clone(program),
                began: view.now,
                before_s: used_s.unwrap_or(0.0),
                age_s: 0.0,
                left: None,
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
        }
    }

    fn end(&mut self, life: Life) {
        if self.programs.len() >= MOST_PROGRAMS {
            self.programs.clear();
        }
        let mean = self.programs.entry(life.program).or_insert(life.age_s);
        *mean += LATEST * (life.age_s - *mean);
    }

    /// CPU time that a thread is expected to need, in s.
    pub(crate) fn expected_s(&self, thread: ThreadId) -> f64 {
        let Some(life) = self.threads.get(&thread) else {
            return 0.0;
        };
        let mean = self.programs.get(&life.program);
        life.age_s.max(mean.map_or(0.0, |mean| mean - life.age_s))
    }

    /// True if a thread is left to the kernel.
    pub(crate) fn is_young(&self, thread: ThreadId) -> bool {
        self.expected_s(thread) < self.young_s
    }

    /// Placements of young threads that are confined, or have not been left to the kernel yet.
    pub(crate) fn leave(&mut self, young: &[&ThreadInfo]) -> Vec<ThreadPlacement> {
        let mut placements = Vec::new();
        for info in young {
            let expected_s = self.expected_s(info.id);
            if let Some(life) = self.threads.get_mut(&info.id)
                && life.left.as_ref() != Some(&info.allowed)
            {
                life.left = Some(Arc::clone(&info.allowed));
                let reason = Reason::rule(LEFT).saw("expected CPU seconds", Some(expected_s));
                placements.push(ThreadPlacement::new(info.id, Target::Anywhere, reason));
            }
        }
        placements
    }
}

/// Rule of placements of young threads.
const LEFT: &str = "young: a move may not pay back, so Linux places it";

/// Name of a thread's program that is stable between runs: its executable file, or its own name if that is unknown.
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
