//! Programs: the sequence of pieces of work that their threads execute.
//!
//! A run has a serial part (thread 0 alone) and a parallel part (all threads). Threads have equal shares of the parallel part
//! (static chunking), or take chunks from what is left of it (dynamic chunking, work stealing). Barriers cut a run into equal
//! pieces, each with both parts. Work may be cut into bursts with sleeps between them. A run is over when all threads are done.

use std::sync::Arc;

use countersteer_model::control::Control;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::profile::Profile;
use countersteer_model::units::{Nanos, ThreadId};

use crate::progress::ModelId;

/// Programs of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub programs: Vec<PlannedProgram>,
    /// CPUs that go offline and online.
    pub hotplug: Vec<PlannedHotplug>,
}

/// CPUs that go offline or online at a time.
#[derive(Clone, Debug)]
pub struct PlannedHotplug {
    pub at: Nanos,
    pub cpus: Arc<CpuSet>,
    pub online: bool,
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
    /// Control group and utilisation clamp.
    pub control: Control,
    pub start: Nanos,
    /// Number of instructions between two sleeps, and length of a sleep; `None` if threads do not sleep.
    pub bursts: Option<(f64, Nanos)>,
    /// Pieces of a run at whose end all threads wait for each other; at least 1.
    pub barriers: u32,
    /// Instructions that a thread takes at a time from a parallel part; equal shares without it.
    pub chunk: Option<f64>,
    /// CPUs on which the program is launched; `None` if it may be launched on any allowed CPU.
    pub launch_on: Option<Arc<CpuSet>>,
    /// Ratio of a run's instructions to the profile's instructions.
    pub scale: f64,
}

