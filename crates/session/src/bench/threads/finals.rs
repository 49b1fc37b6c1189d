//! Rounds of the best candidates and the default, until it is known what they gain.
//!
//! Input: arms, the default first; limits. Output: runs of each. Trials of the search do not count: the best of many single runs
//! was lucky, too. An arm that is certainly slower than another one has no further rounds.

use std::time::{Duration, Instant};

use countersteer_lab::threads::search::SearchResult;
use countersteer_model::evidence::GainDecision;

use crate::bench::disturbance::Observer;
use crate::bench::runner::CommandRunner;
use crate::bench::series::{
    ArmSeries, BenchArm, CONFIDENCE, Conditions, MeasuredArm, SeriesLimits, measure,
};

/// Most candidates beside the default.
const FINALISTS: usize = 3;
/// Ratio of times up to which single runs do not decide.
const NEAR: f64 = 1.03;
/// Rounds in any case, unless time is up, and most rounds.
const ROUNDS: u64 = 10;
const MOST_ROUNDS: u64 = 1_000;

/// Rows of the candidates whose times in the search were best; the default is left out.
#[must_use]
pub(crate) fn finalists(found: &SearchResult) -> Vec<usize> {
    let Some(best) = found.best().filter(|best| best.candidate != 0) else {
        return Vec::new();
    };
    let mut near: Vec<_> = found
        .trials
        .iter()
        .filter(|t| t.candidate != 0 && t.measured_s <= NEAR * best.measured_s)
        .collect();
    near.sort_by(|a, b| a.measured_s.total_cmp(&b.measured_s));
    near.iter().take(FINALISTS).map(|t| t.candidate).collect()
}

/// Confidence of each comparison with the default, so that all of them hold together with [`CONFIDENCE`] (Bonferroni).
#[must_use]
pub fn confidence(finalists: usize) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / finalists.max(1) as f64
}

/// End of the rounds.
#[derive(Clone, Copy, Debug)]
pub struct FinalsEnd {
    /// Number of rounds; nothing else counts then.
    pub rounds: Option<u64>,
    /// Time after which no round begins.
    pub most: Duration,
    pub margin: f64,
    pub seed: u64,
}

/// Runs the rounds; `measured` has an entry for each arm. Returns the signal that ended them.
///
/// # Errors
/// A run fails or cannot be started.
pub fn compare(
    arms: &[BenchArm],
    conditions: Conditions<'_>,
    end: FinalsEnd,
    runner: &mut CommandRunner,
    observer: &mut Observer,
    measured: &mut [MeasuredArm],
) -> anyhow::Result<Option<i32>> {
    let begun = Instant::now();
    let mut active: Vec<usize> = (0..arms.len()).collect();
    for round in 0..MOST_ROUNDS {
        if end.is_reached(round, &active, measured, begun.elapsed()) {
            break;
        }
        let of_round: Vec<BenchArm> = active.iter().map(|row| arms[*row].clone()).collect();
        let mut runs: Vec<MeasuredArm> = active
            .iter()
            .map(|row| std::mem::take(&mut measured[*row]))
            .collect();
        let series = ArmSeries {
            arms: &of_round,
            warmups: 0,
            conditions,
            limits: SeriesLimits {
                repeat: Some(1),
                ..SeriesLimits::default()
            },
            seed: end.seed + round,
        };
        let signal = measure(&series, runner, observer, &mut runs);
        for (row, runs) in active.iter().zip(runs) {
            measured[*row] = runs;
        }
        if let Some(signal) = signal? {
            return Ok(Some(signal));
        }
        eliminate(&mut active, measured);
    }
    Ok(None)
}

/// Removes arms that are certainly slower than another one; the default stays.
fn eliminate(active: &mut Vec<usize>, measured: &[MeasuredArm]) {
    let confidence = confidence(active.len() - 1);
    let loses = |row: usize, to: usize| {
        let evidence = measured[row].against(&measured[to]);
        evidence.verdict(confidence, 0.0) == Some(GainDecision::Slower)
    };
    let lost: Vec<usize> = active
        .iter()
        .copied()
        .filter(|row| *row != 0 && active.iter().any(|to| *to != 0 && loses(*row, *to)))
        .collect();
    active.retain(|row| !lost.contains(row));
}

impl FinalsEnd {
    fn is_reached(
        self,
        round: u64,
        active: &[usize],
        measured: &[MeasuredArm],
        took: Duration,
    ) -> bool {
        if let Some(rounds) = self.rounds {
            return round >= rounds;
        }
        if took >= self.most {
            return true;
        }
        let confidence = confidence(measured.len() - 1);
        let decided = |row: &usize| {
            let evidence = measured[*row].against(&measured[0]);
            evidence.verdict(confidence, self.margin).is_some()
        };
        round >= ROUNDS && active.iter().skip(1).all(decided)
    }
}

#[cfg(test)]
mod tests {
    use countersteer_lab::threads::search::TimedTrial;
    use countersteer_sysfs::launch::ExitEnding;

    use super::*;
    use crate::bench::runner::EndedRun;

    fn found(times_s: &[f64]) -> SearchResult {
        let trial = |(candidate, measured_s): (usize, &f64)| TimedTrial {
            candidate,
            predicted: None,
            measured_s: *measured_s,
            busy: None,
        };
        SearchResult {
            trials: times_s.iter().enumerate().map(trial).collect(),
            ..SearchResult::default()
        }
    }

    fn measured(times_s: impl Iterator<Item = f64>) -> MeasuredArm {
        let run = |elapsed_s| EndedRun {
            elapsed_s,
            user_s: 0.0,
            system_s: 0.0,
            ending: ExitEnding::Exited(0),
        };
        MeasuredArm {
            runs: times_s.map(run).collect(),
            ..MeasuredArm::default()
        }
    }

    #[test]
    fn only_what_was_about_as_fast_as_the_best_is_compared() {
        assert_eq!(
            finalists(&found(&[2.0, 1.0, 1.02, 1.5, 1.01, 1.015])),
            [1, 4, 5]
        );
        assert!(finalists(&found(&[1.0, 2.0])).is_empty());
        assert!((confidence(1) - 0.95).abs() < 1e-12 && confidence(3) > 0.98);
    }

    #[test]
    fn losers_have_no_further_rounds_and_the_default_has_all() {
        let noise = |nth: usize| 0.001 * ((nth * 7) % 5) as f64;
        let times = |of: f64| measured((0..12).map(move |nth| of + noise(nth)));
        let mut active = vec![0, 1, 2];
        eliminate(&mut active, &[times(3.0), times(1.0), times(1.5)]);
        assert_eq!(active, [0, 1]);
    }

    #[test]
    fn rounds_end_when_they_were_asked_to_or_all_is_decided() {
        let end = FinalsEnd {
            rounds: None,
            most: Duration::from_secs(9),
            margin: 0.01,
            seed: 1,
        };
        let calm = [
            measured([2.0; 12].into_iter()),
            measured([1.0; 12].into_iter()),
        ];
        let soon = Duration::from_secs(1);
        assert!(!end.is_reached(9, &[0, 1], &calm, soon));
        assert!(end.is_reached(10, &[0, 1], &calm, soon));
        assert!(end.is_reached(1, &[0, 1], &calm, Duration::from_secs(9)));
        let rounds = FinalsEnd {
            rounds: Some(20),
            ..end
        };
        assert!(!rounds.is_reached(19, &[0, 1], &calm, soon));
        assert!(rounds.is_reached(20, &[0, 1], &calm, soon));
    }
}
