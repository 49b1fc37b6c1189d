//! Newtypes for identifiers and quantities.
//!
//! All other modules take and return these types instead of bare integers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the identifier as an index into a dense table.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// Returns the identifier for an index of a dense table.
            #[must_use]
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A logical CPU as the operating system numbers it.
    CpuId, "cpu"
);
id!(
    /// A thread of the workload; simulated threads count from 0, real ones have their TID.
    ThreadId, "thread"
);
id!(
    /// A program of the workload; rows of `threads` of one program share it.
    ProgramId, "program"
);
id!(
    /// A core group: row of [`crate::topology::Topology::groups`].
    GroupId, "group"
);
id!(
    /// A core type: row of [`crate::topology::Topology::core_types`], fastest first.
    CoreTypeId, "type"
);
id!(
    /// A cache: row of [`crate::topology::Topology::caches`].
    CacheId, "cache"
);

/// Point in time, or duration, in nanoseconds.
///
/// ```
/// use countersteer_model::units::Nanos;
///
/// let period = Nanos::from_millis(100);
/// assert_eq!(period.as_secs_f64(), 0.1);
/// assert_eq!(Nanos::from_micros(1500).since(Nanos::from_millis(1)), Nanos(500_000));
/// ```
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Start of the run, or a zero duration.
    pub const ZERO: Self = Self(0);
    /// Time later than that of any event.
    pub const NEVER: Self = Self(u64::MAX);

    /// Converts a number of milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Converts a number of microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// Converts seconds, rounded to the nearest nanosecond. Negative values and NaN become zero.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9).round().max(0.0) as u64)
    }

    /// Returns the time in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Returns the time from `earlier` to this one; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.as_secs_f64())
    }
}

/// Size of a cache line in bytes on all modelled machines.
pub const LINE_BYTES: u64 = 64;
