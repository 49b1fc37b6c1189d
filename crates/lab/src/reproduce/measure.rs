//! Runs a case and collects its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::cpuset::{BadCpuList, CpuSet};
use countersteer_model::events::Event;
use countersteer_model::topology::Topology;
use rayon::prelude::*;

use super::case::{Case, Method};
use super::inputs::inputs;
use super::programs::{Cast, Member, lone, pinned, short};
use super::slices::Slices;
use super::values::Values;
use super::{models, occupancy, over_time, speed, tools, turns, windows};
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
            alone(&machine()?, &cast.expand(programs), groups, cast)
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
        Method::Speed { mix } => speed::measure(&machine()?, mix, cast),
        Method::NotAttempted { .. } => Ok(Values::default()),
    }
}

/// One simulation of a case.
struct Run<'a> {
    row: &'a str,
    arm: &'a str,
    policy: &'a str,
    workload: &'a Arc<Loaded>,
    seed: u64,
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

fn run(
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

/// Mixes as workloads, by name.
fn workloads<'a>(
    mixes: &'a [String],
    copies: u32,
    launch_on: &[String],
    cast: &Cast,
) -> anyhow::Result<Vec<(&'a String, Arc<Loaded>)>> {
    let workload = |name: &'a String| {
        let rows = cast.mix(name)?.members.iter().enumerate();
        let members = rows.map(|(row, (program, threads))| Member {
            program,
            threads: *threads,
            copies,
            launch_on: launch_on.get(row).map(String::as_str),
        });
        let members: Vec<Member<'_>> = members.collect();
        Ok((name, cast.workload(name, &members)?))
    };
    mixes.iter().map(workload).collect()
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
    let workloads = workloads(mixes, *copies, launch_on, cast)?;
    let mut runs = Vec::new();
    for (row, workload) in &workloads {
        values.add_row(row);
        for (arm, policy) in arms.iter().filter(|(arm, _)| !unavailable.contains(arm)) {
            runs.extend((1..=cast.seeds(*seeds)).map(|seed| Run {
                row,
                arm,
                policy,
                workload,
                seed,
            }));
        }
    }
    let options = cast.options(if *once { 1 } else { 3 }, *period_ms);
    let events = events(slices_of)?;
    let watch = |r| watched(machine, r, &options, &events, *once);
    let finished: Vec<(Finished, Slices)> =
        runs.par_iter().map(watch).collect::<anyhow::Result<_>>()?;
    for (run, (finished, slices)) in runs.iter().zip(&finished) {
        add_mix(&mut values, run, finished, &machine.topology);
        if !events.is_empty() {
            for (measure, value) in slices.values() {
                values.add(run.row, run.arm, measure, value);
            }
        }
    }
    add_spread(&mut values, &runs, &finished);
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
    let fast = topology.extremes().0.index();
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
    }
}

fn alone(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    groups: &[String; 2],
    cast: &Cast,
) -> anyhow::Result<Values> {
    let policies = [
        pinned(&machine.topology, &groups[0])?,
        pinned(&machine.topology, &groups[1])?,
    ];
    let options = cast.options(1, 100.0);
    let idle_w = idle_power_w(&machine.topology);
    let measured: Vec<[Finished; 2]> = programs
        .par_iter()
        .map(|program| {
            let workload = lone(cast, program)?;
            let one = |policy: &str| {
                let (row, arm, seed) = (program.as_str(), "", 1);
                let workload = &workload;
                run(
                    machine,
                    &Run {
                        row,
                        arm,
                        policy,
                        workload,
                        seed,
                    },
                    &options,
                )
            };
            Ok([one(&policies[0])?, one(&policies[1])?])
        })
        .collect::<anyhow::Result<_>>()?;
    let mut values = Values::default();
    for (program, pair) in programs.iter().zip(&measured) {
        values.add_row(program);
        for (arm, finished) in groups.iter().zip(pair) {
            let usage = &finished.usage[0];
            let seconds = finished.score.programs[0].completion_s;
            values.add(program, arm, "ips", usage.instructions / finished.elapsed_s);
            values.add(program, arm, "ipc", finished.score.programs[0].ipc);
            values.add(
                program,
                arm,
                "mpki",
                1e3 * usage.llc_misses / usage.instructions,
            );
            values.add(program, arm, "completion_s", seconds);
            values.add(
                program,
                arm,
                "power_w",
                finished.score.energy_j / finished.elapsed_s,
            );
        }
        let quiet_w = [0, 1].map(|nth| quiet_power_w(&machine.topology, &groups[nth]));
        add_ratios(&mut values, program, pair, idle_w, quiet_w);
    }
    Ok(values)
}

