//! Values of derived counters for rows of samples.
//!
//! Input: the values of an interval's rows. Output: one number by counter and row: the row's own value, or the mean by time
//! over the rows that a sum includes.

use std::collections::HashMap;

use countersteer_model::counters::{Owner, Sample, Samples};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos};

use super::derived::OfRow;

/// Derived values of an interval: by counter name, and by the rows that may include them.
#[derive(Debug, Default)]
pub(crate) struct DerivedRows(HashMap<&'static str, HashMap<RowKey, Vec<DerivedValue>>>);

/// Key of a row that is the same in every interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    owner: Owner,
    /// CPU of a per-CPU row; `None` for other rows, since a thread may migrate.
    cpu: Option<CpuId>,
    core_type: CoreTypeId,
    set: u32,
}

/// Derived value of one thread's row, with the row's time.
#[derive(Debug)]
struct DerivedValue {
    end: Nanos,
    enabled: Nanos,
    value: f64,
}

impl RowKey {
    pub fn of(row: &Sample) -> Self {
        let cpu = row.cpu.filter(|_| row.owner == Owner::Cpu);
        Self {
            owner: row.owner,
            cpu,
            core_type: row.core_type,
            set: row.set,
        }
    }
}

impl DerivedRows {
    /// Replaces the stored values by those of an interval.
    pub fn replace(&mut self, of_rows: &[OfRow], readings: &Samples) {
        self.0.values_mut().for_each(HashMap::clear);
        for OfRow { row, name, value } in of_rows {
            self.derive(name, &readings.rows()[*row], *value);
        }
    }

    /// Stores a derived value for its thread's row, and for all rows that may include this thread.
    fn derive(&mut self, name: &'static str, row: &Sample, value: f64) {
        let Owner::Thread { pid, .. } = row.owner else {
            return;
        };
        let rows = self.0.entry(name).or_default();
        for owner in [row.owner, Owner::Process { pid }, Owner::Cpu, Owner::Total] {
            let part = DerivedValue {
                end: row.end,
                enabled: row.enabled,
                value,
            };
            rows.entry(RowKey::of(&Sample { owner, ..*row }))
                .or_default()
                .push(part);
        }
    }

    /// Returns true if a counter of this name has been derived in any interval.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the value of a counter for a row; `None` if the row has none.
    pub fn of(&self, name: &str, row: &Sample) -> Option<f64> {
        let parts = self.0.get(name)?.get(&RowKey::of(row))?;
        let same = parts
            .iter()
            .find(|p| (p.end, p.enabled) == (row.end, row.enabled));
        same.map_or_else(|| mean_by_time(parts), |part| Some(part.value))
    }
}

fn mean_by_time(parts: &[DerivedValue]) -> Option<f64> {
    let all_ns: f64 = parts.iter().map(|p| p.enabled.0 as f64).sum();
    let sum: f64 = parts.iter().map(|p| p.value * p.enabled.0 as f64).sum();
    (all_ns > 0.0).then(|| sum / all_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(owner: Owner, cpu: Option<u32>) -> Sample {
        Sample::new(owner, cpu.map(CpuId), CoreTypeId(0), 0)
    }

    #[test]
    fn what_is_derived_is_its_rows_own_and_a_mean_by_time_in_sums() {
        let mut derived = DerivedRows::default();
        let mut readings = Samples::default();
        let thread = |tid| Owner::Thread { pid: 1, tid };
        let ran = |tid, cpu, core_type, ms| {
            let enabled = Nanos::from_millis(ms);
            Sample {
                enabled,
                end: enabled,
                core_type: CoreTypeId(core_type),
                ..row(thread(tid), Some(cpu))
            }
        };
        let rows = [
            ran(1, 0, 0, 10),
            ran(1, 1, 0, 30),
            ran(1, 2, 1, 5),
            ran(2, 0, 0, 40),
        ];
        rows.iter().for_each(|row| readings.push(*row, []));
        let of_rows: Vec<OfRow> = (0..)
            .zip([2.0, 1.0, 9.0, 3.0])
            .map(|(row, value)| OfRow {
                row,
                name: "sf",
                value,
            })
            .collect();
        derived.replace(&of_rows, &readings);
        let sum = |owner, cpu, core_type| Sample {
            core_type: CoreTypeId(core_type),
            ..row(owner, cpu)
        };
        let of = |row: &Sample| derived.of("sf", row);
        assert_eq!(
            (of(&rows[0]), of(&rows[1]), of(&rows[2])),
            (Some(2.0), Some(1.0), Some(9.0))
        );
        assert_eq!(
            (
                of(&sum(thread(1), Some(1), 0)),
                of(&sum(thread(1), Some(2), 1))
            ),
            (Some(1.25), Some(9.0))
        );
        assert_eq!(
            (
                of(&sum(Owner::Process { pid: 1 }, None, 0)),
                of(&sum(Owner::Total, None, 1))
            ),
            (Some(2.125), Some(9.0))
        );
        assert_eq!(
            (
                of(&sum(Owner::Cpu, Some(0), 0)),
                of(&sum(thread(3), None, 0))
            ),
            (Some(2.8), None)
        );
        derived.replace(&[], &Samples::default());
        assert_eq!(
            derived.of("sf", &rows[0]),
            None,
            "the next period has nothing to say"
        );
    }
}
