//! Percentiles of run-queue latency in each interval. BPF programs measure each wait while a column shows a percentile.
//!
//! Input: a source of wait times, and the thread or process of a row. Output: percentiles in milliseconds.

use std::collections::HashMap;

use countersteer_model::counters::Owner;
use countersteer_sysfs::procfs::{PROC, Status};
use countersteer_sysfs::waits::{Waits, Whose};

use crate::bpf::Bpf;
use crate::waits::{LatencySource, Wait, WaitsError};

/// Name of this source in the list of virtual counters' providers.
pub(crate) const PROVIDER: &str = "waits";

/// Percentile of run-queue latency (`Wait`) or wakeup latency (`Wake`), e.g. the median (50).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyPercentile {
    Wait50,
    Wait99,
    Wake50,
    Wake99,
}

impl LatencyPercentile {
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
            Self::Wait50 => wait.percentiles.map(|p| p.p50_ms),
            Self::Wait99 => wait.percentiles.map(|p| p.p99_ms),
            Self::Wake50 => wait.wakeups.map(|w| w.percentiles.p50_ms),
            Self::Wake99 => wait.wakeups.map(|w| w.percentiles.p99_ms),
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
    latency: Option<LatencySource>,
    waits: HashMap<Owner, Wait>,
}

impl Tails {
    /// Starts measuring if `on` is true, otherwise stops.
    ///
    /// # Errors
    /// BPF programs cannot be loaded.
    fn turn(&mut self, on: bool) -> Result<(), WaitsError> {
        if on && self.latency.is_none() {
            let whose = Whose {
                all: true,
                ..Whose::default()
            };
            self.latency = Some(LatencySource::open(&whose, Bpf::Always)?);
        } else if !on {
            *self = Self::default();
        }
        Ok(())
    }

    /// Starts measuring if one of these columns shows a percentile, otherwise stops. Returns the names of the other columns.
    ///
    /// # Errors
    /// BPF programs cannot be loaded.
    pub fn turn_to(&mut self, names: &[&'static str]) -> Result<Vec<&'static str>, WaitsError> {
        let (tails, others): (Vec<_>, Vec<_>) = names
            .iter()
            .partition(|name| LatencyPercentile::by_name(name).is_some());
        self.turn(!tails.is_empty())?;
        Ok(others)
    }

    /// Reads the wait times since the last call, by thread and process.
    pub fn read(&mut self) {
        self.waits.clear();
        let Some(latency) = &mut self.latency else {
            return;
        };
        let mut waits: HashMap<Owner, Waits> = HashMap::new();
        latency.source.read(&mut |news| {
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
        LatencyPercentile::by_name(name)?.of(self.waits.get(&owner)?)
    }
}

#[cfg(test)]
mod tests {
    use countersteer_sysfs::waits::{Histogram, MeasuredWaits, ThreadWaits, WaitSource};

    use super::*;

    /// Two threads of a process: one is woken 100 times and waits 1 ms each time. The other is woken once and waits 64 ms.
    struct Two(bool);

    impl WaitSource for Two {
        fn follow(&mut self, _: u32) {}

        fn follow_thread(&mut self, _: u32, _: bool) -> Option<u32> {
            None
        }

        fn read(&mut self, hear: &mut dyn FnMut(ThreadWaits)) {
            if std::mem::replace(&mut self.0, true) {
                return;
            }
            for (tid, times, ns) in [(7, 100, 1_000_000), (8, 1, 64_000_000)] {
                let mut woken = Histogram::default();
                woken.record(ns, times);
                let measured = Some(MeasuredWaits {
                    woken,
                    longest_ns: ns,
                    ..MeasuredWaits::default()
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
            latency: Some(LatencySource {
                source: Box::new(Two(false)),
                unmeasured: None,
            }),
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
        for tail in LatencyPercentile::ALL {
            assert_eq!(LatencyPercentile::by_name(tail.name()), Some(tail));
        }
    }
}
