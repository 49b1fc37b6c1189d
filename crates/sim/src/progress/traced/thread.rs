//! Threads of traced programs: their positions in their traces, and their counters.

use std::sync::Arc;

use countersteer_cache::LineKey;
use countersteer_cache::source::{Block, EventStream, TraceSource};
use countersteer_cache::wire::{Decoder, Position, WireEvent, WireKind};
use countersteer_model::machine::CorePower;
use countersteer_model::profile::{Mix, Recorded};

use super::NOBODY;
use super::account::StepEnergy;
use super::machine::{HeldLines, StepTransfers, TracedMachine};
use super::sampling::SituationSums;
use crate::progress::TrueCounters;
use crate::progress::analytic::{Beside, ClassCpu, Cycles, MAX_LEVELS, MeasuredMisses, Timing};

/// Assumed nanoseconds per instruction in a thread's first step.
const FIRST_CPI: f64 = 1.0;
/// Factor by which the memory latency is increased to measure its effect on time.
const LONGER: f64 = 1.1;

/// Program of a traced simulation: its trace, and the interval analysis of its behaviours.
pub(crate) struct TracedProgram {
    pub source: Arc<dyn TraceSource>,
    /// Segments of the timeline: end in instructions, and behaviour.
    segments: Vec<(f64, u32)>,
    mixes: Vec<Mix>,
    /// Timings, indexed by behaviour, then by class of CPUs.
    timings: Vec<Vec<Timing>>,
}

impl TracedProgram {
    pub fn new(
        profile: &Recorded,
        source: Arc<dyn TraceSource>,
        timings: Vec<Vec<Timing>>,
    ) -> Self {
        let mut end = 0.0;
        let segments = profile.timeline.iter().map(|s| {
            end += s.instructions as f64;
            (end, s.behaviour)
        });
        Self {
            segments: segments.collect(),
            mixes: profile.behaviours.iter().map(|b| b.mix).collect(),
            source,
            timings,
        }
    }

    /// Number of instructions of the timeline; at least 1.
    fn total(&self) -> f64 {
        self.segments.last().map_or(1.0, |s| s.0.max(1.0))
    }

    /// Returns the behaviour at a position of the timeline, which repeats.
    pub fn behaviour(&self, position: f64) -> u32 {
        let at = position % self.total();
        let row = self.segments.partition_point(|(end, _)| *end <= at);
        self.segments.get(row).map_or(0, |s| s.1)
    }
}

/// Work that a thread executed in a step.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    instructions: f64,
    mispredicted: f64,
    /// Number of data accesses that missed the first-level cache.
    first_misses: f64,
    /// Part of the step's time, in nanoseconds, that the debt of earlier steps used.
    owed_ns: f64,
}

pub(crate) struct TracedThread {
    pub program: u32,
    pub owner: u16,
    pub left: f64,
    /// Position on the program's timeline, in instructions.
    pub position: f64,
    stride: f64,
    pub last_cpu: u32,
    /// Time that the thread used in advance in earlier steps, in nanoseconds.
    pub debt_ns: f64,
    pub counted: TrueCounters,
    /// Nanoseconds per instruction in the last step.
    each_ns: f64,
    stream: Option<Box<dyn EventStream>>,
    current: Option<Block>,
    /// Mark that separates the line numbers of the block's process from those of other processes.
    mark: u64,
    at: Position,
    /// Number of instructions of the current block that were executed.
    behind: u32,
    pending: Option<WireEvent>,
    /// Number of instructions that the thread skipped but that were not yet skipped in its trace; negative if the trace is ahead.
    passed: f64,
    did: Did,
}

impl TracedThread {
    pub fn nobody() -> Self {
        Self::of(0, u16::MAX, None)
    }

    pub fn new(program: u32, owner: u16, stream: Box<dyn EventStream>) -> Self {
        Self::of(program, owner, Some(stream))
    }

    fn of(program: u32, owner: u16, stream: Option<Box<dyn EventStream>>) -> Self {
        Self {
            program,
            owner,
            left: 0.0,
            position: 0.0,
            stride: 1.0,
            last_cpu: NOBODY,
            debt_ns: 0.0,
            counted: TrueCounters::default(),
            each_ns: FIRST_CPI,
            stream,
            current: None,
            mark: 0,
            at: Position::default(),
            behind: 0,
            pending: None,
            passed: 0.0,
            did: Did::default(),
        }
    }

    /// Starts new work at position `offset` of the timeline.
    pub fn begin(&mut self, program: &TracedProgram, offset: f64, instructions: f64, stride: f64) {
        self.catch_up();
        (self.left, self.position, self.stride) = (instructions, offset, stride);
        let share = offset % program.total() / program.total();
        let stream = self.stream.as_mut();
        if stream.is_some_and(|stream| stream.begin(share, self.behind)) {
            self.leave_block();
            self.passed = 0.0;
        }
    }

