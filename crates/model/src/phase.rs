//! Detection of phase changes, for engines that do not report them.
//!
//! Input: samples. Output: [`ThreadEventKind::Phase`] among the events. The definition of a phase is that of the kernel's
//! engine. It uses the first ratio of the core type's step table ([`crate::metric::steps`]; cycles per instruction unless the
//! machine's file says otherwise). A phase ends if the ratio differs by more than a quarter from its running mean in two
//! consecutive samples. The mean starts with the phase. Ratios of different core types are not compared.
//!
//! The speed-up factor would be a less sensitive criterion: its models saturate in ranges where programs still differ much.

use std::collections::BTreeMap;

use crate::departed::Departed;
use crate::engine::{Observation, ThreadEvent, ThreadEventKind};
use crate::metric::steps::{is_away, running_mean, step_models};
use crate::models::FixedModel;
use crate::sample::SampleRow;
use crate::topology::Topology;
use crate::units::{CoreTypeId, ThreadId};

/// Number of consecutive differing samples at which a phase ends.
const MOST_DOUBTS: u32 = 2;

/// Current phase of a thread on one core type.
#[derive(Clone, Copy)]
struct PresentPhase {
    /// Running mean of the phase's ratios, in Q20 fixed point.
    mean_q20: u64,
    /// Number of consecutive samples whose ratio differs from the mean.
    doubts: u32,
}

/// Current phases of all threads.
pub struct Phases {
    models: Vec<FixedModel>,
    present: BTreeMap<ThreadId, BTreeMap<CoreTypeId, PresentPhase>>,
    departed: Departed,
}

impl Phases {
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        Self {
            models: step_models(topology),
            present: BTreeMap::new(),
            departed: Departed::default(),
        }
    }

    /// Adds events for phase changes to an observation, unless the engine reports them itself.
    pub fn notice(&mut self, seen: &mut Observation) {
        if seen.tells_phases {
            return;
        }
        self.departed.update(seen);
        let known = seen.events.len();
        for (thread, sample) in seen.samples.of_threads() {
            if self.begins(thread, &sample) {
                let at = sample.end;
                seen.events.push(ThreadEvent {
                    at,
                    thread,
                    kind: ThreadEventKind::Phase,
                });
            }
        }
        // Exits are handled after the samples, which include the last samples of exited threads.
        for event in &seen.events {
            if event.kind == ThreadEventKind::Exit {
                self.present.remove(&event.thread);
            }
        }
        for thread in self.departed.late(seen) {
            self.present.remove(&thread);
        }
        if seen.events.len() > known {
            seen.events.sort_by_key(|event| event.at);
        }
        seen.tells_phases = true;
    }

    pub(crate) fn forget(&mut self, thread: ThreadId) {
        self.present.remove(&thread);
    }

    /// True if another phase began with this sample or the one before, so that the thread's phase has ended.
    pub(crate) fn begins(&mut self, thread: ThreadId, sample: &SampleRow<'_>) -> bool {
        let feature = self
            .models
            .get(sample.core_type.index())
            .and_then(|model| model.features.first());
        let Some(ratio) = feature.and_then(|f| f.ratio_q20(&sample.counts)) else {
            return false;
        };
        let types = self.present.entry(thread).or_default();
        let anew = PresentPhase {
            mean_q20: ratio,
            doubts: 0,
        };
        let present = types.entry(sample.core_type).or_insert(anew);
        if is_away(ratio, present.mean_q20) {
            present.doubts += 1;
        } else {
            present.doubts = 0;
            present.mean_q20 = running_mean(present.mean_q20, ratio);
        }
        if present.doubts < MOST_DOUBTS {
            return false;
        }
        // The thread's phases on other core types have ended as well.
        *types = BTreeMap::from([(sample.core_type, anew)]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Event, Sample, Samples};
    use crate::testing::{SMT, topology};
    use crate::units::{CpuId, Nanos};

    /// Returns a period in which a thread took `cycles` cycles per instruction.
    fn period(nth: u64, core_type: u32, cycles: f64) -> Observation {
        let counts = [(Event::Instructions, 1e8), (Event::Cycles, cycles * 1e8)];
        let time = Nanos::from_millis(100);
        let core_type = CoreTypeId(core_type);
        let at = Nanos(nth * time.0);
        let sample = Sample::of_thread(ThreadId(7), CpuId(0), core_type, at, time);
        Observation {
            at,
            samples: Samples::of(sample, 1, &counts),
            ..Observation::default()
        }
    }

    fn begins(phases: &mut Phases, nth: u64, core_type: u32, cycles: f64) -> bool {
        let mut seen = period(nth, core_type, cycles);
        phases.notice(&mut seen);
        let kind = ThreadEventKind::Phase;
        assert!(seen.events.iter().all(|e| *e
            == ThreadEvent {
                at: seen.at,
                thread: ThreadId(7),
                kind
            }));
        !seen.events.is_empty()
    }

    #[test]
    fn two_periods_away_from_where_it_began_are_another_phase() {
        let mut phases = Phases::new(&topology(SMT));
        // One differing sample, and then a lasting change.
        let noticed: Vec<bool> = [0.4, 0.4, 4.0, 0.4, 0.4, 4.0, 4.0, 4.0, 4.0, 0.4, 0.4]
            .into_iter()
            .zip(1..)
            .map(|(cycles, nth)| begins(&mut phases, nth, 0, cycles))
            .collect();
        let wanted = [6, 10].map(|nth| noticed[nth]);
        assert_eq!(
            (wanted, noticed.iter().filter(|t| **t).count()),
            ([true; 2], 2),
            "{noticed:?}"
        );
    }

    #[test]
    fn another_core_type_is_no_other_phase() {
        let mut phases = Phases::new(&topology(SMT));
        for nth in 1..20 {
            let on_small = nth / 3 % 2 == 1;
            assert!(
                !begins(
                    &mut phases,
                    nth,
                    u32::from(on_small),
                    if on_small { 4.0 } else { 0.4 }
                ),
                "{nth}"
            );
        }
    }

    #[test]
    fn engines_that_tell_phases_are_left_alone() {
        let mut phases = Phases::new(&topology(SMT));
        for (nth, cycles) in [0.4, 4.0, 4.0, 4.0].into_iter().enumerate() {
            let mut seen = Observation {
                tells_phases: true,
                ..period(nth as u64, 0, cycles)
            };
            phases.notice(&mut seen);
            assert!(seen.events.is_empty());
        }
    }

    #[test]
    fn nothing_is_kept_of_a_thread_that_ended_with_its_last_sample_or_before() {
        let mut phases = Phases::new(&topology(SMT));
        let mut last = period(1, 0, 1.0);
        last.events.push(ThreadEvent {
            at: last.at,
            thread: ThreadId(7),
            kind: ThreadEventKind::Exit,
        });
        for mut seen in [last, period(2, 0, 1.0)] {
            phases.notice(&mut seen);
            assert!(phases.present.is_empty(), "{:?}", seen.at);
        }
    }
}
