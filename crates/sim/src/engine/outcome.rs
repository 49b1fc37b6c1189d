//! Results at the end of a simulation: completed runs, run times alone, use of cores and caches.

use countersteer_model::latency::Histogram;
use countersteer_model::score::{Outcome, ProgramOutcome, RunQueueLatency};

use super::Simulation;
use super::alone::Alone;

/// Exact resource use of a program over the whole simulation.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ProgramUsage {
    /// Seconds for which the program's threads ran, indexed by core type.
    pub cpu_s: Vec<f64>,
    pub instructions: f64,
    pub llc_misses: f64,
}

impl Simulation {
    pub fn outcome(&mut self) -> Outcome {
        self.progress.advance(self.now);
        let programs = (0..self.programs.len())
            .map(|row| self.program_outcome(row))
            .collect();
        Outcome {
            programs,
            elapsed_s: self.now.as_secs_f64(),
            energy_j: self.progress.energy_j(self.now),
            migrations: self.migrations,
            switches: self.switches,
            evicted: self.progress.evicted(),
        }
    }

    /// Returns the resource use of each program so far, in the order of the workload.
    pub fn usage(&mut self) -> Vec<ProgramUsage> {
        self.progress.advance(self.now);
        (0..self.programs.len())
            .map(|row| self.program_usage(row))
            .collect()
    }

    fn program_usage(&mut self, row: usize) -> ProgramUsage {
        let mut usage = ProgramUsage {
            cpu_s: vec![0.0; self.topology.core_types.len()],
            ..ProgramUsage::default()
        };
        for id in self.programs[row].threads() {
            let counters = self.progress.counters(id, self.now);
            usage.instructions += counters.instructions;
            usage.llc_misses += counters.llc_misses;
            let thread = &self.threads[id.index()];
            for (sum, ran) in usage.cpu_s.iter_mut().zip(&thread.ran_by_type) {
                *sum += ran.as_secs_f64();
            }
            if let Some(start) = thread.running_since {
                let core_type = self.topology.core_type_of(thread.cpu).index();
                usage.cpu_s[core_type] += self.now.since(start).as_secs_f64();
            }
        }
        usage
    }

    /// Returns the run-queue latencies of a program so far, by its row in the plan; `None` before its first wait.
    #[must_use]
    pub fn waits(&self, program: usize) -> Option<Histogram> {
        self.linux.waits(program as u32)
    }

    fn program_outcome(&mut self, row: usize) -> ProgramOutcome {
        let program = &self.programs[row];
        let alone = Alone::new(&self.topology, &*self.progress);
        let alone_fast_s = alone.fast_s(program);
        let alone_slow_s = alone.slow_s(program);
        let mut instructions = 0.0;
        let mut cycles = 0.0;
        let first = program.threads().next();
        let sampled = first.and_then(|id| self.progress.sampled(id));
        for id in program.threads() {
            let counters = self.progress.counters(id, self.now);
            instructions += counters.instructions;
            cycles += counters.cycles;
        }
        ProgramOutcome {
            name: program.name.to_string(),
            nice: program.nice,
            completions_s: program.completions_s.clone(),
            runs: Some(self.runs_done(program, alone_fast_s, instructions)),
            alone_fast_s,
            alone_slow_s,
            instructions,
            run_instructions: program.instructions(),
            cycles,
            sampled,
            run_queue_latency: (self.waits(row)).and_then(|waits| RunQueueLatency::of(&waits)),
        }
    }

    pub(super) fn finished(&self) -> bool {
        self.programs
            .iter()
            .all(|p| p.completions_s.len() >= self.config.rounds as usize)
    }
}
