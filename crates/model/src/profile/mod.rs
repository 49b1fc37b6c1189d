//! Profiles: the behaviour of a program, independent of the machine that runs it.
//!
//! Input: a profile file. Output: a [`Profile`], which the simulator and the reports read. There are two kinds. [`Recorded`]
//! contains machine-independent behaviour, from which the speed on any machine follows. [`Tabulated`] contains speeds that were
//! measured or published, for the core types of the measurement. A [`Published`] file contains counters from public tables and
//! is read as a recorded profile.

mod caveat;
mod curve;
pub mod fit;
mod histogram;
mod pipeline;
pub mod published;
mod reach;
mod recorded;
pub mod reuse;
mod sampling;
mod sharing;
mod tabulated;

pub use caveat::{Caveat, CaveatKind};
pub use curve::{CacheClass, MissCurve};
pub use histogram::LogHistogram;
pub use pipeline::{
    CONFLICT_SETS, CONFLICT_WAYS, ChainPoint, Operation, Operations, Pipeline,
    REFERENCE_LOAD_CYCLES, Resolution, StreamPoint,
};
pub use published::Published;
pub use reach::{Reach, ReachKind, ReachPoint, Reuse};
pub use recorded::{
    Behaviour, IlpPoint, Locality, Mix, MlpPoint, Recorded, Segment, Source, ThreadShape,
};
pub use sampling::SampledFigure;
pub use sharing::Sharing;
pub use tabulated::{CoreTable, SCHEMA as TABLE_SCHEMA, TablePoint, Tabulated};

use crate::textfile::TextError;

/// Profile of a program, of either kind.
///
/// ```
/// use countersteer_model::profile::Profile;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/recorded/gzip.json");
/// let profile = Profile::parse(path, &std::fs::read_to_string(path)?)?;
/// assert_eq!(profile.name(), "gzip");
/// assert!(profile.miss_curve().is_some_and(|curve| curve.mpki(65_536.0) < 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Profile {
    /// Machine-independent behaviour, captured by instrumentation.
    Recorded(Recorded),
    /// Speeds measured or published for named core types.
    Tabulated(Tabulated),
}

impl Profile {
    /// Parses the text of a profile file: JSON for recorded profiles, TOML for published and tabulated ones.
    ///
    /// # Errors
    /// Fails on text that has neither format, is truncated, or contains invalid values. The error contains `path`, and the line
    /// if it is known.
    pub fn parse(path: &str, text: &str) -> Result<Self, TextError> {
        if text.trim_start().starts_with('{') {
            Recorded::parse(path, text).map(Self::Recorded)
        } else if text.contains(published::SCHEMA) {
            Published::parse(path, text).map(|p| Self::Recorded(p.recorded()))
        } else {
            Tabulated::parse(path, text).map(Self::Tabulated)
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Recorded(p) => &p.name,
            Self::Tabulated(p) => &p.name,
        }
    }

    /// Returns the number of instructions of one run, over all threads.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        match self {
            Self::Recorded(p) => p.instructions,
            Self::Tabulated(p) => p.instructions(),
        }
    }

    /// Returns the miss curve of a whole run; `None` if the profile contains none.
    #[must_use]
    pub fn miss_curve(&self) -> Option<MissCurve> {
        match self {
            Self::Recorded(p) => Some(MissCurve::mean_of(p)),
            Self::Tabulated(p) => MissCurve::of_table(p),
        }
    }
}
