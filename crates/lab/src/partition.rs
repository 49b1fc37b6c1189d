//! Best partition of a cache's ways among programs.
//!
//! Input: a machine and a workload of up to [`MOST`] programs. Output: ways and slowdown of each program under the partition with
//! the highest system throughput, under the one with the lowest unfairness, and under simpler ones.
//!
//! Each program has its own ways, its own core and its own memory. Slowdowns come from misses only, so no run with such a
//! partition is faster than predicted. Clusters that share ways may be better, because a partition gives every program at least
//! one way.
//!
//! Search. Programs get ways one after the other (branch). A branch is abandoned if no continuation can be better than the best
//! partition so far (bound), as in PBBCache (Garcia-Garcia, Saez and Prieto-Matias, ICPE 2020 companion). The bound on throughput
//! is exact: the best throughput of the remaining programs with the remaining ways, tabulated beforehand. The bound on unfairness
//! is that of the programs so far: a further program never reduces the largest slowdown, nor increases the smallest.

use std::sync::Arc;

use countersteer_model::topology::Topology;
use countersteer_model::units::{CacheId, CoreTypeId};
use countersteer_policies::ways::lookahead;
use countersteer_sim::progress::{Analytic, ModelError, ProgressConfig, ProgressModel};
use serde::Serialize;

use crate::error::{FaultKind, failure};
use crate::experiment::LoadedMachine;
use crate::plan::unrolled;
use crate::plan::{self, Loaded};

/// Limit on the number of programs.
pub const MOST: usize = 8;
/// Tolerance for rounding errors in sums of throughput.
const ROUNDING: f64 = 1e-12;
/// Size of a cache line in bytes.
const LINE_BYTES: f64 = 64.0;

/// Slowdowns of programs by their number of ways of a cache.
///
/// ```
/// use countersteer_lab::partition::{PartitionObjective, SlowdownCurves};
///
/// // Slowdowns of two programs by their number of 4 ways: only the second one needs the cache.
/// let curves = SlowdownCurves {
///     of_ways: 4,
///     of_bytes: 4194304.0,
///     slowdowns: vec![vec![1.0, 1.0, 1.0, 1.0], vec![3.0, 2.0, 1.0, 1.0]],
/// };
/// let best = curves.best(PartitionObjective::Stp);
/// assert_eq!(best.ways, [1, 3]);
/// assert_eq!(best.stp, 2.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SlowdownCurves {
    /// Number of ways of the whole cache.
    pub of_ways: u32,
    /// Size of the whole cache in bytes.
    pub of_bytes: f64,
    /// Slowdowns by program, then by number of ways minus one: time relative to that with the whole cache.
    pub slowdowns: Vec<Vec<f64>>,
}

/// Objective by which the best partition is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionObjective {
    /// Highest system throughput: the sum of the inverse slowdowns.
    Stp,
    /// Lowest unfairness: the ratio of the largest slowdown to the smallest.
    Unfairness,
}

/// Partition of the ways among the programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramDivision {
    /// Number of ways of each program.
    pub ways: Vec<u32>,
    /// Slowdown of each program: time relative to that with the whole cache.
    pub slowdown: Vec<f64>,
    /// System throughput.
    pub stp: f64,
    /// Ratio of the largest slowdown to the smallest.
    pub unfairness: f64,
}

/// Partitions of a workload by several methods.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramDivisions {
    pub machine: String,
    pub workload: String,
    /// Number of ways of the whole cache.
    pub of_ways: u32,
    /// Size of the whole cache in bytes.
    pub of_bytes: f64,
    /// Names of the programs.
    pub programs: Vec<String>,
    /// Partition with the highest system throughput.
    pub best_stp: ProgramDivision,
    /// Partition with the lowest unfairness.
    pub best_unfairness: ProgramDivision,
    /// Partition by lookahead on slowdowns, as the policy `clusters` does for sensitive programs.
    pub lookahead: ProgramDivision,
    /// Partition into parts that are as equal as possible.
    pub equal: ProgramDivision,
}

