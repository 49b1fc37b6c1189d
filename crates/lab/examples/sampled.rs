//! Errors of sampled recordings: `bench/sampled.sh` records programs both ways, and runs this.
//!
//! `cargo run --release -p countersteer-lab --example sampled -- EXACT SAMPLED` compares the profiles of two folders by name, and prints a
//! Markdown table. Errors are relative to the exact recording.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use countersteer_lab::{experiment, library};
use countersteer_model::profile::{Behaviour, Profile, Recorded};
use countersteer_model::units::CoreTypeId;
use countersteer_sim::progress::{Analytic, ProgressConfig, ProgressModel as _};

/// Caches whose misses are compared, in lines, and their least number of misses per kilo-instruction.
const LINES: [u64; 6] = [256, 512, 1 << 12, 1 << 14, 1 << 16, 1 << 18];
const LEAST_MPKI: f64 = 0.05;
/// Machines on whose core types speeds are compared.
const MACHINES: [&str; 2] = ["i9-12900k-8p8e", "core2-quad"];
/// Limits of the errors in per cent: branches, misses, speed.
const GOALS: [f64; 3] = [5.0, 2.0, 2.0];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [exact, sampled] = arguments.as_slice() else {
        bail!("name the folder of exact and the folder of sampled profiles");
    };
    let mut names: Vec<String> = std::fs::read_dir(sampled)?
        .flatten()
        .filter_map(|file| Some(file.file_name().to_str()?.to_owned()))
        .filter(|name| name.ends_with(".json") && Path::new(exact).join(name).is_file())
        .collect();
    names.sort();
    println!(
        "| program | M instructions | branch MPKI | its error, % | stated interval (90 %), % | largest error of a miss rate, % | of simulated speed, % |\n\
         |---|---:|---:|---:|---:|---:|---:|"
    );
    let mut errors: Vec<[f64; 3]> = Vec::new();
    let mut held = 0;
    for name in &names {
        let read = |folder: &str| match library::profile(&Path::new(folder).join(name))? {
            Profile::Recorded(profile) => Ok(profile),
            Profile::Tabulated(_) => bail!("{name} of {folder} was not recorded"),
        };
        let (exact, sampled) = (read(exact)?, read(sampled)?);
        let stated = sampled.sampling.iter().find(|f| f.figure == "branch_mpki");
        let stated = stated.map_or(0.0, |f| 100.0 * f.half_interval() / f.value.max(1e-9));
        let own = [
            difference(branch_mpki(&sampled), branch_mpki(&exact)),
            misses(&sampled, &exact),
            speed(&sampled, &exact)?,
        ];
        held += usize::from(own[0].abs() <= stated.max(0.5));
        println!(
            "| {} | {:.0} | {:.2} | {:+.1} | {stated:.1} | {:+.1} | {:+.1} |",
            exact.name,
            exact.instructions as f64 / 1e6,
            branch_mpki(&exact),
            own[0],
            own[1],
            own[2]
        );
        errors.push(own);
    }
    let within = |at: usize| errors.iter().filter(|e| e[at].abs() <= GOALS[at]).count();
    println!(
        "\nOf {} programs, branches are within {} % on {}, miss rates within {} % on {}, and simulated speeds within {} % on {}. The error of \
         branches is in the stated interval on {held}.",
        errors.len(),
        GOALS[0],
        within(0),
        GOALS[1],
        within(1),
        GOALS[2],
        within(2)
    );
    Ok(())
}

/// Returns the difference in per cent.
fn difference(value: f64, of: f64) -> f64 {
    if of > 0.0 {
        100.0 * (value / of - 1.0)
    } else {
        0.0
    }
}

fn branch_mpki(profile: &Recorded) -> f64 {
    mean(profile, |of| of.branch_mpki)
}

/// Returns a mean over the instructions of a run.
fn mean(profile: &Recorded, of: impl Fn(&Behaviour) -> f64) -> f64 {
    let shares = profile.shares();
    let behaviours = shares.iter().zip(&profile.behaviours);
    behaviours
        .map(|(share, behaviour)| share * of(behaviour))
        .sum()
}

/// Returns the largest error of the misses of a cache.
fn misses(sampled: &Recorded, exact: &Recorded) -> f64 {
    let mut most: f64 = 0.0;
    for lines in LINES {
        let [sampled, exact] = [sampled, exact].map(|profile| {
            mean(profile, |of| {
                of.locality.stack_distance_pki.at_least(lines as f64) + of.locality.cold_pki
            })
        });
        let error = difference(sampled, exact);
        if exact >= LEAST_MPKI && error.abs() > most.abs() {
            most = error;
        }
    }
    most
}

/// Returns the largest error of the speed of the program alone on a core type.
fn speed(sampled: &Recorded, exact: &Recorded) -> anyhow::Result<f64> {
    let mut most: f64 = 0.0;
    for name in MACHINES {
        let machine = experiment::machine(name)?;
        let topology = &machine.topology;
        let mut progress = Analytic::new(Arc::clone(topology), ProgressConfig::default());
        let mut add =
            |profile: &Recorded| progress.add_program(Arc::new(Profile::Recorded(profile.clone())));
        let (sampled_model, exact_model) = (add(sampled)?, add(exact)?);
        for core_type in (0..topology.core_types.len()).map(|at| CoreTypeId(at as _)) {
            let ipc = |model, of: &Recorded| {
                of.instructions as f64 / progress.alone_seconds(model, core_type)
            };
            let error = difference(ipc(sampled_model, sampled), ipc(exact_model, exact));
            if error.abs() > most.abs() {
                most = error;
            }
        }
    }
    Ok(most)
}
