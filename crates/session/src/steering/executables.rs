//! Executable names of threads, for records. They identify, for example, the programs that a shell script starts.

use std::collections::BTreeMap;

use countersteer_model::driver::Recorder;
use countersteer_model::engine::{Applied, Observation};
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::Placement;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::PROC;

/// Kernel names of threads (`/proc/TID/comm`) that differ from their program's name.
#[derive(Debug, Default)]
pub struct Executables {
    found: BTreeMap<u32, String>,
    /// Number of observations of each thread, with TIDs as keys.
    seen: BTreeMap<u32, u32>,
    wanted: bool,
}

/// Number of a thread's first observations in which its name is read. A child process has its parent's name until it calls
/// `exec`.
const ASKED: u32 = 5;

impl Executables {
    /// Creates an empty collection; names are read only if `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Returns the names that differ from the program's name, with TIDs as keys.
    pub fn found(self) -> BTreeMap<u32, String> {
        self.found
    }
}

impl Recorder for Executables {
    fn observation(&mut self, _: &Topology, observation: &Observation, _: &MetricBank) {
        for thread in observation.threads.iter().filter(|_| self.wanted) {
            let seen = self.seen.entry(thread.id.0).or_default();
            *seen = seen.saturating_add(1);
            // After the first observations, the name is read only if the number of observations is a power of two. This finds a
            // late `exec` at a low cost.
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
