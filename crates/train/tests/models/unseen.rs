//! Models on a machine that they were not trained on.

use countersteer_model::machine::Machine;
use countersteer_model::models::{Judged, Target};
use countersteer_model::topology::Topology;
use countersteer_train::rows::TrainingRow;
use countersteer_train::unseen::{MachineSide, carried, untrained};

use crate::{additive, made_up, normal, topology};

/// Machine with the same core types under another name, and its E cores at this many GHz.
fn other(slow_ghz: &str) -> Topology {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../../machines/i9-12900k-8p8e.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replacen("i9-12900k-8p8e", "other", 1);
    let mut machine = Machine::parse("other.toml", &text).unwrap();
    machine.core_type[1].freq_ghz = slow_ghz.parse().unwrap();
    Topology::new(&machine)
}

fn learnt(seed: u64) -> Vec<TrainingRow> {
    made_up(16, seed, |r, rng| additive(r) * (1.0 + 0.03 * normal(rng)))
}

fn judged(other: &Topology, there: &[TrainingRow]) -> Option<Judged> {
    let own = topology();
    let samples = learnt(1);
    let side = MachineSide {
        topology: &own,
        core_type: 0,
        samples: &samples,
    };
    carried(side, other, there, Target::Sf)
}

fn same_clocks() -> Topology {
    let own = topology();
    other(&own.core_types[1].freq_ghz.to_string())
}

#[test]
fn a_machine_learns_from_one_that_obeys_the_same_law() {
    let judged = judged(&same_clocks(), &learnt(2)).unwrap();
    assert!(judged.r > 0.9, "{judged:?}");
    assert!(judged.mape < 0.5 * judged.constant_mape, "{judged:?}");
    assert!((0.8..=1.0).contains(&judged.coverage), "{judged:?}");
}

#[test]
fn another_law_there_shows_as_an_error_here() {
    let contrary = made_up(16, 2, |r, _| 4.0 - additive(r));
    let judged = judged(&same_clocks(), &contrary).unwrap();
    assert!(judged.r < 0.0, "{judged:?}");
    assert!(judged.mape > judged.constant_mape, "{judged:?}");
}

#[test]
fn families_are_left_out_on_the_other_machine_too() {
    let there = learnt(2);
    let mut renamed = there.clone();
    for row in &mut renamed {
        row.families[0].push_str("-else");
    }
    // Under other names, the fold that is judged is learnt from as well, so other models are judged.
    let left_out = judged(&same_clocks(), &there).unwrap();
    let kept = judged(&same_clocks(), &renamed).unwrap();
    assert_ne!(left_out.mape, kept.mape);
}

#[test]
fn machines_of_other_clocks_teach_nothing() {
    assert_eq!(judged(&other("1.5"), &learnt(2)), None);
}

#[test]
fn the_untrained_model_is_judged_by_the_same_programs() {
    let own = topology();
    let samples = learnt(1);
    let side = MachineSide {
        topology: &own,
        core_type: 0,
        samples: &samples,
    };
    let bare = untrained(side).unwrap();
    let with_models = judged(&same_clocks(), &samples).unwrap();
    assert_eq!(bare.constant_mape, with_models.constant_mape);
    assert_ne!(bare.mape, with_models.mape);
}