    fn leave_block(&mut self) {
        (self.current, self.behind, self.pending) = (None, 0, None);
        self.at = Position::default();
    }

    /// Skips instructions of the trace up to the thread's position, to within half a block.
    fn catch_up(&mut self) {
        if self.passed <= 0.0 {
            return;
        }
        if let Some(block) = &self.current {
            let rest = f64::from(block.head.instructions.saturating_sub(self.behind));
            if self.passed < rest * 0.5 {
                return;
            }
            self.passed -= rest;
            self.leave_block();
        }
        if let Some(stream) = self.stream.as_mut() {
            self.passed -= stream.pass(self.passed);
        }
    }

    /// Advances the thread by a step at known rates, without its trace. Returns the counts without times, and the time used in
    /// nanoseconds.
    pub fn pass(&mut self, cpu: &ClassCpu, ns: f64, known: &SituationSums) -> (TrueCounters, f64) {
        self.counted.run_ns += ns;
        self.counted.cycles += ns * cpu.freq;
        let free = ns - self.debt_ns;
        if free <= 0.0 {
            self.debt_ns -= ns;
            return (TrueCounters::default(), 0.0);
        }
        self.debt_ns = 0.0;
        self.each_ns = known.each_ns();
        let n = (free / self.each_ns).min(self.left);
        let counted = known.counters(n);
        self.counted = self.counted.plus(&counted, 1.0);
        self.left -= n;
        self.position += n * self.stride;
        self.passed += n;
        if self.left < 1.0 {
            self.left = 0.0;
        }
        (counted, n * self.each_ns)
    }

    /// Returns the counts of the last detailed step, as the difference to `before`, without times, and the time used in
    /// nanoseconds.
    pub(crate) fn counted_since(&self, before: &TrueCounters) -> (TrueCounters, f64) {
        let counted = TrueCounters {
            run_ns: 0.0,
            cycles: 0.0,
            ..self.counted.plus(before, -1.0)
        };
        (counted, self.did.instructions * self.each_ns)
    }

    /// Time until the thread's work ends at the present rate, in nanoseconds.
    pub(crate) fn due_ns(&self) -> f64 {
        self.left * self.each_ns + self.debt_ns.max(0.0)
    }

    /// Executes as many instructions of the trace in a step of `ns` nanoseconds as the last rate allows.
    pub fn run(&mut self, row: usize, ns: f64, machine: &mut TracedMachine) {
        self.did = Did::default();
        let free = ns - self.debt_ns;
        if free <= 0.0 {
            self.did.owed_ns = ns;
            self.debt_ns -= ns;
            return;
        }
        self.did.owed_ns = self.debt_ns;
        self.debt_ns = 0.0;
        self.catch_up();
        let wanted = (free / self.each_ns).min(self.left).max(1.0);
        self.execute(row, wanted as u32, machine);
    }

    fn execute(&mut self, row: usize, wanted: u32, machine: &mut TracedMachine) {
        let start = self.did.owed_ns;
        let mut done = 0;
        // A trace without instructions would never end a step, so the number of blocks is limited.
        let mut blocks = 0;
        while done < wanted && blocks < 1 << 16 {
            let Some(block) = self.current.take() else {
                self.current = self.stream.as_mut().map(|stream| stream.next_block());
                let head = self.current.as_ref().map(|block| block.head);
                self.mark = head.map_or(0, |head| machine.mark(self.owner, &head));
                blocks += 1;
                continue;
            };
            let mut decoder = Decoder::resume(&block.words, self.at);
            let mut over = false;
            while done < wanted {
                let next = match self.pending.take() {
                    Some(event) => Some(event),
                    None => decoder.next_event().ok().flatten(),
                };
                let length = block.head.instructions;
                let gap = next.map_or(length - self.behind.min(length), |event| event.gap);
                let step = gap.min(wanted - done);
                done += step;
                self.behind += step;
                match next {
                    Some(event) if step < gap => {
                        self.pending = Some(WireEvent {
                            gap: gap - step,
                            ..event
                        });
                    }
                    Some(event) => {
                        self.event(&event, row, start + f64::from(done) * self.each_ns, machine)
                    }
                    None => {
                        over = step == gap;
                        break;
                    }
                }
            }
            self.at = decoder.position();
            if over {
                self.behind = 0;
                self.at = Position::default();
            } else {
                self.current = Some(block);
            }
        }
        self.did.instructions = f64::from(done);
    }

    #[inline]
    fn event(&mut self, event: &WireEvent, row: usize, at_ns: f64, machine: &mut TracedMachine) {
        match event.what {
            WireKind::Mispredicted => self.did.mispredicted += 1.0,
            WireKind::Access(access) => {
                let key = LineKey::new(self.owner, event.line ^ self.mark);
                self.did.first_misses +=
                    f64::from(u8::from(machine.access(row, access, key, at_ns)));
            }
        }
    }

