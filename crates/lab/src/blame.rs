//! Slowdown that each program of a workload causes for each other program, and possible remedies.
//!
//! Input: an experiment with several programs. Output: a [`Blame`] with the increase of each program's time because of each
//! co-runner. To measure this, the workload also runs without each program. Other rows give slowdowns under other placement
//! policies and under a partition of the last-level cache. The partition follows from each program's speed alone with fewer
//! ways.
//!
//! Removing a program removes everything that programs share: caches, memory, SMT siblings, and CPU time if threads outnumber
//! CPUs.

use std::sync::Arc;

use countersteer_model::score::Score;
use countersteer_sim::progress::ModelError;
use rayon::prelude::*;
use serde::Serialize;

use crate::error::{FaultKind, failure};
use crate::experiment::{Experiment, LoadedMachine};
use crate::partition::SlowdownCurves;
use crate::plan::{self, Loaded, unrolled};

/// Slowdowns by program and by cause, with possible remedies.
#[derive(Clone, Debug, Serialize)]
pub struct Blame {
    pub machine: String,
    pub workload: String,
    pub policy: String,
    pub seeds: u64,
    /// Names of the programs, one per copy, in the workload's order.
    pub programs: Vec<String>,
    /// Slowdown of each program: its completion time relative to a run alone on the whole machine.
    pub slowdown: Vec<f64>,
    /// Relative increase of completion time by victim, then by cause: time with the cause divided by time without it, minus 1.
    /// The diagonal is 0.
    pub caused: Vec<Vec<f64>>,
    /// Slowdowns of the programs under other placement policies.
    pub places: Vec<PolicySlowdowns>,
    /// Partition of the last-level cache; `None` if no shared cache has a way for each program.
    pub partition: Option<WayPartition>,
}

impl Blame {
    /// Returns the slowdown of the program `victim` if the program `cause` does not run.
    #[must_use]
    pub fn without(&self, victim: usize, cause: usize) -> f64 {
        self.slowdown[victim] / (1.0 + self.caused[victim][cause])
    }
}

/// Slowdowns of the programs of a workload under another policy.
#[derive(Clone, Debug, Serialize)]
pub struct PolicySlowdowns {
    pub policy: String,
    pub slowdown: Vec<f64>,
}

/// Partition of the last-level cache that all programs share, with the ways of each program.
#[derive(Clone, Debug, Serialize)]
pub struct WayPartition {
    /// Number of ways of the whole cache.
    pub of_ways: u32,
    /// Size of the whole cache in bytes.
    pub of_bytes: f64,
    /// Number of ways of each program.
    pub ways: Vec<u32>,
    /// Slowdown of each program because of its misses with its ways alone. Sharing of memory bandwidth is not included.
    pub slowdown: Vec<f64>,
}

/// Measures the slowdown that each program causes for each other one. Results are means over `seeds` seeds, beginning with the
/// experiment's; `places` are the policies to compare.
///
/// # Errors
/// Fails with the errors of [`Experiment::run`], and if the workload has only one program.
pub fn blame(experiment: &Experiment, seeds: u64, places: &[String]) -> anyhow::Result<Blame> {
    let names = names(experiment)?;
    let alone = unrolled(&experiment.workload, &names);
    let mut variants = vec![experiment.clone()];
    variants.extend((0..names.len()).map(|out| without(experiment, &alone, out)));
    variants.extend(places.iter().map(|policy| Experiment {
        policy: policy.clone(),
        ..experiment.clone()
    }));
    let scores = run(&variants, seeds)?;
    let (whole, rest) = scores.split_at(1);
    let (left_out, placed) = rest.split_at(names.len());
    let caused = |victim: usize| {
        let by = |cause: usize| match victim.cmp(&cause) {
            std::cmp::Ordering::Equal => 0.0,
            order => {
                let row = victim - usize::from(order == std::cmp::Ordering::Greater);
                mean(&whole[0], victim, |p| p.0) / mean(&left_out[cause], row, |p| p.0) - 1.0
            }
        };
        (0..names.len()).map(by).collect()
    };
    let slowdown = |scores: &[Score]| -> Vec<f64> {
        let rows = 0..names.len();
        rows.map(|row| mean(scores, row, |p| p.1)).collect()
    };
    let placed = places
        .iter()
        .zip(placed)
        .map(|(policy, scores)| PolicySlowdowns {
            policy: policy.clone(),
            slowdown: slowdown(scores),
        });
    Ok(Blame {
        machine: experiment.machine.machine.name.clone(),
        workload: experiment.workload.name.clone(),
        policy: experiment.policy.clone(),
        seeds,
        slowdown: slowdown(&whole[0]),
        caused: (0..names.len()).map(caused).collect(),
        places: placed.collect(),
        partition: partition(&experiment.machine, &alone)?,
        programs: names,
    })
}

