//! Classes of programs by their use of a shared cache, and clusters of programs that share ways.
//!
//! Input: speed and misses of each program by its number of ways. Output: clusters, each with members and ways.
//!
//! Source: LFOC (Garcia-Garcia et al., ICPP 2019), with the thresholds and limits of its authors' simulator PBBCache.

use std::collections::BTreeMap;

use countersteer_model::units::ProgramId;

use crate::ways::lookahead;

/// Threshold: maximum slowdown, with any number of ways, of a streaming program.
const STREAMING: f64 = 1.06;
/// Threshold: minimum slowdown with two ways of a sensitive program.
const SENSITIVE: f64 = 1.05;
/// Threshold: minimum last-level cache misses per 1,000 cycles at which an insensitive program is streaming.
const MANY_MISSES: f64 = 14.0;
/// Number of streaming programs that share one way.
const STREAMING_PER_WAY: usize = 5;
/// Limit on the number of ways for all streaming programs together.
const STREAMING_WAYS: u32 = 2;
/// Number of light programs that may use the ways of streaming programs instead of one missing streaming program.
const LIGHT_PER_STREAMING: usize = 2;
/// Limit on the number of clusters, because processors have few classes of service.
pub(super) const MOST: usize = 7;

/// Speed and misses of a program with a number of ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WayPoint {
    /// Instructions per cycle of the program.
    pub ipc: f64,
    /// Last-level cache misses per 1,000 cycles of the program.
    pub mpkc: f64,
}

/// Measured speed and misses of a program by number of ways.
pub(crate) type WayCurve = BTreeMap<u32, WayPoint>;

/// Class of a program by its use of the shared cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SensitivityClass {
    /// The program slows down with few ways.
    Sensitive,
    /// The program misses often with any number of ways, and evicts the lines of others.
    Streaming,
    /// The program is neither sensitive nor streaming.
    Light,
}

impl SensitivityClass {
    /// Returns the rule to report as the reason for the program's ways.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Sensitive => "sensitive: ways of its own by lookahead",
            Self::Streaming => "streaming: few ways, which all streaming programs share",
            Self::Light => "light: shares the ways of others",
        }
    }
}

/// Cluster: programs that share ways of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub members: Vec<ProgramId>,
    pub ways: u32,
}

/// Returns the slowdown of a program with a number of ways, relative to the largest number measured.
pub(super) fn slowdown(curve: &WayCurve, ways: f64) -> f64 {
    let whole = curve.last_key_value().map_or(0.0, |(_, point)| point.ipc);
    match at(curve, ways, |point| point.ipc) {
        Some(ipc) if ipc > 0.0 => (whole / ipc).max(1.0),
        _ => 1.0,
    }
}

/// Returns the misses per 1,000 cycles of a program with a number of ways.
pub(super) fn misses(curve: &WayCurve, ways: f64) -> f64 {
    at(curve, ways, |point| point.mpkc).unwrap_or(0.0)
}

/// Returns a value of a curve. Values between measured points are interpolated; beyond them, the nearest holds. `None` if nothing
/// is measured.
fn at(curve: &WayCurve, ways: f64, value: impl Fn(&WayPoint) -> f64) -> Option<f64> {
    let below = curve.iter().rev().find(|(w, _)| f64::from(**w) <= ways);
    let above = curve.iter().find(|(w, _)| f64::from(**w) >= ways);
    match (below, above) {
        (Some((low, a)), Some((high, b))) if high > low => {
            let part = (ways - f64::from(*low)) / f64::from(high - low);
            Some(value(a) + part * (value(b) - value(a)))
        }
        (Some((_, point)), _) | (None, Some((_, point))) => Some(value(point)),
        (None, None) => None,
    }
}

/// True if the program is slower with one way than with most ways, so that points in between are worth measuring.
pub(super) fn gains(curve: &WayCurve) -> bool {
    slowdown(curve, 1.0) >= SENSITIVE
}

