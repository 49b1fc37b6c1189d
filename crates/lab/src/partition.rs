//! The best division of a cache's ways among programs.
//!
//! Input: a machine and a workload of up to [`MOST`] programs. Output: ways and slowdown of each program under the division with
//! the highest system throughput, under the one with the least unfairness, and under simpler ones.
//!
//! Each program has ways of its own, and a core and memory to itself: slowdowns are from misses alone, so no run with such a
//! division is faster than its figures. Clusters that share ways may be better, as a way is the least that a division gives.
//!
//! Search. Programs get ways one after the other (branch). A branch is left if no way to continue beats the best division so
//! far (bound), as in PBBCache (Garcia-Garcia, Saez and Prieto-Matias, ICPE 2020 companion). The bound of throughput is exact: the
//! best of the other programs with the ways that are left, tabulated beforehand. The bound of unfairness is that of the programs so
//! far, since a further program never makes the largest slowdown less, nor the smallest more.

use std::sync::Arc;

use countersteer_model::topology::Topology;
use countersteer_model::units::{CacheId, CoreTypeId};
use countersteer_policies::ways::lookahead;
use countersteer_sim::progress::{Analytic, ModelError, ProgressConfig, ProgressModel};
use serde::Serialize;

use crate::blame::unrolled;
use crate::error::{Kind, failure};
use crate::experiment::LoadedMachine;
use crate::plan::{self, Loaded};

/// Largest number of programs.
pub const MOST: usize = 8;
/// Rounding of sums of throughput.
const ROUNDING: f64 = 1e-12;
/// Bytes of a line.
const LINE_BYTES: f64 = 64.0;

/// Slowdowns of programs by their ways of a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Ways of the whole cache, and its size in bytes.
    pub of_ways: u32,
    pub of_bytes: f64,
    /// By program, then by number of ways less one: time relative to that with the whole cache.
    pub slowdowns: Vec<Vec<f64>>,
}

/// Objective of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Sum of the inverse slowdowns (system throughput); highest.
    Stp,
    /// Largest over smallest slowdown; least.
    Unfairness,
}

/// Division of the ways.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Division {
    /// By program.
    pub ways: Vec<u32>,
    /// By program: time relative to that with the whole cache.
    pub slowdown: Vec<f64>,
    pub stp: f64,
    pub unfairness: f64,
}

/// Divisions of a workload, by name.
#[derive(Clone, Debug, Serialize)]
pub struct Divisions {
    pub machine: String,
    pub workload: String,
    /// Ways of the whole cache, and its size in bytes.
    pub of_ways: u32,
    pub of_bytes: f64,
    pub programs: Vec<String>,
    pub best_stp: Division,
    pub best_unfairness: Division,
    /// Lookahead on slowdowns, as the policy `clusters` does for sensitive programs.
    pub lookahead: Division,
    /// As equal as whole ways allow.
    pub equal: Division,
}

impl Curves {
    /// Curves of the programs of a workload, a row each; `None` if the machine has no shared cache with a way for each.
    ///
    /// # Errors
    /// A profile that the machine cannot run.
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
        // Rows by number of ways; columns by program.
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

    /// Slowdown of a program with a number of ways, which is at least 1.
    #[must_use]
    pub fn slowdown(&self, program: usize, ways: u32) -> f64 {
        self.slowdowns[program][ways as usize - 1]
    }

    /// Division with these ways.
    #[must_use]
    pub fn division(&self, ways: Vec<u32>) -> Division {
        let each = ways.iter().enumerate();
        let slowdown: Vec<f64> = each.map(|(row, ways)| self.slowdown(row, *ways)).collect();
        let (least, most) = range(&slowdown);
        Division {
            stp: slowdown.iter().map(|s| 1.0 / s).sum(),
            unfairness: most / least,
            slowdown,
            ways,
        }
    }

    /// The best division. Among divisions of equal unfairness it is the one with the highest throughput; of those that are equal in
    /// both, the first by the ways of the first programs, fewest first.
    #[must_use]
    pub fn best(&self, objective: Objective) -> Division {
        let mut search = Search {
            curves: self,
            objective,
            rest: self.throughput_of_rest(),
            ways: Vec::with_capacity(self.slowdowns.len()),
            best: (f64::NEG_INFINITY, f64::NEG_INFINITY, Vec::new()),
        };
        search.branch(self.of_ways, 0.0, (f64::MAX, f64::MIN));
        self.division(search.best.2)
    }

