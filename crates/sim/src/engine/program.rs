//! Programs: what their threads do next.
//!
//! A run is a serial part (thread 0 alone) and a parallel part (all threads, equal shares); either may be cut into bursts
//! with sleeps between. A run is over when all threads are done.

use std::sync::Arc;

use countersteer_core::cpuset::CpuSet;
use countersteer_core::profile::Profile;
use countersteer_core::topology::Topology;
use countersteer_core::units::{CoreTypeId, Nanos, ThreadId};

use crate::progress::{ModelId, ProgressModel};

/// The programs of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub programs: Vec<PlannedProgram>,
}

/// One program (one copy of it).
#[derive(Clone, Debug)]
pub struct PlannedProgram {
    pub name: Arc<str>,
    pub profile: Arc<Profile>,
    pub threads: u32,
    pub nice: i8,
    pub start: Nanos,
    /// Instructions between sleeps and their length.
    pub bursts: Option<(f64, Nanos)>,
    /// CPUs it is launched on.
    pub launch_on: Option<Arc<CpuSet>>,
    /// Share of the profile's instructions that a run has.
    pub scale: f64,
}

pub(super) struct Program {
    pub name: Arc<str>,
    pub model: ModelId,
    pub nice: i8,
    pub launch_on: Option<Arc<CpuSet>>,
    pub completions_s: Vec<f64>,
    first: ThreadId,
    work: Vec<Work>,
    instructions: f64,
    /// Instructions of the profile's timeline per instruction of the run.
    stretch: f64,
    serial_share: f64,
    bursts: Option<(f64, Nanos)>,
    began: Nanos,
    in_serial: bool,
    busy: u32,
}

/// What a thread still has to do in this part of the run.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Position on the profile's timeline.
    offset: f64,
    left: f64,
    chunk: f64,
}

/// A piece of work for the progress model.
pub(super) struct Piece {
    pub offset: f64,
    pub instructions: f64,
    pub stride: f64,
}

/// What a thread does after a piece of work.
pub(super) enum Step {
    Work,
    /// Sleep, then the next piece.
    Sleep(Nanos),
    Wait,
    /// The serial part is over: all threads start.
    Parallel,
    /// The run is over and the next begins.
    Restart,
}

impl Program {
    pub fn new(planned: &PlannedProgram, model: ModelId, first: ThreadId) -> Self {
        let serial_share = match &*planned.profile {
            // A program recorded with one thread says nothing about how its work would be split among several.
            Profile::Recorded(p) if planned.threads > 1 && p.shape.threads > 1 => {
                p.shape.serial_share
            }
            _ => 0.0,
        };
        Self {
            name: Arc::clone(&planned.name),
            model,
            nice: planned.nice,
            launch_on: planned.launch_on.clone(),
            completions_s: Vec::new(),
            first,
            work: vec![Work::default(); planned.threads as usize],
            instructions: planned.profile.instructions() as f64 * planned.scale,
            stretch: 1.0 / planned.scale,
            serial_share,
            bursts: planned.bursts,
            began: Nanos::ZERO,
            in_serial: false,
            busy: 0,
        }
    }

    pub fn threads(&self) -> impl Iterator<Item = ThreadId> + use<> {
        let first = self.first.0;
        (first..first + self.work.len() as u32).map(ThreadId)
    }

    pub fn begin_run(&mut self, now: Nanos) {
        self.began = now;
        self.in_serial = self.serial_share > 0.0;
        self.work.fill(Work::default());
        if self.in_serial {
            self.work[0].left = self.instructions * self.serial_share;
            self.busy = 1;
        } else {
            self.begin_parallel();
        }
    }

    fn begin_parallel(&mut self) {
        self.in_serial = false;
        let share = self.instructions * (1.0 - self.serial_share) / self.work.len() as f64;
        let offset = self.instructions * self.serial_share * self.stretch;
        self.work.fill(Work {
            offset,
            left: share,
            chunk: 0.0,
        });
        self.busy = self.work.len() as u32;
    }

    pub fn has_work(&self, id: ThreadId) -> bool {
        let work = &self.work[(id.0 - self.first.0) as usize];
        work.left + work.chunk > 0.0
    }

    /// The next piece for a thread, `None` when it has none.
    pub fn next_work(&mut self, id: ThreadId) -> Option<Piece> {
        let threads = self.work.len() as f64;
        let work = &mut self.work[(id.0 - self.first.0) as usize];
        if work.left <= 0.0 {
            return None;
        }
        let stride = self.stretch * if self.in_serial { 1.0 } else { threads };
        work.chunk = self
            .bursts
            .map_or(work.left, |(burst, _)| burst.min(work.left));
        Some(Piece {
            offset: work.offset,
            instructions: work.chunk,
            stride,
        })
    }

    /// A thread did its piece.
    pub fn work_done(&mut self, id: ThreadId, now: Nanos) -> Step {
        let threads = self.work.len() as f64;
        let stride = self.stretch * if self.in_serial { 1.0 } else { threads };
        let work = &mut self.work[(id.0 - self.first.0) as usize];
        let chunk = std::mem::take(&mut work.chunk);
        work.offset += chunk * stride;
        work.left -= chunk;
        // Bursts are subtracted one by one: what rounding leaves is no work.
        if work.left > 0.5 {
            return self
                .bursts
                .map_or(Step::Work, |(_, sleep)| Step::Sleep(sleep));
        }
        work.left = 0.0;
        self.busy -= 1;
        if self.busy > 0 {
            return Step::Wait;
        }
        if self.in_serial && self.serial_share < 1.0 {
            self.begin_parallel();
            return Step::Parallel;
        }
        self.completions_s.push(now.since(self.began).as_secs_f64());
        Step::Restart
    }

    /// One run alone on the fastest and on the slowest cores.
    pub fn alone_seconds(&self, topology: &Topology, progress: &dyn ProgressModel) -> (f64, f64) {
        let (fast, slow) = topology.extremes();
        (
            self.alone_on(topology, progress, fast),
            self.alone_on(topology, progress, slow),
        )
    }

    fn alone_on(
        &self,
        topology: &Topology,
        progress: &dyn ProgressModel,
        core_type: CoreTypeId,
    ) -> f64 {
        let cpus = topology
            .cpus
            .iter()
            .filter(|c| c.core_type == core_type && c.thread == 0)
            .count()
            .max(1);
        let at_once = self.work.len().min(cpus) as f64;
        let one_thread = self.instructions / progress.alone_ips(self.model, core_type);
        let asleep = self.bursts.map_or(0.0, |(burst, sleep)| {
            let per_thread = self.instructions / self.work.len() as f64;
            ((per_thread / burst).ceil() - 1.0).max(0.0) * sleep.as_secs_f64()
        });
        one_thread * (self.serial_share + (1.0 - self.serial_share) / at_once) + asleep
    }
}
