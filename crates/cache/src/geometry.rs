//! Sizes and replacement policies of simulated caches.

/// Replacement policy: selects the line that a full set evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    Lru,
    TreePlru,
    Srrip,
    Random,
}

impl Replacement {
    pub const ALL: [(&'static str, Self); 4] = [
        ("lru", Self::Lru),
        ("plru", Self::TreePlru),
        ("srrip", Self::Srrip),
        ("random", Self::Random),
    ];
}

/// Number of sets and ways of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub sets: u32,
    pub ways: u32,
}

impl Geometry {
    /// Returns the geometry of a cache of `bytes` bytes with `ways` ways. A remainder that fills no whole set is dropped.
    #[must_use]
    pub fn of_bytes(bytes: f64, ways: u32) -> Self {
        let sets = (bytes / 64.0 / f64::from(ways.max(1))).floor();
        Self {
            sets: sets.clamp(1.0, f64::from(u32::MAX)) as u32,
            ways,
        }
    }

    #[must_use]
    pub fn lines(self) -> u64 {
        u64::from(self.sets) * u64::from(self.ways)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    #[error(
        "a cache of {sets} sets and {ways} ways cannot be simulated: at least one set, 1 to {most} ways"
    )]
    Geometry { sets: u32, ways: u32, most: u32 },
}
