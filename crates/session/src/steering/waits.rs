//! Run-queue latency of steered threads, by program and by arm of an A/B trial.
//!
//! Input: observations of threads, and a source of their waits. Output: run-queue latencies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation, ThreadEventKind};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sysfs::waits::{self as host, ThreadWaits};

use super::ab_trial::AbTrial;
use crate::waits::{LatencySource, RecordedWaits, Wait, recorded};

/// Collector of run-queue latency during steering.
pub struct WaitCollector {
    latency: LatencySource,
    ab_trial: Option<AbTrial>,
    /// Program names of observed threads, with TIDs as keys, and of processes, with PIDs.
    names: BTreeMap<u32, Arc<str>>,
    /// Threads that exited before the last observation. Their last waits may come at the next one.
    exited: Vec<u32>,
    /// Waits by arm (0 for the policy, 1 for the baseline) and program name.
    programs: BTreeMap<(usize, Arc<str>), host::Waits>,
}

impl WaitCollector {
    /// Creates a collector. `ab_trial` supplies the active arm in a trial.
    pub const fn new(latency: LatencySource, ab_trial: Option<AbTrial>) -> Self {
        Self {
            latency,
            ab_trial,
            names: BTreeMap::new(),
            exited: Vec::new(),
            programs: BTreeMap::new(),
        }
    }

    /// Returns the run-queue latency of each program; a program whose threads never waited is absent.
    pub fn found(&mut self) -> BTreeMap<Arc<str>, Wait> {
        self.read();
        let mut programs: BTreeMap<Arc<str>, host::Waits> = BTreeMap::new();
        for ((_, name), waits) in &self.programs {
            programs.entry(Arc::clone(name)).or_default().add(waits);
        }
        let of = |(name, waits)| Some((name, Wait::of(&waits)?));
        programs.into_iter().filter_map(of).collect()
    }

    /// Returns the run-queue latency by arm and program as JSON, for a record.
    pub fn for_record(&self) -> serde_json::Result<String> {
        let names = self.ab_trial.as_ref().map(AbTrial::names);
        let row = |((side, program), waits): (&(usize, Arc<str>), &host::Waits)| {
            Some(RecordedWaits {
                side: names.map_or("", |names| &names[*side]),
                program: program.to_string(),
                wait: Wait::of(waits)?,
            })
        };
        let rows = self.programs.iter().filter_map(row);
        recorded(rows, &self.latency.remark())
    }

    /// Returns the run-queue latency of each arm, for all programs together; `None` if there were no waits.
    pub fn by_side(&self) -> [Option<Wait>; 2] {
        [0, 1].map(|side| {
            let mut all = host::Waits::default();
            let own = self.programs.iter().filter(|((of, _), _)| *of == side);
            own.for_each(|(_, waits)| all.add(waits));
            Wait::of(&all)
        })
    }

    fn take(&mut self, side: usize, name: &Arc<str>, waits: &host::Waits) {
        if waits.times > 0 {
            let foreground = self.ab_trial.as_ref().and_then(AbTrial::foreground);
            if let Some(mut foreground) = foreground {
                foreground.add(side, name, waits);
            }
            let key = (side, Arc::clone(name));
            self.programs.entry(key).or_default().add(waits);
        }
    }

    /// Adds the waits since the last call. The waits of a thread that was never observed count for the program of its process.
    fn read(&mut self) {
        // In an A/B trial, these waits belong to the arm that was active until now.
        let side = self.ab_trial.as_ref().map_or(0, AbTrial::side);
        let mut heard: Vec<ThreadWaits> = Vec::new();
        self.latency.source.read(&mut |news| heard.push(news));
        for news in heard {
            let names = &self.names;
            let name = names.get(&news.tid).or_else(|| names.get(&news.pid));
            if let Some(name) = name.cloned() {
                self.take(side, &name, &news.waits);
            }
        }
    }

    /// Follows threads that are observed for the first time.
    fn meet(&mut self, seen: &Observation) {
        let of_kind = |kind| seen.events.iter().filter(move |e| e.kind == kind);
        let new: BTreeSet<_> = of_kind(ThreadEventKind::New).map(|e| e.thread).collect();
        let names = &mut self.names;
        for tid in self.exited.drain(..) {
            names.remove(&tid);
        }
        for thread in &seen.threads {
            let (tid, is_new) = (thread.id.0, new.contains(&thread.id));
            let known = names.insert(tid, Arc::clone(&thread.name)).is_some();
            // Waits before the first observation do not belong to this run, unless the thread has just started.
            if (!known || is_new)
                && let Some(pid) = self.latency.source.follow_thread(tid, is_new)
            {
                names.entry(pid).or_insert_with(|| Arc::clone(&thread.name));
            }
        }
        let exits = of_kind(ThreadEventKind::Exit).map(|e| e.thread.0);
        self.exited.extend(exits);
    }
}

impl Recorder for WaitCollector {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        self.meet(seen);
        self.read();
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[cfg(test)]
mod tests {
    use countersteer_model::trial::TrialPlan;

    use super::*;

    #[test]
    fn sides_of_a_trial_are_distinguished_and_programs_are_not() {
        let none = countersteer_sysfs::waits::Whose::default();
        let latency = LatencySource::sums(&none, "x".into());
        let plan = TrialPlan {
            policy: Nanos(1),
            baseline: Nanos(1),
            settle: 0.0,
            confidence: 0.95,
            margin: 0.0,
        };
        let trial = AbTrial::new(plan).between("hsf", "linux");
        let mut waits = WaitCollector::new(latency, Some(trial));
        let name: Arc<str> = "p".into();
        let of = |times, total_ns| host::Waits {
            times,
            total_ns,
            measured: None,
        };
        waits.take(0, &name, &of(2, 2_000_000));
        waits.take(1, &name, &of(1, 7_000_000));
        waits.take(1, &name, &of(0, 0));
        let [policy, baseline] = waits.by_side().map(Option::unwrap);
        assert_eq!((policy.times, baseline.times), (2, 1));
        assert!((waits.found()["p"].mean_ms - 3.0).abs() < 1e-9);
        let text = waits.for_record().unwrap();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["rows"][1]["side"], "linux");
        assert!(!text.contains("p99_ms"), "{text}");
    }
}
