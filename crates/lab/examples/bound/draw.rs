//! Random experiments for comparison with the upper bound.

use std::fmt::Write;
use std::sync::Arc;

use countersteer_lab::{Experiment, SimOptions, experiment, library, plan};
use countersteer_model::policy::{PolicyRng, policy_rng};
use rand::RngExt;

/// Machines with few to many CPUs: equal cores, unequal cores, several caches, SMT, and slow cores with more cache.
const MACHINES: [&str; 9] = [
    "quickia-2b-2s",
    "core2-quad",
    "juno-2-4",
    "phone-1-3-4",
    "apple-m1",
    "i9-12900k-8p8e",
    "i9-12900k",
    "ryzen-7950x3d",
    "opteron-2425-2b-10s",
];
/// Policies in addition to `linux`; each mix runs some of them.
const POLICIES: [&str; 14] = [
    "default",
    "best-static",
    "rr",
    "aarr",
    "ideal-rr",
    "hsf",
    "hsf:sf=oracle",
    "hsf:sf=oracle,margin=0",
    "acfs:sf=oracle",
    "ef:ef=oracle",
    "mpi",
    "contention",
    "joint",
    "joint:objective=fairness",
];
/// Number of drawn policies per mix.
const DRAWN: usize = 3;
/// Maximum number of programs; simulations of more take long.
const MOST: usize = 20;

/// Experiments of a mix: `linux`, then some of the policies.
///
/// # Errors
/// A file that is not shipped.
pub fn experiments(mix: u64) -> anyhow::Result<Vec<Experiment>> {
    let mut rng = policy_rng(mix);
    let machine = experiment::machine(one_of(&mut rng, &MACHINES))?;
    let cpus = machine.topology.cpus.len();
    let programs = rng.random_range(1..=(cpus + cpus / 2).min(MOST));
    let (scale, rounds) = one_of(
        &mut rng,
        &[(0.1, 10), (0.5, 3), (1.0, 1), (1.0, 3), (4.0, 1)],
    );
    let profiles = library::recorded();
    let mut text = String::new();
    for _ in 0..programs {
        let profile = one_of(&mut rng, &profiles);
        let path = &profile.path;
        writeln!(
            text,
            "[[program]]\nprofile = \"../{path}\"\nscale = {scale}"
        )?;
        match rng.random_range(0..10) {
            0 => writeln!(text, "threads = 3\nserial_share = 0.1")?,
            1 => writeln!(text, "threads = 1\nburst_mi = 5\nsleep_ms = 3")?,
            2 => writeln!(text, "threads = 1\nnice = 5")?,
            3 => writeln!(text, "threads = 1\nstart_s = 0.05")?,
            4 => writeln!(text, "threads = 1\ncopies = 2")?,
            _ => writeln!(text, "threads = 1")?,
        }
    }
    let workload = Arc::new(plan::of_text(&format!("mix-{mix}"), text)?);
    let options = SimOptions {
        rounds,
        no_contention: rng.random_range(0..8) == 0,
        period_ms: one_of(&mut rng, &[10.0, 100.0]),
        ..SimOptions::default()
    };
    let mut policies = vec!["linux"];
    policies.extend((0..DRAWN).map(|_| one_of(&mut rng, &POLICIES)));
    let experiment = |policy: &str| Experiment {
        machine: Arc::clone(&machine),
        workload: Arc::clone(&workload),
        policy: policy.to_owned(),
        seed: mix,
        options: options.clone(),
        detail: None,
    };
    Ok(policies.into_iter().map(experiment).collect())
}

fn one_of<T: Clone>(rng: &mut PolicyRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())].clone()
}
