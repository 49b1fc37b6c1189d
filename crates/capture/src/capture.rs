//! Captured instruction sequences, and the parallelism that their data dependencies allow.
//!
//! Input: blocks and data accesses in order of execution. Output: sums of cycles, misses and rounds, added to a window's record.
//! An instruction depends on the last writers of the registers it reads, and on the last store to the eight bytes it loads. A
//! hit depends on the miss that fetches its line.

use countersteer_model::profile::REFERENCE_LOAD_CYCLES;

use crate::block::{InsnFlow, TranslatedBlock};
use crate::flow::{FlowBuffers, InsnLatency, MemoryWaits};
use crate::layout::{ILP_WINDOWS, MLP_LINES, record};
use crate::memo::Memo;
use crate::resolution::resolution;

/// Instructions per capture: several times the largest window, so that filling and draining have little weight.
pub const LENGTH: usize = 4096;
const REGISTERS: usize = 64;
/// Stack distance of a line that was never touched before.
pub const COLD: u64 = u64::MAX;

/// Data access of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Position of its instruction in the capture.
    pub at: u32,
    /// Number of eight-byte granules.
    pub parts: u32,
    pub address: u64,
    /// Stack distance of its line, or [`COLD`].
    pub distance: u64,
    pub store: bool,
}

/// Capture in progress, with the buffers of its analysis.
pub struct Capture {
    insns: Vec<InsnFlow>,
    accesses: Vec<Access>,
    /// True for each instruction that loads.
    loads: Vec<bool>,
    /// Positions of mispredicted branches.
    wrong: Vec<u32>,
    taken: u64,
    /// Address that follows the last instruction if no branch is taken.
    after: u64,
    base: u32,
    waits: MemoryWaits,
    flow: FlowBuffers,
    stores: Memo,
    fetches: Memo,
}

impl Capture {
    pub fn new() -> Self {
        Self {
            insns: Vec::with_capacity(2 * LENGTH),
            accesses: Vec::with_capacity(2 * LENGTH),
            loads: Vec::with_capacity(2 * LENGTH),
            wrong: Vec::new(),
            taken: 0,
            after: 0,
            base: 0,
            waits: MemoryWaits::default(),
            flow: FlowBuffers::default(),
            stores: Memo::new(),
            fetches: Memo::new(),
        }
    }

    pub fn clear(&mut self) {
        self.insns.clear();
        self.accesses.clear();
        self.wrong.clear();
        self.taken = 0;
        self.base = 0;
    }

    /// True if the sequence is long enough.
    pub fn is_complete(&self) -> bool {
        self.insns.len() >= LENGTH
    }

    /// Adds the next block. `mispredicted` is true if the branch of the previous block was mispredicted.
    pub fn block(&mut self, block: &TranslatedBlock, mispredicted: bool) {
        self.base = self.insns.len() as u32;
        if let Some(last) = self.base.checked_sub(1) {
            self.taken += u64::from(block.pc != self.after);
            self.wrong.extend(mispredicted.then_some(last));
        }
        self.after = block.after;
        self.insns.extend_from_slice(&block.insns);
    }

    /// Adds an access of the instruction at `index` of the current block to `parts` granules from `address` on.
    pub fn access(&mut self, index: u32, parts: u32, address: u64, distance: u64, store: bool) {
        let last = (self.insns.len() as u32).saturating_sub(1);
        self.accesses.push(Access {
            at: self.base.saturating_add(index).min(last),
            parts,
            address,
            distance,
            store,
        });
    }

    /// Analyses the sequence and adds the results to a record.
    pub fn finish(&mut self, into: &mut [u64]) {
        self.link();
        into[record::CAPTURES] += 1;
        into[record::SAMPLED] += self.insns.len() as u64;
        into[record::TAKEN] += self.taken;
        into[record::RESOLVED] += self.wrong.len() as u64;
        for insn in &self.insns {
            into[record::FUSED] += u64::from(insn.fused);
            if let Some(operation) = insn.operation {
                into[record::OPERATIONS + operation as usize] += 1;
            }
        }
        self.add_cycles(into);
        self.add_rounds(into);
        self.clear();
    }

