//! Cache-aware scheduling (`SCHED_CACHE`, 7.2): the threads of a process are gathered under one last-level cache.
//!
//! Input: running times of threads by CPU, and the time. Output: the cache that each process prefers, for [`super::crossing`].
//! Models `account_mm_sched`, `task_tick_cache`, `task_cache_work`, `account_llc_enqueue` and `invalid_llc_nr`. As in the kernel,
//! wake-ups and forks ignore the preference: balancing brings back threads that were woken elsewhere. Left out: footprints
//! (`exceed_llc_capacity`), which the kernel knows only if NUMA balancing is on, and NUMA's preferred nodes.

use super::Linux;
use super::domains::Domains;
use super::entity::NONE;
use super::schedule::fits;
use countersteer_model::units::{Nanos, ThreadId};

/// Number of epochs without a scan after which a process prefers no cache (`llc_epoch_affinity_timeout`).
const STALE_EPOCHS: u64 = 5;
/// Time that halves with every epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Decayed {
    epoch: u64,
    ns: u64,
}

impl Decayed {
    /// Returns the value in an epoch (`__update_mm_sched`).
    fn at(self, epoch: u64) -> u64 {
        let halvings = epoch.saturating_sub(self.epoch);
        self.ns
            .checked_shr(halvings.min(64) as u32)
            .unwrap_or_default()
    }

    fn add(&mut self, epoch: u64, ns: u64) {
        self.ns = self.at(epoch) + ns;
        self.epoch = epoch;
    }
}

/// State of a process (`struct sched_cache_group`).
#[derive(Clone, Debug)]
struct Process {
    threads: u32,
    /// A CPU under the preferred cache, or `NONE`.
    preferred: u32,
    /// Epoch in which a tick last asked for a scan, and the earliest time of the next scan.
    epoch: u64,
    next_scan: u64,
    /// Average number of its threads that run at a time, as an integer (`nr_running_avg`).
    running: i64,
    /// Running time of its threads on each CPU.
    time: Vec<Decayed>,
}

/// State of all processes.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    /// True if gathering is on and the machine has several last-level caches, one of them with several CPUs
    /// (`sched_cache_enabled`).
    pub active: bool,
    epoch_ns: u64,
    /// Cache of each CPU, and the tree's row of each cache.
    pub llc_of: Vec<u32>,
    llcs: Vec<u32>,
    /// Running time of threads on each CPU (`rq->cpu_runtime`).
    cpu_time: Vec<Decayed>,
    processes: Vec<Process>,
    /// Number of processes with several threads.
    threaded: u32,
    /// Number of queued threads, by the cache where they are and the cache that they prefer (`llc_counts`).
    counts: Vec<u32>,
    /// Number of queued threads for which the two differ.
    pub misplaced: u32,
    /// Time at which running processes are checked next.
    pub at: u64,
}

impl Gather {
    pub(super) fn new(domains: &Domains, wanted: bool, tick_ns: u64) -> Self {
        let mut llcs = domains.llc.clone();
        llcs.sort_unstable();
        llcs.dedup();
        let index = |node: &u32| llcs.partition_point(|l| l < node) as u32;
        // `sd_in_multi_llcs`: gathering under a cache of one CPU makes no sense.
        let several = llcs.len() > 1 && llcs.iter().any(|l| domains.node(*l).weight() > 1);
        let ticks = (10_000_000 / tick_ns).max(1);
        Self {
            active: wanted && several,
            epoch_ns: ticks * tick_ns,
            llc_of: domains.llc.iter().map(index).collect(),
            cpu_time: vec![Decayed::default(); domains.llc.len()],
            processes: Vec::new(),
            threaded: 0,
            counts: vec![0; llcs.len() * llcs.len()],
            misplaced: 0,
            at: u64::MAX,
            llcs,
        }
    }

    /// Row of a cache in the tree.
    #[cfg(test)]
    pub(super) fn row_of(&self, llc: u32) -> Option<u32> {
        self.llcs.get(llc as usize).copied()
    }

    fn epoch(&self, phase: u64, now: u64) -> u64 {
        now.saturating_sub(phase) / self.epoch_ns + 1
    }

    /// Returns a CPU under the cache that a process prefers, or `NONE`.
    pub(super) fn preferred(&self, process: u32) -> u32 {
        let row = self.processes.get(process as usize);
        row.map_or(NONE, |p| p.preferred)
    }

