//! Paired comparison: is a mapping on trial better than the one it interrupts?
//!
//! Idea: programs have phases, and a phase moves a program's speed further than a mapping does, so speeds of two intervals
//! compare only when nothing but the mapping changed. A trial is therefore short and lies between two equally short
//! intervals of the present mapping. What lies between a thread's speeds in these two may be a phase's doing, and tells
//! nothing; only what lies outside counts. Source: interleaved A/B/A designs of experiments with drifting subjects.
//!
//! Input: IPC by thread before, during and after. Output: the relative gain, and how far it may be off.

/// What counters and time sharing make the IPC of a fraction of an interval vary by, twice over.
const NOISE: f64 = 0.04;

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
    let mut sum = 0.0;
    let mut gain = 0.0;
    let mut doubt = 0.0;
    for [before, during, after] in triples {
        let (Some(before), Some(during), Some(after)) = (before, during, after) else {
            continue;
        };
        let usual = f64::midpoint(before, after);
        sum += usual;
        gain += during - during.clamp(before.min(after), before.max(after));
        doubt += (NOISE * usual).powi(2);
    }
    (sum > 0.0 && doubt > 0.0).then(|| Verdict {
        gain: gain / sum,
        doubt: doubt.sqrt() / sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(rows: &[[f64; 3]]) -> Option<Verdict> {
        compare(rows.iter().map(|r| r.map(Some)))
    }

    #[test]
    fn the_gain_is_that_of_the_sum() {
        let steady = verdict(&[[1.0, 1.2, 1.0], [3.0, 3.0, 3.0]]).unwrap();
        assert!((steady.gain - 0.05).abs() < 1e-12, "{steady:?}");
        assert!(
            steady.doubt > 0.0 && steady.doubt < NOISE,
            "threads' noise averages out: {steady:?}"
        );
    }

    #[test]
    fn a_change_of_phase_tells_nothing_but_what_goes_beyond_it_does() {
        let gain = |during: f64| verdict(&[[0.5, during, 1.5]]).unwrap().gain;
        assert_eq!((gain(0.5), gain(1.4)), (0.0, 0.0));
        assert!((gain(1.6) - 0.1).abs() < 1e-12 && (gain(0.4) + 0.1).abs() < 1e-12);
    }

    #[test]
    fn threads_that_did_not_run_are_left_out() {
        assert_eq!(compare([[Some(1.0), None, Some(1.0)]].into_iter()), None);
    }
}
