//! Energy is compared per unit of work.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::fs::File;
use std::path::Path;

use arrow_array::Float64Array;
use countersteer_lab::{Experiment, Finished};
use countersteer_report::judge::{Facts, Ranked, judge};
use countersteer_report::record::{Detail, Record};
use countersteer_report::table::CompareRun;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const MACHINE: &str = "i9-12900k-8p8e";

fn experiment(workload: &str, policy: &str, rounds: u32) -> Experiment {
    let mut experiment = Experiment::named(MACHINE, workload, policy).unwrap();
    experiment.options.rounds = rounds;
    experiment
}

fn run(experiment: &Experiment) -> (CompareRun, Finished) {
    let finished = experiment.run().unwrap();
    (experiment.scored(&finished), finished)
}

/// A policy's row in the ranking against `linux`.
fn ranked(linux: &CompareRun, policy: &CompareRun) -> Ranked {
    let ranking = judge(&[linux.clone(), policy.clone()], &Facts::default()).remove(0);
    ranking.best().unwrap().clone()
}

/// Joules per 1e9 instructions from a record on disk.
fn joules_per_giga(dir: &Path) -> f64 {
    let file = File::open(dir.join("programs.parquet")).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let instructions = batches.build().unwrap().map(|batch| {
        let batch = batch.unwrap();
        let column = batch.column_by_name("instructions").unwrap();
        let column: &Float64Array = column.as_any().downcast_ref().unwrap();
        column.values().iter().sum::<f64>()
    });
    let energy_j = Record::load(dir).unwrap().manifest.outcome.energy_j;
    energy_j / (instructions.sum::<f64>() * 1e-9)
}

#[test]
fn the_energy_column_is_that_of_the_records_alone() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = |policy: &str| {
        let mut experiment = experiment("unequal-cores", policy, 3);
        experiment.detail = Some(Detail::NoSpans);
        let (run, finished) = run(&experiment);
        let path = dir.path().join(policy);
        finished.record.unwrap().save(&path).unwrap();
        (run, joules_per_giga(&path))
    };
    let (linux, base) = recorded("linux");
    for (policy, least, most) in [("aarr", -0.05, -0.02), ("hsf", -0.06, -0.02)] {
        let (run, own) = recorded(policy);
        let printed = ranked(&linux, &run).energy_per_instruction.unwrap().median;
        assert!((printed - (own / base - 1.0)).abs() < 1e-9, "{printed}");
        assert!(least < printed && printed < most, "{policy}: {printed}");
        let total = run.energy_j / linux.energy_j - 1.0;
        assert!(total < 2.0 * printed, "the work differs: {total}");
    }
}

#[test]
fn letting_all_but_the_slowest_program_idle_saves_nothing() {
    let (linux, _) = run(&experiment("unequal-cores", "linux", 3));
    let slowest = linux
        .programs
        .iter()
        .max_by(|a, b| a.completion_s.total_cmp(&b.completion_s))
        .unwrap();
    // All others share one slow core.
    let idle = format!("static:{}=cpu0,*=cpu15", slowest.name);
    let (idle, _) = run(&experiment("unequal-cores", &idle, 3));
    let total = idle.energy_j / linux.energy_j - 1.0;
    assert!(total < -0.3, "totals would praise it: {total}");
    let ranked = ranked(&linux, &idle);
    let [instruction, per_run] =
        [ranked.energy_per_instruction, ranked.energy_per_run].map(|f| f.map(|f| f.median));
    assert!(instruction.unwrap() > 0.1, "{instruction:?}");
    assert!(per_run.unwrap() > 0.1, "{per_run:?}");
}

#[test]
fn objectives_serve_their_own_measure() {
    let of = |policy: &str| run(&experiment("unequal-cores", policy, 3)).0;
    let [linux, joint] = ["linux", "joint"].map(of);
    let edp = of("joint:objective=edp").edp_js;
    assert!(edp < 1.01 * joint.edp_js.min(linux.edp_js), "{edp}");
    let energy = of("joint:objective=energy").energy_per_instruction_nj;
    let [linux, joint] = [linux, joint].map(|r| r.energy_per_instruction_nj);
    assert!(energy < 1.01 * joint.min(linux), "{energy}");
}

#[test]
fn twice_the_rounds_moves_no_column_by_more_than_a_hundredth() {
    let rows = |policy: &str| {
        [3, 6].map(|rounds| {
            let of = |policy| run(&experiment("unequal-cores", policy, rounds)).0;
            ranked(&of("linux"), &of(policy))
        })
    };
    let energy =
        |r: &Ranked| [r.energy_per_instruction, r.energy_per_run].map(|f| f.unwrap().median);
    let others = |r: &Ranked| {
        let loser = r.loser.as_ref().unwrap().speed.median;
        [r.throughput.median, r.slowdown.unwrap().median, loser]
    };
    let near = |once: &[f64], twice: &[f64]| {
        let mut pairs = once.iter().zip(twice);
        pairs.all(|(a, b)| (a - b).abs() < 0.01)
    };
    let [once, twice] = rows("aarr");
    assert!(near(&others(&once), &others(&twice)), "{once:?} {twice:?}");
    assert!(near(&energy(&once), &energy(&twice)), "{once:?} {twice:?}");
    // Linux places the threads first, and its preferences change over minutes. Programs' speeds and runs change with them.
    let [once, twice] = rows("hsf");
    assert!(
        near(&energy(&once)[..1], &energy(&twice)[..1]),
        "{once:?} {twice:?}"
    );
}
