//! Present phase of a thread, recognized by its counters (HASS, section 6).
//!
//! Input: the signatures of the phases of a program, and misses of the thread per 1,000 instructions. Output: the phase whose
//! signature predicts the misses that are nearest to the measured ones, as a ratio. The misses are those of the core's last private
//! cache, which co-runners on other cores do not change; if these are not counted, those of the last-level cache. A new phase
//! counts when two samples in a row are nearest to it.

use countersteer_model::signature::{PER_INSTRUCTIONS, Signature};

use super::partitions::CorePartition;

/// Misses per 1,000 instructions that make no difference; ratios of smaller ones mean nothing.
const FEW_MPKI: f64 = 0.5;

/// Phases of a thread's program, with the one that it is in.
#[derive(Default)]
pub(super) struct Recognized {
    phases: Vec<Signature>,
    present: Option<usize>,
    /// Phase to which the last sample was nearest.
    nearest: Option<usize>,
    /// Last sample: a decision at an event sees the same one again.
    seen_mpki: Option<f64>,
}

impl Recognized {
    pub fn new(phases: Vec<Signature>) -> Self {
        Self {
            phases,
            ..Self::default()
        }
    }

    /// Signature of the present phase; `None` if it is unknown.
    pub fn signature(&self) -> Option<&Signature> {
        self.phases.get(self.present?)
    }

    /// Adds a sample: misses per 1,000 instructions that left the private caches and the last-level cache, on a
    /// core of a partition.
    pub fn note(&mut self, l2_mpki: Option<f64>, llc_mpki: Option<f64>, place: &CorePartition) {
        let (own, last) = (place.traits.own, place.traits.last);
        let (seen, (bytes, ways)) = match (l2_mpki, llc_mpki) {
            (Some(mpki), _) => (mpki, own),
            (None, Some(mpki)) => (mpki, (last.bytes, last.ways)),
            (None, None) => return,
        };
        if self.seen_mpki.replace(seen) == Some(seen) {
            return;
        }
        let distance = |phase: &Signature| {
            let mpki = phase.misses(bytes, ways) * 1000.0 / PER_INSTRUCTIONS;
            ((seen + FEW_MPKI) / (mpki + FEW_MPKI)).ln().abs()
        };
        let distances: Vec<f64> = self.phases.iter().map(distance).collect();
        let nearest = (0..distances.len()).min_by(|a, b| distances[*a].total_cmp(&distances[*b]));
        if self.present.is_none() || self.nearest == nearest {
            self.present = nearest;
        }
        self.nearest = nearest;
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::testing::{SMT, topology};

    use super::super::partitions::partitions;
    use super::*;

    fn phase(per_4096: u16) -> Signature {
        Signature::of_counts([[per_4096; 4]; 11])
    }

    #[test]
    fn two_samples_in_a_row_make_a_new_phase() {
        let place = &partitions(&topology(SMT), false)[0];
        // 2 and 25 misses per 1,000 instructions.
        let mut thread = Recognized::new(vec![phase(8), phase(102)]);
        assert!(thread.signature().is_none(), "nothing was measured");
        let mut after = |mpki: f64| {
            thread.note(Some(mpki), Some(mpki), place);
            thread.signature().map(|s| s.counts()[0][0])
        };
        assert_eq!(after(2.2), Some(8));
        assert_eq!(after(20.0), Some(8), "one sample may be a mixture");
        assert_eq!(after(20.0), Some(8), "the same sample again");
        assert_eq!(after(24.0), Some(102));
        assert_eq!(after(30.0), Some(102));
    }

    #[test]
    fn without_counters_or_phases_nothing_is_known() {
        let place = &partitions(&topology(SMT), false)[0];
        let mut thread = Recognized::new(vec![phase(8), phase(102)]);
        thread.note(None, None, place);
        assert!(thread.signature().is_none());
        let mut one = Recognized::new(Vec::new());
        one.note(Some(5.0), None, place);
        assert!(one.signature().is_none());
    }
}
