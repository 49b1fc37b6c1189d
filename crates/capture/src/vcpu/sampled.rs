//! Sampled recording of a thread.
//!
//! Input: blocks and touches, as for exact recording. Output: records in which the costly models have seen a sample only.
//!
//! - The first instructions of a thread are recorded exactly, so short threads are.
//! - Then the run is divided into strata of equal length, with one window at a random place in each (stratified sampling: Cochran,
//!   Sampling Techniques, 1977, chapter 5; windows of instructions: Wunderlich et al., SMARTS, ISCA 2003). The branch predictor and the
//!   models of sets and streams run in windows only. A window counts after a warm-up that lasts for a number of branches. A simple predictor sees all branches.
//!   The profiler uses it as a control variate.
//! - Stack distances are those of one line in each group of eight neighbours, chosen by a hash of the group (Waldspurger et al., SHARDS,
//!   FAST 2015). First touches are counted for all lines. A line outside of the sample is dated by the lines inside.

use countersteer_model::profile::LogHistogram;

use super::Vcpu;
use crate::action::CallerAction;
use crate::block::TranslatedBlock;
use crate::capture::COLD;
use crate::layout::{GROUPS, MLP_LINES, NEAR_LINES, REUSE_BUCKETS, STACK_BUCKETS, record};
use crate::recency::Touch;
use crate::sample;

/// Largest average number of instructions between two captures.
pub(super) const CAPTURE_MOST: u64 = 1 << 21;
/// Instructions of a thread that are recorded exactly.
const WHOLE: i64 = 1 << 22;
/// Instructions of a stratum, at least and at most.
const STRATUM_LEAST: u64 = 1 << 20;
const STRATUM_MOST: u64 = 1 << 24;
/// A longer stratum begins after at least this number of its length.
const STRATA: u64 = 64;
/// Shares of a stratum: the warm-up of its window, and the counted part after it.
const WARM: u64 = 10;
const COUNTED: u64 = 32;
/// Branches of a warm-up, unless it takes more than [`WARM_MOST`] times its usual length.
const WARM_BRANCHES: u64 = 1 << 14;
const WARM_MOST: u64 = 4;
/// Mispredictions in warm-ups, relative to those in counted parts, above which the predictor needs longer windows.
const STALE: f64 = 1.05;
/// Lines of a capture in the order of their last touches.
const RECENT: usize = NEAR_LINES as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SamplingPhase {
    /// Everything is recorded.
    Whole,
    /// No costly model runs.
    Between,
    Warm,
    Counted,
}

/// State of a sampled recording.
pub(super) struct SamplingState {
    phase: SamplingPhase,
    /// Instructions until the phase ends.
    left: i64,
    /// Instructions of the stratum, and those after its window.
    stratum: u64,
    rest: u64,
    /// Branches of the warm-up so far.
    warm_branches: u64,
    /// Mispredictions of both predictors in all warm-ups and in all counted parts.
    warm: [u64; 2],
    counted: [u64; 2],
    /// Mispredictions of the predictor and of the simple one, and instructions, in this phase.
    sums: [u64; 3],
    /// Mispredictions of the simple predictor already in records.
    simple_settled: u64,
    /// Lines of the capture, in the order of their last touches.
    recent: Vec<u64>,
}

impl Default for SamplingState {
    fn default() -> Self {
        Self {
            phase: SamplingPhase::Whole,
            left: WHOLE,
            stratum: STRATUM_LEAST,
            rest: 0,
            warm_branches: 0,
            warm: [0; 2],
            counted: [0; 2],
            sums: [0; 3],
            simple_settled: 0,
            recent: Vec::with_capacity(RECENT),
        }
    }
}

impl SamplingState {
    /// True if mispredictions are more frequent in warm-ups than after them: much is forgotten between windows.
    fn is_stale(&self) -> bool {
        let rate = |[wrong, simple]: [u64; 2]| wrong as f64 / simple.max(1) as f64;
        rate(self.warm) > STALE * rate(self.counted)
    }

    /// Returns the number of other lines of the capture touched since the last touch of a line, and touches it; `None` if it was
    /// not touched in the capture, or long ago.
    fn distance(&mut self, line: u64) -> Option<u64> {
        let depth = self.recent.iter().rev().position(|l| *l == line);
        match depth {
            Some(depth) => {
                self.recent.remove(self.recent.len() - 1 - depth);
            }
            None if self.recent.len() == RECENT => {
                self.recent.remove(0);
            }
            None => {}
        }
        self.recent.push(line);
        depth.map(|depth| depth as u64)
    }
}

