//! Data for the upper bounds of a plan: the work of each program, and the number of runs that it completed.
//!
//! A run of a program counts as its run time alone. An unfinished run counts as a fraction of this time. A single thread and a
//! serial part pass the timeline from its start. Their fraction is therefore the time alone of the instructions that they passed.
//! In a parallel part, the position of each thread on the timeline is unknown, so the fraction is proportional to instructions.

use super::alone::Alone;
use super::program::SimulatedProgram;
use super::{EngineTimer, Simulation};
use crate::progress::Ceilings;

/// Data for upper bounds on performance: speed limits of a machine, and work of its programs.
#[derive(Clone, Debug, Default)]
pub struct PerformanceLimits {
    pub ceilings: Ceilings,
    /// Programs in the order of the workload.
    pub programs: Vec<ProgramLimits>,
    /// Number of runs that each program must finish before the simulation ends.
    pub rounds: f64,
}

/// Work of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramLimits {
    /// Index of the program's model in [`Ceilings::models`].
    pub model: usize,
    pub start_s: f64,
    /// Seconds that one run takes alone on the whole machine, fast cores first.
    pub alone_fast_s: f64,
    /// Seconds of each run during which no thread works.
    pub asleep_s: f64,
    pub rows: Vec<WorkRow>,
}

/// Work that a program does in one behaviour, within the serial or the parallel part of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkRow {
    pub behaviour: usize,
    /// Number of instructions with this behaviour in a run, summed over all threads.
    pub instructions: f64,
    /// Fraction of the program's run time alone that this work takes.
    pub worth: f64,
    /// Number of threads that execute this work at the same time.
    pub threads: f64,
}

/// Instructions of the serial and the parallel part of a run, and seconds that each part takes if the program runs alone.
struct Worths {
    /// Number of instructions that one thread executes.
    serial: f64,
    serial_s: f64,
    /// Number of instructions that all threads execute together; zero for a program with one thread.
    parallel: f64,
    parallel_s: f64,
}

impl Simulation {
    /// Returns speed limits and work for upper bounds of this simulation; `None` if its progress model knows no speed limits.
    #[must_use]
    pub fn limits(&self) -> Option<PerformanceLimits> {
        let ceilings = self.progress.ceilings()?;
        let program = |(row, program): (usize, &SimulatedProgram)| {
            let start = self.timers.iter().find_map(|timer| match timer.0 {
                (at, EngineTimer::Start { program }) if program == row => Some(at.as_secs_f64()),
                _ => None,
            });
            self.program_limits(program, start.unwrap_or(0.0), &ceilings)
        };
        Some(PerformanceLimits {
            programs: self.programs.iter().enumerate().map(program).collect(),
            rounds: f64::from(self.config.rounds),
            ceilings,
        })
    }

    fn worths(&self, program: &SimulatedProgram, alone_fast_s: f64) -> Worths {
        let parts = program.parts();
        let single = parts.threads == 1;
        let serial = if single { 1.0 } else { parts.serial_share } * parts.instructions;
        let serial_s = self.serial_s(program, serial);
        Worths {
            serial,
            serial_s,
            parallel: parts.instructions - serial,
            parallel_s: if single {
                0.0
            } else {
                (alone_fast_s - parts.asleep_s - serial_s).max(0.0)
            },
        }
    }

    /// Returns the seconds that one thread alone takes for the first `instructions` instructions of a run.
    fn serial_s(&self, program: &SimulatedProgram, instructions: f64) -> f64 {
        let parts = program.parts();
        let per_timeline = parts.instructions / parts.timeline;
        let fastest = Alone::new(&self.topology, &*self.progress).fastest();
        let passed = instructions / per_timeline;
        self.progress
            .alone_part_s(program.model, fastest, 0.0, passed)
            * per_timeline
    }

    /// Number of runs that a program completed in `instructions` instructions; an unfinished run counts as a fraction.
    pub(super) fn runs_done(
        &self,
        program: &SimulatedProgram,
        alone_fast_s: f64,
        instructions: f64,
    ) -> f64 {
        let finished = program.completions_s.len() as f64;
        let worths = self.worths(program, alone_fast_s);
        let run = worths.serial + worths.parallel;
        let begun = (instructions - finished * run).clamp(0.0, run);
        let serial_s = self.serial_s(program, begun.min(worths.serial));
        let parallel_s = if worths.parallel > 0.0 {
            worths.parallel_s * (begun - worths.serial).max(0.0) / worths.parallel
        } else {
            0.0
        };
        finished + (serial_s + parallel_s) / (worths.serial_s + worths.parallel_s)
    }

    fn program_limits(
        &self,
        program: &SimulatedProgram,
        start_s: f64,
        ceilings: &Ceilings,
    ) -> ProgramLimits {
        let parts = program.parts();
        let alone_fast_s = Alone::new(&self.topology, &*self.progress).fast_s(program);
        let worths = self.worths(program, alone_fast_s);
        let whole_s = worths.serial_s + worths.parallel_s;
        let per_timeline = parts.instructions / parts.timeline;
        let border = worths.serial / per_timeline;
        let model = &ceilings.models[program.model.0 as usize];
        let mut rows: Vec<WorkRow> = Vec::new();
        let mut add = |behaviour, from: f64, to: f64, threads, worth: f64| {
            let instructions = (to - from) * per_timeline;
            if instructions <= 0.0 {
                return;
            }
            let known = rows
                .iter_mut()
                .find(|r| (r.behaviour, r.threads) == (behaviour, threads));
            if let Some(row) = known {
                row.instructions += instructions;
                row.worth += worth;
            } else {
                rows.push(WorkRow {
                    behaviour,
                    instructions,
                    worth,
                    threads,
                });
            }
        };
        let fastest = Alone::new(&self.topology, &*self.progress).fastest();
        let mut start = 0.0;
        for (end, behaviour) in &model.timeline {
            let serial_end = end.min(border).max(start);
            let serial_s = per_timeline
                * self
                    .progress
                    .alone_part_s(program.model, fastest, start, serial_end);
            add(*behaviour, start, serial_end, 1.0, serial_s / whole_s);
            let share = (end - serial_end) * per_timeline / worths.parallel.max(1.0);
            let parallel = worths.parallel_s * share / whole_s;
            add(*behaviour, serial_end, *end, parts.threads as f64, parallel);
            start = *end;
        }
        ProgramLimits {
            model: program.model.0 as usize,
            start_s,
            alone_fast_s,
            asleep_s: parts.asleep_s,
            rows,
        }
    }
}