/// Returns the names of all copies of the programs. Fails if there is only one.
fn names(experiment: &Experiment) -> anyhow::Result<Vec<String>> {
    let plan = plan::plan(&experiment.workload, &experiment.machine.topology)?;
    let names: Vec<String> = plan.programs.iter().map(|p| p.name.to_string()).collect();
    if names.len() < 2 {
        let workload = &experiment.workload.name;
        return Err(failure(
            FaultKind::BadInput,
            format!("workload {workload} has one program: no co-runner slows it"),
        ));
    }
    Ok(names)
}

fn without(experiment: &Experiment, unrolled: &Loaded, out: usize) -> Experiment {
    let mut loaded = unrolled.clone();
    loaded.programs.remove(out);
    Experiment {
        workload: Arc::new(loaded),
        ..experiment.clone()
    }
}

/// Runs each variant with each seed. Returns the scores by variant, then by seed.
fn run(variants: &[Experiment], seeds: u64) -> anyhow::Result<Vec<Vec<Score>>> {
    let all: Vec<Experiment> = variants
        .iter()
        .flat_map(|variant| {
            (0..seeds).map(|n| Experiment {
                seed: variant.seed + n,
                detail: None,
                ..variant.clone()
            })
        })
        .collect();
    let scores = all.par_iter().map(|e| e.run().map(|f| f.score));
    let scores = scores.collect::<anyhow::Result<Vec<_>>>()?;
    let by_variant = scores.chunks(seeds.max(1) as usize);
    Ok(by_variant.map(<[Score]>::to_vec).collect())
}

/// Returns the geometric mean over seeds of a value of one program. `of` computes the value from the pair (completion time,
/// slowdown).
fn mean(scores: &[Score], row: usize, of: impl Fn((f64, f64)) -> f64) -> f64 {
    let value = |score: &Score| {
        let program = &score.programs[row];
        of((program.completion_s, program.slowdown)).ln()
    };
    (scores.iter().map(value).sum::<f64>() / scores.len().max(1) as f64).exp()
}

/// Divides the ways of the last-level cache one by one: each way goes to the program with the largest slowdown so far. `None` if
/// no shared cache has a way for each program.
fn partition(machine: &LoadedMachine, loaded: &Loaded) -> Result<Option<WayPartition>, ModelError> {
    let Some(curves) = SlowdownCurves::of(machine, loaded)? else {
        return Ok(None);
    };
    let programs = curves.slowdowns.len() as u32;
    let mut ways = vec![1; programs as usize];
    for _ in programs..curves.of_ways {
        let worst = (0..ways.len()).max_by(|a, b| {
            let of = |row: usize| curves.slowdown(row, ways[row]);
            of(*a).total_cmp(&of(*b)).then(ways[*b].cmp(&ways[*a]))
        });
        worst.into_iter().for_each(|row| ways[row] += 1);
    }
    let rows = ways.iter().enumerate();
    Ok(Some(WayPartition {
        of_ways: curves.of_ways,
        of_bytes: curves.of_bytes,
        slowdown: rows
            .map(|(row, ways)| curves.slowdown(row, *ways))
            .collect(),
        ways,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(machine: &str, profiles: [&str; 2]) -> Blame {
        let text = profiles.map(|p| format!("[[program]]\nprofile = \"{p}\"\n"));
        let loaded = plan::of_text("pair", text.concat()).unwrap();
        let experiment = Experiment {
            machine: crate::experiment::machine(machine).unwrap(),
            workload: Arc::new(loaded),
            policy: "linux".into(),
            seed: 1,
            options: crate::SimOptions {
                rounds: 1,
                ..Default::default()
            },
            detail: None,
        };
        blame(&experiment, 1, &["mpi".into()]).unwrap()
    }

    #[test]
    fn who_shares_nothing_slows_no_other_and_who_needs_no_cache_gets_few_ways() {
        let quiet = of(
            "core2-quad",
            ["recorded/bodies.json", "recorded/bodies.json"],
        );
        assert_eq!(quiet.programs, ["bodies", "bodies#2"]);
        let most = quiet
            .caused
            .iter()
            .flatten()
            .fold(0.0, |a, b| f64::max(a, b.abs()));
        assert!(most < 0.02, "{:?}", quiet.caused);
        // `gzip` and `stream` share one last-level cache; `stream` pollutes it.
        let loud = of(
            "i9-12900k-8p8e",
            ["recorded/gzip.json", "recorded/stream.json"],
        );
        let partition = loud.partition.unwrap();
        assert_eq!(partition.ways.iter().sum::<u32>(), partition.of_ways);
        assert!(partition.slowdown.iter().all(|s| (0.99..1.5).contains(s)));
        assert_eq!(loud.places[0].slowdown.len(), 2);
        assert_eq!(loud.caused[1][1], 0.0);
    }
}