/// Power of the machine while nothing runs.
fn idle_power_w(topology: &Topology) -> f64 {
    let cores = topology.cpus.iter().filter(|c| c.thread == 0);
    let idle = cores.map(|c| topology.core_types[c.core_type.index()].power.idle_w);
    topology.static_power_w + idle.sum::<f64>()
}

/// Power of what does not belong to a core group while that is idle: the rest of the board and the cores of other groups. PMCTrack
/// (section 4.2) measures the energy of one cluster and of DRAM, the board's idle power subtracted.
fn quiet_power_w(topology: &Topology, group: &str) -> f64 {
    let inside = topology.group_named(group);
    let others = topology
        .cpus
        .iter()
        .filter(|c| c.thread == 0 && inside.is_none_or(|g| !g.cpus.contains(c.id)));
    let idle = others.map(|c| topology.core_types[c.core_type.index()].power.idle_w);
    topology.static_power_w + idle.sum::<f64>()
}

fn add_ratios(
    values: &mut Values,
    program: &str,
    pair: &[Finished; 2],
    idle_w: f64,
    quiet_w: [f64; 2],
) {
    let [fast, slow] = pair;
    let power = |f: &Finished| f.score.energy_j / f.elapsed_s;
    let sf = slow.elapsed_s / fast.elapsed_s;
    values.add(program, "ratio", "sf", sf);
    // Both do the same work, so energies per instruction are as energies are: power times time.
    let energy_ratio = (power(slow) - quiet_w[1]) * sf / (power(fast) - quiet_w[0]);
    values.add(program, "ratio", "ef", sf * energy_ratio);
    let above_idle = (power(fast) - idle_w) / (power(slow) - idle_w);
    values.add(program, "ratio", "power_ratio", above_idle);
}

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
    let alone = |program: &'a String| {
        let policy = format!("static:*={first}");
        let time_s = completion_s(machine, &lone(cast, program)?, &policy, &options)?;
        Ok((program, time_s))
    };
    let alone_s: BTreeMap<&String, f64> = programs
        .par_iter()
        .map(alone)
        .collect::<anyhow::Result<_>>()?;
    let slowdown = |(a, b): &(&String, &String)| {
        let member = |program, place| Member {
            program,
            threads: 1,
            copies: 1,
            launch_on: Some(place),
        };
        let workload = cast.workload("pair", &[member(a, first), member(b, second)])?;
        let policy = format!("static:{}={first},{}={second}", short(a), short(b));
        Ok(completion_s(machine, &workload, &policy, &options)? / alone_s[*a])
    };
    let with_others = |a| programs.iter().map(move |b| (a, b));
    let all = programs.iter().flat_map(with_others);
    let all: Vec<(&String, &String)> = all.filter(|(a, b)| a != b).collect();
    let slowdowns: Vec<f64> = all
        .par_iter()
        .map(slowdown)
        .collect::<anyhow::Result<_>>()?;
    let mut values = Values::default();
    for ((a, b), slowdown) in all.iter().zip(slowdowns) {
        let row = format!("{a}+{b}");
        values.add_row(&row);
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
    for size_kib in sizes_kib {
        let machine = with_llc(machine, *size_kib)?;
        let measured: Vec<Finished> = programs
            .par_iter()
            .map(|program| {
                let workload = &lone(cast, program)?;
                let (row, arm, policy, seed) = ("", "", "static:*=0", 1);
                run(
                    &machine,
                    &Run {
                        row,
                        arm,
                        policy,
                        workload,
                        seed,
                    },
                    &options,
                )
            })
            .collect::<anyhow::Result<_>>()?;
        for (program, finished) in programs.iter().zip(&measured) {
            let usage = &finished.usage[0];
            let mpki = 1e3 * usage.llc_misses / usage.instructions;
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