    /// Number of queued threads under other caches that prefer the target's; `inside` selects caches by their row in the tree.
    pub(super) fn homesick(&self, target: usize, inside: impl Fn(u32) -> bool) -> u32 {
        let to = self.llc_of[target] as usize;
        let rows = self.llcs.iter().enumerate();
        rows.filter(|(from, llc)| *from != to && inside(**llc))
            .map(|(from, _)| self.counts[from * self.llcs.len() + to])
            .sum()
    }

    /// Counts a thread that joins or leaves a queue under one cache and prefers a cache.
    fn count(&mut self, cpu: usize, preferred: u32, joins: bool) {
        if preferred == NONE {
            return;
        }
        let here = self.llc_of[cpu];
        let slot = &mut self.counts[here as usize * self.llcs.len() + preferred as usize];
        *slot = if joins { *slot + 1 } else { *slot - 1 };
        if here != preferred && joins {
            self.misplaced += 1;
        } else if here != preferred {
            self.misplaced -= 1;
        }
    }
}

impl Linux {
    /// Adds a new thread to a process.
    pub(super) fn join_process(&mut self, t: u32, process: u32, now: u64) {
        if !self.gather.active || process == NONE {
            return;
        }
        let epoch = self.gather.epoch(self.phase, now);
        let gather = &mut self.gather;
        let fresh = |epoch| Process {
            threads: 0,
            preferred: NONE,
            epoch,
            next_scan: 0,
            running: 0,
            time: Vec::new(),
        };
        let row = process as usize;
        if gather.processes.len() <= row {
            gather.processes.resize(row + 1, fresh(0));
        }
        if gather.processes[row].threads == 0 {
            gather.processes[row] = fresh(epoch);
        }
        gather.processes[row].threads += 1;
        gather.threaded += u32::from(gather.processes[row].threads == 2);
        self.threads[t as usize].process = process;
    }

    /// Removes a thread that exits from its process.
    pub(super) fn leave_process(&mut self, t: u32) {
        let process = std::mem::replace(&mut self.threads[t as usize].process, NONE);
        if let Some(process) = self.gather.processes.get_mut(process as usize) {
            process.threads -= 1;
            self.gather.threaded -= u32::from(process.threads == 1);
        }
    }

    /// Forgets the preference of a process that runs another program now: the old program's memory is gone
    /// (`sched_cache_exec_mmap`).
    pub fn exec(&mut self, thread: ThreadId, now: Nanos) {
        let now = self.begin(now);
        let epoch = self.gather.epoch(self.phase, now);
        let process = self.threads[thread.index()].process;
        if let Some(process) = self.gather.processes.get_mut(process as usize) {
            process.preferred = NONE;
            process.epoch = epoch;
            process.running = 0;
            process.time.clear();
        }
        self.end(now);
    }

    pub(super) fn count_preference(&mut self, t: u32, joins: bool) {
        if self.gather.active {
            let thread = &self.threads[t as usize];
            self.gather
                .count(thread.cpu as usize, thread.preferred_llc, joins);
        }
    }

    /// Charges a process for time on a CPU, and updates the cache that the thread prefers (`account_mm_sched`).
    pub(super) fn charge_process(&mut self, cpu: usize, t: u32, ns: u64, now: u64) {
        let process = self.threads[t as usize].process;
        if !self.gather.active || process == NONE {
            return;
        }
        let epoch = self.gather.epoch(self.phase, now);
        self.gather.cpu_time[cpu].add(epoch, ns);
        let cpus = self.rqs.len();
        let row = &mut self.gather.processes[process as usize];
        if row.threads > 1 {
            row.time.resize(cpus, Decayed::default());
            row.time[cpu].add(epoch, ns);
        }
        // No thread of the process ran at a tick for several epochs, or too many threads run.
        let stale = epoch.saturating_sub(row.epoch) > STALE_EPOCHS;
        if stale || self.too_many_threads(process, cpu) {
            self.gather.processes[process as usize].preferred = NONE;
        }
        let preferred = self.gather.processes[process as usize].preferred;
        let llc = self
            .gather
            .llc_of
            .get(preferred as usize)
            .map_or(NONE, |l| *l);
        let thread = &self.threads[t as usize];
        if thread.on_queue() && thread.preferred_llc != llc {
            self.count_preference(t, false);
            self.threads[t as usize].preferred_llc = llc;
            self.count_preference(t, true);
        }
    }

