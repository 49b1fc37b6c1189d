//! Clock frequency by CPU.
//!
//! Input: `/sys/devices/system/cpu/cpuN/cpufreq/*`. Output: megahertz per CPU. The source is the average measured by the
//! hardware (`cpuinfo_avg_freq`) if available, or else the kernel's last value (`scaling_cur_freq`).

use std::path::{Path, PathBuf};

use countersteer_model::units::CpuId;

use super::{Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::files::{all_cpus, number};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "frequency",
    by_thread: false,
    prose: "clock by CPU (cpufreq)",
    columns: &[FREQUENCY],
    open: |root| Frequency::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const FREQUENCY: SensorColumn = SensorColumn {
    name: "frequency_mhz",
    unit: "MHz",
    kind: ValueKind::Level,
    prose: "clock of a CPU",
};

struct Frequency {
    cpus: Vec<(CpuId, PathBuf)>,
}

impl Frequency {
    fn open(root: &Path) -> Result<Self, Unavailable> {
        let cpu = |(cpu, folder): (CpuId, PathBuf)| {
            let file = |name: &str| {
                Some(folder.join("cpufreq").join(name)).filter(|f| number(f).is_some())
            };
            let known = file("cpuinfo_avg_freq").or_else(|| file("scaling_cur_freq"));
            Some((cpu, known?))
        };
        let cpus: Vec<_> = all_cpus(root).into_iter().filter_map(cpu).collect();
        if cpus.is_empty() {
            let remedy =
                "nothing to do in a virtual machine; elsewhere, a cpufreq driver must be loaded";
            return Err(Unavailable::new("no CPU has a cpufreq folder", remedy));
        }
        Ok(Self { cpus })
    }
}

impl Provider for Frequency {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        for (cpu, file) in &self.cpus {
            // The hardware may give no value for a CPU that slept.
            let value = number(file).map(|khz| khz * 1e-3);
            into.extend(value.map(|value| SensorValue {
                column: FREQUENCY,
                place: SensorPlace::Cpu(*cpu),
                value,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn the_hardwares_average_goes_before_the_kernels_guess() {
        let root = tempfile::tempdir().unwrap();
        let cpu = "sys/devices/system/cpu";
        write(
            root.path(),
            &[
                (&format!("{cpu}/cpu0/cpufreq/scaling_cur_freq"), "800000\n"),
                (&format!("{cpu}/cpu0/cpufreq/cpuinfo_avg_freq"), "2400000\n"),
                (
                    &format!("{cpu}/cpu10/cpufreq/scaling_cur_freq"),
                    "3700000\n",
                ),
                (
                    &format!("{cpu}/cpu2/cpufreq/scaling_cur_freq"),
                    "<unknown>\n",
                ),
                (&format!("{cpu}/cpufreq/policy0/scaling_cur_freq"), "1\n"),
            ],
        );
        let mut values = Vec::new();
        Frequency::open(root.path()).unwrap().read(&mut values);
        let seen: Vec<_> = values.into_iter().map(|v| (v.place, v.value)).collect();
        assert_eq!(
            seen,
            [
                (SensorPlace::Cpu(CpuId(0)), 2400.0),
                (SensorPlace::Cpu(CpuId(10)), 3700.0)
            ]
        );
    }
}
