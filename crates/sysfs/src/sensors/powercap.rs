//! Energy by RAPL zone, through the kernel's powercap tree (Intel and AMD).
//!
//! Input: `/sys/class/powercap/*/energy_uj`. Output: joules per zone (`package-0`, `package-0/core`, `package-0/dram`, `psys`).
//! Since 5.10, only root may read the files (CVE-2020-8694).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersteer_model::cpuset::CpuSet;

use super::{Growing, Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::files::{all_cpus, folders, name, number, text, value};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "powercap",
    by_thread: false,
    prose: "energy by RAPL zone (powercap)",
    columns: &[ENERGY],
    open: |root| Powercap::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const ENERGY: SensorColumn = SensorColumn {
    name: "energy_j",
    unit: "J",
    kind: ValueKind::Since,
    prose: "energy spent by a RAPL zone",
};

/// True if this is the energy of a package, not of a part of it or of the platform around it.
pub(super) fn is_package(value: &SensorValue) -> bool {
    let SensorPlace::Zone { name, .. } = &value.place else {
        return false;
    };
    value.column == ENERGY && name.starts_with("package-") && !name.contains('/')
}

struct Zone {
    file: PathBuf,
    /// True for a package, not a part of it or the platform around it.
    is_package: bool,
    range_uj: Option<f64>,
    place: SensorPlace,
    total: Growing,
}

pub(super) struct Powercap {
    zones: Vec<Zone>,
}

impl Powercap {
    pub(super) fn open(root: &Path) -> Result<Self, Unavailable> {
        let class = root.join("sys/class/powercap");
        let mut zones = Vec::new();
        let mut refused = None;
        for folder in folders(&class) {
            let file = folder.join("energy_uj");
            match std::fs::read(&file) {
                Ok(_) => zones.push(zone(root, &class, &folder, file)),
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => refused = Some(file),
                Err(_) => {}
            }
        }
        match (zones.is_empty(), refused) {
            (false, _) => Ok(Self { zones }),
            (true, Some(file)) => Err(Unavailable::new(
                format!("{} is readable by root only", file.display()),
                "run as root, or let a group read it by a udev rule",
            )),
            (true, None) => Err(Unavailable::new(
                format!("{} has no zone with an energy counter", class.display()),
                "load `intel_rapl_common` and `intel_rapl_msr`; virtual machines and most Arm machines have none",
            )),
        }
    }

    /// Keeps only the packages; `None` if there are none.
    pub(super) fn of_packages(mut self) -> Option<Self> {
        self.zones.retain(|z| z.is_package);
        (!self.zones.is_empty()).then_some(self)
    }
}

/// Returns a zone, named by its own and its parents' names: `intel-rapl:0:1` is inside `intel-rapl:0`.
fn zone(root: &Path, class: &Path, folder: &Path, file: PathBuf) -> Zone {
    let id = name(folder);
    let top = id.match_indices(':').nth(1).map_or(id, |(at, _)| &id[..at]);
    let named = |id: &str| text(&class.join(id).join("name")).unwrap_or_else(|| id.to_owned());
    let outer = named(top);
    let inner = named(id);
    let package = outer.strip_prefix("package-").and_then(|p| p.parse().ok());
    let is_package = package.is_some() && top == id;
    let name = if top == id {
        outer
    } else {
        format!("{outer}/{inner}")
    };
    let cpus = package
        .map(|p| package_cpus(root, p))
        .filter(|c| !c.is_empty())
        .map(Arc::new);
    let range_uj = number(&folder.join("max_energy_range_uj"));
    Zone {
        file,
        is_package,
        range_uj,
        place: SensorPlace::Zone {
            name: name.into(),
            cpus,
        },
        total: Growing::default(),
    }
}

fn package_cpus(root: &Path, package: u32) -> CpuSet {
    let is_of =
        |folder: &Path| value(&folder.join("topology/physical_package_id")) == Some(package);
    let cpus = all_cpus(root).into_iter();
    cpus.filter(|(_, folder)| is_of(folder))
        .map(|(cpu, _)| cpu)
        .collect()
}

impl Provider for Powercap {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        for zone in &mut self.zones {
            let Some(total) = number(&zone.file) else {
                continue;
            };
            if let Some(uj) = zone.total.since(total, zone.range_uj) {
                into.push(SensorValue {
                    column: ENERGY,
                    place: zone.place.clone(),
                    value: uj * 1e-6,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn zones_are_named_by_where_they_lie_and_survive_a_wrap() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("sys/class/powercap/intel-rapl/enabled", "1"),
                ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
                ("sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n"),
                (
                    "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
                    "262143328850\n",
                ),
                ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
                (
                    "sys/class/powercap/intel-rapl:0:0/energy_uj",
                    "262143000000\n",
                ),
                (
                    "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj",
                    "262143328850\n",
                ),
                ("sys/class/powercap/intel-rapl:1/name", "psys\n"),
                ("sys/class/powercap/intel-rapl:1/energy_uj", "5\n"),
                (
                    "sys/devices/system/cpu/cpu0/topology/physical_package_id",
                    "0\n",
                ),
                (
                    "sys/devices/system/cpu/cpu1/topology/physical_package_id",
                    "0\n",
                ),
                (
                    "sys/devices/system/cpu/cpu2/topology/physical_package_id",
                    "1\n",
                ),
            ],
        );
        let mut powercap = Powercap::open(root.path()).unwrap();
        let mut values = Vec::new();
        powercap.read(&mut values);
        assert_eq!(values, []);
        write(
            root.path(),
            &[
                ("sys/class/powercap/intel-rapl:0/energy_uj", "3500000\n"),
                ("sys/class/powercap/intel-rapl:0:0/energy_uj", "671150\n"),
                ("sys/class/powercap/intel-rapl:1/energy_uj", "5\n"),
            ],
        );
        powercap.read(&mut values);
        let cpus = Some(Arc::new(CpuSet::first(2)));
        let zone = |name: &str, cpus: &Option<Arc<CpuSet>>| SensorPlace::Zone {
            name: name.into(),
            cpus: cpus.clone(),
        };
        let seen: Vec<_> = values.into_iter().map(|v| (v.place, v.value)).collect();
        assert_eq!(
            seen,
            [
                (zone("package-0", &cpus), 2.5),
                (zone("package-0/core", &cpus), 1.0),
                (zone("psys", &None), 0.0)
            ]
        );
    }
}
