//! Ratings of two cores by signatures of a program from several inputs.

use std::collections::BTreeMap;

use countersteer_model::profile::Profile;
use countersteer_model::signature::{CoreTraits, Signature};
use countersteer_model::topology::Topology;

use super::programs::{Cast, first_cpu, lone, shipped_profile, short};
use super::values::CaseValues;
use crate::error::{FaultKind, failure};

/// Returns the ratings by program and profile, and the range over the inputs of each program.
pub fn inputs(
    topology: &Topology,
    profiles: &BTreeMap<String, Vec<String>>,
    groups: &[String; 2],
) -> anyhow::Result<CaseValues> {
    let core = |group: &String| -> anyhow::Result<CoreTraits> {
        Ok(CoreTraits::of(topology, first_cpu(topology, group)?))
    };
    let fast = core(&groups[0])?;
    let slow = core(&groups[1])?;
    let mut values = CaseValues::default();
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

/// Returns the misses per 4,096 instructions of a program by cache size and ways, for each draw of
/// the case.
///
/// # Errors
/// Fails if the program has no profile.
pub fn signature_of(program: &str, cast: &Cast) -> anyhow::Result<CaseValues> {
    let mut values = CaseValues::default();
    for draw in 1..=cast.draws([&program.to_owned()]) {
        let loaded = lone(cast, program, draw)?;
        let profile = &loaded.programs[0].1;
        let signature = whole(profile, program)?;
        values.begin(draw);
        for row in signature_rows() {
            let (kib, ways) = row.split_once('/').unwrap_or_default();
            let kib: f64 = kib.parse()?;
            let misses = signature.misses(1024.0 * kib, ways.parse()?);
            if draw == 1 {
                values.add_row(&row);
            }
            values.add(&row, short(program), "misses_per_4096", misses);
        }
    }
    Ok(values)
}

/// Returns the sizes and ways in HASS (section 3), as `KiB/ways`.
pub(crate) fn signature_rows() -> Vec<String> {
    let sizes = (8..=14).map(|octave| 1u32 << octave);
    let row = |kib| [4, 8, 16, 32].map(|ways| format!("{kib}/{ways}"));
    sizes.flat_map(row).collect()
}

/// Returns the signature of a shipped recorded profile.
fn signature(name: &str) -> anyhow::Result<Signature> {
    let path = format!("recorded/{name}.json");
    whole(&shipped_profile(&path)?, &path)
}

fn whole(profile: &Profile, name: &str) -> anyhow::Result<Signature> {
    let whole = 0.0..profile.instructions() as f64;
    countersteer_sim::progress::signature(profile, whole)
        .ok_or_else(|| failure(FaultKind::BadInput, format!("`{name}` is not recorded")))
}
