//! Locality of what a core keeps beside data: lines of code, branch targets, pages.
//!
//! Input: the recorder's counts, or public counters. Output: [`Reach`], from which a core's instruction cache, branch target
//! buffer and translation buffers get their misses by size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LogHistogram, MissCurve};
use crate::bounds;

/// Locality of code and of pages. An absent curve is unknown: the structure that it describes then costs nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// 64-byte lines of code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_lines: Option<Reuse>,
    /// Addresses of taken branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_targets: Option<Reuse>,
    /// Pages of code of 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_pages: Option<Reuse>,
    /// Pages of data of 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_pages: Option<Reuse>,
}

/// Kind of structure whose misses a public table counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReachKind {
    /// Instruction cache, in lines of 64 bytes.
    CodeLines,
    /// Translation buffers of code, in pages of 4 KiB.
    CodePages,
    /// Translation buffers of data, in pages of 4 KiB.
    DataPages,
}

/// Misses at one size of a structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReachPoint {
    pub kind: ReachKind,
    /// Entries of the structure.
    pub entries: f64,
    /// Misses per kilo-instruction.
    pub mpki: f64,
    /// Standard error of the misses.
    pub error: f64,
    /// Table of origin, or `assumed`.
    pub from: String,
}

/// Uses of a kind of item by LRU stack distance. Uses of the same item without another in between may be left out, because they
/// hit in every structure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reuse {
    /// Uses per kilo-instruction by the number of other items used since the last use.
    pub stack_distance_pki: LogHistogram,
    /// First uses per kilo-instruction: they miss in every structure.
    pub cold_pki: f64,
}

impl Reach {
    /// Returns the curves with their names, in the order of the file.
    #[must_use]
    pub const fn listed(&self) -> [(&'static str, Option<&Reuse>); 4] {
        [
            ("code_lines", self.code_lines.as_ref()),
            ("branch_targets", self.branch_targets.as_ref()),
            ("code_pages", self.code_pages.as_ref()),
            ("data_pages", self.data_pages.as_ref()),
        ]
    }

    /// Creates the curves through points, ascending in size. `None` without points.
    pub(super) fn through(points: &[ReachPoint]) -> Option<Self> {
        let of = |kind| {
            let own = points.iter().filter(|p| p.kind == kind);
            let own: Vec<_> = own.map(|p| (p.entries, p.mpki)).collect();
            (!own.is_empty()).then(|| Reuse::through(&own))
        };
        (!points.is_empty()).then(|| Self {
            code_lines: of(ReachKind::CodeLines),
            branch_targets: None,
            code_pages: of(ReachKind::CodePages),
            data_pages: of(ReachKind::DataPages),
        })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (key, reuse) in self.listed() {
            let Some(reuse) = reuse else { continue };
            reuse.stack_distance_pki.check(key)?;
            bounds::PER_KILO_INSTRUCTION.check(key, reuse.cold_pki)?;
        }
        Ok(())
    }
}

/// Checks the points of a published profile.
pub(super) fn check_points(points: &[ReachPoint]) -> Result<(), String> {
    for (nth, point) in points.iter().enumerate() {
        bounds::CACHE_LINES.check("entries", point.entries)?;
        bounds::PER_KILO_INSTRUCTION.check("mpki", point.mpki)?;
        let mut before = points[..nth].iter().filter(|p| p.kind == point.kind);
        if before.any(|p| p.entries >= point.entries || p.mpki < point.mpki) {
            return Err("`reach` must have growing sizes and misses that never rise".into());
        }
    }
    Ok(())
}

impl Reuse {
    /// Returns the misses of LRU structures by their number of entries.
    #[must_use]
    pub fn curve(&self) -> MissCurve {
        MissCurve::from_distances(&self.stack_distance_pki, self.cold_pki)
    }

    /// Returns the uses that reproduce given misses per kilo-instruction by number of entries, ascending. Misses are linear in
    /// the logarithm of the size between two points, and constant outside.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Self {
        let mut reuse = Self::default();
        let Some(&(last, cold)) = points.last() else {
            return reuse;
        };
        reuse.cold_pki = cold;
        let misses = |at: f64| {
            let next = points.partition_point(|p| p.0 <= at);
            match (next.checked_sub(1).map(|i| points[i]), points.get(next)) {
                (Some((x0, y0)), Some(&(x1, y1))) => {
                    y0 + (y1 - y0) * (at / x0).ln() / (x1 / x0).ln()
                }
                (Some((_, y)), None) | (None, Some(&(_, y))) => y,
                (None, None) => 0.0,
            }
        };
        let end = LogHistogram::bucket(last.ceil() as u64) + 1;
        let edge = |bucket: usize| misses(LogHistogram::lower(bucket) as f64);
        let rates = (0..end).map(|b| (edge(b) - edge(b + 1)).max(0.0)).collect();
        reuse.stack_distance_pki = LogHistogram { rates };
        reuse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_a_kind_must_ascend_and_fall() {
        let point = |kind, entries, mpki| ReachPoint {
            kind,
            entries,
            mpki,
            error: 0.0,
            from: "table".into(),
        };
        let first = point(ReachKind::DataPages, 64.0, 9.0);
        let other = point(ReachKind::CodeLines, 16.0, 20.0);
        let good = [
            first.clone(),
            other,
            point(ReachKind::DataPages, 512.0, 3.0),
        ];
        assert_eq!(check_points(&good), Ok(()));
        let reach = Reach::through(&good).unwrap();
        assert_eq!(reach.data_pages.unwrap().curve().mpki(64.0), 9.0);
        assert!(reach.code_pages.is_none() && Reach::through(&[]).is_none());
        let rises = [first.clone(), point(ReachKind::DataPages, 512.0, 10.0)];
        assert!(check_points(&rises).unwrap_err().contains("never rise"));
        let falls = [first.clone(), first];
        assert!(check_points(&falls).unwrap_err().contains("growing"));
    }

    #[test]
    fn the_curve_goes_through_its_points() {
        let points = [(64.0, 30.0), (512.0, 10.0), (4096.0, 1.0)];
        let curve = Reuse::through(&points).curve();
        for (size, misses) in points {
            assert!((curve.mpki(size) - misses).abs() < 0.02 * misses, "{size}");
        }
        let between = curve.mpki(181.02);
        assert!((between - 20.0).abs() < 0.3, "{between}");
        assert_eq!(curve.mpki(8.0), 30.0);
        assert_eq!(curve.mpki(1e6), 1.0);
        assert_eq!(Reuse::through(&[]), Reuse::default());
    }
}