impl SlowdownCurves {
    /// Computes the slowdowns of the programs of a workload. `None` if the machine has no shared cache with a way for each
    /// program.
    ///
    /// # Errors
    /// Fails if the machine cannot run a profile.
    pub fn of(machine: &LoadedMachine, loaded: &Loaded) -> Result<Option<Self>, ModelError> {
        let topology = &machine.topology;
        let shared = topology
            .caches
            .iter()
            .filter(|c| !c.private && c.cpus.len() > 1);
        let Some(cache) = shared.max_by_key(|c| c.level) else {
            return Ok(None);
        };
        if (cache.ways as usize) < loaded.programs.len() {
            return Ok(None);
        }
        // Rows are numbers of ways, columns are programs.
        let speeds = (1..=cache.ways).map(|ways| speeds(topology, cache.id, ways, loaded));
        let speeds = speeds.collect::<Result<Vec<_>, _>>()?;
        let slowdowns = |program: usize| -> Vec<f64> {
            let whole = speeds[cache.ways as usize - 1][program];
            speeds.iter().map(|row| whole / row[program]).collect()
        };
        Ok(Some(Self {
            of_ways: cache.ways,
            of_bytes: cache.lines * LINE_BYTES,
            slowdowns: (0..loaded.programs.len()).map(slowdowns).collect(),
        }))
    }

    /// Returns the slowdown of a program with a number of ways, at least 1.
    #[must_use]
    pub fn slowdown(&self, program: usize, ways: u32) -> f64 {
        self.slowdowns[program][ways as usize - 1]
    }

    /// Returns the partition that gives each program this number of ways.
    #[must_use]
    pub fn division(&self, ways: Vec<u32>) -> ProgramDivision {
        let each = ways.iter().enumerate();
        let slowdown: Vec<f64> = each.map(|(row, ways)| self.slowdown(row, *ways)).collect();
        let (least, most) = range(&slowdown);
        ProgramDivision {
            stp: slowdown.iter().map(|s| 1.0 / s).sum(),
            unfairness: most / least,
            slowdown,
            ways,
        }
    }

    /// Returns the best partition. Of several with equal unfairness, it is the one with the highest throughput. Of several that
    /// are equal in both, it is the one with the fewest ways for the first programs.
    #[must_use]
    pub fn best(&self, objective: PartitionObjective) -> ProgramDivision {
        let mut search = PartitionSearch {
            curves: self,
            objective,
            rest: self.throughput_of_rest(),
            ways: Vec::with_capacity(self.slowdowns.len()),
            best: (f64::NEG_INFINITY, f64::NEG_INFINITY, Vec::new()),
        };
        search.branch(self.of_ways, 0.0, (f64::MAX, f64::MIN));
        self.division(search.best.2)
    }

    /// Returns the highest throughput of the programs from each index on, by number of ways.
    fn throughput_of_rest(&self) -> Vec<Vec<f64>> {
        let all = self.of_ways as usize;
        let mut rest = vec![vec![0.0; all + 1]];
        for row in self.slowdowns.iter().rev() {
            let after = &rest[rest.len() - 1];
            let with = |ways: usize| {
                let splits = (1..=ways).map(|own| 1.0 / row[own - 1] + after[ways - own]);
                splits.fold(f64::NEG_INFINITY, f64::max)
            };
            let next = (0..=all).map(with).collect();
            rest.push(next);
        }
        rest.reverse();
        rest
    }
}

fn range(slowdowns: &[f64]) -> (f64, f64) {
    let each = slowdowns.iter();
    each.fold((f64::MAX, f64::MIN), |(least, most), s| {
        (least.min(*s), most.max(*s))
    })
}

/// State of the branch-and-bound search.
struct PartitionSearch<'a> {
    curves: &'a SlowdownCurves,
    objective: PartitionObjective,
    /// Highest throughput of the programs from each index on, by number of ways.
    rest: Vec<Vec<f64>>,
    /// Ways of the programs that have been decided so far.
    ways: Vec<u32>,
    /// Best partition so far: value (higher is better), throughput, and ways.
    best: (f64, f64, Vec<u32>),
}

