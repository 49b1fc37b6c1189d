//! Running threads: changes of their CPUs, rates, phases, occupancies and memory load.
//!
//! Input: the engine's calls. Output: present rates of every running thread. Each change updates its thread and the SMT siblings
//! at once. Occupancies follow in steps, and memory latency follows once demand has changed enough.

use countersteer_model::units::Nanos;

use super::Analytic;
use super::class::MAX_LEVELS;
use super::class::NONE;
use super::siblings::Beside;

/// Time constant of the exponential average of a thread's duty cycle, in nanoseconds.
pub(super) const DUTY_NS: f64 = 100e6;
/// Minimum interval between small changes of the latency factor of a memory domain with several pools, in nanoseconds.
const FACTOR_EVERY: u64 = 5_000_000;
/// Threshold: relative change of memory demand above which the latency factor is updated at once. Smaller changes are applied at
/// the next occupancy step.
pub(super) const DEMAND_LARGE: f64 = 0.1;
/// Minimum relative width of a cell in the occupancy lattice of the rate tables.
const CELL: f64 = 1.0 / 16.0;
/// Threshold: relative change of a thread's cycles per instruction below which a new memory latency is not applied to the thread.
const LATENCY_MATTERS: f64 = 1e-3;
/// Minimum time between two updates of the rates of a thread that fills a cache, in nanoseconds.
const REFILL_NS: f64 = 20_000.0;
/// Threshold: relative change of memory demand above which the latency factor is updated at an occupancy step.
const DEMAND_SMALL: f64 = 0.01;
/// Threshold: relative change of the latency factor above which a memory domain with several pools is updated at once, too.
const FACTOR_LARGE: f64 = 0.1;

impl Analytic {
    /// Integrates a running thread up to now and closes its run interval, before its rate table changes.
    pub(super) fn close(&mut self, thread: u32) {
        let t = &mut self.threads[thread as usize];
        if t.cpu == NONE {
            return;
        }
        let cpu = &self.cpus[t.cpu as usize];
        t.integrate(self.clock);
        let energy = t.close_span(&self.tables[t.table as usize], cpu);
        self.spent.core_nj[cpu.core_type as usize] += energy.core;
        self.spent.cache_nj += energy.cache;
        self.spent.memory_nj += energy.memory;
    }

    /// Returns the index of the rate table of a thread's behaviour on CPU `row`, for the present number of running SMT siblings.
    pub(super) fn table_on(&self, thread: u32, row: u32) -> u32 {
        let t = &self.threads[thread as usize];
        let cpu = &self.cpus[row as usize];
        let model = &self.models[t.model as usize];
        let others = if self.config.contention {
            self.siblings_running(row)
        } else {
            0
        };
        model.table(t.behaviour(model), cpu.class + others)
    }

    fn siblings_running(&self, row: u32) -> u32 {
        let siblings = &self.cpus[row as usize].siblings;
        siblings
            .iter()
            .filter(|s| self.on_cpu[**s as usize] != NONE)
            .count() as u32
    }

    /// Updates the rate tables of the threads on a CPU's SMT siblings after the number of running siblings changed.
    pub(super) fn update_siblings(&mut self, row: u32) {
        if !self.config.contention {
            return;
        }
        for i in 0..self.cpus[row as usize].siblings.len() {
            let sibling = self.cpus[row as usize].siblings[i];
            let thread = self.on_cpu[sibling as usize];
            if thread != NONE {
                self.retable(thread);
                self.rerate(thread);
            }
        }
    }

    /// Selects the rate table for a running thread's phase and number of running SMT siblings.
    pub(super) fn retable(&mut self, thread: u32) {
        let row = self.threads[thread as usize].cpu;
        let table = self.table_on(thread, row);
        if table == self.threads[thread as usize].table {
            return;
        }
        self.close(thread);
        let t = &mut self.threads[thread as usize];
        t.table = table;
        if self.config.contention {
            let cpu = &self.cpus[row as usize];
            for k in 0..cpu.levels {
                let t = &self.threads[thread as usize];
                self.caches[t.chain[k] as usize].residents[t.rows[k] as usize].table = table;
            }
        }
    }

