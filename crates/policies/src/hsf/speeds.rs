//! Frequency hints and nominal speeds of core types, by rank.

use countersteer_model::placement::Clamp;
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::CoreTypeId;

/// Returns the frequency hint of each rank: full speed for the fastest type, and the type's own capacity as the limit for a
/// slower one. A thread that arrives on the fast core then runs at full frequency at once. A thread on a slow core does not
/// raise a clock that others share.
pub(super) fn clamps(topology: &Topology) -> Vec<Clamp> {
    let types: Vec<_> = types(topology).collect();
    if types.len() < 2 {
        return Vec::new();
    }
    let clamp = |(rank, t): (usize, &CoreTypeId)| match rank {
        0 => Clamp::FULL,
        _ => Clamp::at_most(topology.core_types[t.index()].capacity),
    };
    types.iter().enumerate().map(clamp).collect()
}

/// Returns the relative nominal speed of each core type, from 0 (slowest) to 1 (fastest).
pub(super) fn between(topology: &Topology) -> Vec<f64> {
    let speeds: Vec<f64> = types(topology)
        .map(|t| &topology.core_types[t.index()])
        .map(|t| f64::from(t.capacity) * t.freq_ghz * t.dispatch_width)
        .collect();
    let fast = speeds.first().copied().unwrap_or(1.0);
    let slow = speeds.last().copied().unwrap_or(1.0);
    let last = speeds.len().saturating_sub(1);
    let place = |(row, speed): (usize, &f64)| match row {
        0 => 1.0,
        _ if row == last => 0.0,
        _ if fast > slow => ((speed - slow) / (fast - slow)).clamp(0.0, 1.0),
        _ => 0.5,
    };
    speeds.iter().enumerate().map(place).collect()
}

/// Iterates over the core types that have CPUs, fastest first.
fn types(topology: &Topology) -> impl Iterator<Item = CoreTypeId> + '_ {
    let groups = topology.groups_by(GroupBy::CoreType);
    groups.iter().filter_map(|g| g.core_type)
}
