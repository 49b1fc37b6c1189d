//! Tests of the model of Linux against kernel 7.2: equal sets of tasks on eight CPUs with two last-level caches of four CPUs.
//!
//! Golden data: `kernel.tsv`, measurements of a real kernel's runs. `make test-kernel` boots this kernel in a virtual machine and
//! creates the file again. Tasks with equal parameters are exchangeable, and each set was run three times. A measure of the model
//! is the mean of eight seeds. It must lie between those of the kernel's runs, or outside by at most the tolerance:
//!
//! - CPU share: 1 % of the time; share under the cache that a process used most: 3 %;
//! - migrations per task: 20 %, or 5;
//! - median run-queue latency, of tasks that waited at least 20 times: 20 %, or [`WAIT_MS`].
//!
//! Larger distances are listed in `deviations.tsv`. The test fails if a distance grows, if one is missing from the list, or if a
//! listed one no longer exists. `COUNTERSTEER_BLESS=1` writes the list.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

mod golden;
mod sets;
mod world;

use std::collections::BTreeMap;

use countersteer_sim::linux::{Linux, LinuxConfig, kernel_config};
use countersteer_sim::scheduler::Scheduler;

use golden::{Key, Measure};
use sets::{Emulated, Figures, figures, sets};

const SEEDS: u64 = 8;
/// Time that waking an idle CPU takes in the emulated machine.
const WAIT_MS: f64 = 0.1;
/// Factor on a listed distance, because insignificant changes of the model move measures a little.
const SLACK: f64 = 1.1;

const MEASURES: [Measure; 4] = [
    ("share", |f| f.share, |_| 0.01),
    ("gathered", |f| f.gathered, |_| 0.03),
    (
        "migrations",
        |f| f.migrations,
        |kernel| (0.2 * kernel).max(5.0),
    ),
    (
        "wait_ms",
        |f| f.wait_ms,
        |kernel| (0.2 * kernel).max(WAIT_MS),
    ),
];

/// Measures of the model by role: means over seeds.
fn model(
    smt: u32,
    config: &LinuxConfig,
    set: &str,
    emulated: &BTreeMap<String, Emulated>,
) -> BTreeMap<String, Figures> {
    let tasks = &sets()[set];
    let topology = world::machine(smt);
    let mut sums: BTreeMap<String, Figures> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let config = LinuxConfig {
            seed,
            ..config.clone()
        };
        let linux: (Box<dyn Scheduler>, u64) = (Box::new(Linux::new(&topology, config)), seed);
        for (role, figures) in figures(&world::run(&topology, linux, tasks, emulated)) {
            sums.entry(role)
                .or_default()
                .add(&figures, 1.0 / SEEDS as f64);
        }
    }
    sums
}

/// Configuration of the virtual machine's kernel just after boot. Nothing disturbs it. Preemption is lazy, but its tasks make
/// system calls so often that threads woken from other CPUs preempt at once.
fn kernel(spec: &str) -> LinuxConfig {
    LinuxConfig {
        disturbed_every_ns: None,
        newidle_ratio: 512,
        lazy_preemption: false,
        ..kernel_config(spec).unwrap()
    }
}

/// Distances beyond the tolerance; `config` gives the model's kernel for each state of `llc_balancing`.
fn distances(
    config: impl Fn(&str) -> LinuxConfig,
    chosen: impl Fn(&Key) -> bool,
) -> BTreeMap<(Key, String, &'static str), f64> {
    golden::distances(&MEASURES, chosen, |key, emulated| {
        model(key.smt, &config(&key.llc_balancing), &key.set, emulated)
    })
}

#[test]
#[ignore = "makes the golden of runs of a kernel; see COUNTERSTEER_KERNEL_RUNS"]
fn the_golden_is_made_of_runs_of_a_kernel() {
    golden::renew(&[(1, "on"), (1, "off"), (2, "on"), (2, "off")]);
}

#[test]
fn the_model_does_what_the_kernel_does() {
    let far = distances(|on| kernel(&format!("7.2:llc_balancing={on}")), |_| true);
    let shown: BTreeMap<String, f64> = far
        .iter()
        .map(|((key, role, name), distance)| (format!("{key}\t{role}\t{name}"), *distance))
        .collect();
    if std::env::var_os("COUNTERSTEER_BLESS").is_some() {
        golden::list(&shown);
        return;
    }
    let wrong = golden::unlisted(&shown, SLACK);
    assert!(
        wrong.is_empty(),
        "{}\n(COUNTERSTEER_BLESS=1 writes the list anew)",
        wrong.join("\n")
    );
}

/// Number of distances of the named measure in runs with gathering, with another kernel in the model.
fn off(config: &LinuxConfig, sets: &[&str], measure: &str) -> usize {
    let chosen = |key: &Key| key.llc_balancing == "on" && sets.contains(&key.set.as_str());
    let far = distances(|_| config.clone(), chosen);
    far.keys().filter(|(_, _, name)| *name == measure).count()
}

#[test]
fn a_model_that_does_not_gather_fails() {
    let sets = ["2x2", "2x2-nap", "1x3"];
    let gathers = off(&kernel("7.2"), &sets, "gathered");
    for spec in ["7.2:llc_balancing=off", "6.18"] {
        let apart = off(&kernel(spec), &sets, "gathered");
        assert!(
            apart >= 3 && gathers < apart,
            "{spec}: {apart} of {gathers}"
        );
    }
}

#[test]
fn a_model_that_does_not_balance_fails() {
    let idle = LinuxConfig {
        balance_threads: 0,
        ..kernel("7.2")
    };
    assert!(
        off(
            &idle,
            &["one-more", "half-more", "sleep-2", "nice"],
            "share"
        ) >= 2
    );
}
