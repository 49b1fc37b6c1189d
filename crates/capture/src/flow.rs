//! Instruction-level and memory-level parallelism of a captured sequence.
//!
//! Input: for each instruction, the earlier ones it depends on. Output: the cycles (or rounds of misses) of the sequence if only
//! these dependencies and an instruction window of size W limit it. Width is unlimited, an instruction enters the window when
//! the one W before it has retired, and retirement is in order.
//!
//! With unit latency this gives the parallelism of Karkhanis and Smith's ideal window. With latency one for long misses and zero
//! for the rest, time counts the rounds of outstanding misses (the epochs of Chou, Fahs and Abraham 2004).

use crate::layout::ILP_WINDOWS;

/// One lane per window, padded to a vector's width.
pub const LANES: usize = 8;
type Times = [u32; LANES];

#[derive(Default)]
pub struct MemoryWaits {
    bounds: Vec<FlowBounds>,
    earlier: Vec<u32>,
}

/// Bounds of one instruction in [`MemoryWaits::earlier`]: the dependencies of its memory access, first the line and then the address,
/// and those of its operation.
#[derive(Clone, Copy)]
struct FlowBounds {
    line: u32,
    address: u32,
    rest: u32,
    end: u32,
}

impl MemoryWaits {
    pub fn clear(&mut self) {
        self.bounds.clear();
        self.earlier.clear();
    }

    /// Adds the next instruction. Its memory access depends on `line` (the instructions that fetch its line, if misses take
    /// time) and on `address`. Its operation depends on the access and on `rest`.
    pub fn push(&mut self, line: &[u32], address: &[u32], rest: &[u32]) {
        let start = self.earlier.len() as u32;
        let [address, rest, end] = [line, address, rest].map(|part| {
            self.earlier.extend_from_slice(part);
            self.earlier.len() as u32
        });
        self.bounds.push(FlowBounds {
            line: start,
            address,
            rest,
            end,
        });
    }

    pub fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Returns the dependencies of an instruction's memory access.
    pub fn access(&self, at: usize) -> &[u32] {
        let bounds = self.bounds[at];
        &self.earlier[bounds.address as usize..bounds.rest as usize]
    }

    /// Returns the other dependencies of the operation.
    pub fn rest(&self, at: usize) -> &[u32] {
        let bounds = self.bounds[at];
        &self.earlier[bounds.rest as usize..bounds.end as usize]
    }
}

/// Latency of an instruction, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct InsnLatency {
    /// Cycles of its memory access beyond the first.
    pub access: u32,
    pub operation: u32,
}

impl InsnLatency {
    pub const UNIT: Self = Self {
        access: 0,
        operation: 1,
    };
}

/// Buffers that are reused between captures.
#[derive(Default)]
pub struct FlowBuffers {
    done: Vec<Times>,
    retired: Vec<Times>,
}

impl FlowBuffers {
    /// Returns the cycles for each window with the given latencies.
    pub fn cycles(&mut self, waits: &MemoryWaits, latency: impl Fn(usize) -> InsnLatency) -> Times {
        self.run(waits.len(), |at, start, done| {
            let latency = latency(at);
            for earlier in waits.access(at) {
                later(start, &done[*earlier as usize]);
            }
            start.iter_mut().for_each(|t| *t += latency.access);
            for earlier in waits.rest(at) {
                later(start, &done[*earlier as usize]);
            }
            start.iter_mut().for_each(|t| *t += latency.operation);
        })
    }

    /// Returns the rounds for each window if the accesses marked in `misses` take one round and everything else takes no time.
    pub fn rounds(&mut self, waits: &MemoryWaits, misses: &[bool]) -> Times {
        self.run(waits.len(), |at, start, done| {
            let bounds = waits.bounds[at];
            for earlier in &waits.earlier[bounds.line as usize..bounds.rest as usize] {
                later(start, &done[*earlier as usize]);
            }
            if misses[at] {
                start.iter_mut().for_each(|t| *t += 1);
            }
            for earlier in waits.rest(at) {
                later(start, &done[*earlier as usize]);
            }
        })
    }

