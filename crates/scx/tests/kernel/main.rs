//! A scheduler in the simulator against the same scheduler under kernel 7.2: equal sets of tasks on eight CPUs with two last-level
//! caches of four CPUs.
//!
//! Golden data: `kernel.tsv`, measurements of the kernel's runs under `tests/schedulers/vtime.bpf.c`, which is compiled for BPF there
//! and for this machine here. `vm/kernel-scx.sh` makes the runs. A measure of the simulator is the mean of eight seeds. It must lie
//! between those of the kernel's runs, or outside by at most the tolerance:
//!
//! - CPU share: 2 % of the time;
//! - migrations per task: 25 %, or 5;
//! - median run-queue latency, of tasks that waited at least 20 times: 20 %, or [`WAIT_MS`].
//!
//! Larger distances are listed in `deviations.tsv`, as for the model of Linux.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

#[path = "../../../sim/tests/kernel/golden.rs"]
mod golden;
#[path = "../../../sim/tests/kernel/sets.rs"]
mod sets;
#[path = "../../../sim/tests/kernel/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use countersteer_scx::{Ext, Library};
use countersteer_sim::scheduler::Scheduler;

use golden::{Key, Measure};
use sets::{Emulated, Figures, figures, plugs, sets};

const SEEDS: u64 = 8;
/// Time that waking an idle CPU takes in the emulated machine.
const WAIT_MS: f64 = 0.1;
/// Factor on a listed distance, because insignificant changes move measures a little.
const SLACK: f64 = 1.1;

const MEASURES: [Measure; 3] = [
    ("share", |f| f.share, |_| 0.02),
    (
        "migrations",
        |f| f.migrations,
        |kernel| (0.25 * kernel).max(5.0),
    ),
    (
        "wait_ms",
        |f| f.wait_ms,
        |kernel| (0.2 * kernel).max(WAIT_MS),
    ),
];

/// Measures of the simulator by role: means over seeds.
fn simulated(
    library: &Library,
    key: &Key,
    emulated: &BTreeMap<String, Emulated>,
) -> BTreeMap<String, Figures> {
    let tasks = &sets()[&key.set];
    let topology = Arc::new(world::machine(&key.machine));
    let mut sums: BTreeMap<String, Figures> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let ext = Ext::start(library, &topology, &[], seed).unwrap();
        let scheduler: (Box<dyn Scheduler>, u64) = (Box::new(ext), seed);
        for (role, figures) in figures(
            &world::run(&topology, scheduler, (tasks, plugs(&key.set)), emulated),
            world::groups(&key.machine),
        ) {
            sums.entry(role)
                .or_default()
                .add(&figures, 1.0 / SEEDS as f64);
        }
    }
    sums
}

#[test]
#[ignore = "makes the golden of runs of a kernel; see COUNTERSTEER_KERNEL_RUNS"]
fn the_golden_is_made_of_runs_of_a_kernel() {
    golden::renew(&[("8", "vtime")]);
}

#[test]
fn a_scheduler_does_in_the_simulator_what_it_does_under_the_kernel() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schedulers/vtime.bpf.c");
    let library = Library::build(&source).unwrap();
    let far = golden::distances(
        &MEASURES,
        |_| true,
        |key, emulated| simulated(&library, key, emulated),
    );
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
