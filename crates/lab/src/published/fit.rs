//! Fit of two values that no counter shows: parallelism limited by dependences, and overlap of misses.
//!
//! Input: a published profile without these values, and cycles per instruction by cache size. Output: the values with which
//! the simulator reproduces the measured cycles on the measured machine.

use std::sync::Arc;

use countersteer_model::machine::Machine;
use countersteer_model::profile::{Profile, Published};
use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel};

use crate::library;

/// Name of the machine of the measurements by cache size.
pub const MACHINE: &str = "xeon-gold-6138";
/// Name of this machine's core type.
pub(crate) const CORE_TYPE: &str = "skylake-sp";
/// Size of this machine's L2 in KiB. Its L3 does not contain the lines of the L2.
pub(crate) const L2_KIB: f64 = 1024.0;

/// Search range of parallelism, in instructions per cycle: from one instruction in three cycles to more than any core
/// dispatches.
const ILP: (f64, f64) = (0.3, 60.0);
/// Search range of the number of overlapping misses: from one to more than any L1 supports.
const OVERLAP: (f64, f64) = (1.0, 40.0);
/// Number of bisection steps of a search.
const HALVINGS: u32 = 16;
/// Limit on the number of cache sizes at which a fit compares cycles. Cycles at other sizes follow from the misses.
const SIZES: usize = 4;
/// Number of rounds in which the two values are fitted alternately; they hardly depend on each other.
const ROUNDS: u32 = 3;

/// Measured cycles per instruction with one size of the last-level cache, including the L2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeasuredCpi {
    pub cache_kib: f64,
    pub cpi: f64,
    /// Frequency of the measurement; `None` for that of the machine file.
    pub ghz: Option<f64>,
}

/// Cost of a last-level cache miss in a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MissCost {
    pub cycles: f64,
    /// Standard error of the cycles.
    pub error: f64,
    /// Size of the last-level cache for which the cost holds, including the L2: the smallest in the table.
    pub cache_kib: f64,
}

/// Machine of the measurements, whose last-level cache can be given several sizes.
pub struct Bench {
    machine: Machine,
}

impl Bench {
    /// Loads the machine of the measurements from the library.
    ///
    /// # Errors
    /// Fails if the shipped machine cannot be parsed.
    pub fn new() -> anyhow::Result<Self> {
        let (machine, _) = library::machine(MACHINE)?;
        Ok(Self { machine })
    }

    /// Returns the cycles per instruction of a program alone, with the frequency and the cache size (L3 and L2 together) of `at`.
    ///
    /// # Errors
    /// Fails if the model cannot run the profile.
    pub fn cpi(&self, published: &Published, at: &MeasuredCpi) -> anyhow::Result<f64> {
        let mut machine = self.machine.clone();
        for cache in &mut machine.cache {
            cache.size_kib = at.cache_kib;
        }
        for (core_type, ghz) in machine.core_type.iter_mut().zip(at.ghz) {
            core_type.freq_ghz = ghz;
        }
        let topology = Arc::new(Topology::new(&machine));
        let mut model = Analytic::new(topology, ProgressConfig::default());
        let profile = Profile::Recorded(published.recorded());
        let id = model.add_program(Arc::new(profile))?;
        let rates = model.steady_state(&[(id, CpuId(0), 1.0)]);
        Ok(1.0 / rates[0].ipc)
    }

    /// Returns the mean ratio of modelled to measured cycles over a few cache sizes.
    fn level(&self, published: &Published, measured: &[MeasuredCpi]) -> anyhow::Result<f64> {
        let every = measured.len().div_ceil(SIZES);
        let some: Vec<&MeasuredCpi> = measured.iter().step_by(every.max(1)).collect();
        let mut sum = 0.0;
        for m in &some {
            sum += self.cpi(published, m)? / m.cpi;
        }
        Ok(sum / some.len() as f64)
    }

    /// Returns the modelled cycles per last-level cache miss at the smallest size: the extra cycles compared with hits,
    /// divided by the misses.
    fn miss_cycles(&self, published: &Published, at_kib: f64) -> anyhow::Result<f64> {
        let mut without = published.clone();
        let missing = misses_at(published, at_kib);
        let at = MeasuredCpi {
            cache_kib: at_kib,
            cpi: 0.0,
            ghz: None,
        };
        for point in &mut without.curve {
            if point.cache_kib > L2_KIB {
                point.mpki = 0.0;
            }
        }
        let more = self.cpi(published, &at)? - self.cpi(&without, &at)?;
        Ok(1000.0 * more / missing.max(1e-9))
    }

    /// Fits the overlap to the cost of a miss in the table, if known, and the parallelism to the measured speed. The values are
    /// stored in `published`. Returns false if no overlap makes misses as cheap as in the table, because lines of streams come
    /// too late. The overlap is then the largest one that is searched.
    ///
    /// # Errors
    /// Fails if the model cannot run the profile.
    pub fn fit(
        &self,
        published: &mut Published,
        measured: &[MeasuredCpi],
        miss: Option<MissCost>,
    ) -> anyhow::Result<bool> {
        let mut found = true;
        for _ in 0..ROUNDS {
            if let Some(miss) = miss {
                found = self.fit_overlap(published, miss)?;
            }
            let ilp = search(ILP, |ilp| {
                published.figures.ilp.value = ilp;
                Ok(self.level(published, measured)? > 1.0)
            })?;
            published.figures.ilp.value = ilp;
        }
        Ok(found)
    }

    fn fit_overlap(&self, published: &mut Published, miss: MissCost) -> anyhow::Result<bool> {
        let mut costs_more = |overlap: f64| {
            published.figures.overlap.value = overlap;
            // With more overlap, a miss costs fewer cycles.
            Ok(self.miss_cycles(published, miss.cache_kib)? > miss.cycles)
        };
        let found = !costs_more(OVERLAP.1)?;
        let overlap = if found {
            search(OVERLAP, costs_more)?
        } else {
            OVERLAP.1
        };
        published.figures.overlap.value = overlap;
        Ok(found)
    }
}

/// Returns the misses per kilo-instruction of the published curve at a size, or at the next larger one.
fn misses_at(published: &Published, at_kib: f64) -> f64 {
    let mut points = published.curve.iter();
    let found = points.find(|p| p.cache_kib >= at_kib);
    found.or(published.curve.last()).map_or(0.0, |p| p.mpki)
}

/// Returns the value at which `more` becomes false, by bisection on a logarithmic scale.
fn search(
    (low, high): (f64, f64),
    mut more: impl FnMut(f64) -> anyhow::Result<bool>,
) -> anyhow::Result<f64> {
    let (mut low, mut high) = (low.ln(), high.ln());
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if more(middle.exp())? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(f64::midpoint(low, high).exp())
}
