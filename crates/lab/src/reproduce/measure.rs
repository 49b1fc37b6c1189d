//! Runs a case and collects its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::{BadCpuList, CpuSet};
use countersteer_model::events::Event;
use countersteer_model::topology::Topology;
use rayon::prelude::*;

use super::case::{Case, Method};
use super::composite::{self, Composite};
use super::inputs::{self, inputs};
use super::programs::{Cast, Member, lone, short};
use super::slices::Slices;
use super::values::Values;
use super::{alone, models, occupancy, over_time, speed, tools, turns, windows};
use crate::error::{Kind, failure};
use crate::experiment::{self, Experiment, Finished, LoadedMachine, Onlooker, SimOptions};
use crate::plan::Loaded;

/// Measures a case.
///
/// # Errors
/// Unknown machines, programs, mixes or policies, and those of the simulator.
pub fn measure(case: &Case, cast: &Cast) -> anyhow::Result<Values> {
    let machine = || experiment::machine(&case.machine);
    match &case.method {
        Method::Mixes { .. } => mixes(&machine()?, case, cast),
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
        Method::NotAttempted { .. } => Ok(Values::default()),
    }
}

/// One simulation of a case.
pub(super) struct Run<'a> {
    pub row: &'a str,
    pub arm: &'a str,
    pub policy: &'a str,
    pub workload: &'a Arc<Loaded>,
    pub seed: u64,
}

fn experiment(machine: &Arc<LoadedMachine>, run: &Run<'_>, options: &SimOptions) -> Experiment {
    Experiment {
        machine: Arc::clone(machine),
        workload: Arc::clone(run.workload),
        policy: run.policy.to_owned(),
        seed: run.seed,
        options: options.clone(),
        detail: None,
    }
}

pub(super) fn run(
    machine: &Arc<LoadedMachine>,
    run: &Run<'_>,
    options: &SimOptions,
) -> anyhow::Result<Finished> {
    experiment(machine, run, options).run()
}

/// Events by name.
fn events(names: &[String]) -> anyhow::Result<Vec<Event>> {
    let event = |name: &String| {
        Event::by_name(name).ok_or_else(|| failure(Kind::BadInput, format!("no event is `{name}`")))
    };
    names.iter().map(event).collect()
}

/// A mix as a workload of one draw.
fn workload(
    name: &str,
    copies: u32,
    launch_on: &[String],
    draw: u64,
    cast: &Cast,
) -> anyhow::Result<Arc<Loaded>> {
    let rows = cast.mix(name)?.members.iter().enumerate();
    let members = rows.map(|(row, (program, threads))| Member {
        program,
        threads: *threads,
        copies,
        launch_on: launch_on.get(row).map(String::as_str),
    });
    cast.workload(name, &members.collect::<Vec<_>>(), draw)
}

fn mixes(machine: &Arc<LoadedMachine>, case: &Case, cast: &Cast) -> anyhow::Result<Values> {
    let Method::Mixes {
        mixes,
        copies,
        arms,
        launch_on,
        seeds,
        period_ms,
        unavailable,
        once,
        slices_of,
    } = &case.method
    else {
        return Ok(Values::default());
    };
    let mut values = Values::default();
    let mut workloads = Vec::new();
    for row in mixes {
        values.add_row(row);
        for draw in 1..=cast.seeds(*seeds) {
            workloads.push((row, draw, workload(row, *copies, launch_on, draw, cast)?));
        }
    }
    let mut runs = Vec::new();
    for (row, draw, workload) in &workloads {
        let run_by = |(arm, policy): &(&String, &String)| {
            !unavailable.contains(arm) && Composite::named(policy).is_none()
        };
        for (arm, policy) in arms.iter().filter(run_by) {
            runs.push(Run {
                row,
                arm,
                policy,
                workload,
                seed: *draw,
            });
        }
    }
    let options = cast.options(if *once { 1 } else { 3 }, *period_ms);
    let events = events(slices_of)?;
    let watch = |r| watched(machine, r, &options, &events, *once);
    let finished: Vec<(Finished, Slices)> =
        runs.par_iter().map(watch).collect::<anyhow::Result<_>>()?;
    for (run, (finished, slices)) in runs.iter().zip(&finished) {
        values.begin(run.seed);
        add_mix(&mut values, run, finished, &machine.topology);
        if !events.is_empty() {
            for (measure, value) in slices.values() {
                values.add(run.row, run.arm, measure, value);
            }
        }
    }
    add_spread(&mut values, &runs, &finished);
    let composites: Vec<(&String, Composite)> = arms
        .iter()
        .filter_map(|(arm, policy)| Some((arm, Composite::named(policy)?)))
        .collect();
    if !composites.is_empty() {
        let bound = |(_, draw, workload): &(&String, u64, Arc<Loaded>)| {
            composite::bound(machine, workload, *copies as usize, *draw, &options)
        };
        let all: Vec<_> = workloads
            .par_iter()
            .map(bound)
            .collect::<anyhow::Result<_>>()?;
        for ((row, draw, _), times) in workloads.iter().zip(&all) {
            values.begin(*draw);
            for (arm, composite) in &composites {
                composite::add(&mut values, row, arm, *composite, times);
            }
        }
    }
    Ok(values)
}

