//! Architectural signatures: what a program would miss in any cache, carried by the program.
//!
//! Source: HASS, section 3. Input: a miss curve, taken once on any machine. Output: the completion time on a core class, up to
//! a factor that is the same for all classes.

use crate::topology::Topology;
use crate::units::CpuId;

/// Cache sizes of a signature: 16 KiB to 16 MiB by powers of two.
pub const SIZES: usize = 11;
const SMALLEST_BYTES: f64 = 16384.0;
/// Lines of the smallest cache.
pub const SMALLEST_LINES: u64 = 256;
/// Associativities of a signature.
pub const WAYS: [u32; 4] = [4, 8, 16, 32];
/// Instructions that misses are counted over.
pub const PER_INSTRUCTIONS: f64 = 4096.0;
/// Cycles per instruction without misses: the paper's constant.
const BASE_CPI: f64 = 1.5;
const LINE_BYTES: f64 = 64.0;

/// Misses per 4,096 instructions, by cache size and associativity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    misses: [[u16; WAYS.len()]; SIZES],
}

impl Signature {
    /// The signature of a program with these misses per instruction in a cache of so many lines and ways.
    pub fn new(misses_per_instruction: impl Fn(f64, u32) -> f64) -> Self {
        let mut misses = [[0; WAYS.len()]; SIZES];
        for (size, row) in misses.iter_mut().enumerate() {
            let lines = SMALLEST_BYTES * (size as f64).exp2() / LINE_BYTES;
            for (cell, ways) in row.iter_mut().zip(WAYS) {
                let rate = misses_per_instruction(lines, ways) * PER_INSTRUCTIONS;
                *cell = rate.round().clamp(0.0, f64::from(u16::MAX)) as u16;
            }
        }
        Self { misses }
    }

    /// The signature that holds these misses per 4,096 instructions, by size and associativity.
    #[must_use]
    pub const fn of_counts(misses: [[u16; WAYS.len()]; SIZES]) -> Self {
        Self { misses }
    }

    /// Misses per 4,096 instructions, by size and associativity.
    #[must_use]
    pub const fn counts(&self) -> &[[u16; WAYS.len()]; SIZES] {
        &self.misses
    }

    /// Misses per 4,096 instructions in a cache: between sizes by the logarithm of the size, of the nearest associativity.
    #[must_use]
    pub fn misses(&self, bytes: f64, ways: u32) -> f64 {
        let column = (0..WAYS.len()).min_by_key(|c| WAYS[*c].abs_diff(ways));
        let column = column.unwrap_or_default();
        let place = (bytes / SMALLEST_BYTES).log2();
        let place = place.clamp(0.0, (SIZES - 1) as f64);
        let below = place.floor() as usize;
        let above = (below + 1).min(SIZES - 1);
        let cell = |row: usize| f64::from(self.misses[row][column]);
        cell(below) + (cell(above) - cell(below)) * (place - below as f64)
    }

    /// Seconds per instruction on a CPU's core; `shared` divides the last-level cache by the cores under it, otherwise the last
    /// cache that the core has to itself counts.
    #[must_use]
    pub fn seconds_per_instruction(&self, topology: &Topology, cpu: CpuId, shared: bool) -> f64 {
        let row = &topology.cpus[cpu.index()];
        let clock_hz = topology.core_types[row.core_type.index()].freq_ghz * 1e9;
        let latency_s = topology.memory[row.memory as usize].latency_ns * 1e-9;
        let (bytes, ways) = cache_of(topology, cpu, shared);
        BASE_CPI / clock_hz + self.misses(bytes, ways) / PER_INSTRUCTIONS * latency_s
    }
}

/// Bytes and ways of the cache that a signature is looked up for.
fn cache_of(topology: &Topology, cpu: CpuId, shared: bool) -> (f64, u32) {
    let row = &topology.cpus[cpu.index()];
    let cores_under = |cache: &crate::topology::Cache| {
        let mut cores: Vec<u32> = cache
            .cpus
            .iter()
            .map(|c| topology.cpus[c.index()].core)
            .collect();
        cores.dedup();
        cores.len().max(1)
    };
    let caches = row.caches.iter().map(|c| &topology.caches[c.index()]);
    let candidates = caches.filter(|c| shared || cores_under(c) == 1);
    let largest = candidates.max_by(|a, b| a.level.cmp(&b.level));
    let core_type = &topology.core_types[row.core_type.index()];
    let own = core_type.l2.as_ref().unwrap_or(&core_type.l1d);
    largest.map_or((own.size_kib * 1024.0, own.ways), |c| {
        (c.lines * LINE_BYTES / cores_under(c) as f64, c.ways)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_signature_of_art_gives_the_ratio_of_the_paper() {
        // 424 misses with 512 KiB and 16 ways, 100 ns: 47.74 us at 1.15 GHz and 45.07 us at 2.3 GHz per 4,096 instructions.
        let art = Signature::new(|_, _| 424.0 / 4096.0);
        let us = |ghz: f64| {
            let cpu = 4096.0 * BASE_CPI / (ghz * 1e3);
            cpu + art.misses(524_288.0, 16) * 0.1
        };
        assert!((us(1.15) - 47.74).abs() < 0.01, "{}", us(1.15));
        assert!((us(2.3) - 45.07).abs() < 0.01, "{}", us(2.3));
        assert!((us(1.15) / us(2.3) - 1.059).abs() < 0.001);
    }

    #[test]
    fn misses_between_two_sizes_lie_between_theirs() {
        let halves = Signature::new(|lines, _| 0.1 * 256.0 / lines);
        let (small, large) = (halves.misses(32_768.0, 8), halves.misses(65_536.0, 8));
        let between = halves.misses(46_341.0, 8);
        assert!((between - (small + large) / 2.0).abs() < 0.1, "{between}");
    }
}
