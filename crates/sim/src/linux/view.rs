//! State of the scheduler that callers may read between two calls that change it.

use countersteer_model::latency::Histogram;
use countersteer_model::units::{CpuId, Nanos, ThreadId};

use super::Linux;
use super::entity::{NONE, TaskEntity, TaskState};

impl Linux {
    /// Thread that runs on a CPU; `None` if the CPU is idle.
    #[must_use]
    pub fn running(&self, cpu: CpuId) -> Option<ThreadId> {
        let t = self.rqs[cpu.index()].curr;
        (t != NONE).then_some(ThreadId(t))
    }

    /// CPU on which a thread runs, waits, or last ran.
    #[must_use]
    pub fn cpu_of(&self, thread: ThreadId) -> CpuId {
        CpuId(self.threads[thread.index()].cpu)
    }

    /// Number of runnable threads of a CPU, including the running thread.
    #[must_use]
    pub fn nr_running(&self, cpu: CpuId) -> usize {
        self.rqs[cpu.index()].runnable as usize
    }

    /// True if a thread is running or waits for a CPU.
    #[must_use]
    pub fn is_runnable(&self, thread: ThreadId) -> bool {
        self.threads
            .get(thread.index())
            .is_some_and(TaskEntity::runnable)
    }

    /// Number of migrations of a thread since its fork.
    #[must_use]
    pub fn migrations(&self, thread: ThreadId) -> u64 {
        self.threads[thread.index()].migrations
    }

    /// Number of context switches on all CPUs, including switches to and from idle.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switch_count
    }

    /// Total run-queue latency of a thread, up to the last call that carried a time.
    #[must_use]
    pub fn run_delay(&self, thread: ThreadId) -> Nanos {
        let t = &self.threads[thread.index()];
        let waiting = if t.state == TaskState::Queued {
            self.now.saturating_sub(t.waiting_since)
        } else {
            0
        };
        Nanos(t.waited + waiting)
    }

    /// Run-queue latencies of a process's threads, one per time that a thread got a CPU; `None` for an unknown process.
    #[must_use]
    pub fn waits(&self, process: u32) -> Option<&Histogram> {
        self.waits.get(process as usize)
    }

    /// Total running time of a thread, up to the last call that carried a time.
    #[must_use]
    pub fn run_time(&self, thread: ThreadId) -> Nanos {
        let t = &self.threads[thread.index()];
        let running = if t.state == TaskState::Running {
            self.now.saturating_sub(t.exec_start)
        } else {
            0
        };
        Nanos(t.ran + running)
    }

    /// Utilisation of a CPU for a frequency governor: the larger of PELT's average and estimate, at most the CPU's capacity.
    #[must_use]
    pub fn cpu_utilisation(&self, cpu: CpuId) -> f64 {
        self.rqs[cpu.index()].util(self.now)
    }

    /// PELT utilisation of a thread; 1,024 if the thread always runs on the largest core type.
    #[must_use]
    pub fn utilisation(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        t.avg
            .at(self.rqs[t.cpu as usize].pelt_clock(self.now), t.rate())
            .util
    }
}
