//! Run-queue latency of steered threads, by program and by arm of an A/B trial.
//!
//! Input: observations of threads. Output: run-queue latencies. The kernel's sums (schedstat) need no privilege; BPF programs
//! measure each wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation, ThreadEventKind};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::PROC;
use countersteer_sysfs::waits::{self as host, Source, Sums, ThreadWaits};

use super::ab_trial::AbTrial;
use crate::waits::{Recorded, Wait};

/// Collector of run-queue latency during steering.
#[derive(Default)]
pub struct Waits {
    /// The kernel's sums of each thread at the last observation, with TIDs as keys.
    threads: BTreeMap<u32, Sums>,
    measuring: Option<Measuring>,
    ab_trial: Option<AbTrial>,
    /// Waits by arm (0 for the policy, 1 for the baseline) and program name.
    programs: BTreeMap<(usize, Arc<str>), host::Waits>,
}

struct Measuring {
    source: Box<dyn Source>,
    /// Program names of all threads observed so far, with TIDs as keys.
    names: BTreeMap<u32, Arc<str>>,
}

impl Waits {
    /// Creates a collector. `source` measures each wait, if given; `ab_trial` supplies the active arm in a trial.
    pub fn new(source: Option<Box<dyn Source>>, ab_trial: Option<AbTrial>) -> Self {
        let measuring = source.map(|source| Measuring {
            source,
            names: BTreeMap::new(),
        });
        Self {
            measuring,
            ab_trial,
            ..Self::default()
        }
    }

    /// Returns the run-queue latency of each program; a program whose threads never waited is absent.
    pub fn found(&mut self) -> BTreeMap<Arc<str>, Wait> {
        self.measure(0);
        let mut programs: BTreeMap<Arc<str>, host::Waits> = BTreeMap::new();
        for ((_, name), waits) in &self.programs {
            programs.entry(Arc::clone(name)).or_default().add(waits);
        }
        let of = |(name, waits)| Some((name, Wait::of(&waits)?));
        programs.into_iter().filter_map(of).collect()
    }

    /// Returns the run-queue latency by arm and program as JSON, for a record. In a trial, `names` are those of policy and
    /// baseline.
    pub fn for_record(&self, names: Option<[&str; 2]>) -> serde_json::Result<String> {
        let row = |((side, program), waits): (&(usize, Arc<str>), &host::Waits)| {
            let side = names.map_or("", |names| names[*side]);
            let program = program.to_string();
            Wait::of(waits).map(|wait| Recorded {
                side,
                program,
                wait,
            })
        };
        let rows: Vec<_> = self.programs.iter().filter_map(row).collect();
        let remark = if self.measuring.is_some() {
            "run-queue latency measured by BPF programs"
        } else {
            "the kernel's sums (schedstat): totals and means, no percentiles; `--latency` measures percentiles, as root"
        };
        serde_json::to_string(&serde_json::json!({ "remark": remark, "rows": rows }))
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

    /// Adds the waits measured since the last call. The waits of a thread that was never observed count for the program of its
    /// process.
    fn measure(&mut self, side: usize) {
        let Some(measuring) = &mut self.measuring else {
            return;
        };
        let mut heard: Vec<ThreadWaits> = Vec::new();
        measuring.source.read(&mut |news| heard.push(news));
        let names = &measuring.names;
        let named: Vec<_> = heard
            .into_iter()
            .filter_map(|news| {
                let name = names.get(&news.tid).or_else(|| names.get(&news.pid))?;
                Some((Arc::clone(name), news.waits))
            })
            .collect();
        for (name, waits) in named {
            self.take(side, &name, &waits);
        }
    }

    fn meet(&mut self, seen: &Observation) {
        let Some(Measuring { source, names }) = &mut self.measuring else {
            return;
        };
        for thread in &seen.threads {
            let new = names
                .insert(thread.id.0, Arc::clone(&thread.name))
                .is_none();
            if new && let Some(pid) = PROC.process_of(thread.id.0) {
                source.follow(pid);
                names.entry(pid).or_insert_with(|| Arc::clone(&thread.name));
            }
        }
    }

    fn sum(&mut self, side: usize, seen: &Observation) {
        for thread in &seen.threads {
            let Some(now) = PROC.sums(thread.id.0) else {
                continue;
            };
            let known = self.threads.insert(thread.id.0, now);
            // Waits before the first observation do not belong to this run, unless the thread has just started.
            let is_new = || {
                let new = seen.events.iter();
                let mut new = new.filter(|e| e.kind == ThreadEventKind::New);
                new.any(|e| e.thread == thread.id)
            };
            let before = known.or_else(|| is_new().then(Sums::default));
            if let Some(before) = before {
                self.take(side, &thread.name, &now.since(before));
            }
        }
        for event in &seen.events {
            if event.kind == ThreadEventKind::Exit {
                self.threads.remove(&event.thread.0);
            }
        }
    }
}

impl Recorder for Waits {
    fn observation(&mut self, _: &Topology, seen: &Observation, _: &MetricBank) {
        // In an A/B trial, these waits belong to the arm that was active until now.
        let side = self.ab_trial.as_ref().map_or(0, AbTrial::side);
        if self.measuring.is_some() {
            self.meet(seen);
            self.measure(side);
        } else {
            self.sum(side, seen);
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_of_a_trial_are_distinguished_and_programs_are_not() {
        let mut waits = Waits::default();
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
        let text = waits.for_record(Some(["hsf", "linux"])).unwrap();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["rows"][1]["side"], "linux");
        assert!(!text.contains("p99_ms"), "{text}");
    }
}
