//! State of a thread: its work, its CPU, its present rates, and its counters.
//!
//! Rates hold until an event changes them, so a thread is integrated only when its counters are read or a rate changes. Work is
//! rate times time, and the end of a piece of work or of a phase follows in closed form.

use super::class::{ClassCpu, MAX_LEVELS, NONE};
use super::model::ProgramModel;
use super::table::{OccupancyRate, RateTable};
use crate::progress::{CounterDetail, TrueCounters, Unmeasured};

/// Energy of a thread's run interval by component, in nanojoules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpanEnergy {
    pub core: f64,
    pub cache: f64,
    pub memory: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct AnalyticThread {
    /// Index of the thread's program; [`NONE`] for a free row.
    pub model: u32,
    /// Index of the thread's copy of the program.
    pub copy: u32,
    /// CPU on which the thread runs; [`NONE`] if it does not run.
    pub cpu: u32,
    pub last_cpu: u32,
    /// Memory domain of the thread's pages; [`NONE`] if they are always local.
    pub home: u32,

    /// Number of timeline instructions per instruction of the thread.
    stride: f64,
    /// Number of instructions of the current work.
    total: f64,
    /// Number of instructions of the current work that were executed so far.
    done: f64,
    ended: bool,
    segment: u32,
    /// Number of executed instructions of the current work at which the timeline's segment ends.
    segment_end: f64,

    pub table: u32,
    /// Present cycles and misses per instruction.
    pub rate: OccupancyRate,
    /// Number of lines that cross the memory bus per instruction.
    pub traffic: f64,
    /// Instructions per nanosecond; zero without work.
    pub ips: f64,
    /// Nanoseconds per instruction.
    pub ns_each: f64,
    /// Memory demand in lines per nanosecond.
    pub demand: f64,
    /// Decrease of memory demand per unit of the latency factor.
    pub slope: f64,

    sync: u64,
    /// Time before which no instruction retires, in nanoseconds.
    stall_until: u64,
    /// Fraction of a nanosecond for which the present phase had already run when its start was handled.
    credit_ns: f64,

    /// Misses of each shared cache since the thread was added.
    misses: [f64; MAX_LEVELS],
    /// Mean occupancies for which the rates were computed, in lines.
    pub seen: [f64; MAX_LEVELS],
    closed: [f64; MAX_LEVELS],
    span_instructions: f64,
    /// Cycles of dispatch and dependences in the open run interval.
    span_base: f64,
    span_ns: f64,
    span_cold: f64,
    /// Misses in the open run interval that other threads' stores caused.
    span_invalidated: f64,
    /// Accesses to modified lines in the open run interval.
    span_modified: f64,
    counted: TrueCounters,

    /// Indices of the CPU's shared caches, or of the thread's parts of them, inner first.
    pub chain: [u32; MAX_LEVELS],
    /// Row of the thread in each of these caches.
    pub rows: [u32; MAX_LEVELS],
    /// Time at which the thread's occupancy has grown enough for new rates.
    pub refill_at: u64,
    /// Time at which the thread was last switched in or out.
    pub since: u64,
    /// Fraction of the time during which the thread runs, as an exponential average over past intervals.
    pub duty: f64,
    /// Number of misses of the private caches at the thread's last switch-in.
    pub entered_misses: f64,
    /// Number of the thread's lines that were still in the private caches at its last switch-in.
    pub found_lines: f64,
}

impl AnalyticThread {
    /// Memory domain that the thread accesses from a CPU.
    #[inline]
    pub const fn memory(&self, cpu: &ClassCpu) -> u32 {
        if self.home == NONE {
            cpu.memory
        } else {
            self.home
        }
    }

    /// Creates a thread of a program; the thread has been idle since `now`.
    pub const fn new(model: u32, now: u64) -> Self {
        let mut thread = Self::free();
        (thread.model, thread.since) = (model, now);
        thread
    }

