//! Life cycle of programs: start, work, sleeps, parallel part, restart.

use std::cmp::Reverse;
use std::sync::Arc;

use countersteer_model::engine::{ThreadEvent, ThreadEventKind};
use countersteer_model::placement::Clamp;
use countersteer_model::units::{CpuId, ThreadId};

use super::program::ThreadStep;
use super::{EngineTimer, Simulation};

impl Simulation {
    /// Starts the next action of each thread whose piece of work has just ended.
    pub(super) fn finish_work(&mut self) {
        let mut finished = std::mem::take(&mut self.finished_buffer);
        self.progress.take_finished(&mut finished);
        for id in finished.drain(..) {
            let row = self.threads[id.index()].program;
            let now = self.now;
            match self.programs[row].work_done(id, now) {
                ThreadStep::Work => self.give_work(row, id),
                ThreadStep::Sleep(length) => {
                    self.timers
                        .push(Reverse((now + length, EngineTimer::Wake { thread: id })));
                    self.block(id);
                }
                ThreadStep::Wait => self.block(id),
                ThreadStep::Part => self.begin_part(row, id),
                ThreadStep::Restart if self.runs_once => self.block(id),
                ThreadStep::Restart => self.restart(row, id),
            }
        }
        self.finished_buffer = finished;
    }

    /// Starts the threads that have work in a part; `last` is the one whose work ended the part before.
    fn begin_part(&mut self, row: usize, last: ThreadId) {
        let waker = self.threads[last.index()].cpu;
        for id in self.programs[row].threads() {
            self.begin_or_block(row, id, waker);
        }
    }

    fn begin_or_block(&mut self, row: usize, id: ThreadId, waker: CpuId) {
        if self.programs[row].has_work(id) {
            self.give_work(row, id);
            self.wake(id, Some(waker));
        } else {
            self.block(id);
        }
    }

    pub(super) fn fire_timers(&mut self) {
        while let Some(Reverse((_, timer))) = self
            .timers
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= self.now)
        {
            self.timers.pop();
            match timer {
                EngineTimer::Hotplug { event } => self.plug(event),
                EngineTimer::Start { program } => self.start(program),
                EngineTimer::Scan => self.scan(),
                EngineTimer::Wake { thread } => {
                    self.give_work(self.threads[thread.index()].program, thread);
                    self.wake(thread, None);
                }
            }
        }
    }

    /// Launches a program: forks those of its threads that have work.
    fn start(&mut self, row: usize) {
        self.join_group(row);
        self.programs[row].begin_run(self.now);
        let mut parent = None;
        for id in self.programs[row].threads() {
            if self.programs[row].has_work(id) {
                self.give_work(row, id);
                self.fork(row, id, parent);
                parent = parent.or(Some(self.threads[id.index()].cpu));
            }
        }
    }

    /// Forks a thread on a CPU that the admission table, the workload's launch CPUs or the kernel chooses.
    fn fork(&mut self, row: usize, id: ThreadId, parent: Option<CpuId>) {
        let now = self.now;
        let by_table = self.entry_target(id);
        let thread = &mut self.threads[id.index()];
        thread.confined = by_table.unwrap_or_else(|| Arc::clone(&thread.allowed));
        let launch = self.programs[row].launch_on.as_ref();
        thread.cpu = self.linux.fork_in(
            Some(row as u32),
            id,
            self.programs[row].nice,
            launch.unwrap_or(&thread.confined),
            parent,
            now,
        );
        if launch.is_some() {
            self.linux.set_affinity(id, &thread.confined, now);
        }
        thread.alive = true;
        thread.runnable = true;
        let clamp = self.programs[row].control.clamp;
        if clamp != Clamp::FREE {
            self.clamp(id, clamp);
        }
        self.event(id, ThreadEventKind::New);
    }

    /// Restarts a finished program with its existing threads, as a shell's loop with exec would.
    fn restart(&mut self, row: usize, last: ThreadId) {
        let now = self.now;
        self.programs[row].begin_run(now);
        let waker = self.threads[last.index()].cpu;
        self.linux.exec(last, now);
        for id in self.programs[row].threads() {
            self.event(id, ThreadEventKind::Exec);
            self.begin_or_block(row, id, waker);
        }
    }

    fn give_work(&mut self, row: usize, id: ThreadId) {
        if let Some(work) = self.programs[row].next_work(id) {
            self.progress
                .set_work(id, work.offset, work.instructions, work.stride, self.now);
        }
    }

    fn block(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id.index()];
        if thread.runnable {
            thread.runnable = false;
            thread.slept = self.now;
            self.linux.block(id, self.now);
            self.event(id, ThreadEventKind::Sleep);
        }
    }

    fn wake(&mut self, id: ThreadId, waker: Option<CpuId>) {
        if self.threads[id.index()].runnable {
            return;
        }
        if !self.threads[id.index()].alive {
            let row = self.threads[id.index()].program;
            return self.fork(row, id, waker);
        }
        self.threads[id.index()].runnable = true;
        // The last decision placed a thread that was awake since the observation before it.
        let long = self.threads[id.index()].slept < self.observed[1];
        if let Some(cpus) = self.entry_target(id).filter(|_| long) {
            self.confine(id, &cpus);
        }
        self.linux.wake(id, waker, self.now);
        self.event(id, ThreadEventKind::Wake);
    }

    pub(super) fn event(&mut self, thread: ThreadId, kind: ThreadEventKind) {
        self.events.push(ThreadEvent {
            at: self.now,
            thread,
            kind,
        });
    }
}
