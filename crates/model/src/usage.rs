//! CPU usage: CPU time and instructions of threads and programs, by core type.
//!
//! Input: observations with samples. Output: the usage on which policies base their accounting. It is the same on every engine
//! and in a replay.

use std::collections::BTreeSet;

use crate::by_id::{ById, ByIdReader, ByThread};
use crate::departed::Departed;
use crate::observation::{Observation, ThreadEventKind};
use crate::sample::{Event, SampleRow};
use crate::units::{CoreTypeId, ProgramId, ThreadId};

/// CPU time and instructions of a thread or a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU seconds by core type since the first observation; zero for core types beyond the last entry.
    cpu_s: Vec<f64>,
    /// CPU seconds by core type in the last interval.
    last_cpu_s: Vec<f64>,
    /// Instructions since the first observation.
    instructions: f64,
    /// Instructions in the last interval.
    last_instructions: f64,
}

impl Usage {
    /// Returns the CPU seconds on a core type since the first observation.
    #[must_use]
    pub fn cpu_s(&self, core_type: CoreTypeId) -> f64 {
        self.cpu_s.get(core_type.index()).copied().unwrap_or(0.0)
    }

    /// Returns the CPU seconds on a core type in the last interval.
    #[must_use]
    pub fn last_cpu_s(&self, core_type: CoreTypeId) -> f64 {
        let row = self.last_cpu_s.get(core_type.index());
        row.copied().unwrap_or(0.0)
    }

    /// Returns the CPU seconds on all core types since the first observation.
    #[must_use]
    pub fn total_cpu_s(&self) -> f64 {
        self.cpu_s.iter().sum()
    }

    /// Returns the instructions since the first observation; 0 if instructions are not counted.
    #[must_use]
    pub const fn instructions(&self) -> f64 {
        self.instructions
    }

    /// Returns the instructions in the last interval; 0 if instructions are not counted.
    #[must_use]
    pub const fn last_instructions(&self) -> f64 {
        self.last_instructions
    }

    fn begin_interval(&mut self) {
        self.last_cpu_s.fill(0.0);
        self.last_instructions = 0.0;
    }

    fn add(&mut self, sample: &SampleRow<'_>) {
        let row = sample.core_type.index();
        if self.cpu_s.len() <= row {
            self.cpu_s.resize(row + 1, 0.0);
            self.last_cpu_s.resize(row + 1, 0.0);
        }
        let seconds = sample.enabled.as_secs_f64();
        self.cpu_s[row] += seconds;
        self.last_cpu_s[row] += seconds;
        let instructions = sample.counts.get(Event::Instructions).unwrap_or(0.0);
        self.instructions += instructions;
        self.last_instructions += instructions;
    }
}

/// Limit on consecutive observations without a program, after which its usage is dropped. A daemon meets an unlimited number
/// of programs.
const MOST_UNHEARD: u32 = 16;

/// Usage of a program, with the number of observations since it was last observed.
#[derive(Default)]
struct RecentUsage {
    usage: Usage,
    /// Number of observations since the last one that contained the program.
    unheard: u32,
}

/// Usage of each living thread, and of each program that has threads or had some recently.
#[derive(Default)]
pub struct UsageBank {
    threads: ByThread<Usage>,
    programs: ById<ProgramId, RecentUsage>,
    departed: Departed,
}

impl UsageBank {
    /// Adds the samples of an observation. A sample of a thread whose program is unknown counts for the thread only.
    pub fn update(&mut self, observation: &Observation) {
        self.threads.values_mut().for_each(Usage::begin_interval);
        self.begin_interval_of_programs(observation);
        let mut near = 0;
        for (thread, sample) in observation.samples.of_threads() {
            self.threads.entry(thread, Usage::default).add(&sample);
            if let Some(program) = program_of(observation, thread, &mut near) {
                let program = self.programs.entry(program, RecentUsage::default);
                program.usage.add(&sample);
            }
        }
        for event in &observation.events {
            if event.kind == ThreadEventKind::Exit {
                self.threads.remove(event.thread);
            }
        }
        self.departed.update(observation);
        for thread in self.departed.late(observation) {
            self.threads.remove(thread);
        }
    }

