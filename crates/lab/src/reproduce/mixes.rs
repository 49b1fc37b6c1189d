//! Measurement of mixes of programs under each policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::events::Event;
use countersteer_model::score::Score;
use countersteer_model::topology::Topology;
use rayon::prelude::*;

use super::case::{Case, Method};
use super::composite::{self, Composite};
use super::programs::{Cast, PlannedMember};
use super::run::CaseRun;
use super::values::CaseValues;
use super::watched::{WatchedRun, watched};
use crate::error::{FaultKind, failure};
use crate::experiment::{Finished, LoadedMachine, SimOptions};
use crate::plan::Loaded;

/// Returns the events with these names. Fails if one does not exist.
fn events(names: &[String]) -> anyhow::Result<Vec<Event>> {
    let event = |name: &String| {
        Event::by_name(name)
            .ok_or_else(|| failure(FaultKind::BadInput, format!("no event is `{name}`")))
    };
    names.iter().map(event).collect()
}

/// Creates the workload of a mix for one draw.
fn workload(
    name: &str,
    copies: u32,
    launch_on: &[String],
    draw: u64,
    cast: &Cast,
) -> anyhow::Result<Arc<Loaded>> {
    let rows = cast.mix(name)?.members.iter().enumerate();
    let members = rows.map(|(row, (program, threads))| PlannedMember {
        program,
        threads: *threads,
        copies,
        launch_on: launch_on.get(row).map(String::as_str),
    });
    cast.workload(name, &members.collect::<Vec<_>>(), draw)
}

/// Measures every mix under every arm.
///
/// # Errors
/// Fails with the errors of [`super::measure::measure`].
pub fn measure(
    machine: &Arc<LoadedMachine>,
    case: &Case,
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let Method::Mixes {
        mixes,
        copies,
        arms,
        launch_on,
        seeds,
        period_ms,
        unavailable,
        once,
        rounds,
        slices_of,
    } = &case.method
    else {
        return Ok(CaseValues::default());
    };
    let mut values = CaseValues::default();
    let mut workloads: Vec<DrawnMix<'_>> = Vec::new();
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
            runs.push(CaseRun {
                row,
                arm,
                policy,
                workload,
                seed: *draw,
            });
        }
    }
    let options = cast.options(if *once { 1 } else { *rounds }, *period_ms);
    let events = events(slices_of)?;
    // Key of all parts of the set-up that may differ between cases, apart from mix, policy and draw.
    let set_up = format!(
        "{} {copies} {launch_on:?} {options:?} {slices_of:?} {once}",
        case.machine
    );
    let watch = |run: &CaseRun<'_>| {
        let key = format!("{} {} {} {set_up}", run.row, run.policy, run.seed);
        cast.once(key, || watched(machine, run, &options, &events, *once))
    };
    let finished: Vec<Arc<WatchedRun>> =
        runs.par_iter().map(watch).collect::<anyhow::Result<_>>()?;
    for (run, ran) in runs.iter().zip(&finished) {
        let WatchedRun { finished, watch } = ran.as_ref();
        values.begin(run.seed);
        add_mix(&mut values, run, finished, &machine.topology);
        let cpu_s = finished.usage.iter().flat_map(|u| &u.cpu_s).sum();
        watch.moves.add(&mut values, run.row, run.arm, cpu_s);
        if !events.is_empty() {
            for (measure, value) in watch.slices.values() {
                values.add(run.row, run.arm, measure, value);
            }
        }
    }
    add_spread(&mut values, &runs, &finished);
    add_composites(&mut values, machine, case, &workloads, &options)?;
    Ok(values)
}

/// Mix with the number of a draw and the workload drawn.
type DrawnMix<'a> = (&'a String, u64, Arc<Loaded>);

/// Adds the values of the arms that average completion times over cores instead of running a policy.
fn add_composites(
    values: &mut CaseValues,
    machine: &Arc<LoadedMachine>,
    case: &Case,
    workloads: &[DrawnMix<'_>],
    options: &SimOptions,
) -> anyhow::Result<()> {
    let Method::Mixes { arms, copies, .. } = &case.method else {
        return Ok(());
    };
    let arms = arms.iter();
    let composites: Vec<(&String, Composite)> = arms
        .filter_map(|(arm, policy)| Some((arm, Composite::named(policy)?)))
        .collect();
    if composites.is_empty() {
        return Ok(());
    }
    let bound = |(_, draw, workload): &DrawnMix<'_>| {
        composite::bound(machine, workload, *copies as usize, *draw, options)
    };
    let all: Vec<_> = workloads
        .par_iter()
        .map(bound)
        .collect::<anyhow::Result<_>>()?;
    for ((row, draw, _), times) in workloads.iter().zip(&all) {
        values.begin(*draw);
        for (arm, composite) in &composites {
            composite::add(values, row, arm, *composite, times);
        }
    }
    Ok(())
}

/// Adds the relative standard deviation, in percent, of completion times of runs that differ only in their seeds.
fn add_spread(values: &mut CaseValues, runs: &[CaseRun<'_>], finished: &[Arc<WatchedRun>]) {
    let mut times: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for (run, ran) in runs.iter().zip(finished) {
        for program in &ran.finished.score.programs {
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

fn add_mix(values: &mut CaseValues, run: &CaseRun<'_>, finished: &Finished, topology: &Topology) {
    let CaseRun { row, arm, .. } = run;
    let score = &finished.score;
    let completion = mean_completion_s(score);
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
    // The board's static power is excluded, as in PMCTrack's energy of clusters and DRAM (section 4.2.1).
    let net = 1.0 - topology.static_power_w * finished.elapsed_s / score.energy_j;
    values.add(row, arm, "edp_net", score.edp_js * net);
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

/// Returns the geometric mean over programs of the mean completion time of their copies, as in HASS
/// (section 5).
fn mean_completion_s(score: &Score) -> f64 {
    let mut of_programs: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for program in &score.programs {
        let base = program.name.split('#').next().unwrap_or_default();
        let (sum, copies) = of_programs.entry(base).or_default();
        *sum += program.completion_s;
        *copies += 1;
    }
    let means = of_programs.values();
    let logarithms: f64 = means.map(|(sum, n)| (sum / f64::from(*n)).ln()).sum();
    (logarithms / of_programs.len() as f64).exp()
}

/// Measures of the fraction of time on each core type, slowest type first.
const SHARES: [&str; 4] = ["share_1", "share_2", "share_3", "share_4"];
