//! Tests of the model of Linux against kernels 7.2 and 6.12, by equal sets of tasks. The machines have eight CPUs with two
//! last-level caches, four CPUs with one cache, or four Arm CPUs of which two have less capacity. A machine with 16 CPUs and one
//! cache is not emulated: kernel 6.18 ran on it under KVM.
//!
//! Golden data: `kernel.tsv`, measurements of real kernels' runs. `make test-kernel` boots these kernels in virtual machines and
//! creates the file again. Tasks with equal parameters are exchangeable, and each set was run three times. A measure of the model
//! is the mean of eight seeds. It must lie between those of the kernel's runs, or outside by at most the tolerance:
//!
//! - CPU share: 1 % of the time; share under the cache that a process used most, or on fast CPUs: 3 %;
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
use sets::{Emulated, Figures, figures, plugs, sets};

const SEEDS: u64 = 8;
/// Time that waking an idle CPU takes in the emulated machine.
const WAIT_MS: f64 = 0.1;
/// Ticks per second of Debian's 7.2. Its `llc_balancing/epoch_period` of two ticks is a hundredth of a second.
const HZ: u32 = 250;
/// Ticks per second of Debian's 6.12, whose threads of two per CPU switch every 3 ms.
const HZ_OF_6_12: u32 = 1000;
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

/// Machines and kernels of the runs that `vm/kernel.sh` makes.
const RUNS: [(&str, &str); 12] = [
    ("8", "7.2"),
    ("8", "7.2:llc_balancing=off"),
    ("8-smt", "7.2"),
    ("8-smt", "7.2:llc_balancing=off"),
    ("8", "6.12"),
    ("8-smt", "6.12"),
    ("4", "7.2"),
    ("4", "6.12"),
    ("4-asym", "7.2"),
    ("16", "6.18"),
    ("8-clusters", "7.2"),
    ("8-clusters-equal", "7.2"),
];

/// Measures of the model by role: means over seeds.
fn model(
    (machine, hz): (&str, u32),
    config: &LinuxConfig,
    set: &str,
    emulated: &BTreeMap<String, Emulated>,
) -> BTreeMap<String, Figures> {
    let tasks = &sets()[set];
    let mut topology = world::machine(machine);
    topology.hz = hz;
    let mut sums: BTreeMap<String, Figures> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let config = LinuxConfig {
            seed,
            ..config.clone()
        };
        let linux: (Box<dyn Scheduler>, u64) = (Box::new(Linux::new(&topology, config)), seed);
        for (role, figures) in figures(
            &world::run(&topology, linux, (tasks, plugs(set)), emulated),
            world::groups(machine),
        ) {
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

/// Distances beyond the tolerance; `config` gives the model's kernel for each kernel of the golden.
fn distances(
    config: impl Fn(&str) -> LinuxConfig,
    chosen: impl Fn(&Key) -> bool,
) -> BTreeMap<(Key, String, &'static str), f64> {
    golden::distances(&MEASURES, chosen, |key, emulated| {
        let hz = if key.kernel == "6.12" { HZ_OF_6_12 } else { HZ };
        model((&key.machine, hz), &config(&key.kernel), &key.set, emulated)
    })
}

#[test]
#[ignore = "makes the golden of runs of a kernel; see COUNTERSTEER_KERNEL_RUNS"]
fn the_golden_is_made_of_runs_of_a_kernel() {
    golden::renew(&RUNS);
}

#[test]
fn the_model_does_what_the_kernel_does() {
    let far = distances(kernel, |_| true);
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
    let chosen = |key: &Key| key.kernel == "7.2" && sets.contains(&key.set.as_str());
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
