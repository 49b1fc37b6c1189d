//! Efficiency factors over time: both core types, in windows of equal instructions.
//!
//! Source: PMCTrack, section 4.2.2 and figure 14. Counters and energy are read after every N retired instructions on both core
//! types, and windows with the same number are paired. Input: samples of every period. Output: the number of phases.

use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;

use super::programs::Cast;
use super::values::CaseValues;
use super::watch::RunWatch;
use crate::experiment::LoadedMachine;

/// Threshold: maximum relative distance from the mean at which factors belong to one phase.
const SAME_PHASE: f64 = 0.10;
/// Time between samples, in ms; windows are interpolated between samples.
const PERIOD_MS: f64 = 20.0;

/// Instructions, seconds and joules of a thread since its start, at each sample.
#[derive(Default)]
struct Readings(Vec<[f64; 3]>);

impl Recorder for Readings {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        for sample in seen.samples.iter() {
            let last = self.0.last().copied().unwrap_or_default();
            let count = |event| sample.counts.get(event).unwrap_or(0.0);
            self.0.push([
                last[0] + count(Event::Instructions),
                last[1] + sample.running.as_secs_f64(),
                last[2] + count(Event::EnergyNj) * 1e-9,
            ]);
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

impl Readings {
    /// Returns the seconds and joules up to a number of instructions, interpolated between samples.
    fn at(&self, instructions: f64) -> [f64; 2] {
        let row = self.0.partition_point(|r| r[0] < instructions);
        let after = self
            .0
            .get(row)
            .or(self.0.last())
            .copied()
            .unwrap_or_default();
        let before = row.checked_sub(1).map_or([0.0; 3], |row| self.0[row]);
        let part = ((instructions - before[0]) / (after[0] - before[0]).max(1.0)).clamp(0.0, 1.0);
        [1, 2].map(|k| before[k] + part * (after[k] - before[k]))
    }

    /// Returns the energy-delay product of each window of `length` instructions.
    fn windows(&self, length: f64) -> Vec<f64> {
        let whole = self.0.last().map_or(0.0, |r| (r[0] / length).floor());
        let edp = |window: usize| {
            let from = self.at(length * window as f64);
            let to = self.at(length * (window + 1) as f64);
            (to[0] - from[0]) * (to[1] - from[1])
        };
        (0..whole as usize).map(edp).collect()
    }
}

/// Measures every program.
pub fn measure(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    groups: &[String; 2],
    instructions: f64,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let mut values = CaseValues::default();
    for program in programs {
        let mut edp = Vec::new();
        for group in groups {
            let mut readings = Readings::default();
            let watch = RunWatch {
                machine,
                cast,
                program,
                place: group,
                period_ms: PERIOD_MS,
                noise: Some(0.0),
                events: &[],
            };
            watch.run(&mut readings)?;
            edp.push(readings.windows(instructions));
        }
        let factors: Vec<f64> = edp[1].iter().zip(&edp[0]).map(|(s, f)| s / f).collect();
        values.add_row(program);
        let most = factors.iter().copied().fold(0.0, f64::max);
        let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
        values.add(program, "ratio", "ef_range", most / least);
        values.add(program, "ratio", "ef_phases", phases(&factors) as f64);
    }
    Ok(values)
}

/// Returns the number of phases: contiguous windows whose factors stay close to the mean of the phase.
fn phases(factors: &[f64]) -> usize {
    let mut count = 0;
    let (mut sum, mut windows) = (0.0, 0.0);
    for factor in factors {
        if windows == 0.0 || (factor * windows / sum - 1.0f64).abs() > SAME_PHASE {
            count += 1;
            (sum, windows) = (0.0, 0.0);
        }
        sum += factor;
        windows += 1.0;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_cut_between_readings() {
        // 10 instructions a second at 2 W, then 5 a second at 4 W.
        let readings = Readings(vec![[10.0, 1.0, 2.0], [20.0, 2.0, 4.0], [25.0, 3.0, 8.0]]);
        assert_eq!(readings.at(15.0), [1.5, 3.0]);
        let edp = readings.windows(5.0);
        assert_eq!(edp.len(), 5);
        assert!((edp[0] - 0.5).abs() < 1e-12 && (edp[4] - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_phase_ends_where_the_factor_leaves_its_mean() {
        assert_eq!(phases(&[1.0, 1.05, 1.0, 2.0, 2.1, 1.0]), 3);
        assert_eq!(phases(&[1.0; 9]), 1);
        assert_eq!(phases(&[]), 0);
    }
}
