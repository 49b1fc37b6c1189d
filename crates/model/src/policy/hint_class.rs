//! Hint classes: the effect of application hints on the ranking of threads.
//!
//! Input: threads with their hints. Output: factors for the metrics by which threads are ranked. A hint never gives a program an
//! advantage at the cost of another program. Priorities weight threads of one program against each other (their mean weight is
//! 1). All other hints only lower the rank of a thread.

use std::collections::BTreeMap;

use crate::engine::ThreadInfo;
use crate::hint::Phase;

/// Class of a thread for ranking, determined by its hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintClass {
    /// The thread uses all the CPU time that it gets.
    #[default]
    Full,
    /// The slowest core type is fast enough for the thread, as its program reports.
    Content,
    /// The thread is spinning or blocked, as its program reports.
    Waiting,
}

/// Factor on the metric from one class to the next lower one: so small that every thread of a higher class ranks first.
const APART: f64 = 1e-3;

impl HintClass {
    /// Returns the class of a thread, given its speed-up factor. `slack` is the relative hysteresis of [`Self::Content`]: a
    /// thread enters the class only if the slowest type is fast enough by this margin. On the slowest type (`slow`), the thread
    /// leaves the class only if that type is too slow by this margin.
    #[must_use]
    pub fn of(info: &ThreadInfo, sf: Option<f64>, slow: bool, slack: f64) -> Self {
        let Some(hint) = &info.hint else {
            return Self::Full;
        };
        if hint.phase != Phase::Running {
            return Self::Waiting;
        }
        let held = if slow { 1.0 + slack } else { 1.0 - slack };
        match sf {
            Some(sf) if held > 0.0 && hint.is_content(sf / held) => Self::Content,
            _ => Self::Full,
        }
    }

    /// Returns the factor by which the thread's metric is multiplied before ranking.
    #[must_use]
    pub const fn factor(self) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::Content => APART,
            Self::Waiting => APART * APART,
        }
    }

    /// Returns the rule to report as the reason if the class keeps a thread off a faster core; `None` if the class does not.
    #[must_use]
    pub const fn rule(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::Content => Some("slower cores are fast enough for it, by its program's word"),
            Self::Waiting => Some("it waits, by its program's word: others go first"),
        }
    }
}

/// Returns the weight of each thread from its priority, normalised to a mean of 1 over the threads of a program.
#[must_use]
pub fn weights(threads: &[&ThreadInfo]) -> Vec<f64> {
    let own = |info: &ThreadInfo| info.hint.map_or(1.0, |hint| hint.weight());
    if threads
        .iter()
        .all(|t| t.hint.is_none_or(|hint| hint.priority == 0))
    {
        return vec![1.0; threads.len()];
    }
    let mut sums = BTreeMap::new();
    for info in threads {
        let (sum, count) = sums.entry(info.program).or_insert((0.0, 0.0));
        (*sum, *count) = (*sum + own(info), *count + 1.0);
    }
    let weight = |info: &&ThreadInfo| {
        sums.get(&info.program)
            .map_or(1.0, |(sum, count)| own(info) * count / sum)
    };
    threads.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cpuset::CpuSet;
    use crate::hint::Hint;
    use crate::units::{CpuId, ProgramId, ThreadId};

    fn thread(program: u32, hint: Option<Hint>) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(0),
            program: ProgramId(program),
            name: "p".into(),
            cpu: CpuId(0),
            runnable: true,
            nice: 0,
            allowed: Arc::new(CpuSet::first(1)),
            hint,
        }
    }

    #[test]
    fn priorities_move_a_programs_own_threads_only() {
        let hint = |priority| {
            Some(Hint {
                priority,
                ..Hint::default()
            })
        };
        let threads = [
            thread(0, hint(10)),
            thread(1, hint(3)),
            thread(1, None),
            thread(1, hint(-3)),
            thread(2, None),
        ];
        let weights = weights(&threads.each_ref());
        assert!((weights[0] - 1.0).abs() < 1e-12, "alone in its program");
        assert!(
            (weights[1] + weights[2] + weights[3] - 3.0).abs() < 1e-12,
            "{weights:?}"
        );
        assert!(
            (weights[1] / weights[2] - 1.25f64.powi(3)).abs() < 1e-12,
            "{weights:?}"
        );
        assert!((weights[4] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn who_waits_stands_behind_who_is_content_and_that_behind_all_others() {
        let hint = |qos_permille, phase| {
            Some(Hint {
                qos_permille,
                phase,
                ..Hint::default()
            })
        };
        let of = |hint, sf, slow| HintClass::of(&thread(0, hint), sf, slow, 0.05);
        assert_eq!(of(None, Some(1.0), true), HintClass::Full);
        assert_eq!(
            of(hint(500, Phase::Spinning), Some(3.0), true),
            HintClass::Waiting
        );
        assert_eq!(of(hint(0, Phase::Blocked), None, false), HintClass::Waiting);
        assert_eq!(
            of(hint(500, Phase::Running), None, true),
            HintClass::Full,
            "nothing is known of its speed"
        );
        // Between the two thresholds, the class is unchanged.
        assert_eq!(
            of(hint(500, Phase::Running), Some(2.0), true),
            HintClass::Content
        );
        assert_eq!(
            of(hint(500, Phase::Running), Some(2.0), false),
            HintClass::Full
        );
        assert_eq!(
            of(hint(500, Phase::Running), Some(1.8), false),
            HintClass::Content
        );
        assert_eq!(
            of(hint(500, Phase::Running), Some(2.2), true),
            HintClass::Full
        );
        let slackless = HintClass::of(&thread(0, hint(500, Phase::Running)), Some(1.0), false, 1.5);
        assert_eq!(
            slackless,
            HintClass::Full,
            "one that was moved too often stays"
        );
        assert!(HintClass::Full.factor() * 0.1 > HintClass::Content.factor() * 10.0);
    }
}