impl Vcpu {
    /// Counts a block in a sampled recording, if no model needs it. Returns false if it is left to [`Self::special_block`].
    #[inline(always)]
    pub fn common_block(&mut self, block: &'static TranslatedBlock) -> bool {
        let previous = self.previous;
        let remaining = self.remaining - i64::from(block.count);
        let special = block.special | u8::from(previous.samples_branch | self.watching);
        if special != 0 || remaining <= 0 {
            return false;
        }
        self.previous = block;
        self.remaining = remaining;
        self.classes += block.classes;
        self.simple.resolve(previous, block.pc);
        true
    }

    /// Counts a block of which a model needs to know.
    pub fn special_block(&mut self, block: &'static TranslatedBlock) -> CallerAction {
        let Some(previous) = self.count(block) else {
            return CallerAction::Go;
        };
        self.simple.resolve(previous, block.pc);
        if !self.thin {
            return self.watch(previous, block);
        }
        if previous.samples_branch || block.special != 0 {
            let into = self.file.record();
            self.reach
                .sampled_block(previous, block, into, self.capturing);
        }
        if self.modelling {
            self.branches.resolve(previous, block.pc);
        }
        if self.remaining <= 0 || self.capturing {
            self.slow_block(block)
        } else {
            CallerAction::Go
        }
    }

    /// Decides which blocks are common from now on.
    pub(super) fn set_watching(&mut self) {
        self.watching = !self.thin || self.modelling || self.capturing;
    }

    /// Adds the counts of a slice that depend on the sample.
    pub(super) fn add_sampled(&mut self, executed: u64, branches: u64, wrong: u64) {
        let into = self.file.record();
        let Some(sampling) = &mut self.sampling else {
            into[record::MISPREDICTED] += wrong;
            into[record::PREDICTED] += executed;
            into[record::MODELLED] += executed;
            return;
        };
        let simple = self.simple.wrong - sampling.simple_settled;
        sampling.simple_settled += simple;
        sampling.left -= executed as i64;
        for (sum, part) in sampling.sums.iter_mut().zip([wrong, simple, executed]) {
            *sum += part;
        }
        match sampling.phase {
            SamplingPhase::Whole => {
                into[record::MISPREDICTED] += wrong;
                into[record::PREDICTED] += executed;
                into[record::MODELLED] += executed;
                return;
            }
            SamplingPhase::Between => {}
            SamplingPhase::Warm => sampling.warm_branches += branches,
            SamplingPhase::Counted => into[record::MODELLED] += executed * COUNTED,
        }
        into[record::SIMPLE] += simple;
    }

    /// Returns the instructions until the phase of a sampled recording ends.
    pub(super) fn until_phase(&self) -> i64 {
        self.sampling.as_ref().map_or(i64::MAX, |of| of.left.max(1))
    }

    /// Begins the next phase of a sampled recording, if the current one is over.
    pub(super) fn change_phase(&mut self) {
        let Some(sampling) = &mut self.sampling else {
            return;
        };
        if sampling.left > 0 {
            return;
        }
        let into = self.file.record();
        let [wrong, simple, executed] = std::mem::take(&mut sampling.sums);
        match sampling.phase {
            SamplingPhase::Whole => {
                self.recency.thin(|line| sample::keeps(line, sample::LINES));
                self.reach.thin();
                self.thin = true;
                self.begin_stratum();
            }
            SamplingPhase::Between => {
                sampling.phase = SamplingPhase::Warm;
                sampling.left = (sampling.stratum / WARM) as i64;
                sampling.warm_branches = 0;
                self.modelling = true;
            }
            SamplingPhase::Warm
                if sampling.warm_branches < WARM_BRANCHES
                    && executed < WARM_MOST * (sampling.stratum / WARM) =>
            {
                sampling.sums = [wrong, simple, executed];
                sampling.left = (sampling.stratum / COUNTED) as i64;
            }
            SamplingPhase::Warm => {
                sampling.phase = SamplingPhase::Counted;
                sampling.left = (sampling.stratum / COUNTED) as i64;
                sampling.warm[0] += wrong;
                sampling.warm[1] += simple;
                into[record::BEFORE] += wrong;
                into[record::BEFORE + 1] += simple;
            }
            SamplingPhase::Counted => {
                into[record::WINDOWS] += 1;
                into[record::WINDOWED] += executed;
                let sums = [
                    wrong,
                    simple,
                    wrong * wrong,
                    simple * simple,
                    wrong * simple,
                ];
                for (at, sum) in sums.into_iter().enumerate() {
                    into[record::WINDOW_SUMS + at] += sum;
                }
                sampling.counted[0] += wrong;
                sampling.counted[1] += simple;
                self.begin_stratum();
            }
        }
    }

