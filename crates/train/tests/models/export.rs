use countersteer_model::metric::Round;
use countersteer_model::models::{FixedPointModel, Judged, ModelFile, Target};
use countersteer_model::sample::{Event, Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos, ThreadId};
use countersteer_train::data::Data;
use countersteer_train::judge::judge;
use countersteer_train::train::{Trained, train};
use countersteer_train::{export, model};

use crate::{additive, made_up, topology};

struct Made {
    data: Data,
    trained: Trained,
    file: ModelFile,
}

fn made() -> Made {
    let topology = topology();
    let samples = made_up(12, 1, additive_with_noise);
    let data = Data::new(&samples, 0, &topology.core_types[0], Target::Sf);
    let trained = train(&data, &[], 6).unwrap();
    let file = export::file(
        &topology,
        0,
        &data,
        &trained,
        "made up".into(),
        Judged::default(),
    );
    Made {
        data,
        trained,
        file,
    }
}

fn additive_with_noise(r: &crate::Ratios, rng: &mut rand_pcg::Pcg64) -> f64 {
    additive(r) * (1.0 + 0.03 * crate::normal(rng))
}

/// Counts with these ratios of the model's features, all of which are by instructions or cycles.
fn counted(made: &Made, logarithms: &[f64]) -> Samples {
    let instructions = 1e12;
    let cycles = instructions * logarithms[0].exp();
    let mut counts = vec![
        (Event::Instructions, instructions),
        (Event::Cycles, cycles.round()),
    ];
    for (nth, x) in made.trained.factor.features.iter().zip(logarithms).skip(1) {
        let feature = &made.data.features[*nth];
        let below = if feature.below == Event::Cycles {
            cycles
        } else {
            instructions
        };
        counts.push((feature.above, (below * x.exp()).round()));
    }
    sample(&counts)
}

fn sample(counts: &[(Event, f64)]) -> Samples {
    let head = Sample::of_thread(ThreadId(0), CpuId(0), CoreTypeId(0), Nanos(1), Nanos(1));
    Samples::of(head, 1, counts)
}

#[test]
fn a_file_is_read_back_as_it_was() {
    let made = made();
    let text = made.file.to_toml().unwrap();
    assert_eq!(ModelFile::parse("made-up", &text).unwrap(), made.file);
    assert_eq!(
        (&*made.file.fast, &*made.file.slow),
        ("golden-cove", "gracemont")
    );
}

/// In the middle of each step, a fixed-point table equals the sum, except for the bits that are cut off.
#[test]
fn tables_in_sixteen_bits_equal_the_sum_in_the_middle_of_their_steps() {
    let made = made();
    let Trained {
        factor,
        width,
        widening,
        ..
    } = &made.trained;
    let bit = 1.0 / 65536.0;
    for (table, sum, times) in [
        (&made.file.factor, factor, 1.0),
        (&made.file.width, width, *widening),
    ] {
        let table = table.fixed();
        assert!((table.base_q16 as f64 * bit - times * sum.intercept).abs() <= bit);
        assert_eq!(table.features.len(), sum.features.len());
        for (nth, feature) in table.features.iter().enumerate() {
            let (low, high) = made.data.features[sum.features[nth]].range;
            for step in 0..40 {
                let middle = low + (high - low) / 40.0 * (f64::from(step) + 0.5);
                let counts = [
                    (feature.below, 1e12),
                    (feature.above, (1e12 * middle.exp()).round()),
                ];
                let sample = sample(&counts);
                let ratio = feature.ratio_q20(&sample.row(0).unwrap().counts).unwrap();
                let reached = feature.steps.partition_point(|(least, _)| *least <= ratio);
                let adds = feature.steps[reached - 1].1 as f64 * bit;
                let wanted = times * sum.adds(&made.data, nth, middle);
                assert!(
                    (adds - wanted).abs() <= bit,
                    "{nth} {step}: {adds} {wanted}"
                );
            }
        }
    }
}

