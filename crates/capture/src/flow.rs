//! How much of a captured sequence could run at the same time.
//!
//! Input: per instruction, the earlier ones it waits for. Output: the cycles (or rounds of misses) that the sequence takes
//! when only those waits and an instruction window of W limit it: width is unlimited, an instruction enters the window when
//! the one W before it has retired, and retirement is in order. With a latency of one for all this gives the parallelism of
//! Karkhanis and Smith's ideal window; with a latency of one for long misses and zero for the rest, time counts the rounds
//! in which misses are outstanding (the epochs of Chou, Fahs and Abraham 2004).

use crate::layout::ILP_WINDOWS;

/// One lane per window, padded to a vector's width.
pub const LANES: usize = 8;
type Times = [u32; LANES];

#[derive(Default)]
pub struct Waits {
    bounds: Vec<Bounds>,
    earlier: Vec<u32>,
}

/// One instruction's part of [`Waits::earlier`]: what its memory access waits for, first the line and then the address; and
/// what the rest of it waits for.
#[derive(Clone, Copy)]
struct Bounds {
    line: u32,
    address: u32,
    rest: u32,
    end: u32,
}

impl Waits {
    pub fn clear(&mut self) {
        self.bounds.clear();
        self.earlier.clear();
    }

    /// Adds the next instruction. Its memory access waits for `line`, who fetch the line it touches, when misses take time,
    /// and for `address`; what it computes waits for the access and for `rest`.
    pub fn push(&mut self, line: &[u32], address: &[u32], rest: &[u32]) {
        let start = self.earlier.len() as u32;
        let [address, rest, end] = [line, address, rest].map(|part| {
            self.earlier.extend_from_slice(part);
            self.earlier.len() as u32
        });
        self.bounds.push(Bounds {
            line: start,
            address,
            rest,
            end,
        });
    }

    pub fn len(&self) -> usize {
        self.bounds.len()
    }

    /// What the address of an instruction's memory access waits for.
    pub fn access(&self, at: usize) -> &[u32] {
        let bounds = self.bounds[at];
        &self.earlier[bounds.address as usize..bounds.rest as usize]
    }

    /// What the operation waits for besides.
    pub fn rest(&self, at: usize) -> &[u32] {
        let bounds = self.bounds[at];
        &self.earlier[bounds.rest as usize..bounds.end as usize]
    }
}

/// Cycles that an instruction takes.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Its memory access, beyond one cycle.
    pub access: u32,
    pub operation: u32,
}

impl Latency {
    pub const UNIT: Self = Self {
        access: 0,
        operation: 1,
    };
}

/// Buffers that are reused between captures.
#[derive(Default)]
pub struct Flow {
    done: Vec<Times>,
    retired: Vec<Times>,
}

impl Flow {
    /// Cycles for each window when instructions take what `latency` says.
    pub fn cycles(&mut self, waits: &Waits, latency: impl Fn(usize) -> Latency) -> Times {
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

    /// Rounds for each window when the accesses marked in `misses` take one and everything else takes no time.
    pub fn rounds(&mut self, waits: &Waits, misses: &[bool]) -> Times {
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

    /// Runs `count` instructions; `finish` turns the time at which one enters the window into the time at which it is done.
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

    /// When the instruction enters each window.
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

    fn waits(count: usize, mut of: impl FnMut(usize) -> Vec<u32>) -> Waits {
        let mut waits = Waits::default();
        (0..count).for_each(|at| waits.push(&[], &of(at), &[]));
        waits
    }

    #[test]
    fn a_chain_runs_one_per_cycle_whatever_the_window() {
        let chain = waits(4096, |at| if at > 0 { vec![at as u32 - 1] } else { vec![] });
        assert_eq!(
            Flow::default().cycles(&chain, |_| Latency::UNIT)[..6],
            [4096; 6]
        );
    }

    #[test]
    fn independent_instructions_fill_the_window() {
        let free = waits(4096, |_| vec![]);
        assert_eq!(
            Flow::default().cycles(&free, |_| Latency::UNIT)[..6],
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
            Flow::default().cycles(&chains, |_| Latency::UNIT)[..6],
            [1024; 6]
        );
    }

    #[test]
    fn dependent_misses_take_a_round_each() {
        // A pointer chase: load, then three instructions that hang on it.
        let chase = waits(4096, |at| {
            if at >= 4 {
                vec![(at & !3) as u32 - 4]
            } else {
                vec![]
            }
        });
        let misses: Vec<bool> = (0..4096).map(|at| at % 4 == 0).collect();
        assert_eq!(Flow::default().rounds(&chase, &misses)[..6], [1024; 6]);
    }

    #[test]
    fn independent_misses_overlap_as_far_as_the_window_reaches() {
        let free = waits(4096, |_| vec![]);
        let misses: Vec<bool> = (0..4096).map(|at| at % 8 == 0).collect();
        assert_eq!(
            Flow::default().rounds(&free, &misses)[..6],
            [256, 128, 64, 32, 16, 8]
        );
    }

    #[test]
    fn a_sum_waits_for_the_loads_but_the_loads_do_not_wait_for_the_sum() {
        let mut sum = Waits::default();
        (0..4096u32)
            .for_each(|at| sum.push(&[], &[], &[at.saturating_sub(1)][..at.min(1) as usize]));
        let mut flow = Flow::default();
        assert_eq!(flow.cycles(&sum, |_| Latency::UNIT)[5], 4096);
        assert_eq!(flow.rounds(&sum, &[true; 4096])[5], 8);
    }

    #[test]
    fn waiting_for_a_line_counts_only_for_misses() {
        // Every eighth instruction misses; the fourth after it uses the line and leads to the next miss.
        let mut waits = Waits::default();
        for at in 0..4096u32 {
            match at % 8 {
                0 if at > 0 => waits.push(&[], &[at - 4], &[]),
                4 => waits.push(&[at - 4], &[], &[]),
                _ => waits.push(&[], &[], &[]),
            }
        }
        let misses: Vec<bool> = (0..4096).map(|at| at % 8 == 0).collect();
        let mut flow = Flow::default();
        assert_eq!(flow.rounds(&waits, &misses)[5], 512);
        assert_eq!(flow.cycles(&waits, |_| Latency::UNIT)[5], 16);
    }
}
