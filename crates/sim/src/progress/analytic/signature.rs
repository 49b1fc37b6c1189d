//! Signatures of recorded profiles: misses in caches of every size and associativity, of the whole run or a part of it.

use std::ops::Range;

use countersteer_model::profile::{MissCurve, Profile};
use countersteer_model::signature::Signature;

use super::curves::private_misses;

/// Returns the signature of a part of a profile's timeline, given in instructions. `None` for tabulated profiles, which contain
/// no data about other caches.
pub fn signature(profile: &Profile, part: Range<f64>) -> Option<Signature> {
    let Profile::Recorded(recorded) = profile else {
        return None;
    };
    let mut weights = vec![0.0; recorded.behaviours.len()];
    let mut start = 0.0;
    for segment in &recorded.timeline {
        let end = start + segment.instructions as f64;
        let within = end.min(part.end) - start.max(part.start);
        weights[segment.behaviour as usize] += within.max(0.0);
        start = end;
    }
    let curve = |b: &countersteer_model::profile::Behaviour| MissCurve::from_locality(&b.locality);
    let curves: Vec<MissCurve> = recorded.behaviours.iter().map(curve).collect();
    let total: f64 = weights.iter().sum();
    let misses = |lines: f64, ways: u32| {
        let each = weights.iter().zip(&curves).filter(|(w, _)| **w > 0.0);
        let sum: f64 = each
            .map(|(w, curve)| w * private_misses(curve, lines, ways))
            .sum();
        sum / total.max(1.0)
    };
    Some(Signature::new(misses))
}