/// On samples a model deviates from the sum by at most half of each step's height.
#[test]
fn what_a_file_predicts_is_the_sum_to_within_its_steps() {
    let made = made();
    let model = FixedPointModel::new(&made.file);
    let features = &made.trained.factor.features;
    let height = |nth: usize| {
        let steps = &made.file.factor.features[nth].steps;
        let rises = steps.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs());
        rises.fold(0.0, f64::max)
    };
    let allowed = (0..features.len()).map(height).sum::<f64>() / 2.0 + 0.002;
    assert!(allowed < 0.2, "{allowed}");
    for row in &made.data.rows {
        let logarithms: Vec<f64> = features.iter().map(|f| row.logarithms[*f]).collect();
        let predicted = model
            .predict(&Round::of(&counted(&made, &logarithms)).unwrap())
            .unwrap();
        let wanted = made.trained.factor.of(&made.data, row);
        assert!(
            (predicted.factor - wanted).abs() <= allowed,
            "{} {wanted}",
            predicted.factor
        );
    }
}

#[test]
fn what_was_never_seen_is_in_doubt() {
    let made = made();
    let model = FixedPointModel::new(&made.file);
    let inside: Vec<f64> = made
        .trained
        .factor
        .features
        .iter()
        .map(|f| {
            let (low, high) = made.data.features[*f].range;
            f64::midpoint(low, high)
        })
        .collect();
    let predicted = model
        .predict(&Round::of(&counted(&made, &inside)).unwrap())
        .unwrap();
    assert!(predicted.doubt < 1.0 && predicted.confident().is_some());
    let mut outside = inside.clone();
    outside[0] = made.data.features[0].range.1 + 1.0;
    let predicted = model
        .predict(&Round::of(&counted(&made, &outside)).unwrap())
        .unwrap();
    assert!(predicted.doubt > 1.0 && predicted.confident().is_none());
    // Without an event there is no prediction.
    let all = counted(&made, &inside);
    let kept = |event| (event, all.row(0).unwrap().counts.get(event).unwrap());
    let lacking = sample(&[Event::Cycles, Event::Instructions].map(kept));
    assert!(
        model
            .predict(&Round::of(&lacking).unwrap())
            .unwrap()
            .confident()
            .is_none()
    );
}

/// Rule by which models are shipped: no counter of these programs is related to the factor.
#[test]
fn a_model_that_errs_no_less_than_the_constant_is_exported_as_the_constant() {
    let topology = topology();
    let samples = made_up(12, 1, |_, rng| 1.8 * (1.0 + 0.1 * crate::normal(rng)));
    let data = Data::new(&samples, 0, &topology.core_types[0], Target::Sf);
    let tried = judge(&topology, 0, &samples, &data, 6, false).unwrap();
    assert!(tried.judged.mape >= tried.judged.constant_mape);
    let file = model::model(&topology, 0, &samples, Target::Sf, String::new()).unwrap();
    assert!(!file.judged.beats_constant());
    assert_eq!((file.judged.abstains, file.judged.r), (1.0, 0.0));
    assert!((file.judged.coverage - 0.9).abs() < 0.05);
    // The constant is applied through its file, and abstains for any counts.
    let model =
        FixedPointModel::new(&ModelFile::parse("constant", &file.to_toml().unwrap()).unwrap());
    let trained = train(&data, &[], 6).unwrap();
    let made = Made {
        data,
        trained,
        file,
    };
    for row in &made.data.rows {
        let of = &made.trained.factor.features;
        let logarithms: Vec<f64> = of.iter().map(|f| row.logarithms[*f]).collect();
        let predicted = model.predict(&Round::of(&counted(&made, &logarithms)).unwrap());
        let predicted = predicted.unwrap();
        assert!((predicted.factor - made.file.constant.factor).abs() < 1e-4);
        assert!((predicted.width - made.file.constant.width).abs() < 1e-4);
        assert_eq!(predicted.confident(), None);
    }
    // A model of a factor that counters explain is exported as it was trained.
    let samples = made_up(12, 1, additive_with_noise);
    let file = model::model(&topology, 0, &samples, Target::Sf, String::new()).unwrap();
    assert!(file.judged.beats_constant() && file.judged.abstains < 0.5);
    assert!(file.factor.features.len() > 1);
}
