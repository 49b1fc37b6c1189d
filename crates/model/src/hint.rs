//! Application hints: information that a program gives the scheduler about one of its threads.
//!
//! Input: the page that a program shares with an engine, or a record of it. Output: part of a
//! [`ThreadInfo`](crate::engine::ThreadInfo). Hints are untrusted, so values are clamped to their ranges here. A program's hints
//! never give it an advantage at the cost of another program.

use serde::{Deserialize, Serialize};

/// Highest priority of a hint; the lowest is -10.
pub const MOST_PRIORITY: i8 = 10;
/// Ratio of the weights of two adjacent priorities.
const STEP: f64 = 1.25;

/// Current activity of a thread, as its program reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    Running,
    /// The thread busy-waits: it consumes CPU time without progress.
    Spinning,
    /// The thread waits in the kernel, or is about to.
    Blocked,
}

/// Activities, indexed by their number in hint pages.
pub const PHASES: [Phase; 3] = [Phase::Running, Phase::Spinning, Phase::Blocked];

impl Phase {
    /// Returns the activity of a number in a hint page; unknown numbers mean running.
    #[must_use]
    pub fn of(number: u32) -> Self {
        PHASES.get(number as usize).copied().unwrap_or_default()
    }

    /// Returns the activity's name in records and replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Spinning => "spinning",
            Self::Blocked => "blocked",
        }
    }
}

/// Application hint about a thread. The default value carries no information.
///
/// ```
/// use countersteer_model::hint::{Hint, Phase};
///
/// // Numbers as they stand in the hint page; out of range ones are brought back into range.
/// let hint = Hint::of(99, 0, 1, 4);
/// assert_eq!((hint.priority, hint.phase, hint.workers), (10, Phase::Spinning, 4));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// Priority of the thread's work among the program's threads, -10 to 10. The weight grows by a factor of 1.25 per step.
    pub priority: i8,
    /// Speed that is sufficient for the thread, in thousandths of its speed alone on the fastest core type; 0 if not given.
    pub qos_permille: u16,
    pub phase: Phase,
    /// Number of threads that share the thread's work; 0 if not given.
    pub workers: u32,
}

impl Hint {
    /// Creates a hint from these values, each clamped to its range.
    #[must_use]
    pub fn of(priority: i32, qos_permille: u32, phase: u32, workers: u32) -> Self {
        let most = i32::from(MOST_PRIORITY);
        Self {
            priority: priority.clamp(-most, most) as i8,
            qos_permille: qos_permille.min(1000) as u16,
            phase: Phase::of(phase),
            workers,
        }
    }

    /// Returns the weight of the hint's priority; 1 for priority 0.
    #[must_use]
    pub fn weight(&self) -> f64 {
        STEP.powi(i32::from(self.priority))
    }

    /// True if the slowest core type is fast enough for the thread, given its speed-up factor.
    #[must_use]
    pub fn is_content(&self, sf: f64) -> bool {
        self.qos_permille > 0 && f64::from(self.qos_permille) * sf <= 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_into_their_range() {
        let wild = Hint::of(i32::MIN, u32::MAX, 77, u32::MAX);
        let tamed = Hint {
            priority: -10,
            qos_permille: 1000,
            phase: Phase::Running,
            workers: u32::MAX,
        };
        assert_eq!(wild, tamed);
        assert_eq!(Hint::of(0, 0, 0, 0), Hint::default());
        assert_eq!(
            (PHASES.map(Phase::name), Phase::of(1)),
            (["running", "spinning", "blocked"], Phase::Spinning)
        );
    }

    #[test]
    fn half_the_speed_is_enough_for_threads_that_gain_less_than_twice() {
        let half = Hint {
            qos_permille: 500,
            ..Hint::default()
        };
        assert!(half.is_content(1.9) && half.is_content(2.0) && !half.is_content(2.1));
        assert!(!Hint::default().is_content(1.0), "no hint");
    }
}
