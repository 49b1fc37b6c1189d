//! Run time of a program that runs alone on the machine, with all its threads.
//!
//! The protocol follows PMCTrack (section 4.1.3) and PMCSched: a program alone uses all given CPUs, fastest cores first. If there
//! is a CPU for each unfinished thread, the threads with the most work left are on the fastest CPUs. Whenever a thread finishes,
//! the others are placed again. If there are more threads than CPUs, they share all CPUs and advance at equal speed. Threads of
//! the program contend for caches and memory as in any static mapping.

use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId};

use super::program::SimulatedProgram;
use crate::progress::{ModelId, ProgressModel};

/// Threshold: fraction of a thread's work below which the rest counts as done, because sums of parts are rounded.
const DONE_SHARE: f64 = 1e-9;

/// Returns the CPUs of core type `only`, or of all types, in the order in which a program that runs alone uses them.
///
/// Each core comes before its SMT siblings, fast core types come before slow ones, and last-level caches alternate.
#[must_use]
pub fn cpus_alone(topology: &Topology, only: Option<CoreTypeId>) -> Vec<CpuId> {
    let mut seen = vec![0u32; topology.caches.len()];
    let mut cpus: Vec<_> = topology
        .cpus
        .iter()
        .filter(|cpu| only.is_none_or(|wanted| cpu.core_type == wanted))
        .map(|cpu| {
            let llc = &mut seen[topology.llc_of(cpu.id).index()];
            *llc += 1;
            (cpu.thread, cpu.core_type, *llc, cpu.id)
        })
        .collect();
    cpus.sort_unstable();
    cpus.into_iter().map(|(.., cpu)| cpu).collect()
}

/// Computes the run times of programs that run alone on one machine.
pub(super) struct Alone<'a> {
    topology: &'a Topology,
    progress: &'a dyn ProgressModel,
}

impl<'a> Alone<'a> {
    pub fn new(topology: &'a Topology, progress: &'a dyn ProgressModel) -> Self {
        Self { topology, progress }
    }

    /// Returns the seconds of one run on the whole machine, fast cores first.
    pub fn fast_s(&self, program: &SimulatedProgram) -> f64 {
        self.seconds(program, &cpus_alone(self.topology, None))
    }

    /// Returns the seconds of one run on the cores of the slowest type only.
    pub fn slow_s(&self, program: &SimulatedProgram) -> f64 {
        let (_, slow) = self.topology.extremes();
        self.seconds(program, &cpus_alone(self.topology, Some(slow)))
    }

    /// Returns the core type on which a program with one thread runs when it runs alone.
    pub fn fastest(&self) -> CoreTypeId {
        let first = cpus_alone(self.topology, None)[0];
        self.topology.core_type_of(first)
    }

    fn seconds(&self, program: &SimulatedProgram, cpus: &[CpuId]) -> f64 {
        let parts = program.parts();
        let fastest = self.topology.core_type_of(cpus[0]);
        let timeline = parts.timeline;
        let border = parts.serial_share * timeline;
        let per_timeline = parts.instructions / timeline;
        let part_s = |from, to, core_type| {
            let seconds = self
                .progress
                .alone_part_s(program.model, core_type, from, to);
            seconds * per_timeline
        };
        let mut sum = parts.asleep_s;
        if parts.serial_share > 0.0 {
            sum += part_s(0.0, border, fastest);
        }
        if parts.serial_share < 1.0 && parts.threads == 1 {
            sum += part_s(border, timeline, fastest);
        } else if parts.serial_share < 1.0 {
            let whole = parts.instructions - parts.instructions * parts.serial_share;
            // Speed in the parallel part relative to the mean speed of the whole run.
            let faster = |core_type| {
                let alone = self.progress.alone_ips(program.model, core_type);
                whole / part_s(border, timeline, core_type) / alone
            };
            // Threads that take chunks all work to the end, like those that share CPUs.
            let used = &cpus[..parts.threads.min(cpus.len())];
            let threads = if parts.takes_chunks {
                parts.threads.max(used.len() + 1)
            } else {
                parts.threads
            };
            sum += self.parallel_s(program.model, whole, threads, used, &faster);
        }
        sum
    }

    /// Returns the seconds that `threads` threads take to execute equal shares of `instructions`.
    fn parallel_s(
        &self,
        model: ModelId,
        instructions: f64,
        threads: usize,
        cpus: &[CpuId],
        faster: &dyn Fn(CoreTypeId) -> f64,
    ) -> f64 {
        let each = instructions / threads as f64;
        let mut left = vec![each; threads];
        let mut elapsed = 0.0;
        while !left.is_empty() {
            let used = &cpus[..left.len().min(cpus.len())];
            let rows: Vec<_> = used.iter().map(|cpu| (model, *cpu, 1.0)).collect();
            let rates = self.progress.steady_state(&rows);
            let mut speeds: Vec<f64> = rates
                .iter()
                .zip(used)
                .map(|(rate, cpu)| rate.ips * faster(self.topology.core_type_of(*cpu)))
                .collect();
            if left.len() > used.len() {
                let mean = speeds.iter().sum::<f64>() / left.len() as f64;
                speeds = vec![mean; left.len()];
            }
            let first_s = left
                .iter()
                .zip(&speeds)
                .map(|(work, speed)| work / speed)
                .fold(f64::INFINITY, f64::min);
            elapsed += first_s;
            for (work, speed) in left.iter_mut().zip(&speeds) {
                *work -= speed * first_s;
            }
            left.retain(|work| *work > DONE_SHARE * each);
            left.sort_by(|a, b| b.total_cmp(a));
        }
        elapsed
    }
}