    /// True if the process has one thread, or runs more threads at a time than a cache has cores (`invalid_llc_nr`).
    pub(super) fn too_many_threads(&self, process: u32, cpu: usize) -> bool {
        let process = &self.gather.processes[process as usize];
        let siblings = self.domains.node(self.domains.core[0]).weight();
        let size = self.domains.node(self.domains.llc[cpu]).weight();
        process.threads <= 1
            || !fits(
                (process.running * i64::from(siblings)) as f64,
                f64::from(size),
            )
    }

    /// Sets the timer of the next tick at which a process of several threads may be due.
    pub(super) fn arm_gather(&mut self, now: u64) {
        let root = self.domains.node(self.domains.root);
        let busy = root.idle_cpus < root.weight();
        if self.gather.threaded > 0 && self.gather.at == u64::MAX && busy {
            self.gather.at = self.next_beat(self.phase, now + 1);
        }
    }

    /// Handles the tick of all CPUs: checks running processes that were not checked in this epoch (`task_tick_cache`).
    pub(super) fn gather_tick(&mut self, now: u64) {
        for cpu in 0..self.rqs.len() {
            if self.update_curr(cpu, now) && !self.rqs[cpu].waiting.is_empty() {
                self.resched(cpu);
            }
        }
        let epoch = self.gather.epoch(self.phase, now);
        for cpu in 0..self.rqs.len() {
            let curr = self.rqs[cpu].curr;
            let process = self.threads.get(curr as usize).map_or(NONE, |t| t.process);
            let due = |p: &Process| p.epoch < epoch;
            if (self.gather.processes.get(process as usize)).is_some_and(due) {
                self.gather.processes[process as usize].epoch = epoch;
                self.choose_llc(process, cpu, now);
            }
        }
        let unseen = |p: &Process| p.threads > 1 && p.epoch < epoch;
        // Processes that sleep at this tick may run at the next. If there are none, nothing changes before the next epoch.
        self.gather.at = if self.gather.processes.iter().any(unseen) {
            u64::MAX
        } else {
            self.phase + epoch * self.gather.epoch_ns
        };
    }

    /// Changes the preferred cache of a process to one in which it ran more than twice as long (`task_cache_work`).
    fn choose_llc(&mut self, process: u32, cpu: usize, now: u64) {
        let epoch_ns = self.gather.epoch_ns;
        let row = &mut self.gather.processes[process as usize];
        if now < row.next_scan {
            return;
        }
        row.next_scan = now + epoch_ns;
        if self.too_many_threads(process, cpu) {
            // The average stays unchanged; only an exec resets it.
            self.gather.processes[process as usize].preferred = NONE;
            return;
        }
        let (best, running) = self.busiest_llc(process, now);
        let gather = &mut self.gather;
        let row = &mut gather.processes[process as usize];
        if let Some(cpu) = best {
            row.preferred = cpu;
        }
        // `update_avg_scale` uses integers, which never quite reach the value that they approach from below.
        let size = self.domains.node(self.domains.llc[cpu]).weight();
        row.running += (running - row.running) / i64::from((size >> 2).clamp(2, 8));
    }

    /// Returns a CPU under the cache to be preferred from now on, and the number of the process's threads that run.
    ///
    /// The CPU is the one on which the process ran most. It is `None` if no cache has more than twice the time of the preferred
    /// one.
    fn busiest_llc(&self, process: u32, now: u64) -> (Option<u32>, i64) {
        let gather = &self.gather;
        let row = &gather.processes[process as usize];
        let epoch = gather.epoch(self.phase, now);
        // `fraction_mm_sched`: the process's part of the time that the CPU ran threads.
        let part = |cpu: usize| {
            let own = row.time.get(cpu).map_or(0, |t| t.at(epoch));
            1024 * own / (gather.cpu_time[cpu].at(epoch) + 1)
        };
        let mut running = 0;
        let mut best = (0, NONE);
        let mut current = 0;
        for llc in gather.llcs.iter().map(|l| self.domains.node(*l)) {
            if llc.weight() < 2 {
                continue;
            }
            let mut sum = 0;
            let mut most = (0, NONE);
            for cpu in &llc.cpus {
                let part = part(*cpu as usize);
                sum += part;
                if part > most.0 {
                    most = (part, *cpu);
                }
                let curr = self.rqs[*cpu as usize].curr;
                let of = self.threads.get(curr as usize).map_or(NONE, |t| t.process);
                running += i64::from(of == process);
            }
            if sum > best.0 {
                best = (sum, most.1);
            }
            if row.preferred != NONE && llc.mask.has(row.preferred as usize) {
                current = sum;
            }
        }
        ((best.0 > 2 * current).then_some(best.1), running)
    }
}
