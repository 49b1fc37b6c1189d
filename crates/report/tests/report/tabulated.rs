//! Tests of profiles made from records.

use countersteer_model::profile::Tabulated;
use countersteer_model::sample::Event;
use countersteer_report::record::Detail;
use countersteer_report::tabulate::tabulate;

use crate::synthetic::{self, HYBRID};

#[test]
fn figures_are_those_of_the_samples_and_survive_a_file() {
    let record = synthetic::record(HYBRID, "fastest-first", 10, 1, Detail::Everything);
    let program = record.identities()[3].clone();
    let profile = tabulate(&record, &program.name).unwrap();
    let topology = record.topology().unwrap();
    let mut ran_on = std::collections::BTreeMap::new();
    let samples = record.samples.samples.of_threads();
    for (_, sample) in samples.filter(|(thread, _)| *thread == program.id) {
        let count = |event| sample.counts.get(event).unwrap();
        let sums: &mut (f64, f64) = ran_on.entry(sample.core_type).or_default();
        sums.0 += count(Event::Instructions);
        sums.1 += count(Event::Cycles);
    }
    assert_eq!(profile.core.len(), ran_on.len());
    for (core_type, (instructions, cycles)) in ran_on {
        let table = profile
            .on(&topology.core_types[core_type.index()].name)
            .unwrap();
        assert_eq!(table.points.len(), 1);
        assert!(
            (table.points[0].ipc / (instructions / cycles) - 1.0).abs() < 1e-9,
            "{:?}",
            table.points
        );
    }
    let text = toml::to_string(&profile).unwrap();
    assert_eq!(Tabulated::parse("p.toml", &text).unwrap(), profile);
}

#[test]
fn what_is_lacking_is_said() {
    let mut record = synthetic::record(HYBRID, "fastest-first", 3, 1, Detail::Everything);
    let name = record.identities()[0].name.clone();
    let error = tabulate(&record, "nobody").unwrap_err().to_string();
    assert!(
        error.contains("`nobody`") && error.contains(&*name),
        "{error}"
    );
    record.samples.keep_steps(0);
    let error = tabulate(&record, &name).unwrap_err().to_string();
    assert!(error.contains("-e instructions,cycles"), "{error}");
}
