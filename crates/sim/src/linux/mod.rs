//! Event-driven model of Linux's fair scheduling class: computes when each thread runs, and on which CPU.
//!
//! The module stands between the engine and the progress model. The engine reports when threads fork, wake, block and exit. The
//! progress model receives the running threads and their CPUs. Input: those events and the [`Topology`]. Output: [`ContextSwitch`]es.
//! This module does not model the speed at which threads progress.
//!
//! The order of work follows the kernel. Placement picks a CPU (`wakeup`, `energy`, `fork`), and the thread joins its run queue
//! (`schedule`, `runqueue`). The class decides which thread runs next (`eevdf` or `cfs`). Balancing moves waiting threads between
//! the domains of the tree in `domains` (`balance`, `imbalance`, `migrate`). On machines with several last-level caches, `gather`
//! and `crossing` bring the threads of a process together. `pelt` keeps load and utilisation in closed form.
//!
//! Events without an effect are not simulated. A CPU with one thread has no tick. Balancing pauses until a CPU is overloaded or a
//! thread count changes. A time slice that ends between two ticks costs one event, not two.
//!
//! Kernel threads and daemons exist only as times at which a CPU picks its next thread again ([`DISTURBED_EVERY_NS`]). The
//! following are not modelled: interrupts, other scheduling classes, core scheduling and autogroups. NUMA balancing (`numa`), control groups
//! (`groups`), utilisation clamps (`clamps`) and hotplug (`hotplug`) act only where a caller asks for them. A wake-up, a context switch and a migration take no time here; the engine charges for
//! them. CPUs run at their sustained frequency, so that capacity alone scales utilisation. Each module lists its further
//! omissions.

mod attributes;
mod balance;
mod cfs;
mod clamps;
mod config;
mod crossing;
mod domains;
mod eevdf;
mod energy;
mod entity;
mod env;
mod fork;
mod gather;
mod groups;
mod hotplug;
mod imbalance;
mod mask;
mod migrate;
mod nohz;
mod numa;
mod pelt;
mod runqueue;
mod schedule;
#[cfg(test)]
mod tests;
mod tick;
mod timers;
mod view;
mod wakeup;
mod weights;

use countersteer_model::cpuset::CpuSet;
use countersteer_model::latency::Histogram;
use countersteer_model::machine::LinuxKind;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CpuId, Nanos, ThreadId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub use config::{
    ContextSwitch, DEFAULT_KERNEL, DISTURBED_EVERY_NS, FairClass, KERNELS, KernelDef, LinuxConfig,
    SWITCHES, SwitchDef, kernel, kernel_config,
};
use domains::{DomainLevel, Domains};
use energy::EnergyModel;
use entity::{NONE, TaskEntity, TaskState};
use gather::Gather;
use groups::TaskGroups;
use mask::Mask;
use nohz::Nohz;
use runqueue::{DomainState, NewIdle, RunQueue};
use schedule::Join;
use timers::Timers;
use wakeup::Waker;
pub use weights::of_nice as weight_of_nice;

/// Model of the Linux scheduler of one machine.
///
/// Every call carries the time, and time never decreases. Callers call [`Linux::advance`] at every time that
/// [`Linux::next_event`] returns. They read [`Linux::take_switches`] after every call that carries a time.
pub struct Linux {
    config: LinuxConfig,
    domains: Domains,
    threads: Vec<TaskEntity>,
    rqs: Vec<RunQueue>,
    /// Timers: one slot per CPU, one for idle balancing and other events of the whole machine, and one for limits of control groups.
    timers: Timers,
    nohz: Nohz,
    energy: Option<EnergyModel>,
    gather: Gather,
    groups: TaskGroups,
    /// True if a thread has had a utilisation clamp.
    clamped: bool,
    offline: Mask,
    /// True if a CPU has gone offline; threads then remember the masks that they asked for.
    hotplugged: bool,
    /// For each CPU: its memory node in the topology.
    memory_of: Vec<u32>,
    tick_ns: u64,
    /// Time of the machine's first scheduler tick, in nanoseconds.
    phase: u64,
    /// Default time slice in nanoseconds, scaled by the number of CPUs.
    base_slice: i64,
    /// Default time slice in nanoseconds, before it is scaled by the number of CPUs.
    unscaled_slice: i64,
    /// Factor by which the kernel scales time slices with the number of CPUs: 1 + ilog2(min(cpus, 8)).
    cpu_scale: i64,
    idle: Mask,
    /// Number of CPUs whose capacity is too small for their running thread.
    misfits: u32,
    /// Number of affinity changes so far. A change may alter the result of a balance that found nothing to move.
    affinity_generation: u64,
    /// CPUs to reschedule before the current event ends.
    pending: Vec<u32>,
    /// CPUs whose timers must be set again.
    stale: Vec<u32>,
    /// CPUs that the load balance in progress no longer considers.
    excluded: Vec<u32>,
    /// For each last-level cache: the time in nanoseconds until which its scan depth is valid, and the scan depth in CPUs.
    /// Indexed by the cache's first CPU.
    scan_depths: Vec<(u64, usize)>,
    llcs: Vec<u32>,
    /// For each CPU: index of its memory node in the domain tree.
    node_of: Vec<u32>,
    /// True if cores of higher priority are filled first (SMT hybrids).
    packing: bool,
    /// Histograms of the run-queue latencies of each process, indexed by process.
    waits: Vec<Histogram>,
    switches: Vec<ContextSwitch>,
    switch_count: u64,
    /// CPU that received the last thread moved away from a forbidden CPU. The next such thread goes to the next allowed CPU.
    last_forced: usize,
    now: u64,
    rng: Pcg64,
    /// Random number generator for disturbances only, so that they do not change the other random numbers.
    disturbances: Pcg64,
}

