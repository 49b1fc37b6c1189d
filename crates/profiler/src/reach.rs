//! Locality of code and pages of a behaviour, computed from its windows.
//!
//! Input: records. Output: a behaviour's [`Reach`].

use countersteer_model::profile::{LogHistogram, Reach, Reuse};

use super::figures::round;
use super::layout::{REACH_BUCKETS, REACH_NEAR, Reached, record};

/// Returns the locality of code and pages of `own`. Near distances come from its samples, or from those of `whole` if it has
/// none. `None` if a run ended before its first sample.
pub fn reach(own: &[u64], whole: &[u64]) -> Option<Reach> {
    let known = [own, whole]
        .into_iter()
        .find(|r| r[record::REACH_SAMPLED] > 0)?;
    let of = |kind| Some(reuse(kind, own, known));
    Some(Reach {
        code_lines: of(Reached::CodeLines),
        branch_targets: of(Reached::BranchTargets),
        code_pages: of(Reached::CodePages),
        data_pages: of(Reached::DataPages),
    })
}

fn reuse(kind: Reached, own: &[u64], sampled: &[u64]) -> Reuse {
    let at = record::REACH + kind as usize * (REACH_BUCKETS + 1);
    let pki = |from: &[u64], word: usize, instructions: usize| {
        round(from[at + word] as f64 * 1000.0 / from[instructions] as f64)
    };
    let rate = |bucket: usize| {
        if LogHistogram::lower(bucket) < REACH_NEAR {
            pki(sampled, bucket, record::REACH_SAMPLED)
        } else {
            pki(own, bucket, record::INSTRUCTIONS)
        }
    };
    let mut rates: Vec<f64> = (0..REACH_BUCKETS).map(rate).collect();
    let some = rates.iter().rposition(|rate| *rate > 0.0);
    rates.truncate(some.map_or(0, |last| last + 1));
    Reuse {
        stack_distance_pki: LogHistogram { rates },
        cold_pki: pki(own, REACH_BUCKETS, record::INSTRUCTIONS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_are_per_sampled_instruction_and_far_ones_per_instruction() {
        let mut window = vec![0; record::WORDS];
        window[record::INSTRUCTIONS] = 1_000_000;
        assert_eq!(reach(&window, &window), None);
        let at = record::REACH + Reached::CodePages as usize * (REACH_BUCKETS + 1);
        window[record::REACH_SAMPLED] = 4000;
        window[at + 3] = 40;
        window[at + LogHistogram::bucket(100)] = 500;
        window[at + REACH_BUCKETS] = 2000;
        let of = |own: &[u64], whole: &[u64]| reach(own, whole).unwrap().code_pages.unwrap();
        let pages = of(&window, &window);
        assert_eq!(pages.stack_distance_pki.rates[3], 10.0);
        assert_eq!(pages.stack_distance_pki.at_least(64.0), 0.5);
        assert_eq!(pages.cold_pki, 2.0);
        let mut unsampled = window.clone();
        unsampled[record::REACH_SAMPLED] = 0;
        assert_eq!(of(&unsampled, &window), pages);
    }
}