    /// Runs `count` instructions; `finish` turns the entry time of an instruction into its completion time.
    #[inline(always)]
    fn run(&mut self, count: usize, finish: impl Fn(usize, &mut Times, &[Times])) -> Times {
        self.done.clear();
        self.retired.clear();
        let mut retired = [0; LANES];
        for at in 0..count {
            let mut time = self.entry(at);
            finish(at, &mut time, &self.done);
            later(&mut retired, &time);
            self.done.push(time);
            self.retired.push(retired);
        }
        retired
    }

    /// Returns the time at which the instruction enters each window.
    #[inline]
    fn entry(&self, at: usize) -> Times {
        let mut entry = [0; LANES];
        for (lane, window) in ILP_WINDOWS.iter().enumerate() {
            if at >= *window {
                entry[lane] = self.retired[at - window][lane];
            }
        }
        entry
    }
}

#[inline]
fn later(times: &mut Times, others: &Times) {
    for (time, other) in times.iter_mut().zip(others) {
        *time = (*time).max(*other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(count: usize, mut of: impl FnMut(usize) -> Vec<u32>) -> MemoryWaits {
        let mut waits = MemoryWaits::default();
        (0..count).for_each(|at| waits.push(&[], &of(at), &[]));
        waits
    }

    #[test]
    fn a_chain_runs_one_per_cycle_whatever_the_window() {
        let chain = waits(4096, |at| if at > 0 { vec![at as u32 - 1] } else { vec![] });
        assert_eq!(
            FlowBuffers::default().cycles(&chain, |_| InsnLatency::UNIT)[..6],
            [4096; 6]
        );
    }

    #[test]
    fn independent_instructions_fill_the_window() {
        let free = waits(4096, |_| vec![]);
        assert_eq!(
            FlowBuffers::default().cycles(&free, |_| InsnLatency::UNIT)[..6],
            [256, 128, 64, 32, 16, 8]
        );
    }

    #[test]
    fn four_interleaved_chains_give_four() {
        let chains = waits(
            4096,
            |at| if at >= 4 { vec![at as u32 - 4] } else { vec![] },
        );
        assert_eq!(
            FlowBuffers::default().cycles(&chains, |_| InsnLatency::UNIT)[..6],
            [1024; 6]
        );
    }

    #[test]
    fn dependent_misses_take_a_round_each() {
        // A pointer chase: a load, then three instructions that depend on it.
        let chase = waits(4096, |at| {
            if at >= 4 {
                vec![(at & !3) as u32 - 4]
            } else {
                vec![]
            }
        });
        let misses: Vec<bool> = (0..4096).map(|at| at % 4 == 0).collect();
        assert_eq!(
            FlowBuffers::default().rounds(&chase, &misses)[..6],
            [1024; 6]
        );
    }

    #[test]
    fn independent_misses_overlap_as_far_as_the_window_reaches() {
        let free = waits(4096, |_| vec![]);
        let misses: Vec<bool> = (0..4096).map(|at| at % 8 == 0).collect();
        assert_eq!(
            FlowBuffers::default().rounds(&free, &misses)[..6],
            [256, 128, 64, 32, 16, 8]
        );
    }

    #[test]
    fn a_sum_waits_for_the_loads_but_the_loads_do_not_wait_for_the_sum() {
        let mut sum = MemoryWaits::default();
        (0..4096u32)
            .for_each(|at| sum.push(&[], &[], &[at.saturating_sub(1)][..at.min(1) as usize]));
        let mut flow = FlowBuffers::default();
        assert_eq!(flow.cycles(&sum, |_| InsnLatency::UNIT)[5], 4096);
        assert_eq!(flow.rounds(&sum, &[true; 4096])[5], 8);
    }

    #[test]
    fn waiting_for_a_line_counts_only_for_misses() {
        // Every eighth instruction misses; the fourth after it uses the line and leads to the next miss.
        let mut waits = MemoryWaits::default();
        for at in 0..4096u32 {
            match at % 8 {
                0 if at > 0 => waits.push(&[], &[at - 4], &[]),
                4 => waits.push(&[at - 4], &[], &[]),
                _ => waits.push(&[], &[], &[]),
            }
        }
        let misses: Vec<bool> = (0..4096).map(|at| at % 8 == 0).collect();
        let mut flow = FlowBuffers::default();
        assert_eq!(flow.rounds(&waits, &misses)[5], 512);
        assert_eq!(flow.cycles(&waits, |_| InsnLatency::UNIT)[5], 16);
    }
}
