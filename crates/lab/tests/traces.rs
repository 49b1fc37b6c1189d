//! Simulated traces: damage ends in an error.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use std::path::Path;

use countersteer_cache::trace::{Header, SCHEMA, TraceFile, TraceWriter, Trailer};
use countersteer_cache::tracer::ThreadTracer;
use countersteer_cache::wire::ENDS;
use countersteer_lab::error::{FaultKind, PlainError};
use countersteer_lab::experiment::{Experiment, Fidelity};
use countersteer_model::profile::Profile;
use countersteer_sim::progress::synthetic;

/// Number of the program's instructions.
const LENGTH: u32 = 400_000;

/// Records a program in which every fourth instruction is a load.
fn record(path: &Path) {
    let profile = synthetic::profile("p", &[(synthetic::chase(5000), u64::from(LENGTH))]);
    let Profile::Recorded(profile) = profile else {
        unreachable!("synthetic profiles are as recorded ones");
    };
    let header = Header {
        schema: SCHEMA.into(),
        name: "p".into(),
        detail: "test".into(),
        filter_sets: 0,
        fetches: false,
    };
    let mut writer = TraceWriter::new("memory", Vec::new(), &header).unwrap();
    let mut tracer = ThreadTracer::new(1, 1, 0);
    for n in 0..u64::from(LENGTH / 4) {
        tracer.instructions(4);
        let line = n * 7919 % 5000;
        tracer.data(line, line, false);
        if tracer.is_complete() {
            tracer.hand_on(0, n * 4, |head, words| writer.block(head, words).unwrap());
        }
    }
    tracer.hand_on(ENDS, u64::from(LENGTH), |head, words| {
        writer.block(head, words).unwrap();
    });
    let trailer = Trailer {
        profile: Some(profile.into()),
        ..Trailer::default()
    };
    std::fs::write(path, writer.finish(trailer).unwrap()).unwrap();
}

#[test]
fn a_damaged_trace_is_an_error_of_the_simulation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.trace");
    record(&path);
    let workload = directory.path().join("one.toml");
    let text = "title = \"one\"\n[[program]]\nprofile = \"p.trace\"\n";
    std::fs::write(&workload, text).unwrap();
    let simulated = || {
        let workload = workload.display().to_string();
        let mut experiment = Experiment::named("core2-quad", &workload, "linux").unwrap();
        experiment.options.rounds = 1;
        experiment.options.fidelity = Fidelity::Traced;
        experiment.run()
    };
    simulated().unwrap();
    let last = *TraceFile::open(&path).unwrap().entries().last().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // Data beyond the block's own description.
    bytes[last.offset as usize + 100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = simulated().unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error:#}");
    let failure = error.downcast_ref::<PlainError>().unwrap();
    assert_eq!(failure.kind, FaultKind::BadInput);
}

#[test]
fn a_traced_program_is_no_faster_beside_others_than_alone() {
    let directory = tempfile::tempdir().unwrap();
    record(&directory.path().join("p.trace"));
    let workload = directory.path().join("three.toml");
    let program = "[[program]]\nprofile = \"p.trace\"\n";
    for (copies, rounds) in [(1, 1), (1, 6), (3, 3)] {
        let text = format!("title = \"copies\"\n{program}copies = {copies}\n");
        std::fs::write(&workload, text).unwrap();
        let workload = workload.display().to_string();
        let mut experiment = Experiment::named("core2-quad", &workload, "linux").unwrap();
        experiment.options.rounds = rounds;
        experiment.options.fidelity = Fidelity::Traced;
        for program in experiment.run().unwrap().score.programs {
            let slowdown = program.slowdown;
            assert!(
                slowdown > 0.985,
                "{copies} copies, {rounds} rounds: {slowdown}"
            );
            assert!(
                copies > 1 || slowdown < 1.015,
                "{rounds} rounds: {slowdown}"
            );
        }
    }
}
