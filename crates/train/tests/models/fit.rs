use countersteer_model::models::Target;
use countersteer_train::data::Data;
use countersteer_train::fit::Fitter;
use countersteer_train::train::train;

use crate::{Ratios, additive, made_up, topology};

fn data(truth: impl Fn(&Ratios) -> f64) -> Data {
    let samples = made_up(6, 1, |r, _| truth(r));
    Data::new(&samples, 0, &topology().core_types[0], Target::Sf)
}

fn truth(data: &Data) -> Vec<f64> {
    data.rows.iter().map(|r| r.truth).collect()
}

fn by_name(data: &Data, name: &str) -> usize {
    let named = |f: &countersteer_train::data::Feature| {
        f.above.def().name == name && f.below.def().name == "instructions"
    };
    data.features.iter().position(named).unwrap()
}

#[test]
fn a_sum_of_logarithms_is_found_exactly() {
    let data = data(additive);
    let weights = vec![1.0; data.rows.len()];
    let fitter = Fitter::new(&data, &[], truth(&data), &weights);
    let features = [0, by_name(&data, "llc_misses")];
    let sum = fitter.fit(&features, None, 1e-9).unwrap();
    for row in &data.rows {
        assert!((sum.of(&data, row) - row.truth).abs() < 1e-4);
    }
    // The difference of a feature's contributions at two values is its share of the truth.
    let adds = |x: f64| sum.adds(&data, 0, x.ln());
    assert!((adds(2.0) - adds(0.5) + 0.25 * 4f64.ln()).abs() < 1e-3);
    let predicted = fitter.cross_validated(&features, &[0, 1, 2, 3, 4, 5], 1e-9);
    assert!(fitter.loss(&predicted) < 1e-7);
}

#[test]
fn a_ridge_pulls_towards_the_mean() {
    let data = data(additive);
    let weights = vec![1.0; data.rows.len()];
    let fitter = Fitter::new(&data, &[], truth(&data), &weights);
    let sum = fitter.fit(&[0], None, 1e9).unwrap();
    let mean = truth(&data).iter().sum::<f64>() / data.rows.len() as f64;
    for row in &data.rows {
        assert!((sum.of(&data, row) - mean).abs() < 1e-4);
    }
}

#[test]
fn taking_a_family_away_again_is_never_having_had_it() {
    let data = data(|r| additive(r) + 0.3 * (r.cycles * 40.0).sin());
    let weights: Vec<f64> = data.rows.iter().map(|r| r.weight).collect();
    let with = Fitter::new(&data, &[], truth(&data), &weights);
    let without = Fitter::new(&data, &[2], truth(&data), &weights);
    let features = [0, by_name(&data, "branch_misses")];
    let a = with.fit(&features, Some(2), 1e-3).unwrap();
    let b = without.fit(&features, None, 1e-3).unwrap();
    for row in &data.rows {
        assert!((a.of(&data, row) - b.of(&data, row)).abs() < 1e-8);
    }
}

#[test]
fn loss_is_the_mean_of_squared_relative_errors() {
    let data = data(additive);
    let weights = vec![1.0; data.rows.len()];
    let fitter = Fitter::new(&data, &[], truth(&data), &weights);
    let mut off: Vec<f64> = data.rows.iter().map(|r| 1.1 * r.truth).collect();
    assert!((fitter.loss(&off) - 0.01).abs() < 1e-12);
    off.fill(f64::NAN);
    assert!(fitter.loss(&off).is_infinite());
}

#[test]
fn what_tells_of_the_factor_is_chosen_and_what_does_not_is_not() {
    let data = data(additive);
    let trained = train(&data, &[], 6).unwrap();
    let chosen: Vec<&str> = trained
        .factor
        .features
        .iter()
        .map(|f| data.features[*f].above.def().name)
        .collect();
    assert_eq!(chosen[0], "cycles");
    assert!(chosen.contains(&"llc_misses"), "{chosen:?}");
    assert!(!chosen.contains(&"loads"), "{chosen:?}");
}

#[test]
fn no_more_events_are_chosen_than_can_be_counted() {
    let data = data(|r| additive(r) + 1.2 + 0.1 * r.branch_misses.ln() + 0.4 * r.loads.ln());
    let events = |most: usize| {
        let trained = train(&data, &[], most).unwrap();
        let chosen = trained.factor.features.iter();
        let mut names: Vec<&str> = chosen
            .map(|f| data.features[*f].above.def().name)
            .filter(|name| *name != "cycles")
            .collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    assert_eq!(events(1), 1);
    assert!(events(6) > 1);
}
