//! Measurement of programs alone on one CPU of each of two core groups.

use std::sync::Arc;

use countersteer_model::topology::Topology;
use rayon::prelude::*;

use super::programs::{Cast, lone, pinned};
use super::run::{CaseRun, run};
use super::values::CaseValues;
use crate::experiment::{Finished, LoadedMachine};

/// Measures each program on both core groups.
///
/// # Errors
/// Fails if a group has no CPU, and with the errors of the simulator.
pub fn measure(
    machine: &Arc<LoadedMachine>,
    programs: &[String],
    groups: &[String; 2],
    cast: &Cast,
) -> anyhow::Result<CaseValues> {
    let policies = [
        pinned(&machine.topology, &groups[0])?,
        pinned(&machine.topology, &groups[1])?,
    ];
    let options = cast.options(1, 100.0);
    let idle_w = idle_power_w(&machine.topology);
    let draws = 1..=cast.draws(programs);
    let all: Vec<(&String, u64)> = programs
        .iter()
        .flat_map(|program| draws.clone().map(move |draw| (program, draw)))
        .collect();
    let one = |(program, seed): &(&String, u64)| {
        let workload = &lone(cast, program, *seed)?;
        let on = |policy: &str| {
            let one = CaseRun {
                row: program,
                arm: "",
                policy,
                workload,
                seed: *seed,
            };
            run(machine, &one, &options)
        };
        Ok([on(&policies[0])?, on(&policies[1])?])
    };
    let measured: Vec<[Finished; 2]> = all.par_iter().map(one).collect::<anyhow::Result<_>>()?;
    let mut values = CaseValues::default();
    programs.iter().for_each(|program| values.add_row(program));
    for ((program, draw), pair) in all.iter().zip(&measured) {
        values.begin(*draw);
        for (arm, finished) in groups.iter().zip(pair) {
            add_alone(&mut values, program, arm, finished);
        }
        let quiet_w = [0, 1].map(|nth| quiet_power_w(&machine.topology, &groups[nth]));
        add_ratios(&mut values, program, pair, idle_w, quiet_w);
    }
    Ok(values)
}

fn add_alone(values: &mut CaseValues, program: &str, arm: &str, finished: &Finished) {
    let usage = &finished.usage[0];
    let of = &finished.score.programs[0];
    for (measure, value) in [
        ("ips", usage.instructions / finished.elapsed_s),
        ("ipc", of.ipc),
        ("mpki", 1e3 * usage.llc_misses / usage.instructions),
        ("completion_s", of.completion_s),
        ("power_w", finished.score.energy_j / finished.elapsed_s),
    ] {
        values.add(program, arm, measure, value);
    }
}

/// Returns the power of the idle machine in W.
fn idle_power_w(topology: &Topology) -> f64 {
    let cores = topology.cpus.iter().filter(|c| c.thread == 0);
    let idle = cores.map(|c| topology.core_types[c.core_type.index()].power.idle_w);
    topology.static_power_w + idle.sum::<f64>()
}

/// Returns the power in W of everything outside an otherwise idle core group: the rest of the board, and the cores of other
/// groups. PMCTrack (section 4.2) measures the energy of one cluster and of DRAM, minus the board's idle power.
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
    values: &mut CaseValues,
    program: &str,
    pair: &[Finished; 2],
    idle_w: f64,
    quiet_w: [f64; 2],
) {
    let [fast, slow] = pair;
    let power = |f: &Finished| f.score.energy_j / f.elapsed_s;
    let sf = slow.elapsed_s / fast.elapsed_s;
    values.add(program, "ratio", "sf", sf);
    // Both do the same work, so the ratio of energies per instruction equals the ratio of energies, which are power times time.
    let energy_ratio = (power(slow) - quiet_w[1]) * sf / (power(fast) - quiet_w[0]);
    values.add(program, "ratio", "ef", sf * energy_ratio);
    let above_idle = (power(fast) - idle_w) / (power(slow) - idle_w);
    values.add(program, "ratio", "power_ratio", above_idle);
}
