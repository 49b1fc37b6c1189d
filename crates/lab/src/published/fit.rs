//! Fit of two figures that no counter shows: parallelism limited by dependences, and overlap of misses.
//!
//! Input: a published profile without them, and cycles per instruction by cache size. Output: the two figures with which the
//! simulator reproduces the measured cycles on the measured machine.

use std::sync::Arc;

use countersteer_model::machine::Machine;
use countersteer_model::profile::{Profile, Published};
use countersteer_model::topology::Topology;
use countersteer_model::units::CpuId;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel};

use crate::library;

/// Machine of the measurements by cache size, and its L2 size in KiB. Its L3 does not duplicate L2.
pub const MACHINE: &str = "xeon-gold-6138";
pub const L2_KIB: f64 = 1024.0;

/// Search range of parallelism: from one instruction in three cycles to more than any core dispatches.
const ILP: (f64, f64) = (0.3, 40.0);
/// Search range of overlapping misses: from none to more than any first level has in flight.
const OVERLAP: (f64, f64) = (1.0, 40.0);
const HALVINGS: u32 = 16;
/// Number of sizes at which a fit compares cycles. Cycles at sizes between them follow from the misses.
const SIZES: usize = 4;
/// Rounds of alternating search; the two figures hardly depend on each other.
const ROUNDS: u32 = 3;

/// Measured cycles per instruction with a size of the last-level cache, L2 included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub cache_kib: f64,
    pub cpi: f64,
}

/// Machine of the measurements, for several sizes of its last-level cache.
pub struct Bench {
    machine: Machine,
}

impl Bench {
    /// Loads the machine of the measurements.
    ///
    /// # Errors
    /// The shipped machine cannot be read.
    pub fn new() -> anyhow::Result<Self> {
        let (machine, _) = library::machine(MACHINE)?;
        Ok(Self { machine })
    }

    /// Cycles per instruction of a program alone with `cache_kib` of L3 and L2 together.
    ///
    /// # Errors
    /// A profile that the machine cannot run.
    pub fn cpi(&self, published: &Published, cache_kib: f64) -> anyhow::Result<f64> {
        let mut machine = self.machine.clone();
        for cache in &mut machine.cache {
            cache.size_kib = cache_kib;
        }
        let topology = Arc::new(Topology::new(&machine));
        let mut model = Analytic::new(topology, ProgressConfig::default());
        let profile = Profile::Recorded(published.recorded());
        let id = model.add_program(Arc::new(profile))?;
        let rates = model.steady_state(&[(id, CpuId(0), 1.0)]);
        Ok(1.0 / rates[0].ipc)
    }

    /// Mean ratio of modelled to measured cycles over some sizes.
    fn level(&self, published: &Published, measured: &[Measured]) -> anyhow::Result<f64> {
        let every = measured.len().div_ceil(SIZES);
        let some: Vec<&Measured> = measured.iter().step_by(every.max(1)).collect();
        let mut sum = 0.0;
        for m in &some {
            sum += self.cpi(published, m.cache_kib)? / m.cpi;
        }
        Ok(sum / some.len() as f64)
    }

    /// Cycles per last-level miss at the smallest size: the program's extra cycles compared with hits.
    fn miss_cycles(&self, published: &Published, at_kib: f64) -> anyhow::Result<f64> {
        let mut without = published.clone();
        let missing = misses_at(published, at_kib);
        for point in &mut without.curve {
            if point.cache_kib > L2_KIB {
                point.mpki = 0.0;
            }
        }
        let more = self.cpi(published, at_kib)? - self.cpi(&without, at_kib)?;
        Ok(1000.0 * more / missing.max(1e-9))
    }

    /// Finds the overlap at which a miss costs `miss_cycles`, if known. Then finds the parallelism at which the program is as
    /// fast as measured.
    ///
    /// # Errors
    /// A profile that the machine cannot run.
    pub fn fit(
        &self,
        published: &mut Published,
        measured: &[Measured],
        miss_cycles: Option<f64>,
    ) -> anyhow::Result<()> {
        let smallest = measured.iter().map(|m| m.cache_kib);
        let smallest = smallest.fold(f64::INFINITY, f64::min);
        for _ in 0..ROUNDS {
            if let Some(wanted) = miss_cycles {
                let overlap = search(OVERLAP, |overlap| {
                    published.figures.overlap.value = overlap;
                    // More overlap makes misses cheaper.
                    Ok(self.miss_cycles(published, smallest)? > wanted)
                })?;
                published.figures.overlap.value = overlap;
            }
            let ilp = search(ILP, |ilp| {
                published.figures.ilp.value = ilp;
                Ok(self.level(published, measured)? > 1.0)
            })?;
            published.figures.ilp.value = ilp;
        }
        Ok(())
    }
}

/// Misses of the published curve at a size, or at the next larger one.
fn misses_at(published: &Published, at_kib: f64) -> f64 {
    let mut points = published.curve.iter();
    let found = points.find(|p| p.cache_kib >= at_kib);
    found.or(published.curve.last()).map_or(0.0, |p| p.mpki)
}

/// Finds the value at which `more` becomes false, by bisection in the logarithm.
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
