//! What threads execute: names of children that a shell started, for records.

use std::collections::BTreeMap;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::PROC;

/// Names that the kernel has for threads (`/proc/TID/comm`), where they differ from their program's.
#[derive(Debug, Default)]
pub struct Executables {
    found: BTreeMap<u32, String>,
    /// Observations in which a thread was there.
    seen: BTreeMap<u32, u32>,
    wanted: bool,
}

/// A child has its parent's name until its `exec`, so a name is asked for again in the first observations of a thread.
const ASKED: u32 = 5;

impl Executables {
    /// Asks for names only if somebody keeps them.
    pub fn new(wanted: bool) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// By thread.
    pub fn found(self) -> BTreeMap<u32, String> {
        self.found
    }
}

impl Recorder for Executables {
    fn observation(&mut self, _: &Topology, observation: &Observation, _: &MetricBank) {
        for thread in observation.threads.iter().filter(|_| self.wanted) {
            let seen = self.seen.entry(thread.id.0).or_default();
            *seen = seen.saturating_add(1);
            // Powers of two: a late `exec` is found too, and asking costs little.
            if *seen > ASKED && !seen.is_power_of_two() {
                continue;
            }
            let Some(name) = PROC.name(thread.id.0) else {
                continue;
            };
            if *name == *thread.name {
                self.found.remove(&thread.id.0);
            } else {
                self.found.insert(thread.id.0, name);
            }
        }
    }

    fn decision(&mut self, _: &Topology, _: Nanos, _: &Placement, _: Applied) {}
}
