//! Signatures of recorded profiles: misses of the whole run in caches of every size and associativity.

use countersteer_core::profile::{MissCurve, Profile};
use countersteer_core::signature::Signature;

use super::curves::private_misses;

/// The signature of a profile; none for tabulated ones, which say nothing about other caches.
pub fn signature(profile: &Profile) -> Option<Signature> {
    let Profile::Recorded(recorded) = profile else {
        return None;
    };
    let curves: Vec<MissCurve> = recorded
        .behaviours
        .iter()
        .map(|b| MissCurve::from_locality(&b.locality))
        .collect();
    let total: f64 = recorded
        .timeline
        .iter()
        .map(|s| s.instructions as f64)
        .sum();
    let misses = |lines: f64, ways: u32| {
        let segments = recorded.timeline.iter();
        let weighted = segments.map(|s| {
            let curve = &curves[s.behaviour as usize];
            s.instructions as f64 * private_misses(curve, lines, ways)
        });
        weighted.sum::<f64>() / total.max(1.0)
    };
    Some(Signature::new(misses))
}
