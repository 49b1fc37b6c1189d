//! Policies that are given another machine than the one that runs.
#![allow(clippy::unwrap_used)]

use countersteer_lab::experiment::{Experiment, Finished};
use countersteer_lab::replay;
use countersteer_report::record::Detail;

const MACHINE: &str = "core2-quad";

/// Machine file with this key of the memory changed.
fn text_with(key: &str, value: f64) -> String {
    let (_, text) = countersteer_lab::library::machine(MACHINE).unwrap();
    let mut file: toml::Table = toml::from_str(&text.text).unwrap();
    let memory = file["memory"].as_array_mut().unwrap();
    memory[0]
        .as_table_mut()
        .unwrap()
        .insert(key.into(), value.into());
    toml::to_string(&file).unwrap()
}

fn experiment(policy: &str, belief: Option<String>) -> Experiment {
    let mut experiment = Experiment::named(MACHINE, "shared-caches", policy).unwrap();
    experiment.options.rounds = 1;
    experiment.options.belief = belief;
    experiment
}

fn run(policy: &str, belief: Option<String>) -> Finished {
    experiment(policy, belief).run().unwrap()
}

#[test]
fn a_true_belief_changes_nothing() {
    let (_, text) = countersteer_lab::library::machine(MACHINE).unwrap();
    for policy in ["joint", "mpi"] {
        let [plain, believed] = [None, Some(text.text.clone())].map(|b| run(policy, b));
        assert_eq!(plain.score, believed.score, "{policy}");
    }
}

#[test]
fn a_false_belief_misleads_the_policy_and_not_the_machine() {
    let slow = || Some(text_with("latency_ns", 9_000.0));
    let [truth, misled] = [None, slow()].map(|b| run("joint", b));
    assert_ne!(truth.score, misled.score);
    // Linux decides without the machine's file.
    let [truth, misled] = [None, slow()].map(|b| run("linux", b));
    assert_eq!(truth.score, misled.score);
}

#[test]
fn a_record_replays_with_the_belief() {
    let mut experiment = experiment("joint", Some(text_with("latency_ns", 9_000.0)));
    experiment.detail = Some(Detail::NoSpans);
    let record = experiment.run().unwrap().record.unwrap();
    let found = replay::replay(&record, "joint", 1).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_machine_of_another_shape_is_refused() {
    let (_, text) = countersteer_lab::library::machine("apple-m1").unwrap();
    let why = experiment("joint", Some(text.text)).run().unwrap_err();
    assert!(why.to_string().contains("is not like core2-quad"), "{why}");
}
