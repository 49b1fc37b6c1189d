//! Selection of trained models and exchange rules for a machine: those trained for it, or else those for the same core types at
//! the same ratio of frequencies.

use super::CoreType;
use crate::models::swaps::SwapFile;
use crate::models::{FixedPointModel, ModelFile, Models, Target, shipped_swaps};

/// Threshold: maximum relative difference at which two ratios of frequencies count as equal.
const SAME_CLOCKS: f64 = 0.05;

/// Fast and slow core type that a speed-up factor compares.
struct TypePair<'a> {
    fast: &'a str,
    slow: &'a str,
    clock_ratio: f64,
}

impl<'a> TypePair<'a> {
    /// Returns the fastest and the slowest type of a machine, given its core types, fastest first. `None` if there is only one
    /// type.
    fn of(core_types: &'a [CoreType]) -> Option<Self> {
        let [fast, .., slow] = core_types else {
            return None;
        };
        Some(Self {
            fast: &fast.name,
            slow: &slow.name,
            clock_ratio: fast.freq_ghz / slow.freq_ghz,
        })
    }

    /// True if the names equal this pair's core types and the ratio of frequencies is that of this pair.
    fn fits(&self, fast: &str, slow: &str, clock_ratio: f64) -> bool {
        let same_clocks = (clock_ratio / self.clock_ratio - 1.0).abs() <= SAME_CLOCKS;
        fast == self.fast && slow == self.slow && same_clocks
    }

    fn fits_model(&self, file: &ModelFile) -> bool {
        self.fits(&file.fast, &file.slow, file.clock_ratio)
    }
}

/// True if a model fits a machine with these core types, fastest first.
#[must_use]
pub fn is_for(file: &ModelFile, core_types: &[CoreType]) -> bool {
    let known = core_types.iter().any(|t| t.name == file.core_type);
    known && TypePair::of(core_types).is_some_and(|pair| pair.fits_model(file))
}

/// Returns the models for each core type of a machine, fastest first, chosen from the files that `files` returns for a core
/// type. Models trained for this machine take precedence over those for the same core types at the same ratio of frequencies.
/// Of several models, the last one is used.
#[must_use]
pub fn models_for(
    machine: &str,
    core_types: &[CoreType],
    files: impl Fn(&str) -> Vec<ModelFile>,
) -> Vec<Models> {
    let Some(pair) = TypePair::of(core_types) else {
        return vec![Models::default(); core_types.len()];
    };
    let of = |core_type: &CoreType| {
        let files = files(&core_type.name);
        let find = |target: Target| {
            let of_type = |f: &&ModelFile| f.target == target && f.core_type == core_type.name;
            let fitting = files.iter().filter(of_type).filter(|f| pair.fits_model(f));
            fitting
                .max_by_key(|f| f.machine == machine)
                .map(FixedPointModel::new)
        };
        Models {
            sf: find(Target::Sf),
            ef: find(Target::Ef),
        }
    };
    core_types.iter().map(of).collect()
}

/// Returns the shipped exchange rules for a machine with these core types, fastest first. Rules with the machine's name take
/// precedence over those for the same core types at the same ratio of frequencies. `None` if no rules fit.
#[must_use]
pub fn swaps_for(machine: &str, core_types: &[CoreType]) -> Option<SwapFile> {
    let pair = TypePair::of(core_types)?;
    let files = shipped_swaps().into_iter();
    let fitting = files.filter(|f| pair.fits(&f.fast, &f.slow, f.clock_ratio));
    fitting.max_by_key(|f| f.machine == machine)
}