    /// Begins the next interval of each program, and drops programs that have ended, if observations list programs.
    fn begin_interval_of_programs(&mut self, observation: &Observation) {
        let programs = &observation.programs;
        let ended: BTreeSet<ProgramId> = observation.ended.iter().map(|row| row.1).collect();
        let is_known = |id: &ProgramId| {
            programs.binary_search_by_key(id, |p| p.id).is_ok() || ended.contains(id)
        };
        self.programs.retain(|id, row| {
            row.usage.begin_interval();
            row.unheard = if programs.is_empty() || is_known(&id) {
                0
            } else {
                row.unheard + 1
            };
            row.unheard <= MOST_UNHEARD
        });
    }

    /// Returns the exited threads that have samples in the last observation.
    pub(crate) fn late(&self, observation: &Observation) -> Vec<ThreadId> {
        self.departed.late(observation)
    }

    /// Returns the usage of a thread; `None` before its first sample.
    #[must_use]
    pub fn thread(&self, thread: ThreadId) -> Option<&Usage> {
        self.threads.get(thread)
    }

    /// Returns a reader of the usage of many threads. Access in ascending order of thread ids is cheapest.
    #[must_use]
    pub const fn read_threads(&self) -> ByIdReader<'_, ThreadId, Usage> {
        self.threads.reader()
    }

    /// Returns the usage of a program, including its exited threads. `None` before the first sample, and some time after the
    /// program has ended.
    #[must_use]
    pub fn program(&self, program: ProgramId) -> Option<&Usage> {
        self.programs.get(program).map(|row| &row.usage)
    }
}

/// Returns the program of a thread; `None` if it is unknown. `near` is the index in [`Observation::threads`] that is tried
/// first; it is advanced past the thread.
fn program_of(observation: &Observation, thread: ThreadId, near: &mut usize) -> Option<ProgramId> {
    let threads = &observation.threads;
    if threads.get(*near).is_none_or(|t| t.id != thread) {
        *near = threads.partition_point(|t| t.id < thread);
    }
    let alive = threads.get(*near).filter(|t| t.id == thread);
    let alive = alive.map(|t| t.program);
    *near += usize::from(alive.is_some());
    let ended = || observation.ended.iter().find(|(id, _)| *id == thread);
    alive.or_else(|| ended().map(|(_, program)| *program))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Samples};
    use crate::units::{CpuId, Nanos};

    fn sample(thread: u32, core_type: u32, ms: u64, instructions: f64) -> Samples {
        let counts = [(Event::Instructions, instructions)];
        Samples::of(
            Sample::of_thread(
                ThreadId(thread),
                CpuId(0),
                CoreTypeId(core_type),
                Nanos::ZERO,
                Nanos::from_millis(ms),
            ),
            1,
            &counts,
        )
    }

    #[test]
    fn time_adds_up_by_core_type_and_the_last_interval_stands_apart() {
        let mut bank = UsageBank::default();
        let mut seen = Observation {
            samples: [sample(1, 0, 30, 10.0), sample(1, 1, 70, 20.0)]
                .into_iter()
                .collect(),
            ended: vec![(ThreadId(1), ProgramId(4))],
            ..Observation::default()
        };
        bank.update(&seen);
        seen.samples = sample(1, 0, 5, 1.0);
        bank.update(&seen);
        for usage in [bank.thread(ThreadId(1)), bank.program(ProgramId(4))] {
            let usage = usage.unwrap();
            assert!((usage.cpu_s(CoreTypeId(0)) - 0.035).abs() < 1e-12);
            assert!((usage.cpu_s(CoreTypeId(1)) - 0.070).abs() < 1e-12);
            assert!((usage.last_cpu_s(CoreTypeId(0)) - 0.005).abs() < 1e-12);
            assert_eq!(usage.last_cpu_s(CoreTypeId(1)), 0.0);
            assert_eq!(
                (usage.instructions(), usage.last_instructions()),
                (31.0, 1.0)
            );
        }
        assert!(bank.thread(ThreadId(2)).is_none());
    }
}
