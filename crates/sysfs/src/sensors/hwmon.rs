//! Sensors of the board and the chips: temperatures, power and energy meters (hwmon, SCMI among them).
//!
//! Input: `/sys/class/hwmon/*/{temp,power,energy}N_*`. Output: degrees, watts and joules by sensor (`coretemp/Package id 0`).

use std::path::{Path, PathBuf};

use super::{Growing, Provider, ProviderDef, SensorColumn, SensorPlace, SensorValue, ValueKind};
use crate::files::{files, folders, name, number, text};
use crate::unavailable::Unavailable;

pub(super) const DEF: ProviderDef = ProviderDef {
    name: "hwmon",
    by_thread: false,
    prose: "temperatures, power and energy by sensor (hwmon)",
    columns: &[TEMPERATURE, POWER, ENERGY],
    open: |root| Hwmon::open(root).map(|p| Box::new(p) as Box<dyn Provider>),
};

const TEMPERATURE: SensorColumn = SensorColumn {
    name: "temperature_c",
    unit: "°C",
    kind: ValueKind::Level,
    prose: "temperature of a sensor",
};
const POWER: SensorColumn = SensorColumn {
    name: "sensor_power_w",
    unit: "W",
    kind: ValueKind::Level,
    prose: "power of a sensor",
};
const ENERGY: SensorColumn = SensorColumn {
    name: "sensor_energy_j",
    unit: "J",
    kind: ValueKind::Since,
    prose: "energy of a sensor",
};

/// Files by prefix and suffix, their columns, and the factors to the columns' units.
static KINDS: &[(&str, &str, &SensorColumn, f64)] = &[
    ("temp", "_input", &TEMPERATURE, 1e-3),
    ("power", "_average", &POWER, 1e-6),
    ("power", "_input", &POWER, 1e-6),
    ("energy", "_input", &ENERGY, 1e-6),
];

struct Sensor {
    file: PathBuf,
    column: &'static SensorColumn,
    factor: f64,
    place: SensorPlace,
    total: Growing,
}

struct Hwmon {
    sensors: Vec<Sensor>,
}

impl Hwmon {
    fn open(root: &Path) -> Result<Self, Unavailable> {
        let class = root.join("sys/class/hwmon");
        let mut sensors: Vec<Sensor> = Vec::new();
        for chip in folders(&class) {
            let chip_name = text(&chip.join("name")).unwrap_or_else(|| name(&chip).to_owned());
            for sensor in files(&chip)
                .into_iter()
                .filter_map(|file| sensor(&chip_name, file))
            {
                // If a sensor has both an average and an instantaneous value, the average is used.
                let known = |s: &Sensor| s.place == sensor.place && s.column == sensor.column;
                if !sensors.iter().any(known) {
                    sensors.push(sensor);
                }
            }
        }
        if sensors.is_empty() {
            let why = format!(
                "{} has no sensor of temperature, power or energy",
                class.display()
            );
            return Err(Unavailable::new(
                why,
                "load the chip's driver (`coretemp`, `k10temp`, `scmi-hwmon`)",
            ));
        }
        Ok(Self { sensors })
    }
}

fn sensor(chip: &str, file: PathBuf) -> Option<Sensor> {
    let base = name(&file);
    let (_, suffix, column, factor) = KINDS.iter().find(|(prefix, suffix, ..)| {
        let number = base
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(suffix));
        number.is_some_and(|n| n.parse::<u32>().is_ok())
    })?;
    let stem = base.strip_suffix(suffix)?;
    let label =
        text(&file.with_file_name(format!("{stem}_label"))).unwrap_or_else(|| stem.to_owned());
    number(&file)?;
    let place = SensorPlace::Zone {
        name: format!("{chip}/{label}").into(),
        cpus: None,
    };
    Some(Sensor {
        column,
        factor: *factor,
        place,
        total: Growing::default(),
        file,
    })
}

impl Provider for Hwmon {
    fn read(&mut self, into: &mut Vec<SensorValue>) {
        for sensor in &mut self.sensors {
            let Some(raw) = number(&sensor.file) else {
                continue;
            };
            let value = match sensor.column.kind {
                ValueKind::Level => Some(raw),
                ValueKind::Since => sensor.total.since(raw, None),
            };
            let of = |value: f64| SensorValue {
                column: *sensor.column,
                place: sensor.place.clone(),
                value: value * sensor.factor,
            };
            into.extend(value.map(of));
        }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn sensors_go_by_chip_and_label() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("sys/class/hwmon/hwmon0/name", "coretemp\n"),
                ("sys/class/hwmon/hwmon0/temp1_input", "45000\n"),
                ("sys/class/hwmon/hwmon0/temp1_label", "Package id 0\n"),
                ("sys/class/hwmon/hwmon0/temp1_crit", "100000\n"),
                ("sys/class/hwmon/hwmon0/temp10_input", "-2500\n"),
                ("sys/class/hwmon/hwmon1/name", "scmi_sensors\n"),
                ("sys/class/hwmon/hwmon1/power1_input", "1500000\n"),
                ("sys/class/hwmon/hwmon1/power1_average", "1250000\n"),
                ("sys/class/hwmon/hwmon1/energy1_input", "7000000\n"),
                ("sys/class/hwmon/hwmon1/energy1_label", "A53 cluster\n"),
            ],
        );
        let mut hwmon = Hwmon::open(root.path()).unwrap();
        let mut values = Vec::new();
        hwmon.read(&mut values);
        values.clear();
        write(
            root.path(),
            &[("sys/class/hwmon/hwmon1/energy1_input", "9500000\n")],
        );
        hwmon.read(&mut values);
        let seen: Vec<_> = values
            .iter()
            .map(|v| match &v.place {
                SensorPlace::Zone { name, .. } => (v.column.name, name.to_string(), v.value),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("temperature_c", "coretemp/Package id 0".to_owned(), 45.0),
                ("temperature_c", "coretemp/temp10".to_owned(), -2.5),
                (
                    "sensor_energy_j",
                    "scmi_sensors/A53 cluster".to_owned(),
                    2.5
                ),
                ("sensor_power_w", "scmi_sensors/power1".to_owned(), 1.25),
            ]
        );
    }
}
