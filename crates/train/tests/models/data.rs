use countersteer_model::events::Event;
use countersteer_model::models::Target;
use countersteer_train::data::{Data, most_events};
use countersteer_train::rows::TrainingRow;

use crate::{additive, interval, made_up, topology};

fn data(samples: &[TrainingRow], target: Target) -> Data {
    Data::new(samples, 0, &topology().core_types[0], target)
}

#[test]
fn factors_are_ratios_of_speeds_and_of_energy_delay_products() {
    // Half as fast, at a quarter of the energy: the product is half that on the fast core type.
    let sample = interval("a", &[(Event::Cycles, 1.0)], 2.0, [4.0, 1.0]);
    assert!((sample.speed_up() - 2.0).abs() < 1e-12);
    assert!((sample.energy_factor() - 0.5).abs() < 1e-12);
}

#[test]
fn columns_are_standardised_and_bend_at_the_knots_only() {
    let data = data(&made_up(6, 1, |r, _| additive(r)), Target::Sf);
    for (nth, feature) in data.features.iter().enumerate() {
        let columns: Vec<_> = data
            .rows
            .iter()
            .map(|r| feature.columns(r.logarithms[nth]))
            .collect();
        let n = columns.len() as f64;
        for c in 0..columns[0].len() {
            let mean = columns.iter().map(|r| r[c]).sum::<f64>() / n;
            let square = columns.iter().map(|r| r[c] * r[c]).sum::<f64>() / n;
            assert!(
                mean.abs() < 1e-9 && (square - 1.0).abs() < 1e-6,
                "{nth} {c}"
            );
        }
        // Between two knots a column is a straight line: its middle is the mean of its ends.
        let (a, b) = (feature.knots[1], feature.knots[2]);
        let [begin, middle, end] = [a, (a + b) / 2.0, b].map(|x| feature.columns(x));
        let is_straight = |c: usize| (begin[c] + end[c] - 2.0 * middle[c]).abs() < 1e-9;
        assert!((0..begin.len()).all(is_straight));
        // A value outside the samples is clamped to the nearest one.
        assert_eq!(
            feature.columns(feature.range.1 + 1.0),
            feature.columns(feature.range.1)
        );
    }
}

#[test]
fn families_weigh_alike_and_crossed_samples_three_times_as_much_together() {
    let mut samples = made_up(3, 1, |r, _| additive(r));
    samples.truncate(25);
    let mut crossed = samples[..4].to_vec();
    for sample in &mut crossed {
        sample.families.push("f02".into());
    }
    samples.extend(crossed);
    let data = data(&samples, Target::Sf);
    let weight = |of: &dyn Fn(&countersteer_train::data::TypeRow) -> bool| -> f64 {
        data.rows.iter().filter(|r| of(r)).map(|r| r.weight).sum()
    };
    for family in 0..3 {
        assert!((weight(&|r| r.real && r.families == [family]) - 1.0).abs() < 1e-12);
    }
    assert!((weight(&|r| !r.real) - 9.0).abs() < 1e-12);
}

#[test]
fn what_lacks_a_common_event_is_left_out_and_a_rare_event_is_no_candidate() {
    let mut samples = made_up(4, 1, |r, _| additive(r));
    let events = [(Event::Cycles, 1.0), (Event::Stores, 0.1)];
    samples.push(interval("lacking", &events, 2.0, [1.0, 0.5]));
    let data = data(&samples, Target::Sf);
    assert_eq!(data.rows.len(), 40);
    assert!(!data.families.contains(&"lacking".to_owned()));
    let reads = |event: Event| data.features.iter().any(|f| f.above == event);
    assert!(reads(Event::LlcMisses) && !reads(Event::Stores));
    // The first feature distinguishes phases.
    assert_eq!(
        (data.features[0].above, data.features[0].below),
        (Event::Cycles, Event::Instructions)
    );
}

#[test]
fn what_the_core_type_does_not_count_is_no_candidate() {
    let mut core_type = topology().core_types[0].clone();
    core_type.uncounted = vec!["llc_misses".into()];
    let samples = made_up(4, 1, |r, _| additive(r));
    let data = Data::new(&samples, 0, &core_type, Target::Sf);
    assert!(data.features.iter().all(|f| f.above != Event::LlcMisses));
    assert!(data.features.iter().any(|f| f.above == Event::BranchMisses));
}

#[test]
fn a_factor_that_is_not_known_or_beyond_bounds() {
    let events = [(Event::Cycles, 1.0)];
    let mut samples = vec![interval("fast", &events, 9.0, [1.0, 0.5])];
    samples.push(interval("unknown", &events, f64::NAN, [1.0, 0.5]));
    let data = data(&samples, Target::Sf);
    assert_eq!(data.rows.len(), 1);
    assert!((data.rows[0].truth - Target::Sf.bounds().1).abs() < 1e-12);
}

#[test]
fn multiplexed_sets_hold_twice_as_many_events_where_counters_are_few() {
    let mut core_type = topology().core_types[0].clone();
    (core_type.counters, core_type.fixed_counters) = (2, 3);
    assert_eq!(most_events(&core_type), 4);
    (core_type.counters, core_type.fixed_counters) = (6, 1);
    assert_eq!(most_events(&core_type), 5);
}
