//! Pressure stall information: time that tasks waited for CPUs, memory or I/O.
//!
//! Input: `/proc/pressure/{cpu,memory,io}`. Output: seconds stalled (some task; all tasks) since the last sample.

use std::path::Path;

use super::{Growing, Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::procfs::{ProcError, Procfs};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "pressure",
    by_thread: false,
    prose: "time that tasks stood waiting for CPUs, memory and I/O (PSI)",
    columns: &[CPU_SOME, MEMORY_SOME, MEMORY_FULL, IO_SOME, IO_FULL],
    open: |root| PressureSensor::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const fn column(name: &'static str, prose: &'static str) -> SensorColumn {
    SensorColumn {
        name,
        unit: "s",
        kind: ValueKind::Since,
        prose,
    }
}

const CPU_SOME: SensorColumn = column(
    "pressure_cpu_some_s",
    "time in which some task waited for a CPU",
);
const MEMORY_SOME: SensorColumn = column(
    "pressure_memory_some_s",
    "time in which some task waited for memory",
);
const MEMORY_FULL: SensorColumn = column(
    "pressure_memory_full_s",
    "time in which all tasks waited for memory",
);
const IO_SOME: SensorColumn = column(
    "pressure_io_some_s",
    "time in which some task waited for I/O",
);
const IO_FULL: SensorColumn = column(
    "pressure_io_full_s",
    "time in which all tasks waited for I/O",
);

/// Resources, with the columns for stalls of some and of all tasks. For CPUs, stalls of all tasks are defined for cgroups only.
static RESOURCES: &[(&str, &SensorColumn, Option<&SensorColumn>)] = &[
    ("cpu", &CPU_SOME, None),
    ("memory", &MEMORY_SOME, Some(&MEMORY_FULL)),
    ("io", &IO_SOME, Some(&IO_FULL)),
];

struct PressureSensor {
    proc: Procfs,
    /// Totals by resource: of some tasks, and of all.
    totals: Vec<[Growing; 2]>,
}

impl PressureSensor {
    fn open(root: &Path) -> Result<Self, Unavailable> {
        let proc = Procfs::below(root);
        let missing = |error: ProcError| {
            let remedy = "start the kernel with `psi=1`, if it was built with CONFIG_PSI";
            Unavailable::new(error.why, remedy)
        };
        proc.pressure("cpu").map_err(missing)?;
        Ok(Self {
            proc,
            totals: vec![[Growing::default(); 2]; RESOURCES.len()],
        })
    }
}

impl Provider for PressureSensor {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        for ((resource, some, full), totals) in RESOURCES.iter().zip(&mut self.totals) {
            let Ok(now) = self.proc.pressure(resource) else {
                continue;
            };
            let parts = [(Some(*some), now.some_us), (*full, now.full_us)];
            for ((column, us), total) in parts.into_iter().zip(totals) {
                let (Some(column), Some(us)) = (column, us) else {
                    continue;
                };
                into.extend(total.since(us as f64, None).map(|us| SensorValue {
                    column: *column,
                    place: SensorPlace::Machine,
                    value: us * 1e-6,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn stalls_are_counted_since_the_last_reading() {
        let root = tempfile::tempdir().unwrap();
        let line = |total: u64| format!("some avg10=2.15 avg60=27.05 avg300=25.49 total={total}\n");
        write(root.path(), &[("proc/pressure/cpu", &line(5_000_000))]);
        let mut pressure = PressureSensor::open(root.path()).unwrap();
        let mut values = Vec::new();
        pressure.read(&mut values);
        write(
            root.path(),
            &[
                ("proc/pressure/cpu", &line(5_250_000)),
                ("proc/pressure/io", "nonsense"),
            ],
        );
        pressure.read(&mut values);
        let seen: Vec<_> = values.iter().map(|v| (v.column.name, v.value)).collect();
        assert_eq!(seen, [("pressure_cpu_some_s", 0.25)]);
    }
}