pub(super) struct SimulatedProgram {
    pub name: Arc<str>,
    pub model: ModelId,
    pub nice: i8,
    pub control: Control,
    pub launch_on: Option<Arc<CpuSet>>,
    pub completions_s: Vec<f64>,
    first: ThreadId,
    work: Vec<Work>,
    instructions: f64,
    /// Number of instructions on the profile's timeline per instruction of the run.
    timeline_rate: f64,
    serial_share: f64,
    bursts: Option<(f64, Nanos)>,
    barriers: u32,
    chunk: Option<f64>,
    /// Pieces that are over.
    passed: u32,
    /// Work that no thread has taken yet.
    pool: Work,
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
pub(super) struct WorkPiece {
    pub offset: f64,
    pub instructions: f64,
    pub stride: f64,
}

/// Next action of a thread after a piece of work.
pub(super) enum ThreadStep {
    Work,
    /// The thread sleeps for this long, then continues with its next piece of work.
    Sleep(Nanos),
    Wait,
    /// The next part begins: threads that have work start.
    Part,
    /// The run is over, and the next run begins.
    Restart,
}

impl SimulatedProgram {
    pub fn new(planned: &PlannedProgram, model: ModelId, first: ThreadId) -> Self {
        let alone = planned.threads == 1;
        Self {
            name: Arc::clone(&planned.name),
            model,
            nice: planned.nice,
            control: planned.control.clone(),
            launch_on: planned.launch_on.clone(),
            completions_s: Vec::new(),
            first,
            work: vec![Work::default(); planned.threads as usize],
            instructions: planned.profile.instructions() as f64 * planned.scale,
            timeline_rate: 1.0 / planned.scale,
            serial_share: if alone { 0.0 } else { planned.serial_share },
            bursts: planned.bursts,
            barriers: planned.barriers.max(1),
            chunk: planned.chunk,
            passed: 0,
            pool: Work::default(),
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

    pub(crate) fn begin_run(&mut self, now: Nanos) {
        self.began = now;
        self.passed = 0;
        self.begin_piece();
    }

    /// Serial parts follow each other on the first share of the timeline, parallel ones on the rest.
    fn begin_piece(&mut self) {
        self.in_serial = self.serial_share > 0.0;
        self.work.fill(Work::default());
        if self.in_serial {
            let serial = self.instructions * self.serial_share / f64::from(self.barriers);
            self.work[0].left = serial;
            self.work[0].offset = serial * f64::from(self.passed) * self.timeline_rate;
            self.busy = 1;
        } else {
            self.begin_parallel();
        }
    }

    fn begin_parallel(&mut self) {
        self.in_serial = false;
        let parallel = self.instructions * (1.0 - self.serial_share) / f64::from(self.barriers);
        let before = self.instructions * self.serial_share + parallel * f64::from(self.passed);
        let whole = Work {
            offset: before * self.timeline_rate,
            left: parallel,
            chunk: 0.0,
        };
        if self.chunk.is_some() {
            // A pool of less than an instruction is empty.
            self.pool = Work {
                left: parallel.max(1.0),
                ..whole
            };
            self.work.fill(Work::default());
            (0..self.work.len()).for_each(|row| self.take_chunk(row));
        } else {
            let left = parallel / self.work.len() as f64;
            self.work.fill(Work { left, ..whole });
        }
        self.busy = self.work.iter().filter(|work| work.left > 0.0).count() as u32;
    }

    /// Gives a thread the next chunk of the parallel part, if any is left.
    fn take_chunk(&mut self, row: usize) {
        let Some(chunk) = self.chunk else { return };
        // Chunks are subtracted one by one, so that rounding can leave a fraction of an instruction.
        if self.in_serial || self.pool.left <= 0.5 {
            return;
        }
        let taken = chunk.min(self.pool.left);
        self.work[row].offset = self.pool.offset;
        self.work[row].left = taken;
        self.pool.offset += taken * self.timeline_rate;
        self.pool.left -= taken;
    }

    /// Instructions of the timeline per instruction of one thread. Threads with equal shares each pass over all of it.
    fn stride(&self) -> f64 {
        let passes = !self.in_serial && self.chunk.is_none();
        let threads = if passes { self.work.len() as f64 } else { 1.0 };
        self.timeline_rate * threads
    }

    pub fn has_work(&self, id: ThreadId) -> bool {
        let work = &self.work[(id.0 - self.first.0) as usize];
        work.left + work.chunk > 0.0
    }

    /// Returns the next piece of a thread's work; `None` if no work is left.
    pub(crate) fn next_work(&mut self, id: ThreadId) -> Option<WorkPiece> {
        let stride = self.stride();
        let work = &mut self.work[(id.0 - self.first.0) as usize];
        if work.left <= 0.0 {
            return None;
        }
        work.chunk = self
            .bursts
            .map_or(work.left, |(burst, _)| burst.min(work.left));
        Some(WorkPiece {
            offset: work.offset,
            instructions: work.chunk,
            stride,
        })
    }

    /// Records that a thread finished its piece of work, and returns the thread's next action.
    pub(crate) fn work_done(&mut self, id: ThreadId, now: Nanos) -> ThreadStep {
        let stride = self.stride();
        let row = (id.0 - self.first.0) as usize;
        let work = &mut self.work[row];
        let chunk = std::mem::take(&mut work.chunk);
        work.offset += chunk * stride;
        work.left -= chunk;
        // Bursts are subtracted one by one, so that rounding can leave a fraction of an instruction.
        if work.left <= 0.5 {
            work.left = 0.0;
            self.take_chunk(row);
        }
        if self.work[row].left > 0.0 {
            return self
                .bursts
                .map_or(ThreadStep::Work, |(_, sleep)| ThreadStep::Sleep(sleep));
        }
        self.busy -= 1;
        if self.busy > 0 {
            return ThreadStep::Wait;
        }
        if self.in_serial && self.serial_share < 1.0 {
            self.begin_parallel();
            return ThreadStep::Part;
        }
        self.passed += 1;
        if self.passed < self.barriers {
            self.begin_piece();
            return ThreadStep::Part;
        }
        self.completions_s.push(now.since(self.began).as_secs_f64());
        ThreadStep::Restart
    }

    /// Returns the values from which the run time of the program alone is computed.
    pub fn parts(&self) -> RunParts {
        let threads = self.work.len();
        let parallel = self.instructions * (1.0 - self.serial_share) / threads as f64;
        let serial = self.instructions * self.serial_share;
        let asleep_s = self.bursts.map_or(0.0, |(burst, sleep)| {
            let sleeps = |work: f64| ((work / burst).ceil() - 1.0).max(0.0);
            let pieces = f64::from(self.barriers);
            (sleeps(serial / pieces) + sleeps(parallel / pieces)) * pieces * sleep.as_secs_f64()
        });
        RunParts {
            threads,
            instructions: self.instructions,
            timeline: self.instructions * self.timeline_rate,
            serial_share: self.serial_share,
            takes_chunks: self.chunk.is_some(),
            asleep_s,
        }
    }
}

/// Values of one run of a program, from which its run time alone is computed.
pub(super) struct RunParts {
    pub threads: usize,
    /// Number of instructions of all threads.
    pub instructions: f64,
    /// Number of instructions on the profile's timeline.
    pub timeline: f64,
    /// Fraction of the instructions that thread 0 executes before the others begin.
    pub serial_share: f64,
    /// Threads take chunks, so that all of them work to the end.
    pub takes_chunks: bool,
    /// Seconds of a run that each thread sleeps between its bursts.
    pub asleep_s: f64,
}