/// Returns the class of a program from its measured points.
pub(super) fn classify(curve: &WayCurve) -> SensitivityClass {
    let most_misses = curve.values().map(|p| p.mpkc).fold(0.0, f64::max);
    if most_misses >= MANY_MISSES && slowdown(curve, 1.0) < STREAMING {
        SensitivityClass::Streaming
    } else if slowdown(curve, 2.0) >= SENSITIVE {
        SensitivityClass::Sensitive
    } else {
        SensitivityClass::Light
    }
}

/// Returns the clusters of programs in a cache of `ways` ways. Empty if no program is sensitive, since no program can gain
/// then.
pub(crate) fn clusters(programs: &BTreeMap<ProgramId, &WayCurve>, ways: u32) -> Vec<Cluster> {
    let of = |class: SensitivityClass| -> Vec<ProgramId> {
        let rows = programs
            .iter()
            .filter(|(_, curve)| classify(curve) == class);
        rows.map(|(id, _)| *id).collect()
    };
    let streaming = of(SensitivityClass::Streaming);
    let reserved = (streaming.len().div_ceil(STREAMING_PER_WAY) as u32).min(STREAMING_WAYS);
    let own = ways.saturating_sub(reserved);
    let most = MOST
        .min(own as usize)
        .saturating_sub(usize::from(reserved > 0));
    let groups = sensitive(programs, of(SensitivityClass::Sensitive), most);
    if groups.is_empty() || (groups.len() == 1 && reserved == 0) {
        return Vec::new();
    }
    let costs: Vec<Vec<f64>> = (groups.iter())
        .map(|members| (1..=own).map(|w| cost(programs, members, w)).collect())
        .collect();
    let counts = lookahead(&costs, own);
    let each = groups.into_iter().zip(counts);
    let mut clusters: Vec<Cluster> = each
        .map(|(members, ways)| Cluster { members, ways })
        .collect();
    let mut light = of(SensitivityClass::Light).into_iter();
    if reserved > 0 {
        let missing = (STREAMING_PER_WAY * reserved as usize).saturating_sub(streaming.len());
        let beside = light.by_ref().take(missing * LIGHT_PER_STREAMING);
        let shared = Cluster {
            members: streaming.into_iter().chain(beside).collect(),
            ways: reserved,
        };
        clusters.insert(0, shared);
    }
    let first = usize::from(reserved > 0);
    let rows = first..clusters.len();
    for (row, program) in rows.cycle().zip(light) {
        clusters[row].members.push(program);
    }
    clusters
}

/// Divides the sensitive programs into at most `most` groups of one program each. If there are more programs, those with
/// the smallest slowdown with one way share the last group.
fn sensitive(
    programs: &BTreeMap<ProgramId, &WayCurve>,
    mut members: Vec<ProgramId>,
    most: usize,
) -> Vec<Vec<ProgramId>> {
    if most == 0 {
        return Vec::new();
    }
    let worst = |id: &ProgramId| programs.get(id).map_or(1.0, |curve| slowdown(curve, 1.0));
    members.sort_by(|a, b| worst(b).total_cmp(&worst(a)).then(a.cmp(b)));
    let shared = if members.len() > most {
        members.split_off(most - 1)
    } else {
        Vec::new()
    };
    members.sort_unstable();
    let alone = members.into_iter().map(|id| vec![id]);
    alone
        .chain((!shared.is_empty()).then_some(shared))
        .collect()
}

