//! Division of a last-level cache among the threads under it, predicted from their signatures.
//!
//! Input: signatures, cores, and the fraction of a core that each thread has. Output: the bytes of the cache that each thread
//! holds, and its speed with them.
//!
//! A thread that holds b bytes brings in new bytes at the rate of its misses in a cache of b bytes. This gives the time that it
//! takes to touch any number of bytes. The misses of all threads load memory. Speeds depend on bytes and latency
//! ([`countersteer_model::corun`]) and vice versa, so they are found by iteration.

use countersteer_model::corun::{EvictionAge, Footprint, LoadedMemory};
use countersteer_model::signature::{
    CoreTraits, LINE_BYTES, PER_INSTRUCTIONS, SIZES, SMALLEST_BYTES, Signature,
};

/// Number of iterations over bytes, latency and speeds.
const TURNS: usize = 5;
/// Search for eviction ages in seconds: from a few misses to no evictions at all.
const AGE: EvictionAge = EvictionAge {
    range: (1e-7, 1e4),
    steps: 19,
    near: 0.0,
    apart: 0.0,
};
/// Limit on the utilisation of memory, above which the latency does not grow.
const FULL: f64 = 0.95;

/// Thread that shares a last-level cache with others.
pub(super) struct Sharer<'a> {
    pub signature: Option<&'a Signature>,
    pub core: &'a CoreTraits,
    /// Fraction of a core that the thread has.
    pub load: f64,
}

/// Returns the predicted seconds per instruction of each thread in a cache of `bytes` bytes. `None` for threads without a
/// signature, which are assumed to hold no lines.
pub(super) fn seconds(sharers: &[Sharer<'_>], bytes: f64) -> Vec<Option<f64>> {
    let at = |parts: &[f64], queue: f64| -> Vec<Option<f64>> {
        let each = sharers.iter().zip(parts);
        each.map(|(s, part)| Some(s.signature?.seconds_with(s.core, *part, queue)))
            .collect()
    };
    let mut parts = vec![bytes; sharers.len()];
    let mut queue = 1.0;
    for _ in 0..TURNS {
        let speeds = at(&parts, queue);
        let fills: Vec<Footprint> = sharers
            .iter()
            .zip(&speeds)
            .map(|(s, seconds)| s.footprint(*seconds))
            .collect();
        let filled = |age: f64| (fills.iter().map(|f| f.after(age)).sum::<f64>(), None);
        let age = AGE.of(bytes, AGE.range.1, filled);
        for (part, fill) in parts.iter_mut().zip(&fills) {
            // Only half of each change is applied (damping), because a thread that holds more runs faster and so holds even
            // more.
            *part = f64::midpoint(*part, fill.after(age).min(bytes));
        }
        queue = f64::midpoint(queue, wait(sharers, &parts, &speeds));
    }
    at(&parts, queue)
}

/// Returns the latency of memory relative to that of idle memory, given the misses of all threads.
fn wait(sharers: &[Sharer<'_>], parts: &[f64], seconds: &[Option<f64>]) -> f64 {
    let asked = |((s, part), seconds): ((&Sharer<'_>, &f64), &Option<f64>)| {
        let misses = s.signature?.far_misses(s.core, *part) / PER_INSTRUCTIONS;
        Some(misses * LINE_BYTES * s.load / (*seconds)?)
    };
    let each = sharers.iter().zip(parts).zip(seconds);
    let bytes_per_s: f64 = each.filter_map(asked).sum();
    let memory = sharers.first().map(|s| LoadedMemory {
        bandwidth: s.core.memory_bytes_per_s.max(1.0),
        queueing: s.core.queueing,
        full: FULL,
    });
    memory.map_or(1.0, |memory| memory.factor(bytes_per_s))
}

impl Sharer<'_> {
    /// Returns the bytes that the thread touches by time in seconds, given its seconds per instruction; none without a signature.
    fn footprint(&self, seconds: Option<f64>) -> Footprint {
        let sizes = std::array::from_fn(|size| SMALLEST_BYTES * (size as f64).exp2());
        let misses = self
            .signature
            .map_or([0.0; SIZES], |s| s.by_size(self.core.last.ways));
        let per_miss = seconds.map_or(0.0, |s| LINE_BYTES * self.load / s / PER_INSTRUCTIONS);
        // A thread that holds between two sizes of the signature misses as often as on average in both.
        let rate = |size: usize| f64::midpoint(misses[size.saturating_sub(1)], misses[size]);
        let rates: [f64; SIZES] = std::array::from_fn(|size| rate(size) * per_miss);
        Footprint::new(sizes, rates, misses[SIZES - 1] * per_miss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing;
    use countersteer_model::units::CpuId;

    const MIB: f64 = 1048576.0;

    fn core() -> CoreTraits {
        CoreTraits::of(&testing::topology(testing::TWO_LLCS), CpuId(0))
    }

    /// Signature with `always` misses per instruction at every size, and `below` more under a size of `mib`.
    fn signature(always: f64, below: f64, mib: f64) -> Signature {
        Signature::new(|lines, _| {
            always
                + if lines * LINE_BYTES < mib * MIB {
                    below
                } else {
                    0.0
                }
        })
    }

    fn times(signatures: &[&Signature], bytes: f64) -> Vec<f64> {
        let core = core();
        let sharers: Vec<Sharer<'_>> = signatures
            .iter()
            .map(|s| Sharer {
                signature: Some(s),
                core: &core,
                load: 1.0,
            })
            .collect();
        seconds(&sharers, bytes)
            .into_iter()
            .map(Option::unwrap)
            .collect()
    }

    #[test]
    fn equal_sharers_have_equal_parts_and_one_alone_has_all() {
        let fits = signature(0.0, 0.02, 2.0);
        let alone = times(&[&fits], 4.0 * MIB)[0];
        let two = times(&[&fits, &fits], 4.0 * MIB);
        assert!((two[0] / two[1] - 1.0).abs() < 1e-9);
        assert!((two[0] / alone - 1.0).abs() < 0.05, "both fit: {two:?}");
        let four = times(&[&fits; 4], 4.0 * MIB);
        assert!(four[0] > 1.5 * alone, "they do not fit: {four:?} {alone}");
    }

    #[test]
    fn a_stream_takes_the_cache_from_those_who_use_it() {
        let fits = signature(0.0, 0.02, 3.0);
        let stream = signature(0.03, 0.0, 0.0);
        let quiet = signature(0.0, 0.0, 0.0);
        let beside = |other: &Signature| times(&[&fits, other], 4.0 * MIB)[0];
        assert!((beside(&quiet) / times(&[&fits], 4.0 * MIB)[0] - 1.0).abs() < 0.01);
        assert!(beside(&stream) > 1.2 * beside(&quiet));
    }
}
