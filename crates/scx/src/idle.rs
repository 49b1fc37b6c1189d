//! Idle CPUs as sched_ext tracks them, and its default choice of a CPU (kernel/sched/ext_idle.c).

use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;

use crate::abi::{CpuMask, flags};

pub struct Idle {
    pub cpus: CpuMask,
    /// CPUs of cores whose CPUs are all idle.
    pub cores: CpuMask,
    pub all: CpuMask,
    /// For each CPU: its core, its last-level cache and its memory node.
    core: Vec<CpuMask>,
    llc: Vec<CpuMask>,
    node: Vec<CpuMask>,
    smt: bool,
    /// For each CPU: CPU that it chose last. The next choice starts behind it.
    chosen: Vec<usize>,
}

/// Request for an idle CPU.
pub struct IdleRequest {
    pub prev: usize,
    pub wake_flags: u64,
    pub allowed: CpuMask,
    pub pick_flags: u64,
    pub this_cpu: usize,
    /// True if threads wait in the local queue of this CPU.
    pub waiting_here: bool,
}

impl Idle {
    pub fn new(topology: &Topology) -> Self {
        let n = topology.cpus.len();
        let with = |same: &dyn Fn(usize, usize) -> bool| -> Vec<CpuMask> {
            let of = |cpu: usize| {
                let mut mask = CpuMask::EMPTY;
                (0..n)
                    .filter(|other| same(cpu, *other))
                    .for_each(|other| mask.set(other));
                mask
            };
            (0..n).map(of).collect()
        };
        let cpus = &topology.cpus;
        let llc = |cpu: usize| topology.llc_of(CpuId::from_index(cpu));
        let mut all = CpuMask::EMPTY;
        (0..n).for_each(|cpu| all.set(cpu));
        let core = with(&|a, b| cpus[a].core == cpus[b].core);
        Self {
            cpus: all,
            cores: all,
            all,
            smt: core.iter().any(|mask| mask.count() > 1),
            core,
            llc: with(&|a, b| llc(a) == llc(b)),
            node: with(&|a, b| cpus[a].memory == cpus[b].memory),
            chosen: vec![0; n],
        }
    }

    /// Notes that a CPU begins or stops to be idle (`__scx_update_idle`).
    pub fn update(&mut self, cpu: usize, idle: bool) {
        if !idle {
            self.test_and_clear(cpu);
            return;
        }
        self.cpus.set(cpu);
        let core = self.core[cpu];
        if core.and(&self.cpus) == core {
            self.mark_core(cpu, true);
        }
    }

    fn mark_core(&mut self, cpu: usize, idle: bool) {
        for (word, core) in self.cores.bits.iter_mut().zip(&self.core[cpu].bits) {
            if idle {
                *word |= core;
            } else {
                *word &= !core;
            }
        }
    }

    /// True if a CPU is marked as idle; removes the mark (`scx_idle_test_and_clear_cpu`).
    pub fn test_and_clear(&mut self, cpu: usize) -> bool {
        if !self.all.has(cpu) {
            return false;
        }
        self.mark_core(cpu, false);
        let was = self.cpus.has(cpu);
        self.cpus.clear(cpu);
        was
    }

    /// Picks an idle CPU among `allowed` and removes its mark (`scx_pick_idle_cpu`). Cores that are idle as a whole come first.
    pub fn pick(&mut self, allowed: &CpuMask, pick_flags: u64, this_cpu: usize) -> Option<usize> {
        let from = self.chosen[this_cpu] + 1;
        let whole = || self.cores.and(allowed).next_around(from);
        let any = || self.cpus.and(allowed).next_around(from);
        let cpu = match (self.smt, pick_flags & flags::PICK_IDLE_CORE != 0) {
            (true, true) => whole(),
            (true, false) => whole().or_else(any),
            (false, _) => any(),
        }?;
        self.chosen[this_cpu] = cpu;
        self.test_and_clear(cpu);
        Some(cpu)
    }

    /// Picks a CPU as `scx_select_cpu_dfl` does; `None` if no allowed CPU is idle.
    pub fn select(&mut self, r: &IdleRequest) -> Option<usize> {
        let prev_allowed = r.allowed.has(r.prev);
        if r.wake_flags & flags::WAKE_SYNC != 0 {
            let near = self.llc[r.this_cpu].has(r.prev);
            if near && prev_allowed && self.test_and_clear(r.prev) {
                return Some(r.prev);
            }
            // The waker is about to sleep: its CPU is as good as idle while the machine has idle CPUs for others.
            if !r.waiting_here && !self.cpus.is_empty() && r.allowed.has(r.this_cpu) {
                return Some(r.this_cpu);
            }
        }
        let all = self.all.count();
        let within = |masks: &[CpuMask]| {
            let mask = masks.get(r.prev).map(|mask| mask.and(&r.allowed));
            mask.filter(|mask| (1..all).contains(&mask.count()))
        };
        let [llc, node] = [within(&self.llc), within(&self.node)];
        let regions = [llc, node.filter(|node| Some(*node) != llc), Some(r.allowed)];
        if self.smt {
            if prev_allowed && self.cores.has(r.prev) && self.test_and_clear(r.prev) {
                return Some(r.prev);
            }
            let whole = r.pick_flags | flags::PICK_IDLE_CORE;
            let mut regions = regions.iter().flatten();
            let core = regions.find_map(|mask| self.pick(mask, whole, r.this_cpu));
            if core.is_some() || r.pick_flags & flags::PICK_IDLE_CORE != 0 {
                return core;
            }
        }
        if prev_allowed && self.test_and_clear(r.prev) {
            return Some(r.prev);
        }
        let mut regions = regions.iter().flatten();
        regions.find_map(|mask| self.pick(mask, r.pick_flags, r.this_cpu))
    }
}