impl PartitionSearch<'_> {
    /// Decides the ways of the next program. `left` ways are left; `stp` and the pair are the throughput and the range of
    /// slowdowns of the programs so far.
    fn branch(&mut self, left: u32, stp: f64, (least, most): (f64, f64)) {
        let row = self.ways.len();
        let after = (self.curves.slowdowns.len() - row) as u32;
        if after == 0 {
            let value = self.value(stp, least, most);
            if (value, stp) > (self.best.0, self.best.1) {
                self.best = (value, stp, self.ways.clone());
            }
            return;
        }
        let hope_stp = stp + self.rest[row][left as usize];
        let hope = self.value(hope_stp, least, most);
        // Rounding errors of the sums may have either sign, so the comparisons have a tolerance.
        let beaten = (hope, hope_stp + ROUNDING) < (self.best.0 - ROUNDING, self.best.1);
        let no_better = hope <= self.best.0 && hope_stp + ROUNDING < self.best.1;
        if row > 0 && (beaten || no_better) {
            return;
        }
        // The last program gets all remaining ways.
        let from = if after == 1 { left } else { 1 };
        for own in from..=left + 1 - after {
            let slowdown = self.curves.slowdown(row, own);
            self.ways.push(own);
            let range = (least.min(slowdown), most.max(slowdown));
            self.branch(left - own, stp + 1.0 / slowdown, range);
            self.ways.pop();
        }
    }

    fn value(&self, stp: f64, least: f64, most: f64) -> f64 {
        match self.objective {
            PartitionObjective::Stp => stp,
            PartitionObjective::Unfairness => -most / least,
        }
    }
}

/// Computes the partitions for the programs of a workload; each copy counts as a program.
///
/// # Errors
/// Fails if there are more than [`MOST`] programs, if no cache has a way for each, or if the machine cannot run a profile.
pub fn divisions(machine: &LoadedMachine, workload: &Loaded) -> anyhow::Result<ProgramDivisions> {
    let plan = plan::plan(workload, &machine.topology)?;
    let programs: Vec<String> = plan.programs.iter().map(|p| p.name.to_string()).collect();
    let refused = |why: String| failure(FaultKind::BadInput, why);
    if programs.len() > MOST {
        return Err(refused(format!(
            "workload {} has {} programs: divisions are searched for up to {MOST}",
            workload.name,
            programs.len()
        )));
    }
    let curves = SlowdownCurves::of(machine, &unrolled(workload, &programs))?.ok_or_else(|| {
        refused(format!(
            "machine {} has no shared cache with a way for each of {} programs; `steer machine list` shows others",
            machine.machine.name,
            programs.len()
        ))
    })?;
    let count = programs.len() as u32;
    let equal = (0..count).map(|row| {
        let more = u32::from(row < curves.of_ways % count);
        curves.of_ways / count + more
    });
    Ok(ProgramDivisions {
        machine: machine.machine.name.clone(),
        workload: workload.name.clone(),
        of_ways: curves.of_ways,
        of_bytes: curves.of_bytes,
        best_stp: curves.best(PartitionObjective::Stp),
        best_unfairness: curves.best(PartitionObjective::Unfairness),
        lookahead: curves.division(lookahead(&curves.slowdowns, curves.of_ways)),
        equal: curves.division(equal.collect()),
        programs,
    })
}

/// Returns the highest throughput of any partition of the one last-level cache. `None` unless the programs have one thread each,
/// and a core each.
///
/// # Errors
/// Fails if the machine cannot run a profile.
pub fn best_stp(machine: &LoadedMachine, workload: &Loaded) -> anyhow::Result<Option<f64>> {
    let topology = &machine.topology;
    let plan = plan::plan(workload, topology)?;
    let names: Vec<String> = plan.programs.iter().map(|p| p.name.to_string()).collect();
    let single = plan.programs.iter().all(|p| p.threads == 1);
    let fits = (2..=MOST).contains(&names.len()) && names.len() <= topology.cpus.len();
    if !(single && fits && countersteer_policies::ways::only_cache(topology).is_some()) {
        return Ok(None);
    }
    let curves = SlowdownCurves::of(machine, &unrolled(workload, &names))?;
    Ok(curves.map(|curves| curves.best(PartitionObjective::Stp).stp))
}

