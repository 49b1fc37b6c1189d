//! Disturbances of timed runs: other programs on the same CPUs or their SMT siblings, clocks that change, thermal throttling.
//!
//! Input: /proc/stat, cpufreq and throttle counters before and after each run. Output: sentences. A source that the machine
//! lacks says nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::CpuId;
use countersteer_sysfs::files::{cpu, number};
use countersteer_sysfs::procfs::Procfs;
use countersteer_sysfs::sensors::{SensorPlace as Of, SensorSet};

use super::places::NamedCpus;
use super::runner::EndedRun;

/// Ticks per second of the kernel's `/proc/stat` (USER_HZ).
const TICKS_PER_S: f64 = 100.0;
/// Measured time below which the kernel's ticks are too coarse.
const LEAST_S: f64 = 1.0;
/// Share of one CPU that disturbs.
const LOAD: f64 = 0.05;
/// Ratio of clocks that disturbs.
const CLOCKS: f64 = 1.05;

/// State of the machine at one time.
struct MachineState {
    /// Busy ticks by CPU.
    busy: BTreeMap<CpuId, f64>,
    /// Thermal events so far, of all CPUs.
    throttled: f64,
}

/// Sums over the runs of an arm.
#[derive(Clone, Debug, Default)]
pub struct Disturbance {
    elapsed_s: f64,
    other_s: f64,
    sibling_s: f64,
    throttled: f64,
    /// Mean clock of the arm's CPUs after each run.
    mhz: Vec<f64>,
}

/// Observer of a machine.
pub struct Observer {
    root: PathBuf,
    proc: Procfs,
    clocks: Option<SensorSet>,
    before: Option<MachineState>,
}

impl Observer {
    /// Observes the machine whose file systems are below `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            proc: Procfs::below(root),
            clocks: SensorSet::open(root, &["frequency_mhz"]).ok(),
            before: None,
        }
    }

    /// Takes the state before a run.
    pub fn begin(&mut self) {
        self.before = Some(self.look());
    }

    /// Adds what happened since [`Self::begin`] on the CPUs of a run.
    pub fn end(&mut self, place: &NamedCpus, run: &EndedRun, into: &mut Disturbance) {
        let after = self.look();
        let Some(before) = self.before.take() else {
            return;
        };
        let busy_s = |cpus: &CpuSet| {
            let ticks = cpus
                .iter()
                .filter_map(|cpu| Some(after.busy.get(&cpu)? - before.busy.get(&cpu)?));
            ticks.sum::<f64>() / TICKS_PER_S
        };
        into.elapsed_s += run.elapsed_s;
        into.other_s += busy_s(&place.cpus) - run.user_s - run.system_s;
        into.sibling_s += busy_s(&place.siblings);
        into.throttled += after.throttled - before.throttled;
        let clocks = self.clocks.as_mut().map(|c| c.read()).unwrap_or_default();
        let own: Vec<f64> = clocks
            .iter()
            .filter(|v| matches!(v.place, Of::Cpu(cpu) if place.cpus.contains(cpu)))
            .map(|v| v.value)
            .collect();
        if !own.is_empty() {
            into.mhz.push(own.iter().sum::<f64>() / own.len() as f64);
        }
    }

    fn look(&self) -> MachineState {
        let busy: BTreeMap<CpuId, f64> = self.proc.busy_ticks().into_iter().collect();
        let of = |id: &CpuId, name: &str| {
            let folder = cpu(&self.root, id.0).join("thermal_throttle");
            number(&folder.join(name)).unwrap_or(0.0)
        };
        // All CPUs of a package show the same count of it.
        let package = busy.keys().map(|id| of(id, "package_throttle_count"));
        let package = package.fold(0.0, f64::max);
        let cores: f64 = busy.keys().map(|id| of(id, "core_throttle_count")).sum();
        MachineState {
            throttled: cores + package,
            busy,
        }
    }
}

impl Disturbance {
    /// Returns the CPU time of other programs on the CPUs of the runs, in seconds.
    pub(crate) const fn other_s(&self) -> f64 {
        self.other_s
    }

    /// Returns a sentence for each disturbance.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.elapsed_s >= LEAST_S {
            let share = |busy_s: f64| busy_s / self.elapsed_s;
            if share(self.other_s) > LOAD {
                words.push(format!(
                    "other programs had {:.0} % of a CPU there during the runs; end them, or choose other CPUs (--on)",
                    100.0 * share(self.other_s)
                ));
            }
            if share(self.sibling_s) > LOAD {
                words.push(format!(
                    "SMT siblings of its CPUs were busy for {:.0} % of the time, which slows their cores",
                    100.0 * share(self.sibling_s)
                ));
            }
        }
        if self.throttled > 0.0 {
            words.push(format!(
                "the processor was throttled for its temperature {:.0} times",
                self.throttled
            ));
        }
        let least = self.mhz.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.mhz.iter().copied().fold(0.0, f64::max);
        if most > CLOCKS * least {
            words.push(format!(
                "the clock of its CPUs was between {least:.0} and {most:.0} MHz after runs; a fixed frequency (governor `performance`, no turbo) repeats better"
            ));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;
    use countersteer_sysfs::launch::ExitEnding;

    use super::*;

    const RUN: EndedRun = EndedRun {
        elapsed_s: 2.0,
        user_s: 1.9,
        system_s: 0.1,
        ending: ExitEnding::Exited(0),
    };

    fn place() -> NamedCpus {
        NamedCpus {
            name: "big".into(),
            cpus: "0".parse().unwrap(),
            siblings: "1".parse().unwrap(),
            confined: true,
        }
    }

    /// Busy ticks of CPUs 0 and 1, thermal events and clock of CPU 0.
    fn machine(root: &Path, ticks: [u32; 2], throttled: u32, khz: u32) {
        let stat = format!(
            "cpu  0 0 0 0 0 0 0\ncpu0 {} 0 0 0 0 0 0\ncpu1 {} 0 0 0 0 0 0\n",
            ticks[0], ticks[1]
        );
        let cpu = "sys/devices/system/cpu/cpu0";
        write(
            root,
            &[
                ("proc/stat", &stat),
                (
                    &format!("{cpu}/thermal_throttle/core_throttle_count"),
                    &throttled.to_string(),
                ),
                (&format!("{cpu}/cpufreq/scaling_cur_freq"), &khz.to_string()),
            ],
        );
    }

    #[test]
    fn load_siblings_throttling_and_clocks_are_named() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path(), [0, 0], 0, 3_000_000);
        let mut observer = Observer::new(root.path());
        let mut found = Disturbance::default();
        observer.begin();
        machine(root.path(), [200, 0], 0, 3_000_000);
        observer.end(&place(), &RUN, &mut found);
        assert!(found.words().is_empty(), "{:?}", found.words());
        observer.begin();
        machine(root.path(), [500, 90], 3, 2_000_000);
        observer.end(&place(), &RUN, &mut found);
        let words = found.words().join("\n");
        for part in [
            "had 25 % of a CPU",
            "busy for 22 %",
            "3 times",
            "2000 and 3000 MHz",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn a_machine_that_says_nothing_disturbs_nothing() {
        let root = tempfile::tempdir().unwrap();
        let mut observer = Observer::new(root.path());
        let mut found = Disturbance::default();
        observer.begin();
        let run = EndedRun {
            user_s: 0.0,
            system_s: 0.0,
            ..RUN
        };
        observer.end(&place(), &run, &mut found);
        assert!(found.words().is_empty());
    }
}