    /// Recomputes a running thread's rates from its rate table, occupancies, SMT siblings and memory load.
    pub(super) fn rerate(&mut self, thread: u32) {
        let t = &self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        let mut lines = [0.0; MAX_LEVELS];
        let mut beside = Beside::default();
        if self.config.contention {
            for (k, held) in lines.iter_mut().enumerate().take(cpu.levels) {
                *held = self.caches[t.chain[k] as usize].residents[t.rows[k] as usize].mean;
            }
            for sibling in &cpu.siblings {
                let other = self.on_cpu[*sibling as usize];
                if other != NONE {
                    let other = &self.threads[other as usize];
                    beside.add(
                        &self.tables[other.table as usize].shares,
                        other.ipc(cpu),
                        1.0,
                    );
                }
            }
        } else {
            for (held, cache) in lines.iter_mut().zip(&cpu.chain[..cpu.levels]) {
                *held = self.caches[*cache as usize].lines;
            }
        }
        let table = &self.tables[t.table as usize];
        let mut rate = table.rate(&lines, &beside);
        self.share(thread, table, &mut rate);
        let misses = if cpu.levels == 0 {
            table.private_misses
        } else {
            rate.miss[cpu.levels - 1]
        };
        let traffic = misses * table.lines_per_miss;
        let t = &mut self.threads[thread as usize];
        t.integrate(self.clock);
        (t.rate, t.seen, t.traffic) = (rate, lines, traffic);
        self.respeed(thread);
    }

    /// Applies the present memory latency to the speed of a thread that was integrated up to now.
    pub(super) fn respeed(&mut self, thread: u32) {
        let t = &mut self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        let row = t.memory(cpu);
        let memory = &mut self.memories[row as usize];
        let distance = if row == cpu.memory {
            1.0
        } else {
            memory.remote
        };
        let factor = if self.config.contention {
            distance * memory.factor
        } else {
            distance
        };
        let cycles = t.rate.a + t.rate.b * factor;
        let each = 1.0 / cycles;
        let works = t.has_work();
        t.ips = if works { cpu.freq * each } else { 0.0 };
        t.ns_each = cycles * cpu.cycle_ns;
        let pool = &mut self.pools[cpu.pool as usize];
        pool.events[cpu.slot as usize] = t.event().min(t.refill_at);
        if !pool.stale {
            pool.stale = true;
            self.stale_pools.push(cpu.pool);
        }
        if !self.config.contention {
            return;
        }
        let demand = t.ips * t.traffic;
        let slope = demand * t.rate.b * distance * each;
        memory.demand += demand - t.demand;
        memory.slope += slope - t.slope;
        (t.demand, t.slope) = (demand, slope);
        let now = self.clock as f64;
        for k in 0..cpu.levels {
            let r = &mut self.caches[t.chain[k] as usize].residents[t.rows[k] as usize];
            r.insert(now);
            r.inserting = t.ips * t.rate.miss[k];
            if works {
                r.speed = t.ips;
            }
        }
        self.touch_memory(row, DEMAND_LARGE);
    }

    #[inline]
    pub(super) fn touch_pool(&mut self, pool: u32) {
        if !self.pools[pool as usize].stale {
            self.pools[pool as usize].stale = true;
            self.stale_pools.push(pool);
        }
    }

    /// Marks a memory domain for an update of its latency factor if its demand changed by more than the fraction `part`.
    #[inline]
    pub(super) fn touch_memory(&mut self, row: u32, part: f64) {
        let memory = &mut self.memories[row as usize];
        if !memory.dirty && memory.moved(part) && self.config.contention {
            memory.dirty = true;
            self.dirty_memories.push(row);
        }
    }

    /// Adapts memory latencies to demand, then enters the next event times of changed pools in the agenda.
    pub(super) fn settle(&mut self) {
        while let Some(row) = self.dirty_memories.pop() {
            // Each round starts from the demand at the last factor. Three rounds suffice for any change of demand; the others are
            // a safety margin.
            for _ in 0..8 {
                if !self.balance(row) {
                    break;
                }
            }
            let memory = &mut self.memories[row as usize];
            (memory.dirty, memory.solved) = (false, memory.demand);
        }
        while let Some(pool) = self.stale_pools.pop() {
            self.pools[pool as usize].stale = false;
            self.agenda
                .set(pool as usize, self.pools[pool as usize].next());
        }
    }

