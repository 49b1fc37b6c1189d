//! Context switches, with their costs for threads, and changes of a core's frequency.

use super::Analytic;
use super::class::NONE;
use super::running::{DEMAND_LARGE, DUTY_NS};

impl Analytic {
    pub(super) fn switch_out(&mut self, thread: u32) {
        self.close(thread);
        let now = self.clock;
        let t = &mut self.threads[thread as usize];
        let cpu = &self.cpus[t.cpu as usize];
        let table = &self.tables[t.table as usize];
        let ran = (now - t.since) as f64;
        if self.config.contention {
            for k in 0..cpu.levels {
                self.caches[t.chain[k] as usize].stop(t.rows[k] as usize, now as f64);
            }
        }
        let held = t.found_lines + (table.useful_lines - t.found_lines).max(0.0) * t.warmed(now);
        let core = &mut self.cores[cpu.core as usize];
        core.leave(thread, t.counted().l2_misses - t.entered_misses, held);
        core.busy -= 1;
        if core.busy == 0 {
            core.idle_since = now;
        }
        t.duty = 1.0 - (1.0 - t.duty) * (-ran / DUTY_NS).exp();
        let far = t.memory(cpu);
        let memory = &mut self.memories[far as usize];
        memory.demand = (memory.demand - t.demand).max(0.0);
        memory.slope = (memory.slope - t.slope).max(0.0);
        (t.demand, t.slope, t.ips) = (0.0, 0.0, 0.0);
        (t.last_cpu, t.cpu, t.since) = (t.cpu, NONE, now);
        let pool = &mut self.pools[cpu.pool as usize];
        pool.threads[cpu.slot as usize] = NONE;
        pool.events[cpu.slot as usize] = u64::MAX;
        pool.running -= 1;
        if pool.running == 0 {
            pool.step_at = u64::MAX;
        }
        let pool = cpu.pool;
        let row = t.last_cpu;
        self.on_cpu[row as usize] = NONE;
        self.touch_pool(pool);
        self.touch_memory(far, DEMAND_LARGE);
    }

    pub(super) fn switch_in(&mut self, thread: u32, row: u32) {
        let now = self.clock;
        let cpu = &self.cpus[row as usize];
        let t = &mut self.threads[thread as usize];
        t.duty *= (-((now - t.since) as f64) / DUTY_NS).exp();
        let core = &mut self.cores[cpu.core as usize];
        if core.busy == 0 {
            let of = &self.topology.core_types[cpu.core_type as usize];
            core.idle_nj += of.idle_nj((now - core.idle_since) as f64);
        }
        core.busy += 1;
        let pool = &mut self.pools[cpu.pool as usize];
        pool.threads[cpu.slot as usize] = thread;
        pool.running += 1;
        self.on_cpu[row as usize] = thread;
        let table = self.table_on(thread, row);
        let t = &mut self.threads[thread as usize];
        t.table = table;
        t.enter(row, now, 0.0);
        if self.config.contention {
            self.take_residence(thread, row);
        }
        if self.config.costs {
            self.pay_switch(thread, row);
        }
        let cpu = &self.cpus[row as usize];
        self.on_cpu_before[row as usize] = thread;
        self.threads[thread as usize].entered_misses =
            self.threads[thread as usize].counted().l2_misses;
        let pool = cpu.pool;
        self.touch_pool(pool);
    }

    /// Finds or creates the thread's rows in the shared caches of its CPU.
    fn take_residence(&mut self, thread: u32, row: u32) {
        let cpu = &self.cpus[row as usize];
        let chain = self.chain(cpu, thread);
        let t = &mut self.threads[thread as usize];
        t.refill_at = u64::MAX;
        t.chain = chain;
        for k in 0..cpu.levels {
            let cache = &mut self.caches[t.chain[k] as usize];
            let i = cache.enter(thread, t.rows[k]);
            t.rows[k] = i as u32;
            let r = &mut cache.residents[i];
            (r.table, r.level, r.duty) = (t.table, k as u8, t.duty);
            r.copy = t.copy;
            r.start(self.clock as f64);
        }
        self.pools[cpu.pool as usize].wake(self.clock, &self.stepping);
    }

    /// Charges a thread for the fixed costs of a context switch and a migration, and for the refill of private caches.
    fn pay_switch(&mut self, thread: u32, row: u32) {
        let cpu = &self.cpus[row as usize];
        let t = &mut self.threads[thread as usize];
        let mut ns = 0.0;
        if self.on_cpu_before[row as usize] != thread {
            ns += self.config.context_switch_ns;
        }
        let table = &self.tables[t.table as usize];
        t.found_lines = table.useful_lines;
        // The first start costs nothing, because the profile contains its cold misses.
        if t.last_cpu != NONE {
            if t.last_cpu != row {
                ns += self.config.migration_ns;
            }
            t.found_lines = self.cores[cpu.core as usize]
                .remains(thread)
                .min(table.useful_lines);
            let misses = table.cold_misses(t.found_lines);
            // Lines come from the shared cache, or from the previous core if both cores are behind the same cache.
            let near = if self.cpus[t.last_cpu as usize].pool == cpu.pool || !self.config.contention
            {
                1.0
            } else {
                let outer = cpu
                    .levels
                    .checked_sub(1)
                    .map(|k| (&self.caches[t.chain[k] as usize], t.rows[k]));
                let held = outer
                    .and_then(|(c, i)| c.residents.get(i as usize))
                    .map_or(0.0, |r| r.lines);
                (held / table.useful_lines.max(1.0)).min(1.0)
            };
            let far = 1.0 - near;
            let row = t.memory(cpu);
            let memory = &self.memories[row as usize];
            let distance = if row == cpu.memory {
                1.0
            } else {
                memory.remote
            };
            let factor = distance * memory.factor;
            ns += misses * (near * table.near_cycles + far * factor * table.far_cycles) / cpu.freq;
            t.count_cold(misses, far * misses);
        }
        t.stall(ns.round() as u64, self.clock);
    }

    /// Moves a thread's pages to a memory domain.
    pub(super) fn rehome(&mut self, thread: u32, domain: u32) {
        let t = &mut self.threads[thread as usize];
        if t.cpu == NONE {
            t.home = domain;
            return;
        }
        t.integrate(self.clock);
        let before = t.memory(&self.cpus[t.cpu as usize]);
        let memory = &mut self.memories[before as usize];
        memory.demand = (memory.demand - t.demand).max(0.0);
        memory.slope = (memory.slope - t.slope).max(0.0);
        (t.demand, t.slope, t.home) = (0.0, 0.0, domain);
        self.respeed(thread);
        self.touch_memory(before, DEMAND_LARGE);
    }

    /// Changes the frequency of a CPU's core to operating point `point`.
    pub(super) fn reclock(&mut self, row: u32, point: usize) {
        let of = &self.topology.core_types[self.cpus[row as usize].core_type as usize];
        let Some(ghz) = of.points().get(point).map(|p| p.ghz) else {
            return;
        };
        if ghz == self.cpus[row as usize].freq {
            return;
        }
        let siblings = self.cpus[row as usize].siblings.iter().copied();
        let core: Vec<u32> = siblings.chain([row]).collect();
        let running = core.iter().map(|row| self.on_cpu[*row as usize]);
        let running: Vec<u32> = running.filter(|thread| *thread != NONE).collect();
        // Work up to now was done at the old frequency, so run intervals are closed first.
        running.iter().for_each(|thread| self.close(*thread));
        for row in core {
            self.cpus[row as usize].run_at(point, ghz);
        }
        for thread in running {
            self.retable(thread);
            self.rerate(thread);
            self.turn(thread);
        }
    }
}
