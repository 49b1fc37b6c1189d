//! Pressure stall information: how long tasks waited for CPUs, memory or I/O.
//!
//! Input: `/proc/pressure/{cpu,memory,io}`. Output: seconds stalled (some task; all tasks) since the last reading.

use std::path::{Path, PathBuf};

use super::{Column, Growing, Kind, Place, Provider, ProviderDef, Value};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "pressure",
    by_thread: false,
    prose: "time that tasks stood waiting for CPUs, memory and I/O (PSI)",
    columns: &[CPU_SOME, MEMORY_SOME, MEMORY_FULL, IO_SOME, IO_FULL],
    open: |root| Pressure::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const fn column(name: &'static str, prose: &'static str) -> Column {
    Column {
        name,
        unit: "s",
        kind: Kind::Since,
        prose,
    }
}

const CPU_SOME: Column = column(
    "pressure_cpu_some_s",
    "time in which some task waited for a CPU",
);
const MEMORY_SOME: Column = column(
    "pressure_memory_some_s",
    "time in which some task waited for memory",
);
const MEMORY_FULL: Column = column(
    "pressure_memory_full_s",
    "time in which all tasks waited for memory",
);
const IO_SOME: Column = column(
    "pressure_io_some_s",
    "time in which some task waited for I/O",
);
const IO_FULL: Column = column(
    "pressure_io_full_s",
    "time in which all tasks waited for I/O",
);

/// Files, lines, and what they tell. All tasks waiting for a CPU is defined for cgroups only.
static LINES: &[(&str, &str, &Column)] = &[
    ("cpu", "some", &CPU_SOME),
    ("memory", "some", &MEMORY_SOME),
    ("memory", "full", &MEMORY_FULL),
    ("io", "some", &IO_SOME),
    ("io", "full", &IO_FULL),
];

struct Pressure {
    folder: PathBuf,
    totals: Vec<Growing>,
}

impl Pressure {
    fn open(root: &Path) -> Result<Self, Unavailable> {
        let folder = root.join("proc/pressure");
        if std::fs::read(folder.join("cpu")).is_err() {
            let mend = "start the kernel with `psi=1`, if it was built with CONFIG_PSI";
            return Err(Unavailable::new(
                format!("{} cannot be read", folder.join("cpu").display()),
                mend,
            ));
        }
        Ok(Self {
            folder,
            totals: vec![Growing::default(); LINES.len()],
        })
    }
}

impl Provider for Pressure {
    fn read(&mut self, into: &mut Vec<Value>) {
        let mut last: (&str, Option<String>) = ("", None);
        for ((file, line, column), total) in LINES.iter().zip(&mut self.totals) {
            if last.0 != *file {
                last = (file, std::fs::read_to_string(self.folder.join(file)).ok());
            }
            let us = last.1.as_deref().and_then(|text| total_us(text, line));
            let since = us.and_then(|us| total.since(us, None));
            into.extend(since.map(|us| Value {
                column,
                place: Place::Machine,
                value: us * 1e-6,
            }));
        }
    }
}

/// The total of `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn total_us(text: &str, line: &str) -> Option<f64> {
    let fields = text.lines().find_map(|l| l.strip_prefix(line))?;
    fields
        .split_whitespace()
        .find_map(|f| f.strip_prefix("total="))?
        .parse()
        .ok()
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
        let mut pressure = Pressure::open(root.path()).unwrap();
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
