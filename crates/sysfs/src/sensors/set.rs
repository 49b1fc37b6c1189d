//! Set of virtual counters that are read together.
//!
//! Input: their names. Output: their values at every sample; columns that count yield the difference from the previous sample.

use std::path::Path;

use countersteer_model::units::{CpuId, Nanos};

use super::{PROVIDERS, Provider, SensorColumn, SensorValue, column_of};
use crate::unavailable::Unavailable;

/// Providers of the named counters, with their last values.
#[derive(Default)]
pub struct SensorSet {
    columns: Vec<&'static SensorColumn>,
    /// Providers in the order of the table.
    providers: Vec<Box<dyn Provider>>,
    values: Vec<SensorValue>,
}

impl std::fmt::Debug for SensorSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SensorSet")
            .field("columns", &self.columns)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

impl SensorSet {
    /// Opens virtual counters of the machine whose file systems are below `root`, and takes a first sample as the base of
    /// differences.
    ///
    /// ```
    /// use countersteer_sysfs::sensors::SensorSet;
    ///
    /// # if SensorSet::open(std::path::Path::new("/"), &["runqueue_wait_ms"]).is_err() { return Ok(()); }
    /// let mut sensors = SensorSet::open(std::path::Path::new("/"), &["runqueue_wait_ms"])?;
    /// sensors.follow(std::process::id());
    /// let sum: u64 = (0..1000).sum();
    /// for value in sensors.read() {
    ///     println!("{}: {} {}", value.column.name, value.value, value.column.unit);
    /// }
    /// # assert_eq!(sum, 499_500);
    /// # Ok::<(), countersteer_sysfs::unavailable::Unavailable>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a name is unknown, or if this machine has no values for it.
    pub fn open(root: &Path, names: &[&str]) -> Result<Self, Unavailable> {
        let mut sensors = Self::default();
        let mut opened: Vec<usize> = Vec::new();
        for name in names {
            let Some((provider, column)) = column_of(name) else {
                let known: Vec<&str> = PROVIDERS
                    .iter()
                    .flat_map(|p| p.columns)
                    .map(|c| c.name)
                    .collect();
                let remedy = format!("there are {}", known.join(", "));
                return Err(Unavailable::new(
                    format!("there is no virtual counter `{name}`"),
                    remedy,
                ));
            };
            let row = PROVIDERS
                .iter()
                .position(|p| p.name == provider.name)
                .unwrap_or_default();
            if let Err(place) = opened.binary_search(&row) {
                opened.insert(place, row);
                let of_name = |e: Unavailable| {
                    Unavailable::new(format!("`{name}` cannot be read: {}", e.why), e.remedy)
                };
                sensors
                    .providers
                    .insert(place, (provider.open)(root).map_err(of_name)?);
            }
            if !sensors.columns.contains(&column) {
                sensors.columns.push(column);
            }
        }
        sensors.read();
        sensors.values.clear();
        Ok(sensors)
    }

    /// True if the set is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// Begins to observe a thread, for values by thread.
    pub fn follow(&mut self, tid: u32) {
        self.providers.iter_mut().for_each(|p| p.follow(tid));
    }

    /// Ends the observation of a thread, which may have exited.
    pub fn leave(&mut self, tid: u32) {
        self.providers.iter_mut().for_each(|p| p.leave(tid));
    }

    /// Adds `time` that a thread ran on a CPU since the last sample.
    pub fn ran(&mut self, tid: u32, cpu: CpuId, time: Nanos) {
        self.providers
            .iter_mut()
            .for_each(|p| p.ran(tid, cpu, time));
    }

    /// Reads all values.
    pub fn read(&mut self) -> &[SensorValue] {
        self.values.clear();
        self.providers
            .iter_mut()
            .for_each(|p| p.read(&mut self.values));
        self.values.retain(|v| self.columns.contains(&&v.column));
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::fake_root::write;

    use super::*;

    #[test]
    fn only_what_was_named_is_read_and_since_the_last_time() {
        let root = tempfile::tempdir().unwrap();
        let zone = "sys/class/powercap/intel-rapl:0";
        let chip = "sys/class/hwmon/hwmon0";
        let meter = |uj: &str| write(root.path(), &[(&format!("{zone}/energy_uj"), uj)]);
        meter("1000000");
        write(
            root.path(),
            &[
                (&format!("{chip}/temp1_input"), "45000"),
                (&format!("{chip}/power1_input"), "9"),
            ],
        );
        let mut sensors = SensorSet::open(root.path(), &["energy", "temperature_c"]).unwrap();
        meter("3500000");
        let seen: Vec<_> = sensors
            .read()
            .iter()
            .map(|v| (v.column.name, v.value))
            .collect();
        assert_eq!(seen, [("energy_j", 2.5), ("temperature_c", 45.0)]);
        assert_eq!(sensors.read()[0].value, 0.0);
    }

    #[test]
    fn what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let why = |name: &str| {
            SensorSet::open(root.path(), &[name])
                .unwrap_err()
                .to_string()
        };
        assert!(
            why("energie_j").contains("there are energy_j"),
            "{}",
            why("energie_j")
        );
        assert!(
            why("energy_j").starts_with("`energy_j` cannot be read"),
            "{}",
            why("energy_j")
        );
    }
}
