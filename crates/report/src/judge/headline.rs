//! Leading score of an experiment, and its explanation.
//!
//! ASP sums the contribution of fast cores to each program. If all cores are equal, it can only be negative, and if programs
//! wait for each other, it usually is. Throughput (STP) is then the leading score.

use crate::table::{COMPLETION, METRICS, PolicySummary, ScoreMetric};

/// Tolerance: maximum relative difference of a program's times alone on the fastest and slowest cores at which cores count as
/// equal.
const EQUAL: f64 = 1e-6;

/// Returns the score by which the policies of an experiment are compared first.
#[must_use]
pub fn lead(summaries: &[PolicySummary<'_>]) -> &'static ScoreMetric {
    let [asp, stp, ..] = METRICS else {
        return &COMPLETION;
    };
    let medians = || summaries.iter().map(|s| s.spread(asp).median);
    if medians().all(f64::is_nan) {
        return &COMPLETION;
    }
    let programs = || {
        let runs = summaries.iter().flat_map(|s| &s.runs);
        runs.flat_map(|r| &r.programs)
    };
    let equal = programs().all(|p| (p.alone_slow_s / p.alone_fast_s - 1.0).abs() < EQUAL);
    if equal || medians().all(|m| m < 0.0) {
        stp
    } else {
        asp
    }
}

/// Returns a sentence on the meaning of a score that [`lead`] may return.
#[must_use]
pub fn meaning(metric: &ScoreMetric) -> &'static str {
    match metric.key {
        "asp" => {
            "ASP adds up, over the programs, how much faster each ran than alone on the slow cores: 0 is the speed of slow cores."
        }
        "stp" => {
            "STP adds up the speeds of the programs, each over its speed alone on the whole machine: 1 per program is undisturbed."
        }
        _ => "Completion times are those of whole runs; less is better.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CompareRun, summarise};
    use countersteer_model::score::{Outcome, ProgramOutcome, Score};

    /// Returns a run of two programs with these completion times; alone on fast cores they take 1 s.
    fn run(policy: &str, slow_s: f64, completions_s: [f64; 2]) -> CompareRun {
        let program = |(name, completion_s): (&str, f64)| ProgramOutcome {
            name: name.into(),
            completions_s: vec![completion_s],
            alone_fast_s: 1.0,
            alone_slow_s: slow_s,
            ..ProgramOutcome::default()
        };
        let [a, b] = completions_s;
        let outcome = Outcome {
            programs: [("a", a), ("b", b)].map(program).into(),
            ..Outcome::default()
        };
        CompareRun::new("m", "w", policy, 1, &Score::of(&outcome))
    }

    #[test]
    fn equal_cores_and_waiting_programs_are_led_by_throughput() {
        let lead_of = |slow_s, completions_s| {
            let runs = [run("linux", slow_s, completions_s)];
            lead(&summarise(&runs)).key
        };
        assert_eq!(lead_of(3.0, [1.5, 2.0]), "asp");
        assert_eq!(lead_of(1.0, [1.5, 2.0]), "stp");
        assert_eq!(lead_of(2.0, [5.0, 6.0]), "stp");
        let mut unknown = run("linux", 1.0, [1.0, 1.0]);
        unknown.asp = f64::NAN;
        assert_eq!(lead(&summarise(&[unknown])).key, "completion_s");
    }
}
