//! Percentiles of run-queue latency in each interval. BPF programs measure each wait while a column shows a percentile.
//!
//! Input: a source of wait times, and the thread or process of a row. Output: percentiles in milliseconds.

use std::collections::HashMap;

use countersteer_model::counters::Owner;
use countersteer_sysfs::procfs::{PROC, Status};
use countersteer_sysfs::waits::{Source, Waits, Whose};

use crate::bpf::{Bpf, measure};
use crate::error::{Kind, failure};
use crate::waits::Wait;

/// Name of this source in the list of virtual counters' providers.
pub const PROVIDER: &str = "waits";

/// Percentile of run-queue latency (`Wait`) or wakeup latency (`Wake`), e.g. the median (50).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    Wait50,
    Wait99,
    Wake50,
    Wake99,
}

impl Tail {
    const ALL: [Self; 4] = [Self::Wait50, Self::Wait99, Self::Wake50, Self::Wake99];

    /// Name of the column that shows this percentile.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait50 => "wait50_ms",
            Self::Wait99 => "wait99_ms",
            Self::Wake50 => "wake50_ms",
            Self::Wake99 => "wake99_ms",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tail| tail.name() == name)
    }

    fn of(self, wait: &Wait) -> Option<f64> {
        match self {
            Self::Wait50 => wait.tail.map(|t| t.p50_ms),
            Self::Wait99 => wait.tail.map(|t| t.p99_ms),
            Self::Wake50 => wait.wakeups.map(|w| w.p50_ms),
            Self::Wake99 => wait.wakeups.map(|w| w.p99_ms),
        }
    }
}

/// Returns the reason why this process cannot measure wait times, without loading BPF programs; `None` if no reason is known.
pub fn silent(bpf: Bpf) -> Option<String> {
    if bpf == Bpf::Never {
        return Some("run-queue latency needs BPF programs, which --bpf never excludes".into());
    }
    if !cfg!(feature = "scx") {
        return Some(
            "this `steer` was built without BPF programs; build it with --features scx".into(),
        );
    }
    let effective_user = |own: Status| own.users.get(1).copied();
    let root = PROC.own_status().ok().and_then(effective_user) == Some(0);
    (!root).then(|| "run-queue latency needs BPF programs, which only root may load".into())
}

/// Run-queue latencies in the last interval, by thread and process.
#[derive(Default)]
pub struct Tails {
    source: Option<Box<dyn Source>>,
    waits: HashMap<Owner, Wait>,
}

impl Tails {
    /// Starts measuring if `on` is true, otherwise stops.
    ///
    /// # Errors
    /// BPF programs cannot be loaded.
    fn turn(&mut self, on: bool) -> anyhow::Result<()> {
        if on && self.source.is_none() {
            let whose = Whose {
                all: true,
                ..Whose::default()
            };
            let why = |why| {
                failure(
                    Kind::Missing,
                    format!("run-queue latency cannot be measured: {why}"),
                )
            };
            self.source = Some(measure(&whose).map_err(why)?);
        } else if !on {
            *self = Self::default();
        }
        Ok(())
    }

    /// Starts measuring if one of these columns shows a percentile, otherwise stops. Returns the names of the other columns.
    ///
    /// # Errors
    /// BPF programs cannot be loaded.
    pub fn turn_to(&mut self, names: &[&'static str]) -> anyhow::Result<Vec<&'static str>> {
        let (tails, others): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| Tail::by_name(name).is_some());
        self.turn(!tails.is_empty())?;
        Ok(others)
    }

    /// Reads the wait times since the last call, by thread and process.
    pub fn read(&mut self) {
        self.waits.clear();
        let Some(source) = &mut self.source else {
            return;
        };
        let mut waits: HashMap<Owner, Waits> = HashMap::new();
        source.read(&mut |news| {
            let (pid, tid) = (news.pid, news.tid);
            for owner in [Owner::Thread { pid, tid }, Owner::Process { pid }] {
                waits.entry(owner).or_default().add(&news.waits);
            }
        });
        let wait = |(owner, waits): (&Owner, &Waits)| Some((*owner, Wait::of(waits)?));
        self.waits = waits.iter().filter_map(wait).collect();
    }

    /// Returns a percentile of a thread or process in ms, by column name; `None` if it had no waits.
    pub fn value(&self, name: &str, owner: Owner) -> Option<f64> {
        Tail::by_name(name)?.of(self.waits.get(&owner)?)
    }
}

#[cfg(test)]
mod tests {
    use countersteer_sysfs::waits::{Histogram, Measured, ThreadWaits};

    use super::*;

    /// Two threads of a process: one is woken 100 times and waits 1 ms each time. The other is woken once and waits 64 ms.
    struct Two(bool);

    impl Source for Two {
        fn follow(&mut self, _: u32) {}

        fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits)) {
            if std::mem::replace(&mut self.0, true) {
                return;
            }
            for (tid, times, ns) in [(7, 100, 1_000_000), (8, 1, 64_000_000)] {
                let mut woken = Histogram::default();
                woken.record(ns, times);
                let measured = Some(Measured {
                    woken,
                    longest_ns: ns,
                    ..Measured::default()
                });
                let waits = Waits {
                    times,
                    total_ns: ns * times,
                    measured,
                };
                hear(ThreadWaits {
                    pid: 7,
                    tid,
                    name: "t".into(),
                    ended: false,
                    waits,
                });
            }
        }
    }

    #[test]
    fn percentiles_are_of_the_last_interval_by_thread_and_process() {
        let mut tails = Tails {
            source: Some(Box::new(Two(false))),
            ..Tails::default()
        };
        tails.read();
        let near = |name, owner, ms: f64| {
            let value: f64 = tails.value(name, owner).unwrap();
            assert!((value / ms - 1.0).abs() < 0.1, "{name}: {value}");
        };
        let thread = |tid| Owner::Thread { pid: 7, tid };
        near("wait50_ms", thread(7), 1.0);
        near("wake99_ms", thread(8), 64.0);
        near("wake50_ms", Owner::Process { pid: 7 }, 1.0);
        assert_eq!(tails.value("cpu%", thread(7)), None);
        assert_eq!(tails.value("wait99_ms", thread(9)), None);
        tails.read();
        assert_eq!(tails.value("wait50_ms", thread(7)), None, "nothing is new");
    }

    #[test]
    fn what_rules_percentiles_out_is_said() {
        assert!(silent(Bpf::Never).unwrap().contains("--bpf never"));
        for tail in Tail::ALL {
            assert_eq!(Tail::by_name(tail.name()), Some(tail));
        }
    }
}