    /// Highest throughput of the programs from each row on, by number of ways.
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

/// State of the search.
struct Search<'a> {
    curves: &'a Curves,
    objective: Objective,
    /// Highest throughput of the programs from each row on, by number of ways.
    rest: Vec<Vec<f64>>,
    /// Ways of the programs so far.
    ways: Vec<u32>,
    /// Value, higher is better, throughput, and ways.
    best: (f64, f64, Vec<u32>),
}

impl Search<'_> {
    /// Continues with the next program: `left` ways are left; the programs so far have this throughput and range of slowdowns.
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
        // Sums may round either way.
        let beaten = (hope, hope_stp + ROUNDING) < (self.best.0 - ROUNDING, self.best.1);
        let no_better = hope <= self.best.0 && hope_stp + ROUNDING < self.best.1;
        if row > 0 && (beaten || no_better) {
            return;
        }
        // The last program takes all that is left.
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
            Objective::Stp => stp,
            Objective::Unfairness => -most / least,
        }
    }
}

/// Divisions of a workload's programs, copies apart.
///
/// # Errors
/// More than [`MOST`] programs, no cache with a way for each, or a profile that the machine cannot run.
pub fn divisions(machine: &LoadedMachine, workload: &Loaded) -> anyhow::Result<Divisions> {
    let plan = plan::plan(workload, &machine.topology)?;
    let programs: Vec<String> = plan.programs.iter().map(|p| p.name.to_string()).collect();
    let refused = |why: String| failure(Kind::BadInput, why);
    if programs.len() > MOST {
        return Err(refused(format!(
            "workload {} has {} programs: divisions are searched for up to {MOST}",
            workload.name,
            programs.len()
        )));
    }
    let curves = Curves::of(machine, &unrolled(workload, &programs))?.ok_or_else(|| {
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
    Ok(Divisions {
        machine: machine.machine.name.clone(),
        workload: workload.name.clone(),
        of_ways: curves.of_ways,
        of_bytes: curves.of_bytes,
        best_stp: curves.best(Objective::Stp),
        best_unfairness: curves.best(Objective::Unfairness),
        lookahead: curves.division(lookahead(&curves.slowdowns, curves.of_ways)),
        equal: curves.division(equal.collect()),
        programs,
    })
}

/// Highest throughput of any division of the one last-level cache, for programs of one thread each that have a core each;
/// `None` for others.
///
/// # Errors
/// A profile that the machine cannot run.
pub fn best_stp(machine: &LoadedMachine, workload: &Loaded) -> anyhow::Result<Option<f64>> {
    let topology = &machine.topology;
    let plan = plan::plan(workload, topology)?;
    let names: Vec<String> = plan.programs.iter().map(|p| p.name.to_string()).collect();
    let single = plan.programs.iter().all(|p| p.threads == 1);
    let fits = (2..=MOST).contains(&names.len()) && names.len() <= topology.cpus.len();
    if !(single && fits && countersteer_policies::ways::only_cache(topology).is_some()) {
        return Ok(None);
    }
    let curves = Curves::of(machine, &unrolled(workload, &names))?;
    Ok(curves.map(|curves| curves.best(Objective::Stp).stp))
}

/// Instructions per second of each program alone on the fastest cores, with the given number of ways of a cache.
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
    fn random(programs: usize, ways: u32, seed: u64) -> Curves {
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
        Curves {
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
                let every: Vec<Division> = every
                    .into_iter()
                    .map(|ways| curves.division(ways))
                    .collect();
                let most = every.iter().map(|d| d.stp).fold(0.0, f64::max);
                let least = every.iter().map(|d| d.unfairness).fold(f64::MAX, f64::min);
                let [stp, fair] = [Objective::Stp, Objective::Unfairness].map(|o| curves.best(o));
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
            let best = curves.best(Objective::Stp);
            let greedy = curves.division(lookahead(&curves.slowdowns, 20));
            assert!(
                best.stp >= greedy.stp - 1e-9,
                "{seed}: {} {}",
                best.stp,
                greedy.stp
            );
            assert!(curves.best(Objective::Unfairness).unfairness <= greedy.unfairness);
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