impl Linux {
    /// Creates the scheduler of a machine without threads, at time zero.
    #[must_use]
    pub fn new(topology: &Topology, config: LinuxConfig) -> Self {
        let n = topology.cpus.len();
        let mut rng = Pcg64::seed_from_u64(config.seed);
        let tick_ns = 1_000_000_000 / u64::from(topology.hz.max(1));
        let cpu_scale = cpu_scale(n);
        let base_slice = config
            .base_slice_ns
            .map_or(config.unscaled_slice_ns.max(1) as i64 * cpu_scale, |ns| {
                ns.max(1) as i64
            });
        let domains = Domains::new(topology);
        let phase = rng.random_range(0..tick_ns);
        let rqs = (0..n)
            .map(|cpu| new_queue(&domains, &config, tick_ns, cpu, &mut rng))
            .collect();
        let mut llcs = domains.llc.clone();
        llcs.sort_unstable();
        llcs.dedup();
        let mut idle = Mask::none(n);
        (0..n).for_each(|cpu| idle.set(cpu));
        Self {
            energy: EnergyModel::new(topology),
            gather: Gather::new(&domains, config.llc_balancing, tick_ns),
            groups: TaskGroups::default(),
            clamped: false,
            offline: Mask::none(n),
            hotplugged: false,
            memory_of: topology.cpus.iter().map(|c| c.memory).collect(),
            nohz: Nohz::default(),
            threads: Vec::new(),
            rqs,
            timers: Timers::new(n + 2),
            tick_ns,
            phase,
            base_slice,
            unscaled_slice: base_slice / cpu_scale,
            cpu_scale,
            idle,
            misfits: 0,
            affinity_generation: 0,
            pending: Vec::with_capacity(n),
            stale: Vec::with_capacity(n),
            excluded: Vec::new(),
            scan_depths: vec![(0, 0); n],
            llcs,
            node_of: (0..n).map(|cpu| node_of(&domains, cpu)).collect(),
            packing: topology.linux == LinuxKind::SmtHybrid,
            waits: Vec::new(),
            switches: Vec::new(),
            switch_count: 0,
            last_forced: rng.random_range(0..n.max(1)),
            now: 0,
            domains,
            disturbances: Pcg64::seed_from_u64(!config.seed),
            config,
            rng,
        }
    }

    /// Creates a process with one thread and returns the thread's CPU; see [`Linux::fork_in`].
    pub fn fork(
        &mut self,
        thread: ThreadId,
        nice: i8,
        allowed: &CpuSet,
        parent: Option<CpuId>,
        now: Nanos,
    ) -> CpuId {
        self.fork_in(None, thread, nice, allowed, parent, now)
    }