    /// Computes a new latency factor of a memory domain and applies it to the domain's threads. Returns false if the factor does
    /// not change now.
    fn balance(&mut self, row: u32) -> bool {
        let memory = &mut self.memories[row as usize];
        let Some(factor) = memory.solve(self.stepping.factor) else {
            return false;
        };
        let now = self.clock;
        let large = (factor - memory.factor).abs() > FACTOR_LARGE * memory.factor;
        if memory.pools.len() > 1 && !large && now < memory.last + FACTOR_EVERY && now > memory.last
        {
            memory.due = memory.last + FACTOR_EVERY;
            self.agenda.set(self.pools.len() + row as usize, memory.due);
            return false;
        }
        let change = (factor - memory.factor).abs();
        (memory.factor, memory.last, memory.due) = (factor, now, u64::MAX);
        // The sums are computed from scratch, so that rounding errors of updates do not accumulate.
        (memory.demand, memory.slope) = (0.0, 0.0);
        self.agenda.set(self.pools.len() + row as usize, u64::MAX);
        for i in 0..self.memories[row as usize].pools.len() {
            let pool = self.memories[row as usize].pools[i] as usize;
            for slot in 0..self.pools[pool].threads.len() {
                let thread = self.pools[pool].threads[slot];
                if thread == NONE {
                    continue;
                }
                let t = &mut self.threads[thread as usize];
                if t.memory(&self.cpus[t.cpu as usize]) != row {
                    continue;
                }
                if t.rate.b * change < LATENCY_MATTERS * t.rate.a {
                    self.memories[row as usize].demand += t.demand;
                    self.memories[row as usize].slope += t.slope;
                    continue;
                }
                t.integrate(now);
                (t.demand, t.slope) = (0.0, 0.0);
                self.respeed(thread);
            }
        }
        true
    }

    /// Handles the events of a pool or memory domain (agenda row `row`) that are due now.
    pub(super) fn handle(&mut self, row: usize) {
        if row >= self.pools.len() {
            let memory = row - self.pools.len();
            self.memories[memory].due = u64::MAX;
            self.agenda.set(row, u64::MAX);
            self.touch_memory(memory as u32, 0.0);
            return;
        }
        for slot in 0..self.pools[row].threads.len() {
            if self.pools[row].events[slot] <= self.clock {
                self.thread_event(row, slot);
            }
        }
        if self.pools[row].step_at <= self.clock {
            self.step(row);
        }
        self.touch_pool(row as u32);
    }

    fn thread_event(&mut self, pool: usize, slot: usize) {
        let thread = self.pools[pool].threads[slot];
        let t = &mut self.threads[thread as usize];
        if t.event() > self.clock {
            t.integrate(self.clock);
            self.turn(thread);
            return;
        }
        if t.arrive(&self.models[t.model as usize], self.clock) {
            self.finished.push(thread);
            self.respeed(thread);
            self.update_companions(thread);
            return;
        }
        self.retable(thread);
        self.rerate(thread);
        let row = self.threads[thread as usize].cpu;
        self.rerate_siblings(row);
        self.turn(thread);
    }

    /// Predicts the occupancy of a thread that was switched in, changed its behaviour or filled a cache, and sets its rates
    /// accordingly.
    pub(super) fn turn(&mut self, thread: u32) {
        if !self.config.contention {
            return;
        }
        let t = &self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        let pool = &mut self.pools[cpu.pool as usize];
        let ahead = pool.step_at.saturating_sub(self.clock) as f64;
        let mut drift = 0.0f64;
        let mut gains = [None; MAX_LEVELS];
        for (k, gain) in gains.iter_mut().enumerate().take(cpu.levels) {
            let cache = &mut self.caches[t.chain[k] as usize];
            let (moved, part) =
                cache.turn(&self.tables, t.rows[k] as usize, self.clock as f64, ahead);
            drift = drift.max(moved);
            *gain = part;
        }
        pool.turned(self.clock, drift, &self.stepping);
        self.threads[thread as usize].refill_at = u64::MAX;
        if self.moved(thread) {
            self.rerate(thread);
        } else {
            self.respeed(thread);
        }
        self.plan_refill(thread, &gains);
    }

