//! Tests with every QEMU of this machine: the plugin works with all, and the profiles of the same programs are equal.
//!
//! The tests need two QEMUs with plugin support and a C compiler. Without them they print a message and pass.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

mod instrumented;

use countersteer_model::profile::Recorded;
use countersteer_profiler::{Architecture, Emulator, Tools, engines, profile, tools};

use instrumented::{options, programs};

/// Returns the metrics of a profile over the whole run, by name.
fn figures(profile: &Recorded) -> Vec<(String, f64)> {
    let mean = |value: &dyn Fn(usize) -> f64| {
        let parts = profile.timeline.iter();
        let sum: f64 = parts
            .map(|s| value(s.behaviour as usize) * s.instructions as f64)
            .sum();
        sum / profile.instructions as f64
    };
    let behaviour = |at: usize| &profile.behaviours[at];
    let mut figures = vec![
        ("instructions".into(), profile.instructions as f64),
        ("loads".into(), mean(&|b| behaviour(b).mix.loads)),
        ("stores".into(), mean(&|b| behaviour(b).mix.stores)),
        ("branches".into(), mean(&|b| behaviour(b).mix.branches)),
        ("ilp".into(), mean(&|b| behaviour(b).ilp[3].ipc)),
    ];
    for lines in [128.0, 2048.0, 32768.0] {
        let misses = |b: usize| {
            let of = &behaviour(b).locality;
            of.stack_distance_pki.at_least(lines) + of.cold_pki
        };
        figures.push((format!("misses beyond {lines} lines"), mean(&misses)));
    }
    figures
}

#[test]
fn every_engine_gives_the_same_profile() {
    let Some((_turn, program)) = programs() else {
        return;
    };
    let found = Architecture::here().map_or_else(Vec::new, engines);
    if found.len() < 2 {
        let why =
            "a second QEMU that takes plugins is missing: scripts/recorder-engine.sh builds one";
        countersteer_fuzz::skipped(why);
        return;
    }
    let plugin = tools().unwrap().plugin;
    let under = |engine: &Emulator, arguments: &[&str]| {
        let mut options = options(&program, arguments);
        options.tools = Some(Tools {
            engine: engine.clone(),
            plugin: plugin.clone(),
        });
        profile(&options).unwrap().profile
    };
    let runs: [&[&str]; 5] = [
        &["stream", "4096", "20"],
        &["mixed", "2000"],
        &["matmul", "80"],
        &["wide", "40"],
        &["spawn"],
    ];
    for arguments in runs {
        let first = under(&found[0], arguments);
        for engine in &found[1..] {
            let other = under(engine, arguments);
            assert_eq!(other.shape.threads, first.shape.threads, "{arguments:?}");
            for ((name, a), (_, b)) in figures(&first).into_iter().zip(figures(&other)) {
                let close = (a - b).abs() <= 0.01 * a.abs() + 0.05;
                let engines = [&found[0], engine].map(|of| of.file.display().to_string());
                assert!(close, "{arguments:?}: {name} {a} {b} under {engines:?}");
            }
        }
    }
}
