//! Tests of the model of Linux against kernel 7.2: equal sets of tasks on eight CPUs with two last-level caches of four CPUs.
//!
//! Golden data: `kernel.tsv`, measurements of a real kernel's runs. `make test-kernel` boots this kernel in a virtual machine and
//! creates the file again. Tasks with equal parameters are exchangeable, and each set was run three times. A measure of the model
//! is the mean of eight seeds. It must lie between those of the kernel's runs, or outside by at most the tolerance:
//!
//! - CPU share: 1 % of the time; share under the cache that a process used most: 3 %;
//! - migrations per task: 20 %, or 5;
//! - median run-queue latency, of tasks that waited at least [`WAITS`] times: 20 %, or [`WAIT_MS`].
//!
//! Larger distances are listed in `deviations.tsv`. The test fails if a distance grows, if one is missing from the list, or if a
//! listed one no longer exists. `COUNTERSTEER_BLESS=1` writes the list.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

mod golden;
mod sets;
mod world;

use std::collections::BTreeMap;

use countersteer_model::machine::Machine;
use countersteer_model::topology::Topology;
use countersteer_sim::linux::{LinuxConfig, kernel_config};

use golden::{Key, Row};
use sets::{Emulated, Figures, figures, sets};

const SEEDS: u64 = 8;
const WAITS: f64 = 20.0;
/// Time that waking an idle CPU takes in the emulated machine.
const WAIT_MS: f64 = 0.1;
/// Factor on a listed distance, because insignificant changes of the model move measures a little.
const SLACK: f64 = 1.1;

/// A measure: its name, its value, and its tolerance for a kernel's value.
type Measure = (&'static str, fn(&Figures) -> f64, fn(f64) -> f64);

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

fn machine(smt: u32) -> Topology {
    let mut text = format!(
        "schema = \"countersteer.machine/1\"\nname = \"two-caches\"\ntitle = \"two caches\"\nsource = \"made up\"\nlinux = \"symmetric\"\n
        [[core_type]]\nname = \"core\"\ndispatch_width = 4\nwindow = 128\nsmt = {smt}\nfreq_ghz = 3.0\ncapacity = 1024
        branch_penalty_cycles = 15\nl1d = {{ size_kib = 32, ways = 8, latency_cycles = 4 }}
        l2 = {{ size_kib = 512, ways = 8, latency_cycles = 14 }}
        power = {{ idle_w = 0.1, active_w = 1.0, instruction_nj = 0.3 }}\n
        [[cores]]\ntype = \"core\"\ncpus = \"0-7\"\n
        [[memory]]\ncpus = \"0-7\"\nlatency_ns = 80\nbandwidth_gb_s = 40\n"
    );
    for cpus in ["0-3", "4-7"] {
        text += &format!(
            "[[cache]]\nlevel = 3\ncpus = \"{cpus}\"\nsize_kib = 16384\nways = 16\nlatency_ns = 12\n"
        );
    }
    Topology::new(&Machine::parse("two-caches.toml", &text).unwrap())
}

/// Measures of the model by role: means over seeds.
fn model(
    smt: u32,
    config: &LinuxConfig,
    set: &str,
    emulated: &BTreeMap<String, Emulated>,
) -> BTreeMap<String, Figures> {
    let tasks = &sets()[set];
    let topology = machine(smt);
    let mut sums: BTreeMap<String, Figures> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let config = LinuxConfig {
            seed,
            ..config.clone()
        };
        for (role, figures) in figures(&world::run(&topology, config, tasks, emulated)) {
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
    let rows = golden::rows();
    let mut by_set: BTreeMap<Key, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        by_set.entry(row.key.clone()).or_default().push(row);
    }
    let mut far = BTreeMap::new();
    for (key, rows) in by_set.into_iter().filter(|(key, _)| chosen(key)) {
        let emulated = golden::emulated(&rows);
        for (role, model) in model(key.smt, &config(&key.llc_balancing), &key.set, &emulated) {
            let runs: Vec<&Figures> = rows
                .iter()
                .filter(|r| r.role == role)
                .map(|r| &r.figures)
                .collect();
            let waits = runs
                .iter()
                .map(|f| f.picked)
                .fold(f64::MAX, f64::min)
                .min(model.picked);
            for (name, of, tolerance) in MEASURES {
                let least = runs.iter().map(|f| of(f)).fold(f64::MAX, f64::min);
                let most = runs.iter().map(|f| of(f)).fold(f64::MIN, f64::max);
                let value = of(&model);
                let (distance, nearest) = if value < least {
                    (least - value, least)
                } else {
                    (value - most, most)
                };
                let counts = name != "wait_ms" || waits >= WAITS;
                if counts && distance > tolerance(nearest) {
                    far.insert((key.clone(), role.clone(), name), distance);
                }
            }
        }
    }
    far
}

#[test]
#[ignore = "makes the golden of runs of a kernel; see COUNTERSTEER_KERNEL_RUNS"]
fn the_golden_is_made_of_runs_of_a_kernel() {
    golden::renew();
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
    let listed = golden::listed();
    let mut wrong = Vec::new();
    for (what, distance) in &shown {
        match listed.get(what) {
            None => wrong.push(format!("{what}: off by {distance:.4}, and not listed")),
            Some(was) if *distance > was * SLACK => {
                wrong.push(format!("{what}: off by {distance:.4}, {was:.4} is listed"))
            }
            Some(_) => {}
        }
    }
    for what in listed.keys().filter(|what| !shown.contains_key(*what)) {
        wrong.push(format!("{what}: listed, and within the tolerance now"));
    }
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
