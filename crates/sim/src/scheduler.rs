//! The scheduler of a simulated machine as the engine drives it: the model of Linux's fair class, or another one in its place.

use countersteer_model::control::CpuBandwidth;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::latency::Histogram;
use countersteer_model::placement::Clamp;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};

use crate::linux::{ContextSwitch, Linux};

/// Scheduler that decides when each thread of a simulation runs, and on which CPU.
///
/// Every call that changes something carries the time, which never decreases. The engine calls [`Scheduler::advance`] at every
/// time that [`Scheduler::next_event`] returns, and reads the context switches after each call.
pub trait Scheduler: Send {
    /// Creates a thread, places it and queues it; see [`Linux::fork_in`]. Returns its CPU.
    fn fork_in(
        &mut self,
        process: Option<u32>,
        thread: ThreadId,
        nice: i8,
        allowed: &CpuSet,
        parent: Option<CpuId>,
        now: Nanos,
    ) -> CpuId;
    /// Wakes a sleeping thread and returns its CPU; `None` as `waker` stands for an interrupt.
    fn wake(&mut self, thread: ThreadId, waker: Option<CpuId>, now: Nanos) -> CpuId;
    /// Wakes a sleeping thread for a waker that is about to sleep, and returns the thread's CPU.
    fn wake_sync(&mut self, thread: ThreadId, waker: CpuId, now: Nanos) -> CpuId;
    /// Puts a thread to sleep.
    fn block(&mut self, thread: ThreadId, now: Nanos);
    /// Handles `exec` of a running thread, at which a scheduler may move it.
    fn exec(&mut self, thread: ThreadId, now: Nanos);
    /// Removes a thread.
    fn exit(&mut self, thread: ThreadId, now: Nanos);
    /// Changes the CPUs that a thread may use; an empty set allows all.
    fn set_affinity(&mut self, thread: ThreadId, allowed: &CpuSet, now: Nanos);
    /// Changes a thread's load weight; 1,024 is the weight of nice 0.
    fn set_weight(&mut self, thread: ThreadId, weight: u32, now: Nanos);
    /// Creates a control group, a child of the root group, and returns its index; `None` if the scheduler has no groups.
    fn add_group(&mut self, _weight: u32, _limit: Option<CpuBandwidth>) -> Option<u32> {
        None
    }
    /// Puts a process into a control group; the threads that it forks later belong to the group.
    fn set_group(&mut self, _process: u32, _group: u32) {}
    /// Sets a thread's utilisation clamp.
    fn set_clamp(&mut self, _thread: ThreadId, _clamp: Clamp, _now: Nanos) {}
    /// Sets the memory node of a thread's pages; a scheduler may prefer this node.
    fn set_home(&mut self, _thread: ThreadId, _node: u32) {}
    /// Moves a runnable thread to an idle CPU of its home node; false if it does not.
    fn return_home(&mut self, _thread: ThreadId, _now: Nanos) -> bool {
        false
    }
    /// Takes a CPU of the machine offline or brings it online; false if the scheduler cannot.
    fn set_online(&mut self, _: &Topology, _cpu: CpuId, _online: bool, _now: Nanos) -> bool {
        false
    }
    /// Sets a CPU's frequency, as a fraction of its core type's `freq_ghz`.
    fn set_clock(&mut self, cpu: CpuId, clock: f64, now: Nanos);
    /// Time of the next event that the scheduler produces by itself.
    fn next_event(&self) -> Nanos;
    /// Handles all events up to `now`.
    fn advance(&mut self, now: Nanos);
    /// Moves the context switches since the last call into a list, in order of time.
    fn take_switches(&mut self, into: &mut Vec<ContextSwitch>);
    /// Thread that runs on a CPU; `None` if the CPU is idle.
    fn running(&self, cpu: CpuId) -> Option<ThreadId>;
    /// CPU on which a thread runs, waits, or last ran.
    fn cpu_of(&self, thread: ThreadId) -> CpuId;
    /// True if a thread runs or waits for a CPU.
    fn is_runnable(&self, thread: ThreadId) -> bool;
    /// Running time of a thread so far.
    fn run_time(&self, thread: ThreadId) -> Nanos;
    /// Run-queue latency of a thread so far.
    fn run_delay(&self, thread: ThreadId) -> Nanos;
    /// Number of migrations of a thread.
    fn migrations(&self, thread: ThreadId) -> u64;
    /// Run-queue latencies of a process's threads; `None` for an unknown process.
    fn waits(&self, process: u32) -> Option<Histogram>;
    /// Utilisation of a CPU for a frequency governor, at most the CPU's capacity.
    fn cpu_utilisation(&self, cpu: CpuId) -> f64;
    /// Reason why the scheduler cannot go on; `None` as long as it can.
    fn failure(&self) -> Option<String> {
        None
    }
}

