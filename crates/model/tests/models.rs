//! Tests of trained model files: shipped ones beat the constant, own ones take precedence, and damaged ones are refused at the
//! right line.

#![allow(clippy::unwrap_used)] // a test helper that fails has failed its test

use std::path::Path;
use std::sync::Arc;

use countersteer_model::machine::Machine;
use countersteer_model::metric::Round;
use countersteer_model::models::{FixedPointModel, ModelFile, Target, shipped};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::topology::Topology;
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};

fn text(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path),
    )
    .unwrap()
}

/// Returns a sample of one second at one instruction per cycle.
fn sample() -> Samples {
    let counts = [Event::Instructions, Event::Cycles].map(|event| (event, 1e9));
    let second = Nanos::from_millis(1000);
    Samples::of(
        Sample::of_thread(ThreadId(1), CpuId(0), CoreTypeId(0), second, second),
        1,
        &counts,
    )
}

#[test]
fn every_shipped_model_errs_less_than_the_constant_or_abstains() {
    let models = shipped();
    assert!(models.len() > 40);
    for (path, file) in models {
        if file.judged.beats_constant() {
            assert!(file.judged.abstains < 0.9, "{path}");
            continue;
        }
        let predicted = FixedPointModel::new(&file)
            .predict(&Round::of(&sample()).unwrap())
            .unwrap();
        assert_eq!(predicted.confident(), None, "{path}");
        assert!(
            (predicted.factor - file.constant.factor).abs() < 1e-4,
            "{path}"
        );
    }
}

#[test]
fn models_in_a_machine_file_go_before_shipped_ones() {
    let machine = text("machines/i9-12900k-8p8e.toml");
    let path = "models/golden-cove/i9-12900k-8p8e.sf.toml";
    let mut file = ModelFile::parse(path, &text(path)).unwrap();
    let model_of = |machine: &Machine| {
        let topology = Arc::new(Topology::new(machine));
        topology.models[0].of(Target::Sf).unwrap().constant.factor
    };
    let mut with = Machine::parse("m", &machine).unwrap();
    assert_eq!(model_of(&with), file.constant.factor);
    file.constant.factor = 6.5;
    with.model.push(file.clone());
    assert_eq!(model_of(&with), 6.5);
    // The text contains it, as records and experiments store it.
    let kept = Machine::parse("m", &with.to_toml().unwrap()).unwrap();
    assert_eq!(kept, with);
    // On another machine, the shipped model of this name takes precedence; at other frequencies it is not used at all.
    for (change, constant) in [
        (("machine", "elsewhere"), file.constant.factor),
        (("fast", "zen4"), 0.0),
    ] {
        let mut other = file.clone();
        match change.0 {
            "machine" => other.machine = change.1.into(),
            _ => other.fast = change.1.into(),
        }
        with.model = vec![other];
        assert_ne!(model_of(&with), constant, "{change:?}");
    }
}

#[test]
fn damaged_files_are_refused_at_the_line() {
    let path = "models/golden-cove/i9-12900k-8p8e.sf.toml";
    let sound = text(path);
    let line = |what: &str| 1 + sound.lines().position(|l| l.starts_with(what)).unwrap();
    let cases = [
        (
            "countersteer.model/2",
            "countersteer.model/9",
            "schema",
            "this version reads",
        ),
        (
            "target = \"sf\"",
            "target = \"speed\"",
            "target",
            "unknown variant",
        ),
        (
            "core_type = \"golden-cove\"",
            "core_type = \"../x\"",
            "core_type",
            "a name is",
        ),
        (
            "clock_ratio = 1.",
            "clock_ratio = -1.",
            "clock_ratio",
            "must be 0",
        ),
        (
            "ratio = \"cycles / instructions\"",
            "ratio = \"cicles / instructions\"",
            "ratio",
            "no event `cicles`",
        ),
        (
            "steps = [[0.0, 0.",
            "steps = [[0.0, 1e300], [0.0, 0.",
            "steps",
            "must be -1000",
        ),
        (
            "steps = [[0.0, 0.",
            "steps = [[9.0, 1.0], [0.0, 0.",
            "steps",
            "ascend",
        ),
        ("base = 1.", "base = nan\n#", "base", "`base` is NaN"),
    ];
    for (from, to, key, part) in cases {
        assert!(sound.contains(from), "{from}");
        let error = ModelFile::parse("mine.toml", &sound.replacen(from, to, 1)).unwrap_err();
        let shown = error.to_string();
        assert_eq!(error.line, Some(line(key)), "{shown}");
        assert!(
            shown.starts_with("mine.toml:") && shown.contains(part),
            "{shown}"
        );
    }
    let cut = &sound[..sound.len() / 2];
    assert!(
        ModelFile::parse("mine.toml", cut)
            .unwrap_err()
            .line
            .is_some()
    );
}