    /// Begins a stratum after the rest of the last one, and waits for its window. The first strata are short, so that they are many. Later
    /// ones get longer if the predictor needs longer windows.
    fn begin_stratum(&mut self) {
        let random = self.random();
        let Some(sampling) = &mut self.sampling else {
            return;
        };
        if sampling.is_stale() && sampling.stratum < STRATUM_MOST.min(self.executed / STRATA) {
            sampling.stratum *= 2;
        }
        let stratum = sampling.stratum;
        let free = stratum - stratum / WARM - stratum / COUNTED;
        let before = random % (free + 1);
        sampling.left = (sampling.rest + before).max(1) as i64;
        sampling.rest = free - before;
        sampling.phase = SamplingPhase::Between;
        self.modelling = false;
    }

    /// Forgets the lines of the last capture.
    pub(super) fn clear_recent(&mut self) {
        if let Some(sampling) = &mut self.sampling {
            sampling.recent.clear();
        }
    }

    /// Touches a line that is not in the epoch. Returns its stack distance for captures, approximate outside of them.
    #[inline(always)]
    pub(super) fn thin_touch(&mut self, line: u64) -> u64 {
        let now = self.time(self.accesses);
        let kept = sample::keeps(line, sample::LINES);
        let (touch, date, place) = if kept {
            let (touch, place) = self.recency.touch(line, now);
            let touch = match touch {
                Touch::Again { distance, reuse } => Touch::Again {
                    distance: sample::scaled(distance, sample::LINES),
                    reuse,
                },
                Touch::Cold => Touch::Cold,
            };
            (touch, None, place)
        } else {
            let (again, place) = self.recency.pass(line, now);
            let touch = again.map_or(Touch::Cold, |(reuse, _)| Touch::Again {
                distance: 0,
                reuse,
            });
            (touch, again.map(|(_, date)| date), place)
        };
        if !self.capturing {
            self.remember(line, place);
        }
        let into = self.file.record();
        self.reach.sampled_data(line, into, self.capturing);
        match touch {
            Touch::Cold => {
                self.far += 1;
                into[record::COLD] += 1;
            }
            Touch::Again { distance, reuse } if kept && distance >= NEAR_LINES => {
                self.far += sample::LINES;
                let reuse = LogHistogram::bucket(reuse).min(REUSE_BUCKETS - 1);
                into[record::STACK + LogHistogram::bucket(distance).min(STACK_BUCKETS - 1)] +=
                    sample::LINES;
                into[record::REUSE + reuse] += sample::LINES;
                let group = (sample::hash(line, sample::LINES) >> 48) as usize % GROUPS;
                let sizes = MLP_LINES.iter().take_while(|lines| distance >= **lines);
                sizes.enumerate().for_each(|(size, _)| {
                    into[record::GROUPS + group * MLP_LINES.len() + size] += sample::LINES;
                });
            }
            Touch::Again { .. } => {}
        }
        if !self.modelling && !self.capturing {
            return 0;
        }
        self.model_touch(line, touch, date)
    }

    /// Passes a touch to the models that run in windows and captures. Returns its stack distance.
    #[inline(never)]
    fn model_touch(&mut self, line: u64, touch: Touch, date: Option<usize>) -> u64 {
        let Some(sampling) = &mut self.sampling else {
            return 0;
        };
        let distance = match touch {
            Touch::Cold => COLD,
            Touch::Again { distance, .. } => date.map_or(distance, |date| {
                sample::scaled(self.recency.since(date), sample::LINES)
            }),
        };
        let into = self.file.record();
        if self.modelling {
            let counted = sampling.phase == SamplingPhase::Counted;
            let weight = if counted { COUNTED } else { 0 };
            let depth = self.conflicts.touch(line);
            if depth > 0 {
                into[record::CONFLICTS + depth - 1] += weight;
            }
            if distance >= MLP_LINES[0] {
                let foreseen = u64::from(self.streams.touch(line)) * weight;
                let sizes = MLP_LINES.iter().take_while(|lines| distance >= **lines);
                sizes.enumerate().for_each(|(size, _)| {
                    into[record::STREAMABLE + size] += weight;
                    into[record::STREAMED + size] += foreseen;
                });
            }
        }
        if !self.capturing {
            return distance;
        }
        let known = sampling.distance(line);
        let distance = known.unwrap_or_else(|| distance.max(sampling.recent.len() as u64 - 1));
        if let Touch::Again { reuse, .. } = touch
            && distance < NEAR_LINES
        {
            let reuse = LogHistogram::bucket(reuse).min(REUSE_BUCKETS - 1);
            into[record::NEAR_STACK + LogHistogram::bucket(distance)] += 1;
            into[record::NEAR_REUSE + reuse] += 1;
        }
        distance
    }
}