    /// Adds the cycles of the sequence and of its mispredictions, for each latency model: unit latency, slow loads, slow loads
    /// and operations.
    fn add_cycles(&mut self, into: &mut [u64]) {
        self.loads.clear();
        self.loads.resize(self.insns.len(), false);
        for access in self.accesses.iter().filter(|a| !a.store) {
            self.loads[access.at as usize] = true;
        }
        let (insns, loads) = (&self.insns, &self.loads);
        let access = |at: usize| u32::from(REFERENCE_LOAD_CYCLES - 1) * u32::from(loads[at]);
        let operation = |at: usize| {
            let operation = insns[at].operation;
            operation.map_or(1, |o| u32::from(o.reference_cycles()))
        };
        let runs: [(usize, &dyn Fn(usize) -> InsnLatency); 3] = [
            (record::ILP_CYCLES, &|_| InsnLatency::UNIT),
            (record::LOAD_CYCLES, &|at| InsnLatency {
                access: access(at),
                operation: 1,
            }),
            (record::OPERATION_CYCLES, &|at| InsnLatency {
                access: access(at),
                operation: operation(at),
            }),
        ];
        for (run, (field, latency)) in runs.into_iter().enumerate() {
            let cycles = self.flow.cycles(&self.waits, latency);
            for (lane, _) in ILP_WINDOWS.iter().enumerate() {
                into[field + lane] += u64::from(cycles[lane]);
                if run == 0 {
                    into[record::ILP_SQUARES + lane] += u64::from(cycles[lane]).pow(2);
                }
            }
            into[record::RESOLUTION + run] += resolution(&self.waits, &self.wrong, latency);
        }
    }

    /// Adds the misses of each cache size, and their rounds.
    fn add_rounds(&mut self, into: &mut [u64]) {
        let mut misses = vec![false; self.insns.len()];
        let mut known = None;
        for (size, lines) in MLP_LINES.iter().enumerate() {
            let long = self.accesses.iter().filter(|a| a.distance >= *lines);
            let count = long.clone().count() as u64;
            if count == 0 {
                // Larger caches have no misses either.
                return;
            }
            // Equal numbers are the same misses: those of a larger cache are among those of a smaller one.
            let rounds = match known {
                Some((before, rounds)) if before == count => rounds,
                _ => {
                    misses.fill(false);
                    long.for_each(|a| misses[a.at as usize] = true);
                    self.flow.rounds(&self.waits, &misses)
                }
            };
            known = Some((count, rounds));
            into[record::MLP_MISSES + size] += count;
            for (lane, _) in ILP_WINDOWS.iter().enumerate() {
                into[record::MLP_ROUNDS + size * ILP_WINDOWS.len() + lane] +=
                    u64::from(rounds[lane]);
            }
        }
    }

    /// Links each instruction to the earlier ones it depends on.
    fn link(&mut self) {
        self.waits.clear();
        self.stores.clear();
        self.fetches.clear();
        let mut writers = [u32::MAX; REGISTERS];
        let mut line = Vec::with_capacity(4);
        let mut address = Vec::with_capacity(8);
        let mut rest = Vec::with_capacity(8);
        let mut accesses = self.accesses.as_slice();
        for (at, insn) in self.insns.iter().enumerate() {
            line.clear();
            address.clear();
            rest.clear();
            add_writers(insn.address, &writers, &mut address);
            add_writers(insn.reads, &writers, &mut rest);
            let own = accesses.iter().take_while(|a| a.at as usize <= at).count();
            let (mine, others) = accesses.split_at(own);
            mine.iter()
                .filter(|a| !a.store)
                .for_each(|a| add_stores(a, &self.stores, &mut address));
            mine.iter().for_each(|a| {
                line.extend(
                    self.fetches
                        .get(a.address >> 6)
                        .filter(|earlier| (*earlier as usize) < at),
                )
            });
            mine.iter()
                .for_each(|a| note(a, &mut self.stores, &mut self.fetches));
            self.waits.push(&line, &address, &rest);
            set_writers(insn.writes, &mut writers, at as u32);
            accesses = others;
        }
    }
}

fn add_writers(mut reads: u64, writers: &[u32; REGISTERS], flow: &mut Vec<u32>) {
    while reads != 0 {
        let writer = writers[reads.trailing_zeros() as usize];
        if writer != u32::MAX {
            flow.push(writer);
        }
        reads &= reads - 1;
    }
}

fn set_writers(mut writes: u64, writers: &mut [u32; REGISTERS], at: u32) {
    while writes != 0 {
        writers[writes.trailing_zeros() as usize] = at;
        writes &= writes - 1;
    }
}

