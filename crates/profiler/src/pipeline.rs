//! Pipeline metrics of a behaviour, computed from its windows.
//!
//! Input: records. Output: a behaviour's [`Pipeline`].

use countersteer_model::profile::{
    CONFLICT_WAYS, ChainPoint, Operation, Operations, Pipeline, Resolution, StreamPoint,
};

use super::figures::round;
use super::layout::{ILP_WINDOWS, MLP_LINES, record};

/// Mispredictions in the samples below which the whole run's resolution times are used.
const ENOUGH_BRANCHES: u64 = 32;

/// Returns the pipeline metrics of `own`. Those of samples come from `sampled`, or from `whole` if it has too few. `None` for a
/// run that ended before its first sample.
pub fn pipeline(own: &[u64], sampled: &[u64], whole: &[u64]) -> Option<Pipeline> {
    let instructions = sampled[record::SAMPLED];
    if instructions == 0 {
        return None;
    }
    let share = |field: usize| round(sampled[field] as f64 / instructions as f64);
    let modelled = [own, whole]
        .into_iter()
        .find(|r| r[record::MODELLED] > 0)
        .unwrap_or(whole);
    let operation = |operation: Operation| share(record::OPERATIONS + operation as usize);
    Some(Pipeline {
        operations: Operations {
            alu: operation(Operation::Alu),
            shift: operation(Operation::Shift),
            multiply: operation(Operation::Multiply),
            divide: operation(Operation::Divide),
            fp_add: operation(Operation::FpAdd),
            fp_multiply: operation(Operation::FpMultiply),
            fp_divide: operation(Operation::FpDivide),
            simd: operation(Operation::Simd),
        },
        fused: share(record::FUSED),
        taken: share(record::TAKEN),
        chains: chains(sampled),
        resolution: resolution(sampled, whole),
        streams: streams(modelled),
        conflicts: conflicts(modelled),
    })
}

fn chains(sampled: &[u64]) -> Vec<ChainPoint> {
    let added = |slow: usize, fast: usize| {
        let cycles = sampled[slow].saturating_sub(sampled[fast]);
        round(cycles as f64 / sampled[record::SAMPLED] as f64)
    };
    let point = |(lane, window): (usize, &usize)| ChainPoint {
        window: *window as u32,
        loads: added(record::LOAD_CYCLES + lane, record::ILP_CYCLES + lane),
        operations: added(record::OPERATION_CYCLES + lane, record::LOAD_CYCLES + lane),
    };
    ILP_WINDOWS.iter().enumerate().map(point).collect()
}

fn resolution(sampled: &[u64], whole: &[u64]) -> Resolution {
    let enough = |r: &&[u64]| r[record::RESOLVED] >= ENOUGH_BRANCHES;
    let known = [sampled, whole].into_iter().find(enough).unwrap_or(whole);
    let branches = known[record::RESOLVED].max(1) as f64;
    let [unit, loads, operations] =
        [0, 1, 2].map(|run| known[record::RESOLUTION + run] as f64 / branches);
    // Another latency may change the distances between branches, so a run with slower loads may have shorter resolution times.
    Resolution {
        unit: round(unit),
        loads: round((loads - unit).max(0.0)),
        operations: round((operations - loads).max(0.0)),
    }
}

fn streams(own: &[u64]) -> Vec<StreamPoint> {
    let point = |(size, lines): (usize, &u64)| {
        let misses = own[record::STREAMABLE + size].max(1) as f64;
        StreamPoint {
            cache_lines: *lines,
            share: round((own[record::STREAMED + size] as f64 / misses).min(1.0)),
        }
    };
    MLP_LINES.iter().enumerate().map(point).collect()
}

fn conflicts(own: &[u64]) -> Vec<f64> {
    let per_ki = 1000.0 / own[record::MODELLED].max(1) as f64;
    let missed = |ways: usize| {
        let depths = &own[record::CONFLICTS + ways..record::CONFLICTS + CONFLICT_WAYS];
        depths.iter().sum::<u64>() as f64
    };
    (0..CONFLICT_WAYS)
        .map(|ways| round(missed(ways) * per_ki))
        .collect()
}
