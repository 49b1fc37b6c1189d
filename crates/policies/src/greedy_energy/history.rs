//! Measurements of threads, caches and programs in the last slices.
//!
//! Input: the metrics of a slice. Output: means over the last k slices, caches that are contended, and programs whose
//! threads share data.

use std::collections::{BTreeMap, VecDeque};

use countersteer_model::policy::View;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{ProgramId, ThreadId};

/// Metrics that are read for each thread. Rates are per second of CPU time.
pub(super) const METRICS: [&str; 8] = [
    "clock_ghz",
    "ips",
    "l2_misses / seconds",
    "llc_references / seconds",
    "llc_misses / seconds",
    "fp_operations / seconds",
    "simd_operations / seconds",
    "power",
];

/// Metric that is read if shared lines are measured.
pub(super) const SHARED: &str = "shared_modified / seconds";

/// Number of cache levels: the core's own caches, caches shared by a cluster, and the last level.
pub(super) const LEVELS: usize = 3;

/// Event rates of a thread per second of CPU time; `None` for events that were not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EventRates {
    pub clock_hz: Option<f64>,
    /// Instructions, accesses beyond the core's own caches, accesses to the last level, and misses of the last level.
    accesses: [Option<f64>; LEVELS + 1],
    /// Scalar and vector floating-point instructions.
    pub fp: Option<f64>,
    /// Power of the thread in W.
    pub power_w: Option<f64>,
    /// Accesses to lines that another core modified.
    modified: Option<f64>,
}

impl EventRates {
    fn read(view: &View<'_>, thread: ThreadId, columns: &[Option<usize>]) -> Self {
        let row = view.metrics.row(thread);
        let at = |nth: usize| {
            let value = row?.get(columns.get(nth).copied()??).copied()?;
            value.filter(|v| v.is_finite() && *v >= 0.0)
        };
        let fp = match (at(5), at(6)) {
            (None, None) => None,
            (scalar, vector) => Some(scalar.unwrap_or(0.0) + vector.unwrap_or(0.0)),
        };
        Self {
            clock_hz: at(0).filter(|ghz| *ghz > 0.0).map(|ghz| ghz * 1e9),
            accesses: std::array::from_fn(|level| at(1 + level)),
            fp,
            power_w: at(7),
            modified: at(8),
        }
    }

    /// Rates of a thread that only misses the last level.
    #[cfg(test)]
    pub fn missing(per_second: f64) -> Self {
        let mut rates = Self::default();
        rates.accesses[LEVELS] = Some(per_second);
        rates
    }

    /// Returns the accesses to a cache level and the misses of this level, per second. `None` if one was not counted.
    pub fn at_level(&self, level: usize) -> Option<(f64, f64)> {
        Some((self.accesses[level]?, self.accesses[level + 1]?))
    }

    /// Returns the instructions per second; 0 if they were not counted.
    pub fn ips(&self) -> f64 {
        self.accesses[0].unwrap_or(0.0)
    }

    /// Returns the accesses to lines that another core modified, per second; 0 if they were not counted.
    pub fn modified(&self) -> f64 {
        self.modified.unwrap_or(0.0)
    }

    /// Returns the misses of the last level per second; 0 if they were not counted.
    pub fn misses(&self) -> f64 {
        self.accesses[LEVELS].unwrap_or(0.0)
    }
}

/// Metrics of a thread in one slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadSlice {
    /// Fraction of the slice in which the thread ran.
    pub used: f64,
    /// Fraction of the slice in which the thread was runnable.
    pub wanted: f64,
    /// Event rates of the thread.
    pub rates: EventRates,
}

/// Last k slices of every thread, and last k + j slices of every cache.
pub(super) struct SliceHistory {
    k: usize,
    j: usize,
    tolerance: f64,
    threads: BTreeMap<ThreadId, VecDeque<ThreadSlice>>,
    pub caches: Vec<CacheHistory>,
    /// Indices of the caches that each CPU uses.
    above: Vec<Vec<usize>>,
    programs: BTreeMap<ProgramId, SharingHistory>,
}

/// Shared cache, or the private caches of one core.
pub(super) struct CacheHistory {
    pub level: usize,
    /// True for each CPU that uses the cache.
    pub cpus: Vec<bool>,
    /// Miss rates of the last slices in which the cache was used.
    rates: VecDeque<f64>,
}

/// Mean miss rates of a program while its threads use one last-level cache, and while they use several.
#[derive(Clone, Copy, Default)]
struct SharingHistory {
    together: Option<f64>,
    apart: Option<f64>,
}

/// Weight of the newest slice in exponential means.
const FADE: f64 = 0.1;