    /// Creates a thread, places it on the idlest CPU, and queues it there. Returns the CPU.
    ///
    /// `process` is the process of the thread; `None` if it has a single thread. `parent` is the CPU that forks; `None` stands
    /// for a random allowed CPU. Thread IDs are dense from 0, and can be used again after [`Linux::exit`]. An empty mask allows
    /// all CPUs.
    pub fn fork_in(
        &mut self,
        process: Option<u32>,
        thread: ThreadId,
        nice: i8,
        allowed: &CpuSet,
        parent: Option<CpuId>,
        now: Nanos,
    ) -> CpuId {
        let now = self.begin(now);
        let t = thread.0;
        if self.threads.len() <= thread.index() {
            self.threads
                .resize_with(thread.index() + 1, TaskEntity::default);
        }
        debug_assert_eq!(
            self.threads[thread.index()].state,
            TaskState::Dead,
            "{thread} is alive"
        );
        let mask = std::mem::take(&mut self.threads[thread.index()].allowed);
        self.threads[thread.index()] = TaskEntity {
            state: TaskState::Sleeping,
            weight: weights::of_nice(nice),
            own_weight: weights::of_nice(nice),
            group: self.groups.of(process),
            slice: self.base_slice,
            allowed: mask,
            flips_decayed_at: now,
            ..TaskEntity::default()
        };
        if let Some(process) = process {
            let number = self.waits.len().max(process as usize + 1);
            self.waits.resize_with(number, Histogram::default);
            self.threads[thread.index()].waits = process;
        }
        self.join_process(t, process.unwrap_or(NONE), now);
        self.assign_mask(t, allowed);
        let parent = match parent {
            Some(cpu) if cpu.index() < self.rqs.len() => cpu.index(),
            _ => self.random_allowed(t),
        };
        let cpu = self.place_fork(t, parent, now);
        let scheduler = self.config.scheduler;
        let zero = self.rqs[cpu].zero;
        let new = &mut self.threads[thread.index()];
        (new.cpu, new.recent_cpu) = (cpu as u32, cpu as u32);
        if scheduler == FairClass::Cfs {
            new.vruntime = zero;
        }
        let queued = self.activate_or_park(t, Join::New, now);
        if queued && (self.config.fork_preempts || self.rqs[cpu].curr == NONE) {
            self.wakeup_preempt(cpu, t, cpu != parent);
        }
        self.end(now);
        CpuId(self.threads[thread.index()].cpu)
    }

    /// Wakes a blocked thread and returns its CPU.
    ///
    /// `waker` is the CPU whose running thread wakes the blocked thread. `None` stands for an interrupt on the CPU where the
    /// blocked thread last ran.
    pub fn wake(&mut self, thread: ThreadId, waker: Option<CpuId>, now: Nanos) -> CpuId {
        let waker = waker.map(CpuId::index).filter(|c| *c < self.rqs.len());
        self.wake_by(thread, waker.map_or(Waker::Interrupt, Waker::Thread), now)
    }

    /// Wakes a blocked thread for a waker that is about to sleep (`WF_SYNC`), such as the writer to a pipe. Returns the thread's
    /// CPU.
    pub fn wake_sync(&mut self, thread: ThreadId, waker: CpuId, now: Nanos) -> CpuId {
        self.wake_by(thread, Waker::Sync(waker.index()), now)
    }

    fn wake_by(&mut self, thread: ThreadId, waker: Waker, now: Nanos) -> CpuId {
        let now = self.begin(now);
        let t = thread.0;
        let last = self.threads[thread.index()].cpu as usize;
        match self.threads[thread.index()].state {
            TaskState::Delayed => {
                self.requeue_delayed(t, now);
                // `ttwu_runnable` (kernel/sched/core.c): a thread that is still queued is woken in place, without a search for a
                // CPU.
                self.wakeup_preempt(last, t, waker.cpu().is_some_and(|w| w != last));
            }
            TaskState::Sleeping => {
                let this = waker.cpu().unwrap_or(last);
                let cpu = self.place_wakeup(t, this, waker, now);
                self.move_entity(t, cpu, now);
                if self.activate_or_park(t, Join::Wake, now) {
                    self.wakeup_preempt(cpu, t, this != cpu);
                }
            }
            TaskState::Dead | TaskState::Queued | TaskState::Running | TaskState::Throttled => {}
        }
        self.end(now);
        CpuId(self.threads[thread.index()].cpu)
    }

    /// Puts a running or queued thread to sleep. A running thread that received more than its share may stay queued.
    pub fn block(&mut self, thread: ThreadId, now: Nanos) {
        let now = self.begin(now);
        let t = thread.0;
        let cpu = self.threads[thread.index()].cpu as usize;
        let state = self.threads[thread.index()].state;
        if matches!(state, TaskState::Running | TaskState::Queued) {
            self.update_curr(cpu, now);
            // `dequeue_entity` (kernel/sched/fair.c): an ineligible entity that goes to sleep stays queued (`DELAY_DEQUEUE`).
            if state == TaskState::Running
                && self.config.scheduler == FairClass::Eevdf
                && self.eevdf_delays(cpu, t)
            {
                self.delay(t, now);
            } else {
                self.deactivate(t, false, now);
            }
            self.estimate_util(t);
            if state == TaskState::Running {
                self.resched(cpu);
            }
        } else if state == TaskState::Throttled {
            self.unpark(t);
        }
        self.end(now);
    }

