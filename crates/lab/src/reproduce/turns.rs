//! Errors of predicted factors while event sets are multiplexed, with and without the detection of phase changes.
//!
//! Source: PMCTrack, section 4.1.2 and figure 7. Each program runs on both core types. The metric's value after a sample applies
//! until the next one. Output: mean errors relative to the true factor at that time, and relative to the same model on a machine
//! that counts all events at once.

use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::events::Event;
use countersteer_model::metric::{MetricBank, events_on};
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, Nanos};
use rayon::prelude::*;

use super::programs::{Cast, first_cpu};
use super::values::CaseValues;
use super::watch::RunWatch;
use crate::experiment::LoadedMachine;

/// Metric of the trained model alone, which the paper's scheduler uses.
const METRIC: &str = "sf_steps";
/// Arms with and without the detection of phase changes.
pub const ARMS: [&str; 2] = ["check", "none"];

/// Number of counters with which a core counts all events at once.
const ENOUGH: u32 = 16;

/// Values of the metric after each sample, with and without the detection of phase changes, and the true values.
struct MetricAnswers {
    banks: [MetricBank; 2],
    samples: Vec<([Option<f64>; 2], Option<f64>)>,
    sets: u32,
}

impl MetricAnswers {
    fn new(topology: &Arc<Topology>) -> Self {
        let bank = || MetricBank::new(topology, &[METRIC]);
        Self {
            banks: [bank(), bank().blind_to_phases()],
            samples: Vec::new(),
            sets: 0,
        }
    }

    /// Returns the mean error of an arm's values relative to a reference, in percent, over the samples that have both.
    fn off(&self, arm: usize, reference: impl Iterator<Item = Option<f64>>) -> f64 {
        let known = self.samples.iter().zip(reference);
        let off: Vec<f64> = known
            .filter(|((said, _), _)| said.iter().all(Option::is_some))
            .filter_map(|((said, _), reference)| Some((said[arm]? / reference? - 1.0).abs()))
            .collect();
        100.0 * off.iter().sum::<f64>() / off.len() as f64
    }
}

impl Recorder for MetricAnswers {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        self.banks.iter_mut().for_each(|bank| bank.update(seen));
        for (thread, sample) in seen.samples.of_threads() {
            self.sets = self.sets.max(sample.sets());
            let said = [0, 1].map(|arm: usize| self.banks[arm].get(thread, METRIC));
            self.samples.push((said, sample.counts.get(Event::SfTrue)));
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

/// Measures every program on both core groups.
pub fn measure(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    groups: &[String; 2],
    period_ms: f64,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let mut changed = machine.machine.clone();
    for core_type in &mut changed.core_type {
        core_type.counters = ENOUGH;
    }
    let at_once = Arc::new(LoadedMachine::of(changed)?);
    let runs: Vec<(&String, &String)> = programs
        .iter()
        .flat_map(|program| groups.iter().map(move |group| (program, group)))
        .collect();
    let done: Vec<[MetricAnswers; 2]> = runs
        .par_iter()
        .map(|(program, group)| {
            let run = |machine| said(machine, program, group, period_ms, cast);
            Ok([run(machine)?, run(&at_once)?])
        })
        .collect::<anyhow::Result<_>>()?;
    let mut values = CaseValues::default();
    programs.iter().for_each(|program| values.add_row(program));
    for ((program, _), [said, at_once]) in runs.into_iter().zip(done) {
        for (arm, name) in ARMS.into_iter().enumerate() {
            let truth = said.samples.iter().map(|(_, truth)| *truth);
            values.add(program, name, "sf_error", said.off(arm, truth));
            let whole = at_once.samples.iter().map(|(said, _)| said[0]);
            values.add(program, name, "sf_off", said.off(arm, whole));
            values.add(program, name, "sets", f64::from(said.sets));
        }
    }
    Ok(values)
}

/// Runs a program on a core group and returns the values of the metric.
fn said(
    machine: &Arc<LoadedMachine>,
    program: &str,
    group: &str,
    period_ms: f64,
    cast: &Cast,
) -> anyhow::Result<MetricAnswers> {
    let events = events_on(&machine.topology, core_type(machine, group)?, &[METRIC]);
    let mut said = MetricAnswers::new(&machine.topology);
    let watch = RunWatch {
        machine,
        cast,
        program,
        place: group,
        period_ms,
        noise: None,
        events: &events,
    };
    watch.run(&mut said)?;
    Ok(said)
}

/// Returns the core type of a core group.
fn core_type(machine: &LoadedMachine, group: &str) -> anyhow::Result<CoreTypeId> {
    let first = first_cpu(&machine.topology, group)?;
    Ok(machine.topology.cpus[first.index()].core_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersteer_model::testing::{SMT, topology};

    #[test]
    fn both_arms_are_judged_by_the_same_samples() {
        let mut said = MetricAnswers::new(&topology(SMT));
        said.samples = vec![
            ([Some(1.1), None], Some(1.0)),
            ([Some(1.5), Some(3.0)], Some(2.0)),
            ([Some(1.5), Some(2.0)], None),
        ];
        let truth = || said.samples.iter().map(|(_, truth)| *truth);
        assert_eq!(said.off(0, truth()), 25.0);
        assert_eq!(said.off(1, truth()), 50.0);
    }
}