    pub const fn free() -> Self {
        Self {
            model: NONE,
            copy: NONE,
            cpu: NONE,
            last_cpu: NONE,
            home: NONE,
            stride: 1.0,
            total: 0.0,
            done: 0.0,
            ended: true,
            segment: 0,
            segment_end: f64::INFINITY,
            table: 0,
            rate: OccupancyRate {
                base: 1.0,
                a: 1.0,
                b: 0.0,
                invalidated: 0.0,
                modified: 0.0,
                miss: [0.0; MAX_LEVELS],
                worth: [0.0; MAX_LEVELS],
            },
            traffic: 0.0,
            ips: 0.0,
            ns_each: 0.0,
            demand: 0.0,
            slope: 0.0,
            sync: 0,
            stall_until: 0,
            credit_ns: 0.0,
            misses: [0.0; MAX_LEVELS],
            seen: [0.0; MAX_LEVELS],
            closed: [0.0; MAX_LEVELS],
            span_instructions: 0.0,
            span_base: 0.0,
            span_ns: 0.0,
            span_cold: 0.0,
            span_invalidated: 0.0,
            span_modified: 0.0,
            counted: TrueCounters {
                instructions: 0.0,
                cycles: 0.0,
                l2_misses: 0.0,
                llc_references: 0.0,
                llc_misses: 0.0,
                shared_modified: 0.0,
                branch_instructions: 0.0,
                branch_misses: 0.0,
                energy_nj: 0.0,
                run_ns: 0.0,
                detail: CounterDetail::NONE,
                unmeasured: Unmeasured {
                    misses: 0.0,
                    branch_misses: 0.0,
                    sharing: 0.0,
                },
                evictions: None,
            },
            chain: [NONE; MAX_LEVELS],
            rows: [0; MAX_LEVELS],
            refill_at: u64::MAX,
            since: 0,
            duty: 1.0,
            entered_misses: 0.0,
            found_lines: 0.0,
        }
    }

    /// Replaces the thread's work. The caller has integrated the thread up to now.
    pub fn begin(&mut self, model: &ProgramModel, offset: f64, instructions: f64, stride: f64) {
        self.stride = stride.max(1e-12);
        self.credit_ns = 0.0;
        // Empty work must end as well, and does so at once.
        (self.total, self.done, self.ended) = (instructions.max(1e-3), 0.0, false);
        let (segment, left) = model.locate(offset);
        self.segment = segment;
        self.segment_end = left / self.stride;
    }