fn add_stores(access: &Access, stores: &Memo, flow: &mut Vec<u32>) {
    for part in 0..u64::from(access.parts) {
        flow.extend(
            stores
                .get((access.address >> 3) + part)
                .filter(|earlier| *earlier < access.at),
        );
    }
}

fn note(access: &Access, stores: &mut Memo, fetches: &mut Memo) {
    if access.store {
        for part in 0..u64::from(access.parts) {
            stores.set((access.address >> 3) + part, access.at);
        }
    }
    if access.distance >= MLP_LINES[0] {
        fetches.set(access.address >> 6, access.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: usize, insn: impl Fn(usize) -> (InsnFlow, Option<(u64, u64, bool)>)) -> Vec<u64> {
        let mut capture = Capture::new();
        for at in 0..count {
            let (insn, access) = insn(at);
            let block = TranslatedBlock {
                insns: Box::new([insn]),
                count: 1,
                ..TranslatedBlock::default()
            };
            capture.block(&block, false);
            if let Some((address, distance, store)) = access {
                capture.access(0, 1, address, distance, store);
            }
        }
        let mut record = vec![0; record::WORDS];
        capture.finish(&mut record);
        record
    }

    fn overlap(record: &[u64], size: usize, window: usize) -> f64 {
        record[record::MLP_MISSES + size] as f64
            / record[record::MLP_ROUNDS + size * ILP_WINDOWS.len() + window] as f64
    }

    #[test]
    fn registers_carry_dependencies() {
        let chain = run(4096, |_| {
            (
                InsnFlow {
                    address: 0,
                    reads: 1,
                    writes: 1,
                    ..InsnFlow::default()
                },
                None,
            )
        });
        assert_eq!(chain[record::ILP_CYCLES], 4096);
        let pair = run(4096, |at| {
            (
                InsnFlow {
                    address: 0,
                    reads: 1 << (at % 2),
                    writes: 1 << (at % 2),
                    ..InsnFlow::default()
                },
                None,
            )
        });
        assert_eq!(pair[record::ILP_CYCLES], 2048);
    }

    #[test]
    fn memory_carries_dependencies_from_store_to_load() {
        // load r0 from X; store r0 to X: a dependency chain through memory.
        let spilled = run(4096, |at| {
            let insn = if at % 2 == 0 {
                InsnFlow {
                    writes: 1,
                    ..InsnFlow::default()
                }
            } else {
                InsnFlow {
                    reads: 1,
                    ..InsnFlow::default()
                }
            };
            (insn, Some((0x1000, 0, at % 2 == 1)))
        });
        assert_eq!(spilled[record::ILP_CYCLES + 5], 4096);
    }

    #[test]
    fn a_pointer_chase_never_overlaps_and_a_stream_does() {
        let chase = run(4096, |at| {
            (
                InsnFlow {
                    address: 1,
                    reads: 0,
                    writes: 1,
                    ..InsnFlow::default()
                },
                (at % 4 == 0).then_some((at as u64 * 4096, 1 << 16, false)),
            )
        });
        assert!((overlap(&chase, 0, 5) - 1.0).abs() < 1e-9);
        assert_eq!(chase[record::MLP_MISSES + 4], 0, "none beyond the distance");
        let stream = run(4096, |at| {
            (
                InsnFlow {
                    address: 0,
                    reads: 2,
                    writes: 2,
                    ..InsnFlow::default()
                },
                (at % 8 == 0).then_some((at as u64 * 64, COLD, false)),
            )
        });
        assert!(overlap(&stream, 6, 5) > 30.0);
    }

    #[test]
    fn a_hit_on_a_line_under_way_waits_for_it() {
        // Node: the first load misses in a field; the pointer on the same line hits and leads to the next node.
        let list = run(4096, |at| {
            let node = (at / 2) as u64 * 4096;
            match at % 2 {
                0 => (
                    InsnFlow {
                        address: 1,
                        reads: 0,
                        writes: 2,
                        ..InsnFlow::default()
                    },
                    Some((node, 1 << 14, false)),
                ),
                _ => (
                    InsnFlow {
                        address: 1,
                        reads: 0,
                        writes: 1,
                        ..InsnFlow::default()
                    },
                    Some((node + 8, 0, false)),
                ),
            }
        });
        assert!((overlap(&list, 0, 5) - 1.0).abs() < 0.01);
    }
}