    /// Computes the duration of the step's instructions from their actual misses, and updates the counters. Returns the energy,
    /// and the relative increase of the duration per unit of the memory latency factor.
    pub fn settle(
        &mut self,
        program: &TracedProgram,
        on: &StepPlace<'_>,
        served: &StepTransfers,
        held: &HeldLines,
    ) -> (StepEnergy, f64) {
        let n = self.did.instructions;
        let (cpu, ns) = (on.cpu, on.ns);
        self.counted.run_ns += ns;
        self.counted.cycles += ns * cpu.freq;
        if n <= 0.0 {
            let core_nj = on.power.active_w * ns / f64::from(on.siblings);
            self.counted.energy_nj += core_nj;
            let energy = StepEnergy {
                core_nj,
                ..StepEnergy::default()
            };
            return (energy, 0.0);
        }
        let behaviour = program.behaviour(self.position) as usize;
        let timing = &program.timings[behaviour][(cpu.class + on.siblings - 1) as usize];
        let mut measured = MeasuredMisses {
            first: self.did.first_misses / n,
            private: served.private_misses / n,
            shared: [0.0; MAX_LEVELS],
            held: held.lines,
            mispredicted: self.did.mispredicted / n,
        };
        for (level, misses) in served.misses.iter().enumerate().take(cpu.levels) {
            measured.shared[level] = misses / n;
        }
        let cycles = timing.cycles(&measured, on.factor, on.beside);
        let longer = timing.cycles(&measured, on.factor * LONGER, on.beside);
        let longer = longer.total() / cycles.total();
        let steepness = (longer - 1.0) / (on.factor * (LONGER - 1.0));
        self.each_ns = cycles.total() * cpu.cycle_ns;
        self.left -= n;
        self.position += n * self.stride;
        if self.left < 1.0 {
            self.left = 0.0;
        } else {
            self.debt_ns += self.did.owed_ns + self.each_ns * n - ns;
        }
        let energy = self.count(on, &program.mixes[behaviour], served, &cycles);
        (energy, steepness)
    }

    /// Adds to `beside` the thread's use of its core in the previous step, in which `running` threads ran on the core.
    pub fn take(&self, program: &TracedProgram, cpu: &ClassCpu, running: u32, beside: &mut Beside) {
        let behaviour = program.behaviour(self.position) as usize;
        let timing = &program.timings[behaviour][(cpu.class + running - 1) as usize];
        let ipc = if self.left > 0.0 {
            cpu.cycle_ns / self.each_ns
        } else {
            0.0
        };
        beside.add(timing.shares(), ipc, 1.0);
    }

    fn count(
        &mut self,
        on: &StepPlace<'_>,
        mix: &Mix,
        served: &StepTransfers,
        cycles: &Cycles,
    ) -> StepEnergy {
        let n = self.did.instructions;
        let (cpu, power) = (on.cpu, on.power);
        let (references, missed) = match cpu.levels.checked_sub(1) {
            Some(last) => (served.references[last], served.misses[last]),
            None => (self.did.first_misses, served.private_misses),
        };
        let instruction_nj = power.instruction_nj + mix.fp * power.fp_nj + mix.simd * power.simd_nj;
        let levels = cpu
            .access_nj
            .iter()
            .zip(&served.references)
            .take(cpu.levels);
        let energy = StepEnergy {
            core_nj: power.active_w * on.ns / f64::from(on.siblings) + n * instruction_nj,
            memory_lines: served.memory_lines,
            memory_nj: served.memory_lines * cpu.memory_nj,
            cache_nj: levels.map(|(each, count)| each * count).sum(),
        };
        let c = &mut self.counted;
        c.instructions += n;
        c.l2_misses += served.private_misses;
        c.shared_modified += served.shared_modified;
        c.llc_references += references;
        c.llc_misses += missed;
        c.branch_instructions += mix.branches * n;
        c.branch_misses += self.did.mispredicted;
        c.energy_nj += energy.core_nj + energy.cache_nj + energy.memory_nj;
        let d = &mut c.detail;
        d.instructions += n;
        d.loads += mix.loads * n;
        d.stores += mix.stores * n;
        d.fp_operations += mix.fp * n;
        d.simd_operations += mix.simd * n;
        d.l1d_misses += self.did.first_misses;
        d.stall_memory += cycles.memory * n;
        d.stall_branches += cycles.branches * n;
        d.stall_other += (cycles.base + cycles.fetch - cycles.dispatch) * n;
        energy
    }
}

/// CPU on which a thread executes a step, and the conditions there.
pub(crate) struct StepPlace<'a> {
    pub cpu: &'a ClassCpu,
    /// Number of threads that run on the core, including this thread.
    pub siblings: u32,
    /// Use of the core by the other threads.
    pub beside: &'a Beside,
    /// Factor on the unloaded memory latency.
    pub factor: f64,
    pub ns: f64,
    pub power: &'a CorePower,
}
