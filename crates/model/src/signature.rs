//! Architectural signatures: the misses of a program in caches of many sizes, stored with the program.
//!
//! Source: HASS, section 3. Input: a miss curve, recorded once on any machine. Output: the completion time on each core class,
//! up to a common factor.

use crate::topology::{Cache, Topology};
use crate::units::CpuId;

/// Number of cache sizes in a signature: 16 KiB to 16 MiB in powers of two.
pub const SIZES: usize = 11;
/// Size of the smallest cache of a signature, in bytes.
pub const SMALLEST_BYTES: f64 = 16384.0;
/// Size of the smallest cache of a signature, in lines.
pub const SMALLEST_LINES: u64 = 256;
/// Associativities of the caches of a signature.
pub const WAYS: [u32; 4] = [4, 8, 16, 32];
/// Number of instructions to which the misses of a signature refer.
pub const PER_INSTRUCTIONS: f64 = 4096.0;
/// Cycles per instruction without misses, a constant in the paper.
const BASE_CPI: f64 = 1.5;
/// Size of a cache line in bytes.
pub const LINE_BYTES: f64 = 64.0;

/// Architectural signature: misses per 4,096 instructions by cache size and associativity.
///
/// ```
/// use countersteer_model::signature::Signature;
///
/// // A program that fits into 16,384 lines (1 MiB) whatever the ways, and misses 20 times in 1,000 instructions below.
/// let signature = Signature::new(|lines, _ways| if lines < 16384.0 { 0.02 } else { 0.0 });
/// assert!(signature.misses(65536.0, 8) > 0.0);
/// assert_eq!(signature.misses(4194304.0, 8), 0.0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    misses: [[u16; WAYS.len()]; SIZES],
}

impl Signature {
    /// Creates the signature of a program. The function returns misses per instruction, given the lines and ways of a cache.
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

    /// Creates a signature from misses per 4,096 instructions, by cache size and associativity.
    #[must_use]
    pub const fn of_counts(misses: [[u16; WAYS.len()]; SIZES]) -> Self {
        Self { misses }
    }

    /// Returns the misses per 4,096 instructions, by cache size and associativity.
    #[must_use]
    pub const fn counts(&self) -> &[[u16; WAYS.len()]; SIZES] {
        &self.misses
    }

    /// Returns the misses per 4,096 instructions by cache size, for the associativity of the signature that is nearest to
    /// `ways`.
    #[must_use]
    pub fn by_size(&self, ways: u32) -> [f64; SIZES] {
        let column = nearest(ways);
        self.misses.map(|row| f64::from(row[column]))
    }

    /// Returns the misses per 4,096 instructions in a cache. Values are interpolated in the logarithm of the size, for the
    /// nearest associativity.
    #[must_use]
    pub fn misses(&self, bytes: f64, ways: u32) -> f64 {
        let column = nearest(ways);
        let place = (bytes / SMALLEST_BYTES).log2();
        let place = place.clamp(0.0, (SIZES - 1) as f64);
        let below = place.floor() as usize;
        let above = (below + 1).min(SIZES - 1);
        let cell = |row: usize| f64::from(self.misses[row][column]);
        cell(below) + (cell(above) - cell(below)) * (place - below as f64)
    }

    /// Returns the seconds per instruction on a core, as HASS computes them: every miss of the core's last private cache has
    /// the latency of memory.
    #[must_use]
    pub fn seconds(&self, core: &CoreTraits) -> f64 {
        let (bytes, ways) = core.own;
        let far = self.misses(bytes, ways) * core.memory_latency_s;
        BASE_CPI / core.clock_hz + far / PER_INSTRUCTIONS
    }

    /// Returns the seconds per instruction with `bytes` bytes of the last-level cache. Hits have the latency of that cache.
    /// Misses have that of memory: `queue` times the latency of idle memory.
    #[must_use]
    pub fn seconds_with(&self, core: &CoreTraits, bytes: f64, queue: f64) -> f64 {
        let near = self.misses(core.inner.0, core.inner.1);
        let far = self.far_misses(core, bytes);
        let waits =
            (near - far).max(0.0) * core.last.latency_s + far * core.memory_latency_s * queue;
        BASE_CPI / core.clock_hz + waits / PER_INSTRUCTIONS
    }

