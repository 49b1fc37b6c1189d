//! Schedule of trials: how long a mapping is kept, and if another mapping was faster.
//!
//! Input: the threads at each interval; when a decision is due, the current mapping, the speeds reached with it, and the next
//! mapping to try. Output: the decision to keep a mapping or to return to the one before. Another mapping is first tried for
//! two intervals and kept only for a clear gain. Programs have phases, and the effect of a phase must not count as an effect of
//! the mapping. After some more time, the mapping is compared once more with the one before. Each failed trial makes the next
//! wait eight times as long. Threads therefore move a few times at the start and rarely later.

use countersteer_model::units::ThreadId;

use crate::relabel::Spot;

/// Limit on the number of intervals for which a mapping is kept without a trial.
const LONGEST: u32 = 256;
/// Length of a trial in intervals.
const TRIAL: u32 = 2;
/// Number of intervals after which a kept mapping is compared once more with the speeds of the mapping before.
const PROOF: u32 = 8;
/// Factor by which the wait before the next trial grows after a failed one.
const PATIENCE: u32 = 8;
/// Threshold: minimum mean gain in speed, as a logarithm, at which another mapping is kept.
const GAIN: f64 = 0.03;
/// Limit on the gain or loss of one thread, as a logarithm, so that a phase change of one thread does not decide.
const MOST: f64 = 1.5;

/// Result of a trial of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MappingVerdict {
    /// No mapping was on trial.
    Nothing,
    /// The mapping on trial is kept.
    Kept,
    /// The trial failed, and the threads return to this mapping.
    Back(Vec<Spot>),
}

/// State of the schedule of trials.
#[derive(Default)]
pub(super) struct Settle {
    alive: Vec<ThreadId>,
    running: Vec<ThreadId>,
    fresh: bool,
    /// Number of intervals for which the current mapping is kept.
    hold: u32,
    /// Number of these intervals that are left.
    left: u32,
    /// Mapping before the one that is on trial or compared once more, with the speeds reached under it.
    before: Option<(Vec<Spot>, Vec<Option<f64>>)>,
    /// True if a kept mapping is compared once more.
    proving: bool,
    /// Mappings whose trials failed.
    refused: Vec<Vec<Spot>>,
}

