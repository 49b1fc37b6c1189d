//! Division of a last-level cache among the threads under it, predicted from their signatures.
//!
//! Input: signatures, cores, and the fraction of a core that each thread has. Output: the bytes of the cache that each thread
//! holds, and its speed with them.
//!
//! An LRU cache holds the lines touched within some age, which is the same for all sharers. A thread that holds b bytes brings
//! in new bytes at the rate of its misses in a cache of b bytes. This gives the time that it takes to touch any number of
//! bytes. At the age in question, the bytes touched by all threads fill the cache (Xiang et al., HOTL, ASPLOS 2013). The
//! misses of all threads load memory, whose latency grows. Speeds depend on bytes and latency and vice versa, so they are
//! found by iteration.

use countersteer_model::machine::{DEFAULT_QUEUEING, load_factor};
use countersteer_model::signature::{
    CoreTraits, LINE_BYTES, PER_INSTRUCTIONS, SIZES, SMALLEST_BYTES, Signature,
};

/// Number of iterations over bytes, latency and speeds.
const TURNS: usize = 5;
/// Number of bisection steps in the search for the age.
const HALVINGS: usize = 18;
/// Limit on the utilisation of memory, above which the latency does not grow.
const FULL: f64 = 0.95;
/// Range of ages for the search, in seconds: from a few misses to no evictions at all.
const AGES_S: (f64, f64) = (1e-7, 1e4);

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
        let fills: Vec<Fill> = sharers
            .iter()
            .zip(&speeds)
            .map(|(s, seconds)| Fill::new(s, *seconds))
            .collect();
        let age = age(&fills, bytes);
        for (part, fill) in parts.iter_mut().zip(&fills) {
            // Only half of each change is applied (damping), because a thread that holds more runs faster and so holds even
            // more.
            *part = f64::midpoint(*part, fill.bytes(age).min(bytes));
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
    let offered = sharers.first().map_or(1.0, |s| s.core.memory_bytes_per_s);
    let used = (bytes_per_s / offered.max(1.0)).min(FULL);
    let queueing = sharers
        .first()
        .map_or(DEFAULT_QUEUEING, |s| s.core.queueing);
    load_factor(queueing, used)
}

/// Returns the age in seconds at which all threads together have touched `bytes` bytes.
fn age(fills: &[Fill], bytes: f64) -> f64 {
    let touched = |age: f64| fills.iter().map(|f| f.bytes(age)).sum::<f64>();
    let (mut low, mut high) = (AGES_S.0.ln(), AGES_S.1.ln());
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if touched(middle.exp()) > bytes {
            high = middle;
        } else {
            low = middle;
        }
    }
    low.exp()
}

/// Growth of a thread's footprint: the bytes touched as a function of time.
struct Fill {
    /// Time in seconds at which the thread has touched as many bytes as each cache size of the signature.
    reached_s: [f64; SIZES],
    /// Bytes per second that the thread touches beyond the largest size of the signature.
    beyond: f64,
}

impl Fill {
    fn new(sharer: &Sharer<'_>, seconds: Option<f64>) -> Self {
        let mut fill = Self {
            reached_s: [f64::INFINITY; SIZES],
            beyond: 0.0,
        };
        let (Some(signature), Some(seconds)) = (sharer.signature, seconds) else {
            return fill;
        };
        let per_miss = LINE_BYTES * sharer.load / seconds / PER_INSTRUCTIONS;
        let misses = signature.by_size(sharer.core.last.ways);
        let mut at_s = 0.0;
        for size in 0..SIZES {
            let smaller = size.saturating_sub(1);
            let from = if size == 0 { 0.0 } else { size_bytes(smaller) };
            // A thread that holds between two sizes of the signature misses as often as on average in both.
            let rate = f64::midpoint(misses[smaller], misses[size]) * per_miss;
            at_s += (size_bytes(size) - from) / rate;
            fill.reached_s[size] = at_s;
        }
        fill.beyond = misses[SIZES - 1] * per_miss;
        fill
    }

    /// Returns the number of bytes that the thread touches within `age_s` seconds.
    fn bytes(&self, age_s: f64) -> f64 {
        let after = self.reached_s.partition_point(|at| *at <= age_s);
        let (from_s, from) = match after {
            0 => (0.0, 0.0),
            n => (self.reached_s[n - 1], size_bytes(n - 1)),
        };
        let Some(to_s) = self.reached_s.get(after).filter(|to| to.is_finite()) else {
            return from + self.beyond * (age_s - from_s);
        };
        from + (size_bytes(after) - from) * (age_s - from_s) / (to_s - from_s)
    }
}

fn size_bytes(size: usize) -> f64 {
    SMALLEST_BYTES * (size as f64).exp2()
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
