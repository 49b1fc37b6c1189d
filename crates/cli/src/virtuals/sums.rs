//! What virtual counters said over a whole run, for the sums of its rows.
//!
//! Input: the rows of each period and what belonged to them. Output: by name and row of the sums, what was spent altogether; of
//! what holds at a moment, the mean by the time that the row ran.

use std::collections::HashMap;

use countersteer_core::counters::{Outside, Reading, Readings};
use countersteer_host::virtuals::{Kind, column_of};

use super::belongs::RowKey;
use crate::counted::Counted;

/// What belonged to rows until now.
pub struct Sums {
    columns: HashMap<&'static str, Column>,
}

struct Column {
    /// It is spent, not held.
    adds_up: bool,
    /// By row: the sum of weighted values, and of their weights.
    rows: HashMap<RowKey, (f64, f64)>,
}

impl Sums {
    /// Sums of the virtual counters that formulas name.
    pub fn new(counted: &Counted) -> Self {
        let names = counted.outside.iter().copied().chain(counted.derived.iter().map(|m| m.name));
        let column = |name| {
            let adds_up = column_of(name).is_some_and(|(_, column)| column.kind == Kind::Since);
            (name, Column { adds_up, rows: HashMap::new() })
        };
        Self { columns: names.map(column).collect() }
    }

    /// Adds the rows of a period.
    pub fn add(&mut self, readings: &Readings, outside: &Outside<'_>) {
        for (name, column) in &mut self.columns {
            for row in readings.rows() {
                let Some(value) = outside(name, row) else { continue };
                let weight = if column.adds_up { 1.0 } else { row.enabled.as_secs_f64() };
                let (sum, weights) = column.rows.entry(RowKey::of(row)).or_default();
                *sum += value * weight;
                *weights += weight;
            }
        }
    }

    /// What belongs to a row of the sums.
    pub fn of(&self, name: &str, row: &Reading) -> Option<f64> {
        let column = self.columns.get(name)?;
        let (sum, weights) = column.rows.get(&RowKey::of(row))?;
        if column.adds_up { Some(*sum) } else { (*weights > 0.0).then(|| sum / weights) }
    }
}

#[cfg(test)]
mod tests {
    use countersteer_core::counters::{Owner, Plan};
    use countersteer_core::units::{CpuId, Nanos};

    use super::*;

    #[test]
    fn what_is_spent_adds_up_and_what_holds_is_a_mean_by_time() {
        let outside = vec!["energy_j", "frequency_mhz"];
        let (plan, derived) = (Plan::nothing(), vec![crate::virtuals::derivable("sf").unwrap()]);
        let mut sums =
            Sums::new(&Counted { sets: Vec::new(), plan, metrics: Vec::new(), every: None, outside, derived });
        let row = |cpu, ms| {
            let owner = Owner::Thread { pid: 1, tid: 1 };
            Reading { enabled: Nanos::from_millis(ms), ..Reading::new(owner, Some(CpuId(cpu)), 0, 0) }
        };
        for (cpu, ms, joules, sf) in [(0, 30, 2.0, Some(1.0)), (1, 10, 0.5, Some(3.0)), (1, 10, 1.5, None)] {
            let mut readings = Readings::default();
            readings.push(row(cpu, ms), []);
            sums.add(&readings, &|name, _| if name == "energy_j" { Some(joules) } else { sf });
        }
        let of = |name, row| sums.of(name, &row);
        assert_eq!((of("energy_j", row(1, 50)), of("sf", row(0, 50))), (Some(4.0), Some(1.5)));
        assert_eq!(of("frequency_mhz", row(0, 50)), Some(1.5));
        assert_eq!(of("sf", Reading { core_type: 1, ..row(0, 50) }), None);
    }
}