impl Scheduler for Linux {
    fn fork_in(
        &mut self,
        process: Option<u32>,
        thread: ThreadId,
        nice: i8,
        allowed: &CpuSet,
        parent: Option<CpuId>,
        now: Nanos,
    ) -> CpuId {
        Self::fork_in(self, process, thread, nice, allowed, parent, now)
    }

    fn wake(&mut self, thread: ThreadId, waker: Option<CpuId>, now: Nanos) -> CpuId {
        Self::wake(self, thread, waker, now)
    }

    fn wake_sync(&mut self, thread: ThreadId, waker: CpuId, now: Nanos) -> CpuId {
        Self::wake_sync(self, thread, waker, now)
    }

    fn block(&mut self, thread: ThreadId, now: Nanos) {
        Self::block(self, thread, now);
    }

    fn exec(&mut self, thread: ThreadId, now: Nanos) {
        Self::exec(self, thread, now);
    }

    fn exit(&mut self, thread: ThreadId, now: Nanos) {
        Self::exit(self, thread, now);
    }

    fn set_affinity(&mut self, thread: ThreadId, allowed: &CpuSet, now: Nanos) {
        Self::set_affinity(self, thread, allowed, now);
    }

    fn set_weight(&mut self, thread: ThreadId, weight: u32, now: Nanos) {
        Self::set_weight(self, thread, weight, now);
    }

    fn add_group(&mut self, weight: u32, limit: Option<CpuBandwidth>) -> Option<u32> {
        Some(Self::add_group(self, weight, limit))
    }

    fn set_group(&mut self, process: u32, group: u32) {
        Self::set_group(self, process, group);
    }

    fn set_clamp(&mut self, thread: ThreadId, clamp: Clamp, now: Nanos) {
        Self::set_clamp(self, thread, clamp, now);
    }

    fn set_home(&mut self, thread: ThreadId, node: u32) {
        Self::set_home(self, thread, node);
    }

    fn return_home(&mut self, thread: ThreadId, now: Nanos) -> bool {
        Self::return_home(self, thread, now)
    }

    fn set_online(&mut self, topology: &Topology, cpu: CpuId, online: bool, now: Nanos) -> bool {
        Self::set_online(self, topology, cpu, online, now);
        true
    }

    fn set_clock(&mut self, cpu: CpuId, clock: f64, now: Nanos) {
        Self::set_clock(self, cpu, clock, now);
    }

    fn next_event(&self) -> Nanos {
        Self::next_event(self)
    }

    fn advance(&mut self, now: Nanos) {
        Self::advance(self, now);
    }

    fn take_switches(&mut self, into: &mut Vec<ContextSwitch>) {
        into.extend(Self::take_switches(self));
    }

    fn running(&self, cpu: CpuId) -> Option<ThreadId> {
        Self::running(self, cpu)
    }

    fn cpu_of(&self, thread: ThreadId) -> CpuId {
        Self::cpu_of(self, thread)
    }

    fn is_runnable(&self, thread: ThreadId) -> bool {
        Self::is_runnable(self, thread)
    }

    fn run_time(&self, thread: ThreadId) -> Nanos {
        Self::run_time(self, thread)
    }

    fn run_delay(&self, thread: ThreadId) -> Nanos {
        Self::run_delay(self, thread)
    }

    fn migrations(&self, thread: ThreadId) -> u64 {
        Self::migrations(self, thread)
    }

    fn waits(&self, process: u32) -> Option<Histogram> {
        Self::waits(self, process).cloned()
    }

    fn cpu_utilisation(&self, cpu: CpuId) -> f64 {
        Self::cpu_utilisation(self, cpu)
    }
}