/// Returns the sum of the slowdowns of a group's programs if each has an equal fraction of the group's ways.
fn cost(programs: &BTreeMap<ProgramId, &WayCurve>, members: &[ProgramId], ways: u32) -> f64 {
    let part = f64::from(ways) / members.len() as f64;
    let curves = members.iter().filter_map(|id| programs.get(id));
    curves.map(|curve| slowdown(curve, part)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Curve with these speeds at 1, 2, 4 and 10 ways, and this many misses per 1,000 cycles.
    fn curve(ipc: [f64; 4], mpkc: f64) -> WayCurve {
        let points = [1, 2, 4, 10].into_iter().zip(ipc);
        points
            .map(|(ways, ipc)| (ways, WayPoint { ipc, mpkc }))
            .collect()
    }

    fn named(curves: &[WayCurve]) -> BTreeMap<ProgramId, &WayCurve> {
        let ids = (0..).map(ProgramId);
        ids.zip(curves).collect()
    }

    #[test]
    fn classes_go_by_slowdown_and_misses() {
        assert_eq!(
            classify(&curve([0.5, 0.6, 0.8, 1.0], 20.0)),
            SensitivityClass::Sensitive
        );
        assert_eq!(
            classify(&curve([0.97, 0.98, 0.99, 1.0], 20.0)),
            SensitivityClass::Streaming
        );
        assert_eq!(
            classify(&curve([0.97, 0.98, 0.99, 1.0], 2.0)),
            SensitivityClass::Light
        );
        // One way too few does not make a program sensitive.
        assert_eq!(
            classify(&curve([0.8, 0.99, 1.0, 1.0], 2.0)),
            SensitivityClass::Light
        );
        assert_eq!(slowdown(&curve([0.5, 0.6, 0.8, 1.0], 0.0), 3.0), 1.0 / 0.7);
        assert_eq!(slowdown(&WayCurve::new(), 3.0), 1.0);
    }

    #[test]
    fn streaming_programs_share_a_way_and_sensitive_ones_the_rest() {
        let curves = [
            curve([0.5, 0.6, 0.8, 1.0], 5.0),
            curve([1.0; 4], 30.0),
            curve([0.9, 0.94, 1.0, 1.0], 5.0),
            curve([1.0; 4], 0.0),
            curve([1.0; 4], 30.0),
        ];
        let clusters = clusters(&named(&curves), 11);
        assert_eq!(clusters[0].ways, 1);
        let ids = |members: &[u32]| -> Vec<ProgramId> {
            members.iter().copied().map(ProgramId).collect()
        };
        assert_eq!(
            clusters[0].members,
            ids(&[1, 4, 3]),
            "a light program fits in"
        );
        assert_eq!(
            (&clusters[1].members, &clusters[2].members),
            (&ids(&[0]), &ids(&[2]))
        );
        assert!(clusters[1].ways > clusters[2].ways, "{clusters:?}");
        assert_eq!(clusters.iter().map(|c| c.ways).sum::<u32>(), 11);
    }

    #[test]
    fn programs_that_cannot_gain_are_not_divided() {
        let flat = [curve([1.0; 4], 30.0), curve([1.0; 4], 0.0)];
        assert!(clusters(&named(&flat), 11).is_empty());
        let one = [curve([0.5, 0.6, 0.8, 1.0], 5.0), curve([1.0; 4], 0.0)];
        assert!(
            clusters(&named(&one), 11).is_empty(),
            "light programs take nothing from it"
        );
    }

    #[test]
    fn all_programs_have_ways_whatever_their_number() {
        for ways in 2..13 {
            for count in 1..24 {
                let curves: Vec<WayCurve> = (0..count)
                    .map(|n| match n % 3 {
                        0 => curve([0.5, 0.6, 0.8, 1.0], 5.0),
                        1 => curve([1.0; 4], 30.0),
                        _ => curve([1.0; 4], 0.0),
                    })
                    .collect();
                let clusters = clusters(&named(&curves), ways);
                if clusters.is_empty() {
                    continue;
                }
                let members: usize = clusters.iter().map(|c| c.members.len()).sum();
                let sum: u32 = clusters.iter().map(|c| c.ways).sum();
                assert_eq!((members, sum), (count, ways), "{clusters:?}");
                assert!(clusters.len() <= MOST && clusters.iter().all(|c| c.ways > 0));
            }
        }
    }
}