/// Returns the instructions per second of each program alone on the fastest cores, with this number of ways of a cache.
fn speeds(
    topology: &Topology,
    cache: CacheId,
    ways: u32,
    loaded: &Loaded,
) -> Result<Vec<f64>, ModelError> {
    let mut topology = topology.clone();
    let level = topology.caches[cache.index()].level;
    for cache in topology.caches.iter_mut().filter(|c| c.level == level) {
        cache.lines *= f64::from(ways) / f64::from(cache.ways);
        cache.ways = ways;
    }
    let fast: CoreTypeId = topology.extremes().0;
    let mut model = Analytic::new(Arc::new(topology), ProgressConfig::default());
    let profiles = loaded.programs.iter().map(|(_, profile)| profile);
    let speed = |profile: &Arc<_>| {
        let id = model.add_program(Arc::clone(profile))?;
        Ok(model.alone_ips(id, fast))
    };
    profiles.map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Curves of programs of random cliffs and slopes, from a linear congruential generator.
    fn random(programs: usize, ways: u32, seed: u64) -> SlowdownCurves {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f64 / f64::from(1 << 24)
        };
        let mut curve = || {
            let steps: Vec<f64> = (1..ways).map(|_| next().powi(4)).collect();
            let above = |ways: usize| 1.0 + steps[ways - 1..].iter().sum::<f64>();
            (1..=ways as usize).map(above).collect()
        };
        SlowdownCurves {
            of_ways: ways,
            of_bytes: 0.0,
            slowdowns: (0..programs).map(|_| curve()).collect(),
        }
    }

    /// Every division of `left` ways among `programs`.
    fn all(left: u32, programs: u32) -> Vec<Vec<u32>> {
        if programs == 1 {
            return vec![vec![left]];
        }
        let with = |own: u32| {
            let rest = all(left - own, programs - 1).into_iter();
            rest.map(move |rest| [vec![own], rest].concat())
        };
        (1..=left + 1 - programs).flat_map(with).collect()
    }

    #[test]
    fn branch_and_bound_finds_what_exhaustive_search_finds() {
        for (programs, ways) in [(1, 4), (2, 7), (3, 11), (4, 11), (5, 9), (6, 6)] {
            for seed in 0..20 {
                let curves = random(programs, ways, seed);
                let every = all(ways, programs as u32);
                let every: Vec<ProgramDivision> = every
                    .into_iter()
                    .map(|ways| curves.division(ways))
                    .collect();
                let most = every.iter().map(|d| d.stp).fold(0.0, f64::max);
                let least = every.iter().map(|d| d.unfairness).fold(f64::MAX, f64::min);
                let [stp, fair] = [PartitionObjective::Stp, PartitionObjective::Unfairness]
                    .map(|o| curves.best(o));
                assert!((stp.stp - most).abs() < 1e-9, "{programs} {ways} {seed}");
                assert_eq!(fair.unfairness, least, "{programs} {ways} {seed}");
                let fairest = every.iter().filter(|d| d.unfairness == least);
                let most = fairest.map(|d| d.stp).fold(0.0, f64::max);
                assert!((fair.stp - most).abs() < 1e-9, "{programs} {ways} {seed}");
                for found in [stp, fair] {
                    assert_eq!(found.ways.iter().sum::<u32>(), ways);
                }
            }
        }
    }

    #[test]
    fn eight_programs_are_divided_at_once_and_lookahead_is_no_better() {
        for seed in 0..5 {
            let curves = random(8, 20, seed);
            let best = curves.best(PartitionObjective::Stp);
            let greedy = curves.division(lookahead(&curves.slowdowns, 20));
            assert!(
                best.stp >= greedy.stp - 1e-9,
                "{seed}: {} {}",
                best.stp,
                greedy.stp
            );
            assert!(curves.best(PartitionObjective::Unfairness).unfairness <= greedy.unfairness);
        }
    }

    #[test]
    fn programs_that_need_the_cache_get_it() {
        let machine = crate::experiment::machine("xeon-gold-6138").unwrap();
        let of = |names: &[&str]| {
            let text = names
                .iter()
                .map(|p| format!("[[program]]\nprofile = \"{p}\"\n"));
            let loaded = plan::of_text("mix", text.collect()).unwrap();
            divisions(&machine, &loaded)
        };
        let found = of(&["omnetpp-2006", "lbm-2006", "povray-2006"]).unwrap();
        assert_eq!(found.of_ways, 11);
        let ways = &found.best_stp.ways;
        assert!(ways[0] > 7, "{found:?}");
        assert!(found.best_stp.stp >= found.equal.stp);
        assert!(found.best_unfairness.unfairness <= found.best_stp.unfairness);
        let many = of(&["lbm-2006"; 9]).unwrap_err().to_string();
        assert!(many.contains("9 programs"), "{many}");
    }
}
