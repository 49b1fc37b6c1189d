//! Instructions per cycle over time.
//!
//! Source: HASS, section 6 and figure 5. Input: each program alone on both core groups, period by period. Output: the variation
//! of its IPC, and the fraction of time with high IPC.

use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use rayon::prelude::*;

use super::programs::Cast;
use super::values::CaseValues;
use super::watch::RunWatch;
use crate::experiment::LoadedMachine;

/// Threshold: minimum ratio of high to low IPC. Below it, a program has no phases of high IPC.
const VARIES: f64 = 1.1;

/// Instructions per cycle in each period.
#[derive(Default)]
struct Ipc(Vec<f64>);

impl Recorder for Ipc {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        let samples = seen.samples.iter();
        let ratios = samples.filter_map(|s| s.counts.ratio(Event::Instructions, Event::Cycles));
        self.0.extend(ratios);
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

impl Ipc {
    /// Returns the 5th and 95th percentiles of IPC over periods. They exclude a cold start, which is no phase.
    fn ends(&self) -> (f64, f64) {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let aside = sorted.len() / 20;
        let within = &sorted[aside..sorted.len() - aside];
        let end = |ipc: Option<&f64>| ipc.copied().unwrap_or(f64::NAN);
        (end(within.first()), end(within.last()))
    }

    /// Returns the ratio of high to low IPC, by these percentiles.
    fn range(&self) -> f64 {
        let (low, high) = self.ends();
        high / low
    }

    /// Returns the percentage of time in which IPC is above the middle between low and high; 0 if IPC hardly varies.
    fn high_share(&self) -> f64 {
        if self.range() < VARIES {
            return 0.0;
        }
        let (low, high) = self.ends();
        let above = self.0.iter().filter(|ipc| **ipc > (low + high) / 2.0);
        100.0 * above.count() as f64 / self.0.len() as f64
    }
}

/// Measures every program on both core groups.
pub fn measure(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    groups: &[String; 2],
    period_ms: f64,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let runs: Vec<(&String, &String)> = programs
        .iter()
        .flat_map(|program| groups.iter().map(move |group| (program, group)))
        .collect();
    let done: Vec<Ipc> = runs
        .par_iter()
        .map(|(program, group)| {
            let mut ipc = Ipc::default();
            let watch = RunWatch {
                machine,
                cast,
                program,
                place: group,
                period_ms,
                noise: Some(0.0),
                events: &[],
            };
            watch.run(&mut ipc)?;
            Ok(ipc)
        })
        .collect::<anyhow::Result<_>>()?;
    let mut values = CaseValues::default();
    programs.iter().for_each(|program| values.add_row(program));
    for ((program, group), ipc) in runs.into_iter().zip(done) {
        values.add(program, group, "ipc_range", ipc.range());
        values.add(program, group, "ipc_high", ipc.high_share());
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_is_above_the_middle_of_what_was_seen() {
        assert_eq!(Ipc(vec![0.2, 0.2, 0.3, 1.0]).high_share(), 25.0);
        assert_eq!(Ipc(vec![0.2, 1.0]).range(), 5.0);
        let mut once = vec![1.0; 39];
        once.push(9.0);
        assert_eq!(Ipc(once).range(), 1.0, "a start is no phase");
        assert_eq!(Ipc(vec![1.0, 1.02, 1.05]).high_share(), 0.0, "it is steady");
    }
}
