//! Programs: the sequence of pieces of work that their threads execute.
//!
//! A run has a serial part (thread 0 alone) and a parallel part (all threads, equal shares). Either part may be divided into
//! bursts with sleeps between them. A run is over when all threads have finished their work.

use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::profile::Profile;
use countersteer_model::units::{Nanos, ThreadId};

use crate::progress::ModelId;

/// Programs of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub programs: Vec<PlannedProgram>,
}

/// One copy of a program in a simulation.
#[derive(Clone, Debug)]
pub struct PlannedProgram {
    pub name: Arc<str>,
    pub profile: Arc<Profile>,
    pub threads: u32,
    /// Fraction of the instructions that one thread executes before the others begin; ignored for a program with one thread.
    pub serial_share: f64,
    pub nice: i8,
    pub start: Nanos,
    /// Number of instructions between two sleeps, and length of a sleep; `None` if threads do not sleep.
    pub bursts: Option<(f64, Nanos)>,
    /// CPUs on which the program is launched; `None` if it may be launched on any allowed CPU.
    pub launch_on: Option<Arc<CpuSet>>,
    /// Ratio of a run's instructions to the profile's instructions.
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
    /// Number of instructions on the profile's timeline per instruction of the run.
    timeline_rate: f64,
    serial_share: f64,
    bursts: Option<(f64, Nanos)>,
    began: Nanos,
    in_serial: bool,
    busy: u32,
}

/// Remaining work of a thread in the serial or the parallel part of the run.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Position of the thread on the profile's timeline, in instructions.
    offset: f64,
    left: f64,
    chunk: f64,
}

/// Piece of a thread's work, up to the thread's next sleep.
pub(super) struct Piece {
    pub offset: f64,
    pub instructions: f64,
    pub stride: f64,
}

/// Next action of a thread after a piece of work.
pub(super) enum Step {
    Work,
    /// The thread sleeps for this long, then continues with its next piece of work.
    Sleep(Nanos),
    Wait,
    /// The serial part is over, and all threads start.
    Parallel,
    /// The run is over, and the next run begins.
    Restart,
}

impl Program {
    pub fn new(planned: &PlannedProgram, model: ModelId, first: ThreadId) -> Self {
        let alone = planned.threads == 1;
        Self {
            name: Arc::clone(&planned.name),
            model,
            nice: planned.nice,
            launch_on: planned.launch_on.clone(),
            completions_s: Vec::new(),
            first,
            work: vec![Work::default(); planned.threads as usize],
            instructions: planned.profile.instructions() as f64 * planned.scale,
            timeline_rate: 1.0 / planned.scale,
            serial_share: if alone { 0.0 } else { planned.serial_share },
            bursts: planned.bursts,
            began: Nanos::ZERO,
            in_serial: false,
            busy: 0,
        }
    }

    /// Number of instructions of a whole run, summed over all threads.
    pub fn instructions(&self) -> f64 {
        self.instructions
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
        let offset = self.instructions * self.serial_share * self.timeline_rate;
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

    /// Returns the next piece of a thread's work; `None` if no work is left.
    pub fn next_work(&mut self, id: ThreadId) -> Option<Piece> {
        let threads = self.work.len() as f64;
        let work = &mut self.work[(id.0 - self.first.0) as usize];
        if work.left <= 0.0 {
            return None;
        }
        let stride = self.timeline_rate * if self.in_serial { 1.0 } else { threads };
        work.chunk = self
            .bursts
            .map_or(work.left, |(burst, _)| burst.min(work.left));
        Some(Piece {
            offset: work.offset,
            instructions: work.chunk,
            stride,
        })
    }

    /// Records that a thread finished its piece of work, and returns the thread's next action.
    pub fn work_done(&mut self, id: ThreadId, now: Nanos) -> Step {
        let threads = self.work.len() as f64;
        let stride = self.timeline_rate * if self.in_serial { 1.0 } else { threads };
        let work = &mut self.work[(id.0 - self.first.0) as usize];
        let chunk = std::mem::take(&mut work.chunk);
        work.offset += chunk * stride;
        work.left -= chunk;
        // Bursts are subtracted one by one, so that rounding can leave a fraction of an instruction.
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

    /// Returns the values from which the run time of the program alone is computed.
    pub fn parts(&self) -> Parts {
        let threads = self.work.len();
        let parallel = self.instructions * (1.0 - self.serial_share) / threads as f64;
        let serial = self.instructions * self.serial_share;
        let asleep_s = self.bursts.map_or(0.0, |(burst, sleep)| {
            let sleeps = |work: f64| ((work / burst).ceil() - 1.0).max(0.0);
            (sleeps(serial) + sleeps(parallel)) * sleep.as_secs_f64()
        });
        Parts {
            threads,
            instructions: self.instructions,
            timeline: self.instructions * self.timeline_rate,
            serial_share: self.serial_share,
            asleep_s,
        }
    }
}

/// Values of one run of a program, from which its run time alone is computed.
pub(super) struct Parts {
    pub threads: usize,
    /// Number of instructions of all threads.
    pub instructions: f64,
    /// Number of instructions on the profile's timeline.
    pub timeline: f64,
    /// Fraction of the instructions that thread 0 executes before the others begin.
    pub serial_share: f64,
    /// Seconds of a run that each thread sleeps between its bursts.
    pub asleep_s: f64,
}
