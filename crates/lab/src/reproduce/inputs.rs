//! What signatures of one program, made from several inputs, say about two cores.

use std::collections::BTreeMap;

use countersteer_model::signature::{CoreTraits, Signature};
use countersteer_model::topology::Topology;

use super::programs::{first_cpu, shipped_profile};
use super::values::Values;
use crate::error::{Kind, failure};

/// Ratings by program and profile, and how far those of a program's inputs lie apart.
pub fn inputs(
    topology: &Topology,
    profiles: &BTreeMap<String, Vec<String>>,
    groups: &[String; 2],
) -> anyhow::Result<Values> {
    let core = |group: &String| -> anyhow::Result<CoreTraits> {
        Ok(CoreTraits::of(topology, first_cpu(topology, group)?))
    };
    let fast = core(&groups[0])?;
    let slow = core(&groups[1])?;
    let mut values = Values::default();
    for (program, names) in profiles {
        values.add_row(program);
        let mut ratings = Vec::new();
        for name in names {
            let signature = signature(name)?;
            let rating = signature.seconds(&slow) / signature.seconds(&fast);
            values.add(program, name, "rating", rating);
            ratings.push(rating);
        }
        let most = ratings.iter().copied().fold(f64::MIN, f64::max);
        let least = ratings.iter().copied().fold(f64::MAX, f64::min);
        values.add(
            program,
            "inputs",
            "rating_range",
            100.0 * (most / least - 1.0),
        );
    }
    Ok(values)
}

/// The signature of a shipped recorded profile.
fn signature(name: &str) -> anyhow::Result<Signature> {
    let path = format!("recorded/{name}.json");
    let profile = shipped_profile(&path)?;
    let whole = 0.0..profile.instructions() as f64;
    countersteer_sim::progress::signature(&profile, whole)
        .ok_or_else(|| failure(Kind::BadInput, format!("`{path}` is not recorded")))
}