    /// True if the thread has work left.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.done < self.total
    }

    /// Behaviour of the thread's current phase.
    #[inline]
    pub fn behaviour(&self, model: &ProgramModel) -> u32 {
        model.behaviour(self.segment)
    }

    /// Position of the thread on the program's timeline, in instructions.
    pub fn position(&self, model: &ProgramModel) -> f64 {
        let left = (self.segment_end - self.done) * self.stride;
        (model.end(self.segment) - left.max(0.0)).max(0.0)
    }

    /// Switches the thread in on a CPU; no instruction retires for `stall_ns`.
    pub fn enter(&mut self, cpu: u32, now: u64, stall_ns: f64) {
        self.cpu = cpu;
        self.sync = now;
        self.credit_ns = 0.0;
        self.stall_until = now.saturating_add(stall_ns as u64);
        self.since = now;
    }

    /// Stalls the thread for `cost` ns, from now or from the end of its present stall. The caller has integrated the thread up to
    /// now.
    pub fn stall(&mut self, cost: u64, now: u64) {
        self.stall_until = self.stall_until.max(now).saturating_add(cost);
    }

    /// Time at which the thread retires instructions again: now, or the end of its stall.
    pub(crate) fn starts_at(&self, now: u64) -> u64 {
        self.stall_until.max(now)
    }

    /// Fraction of the stall at the thread's switch-in that is over at `now`.
    pub fn warmed(&self, now: u64) -> f64 {
        if now >= self.stall_until {
            return 1.0;
        }
        (now - self.since) as f64 / (self.stall_until - self.since).max(1) as f64
    }

    /// Counts the accesses of a cold start, of which `beyond` reach memory.
    pub(crate) fn count_cold(&mut self, accesses: f64, beyond: f64) {
        self.span_cold += accesses;
        self.misses.iter_mut().for_each(|m| *m += beyond);
    }

    #[inline]
    pub(crate) fn integrate(&mut self, now: u64) {
        if now <= self.sync {
            return;
        }
        let from = self.sync.max(self.stall_until);
        if now > from {
            let ns = (now - from) as f64 + std::mem::take(&mut self.credit_ns);
            self.retire((self.ips * ns).min(self.total - self.done));
        }
        self.span_ns += (now - self.sync) as f64;
        self.sync = now;
    }

    #[inline]
    fn retire(&mut self, work: f64) {
        self.done += work;
        self.span_instructions += work;
        self.span_base += self.rate.base * work;
        self.span_invalidated += self.rate.invalidated * work;
        self.span_modified += self.rate.modified * work;
        for (sum, miss) in self.misses.iter_mut().zip(self.rate.miss) {
            *sum += miss * work;
        }
    }

    /// Returns the time at which the thread's work or phase ends at the present rate; `u64::MAX` if neither ends.
    #[inline]
    pub fn event(&self) -> u64 {
        let left = self.total.min(self.segment_end) - self.done;
        // If another thread's event caused an integration at the very end, nothing is left to retire.
        if self.total <= self.done && !self.ended {
            return self.sync;
        }
        if self.ended || self.ips <= 0.0 {
            return u64::MAX;
        }
        // This is the first whole nanosecond at which the work is over; the conversion saturates.
        let ns = (left * self.ns_each - self.credit_ns).max(0.0);
        let whole = ns as i64;
        self.sync
            .max(self.stall_until)
            .saturating_add(whole as u64 + u64::from((whole as f64) < ns))
    }

    /// Handles [`Self::event`]; returns true if the work ended, and false if only the phase ended.
    pub fn arrive(&mut self, model: &ProgramModel, now: u64) -> bool {
        let before_end = self.total > self.segment_end;
        let left = self.segment_end - self.done;
        let late = self.event() as f64 - self.sync.max(self.stall_until) as f64 + self.credit_ns
            - left * self.ns_each;
        self.integrate(now);
        if !before_end {
            // Rounding to whole nanoseconds left these instructions.
            let rest = self.total - self.done;
            self.retire(rest);
            (self.done, self.ended) = (self.total, true);
            self.ips = 0.0;
            return true;
        }
        // The next phase began within the last nanosecond: work beyond its start is undone, and the time is kept as credit.
        if late > 0.0 && late < 1.0 {
            self.retire(self.segment_end - self.done);
            self.credit_ns = late;
        }
        while self.segment_end <= self.done + 1e-12 * self.segment_end {
            let (segment, length) = model.after(self.segment);
            self.segment = segment;
            self.segment_end += length / self.stride;
        }
        false
    }

    /// Closes a run interval under one rate table: adds its events to the counters, and returns its energy. The caller has
    /// integrated the thread up to now.
    pub(crate) fn close_span(&mut self, table: &RateTable, cpu: &ClassCpu) -> SpanEnergy {
        let n = std::mem::take(&mut self.span_instructions);
        let ns = std::mem::take(&mut self.span_ns);
        let base = std::mem::take(&mut self.span_base);
        if ns == 0.0 && n == 0.0 && self.span_cold == 0.0 {
            return SpanEnergy::default();
        }
        let invalidated = std::mem::take(&mut self.span_invalidated);
        let modified = std::mem::take(&mut self.span_modified);
        let cold = std::mem::take(&mut self.span_cold) + invalidated;
        let leaving = table.private_misses * n + cold;
        let mut energy = SpanEnergy {
            core: table.active_w * ns + table.instruction_nj * n,
            ..SpanEnergy::default()
        };
        let mut references = table.private_references * n;
        let mut misses = leaving;
        for k in 0..cpu.levels {
            references = misses;
            misses = self.misses[k] - self.closed[k];
            energy.cache += cpu.access_nj[k] * references;
        }
        self.closed = self.misses;
        energy.memory = misses * table.lines_per_miss * cpu.memory_nj;
        let c = &mut self.counted;
        c.instructions += n;
        c.cycles += ns * cpu.freq;
        c.run_ns += ns;
        c.l2_misses += leaving;
        c.shared_modified += modified;
        c.llc_references += references;
        c.llc_misses += misses;
        c.branch_instructions += table.branches * n;
        c.branch_misses += table.branch_misses * n;
        c.unmeasured.misses += table.unmeasured.misses * n;
        c.unmeasured.sharing += table.unmeasured.sharing * n;
        c.unmeasured.branch_misses += table.unmeasured.branch_misses * n;
        c.energy_nj += energy.core + energy.cache + energy.memory;
        if let Some(each) = &table.detail {
            let lost = each.branch_cycles * n;
            let d = &mut c.detail;
            d.instructions += n;
            d.loads += each.mix.loads * n;
            d.stores += each.mix.stores * n;
            d.fp_operations += each.mix.fp * n;
            d.simd_operations += each.mix.simd * n;
            d.l1d_misses += each.l1d_misses * n + cold;
            let cycles = ns * cpu.freq;
            let memory = (cycles - base - lost - each.fetch_cycles * n).max(0.0);
            d.stall_memory += memory;
            d.stall_branches += lost;
            d.stall_other += cycles - each.dispatch_cycles * n - lost - memory;
        }
        energy
    }

    /// Counters up to the last closed run interval.
    pub fn counted(&self) -> &TrueCounters {
        &self.counted
    }

    /// Instructions per cycle at the present rates; zero without work.
    #[inline]
    pub fn ipc(&self, cpu: &ClassCpu) -> f64 {
        self.ips / cpu.freq
    }
}
