//! Miss curves of threads: how much of their time depends on their part of a last-level cache.
//!
//! Input: the signature of a thread's program if it has one. On hosts a binary carries it, in the simulator a profile gives it.
//! Without a signature, the input is what is counted while the thread runs: its lines in the last-level cache with its misses,
//! and its misses with the core's own caches alone. Output: the part of the time that threads save if each has a last-level
//! cache to itself.

use std::collections::BTreeMap;

use countersteer_model::engine::ThreadInfo;
use countersteer_model::policy::{View, active};
use countersteer_model::signature::{CoreTraits, LINE_BYTES, Signature};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, ThreadId};

use crate::joint::curve::CurveSums;

/// Number of intervals from which a counted curve is used.
const COUNTED: u32 = 5;
/// Least lines, over those of the core's own caches, from which a thread shows what the last-level cache is worth to it.
const APART: f64 = 2.0;

/// Part of the time that depends on caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CacheTimePart {
    /// Mean and largest part of a thread's time.
    pub mean: f64,
    pub most: f64,
    /// Number of threads.
    pub threads: usize,
}

/// Counted points of a curve.
#[derive(Default)]
struct CountedPoints {
    points: CurveSums,
    intervals: u32,
    /// Instructions per s, summed over the intervals.
    ips: f64,
}

impl CountedPoints {
    /// Relative increase of the time with `share` bytes of a cache of `core`. No latency is taken to be hidden, so that it is
    /// an upper bound.
    fn worth(&self, core: &CoreTraits, share: f64) -> Option<f64> {
        (self.intervals >= COUNTED).then_some(())?;
        let curve = self.points.curve();
        let saved = curve.at(share / LINE_BYTES) - curve.at(core.last.bytes / LINE_BYTES);
        Some(saved.max(0.0) * core.memory_latency_s * self.ips / f64::from(self.intervals))
    }
}

/// Curves of the threads of a machine.
pub(super) struct MachineCurves {
    core: CoreTraits,
    /// CPUs behind a last-level cache.
    cpus_behind: usize,
    signatures: BTreeMap<ThreadId, Option<Signature>>,
    counted: BTreeMap<ThreadId, CountedPoints>,
}

impl MachineCurves {
    pub fn new(topology: &Topology) -> Self {
        Self {
            core: CoreTraits::of(topology, CpuId(0)),
            cpus_behind: topology.cpus.len() / topology.groups_by(GroupBy::Llc).len().max(1),
            signatures: BTreeMap::new(),
            counted: BTreeMap::new(),
        }
    }

    /// Adds an interval.
    pub fn note(&mut self, view: &mut View<'_>) {
        self.signatures.retain(|id, _| view.lives(*id));
        self.counted.retain(|id, _| view.lives(*id));
        let forecast = &mut view.forecast;
        for info in view.threads {
            let signature = || forecast.as_mut().and_then(|f| f.signature(info.id));
            self.signatures.entry(info.id).or_insert_with(signature);
        }
        for info in active(view) {
            if self.signatures.get(&info.id).is_none_or(Option::is_none) {
                self.count(view, info);
            }
        }
    }

    /// Adds what was counted of a thread in the last interval.
    fn count(&mut self, view: &View<'_>, info: &ThreadInfo) {
        let value = |name| view.metric(info.id, name).filter(|v| v.is_finite());
        let (Some(ips), Some(bytes), Some(far), Some(near)) = (
            value("ips"),
            value("llc_occupancy"),
            value("llc_mpki"),
            value("l2_mpki"),
        ) else {
            return;
        };
        let own = self.core.inner.0;
        if bytes < APART * own {
            return;
        }
        let counted = self.counted.entry(info.id).or_default();
        counted.points.age();
        counted.points.note(bytes / LINE_BYTES, far * 1e-3, 1.0);
        counted
            .points
            .note(own / LINE_BYTES, near.max(far) * 1e-3, 1.0);
        counted.intervals += 1;
        counted.ips += ips;
    }

    /// Worth of caches for the active threads; `None` as long as one of them has no curve.
    pub fn worth(&self, view: &View<'_>) -> Option<CacheTimePart> {
        let active = active(view);
        let threads = active.len();
        // Linux may leave them all behind one cache.
        let per_cache = threads.clamp(1, self.cpus_behind) as f64;
        let share = self.core.last.bytes / per_cache;
        let of = |info: &&ThreadInfo| match self.signatures.get(&info.id) {
            Some(Some(signature)) => {
                let seconds = |bytes| signature.seconds_with(&self.core, bytes, 1.0);
                Some(seconds(share) / seconds(self.core.last.bytes) - 1.0)
            }
            _ => self.counted.get(&info.id)?.worth(&self.core, share),
        };
        let parts: Vec<f64> = active.iter().map(of).collect::<Option<_>>()?;
        (!parts.is_empty()).then(|| CacheTimePart {
            mean: parts.iter().sum::<f64>() / threads as f64,
            most: parts.iter().copied().fold(0.0, f64::max),
            threads,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    fn counted(core: &CoreTraits, near: f64, far: f64) -> CountedPoints {
        let mut counted = CountedPoints::default();
        for _ in 0..COUNTED {
            counted.points.note(core.inner.0 / LINE_BYTES, near, 1.0);
            counted
                .points
                .note(core.last.bytes / 4.0 / LINE_BYTES, far, 1.0);
            counted.intervals += 1;
            counted.ips += 2e9;
        }
        counted
    }

    #[test]
    fn a_counted_curve_tells_who_needs_a_cache() {
        let text = include_str!("../../../../machines/core2-quad.toml");
        let core = CoreTraits::of(
            &Topology::new(&Machine::parse("m", text).unwrap()),
            CpuId(0),
        );
        let share = core.last.bytes / 8.0;
        let worth = |near, far| counted(&core, near, far).worth(&core, share).unwrap();
        assert!(
            worth(1e-6, 1e-6) < 0.01,
            "it hardly misses: {}",
            worth(1e-6, 1e-6)
        );
        assert!(worth(0.02, 0.001) > 0.1, "it misses less with more room");
        let few = CountedPoints {
            intervals: COUNTED - 1,
            ..counted(&core, 0.02, 0.001)
        };
        assert_eq!(few.worth(&core, share), None);
    }
}