impl SliceHistory {
    pub fn new(topology: &Topology, k: usize, j: usize, tolerance: f64) -> Self {
        let caches = caches(topology);
        let above = |cpu: usize| {
            (0..caches.len())
                .filter(|row| caches[*row].cpus[cpu])
                .collect()
        };
        Self {
            k,
            j,
            tolerance,
            threads: BTreeMap::new(),
            above: (0..topology.cpus.len()).map(above).collect(),
            caches,
            programs: BTreeMap::new(),
        }
    }

    /// Adds the metrics of a thread in the last slice, and drops its oldest slice.
    pub fn push(
        &mut self,
        view: &View<'_>,
        thread: ThreadId,
        columns: &[Option<usize>],
        used: f64,
        wanted: f64,
    ) {
        let ring = self.threads.entry(thread).or_default();
        let rates = EventRates::read(view, thread, columns);
        ring.push_back(ThreadSlice {
            used,
            wanted,
            rates,
        });
        while ring.len() > self.k {
            ring.pop_front();
        }
    }

    /// Removes the state of threads and programs that have ended.
    pub fn forget_ended(&mut self, view: &View<'_>) {
        let alive = |id: &ThreadId| view.lives(*id);
        self.threads.retain(|id, _| alive(id));
        self.programs.retain(|id, _| view.may_return(*id));
    }

    /// Returns the last slice of a thread; `None` if there is none.
    pub fn latest(&self, thread: ThreadId) -> Option<&ThreadSlice> {
        self.threads.get(&thread)?.back()
    }

    /// Returns the mean of a thread's last k slices; `None` if the thread has fewer.
    pub fn mean(&self, thread: ThreadId) -> Option<ThreadSlice> {
        let ring = self.threads.get(&thread).filter(|r| r.len() >= self.k)?;
        let of = |value: &dyn Fn(&EventRates) -> Option<f64>| {
            let known = ring
                .iter()
                .filter_map(|s| Some((s.used, value(&s.rates)?)))
                .filter(|(used, _)| *used > 0.0);
            let (sum, weight) = known.fold((0.0, 0.0), |(sum, weight), (used, value)| {
                (sum + used * value, weight + used)
            });
            (weight > 0.0).then(|| sum / weight)
        };
        let n = ring.len() as f64;
        Some(ThreadSlice {
            used: ring.iter().map(|s| s.used).sum::<f64>() / n,
            wanted: ring.iter().map(|s| s.wanted).sum::<f64>() / n,
            rates: EventRates {
                clock_hz: of(&|r| r.clock_hz),
                accesses: std::array::from_fn(|level| of(&|r| r.accesses[level])),
                fp: of(&|r| r.fp),
                power_w: of(&|r| r.power_w),
                modified: of(&|r| r.modified),
            },
        })
    }

    /// Adds the miss rates of all caches in the last slice. `places` holds the id, program and CPU of each thread that
    /// ran.
    pub fn push_caches(&mut self, places: &[(ThreadId, ProgramId, usize)]) {
        let mut sums = vec![(0.0, 0.0); self.caches.len()];
        for (id, _, cpu) in places {
            let Some(slice) = self.latest(*id) else {
                continue;
            };
            for cache in &self.above[*cpu] {
                if let Some((accesses, misses)) = slice.rates.at_level(self.caches[*cache].level) {
                    sums[*cache].0 += slice.used * accesses;
                    sums[*cache].1 += slice.used * misses;
                }
            }
        }
        for (cache, (accesses, misses)) in self.caches.iter_mut().zip(sums) {
            if accesses > 0.0 {
                cache.rates.push_back(misses / accesses);
                while cache.rates.len() > self.k + self.j {
                    cache.rates.pop_front();
                }
            }
        }
        self.push_sharing(places);
    }

    fn push_sharing(&mut self, places: &[(ThreadId, ProgramId, usize)]) {
        let cache_of = |cpu: usize| {
            let mut above = self.above[cpu].iter().copied();
            above.find(|cache| self.caches[*cache].level == LEVELS - 1)
        };
        let mut count: BTreeMap<(ProgramId, Option<usize>), usize> = BTreeMap::new();
        for (_, program, cpu) in places {
            *count.entry((*program, cache_of(*cpu))).or_default() += 1;
        }
        let mut seen = Vec::new();
        for (id, program, cpu) in places {
            let together = count[&(*program, cache_of(*cpu))] > 1;
            let rates = self.latest(*id).map(|s| s.rates);
            if let Some((accesses, misses)) = rates.and_then(|r| r.at_level(LEVELS - 1))
                && accesses > 0.0
            {
                seen.push((*program, together, misses / accesses));
            }
        }
        for (program, together, rate) in seen {
            let sharing = self.programs.entry(program).or_default();
            let mean = if together {
                &mut sharing.together
            } else {
                &mut sharing.apart
            };
            *mean = Some(mean.map_or(rate, |old| old + FADE * (rate - old)));
        }
    }

    /// Returns the indices of the caches that a CPU uses.
    pub fn above(&self, cpu: usize) -> &[usize] {
        &self.above[cpu]
    }

