//! Cache-aware scheduling (`SCHED_CACHE`, 7.2): the threads of a process are gathered under one last-level cache.
//!
//! Input: running times of threads by CPU, and the time. Output: the cache that each process prefers, for [`super::crossing`].
//! Models `account_mm_sched`, `task_tick_cache`, `task_cache_work`, `account_llc_enqueue` and `invalid_llc_nr`. As in the kernel,
//! wake-ups and forks ignore the preference, and balancing brings back threads that were woken elsewhere. Left out: NUMA's
//! preferred nodes, and footprints (`exceed_llc_capacity`), which the kernel knows only if NUMA balancing is on.

use super::Linux;
use super::domains::Domains;
use super::entity::NONE;
use super::pelt::fits;
use countersteer_model::units::{Nanos, ThreadId};

/// Limit: number of epochs without a scan of a process after which the process no longer prefers a cache
/// (`llc_epoch_affinity_timeout`).
const STALE_EPOCHS: u64 = 5;
/// Accumulated time that is halved with every epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Decayed {
    epoch: u64,
    ns: u64,
}

impl Decayed {
    /// Returns the accumulated time in nanoseconds at a later epoch (`__update_mm_sched`).
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

/// State of a process for gathering (`struct sched_cache_group`).
#[derive(Clone, Debug)]
struct GatheredProcess {
    threads: u32,
    /// CPU under the last-level cache that the process prefers; `NONE` if it prefers none.
    preferred: u32,
    /// Epoch in which a tick last checked if the process prefers another cache.
    epoch: u64,
    /// Earliest time in nanoseconds at which the preferred cache is chosen again.
    next_scan: u64,
    /// Average number of threads of the process that run at the same time, as an integer (`nr_running_avg`).
    running: i64,
    /// Decayed running time of the process on each CPU.
    time: Vec<Decayed>,
}

/// State of gathering for all processes.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    /// True if gathering is enabled and the machine has several last-level caches, of which at least one has several CPUs
    /// (`sched_cache_enabled`).
    pub active: bool,
    epoch_ns: u64,
    /// Index of each CPU's last-level cache.
    pub llc_of: Vec<u32>,
    /// Index in the domain tree of each last-level cache.
    llcs: Vec<u32>,
    /// Decayed running time of all threads on each CPU (`rq->cpu_runtime`).
    cpu_time: Vec<Decayed>,
    processes: Vec<GatheredProcess>,
    /// Number of processes that have several threads.
    threaded: u32,
    /// Number of queued threads for each pair of current cache and preferred cache (`llc_counts`).
    counts: Vec<u32>,
    /// Number of queued threads whose current cache is not their preferred cache.
    pub misplaced: u32,
    /// Time in nanoseconds at which the preferred caches of running processes are next checked; `u64::MAX` if not scheduled.
    pub at: u64,
}

