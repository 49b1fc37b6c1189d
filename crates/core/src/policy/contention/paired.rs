//! Paired comparison: is a mapping on trial better than the one it interrupts?
//!
//! Programs have phases, so speeds of two intervals compare only when nothing but the mapping changed. A trial is therefore
//! short and in the middle of two short intervals of the present mapping: a thread whose speed differs between these two
//! changed its phase, and tells nothing; for all others the difference is the mapping's doing.
//!
//! Input: IPC by thread before, during and after. Output: the relative gain, and how far it may be off.

/// A thread whose speed before and after differs by more than this part changed its phase.
const SAME_PHASE: f64 = 0.15;
/// What counters and time sharing make a short interval's IPC vary by.
const NOISE: f64 = 0.02;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// By which part the sum of IPC was higher.
    pub gain: f64,
    /// By how much that may be off.
    pub doubt: f64,
}

/// Compares; `None` when nobody tells anything.
pub(super) fn compare(triples: impl Iterator<Item = [Option<f64>; 3]>) -> Option<Verdict> {
    let (mut sum, mut gain, mut doubt) = (0.0, 0.0, 0.0);
    for [before, during, after] in triples {
        let (Some(before), Some(during), Some(after)) = (before, during, after) else { continue };
        let usual = f64::midpoint(before, after);
        sum += usual;
        if (before - after).abs() <= SAME_PHASE * usual {
            gain += during - usual;
            doubt += ((before - after) / 2.0).powi(2) + (NOISE * usual).powi(2);
        }
    }
    (sum > 0.0 && doubt > 0.0).then(|| Verdict { gain: gain / sum, doubt: doubt.sqrt() / sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(rows: &[[f64; 3]]) -> Option<Verdict> {
        compare(rows.iter().map(|r| r.map(Some)))
    }

    #[test]
    fn who_changes_phase_in_between_tells_nothing() {
        let steady = verdict(&[[1.0, 1.1, 1.0], [1.0, 1.0, 1.0]]).unwrap();
        assert!((steady.gain - 0.05).abs() < 1e-12 && steady.doubt < 0.02, "{steady:?}");
        let changed = verdict(&[[1.0, 1.1, 1.0], [0.5, 1.5, 1.5]]).unwrap();
        assert!((changed.gain - 0.05).abs() < 1e-12, "{changed:?}");
        assert_eq!(verdict(&[[0.5, 1.5, 1.5]]), None);
    }

    #[test]
    fn threads_that_did_not_run_are_left_out() {
        assert_eq!(compare([[Some(1.0), None, Some(1.0)]].into_iter()), None);
    }
}
