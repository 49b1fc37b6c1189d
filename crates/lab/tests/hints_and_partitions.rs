//! The simulator supports a policy's hints and partitions, and a run's results show them.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;
use std::sync::Arc;

use countersteer_lab::{Experiment, Finished, SimOptions, plan};
use countersteer_model::engine::{Engine, Watch};
use countersteer_model::machine::Governor;
use countersteer_model::placement::{AdmissionTable, Placement};
use countersteer_model::topology::GroupBy;
use countersteer_model::units::Nanos;
use countersteer_report::record::{Detail, Record};
use countersteer_sim::engine::Simulation;

fn run(machine: &str, workload: &str, policy: &str, governor: Option<Governor>) -> Finished {
    let mut experiment = Experiment::named(machine, workload, policy).unwrap();
    experiment.options.rounds = 1;
    experiment.options.governor = governor;
    experiment.detail = Some(Detail::Everything);
    experiment.run().unwrap()
}

fn unsupported(finished: &Finished) -> u32 {
    let record: &Record = finished.record.as_ref().unwrap();
    record.steps.iter().map(|step| step.unsupported).sum()
}

/// Completion time of the first program with this name.
fn seconds(finished: &Finished, program: &str) -> f64 {
    let mut programs = finished.score.programs.iter();
    programs.find(|p| &*p.name == program).unwrap().completion_s
}

#[test]
fn way_masks_of_a_policy_keep_poison_small() {
    let of = |policy| run("i9-12900k-8p8e", "shared-caches", policy, None);
    let together = of("contention");
    let split = of("contention:ways=split");
    assert_eq!((unsupported(&together), unsupported(&split)), (0, 0));
    // One cache: only the ways can differ.
    let faster = |program| seconds(&together, program) / seconds(&split, program);
    assert!(faster("xz") > 1.5, "{}", faster("xz"));
    assert!(faster("sieve") < 0.95, "{}", faster("sieve"));
    assert!(split.score.stp > 1.03 * together.score.stp);
}

#[test]
fn limits_on_frequencies_are_recorded_and_replayed() {
    let of = |policy| run("juno-2-4", "shared-caches", policy, None);
    let (free, limited) = (of("greedy-energy"), of("greedy-energy:clocks=on"));
    let record = limited.record.as_ref().unwrap();
    assert!(record.clocks.iter().any(|row| row.most_mhz > 0));
    assert!(free.record.as_ref().unwrap().clocks.is_empty());
    let policy = "greedy-energy:clocks=on";
    let differences =
        countersteer_lab::replay::replay(record, policy, record.manifest.seed).unwrap();
    assert!(differences.is_empty(), "{differences}");
}

/// Published programs: one that gains by ways, two that stream, two that do neither.
fn sharers(dir: &Path) -> String {
    let names = [
        "omnetpp-2006",
        "lbm-2006",
        "libquantum-2006",
        "hmmer-2006",
        "povray-2006",
    ];
    let program = |name| format!("[[program]]\nprofile = \"{name}\"\nthreads = 1\nscale = 0.03\n");
    let path = dir.join("sharers.toml");
    let text = names.map(program).concat();
    std::fs::write(&path, format!("title = \"sharers\"\n{text}")).unwrap();
    path.display().to_string()
}

#[test]
fn clusters_give_ways_to_programs_that_were_measured_to_gain() {
    let dir = tempfile::tempdir().unwrap();
    let workload = sharers(dir.path());
    let of = |policy| run("xeon-gold-6138", &workload, policy, None);
    let (linux, clusters) = (of("linux"), of("clusters"));
    assert_eq!(unsupported(&clusters), 0);
    let faster = |program| seconds(&linux, program) / seconds(&clusters, program);
    assert!(faster("omnetpp-2006") > 1.1, "{}", faster("omnetpp-2006"));
    assert!(faster("lbm-2006") > 0.95, "{}", faster("lbm-2006"));
    assert!(clusters.score.stp > 1.01 * linux.score.stp);
    assert!(clusters.score.unfairness < linux.score.unfairness);
}

#[test]
fn clusters_leave_machines_without_one_cache_of_ways_to_linux() {
    let dir = tempfile::tempdir().unwrap();
    let workload = sharers(dir.path());
    for machine in ["ryzen-7950x3d", "i9-12900k-8p8e"] {
        let of = |policy| run(machine, &workload, policy, None).score.stp;
        assert_eq!(of("clusters"), of("linux"), "{machine}");
    }
}

/// Programs that sleep most of the time look small to a governor.
const SLEEPERS: &str = r#"
title = "two that sleep"
[[program]]
profile = "PROFILES/gzip.json"
threads = 1
burst_mi = 5.0
sleep_ms = 30.0
[[program]]
profile = "PROFILES/perl.json"
threads = 1
burst_mi = 5.0
sleep_ms = 30.0
"#;

fn sleepers(dir: &Path, more: &str) -> String {
    let profiles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/recorded");
    let path = dir.join("sleepers.toml");
    std::fs::write(&path, SLEEPERS.replace("PROFILES", profiles) + more).unwrap();
    path.display().to_string()
}

#[test]
fn frequency_hints_of_a_policy_make_fast_cores_fast_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let workload = sleepers(dir.path(), "");
    let of = |policy, governor| run("juno-2-4", &workload, policy, Some(governor));
    let free = of("hsf:young_ms=0", Governor::Schedutil);
    let hinted = of("hsf:clamp=on,young_ms=0", Governor::Schedutil);
    assert_eq!(unsupported(&hinted), 0);
    for program in ["gzip", "perl"] {
        let faster = seconds(&free, program) / seconds(&hinted, program);
        assert!(faster > 1.1, "{program} {faster}");
    }
    assert!(unsupported(&of("hsf:clamp=on,young_ms=0", Governor::Performance)) > 0);
}

/// The admission table places a program that starts long before the policy's next decision; Linux would start it elsewhere.
#[test]
fn admission_tables_place_threads_between_decisions() {
    let dir = tempfile::tempdir().unwrap();
    let workload = sleepers(dir.path(), "start_s = 0.01\n");
    let experiment = Experiment::named("juno-2-4", &workload, "linux").unwrap();
    let topology = &experiment.machine.topology;
    let plan = plan::plan(&experiment.workload, topology).unwrap();
    for group in topology.groups_by(GroupBy::CoreType) {
        let config = SimOptions::default().config(1, false);
        let mut simulation = Simulation::new(Arc::clone(topology), &plan, config).unwrap();
        let watch = Watch::default();
        simulation.observe(&watch, Nanos::from_millis(1)).unwrap();
        let table = AdmissionTable {
            metric: "sf".into(),
            rows: vec![(f64::NEG_INFINITY, group.id)],
        };
        let placement = Placement {
            admission: Some(table),
            ..Placement::default()
        };
        simulation.apply(&placement).unwrap();
        let seen = simulation.observe(&watch, Nanos::from_millis(12)).unwrap();
        let late = seen
            .threads
            .iter()
            .find(|t| t.program.index() == 1)
            .unwrap();
        assert!(
            group.cpus.contains(late.cpu),
            "{} {:?}",
            group.name,
            late.cpu
        );
    }
}