    /// Removes a thread that exits, whatever its state.
    pub fn exit(&mut self, thread: ThreadId, now: Nanos) {
        let now = self.begin(now);
        let t = thread.0;
        let cpu = self.threads[thread.index()].cpu as usize;
        let state = self.threads[thread.index()].state;
        if self.threads[thread.index()].on_queue() {
            self.update_curr(cpu, now);
            self.deactivate(t, false, now);
            if state == TaskState::Running {
                self.resched(cpu);
            }
        } else if state == TaskState::Throttled {
            self.unpark(t);
        }
        if state != TaskState::Dead {
            self.sync_thread(cpu, t, now);
            let avg = self.threads[thread.index()].avg;
            self.rqs[cpu].avg.sub(&avg);
            self.threads[thread.index()].state = TaskState::Dead;
            self.leave_process(t);
        }
        self.end(now);
    }

    /// Yields the CPU of a thread to the waiting threads (`sched_yield`). Does nothing if the thread is not running.
    pub fn yield_now(&mut self, thread: ThreadId, now: Nanos) {
        let now = self.begin(now);
        let cpu = self.threads[thread.index()].cpu as usize;
        // `yield_task_fair` (kernel/sched/fair.c) returns at once if no other thread is queued.
        if self.threads[thread.index()].state == TaskState::Running
            && !self.rqs[cpu].waiting.is_empty()
        {
            self.update_curr(cpu, now);
            match self.config.scheduler {
                FairClass::Eevdf => self.eevdf_yield(cpu, thread.0),
                FairClass::Cfs => self.cfs_yield(cpu, thread.0),
            }
            self.resched(cpu);
        }
        self.end(now);
    }

    /// Returns the time of the next event that the model produces by itself, such as a tick; [`Nanos::NEVER`] if there is none.
    #[must_use]
    pub fn next_event(&self) -> Nanos {
        Nanos(self.timers.earliest())
    }

    /// Handles all events that the model produces by itself at or before `now`.
    pub fn advance(&mut self, now: Nanos) {
        let now = self.begin(now);
        self.end(now);
    }

    /// Drains the context switches since the last call, in order of time.
    pub fn take_switches(&mut self) -> std::vec::Drain<'_, ContextSwitch> {
        self.switches.drain(..)
    }

    /// Sets a CPU's current frequency, as the fraction `clock` of its core type's `freq_ghz`.
    pub fn set_clock(&mut self, cpu: CpuId, clock: f64, now: Nanos) {
        self.rqs[cpu.index()].set_clock(clock, now.0);
    }

    /// Updates a thread's utilisation estimate when the thread blocks (`util_est_update`).
    fn estimate_util(&mut self, t: u32) {
        let thread = &mut self.threads[t as usize];
        let capacity = f64::from(self.rqs[thread.cpu as usize].capacity);
        thread.util_est = pelt::estimate(
            thread.util_est,
            thread.avg.util,
            thread.avg.runnable,
            capacity,
        );
    }
}

/// Returns the index of the largest domain around a CPU that lies within its memory node; the CPU if there is none.
fn node_of(domains: &Domains, cpu: usize) -> u32 {
    domains
        .path(cpu)
        .filter(|d| domains.node(*d).level < DomainLevel::Numa)
        .last()
        .unwrap_or(cpu as u32)
}

/// Returns the factor by which the kernel scales time slices with the number of CPUs.
fn cpu_scale(cpus: usize) -> i64 {
    1 + i64::from((cpus.clamp(1, 8) as u32).ilog2())
}

/// Creates a CPU's run queue with a random tick offset, random times of earlier balances, and a random time of becoming idle.
fn new_queue(
    domains: &Domains,
    config: &LinuxConfig,
    tick_ns: u64,
    cpu: usize,
    rng: &mut Pcg64,
) -> RunQueue {
    let mut rq = RunQueue::new(domains.node(cpu as u32).min_capacity);
    // Without `skew_tick`, the ticks of the CPUs differ only by the delay of the interrupt.
    let skew_ns = if config.skew_tick { u64::MAX } else { 10_000 };
    rq.tick_offset = rng.random_range(0..skew_ns.min(tick_ns));
    rq.idle_stamp = rng.random_range(0..1_000_000);
    let node_state = |node: u32| {
        let weight = domains.node(node).weight();
        DomainState {
            node,
            last: 0,
            interval_ms: weight,
            failed: 0,
            quiet_generation: 0,
            newidle: NewIdle::new(config.newidle_ratio),
        }
    };
    rq.domains = domains.path(cpu).map(node_state).collect();
    for domain in &mut rq.domains {
        domain.last = -rng.random_range(0..i64::from(domain.interval_ms.max(1)) * 16_000_000);
    }
    rq
}
