//! Aggregation of samples by thread, process, CPU or in total.
//!
//! Input: the samples of one period. Output: samples with fewer rows. Samples of different event sets or core types are
//! never summed: two sets count over different intervals, and an event may have another meaning on another core type.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::sample::{Owner, Sample, Samples};

/// Key by which the rows of samples are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Thread,
    Process,
    Cpu,
    Total,
}

/// Aggregator of samples. Buffers are reused from call to call.
#[derive(Debug)]
pub struct Fold {
    per: Per,
    rows: FxHashMap<(Owner, Option<u32>, u32, u32), usize>,
    sums: Samples,
}

impl Fold {
    /// Creates an aggregator that sums rows by thread, process, CPU or in total.
    #[must_use]
    pub fn new(per: Per) -> Self {
        Self {
            per,
            rows: FxHashMap::default(),
            sums: Samples::default(),
        }
    }

    /// Returns the sums of `samples`. A sum's row stands where the first sample in this sum stood.
    pub fn fold(&mut self, samples: &Samples) -> &Samples {
        self.rows.clear();
        self.sums.clear();
        self.add(samples);
        &self.sums
    }

    /// Adds samples to the sums of the previous calls.
    pub fn add(&mut self, samples: &Samples) {
        for row in samples.iter() {
            let owner = self.owner(&row);
            let cpu = row.cpu.filter(|_| self.per == Per::Cpu);
            let key = (owner, cpu.map(|c| c.0), row.core_type.0, row.set);
            match self.rows.entry(key) {
                Entry::Occupied(known) => self.sums.add_row(*known.get(), row),
                Entry::Vacant(new) => {
                    new.insert(self.sums.rows().len());
                    // The row of a thread keeps the CPU of its last sample. Other rows span several CPUs.
                    let cpu = if self.per == Per::Thread {
                        row.cpu
                    } else {
                        cpu
                    };
                    self.sums
                        .push_with(Sample { owner, cpu, ..*row }, row.counts);
                }
            }
        }
    }

    /// Returns the sums since the last call of [`Self::fold`].
    #[must_use]
    pub const fn sums(&self) -> &Samples {
        &self.sums
    }

    const fn owner(&self, row: &Sample) -> Owner {
        match (self.per, row.owner) {
            (Per::Thread, owner)
            | (
                Per::Process,
                owner @ (Owner::Rest | Owner::Cpu | Owner::Total | Owner::Process { .. }),
            ) => owner,
            (Per::Process, Owner::Thread { pid, .. }) => Owner::Process { pid },
            (Per::Cpu, _) => Owner::Cpu,
            (Per::Total, _) => Owner::Total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{CoreTypeId, CpuId, Nanos};

    fn sample(tid: u32, cpu: u32, core_type: u32, enabled: u64) -> Sample {
        let owner = Owner::Thread { pid: 1, tid };
        Sample {
            enabled: Nanos(enabled),
            present: 1,
            ..Sample::new(owner, Some(CpuId(cpu)), CoreTypeId(core_type), 0)
        }
    }

    fn samples() -> Samples {
        let mut samples = Samples::default();
        for (row, value) in [
            (sample(1, 0, 0, 10), 1.0),
            (sample(2, 1, 0, 10), 2.0),
            (sample(1, 1, 0, 10), 4.0),
            (sample(1, 2, 1, 5), 8.0),
        ] {
            samples.push(row, [value]);
        }
        samples
    }

    fn folded(per: Per) -> Vec<(u64, u64)> {
        let mut fold = Fold::new(per);
        let sums = fold.fold(&samples()).clone();
        (0..sums.rows().len())
            .map(|i| (sums.values(i)[0] as u64, sums.rows()[i].enabled.0))
            .collect()
    }

    #[test]
    fn core_types_are_never_added_up() {
        assert_eq!(folded(Per::Thread), [(5, 20), (2, 10), (8, 5)]);
        assert_eq!(folded(Per::Process), [(7, 30), (8, 5)]);
        assert_eq!(folded(Per::Total), [(7, 30), (8, 5)]);
        assert_eq!(folded(Per::Cpu), [(1, 10), (6, 20), (8, 5)]);
    }
}
