//! Speed-up factors by reported work: the work that a thread reports per second on the fastest core type, divided by that on the
//! slowest.
//!
//! In contrast to factors by instructions, these need no counters. They show that a thread that mostly sleeps gains little from
//! a fast core, and that a spinning thread does no work (progress reported by the program: Hoffmann et al., "Application
//! Heartbeats", ICAC 2010). Seconds are wall time. Assumption: a thread's run-queue latency is equal on both types. With many
//! more threads than CPUs, all factors therefore shrink by the same ratio. The factors depend on honest reports of the program.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MetricDef, MetricSource, ReadBy, Round};
use crate::sample::Event;
use crate::topology::Topology;
use crate::units::{CoreTypeId, Nanos, ThreadId};

pub(super) const SF_WORK: MetricDef = MetricDef {
    name: "sf_work",
    unit: "ratio",
    prose: "speed-up factor from the work that the program says it did on the fastest and the slowest type",
    needs: &[Event::Work],
    helps: &[],
    read_by: ReadBy::Source(|topology| {
        Box::new(Worked {
            topology: Arc::clone(topology),
            threads: BTreeMap::new(),
        })
    }),
};

/// Half-life of the work rates in seconds. A unit of work may take as long as a period, so several periods are averaged.
const HALF_LIFE_S: f64 = 1.0;

struct Worked {
    topology: Arc<Topology>,
    threads: BTreeMap<ThreadId, Log>,
}

/// Work rates of a thread by core type, with the interval in progress.
struct Log {
    /// Work done and seconds taken by core type, both with exponential decay.
    rates: Vec<(f64, f64)>,
    /// Start of the interval in progress, whose work is not yet added to a rate.
    since: Nanos,
    at: Nanos,
    open: Option<(CoreTypeId, f64)>,
}

impl Log {
    /// Adds the work of the interval in progress to the rate of its core type, and begins the next interval at the time `at`.
    fn close(&mut self, at: Nanos) {
        let span = self.at.since(self.since).as_secs_f64();
        if let Some((core_type, work)) = self.open.take() {
            let fading = 0.5f64.powf(span / HALF_LIFE_S);
            let (done, seconds) = &mut self.rates[core_type.index()];
            (*done, *seconds) = (*done * fading + work, *seconds * fading + span);
        }
        (self.since, self.at) = (self.at, at);
    }

    fn rate(&self, core_type: CoreTypeId) -> Option<f64> {
        let (done, seconds) = self.rates[core_type.index()];
        (done > 0.0 && seconds > 0.0).then(|| done / seconds)
    }
}

impl MetricSource for Worked {
    fn read(&mut self, round: &Round<'_>) -> Option<f64> {
        let sample = round.sample;
        let work = sample.counts.get(Event::Work)?;
        let types = self.topology.core_types.len();
        let log = self.threads.entry(round.thread).or_insert_with(|| Log {
            rates: vec![(0.0, 0.0); types],
            since: sample.end,
            at: sample.end,
            open: None,
        });
        if sample.end > log.at {
            log.close(sample.end);
            log.open = Some((sample.core_type, work));
        } else if log
            .open
            .is_some_and(|(core_type, _)| core_type != sample.core_type)
        {
            // The thread ran on both types in this interval, in unknown proportion, so its work is dropped.
            log.open = None;
        }
        let (fast, slow) = self.topology.extremes();
        Some(log.rate(fast)? / log.rate(slow)?)
    }

    fn forget(&mut self, thread: ThreadId) {
        self.threads.remove(&thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Samples};
    use crate::testing;
    use crate::units::CpuId;

    fn sample(core_type: u32, at_ms: u64, work: Option<f64>) -> Samples {
        let counts: Vec<(Event, f64)> = work.map(|work| (Event::Work, work)).into_iter().collect();
        let at = Nanos::from_millis(at_ms);
        let ran = Nanos::from_millis(10);
        let thread = ThreadId(7);
        let cpu = CpuId(0);
        let core_type = CoreTypeId(core_type);
        Samples::of(
            Sample::of_thread(thread, cpu, core_type, at, ran),
            1,
            &counts,
        )
    }

    fn worked() -> Worked {
        Worked {
            topology: testing::topology(testing::SMT),
            threads: BTreeMap::new(),
        }
    }

    #[test]
    fn sleep_counts_as_time_and_periods_on_both_types_do_not_count() {
        let mut source = worked();
        let mut read = |core_type, at_ms, work| {
            source.read(&Round::of(&sample(core_type, at_ms, Some(work))).unwrap())
        };
        // 30 units per second on the fast type, though it ran for a tenth of the time only.
        read(0, 0, 5.0);
        read(0, 100, 3.0);
        read(0, 200, 3.0);
        // A move within the period: neither part is counted.
        read(0, 300, 900.0);
        read(1, 300, 900.0);
        // No sample for 300 ms, because it slept: 20 units per second on the slow type.
        read(1, 400, 2.0);
        read(1, 700, 6.0);
        let sf = read(1, 800, 2.0).unwrap();
        assert!((sf - 1.5).abs() < 1e-9, "{sf}");
    }

    #[test]
    fn who_tells_nothing_or_does_nothing_has_no_factor() {
        let mut source = worked();
        for at_ms in (0..1000).step_by(100) {
            let silent = sample(u32::from(at_ms > 500), at_ms, None);
            assert_eq!(source.read(&Round::of(&silent).unwrap()), None);
        }
        for at_ms in (1000..2000).step_by(100) {
            let idle = sample(u32::from(at_ms > 1500), at_ms, Some(0.0));
            assert_eq!(source.read(&Round::of(&idle).unwrap()), None);
        }
    }

    #[test]
    fn old_work_fades() {
        let mut source = worked();
        let mut sf = None;
        for step in 1..200u64 {
            let slow = step % 40 >= 20;
            // After ten seconds it gains twice as much.
            let work = if slow {
                1.0
            } else if step < 100 {
                2.0
            } else {
                4.0
            };
            sf = source.read(&Round::of(&sample(u32::from(slow), step * 100, Some(work))).unwrap());
        }
        let sf = sf.unwrap();
        assert!((3.8..4.0).contains(&sf), "{sf}");
    }
}