impl Settle {
    /// Advances by one interval; returns true if a decision is due. `alive` are all threads, `running` those that ran. A change
    /// of `alive` resets the schedule; a change of `running` ends a trial.
    pub fn due(&mut self, alive: &[ThreadId], running: &[ThreadId]) -> bool {
        if self.alive != alive {
            *self = Self {
                alive: alive.to_vec(),
                hold: 1,
                fresh: true,
                ..Self::default()
            };
        }
        if self.running != running {
            self.running = running.to_vec();
            self.refused.clear();
            (self.before, self.proving) = (None, false);
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Judges the mapping on trial, if there is one, by the speeds of the threads.
    pub fn judge(&mut self, present: &[Spot], speeds: &[Option<f64>]) -> MappingVerdict {
        let Some((spots, old)) = self.before.take() else {
            return MappingVerdict::Nothing;
        };
        let proving = std::mem::take(&mut self.proving);
        if change(&old, speeds) > if proving { 0.0 } else { GAIN } {
            self.left = self.hold.max(PROOF);
            if !proving {
                (self.before, self.proving) = (Some((spots, old)), true);
            }
            return MappingVerdict::Kept;
        }
        self.hold = (self.hold * PATIENCE).min(LONGEST);
        self.left = self.hold;
        self.refused.push(present.to_vec());
        MappingVerdict::Back(spots)
    }

    /// Returns the mappings whose trials failed.
    pub fn refused(&self) -> &[Vec<Spot>] {
        &self.refused
    }

    /// True if no mapping has been tried for these threads.
    pub const fn is_new(&self) -> bool {
        self.fresh
    }

    /// Starts a trial of `other`, or keeps the current mapping if `other` is absent or equal to it.
    pub fn attempt(&mut self, present: &[Spot], speeds: &[Option<f64>], other: Option<&[Spot]>) {
        self.fresh = false;
        self.left = self.hold;
        if other.is_some_and(|other| other != present) {
            self.before = Some((present.to_vec(), speeds.to_vec()));
            self.left = TRIAL;
        }
    }
}

/// Returns the mean logarithm of the threads' ratios of new to old speed.
fn change(old: &[Option<f64>], new: &[Option<f64>]) -> f64 {
    let each = old.iter().zip(new);
    let ratios: Vec<f64> = each
        .filter_map(|(old, new)| Some((new.as_ref()? / old.as_ref()?).ln()))
        .filter(|ratio| ratio.is_finite())
        .map(|ratio| ratio.clamp(-MOST, MOST))
        .collect();
    ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [ThreadId; 2] = [ThreadId(0), ThreadId(1)];
    const HERE: [Spot; 2] = [(0, 0), (1, 0)];
    const THERE: [Spot; 2] = [(1, 0), (0, 0)];

    /// Number of changes in `intervals` intervals if the other mapping is always proposed, and the final places of threads.
    fn run(intervals: u32, speed: impl Fn(&[Spot]) -> f64) -> (u32, Vec<Spot>) {
        let mut settle = Settle::default();
        let mut spots = HERE.to_vec();
        let mut changes = 0;
        for _ in 0..intervals {
            if !settle.due(&IDS, &IDS) {
                continue;
            }
            let speeds = [Some(speed(&spots)), Some(1.0)];
            let other = if spots == HERE { THERE } else { HERE }.to_vec();
            let next = match settle.judge(&spots, &speeds) {
                MappingVerdict::Back(before) => before,
                MappingVerdict::Kept => spots.clone(),
                MappingVerdict::Nothing => {
                    let open = !settle.refused().contains(&other);
                    let next = if open { other } else { spots.clone() };
                    settle.attempt(&spots, &speeds, Some(&next));
                    next
                }
            };
            changes += u32::from(next != spots);
            spots = next;
        }
        (changes, spots)
    }

    #[test]
    fn what_did_not_help_is_undone_and_not_tried_again() {
        let worth = |spots: &[Spot]| if spots == HERE { 1.0 } else { 0.8 };
        assert_eq!(run(250, worth), (2, HERE.to_vec()));
        // The mean gain of all threads counts.
        let worth = |spots: &[Spot]| if spots == HERE { 1.0 } else { 1.02 };
        assert_eq!(run(250, worth), (2, HERE.to_vec()));
    }

    #[test]
    fn what_helps_is_kept() {
        let worth = |spots: &[Spot]| if spots == HERE { 1.0 } else { 1.2 };
        // The way back is tried once, too.
        assert_eq!(run(250, worth), (3, THERE.to_vec()));
    }

    #[test]
    fn other_threads_are_looked_at_soon() {
        let mut settle = Settle::default();
        for _ in 0..20 {
            if settle.due(&IDS, &IDS)
                && settle.judge(&THERE, &[Some(1.0); 2]) == MappingVerdict::Nothing
            {
                settle.attempt(&HERE, &[Some(1.0); 2], Some(&THERE));
            }
        }
        settle.left = 10;
        assert!(!settle.due(&IDS, &IDS));
        assert!(settle.due(&IDS[..1], &IDS[..1]));
    }

    /// Number of intervals until a decision is due.
    fn wait(settle: &mut Settle) -> u32 {
        let mut intervals = 1;
        while !settle.due(&IDS, &IDS) {
            intervals += 1;
        }
        intervals
    }

    #[test]
    fn each_trial_in_vain_makes_the_next_wait_eight_times_as_long() {
        let mut settle = Settle::default();
        let speeds = [Some(1.0); 2];
        assert_eq!(wait(&mut settle), 1);
        let mut waits = Vec::new();
        for _ in 0..4 {
            settle.attempt(&HERE, &speeds, Some(&THERE));
            assert_eq!(wait(&mut settle), TRIAL);
            let verdict = settle.judge(&THERE, &speeds);
            assert_eq!(verdict, MappingVerdict::Back(HERE.to_vec()));
            waits.push(wait(&mut settle));
        }
        assert_eq!(waits, [8, 64, 256, 256]);
        assert_eq!(settle.refused().len(), 4);
        // If the present mapping is held, the wait is as long.
        settle.attempt(&HERE, &speeds, Some(&HERE));
        assert_eq!(wait(&mut settle), 256);
    }

    #[test]
    fn a_gain_is_kept_if_it_is_clear_and_proven_later_by_any() {
        let reached = |gain: f64| [Some(1.0), Some(gain)];
        // Half of the logarithm of 1.061 and of 1.063 are on either side of 3 %.
        for (gain, kept) in [(1.061, false), (1.063, true)] {
            let mut settle = Settle::default();
            wait(&mut settle);
            settle.attempt(&HERE, &reached(1.0), Some(&THERE));
            wait(&mut settle);
            let verdict = settle.judge(&THERE, &reached(gain));
            assert_eq!(verdict == MappingVerdict::Kept, kept, "{gain}");
            if kept {
                assert_eq!(wait(&mut settle), PROOF);
                assert_eq!(settle.judge(&THERE, &reached(1.001)), MappingVerdict::Kept);
                assert_eq!(settle.judge(&THERE, &reached(1.0)), MappingVerdict::Nothing);
            }
        }
    }

    #[test]
    fn a_thread_counts_for_no_more_than_the_most() {
        let old = [Some(1.0), Some(1.0), None, Some(0.0)];
        assert_eq!(
            change(&old, &[Some(1e9), Some(1.0), Some(2.0), Some(2.0)]),
            0.75
        );
        assert_eq!(
            change(&old, &[Some(1e-9), Some(1.0), Some(2.0), None]),
            -0.75
        );
        assert_eq!(change(&[None], &[None]), 0.0);
    }
}
