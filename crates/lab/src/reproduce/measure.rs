//! Measurement of a case: runs it and collects its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::{BadCpuList, CpuSet};
use rayon::prelude::*;

use super::case::{Case, Method};
use super::inputs::{self, inputs};
use super::programs::{Cast, PlannedMember, lone, short};
use super::run::{CaseRun, run};
use super::values::CaseValues;
use super::{alone, mixes, models, occupancy, over_time, speed, tools, turns, windows};
use crate::error::{FaultKind, failure};
use crate::experiment::{self, Finished, LoadedMachine, SimOptions};
use crate::plan::Loaded;

/// Measures a case and returns its values.
///
/// # Errors
/// Fails if a machine, program, mix or policy does not exist, and with the errors of the simulator.
pub fn measure(case: &Case, cast: &Cast) -> anyhow::Result<CaseValues> {
    let machine = || experiment::machine(&case.machine);
    match &case.method {
        Method::Mixes { .. } => mixes::measure(&machine()?, case, cast),
        Method::Alone { programs, groups } => {
            alone::measure(&machine()?, &cast.expand(programs), groups, cast)
        }
        Method::Windows {
            programs,
            groups,
            instructions,
        } => windows::measure(
            &machine()?,
            &cast.expand(programs),
            groups,
            *instructions,
            cast,
        ),
        Method::Models { target } => models::measure(&machine()?.topology, target),
        Method::Pairs { programs, cpus } => pairs(&machine()?, &cast.expand(programs), cpus, cast),
        Method::CacheSizes {
            programs,
            sizes_kib,
        } => cache_sizes(&machine()?, &cast.expand(programs), sizes_kib, cast),
        Method::Inputs { profiles, groups } => inputs(&machine()?.topology, profiles, groups),
        Method::Readers { programs, cpus } => {
            tools::measure(&machine()?, &cast.expand(programs), cpus, cast)
        }
        Method::Turns {
            programs,
            groups,
            period_ms,
        } => turns::measure(
            &machine()?,
            &cast.expand(programs),
            groups,
            *period_ms,
            cast,
        ),
        Method::OverTime {
            programs,
            groups,
            period_ms,
        } => over_time::measure(
            &machine()?,
            &cast.expand(programs),
            groups,
            *period_ms,
            cast,
        ),
        Method::Occupancy {
            mixes,
            cpus,
            period_ms,
        } => occupancy::measure(&machine()?, mixes, cpus, *period_ms, cast),
        Method::Signature { program } => inputs::signature_of(program, cast),
        Method::Speed { mix } => speed::measure(&machine()?, mix, cast),
        Method::NotAttempted { .. } => Ok(CaseValues::default()),
    }
}

/// Parses a list of exactly two CPUs. Returns one for each program of a pair.
fn two_cpus(list: &str) -> anyhow::Result<[String; 2]> {
    let cpus: CpuSet = list.parse().map_err(|e: BadCpuList| {
        failure(FaultKind::BadInput, format!("`cpus = \"{list}\"`: {e}"))
    })?;
    let cpus: Vec<String> = cpus.iter().map(|c| c.to_string()).collect();
    let few = |_| failure(FaultKind::BadInput, "pairs need two CPUs");
    cpus.try_into().map_err(few)
}

/// Returns the completion time of a workload's first program in seconds.
fn completion_s(
    machine: &Arc<LoadedMachine>,
    workload: &Arc<Loaded>,
    policy: &str,
    options: &SimOptions,
) -> anyhow::Result<f64> {
    let one = CaseRun {
        row: "",
        arm: "",
        policy,
        workload,
        seed: 1,
    };
    Ok(run(machine, &one, options)?.score.programs[0].completion_s)
}

fn pairs<'a>(
    machine: &Arc<LoadedMachine>,
    programs: &'a [String],
    cpus: &str,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let [first, second] = &two_cpus(cpus)?;
    let options = cast.options(1, 100.0);
    let draws = 1..=cast.draws(programs);
    let with_draws = |program: &'a String| draws.clone().map(move |draw| (program, draw));
    let each: Vec<(&String, u64)> = programs.iter().flat_map(with_draws).collect();
    let alone = |(program, draw): &(&'a String, u64)| {
        let policy = format!("static:*={first}");
        let workload = lone(cast, program, *draw)?;
        let time_s = completion_s(machine, &workload, &policy, &options)?;
        Ok(((*program, *draw), time_s))
    };
    let alone_s: BTreeMap<(&String, u64), f64> =
        each.par_iter().map(alone).collect::<anyhow::Result<_>>()?;
    let slowdown = |(a, b, draw): &(&String, &String, u64)| {
        let member = |program, place| PlannedMember {
            program,
            threads: 1,
            copies: 1,
            launch_on: Some(place),
        };
        let members = [member(a, first), member(b, second)];
        let workload = cast.workload("pair", &members, *draw)?;
        let policy = format!("static:{}={first},{}={second}", short(a), short(b));
        let time_s = completion_s(machine, &workload, &policy, &options)?;
        Ok(time_s / alone_s[&(*a, *draw)])
    };
    let with_others = |(a, draw)| programs.iter().map(move |b| (a, b, draw));
    let all = each.iter().copied().flat_map(with_others);
    let all: Vec<(&String, &String, u64)> = all.filter(|(a, b, _)| a != b).collect();
    let slowdowns: Vec<f64> = all
        .par_iter()
        .map(slowdown)
        .collect::<anyhow::Result<_>>()?;
    let mut values = CaseValues::default();
    for ((a, b, draw), slowdown) in all.iter().zip(slowdowns) {
        let row = format!("{a}+{b}");
        if *draw == 1 {
            values.add_row(&row);
        }
        values.begin(*draw);
        values.add(&row, "pair", "slowdown", slowdown);
    }
    Ok(values)
}

fn cache_sizes(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    sizes_kib: &[f64],
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let options = cast.options(1, 100.0);
    let mut values = CaseValues::default();
    programs.iter().for_each(|program| values.add_row(program));
    let draws = 1..=cast.draws(programs);
    let with_draws = |program| draws.clone().map(move |draw| (program, draw));
    let all: Vec<(&String, u64)> = programs.iter().flat_map(with_draws).collect();
    for size_kib in sizes_kib {
        let machine = with_llc(machine, *size_kib)?;
        let one = |(program, seed): &(&String, u64)| {
            let one = CaseRun {
                row: "",
                arm: "",
                policy: "static:*=0",
                workload: &lone(cast, program, *seed)?,
                seed: *seed,
            };
            run(&machine, &one, &options)
        };
        let measured: Vec<Finished> = all.par_iter().map(one).collect::<anyhow::Result<_>>()?;
        for ((program, draw), finished) in all.iter().zip(&measured) {
            let usage = &finished.usage[0];
            let mpki = 1e3 * usage.llc_misses / usage.instructions;
            values.begin(*draw);
            values.add(program, &size_kib.to_string(), "mpki", mpki);
        }
    }
    Ok(values)
}

/// Returns a copy of the machine with another size of its last-level caches.
fn with_llc(machine: &LoadedMachine, size_kib: f64) -> anyhow::Result<Arc<LoadedMachine>> {
    let mut changed = machine.machine.clone();
    let level = changed.cache.iter().map(|c| c.level).max();
    for cache in &mut changed.cache {
        if Some(cache.level) == level {
            cache.size_kib = size_kib;
        }
    }
    Ok(Arc::new(LoadedMachine::of(changed)?))
}