    /// Returns the misses per 4,096 instructions that go to memory if the program has `bytes` bytes of the last-level cache.
    #[must_use]
    pub fn far_misses(&self, core: &CoreTraits, bytes: f64) -> f64 {
        let (own, ways) = core.inner;
        let far = self.misses(bytes.max(own), core.last.ways);
        far.min(self.misses(own, ways))
    }
}

/// Returns the index in [`WAYS`] of the associativity nearest to `ways`.
fn nearest(ways: u32) -> usize {
    let column = (0..WAYS.len()).min_by_key(|c| WAYS[*c].abs_diff(ways));
    column.unwrap_or_default()
}

/// Properties of a core and its caches that determine a signature's completion time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreTraits {
    /// Clock frequency of the core in Hz.
    pub clock_hz: f64,
    /// Latency of a miss of the last-level cache, in seconds.
    pub memory_latency_s: f64,
    /// Bandwidth from memory in bytes per second for the cores of the last-level cache: their fraction of the memory domain.
    pub memory_bytes_per_s: f64,
    /// Strength of queueing at memory; see [`crate::corun::LoadedMemory`].
    pub queueing: f64,
    /// Bytes and ways of the core's last private cache.
    pub own: (f64, u32),
    /// Bytes and ways of the cache before the last-level cache. For a cache shared by a few cores, the bytes of one core.
    pub inner: (f64, u32),
    /// Properties of the last-level cache.
    pub last: LastCache,
}

/// Properties of a last-level cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastCache {
    /// Size in bytes.
    pub bytes: f64,
    /// Associativity of the cache.
    pub ways: u32,
    /// Latency of a hit, in seconds.
    pub latency_s: f64,
    /// Number of cores that share the cache.
    pub cores: usize,
}

impl CoreTraits {
    /// Returns the properties of the core and caches of a CPU.
    #[must_use]
    pub fn of(topology: &Topology, cpu: CpuId) -> Self {
        let row = &topology.cpus[cpu.index()];
        let core_type = &topology.core_types[row.core_type.index()];
        let within = core_type.l2.as_ref().unwrap_or(&core_type.l1d);
        let within = (within.size_kib * 1024.0, within.ways);
        let caches: Vec<&Cache> = row
            .caches
            .iter()
            .map(|c| &topology.caches[c.index()])
            .collect();
        let alone = |cache: &&&Cache| cores_under(topology, cache) == 1;
        let own = caches.iter().rfind(alone);
        let before_last = caches.len().saturating_sub(2);
        let part = |c: &&Cache| {
            let cores = cores_under(topology, c) as f64;
            (c.lines * LINE_BYTES / cores, c.ways)
        };
        let inner = (caches.len() > 1).then(|| part(&caches[before_last]));
        let last = caches.last().map_or(
            LastCache {
                bytes: within.0,
                ways: within.1,
                latency_s: 0.0,
                cores: 1,
            },
            |c| LastCache {
                bytes: c.lines * LINE_BYTES,
                ways: c.ways,
                latency_s: c.latency_ns * 1e-9,
                cores: cores_under(topology, c),
            },
        );
        let memory = &topology.memory[row.memory as usize];
        let of_last = caches.last().map_or(1, |c| c.cpus.len());
        let part_of_domain = of_last as f64 / memory.cpus.len().max(1) as f64;
        Self {
            clock_hz: core_type.freq_ghz * 1e9,
            memory_latency_s: memory.latency_ns * 1e-9,
            memory_bytes_per_s: memory.bandwidth_gb_s * 1e9 * part_of_domain.min(1.0),
            queueing: memory.queueing,
            own: own.map_or(within, |c| (c.lines * LINE_BYTES, c.ways)),
            inner: inner.filter(|i| i.0 > within.0).unwrap_or(within),
            last,
        }
    }
}

/// Returns the number of cores that share a cache.
fn cores_under(topology: &Topology, cache: &Cache) -> usize {
    let mut cores: Vec<u32> = cache
        .cpus
        .iter()
        .map(|c| topology.cpus[c.index()].core)
        .collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len().max(1)
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