    /// True if the mean miss rate of the last k slices exceeds that of the j slices before by the tolerance
    /// (meta-scheduler, section III.B).
    pub fn is_contended(&self, cache: usize) -> bool {
        let rates = &self.caches[cache].rates;
        if rates.len() < self.k + self.j {
            return false;
        }
        let mean = |from: usize, count: usize| {
            rates.iter().skip(from).take(count).sum::<f64>() / count as f64
        };
        mean(self.j, self.k) > (1.0 + self.tolerance) * mean(0, self.j)
    }

    /// Returns the mean miss rate of a cache over the last k slices in which it was used; 0 for an unused cache.
    pub fn miss_rate(&self, cache: usize) -> f64 {
        let rates = &self.caches[cache].rates;
        let count = rates.len().min(self.k);
        rates.iter().rev().take(count).sum::<f64>() / count.max(1) as f64
    }

    /// True if a program's miss rate is lower by more than the tolerance when its threads use one last-level cache
    /// (favourable sharing).
    pub fn shares_data(&self, program: ProgramId) -> bool {
        let sharing = self.programs.get(&program).copied().unwrap_or_default();
        match (sharing.together, sharing.apart) {
            (Some(together), Some(apart)) => together < apart * (1.0 - self.tolerance),
            _ => false,
        }
    }
}

/// Returns the caches of all cores, clusters and last levels, by level.
fn caches(topology: &Topology) -> Vec<CacheHistory> {
    let count = topology.cpus.len();
    let under = |level: usize, has: &dyn Fn(usize) -> bool| CacheHistory {
        level,
        cpus: (0..count).map(has).collect(),
        rates: VecDeque::new(),
    };
    let cores = topology.groups_by(GroupBy::Core).iter();
    let mut all: Vec<CacheHistory> = cores
        .map(|core| under(0, &|cpu| core.cpus.contains(topology.cpus[cpu].id)))
        .collect();
    let last: Vec<_> = topology
        .cpus
        .iter()
        .map(|c| topology.llc_of(c.id))
        .collect();
    for cache in &topology.caches {
        let has = |cpu: usize| cache.cpus.contains(topology.cpus[cpu].id);
        let level = match last.contains(&cache.id) {
            true => LEVELS - 1,
            false if cache.private => continue,
            false => 1,
        };
        all.push(under(level, &has));
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test helper that fails has failed its test
mod tests {
    use super::*;
    use countersteer_model::machine::Machine;

    fn history() -> SliceHistory {
        let text = include_str!("../../tests/toy/two-caches.toml");
        let topology = Topology::new(&Machine::parse("m", text).unwrap());
        SliceHistory::new(&topology, 5, 5, 0.2)
    }

    fn slice(references: f64, misses: f64) -> ThreadSlice {
        let rates = EventRates {
            accesses: [Some(1e9), Some(references), Some(references), Some(misses)],
            ..EventRates::default()
        };
        ThreadSlice {
            used: 1.0,
            wanted: 1.0,
            rates,
        }
    }

    #[test]
    fn a_rise_beyond_the_tolerance_is_contention() {
        for (after, contended) in [(11.9, false), (12.1, true)] {
            let mut history = history();
            let last = history.caches.iter().position(|c| c.level == 2).unwrap();
            for nth in 0..10 {
                let misses = if nth < 5 { 10.0 } else { after };
                let ring = history.threads.entry(ThreadId(0)).or_default();
                ring.push_back(slice(100.0, misses));
                history.push_caches(&[(ThreadId(0), ProgramId(0), 0)]);
                assert!(nth == 9 || !history.is_contended(last), "too few slices");
            }
            assert_eq!(history.is_contended(last), contended, "{after}");
        }
    }

    #[test]
    fn threads_that_miss_less_together_share_data() {
        let mut history = history();
        let mut seen = |misses: f64, cpus: [usize; 2]| {
            for thread in 0..2 {
                let ring = history.threads.entry(ThreadId(thread)).or_default();
                ring.push_back(slice(100.0, misses));
            }
            let place = |thread: u32| (ThreadId(thread), ProgramId(0), cpus[thread as usize]);
            history.push_caches(&[place(0), place(1)]);
            history.shares_data(ProgramId(0))
        };
        // CPUs 0 and 1 share a cache, 2 and 3 the other one.
        assert!(!seen(50.0, [0, 2]));
        assert!(seen(30.0, [0, 1]));
    }

    #[test]
    fn means_are_of_k_slices_and_none_of_less() {
        let mut history = history();
        for misses in [9.0, 1.0, 2.0, 3.0, 4.0] {
            assert!(history.mean(ThreadId(0)).is_none());
            let ring = history.threads.entry(ThreadId(0)).or_default();
            ring.push_back(slice(100.0, misses));
        }
        let mean = history.mean(ThreadId(0)).unwrap();
        assert!((mean.rates.misses() - 3.8).abs() < 1e-12);
    }
}
