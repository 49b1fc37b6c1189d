//! Composite baselines of HASS: averages of the completion times of programs that are bound to each core.
//!
//! Source: HASS, section 5, platform and methodology. Both baselines combine the completion times of benchmarks "bound to a
//! particular type of core, while the overall system load was as specified". *Default* is the average, weighted by the number of
//! cores of each type. *Ideal-RR* is the time of a program whose time on each type is proportional to the number of such cores,
//! so it is the harmonic mean. Every program is bound to every core once, while the others are bound to the remaining cores.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::topology::Topology;

use super::values::CaseValues;
use crate::experiment::{Experiment, LoadedMachine, SimOptions};
use crate::plan::{self, Loaded};

/// Baseline that combines completion times on cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Composite {
    Default,
    IdealRoundRobin,
}

impl Composite {
    /// Returns the baseline for an arm's name; `None` if the arm is a policy.
    pub fn named(arm: &str) -> Option<Self> {
        match arm {
            "bound:default" => Some(Self::Default),
            "bound:ideal-rr" => Some(Self::IdealRoundRobin),
            _ => None,
        }
    }

    fn of(self, times_s: &[f64]) -> f64 {
        let n = times_s.len() as f64;
        match self {
            Self::Default => times_s.iter().sum::<f64>() / n,
            Self::IdealRoundRobin => n / times_s.iter().map(|t| 1.0 / t).sum::<f64>(),
        }
    }
}

/// Completion times of each program in seconds, one for each core to which it was bound.
pub(crate) type BoundTimes = BTreeMap<String, Vec<f64>>;

/// Returns static mappings that together place every program on every core once. `names` are those of a plan, with `copies`
/// consecutive copies of each program.
fn rotations(names: &[&str], copies: usize, topology: &Topology) -> Vec<String> {
    let mut cpus: Vec<_> = topology.cpus.iter().map(|c| (c.core_type, c.id)).collect();
    cpus.sort();
    let at = |turn: usize, nth: usize| cpus[(nth + turn * copies) % cpus.len()].1.0;
    let mapping = |turn: usize| {
        let names = names.iter().enumerate();
        let parts: Vec<String> = names
            .map(|(nth, name)| format!("{name}={}", at(turn, nth)))
            .collect();
        format!("static:{}", parts.join(","))
    };
    (0..cpus.len().div_ceil(copies)).map(mapping).collect()
}

/// Runs a workload once per static mapping. Returns the completion times of each program.
///
/// # Errors
/// Fails with the errors of the simulator.
pub fn bound(
    machine: &Arc<LoadedMachine>,
    workload: &Arc<Loaded>,
    copies: usize,
    seed: u64,
    options: &SimOptions,
) -> anyhow::Result<BoundTimes> {
    let planned = plan::plan(workload, &machine.topology)?;
    let names: Vec<&str> = planned.programs.iter().map(|p| &*p.name).collect();
    let mut times = BoundTimes::new();
    for policy in rotations(&names, copies, &machine.topology) {
        let experiment = Experiment {
            machine: Arc::clone(machine),
            workload: Arc::clone(workload),
            policy,
            seed,
            options: options.clone(),
            detail: None,
        };
        for program in experiment.run()?.score.programs {
            let base = program.name.split('#').next().unwrap_or_default();
            let of = times.entry(base.to_owned()).or_default();
            of.push(program.completion_s);
        }
    }
    Ok(times)
}

/// Adds the completion time of each program by a baseline, and their geometric mean for the mix.
pub fn add(
    values: &mut CaseValues,
    row: &str,
    arm: &str,
    composite: Composite,
    times: &BoundTimes,
) {
    let mut logarithms = 0.0;
    for (program, times_s) in times {
        let time_s = composite.of(times_s);
        values.add(&format!("{row}/{program}"), arm, "completion_s", time_s);
        logarithms += time_s.ln();
    }
    let mean = (logarithms / times.len() as f64).exp();
    values.add(row, arm, "completion_s", mean);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_on_every_core_once() {
        let machine = crate::experiment::machine("opteron-8356-2-2").unwrap();
        let mappings = rotations(&["a", "b", "c", "d"], 1, &machine.topology);
        assert_eq!(mappings.len(), 4);
        assert_eq!(mappings[0], "static:a=0,b=1,c=2,d=3");
        assert_eq!(mappings[3], "static:a=3,b=0,c=1,d=2");
    }

    #[test]
    fn default_is_the_arithmetic_mean_and_ideal_rr_the_harmonic_one() {
        assert_eq!(Composite::Default.of(&[1.0, 2.0]), 1.5);
        assert!((Composite::IdealRoundRobin.of(&[1.0, 2.0]) - 4.0 / 3.0).abs() < 1e-12);
    }
}
