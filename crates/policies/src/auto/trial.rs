//! Trial of a candidate: blocks under Linux between blocks under the candidate, and the evidence that they give.
//!
//! Input: the time, and the speeds of each interval. Output: the arm that decides now, and a verdict.

use countersteer_model::evidence::Evidence;
use countersteer_model::policy::View;
use countersteer_model::units::Nanos;

use super::speeds::Speeds;

/// Time from the first confined thread to the first block, and the distance of blocks, least and most.
const FIRST: Nanos = Nanos::from_millis(16_000);
const LEAST: Nanos = Nanos::from_millis(32_000);
const MOST: Nanos = Nanos::from_millis(64_000);
/// Part of a block that is not counted, while caches and queues still reflect the other arm.
const SETTLE: f64 = 0.25;
/// Confidence of the interval that drops or adopts a candidate.
const CONFIDENCE: f64 = 0.9;
/// Mean gain below which blocks follow each other, and their number in a row.
const SUSPECT: f64 = -0.05;
const IN_A_ROW: u32 = 6;
/// Number of blocks in a row with such a gain from which earlier ones do not count.
const ANOTHER_PHASE: usize = 3;

/// Present block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PresentBlock {
    /// The candidate decides, and nothing is measured.
    Steer,
    /// The candidate decides, and speeds are measured.
    Candidate,
    /// Linux decides, and speeds are measured.
    Linux,
}

/// Result of the evidence so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialEvidence {
    Open,
    Adopted,
    Dropped,
}

/// Trial of one candidate on one load.
#[derive(Debug)]
pub(super) struct CandidateTrial {
    block: Nanos,
    arm: PresentBlock,
    /// Start of the block.
    began: Nanos,
    /// Start of the next measured block.
    next: Nanos,
    gap: Nanos,
    in_a_row: u32,
    speeds: Speeds,
    before: Option<Speeds>,
    linux: Option<Speeds>,
    evidence: Evidence,
    /// Last gains, as long as all are below `SUSPECT`.
    losses: Vec<f64>,
    verdict: TrialEvidence,
}

impl CandidateTrial {
    /// Trial with blocks of this length; it begins once the candidate acts.
    pub fn new(block: Nanos) -> Self {
        Self {
            block,
            arm: PresentBlock::Steer,
            began: Nanos::ZERO,
            next: Nanos::NEVER,
            gap: LEAST,
            in_a_row: 0,
            speeds: Speeds::default(),
            before: None,
            linux: None,
            evidence: Evidence::default(),
            losses: Vec::new(),
            verdict: TrialEvidence::Open,
        }
    }

    /// Trial of another load.
    pub fn restarted(&self) -> Self {
        Self::new(self.block)
    }

    pub const fn arm(&self) -> PresentBlock {
        self.arm
    }

    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Interval of the gain; `None` after few pairs.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.evidence.interval(CONFIDENCE)
    }

    /// Schedules the first block, if none is.
    pub fn acts(&mut self, now: Nanos) {
        if self.next == Nanos::NEVER {
            self.next = now + FIRST;
        }
    }

    /// True once the candidate acted.
    pub fn has_begun(&self) -> bool {
        self.next != Nanos::NEVER
    }

    /// Adds an interval that ends now.
    pub fn note(&mut self, view: &View<'_>, passed: Nanos) {
        let settle = Nanos((self.block.0 as f64 * SETTLE) as u64);
        let counted = self.began + settle + passed <= view.now;
        if self.arm != PresentBlock::Steer && counted {
            self.speeds.note(view, passed.as_secs_f64());
        }
    }

    /// Begins the next block if it is time to. Returns a verdict if it changed.
    pub fn turn(&mut self, now: Nanos) -> Option<TrialEvidence> {
        if self.arm == PresentBlock::Steer {
            if now >= self.next {
                self.in_a_row = 0;
                self.before = None;
                self.begin(PresentBlock::Candidate, now);
            }
            return None;
        }
        if now.since(self.began) < self.block {
            return None;
        }
        let speeds = std::mem::take(&mut self.speeds);
        if self.arm == PresentBlock::Linux {
            self.linux = Some(speeds);
            self.begin(PresentBlock::Candidate, now);
            return None;
        }
        let pair = self.before.take().zip(self.linux.take());
        let Some((before, linux)) = pair else {
            self.before = Some(speeds);
            self.begin(PresentBlock::Linux, now);
            return None;
        };
        self.in_a_row += 1;
        if let Some(gain) = linux.gain_around(&before, &speeds) {
            self.add(gain);
        }
        let verdict = self.judge();
        let loses = self.evidence.gain() < SUSPECT || !self.losses.is_empty();
        let suspect = loses && self.in_a_row < IN_A_ROW;
        if suspect && verdict != TrialEvidence::Dropped {
            self.before = Some(speeds);
            self.begin(PresentBlock::Linux, now);
        } else {
            self.begin(PresentBlock::Steer, now);
            self.next = now + self.gap;
            self.gap = Nanos(self.gap.0 * 2).min(MOST);
        }
        (std::mem::replace(&mut self.verdict, verdict) != verdict).then_some(verdict)
    }

    /// Adds the gain of a pair, a logarithm.
    fn add(&mut self, gain: f64) {
        self.evidence.push(gain);
        if gain >= SUSPECT.ln_1p() {
            self.losses.clear();
            return;
        }
        self.losses.push(gain);
        if self.losses.len() >= ANOTHER_PHASE && self.evidence.gain() >= SUSPECT {
            self.evidence = Evidence::default();
            self.losses
                .drain(..)
                .for_each(|loss| self.evidence.push(loss));
        }
    }

    fn begin(&mut self, arm: PresentBlock, now: Nanos) {
        self.arm = arm;
        self.began = now;
        self.speeds = Speeds::default();
    }

    fn judge(&self) -> TrialEvidence {
        match self.interval() {
            Some((low, _)) if low > 0.0 => TrialEvidence::Adopted,
            Some((_, high)) if high < 0.0 => TrialEvidence::Dropped,
            _ => TrialEvidence::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_a_row_end_the_evidence_of_an_earlier_phase() {
        let mut trial = CandidateTrial::new(Nanos::from_millis(400));
        (0..20).for_each(|_| trial.add(0.1));
        assert_eq!(trial.judge(), TrialEvidence::Adopted);
        for gain in [-0.2, -0.2, 0.1, -0.2, -0.2] {
            trial.add(gain);
        }
        assert_eq!(trial.evidence().pairs(), 25, "a gain lies between them");
        trial.add(-0.2);
        assert_eq!(trial.evidence().pairs(), 3);
        assert!(trial.evidence().gain() < SUSPECT);
        for gain in [-0.21, -0.19, -0.2, -0.21] {
            trial.add(gain);
        }
        assert_eq!(trial.judge(), TrialEvidence::Dropped);
    }
}