impl Gather {
    pub(super) fn new(domains: &Domains, wanted: bool, tick_ns: u64) -> Self {
        let mut llcs = domains.llc.clone();
        llcs.sort_unstable();
        llcs.dedup();
        let index = |node: &u32| llcs.partition_point(|l| l < node) as u32;
        // `sd_in_multi_llcs`: at least one cache must have several CPUs, otherwise no threads can be gathered.
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

    /// Returns the index in the domain tree of a last-level cache.
    #[cfg(test)]
    pub(super) fn row_of(&self, llc: u32) -> Option<u32> {
        self.llcs.get(llc as usize).copied()
    }

    fn epoch(&self, phase: u64, now: u64) -> u64 {
        now.saturating_sub(phase) / self.epoch_ns + 1
    }

    /// Returns a CPU under the last-level cache that a process prefers, or `NONE`.
    pub(super) fn preferred(&self, process: u32) -> u32 {
        let row = self.processes.get(process as usize);
        row.map_or(NONE, |p| p.preferred)
    }

    /// Number of queued threads that prefer the target's cache but are queued under another cache. `inside` selects these other
    /// caches by their index in the domain tree.
    pub(super) fn homesick(&self, target: usize, inside: impl Fn(u32) -> bool) -> u32 {
        let to = self.llc_of[target] as usize;
        let rows = self.llcs.iter().enumerate();
        rows.filter(|(from, llc)| *from != to && inside(**llc))
            .map(|(from, _)| self.counts[from * self.llcs.len() + to])
            .sum()
    }

    /// Adapts to new domains; processes and running times stay.
    fn rebuild(&mut self, domains: &Domains, wanted: bool, tick_ns: u64) {
        let new = Self::new(domains, wanted, tick_ns);
        self.active = new.active;
        (self.llc_of, self.llcs, self.counts) = (new.llc_of, new.llcs, new.counts);
        self.misplaced = 0;
        self.processes
            .iter_mut()
            .for_each(|process| process.preferred = NONE);
    }

    /// Updates the counts after a thread joins or leaves a queue of `cpu`; `preferred` is the thread's preferred cache or `NONE`.
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
    /// Adds a new thread to its process; does nothing if gathering is off.
    pub(super) fn join_process(&mut self, t: u32, process: u32, now: u64) {
        if !self.gather.active || process == NONE {
            return;
        }
        let epoch = self.gather.epoch(self.phase, now);
        let gather = &mut self.gather;
        let fresh = |epoch| GatheredProcess {
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

    /// Removes an exiting thread from its process.
    pub(super) fn leave_process(&mut self, t: u32) {
        let process = std::mem::replace(&mut self.threads[t as usize].process, NONE);
        if let Some(process) = self.gather.processes.get_mut(process as usize) {
            process.threads -= 1;
            self.gather.threaded -= u32::from(process.threads == 1);
        }
    }

    /// Clears the preferred cache of a thread's process at an exec, because the memory of the old program is gone
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

    /// Forgets preferred caches after a change of the domains, whose caches have new indices.
    pub(super) fn regather(&mut self) {
        self.gather
            .rebuild(&self.domains, self.config.llc_balancing, self.tick_ns);
        for thread in &mut self.threads {
            thread.preferred_llc = NONE;
        }
    }

    pub(super) fn count_preference(&mut self, t: u32, joins: bool) {
        if self.gather.active {
            let thread = &self.threads[t as usize];
            self.gather
                .count(thread.cpu as usize, thread.preferred_llc, joins);
        }
    }

    /// Charges a process for running time on a CPU, and updates the cache that its thread `t` prefers (`account_mm_sched`).
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
        // The preference ends if no thread of the process ran at a tick for several epochs, or if too many run at the same time.
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

    /// True if the process has one thread, or runs more threads at the same time than a cache has cores (`invalid_llc_nr`).
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

    /// Sets the timer for the next tick at which the preferred cache of a process with several threads may have to be checked.
    pub(super) fn arm_gather(&mut self, now: u64) {
        let root = self.domains.node(self.domains.root);
        let busy = root.idle_cpus < root.weight();
        if self.gather.threaded > 0 && self.gather.at == u64::MAX && busy {
            self.gather.at = self.next_beat(self.phase, now + 1);
        }
    }

    /// Handles the tick of all CPUs: checks the preferred cache of each running process once per epoch (`task_tick_cache`).
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
            let due = |p: &GatheredProcess| p.epoch < epoch;
            if (self.gather.processes.get(process as usize)).is_some_and(due) {
                self.gather.processes[process as usize].epoch = epoch;
                self.choose_llc(process, cpu, now);
            }
        }
        let unseen = |p: &GatheredProcess| p.threads > 1 && p.epoch < epoch;
        // Processes that sleep at this tick may run at the next one. If all processes were checked, nothing changes before the
        // next epoch.
        self.gather.at = if self.gather.processes.iter().any(unseen) {
            u64::MAX
        } else {
            self.phase + epoch * self.gather.epoch_ns
        };
    }

    /// Chooses the preferred cache of a process: another cache wins if the process ran there more than twice as long
    /// (`task_cache_work`).
    fn choose_llc(&mut self, process: u32, cpu: usize, now: u64) {
        let epoch_ns = self.gather.epoch_ns;
        let row = &mut self.gather.processes[process as usize];
        if now < row.next_scan {
            return;
        }
        row.next_scan = now + epoch_ns;
        if self.too_many_threads(process, cpu) {
            // The average number of running threads stays unchanged; only an exec resets it.
            self.gather.processes[process as usize].preferred = NONE;
            return;
        }
        let (best, running) = self.busiest_llc(process, now);
        let gather = &mut self.gather;
        let row = &mut gather.processes[process as usize];
        if let Some(cpu) = best {
            row.preferred = cpu;
        }
        // `update_avg_scale` uses integers, so that the average never quite reaches a value that it approaches from below.
        let size = self.domains.node(self.domains.llc[cpu]).weight();
        row.running += (running - row.running) / i64::from((size >> 2).clamp(2, 8));
    }

    /// Returns a CPU under the cache that the process should prefer, and the number of the process's threads that run now.
    ///
    /// The CPU is the one under that cache on which the process ran longest. It is `None` if no cache has more than twice the
    /// running time of the preferred cache.
    fn busiest_llc(&self, process: u32, now: u64) -> (Option<u32>, i64) {
        let gather = &self.gather;
        let row = &gather.processes[process as usize];
        let epoch = gather.epoch(self.phase, now);
        // `fraction_mm_sched`: fraction of the CPU's running time that the process used, times 1,024.
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