/// A simulation whose slices are watched, if any event is counted in them.
fn watched(
    machine: &Arc<LoadedMachine>,
    run: &Run<'_>,
    options: &SimOptions,
    events: &[Event],
    once: bool,
) -> anyhow::Result<(Finished, Slices)> {
    let mut slices = Slices::new(&machine.topology, options.period_ms * 1e-3);
    let onlooker = Onlooker {
        recorder: Some(&mut slices),
        events,
        once,
        spans: !events.is_empty(),
    };
    let finished = experiment(machine, run, options).run_watched(onlooker)?;
    Ok((finished, slices))
}

/// How far completion times of runs that differ in the seed alone lie apart.
fn add_spread(values: &mut Values, runs: &[Run<'_>], finished: &[(Finished, Slices)]) {
    let mut times: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for (run, (finished, _)) in runs.iter().zip(finished) {
        for program in &finished.score.programs {
            let base = program.name.split('#').next().unwrap_or_default();
            let row = (format!("{}/{base}", run.row), run.arm);
            times.entry(row).or_default().push(program.completion_s);
        }
    }
    for ((row, arm), times) in times.iter().filter(|(_, times)| times.len() > 1) {
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
        values.add(row, arm, "spread", 100.0 * variance.sqrt() / mean);
    }
}

fn add_mix(values: &mut Values, run: &Run<'_>, finished: &Finished, topology: &Topology) {
    let Run { row, arm, .. } = run;
    let score = &finished.score;
    let n = score.programs.len() as f64;
    let completion = (score
        .programs
        .iter()
        .map(|p| p.completion_s.ln())
        .sum::<f64>()
        / n)
        .exp();
    for (measure, value) in [
        ("asp", score.asp),
        ("stp", score.stp),
        ("unfairness", score.unfairness),
        ("energy_per_instruction_nj", score.energy_per_instruction_nj),
        ("power_w", score.energy_j / finished.elapsed_s),
        ("time_s", finished.elapsed_s),
        ("edp", score.edp_js),
        ("completion_s", completion),
        ("migrations", score.migrations as f64),
        ("ipc", score.ipc),
    ] {
        values.add(row, arm, measure, value);
    }
    // What the board draws whatever runs is left out, as where PMCTrack (section 4.2.1) reads the energy of clusters and DRAM.
    let net = 1.0 - topology.static_power_w * finished.elapsed_s / score.energy_j;
    values.add(row, arm, "edp_net", score.edp_js * net);
    let minutes: f64 = finished.usage.iter().flat_map(|u| &u.cpu_s).sum::<f64>() / 60.0;
    values.add(
        row,
        arm,
        "moves_per_minute",
        score.migrations as f64 / minutes,
    );
    let fast = topology.extremes().0.index();
    let mut types: Vec<usize> = (0..topology.core_types.len()).collect();
    let clock = |row: &usize| topology.core_types[*row].freq_ghz;
    types.sort_by(|a, b| clock(a).total_cmp(&clock(b)));
    for (program, usage) in score.programs.iter().zip(&finished.usage) {
        let base = program.name.split('#').next().unwrap_or_default();
        let row = format!("{row}/{base}");
        let on_cpu: f64 = usage.cpu_s.iter().sum();
        for (measure, value) in [
            ("completion_s", program.completion_s),
            ("ipc", program.ipc),
            ("cpi", 1.0 / program.ipc),
            ("mpki", 1e3 * usage.llc_misses / usage.instructions),
            ("fast_share", 100.0 * usage.cpu_s[fast] / on_cpu),
        ] {
            values.add(&row, arm, measure, value);
        }
        for (measure, core_type) in SHARES.iter().zip(&types) {
            let share = 100.0 * usage.cpu_s[*core_type] / on_cpu;
            values.add(&row, arm, measure, share);
        }
    }
}

/// Shares of time on core types, from the slowest.
const SHARES: [&str; 4] = ["share_1", "share_2", "share_3", "share_4"];

/// The two CPUs on which programs of pairs run.
fn two_cpus(list: &str) -> anyhow::Result<[String; 2]> {
    let cpus: CpuSet = list
        .parse()
        .map_err(|e: BadCpuList| failure(Kind::BadInput, format!("`cpus = \"{list}\"`: {e}")))?;
    let cpus: Vec<String> = cpus.iter().map(|c| c.to_string()).collect();
    let few = |_| failure(Kind::BadInput, "pairs need two CPUs");
    cpus.try_into().map_err(few)
}

/// How long the first program of a workload takes, in seconds.
fn completion_s(
    machine: &Arc<LoadedMachine>,
    workload: &Arc<Loaded>,
    policy: &str,
    options: &SimOptions,
) -> anyhow::Result<f64> {
    let one = Run {
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
) -> anyhow::Result<Values> {
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
        let member = |program, place| Member {
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
    let mut values = Values::default();
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
) -> anyhow::Result<Values> {
    let options = cast.options(1, 100.0);
    let mut values = Values::default();
    programs.iter().for_each(|program| values.add_row(program));
    let draws = 1..=cast.draws(programs);
    let with_draws = |program| draws.clone().map(move |draw| (program, draw));
    let all: Vec<(&String, u64)> = programs.iter().flat_map(with_draws).collect();
    for size_kib in sizes_kib {
        let machine = with_llc(machine, *size_kib)?;
        let one = |(program, seed): &(&String, u64)| {
            let one = Run {
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

/// The machine with another size of its last-level caches.
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
