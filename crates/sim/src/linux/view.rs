//! What can be seen of the scheduler between two calls that change it.

use countersteer_model::units::{CpuId, Nanos, ThreadId};

use super::Linux;
use super::entity::{NONE, State, Thread};

impl Linux {
    /// The thread that runs on a CPU.
    #[must_use]
    pub fn running(&self, cpu: CpuId) -> Option<ThreadId> {
        let t = self.rqs[cpu.index()].curr;
        (t != NONE).then_some(ThreadId(t))
    }

    /// The CPU a thread runs on, waits for, or last ran on.
    #[must_use]
    pub fn cpu_of(&self, thread: ThreadId) -> CpuId {
        CpuId(self.threads[thread.index()].cpu)
    }

    /// Runnable threads of a CPU, the running one included.
    #[must_use]
    pub fn nr_running(&self, cpu: CpuId) -> usize {
        self.rqs[cpu.index()].runnable as usize
    }

    /// Whether a thread wants to run.
    #[must_use]
    pub fn is_runnable(&self, thread: ThreadId) -> bool {
        self.threads
            .get(thread.index())
            .is_some_and(Thread::runnable)
    }

    /// How often a thread changed CPU.
    #[must_use]
    pub fn migrations(&self, thread: ThreadId) -> u64 {
        self.threads[thread.index()].migrations
    }

    /// Switches so far, on all CPUs, to and from idle included.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switch_count
    }

    /// Time a thread was runnable without running, up to the last call that took the time.
    #[must_use]
    pub fn run_delay(&self, thread: ThreadId) -> Nanos {
        let t = &self.threads[thread.index()];
        let waiting = if t.state == State::Queued {
            self.now.saturating_sub(t.waiting_since)
        } else {
            0
        };
        Nanos(t.waited + waiting)
    }

    /// Time a thread ran, up to the last call that took the time.
    #[must_use]
    pub fn run_time(&self, thread: ThreadId) -> Nanos {
        let t = &self.threads[thread.index()];
        let running = if t.state == State::Running {
            self.now.saturating_sub(t.exec_start)
        } else {
            0
        };
        Nanos(t.ran + running)
    }

    /// Utilisation of a CPU as a governor sees it: the larger of PELT's and the estimate, at most its capacity.
    #[must_use]
    pub fn cpu_utilisation(&self, cpu: CpuId) -> f64 {
        self.rqs[cpu.index()].util(self.now)
    }

    /// PELT's utilisation of a thread, 1,024 for one that always runs on the largest type.
    #[must_use]
    pub fn utilisation(&self, thread: ThreadId) -> f64 {
        let t = &self.threads[thread.index()];
        t.avg
            .at(self.rqs[t.cpu as usize].pelt_clock(self.now), t.rate())
            .util
    }
}
