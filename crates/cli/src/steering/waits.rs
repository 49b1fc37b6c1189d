//! How long threads wait for a CPU: run-queue waits by program, from /proc/TID/schedstat, which needs no privilege.
//!
//! Input: observations. Output: per program a [`Wait`]. The kernel keeps sums (time waited, times run), so an interval gives a mean
//! for each thread; percentiles are over these means, weighted by how often the thread got to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_core::driver::Recorder;
use countersteer_core::engine::{Applied, Observation, ThreadEventKind};
use countersteer_core::metric::MetricBank;
use countersteer_core::placement::Placement;
use countersteer_core::topology::Topology;
use countersteer_core::units::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Waits of a program's threads between being runnable and running.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// Times that a thread got a CPU.
    pub times: u64,
    /// All waits together.
    pub total_s: f64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Reads waits while threads are steered.
#[derive(Debug, Default)]
pub struct Waits {
    threads: BTreeMap<u32, Schedstat>,
    programs: BTreeMap<Arc<str>, Waited>,
}

#[derive(Debug)]
struct Waited {
    nanos: u64,
    times: u64,
    /// Nanoseconds.
    means: Histogram<u64>,
}

/// Sums that the kernel keeps of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    pub ran_ns: u64,
    pub waited_ns: u64,
    pub times: u64,
}

impl Schedstat {
    /// Of a thread that is alive, where the kernel keeps them.
    pub fn of(tid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace().map(|f| f.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self {
            ran_ns: next()?,
            waited_ns: next()?,
            times: next()?,
        })
    }
}

impl Waits {
    /// By program; programs of which no thread ever got a CPU are absent.
    pub fn found(&self) -> BTreeMap<Arc<str>, Wait> {
        let ms = |ns: u64| ns as f64 * 1e-6;
        let of = |(name, w): (&Arc<str>, &Waited)| {
            (w.times > 0).then(|| {
                let wait = Wait {
                    times: w.times,
                    total_s: w.nanos as f64 * 1e-9,
                    mean_ms: ms(w.nanos) / w.times as f64,
                    p50_ms: ms(w.means.value_at_quantile(0.5)),
                    p99_ms: ms(w.means.value_at_quantile(0.99)),
                };
                (Arc::clone(name), wait)
            })
        };
        self.programs.iter().filter_map(of).collect()
    }

    fn take(&mut self, name: &Arc<str>, before: Schedstat, now: Schedstat) {
        let times = now.times.saturating_sub(before.times);
        let nanos = now.waited_ns.saturating_sub(before.waited_ns);
        if times == 0 {
            return;
        }
        const LONGEST_NS: u64 = 3_600_000_000_000;
        let waited = match self.programs.entry(Arc::clone(name)) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let Ok(means) = Histogram::new_with_bounds(1, LONGEST_NS, 2) else {
                    return;
                };
                new.insert(Waited {
                    nanos: 0,
                    times: 0,
                    means,
                })
            }
        };
        waited.nanos += nanos;
        waited.times += times;
        waited
            .means
            .saturating_record_n((nanos / times).max(1), times);
    }
}

impl Recorder for Waits {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        for thread in &seen.threads {
            let Some(now) = Schedstat::of(thread.id.0) else {
                continue;
            };
            let known = self.threads.insert(thread.id.0, now);
            let is_new = |e: &&countersteer_core::engine::ThreadEvent| {
                e.thread == thread.id && e.kind == ThreadEventKind::New
            };
            // What a thread waited before anybody looked at it is nobody's business here.
            let born = || {
                seen.events
                    .iter()
                    .find(is_new)
                    .map(|_| Schedstat::default())
            };
            if let Some(before) = known.or_else(born) {
                self.take(&thread.name, before, now);
            }
        }
        for event in &seen.events {
            if event.kind == ThreadEventKind::Exit {
                self.threads.remove(&event.thread.0);
            }
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_means_of_intervals_weighted_by_how_often_threads_ran() {
        let mut waits = Waits::default();
        let name: Arc<str> = "p".into();
        let at = |waited_ns, times| Schedstat {
            ran_ns: 0,
            waited_ns,
            times,
        };
        waits.take(&name, at(0, 0), at(99_000_000, 99));
        waits.take(&name, at(0, 0), at(50_000_000, 1));
        waits.take(&name, at(5, 7), at(9, 7));
        let wait = waits.found()["p"];
        assert_eq!(wait.times, 100);
        assert!((wait.mean_ms - 1.49).abs() < 1e-9 && (wait.total_s - 0.149).abs() < 1e-9);
        assert!(
            (wait.p50_ms - 1.0).abs() < 0.02 && wait.p99_ms < 2.0,
            "{wait:?}"
        );
        assert_eq!(Schedstat::parse("1 2 3\n").unwrap().waited_ns, 2);
        assert_eq!(Schedstat::parse("garbage"), None);
        assert!(Schedstat::of(std::process::id()).is_none_or(|s| s.times > 0));
    }
}
