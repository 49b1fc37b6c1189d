//! Application hints: what a program says about one of its threads.
//!
//! Input: the page that a program shares with an engine, or a record of it. Output: part of a
//! [`ThreadInfo`](crate::engine::ThreadInfo). A hint is no promise, so values are brought into their ranges here, and what
//! policies make of them never gains a program anything at another's cost.

use serde::{Deserialize, Serialize};

/// Greatest priority; the least is its negative.
pub const MOST_PRIORITY: i8 = 10;
/// How much more each step of priority weighs.
const STEP: f64 = 1.25;

/// What a thread does at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    #[default]
    Running,
    /// It waits, and uses up CPU time meanwhile.
    Spinning,
    /// It waits in the kernel, or is about to.
    Blocked,
}

/// Phases, by the number that stands for them in pages.
pub const PHASES: [Phase; 3] = [Phase::Running, Phase::Spinning, Phase::Blocked];

impl Phase {
    /// The phase of a number; one that stands for none is taken for work.
    #[must_use]
    pub fn of(number: u32) -> Self {
        PHASES.get(number as usize).copied().unwrap_or_default()
    }

    /// Its name in records and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Spinning => "spinning",
            Self::Blocked => "blocked",
        }
    }
}

/// An application hint about a thread. The default says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// How much its work matters beside that of the program's other threads, -10 to 10; each step weighs 1.25 times as much.
    pub priority: i8,
    /// What part of its full speed, alone on the fastest core type, is enough, in thousandths; 0 if it did not say.
    pub qos_permille: u16,
    pub phase: Phase,
    /// Threads among which it shares out its work; 0 if it did not say.
    pub workers: u32,
}

impl Hint {
    /// The hint of these values, each brought into its range.
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

    /// What its priority weighs; 1 without one.
    #[must_use]
    pub fn weight(&self) -> f64 {
        STEP.powi(i32::from(self.priority))
    }

    /// Whether the slowest core type is fast enough for a thread of this speed-up factor.
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