    /// Schedules an update of a filling thread's rates for the time at which it has gained the predicted number of lines.
    fn plan_refill(&mut self, thread: u32, gains: &[Option<f64>; MAX_LEVELS]) {
        let t = &mut self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        for (k, gain) in gains.iter().enumerate() {
            let Some(gain) = gain else { continue };
            let r = &self.caches[t.chain[k] as usize].residents[t.rows[k] as usize];
            let ns = (gain * r.charge / r.inserting).max(REFILL_NS);
            t.refill_at = t
                .refill_at
                .min(t.starts_at(self.clock).saturating_add(ns as u64));
        }
        let event = &mut self.pools[cpu.pool as usize].events[cpu.slot as usize];
        *event = (*event).min(t.refill_at);
    }

    /// Updates the rates of the threads on a CPU's SMT siblings after the CPU's use of dispatch slots changed.
    pub(super) fn rerate_siblings(&mut self, row: u32) {
        for i in 0..self.cpus[row as usize].siblings.len() {
            let other = self.on_cpu[self.cpus[row as usize].siblings[i] as usize];
            if other != NONE && self.config.contention {
                self.rerate(other);
            }
        }
    }

    /// Makes an occupancy step of a pool: moves occupancies, and recomputes the rates of threads whose occupancy changed.
    fn step(&mut self, pool: usize) {
        let ahead = self.pools[pool].step as f64;
        for i in 0..self.pools[pool].caches.len() {
            let cache = &mut self.caches[self.pools[pool].caches[i] as usize];
            cache.step(&self.tables, self.clock as f64, ahead);
            for (row, r) in cache
                .residents
                .iter()
                .enumerate()
                .filter(|(_, r)| r.running)
            {
                self.threads[r.thread as usize].rows[r.level as usize] = row as u32;
            }
        }
        self.pools[pool].plan(self.clock);
        let mut change = 0.0f64;
        for slot in 0..self.pools[pool].threads.len() {
            let thread = self.pools[pool].threads[slot];
            if thread == NONE {
                continue;
            }
            let before = self.threads[thread as usize].ips;
            self.threads[thread as usize].refill_at = u64::MAX;
            if self.refills(thread, ahead) {
                self.turn(thread);
            } else if self.moved(thread) {
                self.rerate(thread);
            } else {
                continue;
            }
            change =
                change.max((self.threads[thread as usize].ips - before).abs() / before.max(1e-9));
        }
        self.pools[pool].adapt(change, &self.stepping);
        for slot in 0..self.pools[pool].threads.len() {
            let thread = self.pools[pool].threads[slot];
            if thread != NONE {
                let cpu = self.threads[thread as usize].cpu;
                let row = self.threads[thread as usize].memory(&self.cpus[cpu as usize]);
                self.touch_memory(row, DEMAND_SMALL);
                if !self.remote {
                    break;
                }
            }
        }
    }

    /// True if a thread is cold in at least one of its shared caches and gains many lines there in the next `ahead` ns.
    fn refills(&self, thread: u32, ahead: f64) -> bool {
        let t = &self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        (0..cpu.levels).any(|k| {
            let cache = &self.caches[t.chain[k] as usize];
            cache.residents[t.rows[k] as usize].refills(ahead, cache.lines)
        })
    }

    /// True if a thread's occupancies have changed enough since its rates were computed to change its speed.
    fn moved(&self, thread: u32) -> bool {
        let t = &self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        let least = self.stepping.still * (t.rate.a + t.rate.b);
        (0..cpu.levels).any(|k| {
            let mean = self.caches[t.chain[k] as usize].residents[t.rows[k] as usize].mean;
            let change = (mean - t.seen[k]).abs();
            // In another lattice cell, the slope of the rate table differs.
            change * t.rate.worth[k] > least || change > CELL * t.seen[k]
        })
    }

    /// Current time of the model.
    pub(super) fn now(&self) -> Nanos {
        Nanos(self.clock)
    }
}
