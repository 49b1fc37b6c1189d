//! Counts over time: lines for any event, metric or virtual counter, by owner and core type.
//!
//! Input: a [`Record`] of a counting session. Output: a [`CountedMeasure`] for each event, metric and virtual counter, with a [`CountedLine`]
//! for each thread (or process, or CPU) on each core type. Events are rates over the time for which they were counted. Counts of
//! multiplexed event sets cover parts of an interval and are never scaled to the whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersteer_model::events::EVENTS;

use crate::record::{KernelCpus, ReadingRow, Record, VirtualRow};

/// Quantity that was counted, with its values over time.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedMeasure {
    pub name: Arc<str>,
    /// Unit of the values; empty if the record does not contain it.
    pub unit: String,
    /// Values over time, one line per owner and core type.
    pub lines: Vec<CountedLine>,
}

/// Values of one owner on one core type, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedLine {
    pub owner: String,
    /// Name of the core type in the kernel's PMUs; empty if there is only one type.
    pub core_type: Arc<str>,
    /// Points of the line, in order of time.
    pub points: Vec<CountedPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountedPoint {
    /// End of the sample's interval, in ns.
    pub at_ns: u64,
    /// Instructions of the owner from its first sample to this point; `None` if they were not counted.
    pub instructions: Option<f64>,
    /// Value of the quantity in the interval.
    pub value: f64,
}

/// Totals of one owner on one core type over the session.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    pub owner: String,
    pub core_type: Arc<str>,
    /// Time for which counters were enabled for the owner, in ns.
    pub enabled_ns: u64,
    /// Total count of each event, in the order of the record's count columns; `None` if the event was not counted.
    pub counts: Vec<Option<u64>>,
}

/// True if a record is of a counting session, which has no policy and no scores.
#[must_use]
pub fn is_counted(record: &Record) -> bool {
    record.manifest.engine == "counters"
}

/// Owner of counts, in the order of display.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CountOwner {
    Thread(u32),
    Process(u32),
    Cpu(u32),
    /// Thermal zone, or an owner that exists once per session, by name.
    Named(Arc<str>),
}

impl CountOwner {
    fn of(row: &ReadingRow) -> Self {
        match (row.thread, row.pid, row.cpu) {
            (Some(tid), ..) => Self::Thread(tid),
            (_, Some(pid), _) => Self::Process(pid),
            (.., Some(cpu)) => Self::Cpu(cpu),
            _ => Self::Named(Arc::clone(&row.name)),
        }
    }

    fn of_virtual(row: &VirtualRow) -> Self {
        match (row.thread, row.cpu) {
            (Some(tid), _) => Self::Thread(tid),
            (_, Some(cpu)) => Self::Cpu(cpu),
            _ if row.place.is_empty() => Self::Named(Arc::clone(&row.scope)),
            _ => Self::Named(Arc::clone(&row.place)),
        }
    }

    fn label(&self, name: &str, kernel: &KernelCpus) -> String {
        match self {
            Self::Thread(id) | Self::Process(id) => format!("{name} ({id})"),
            Self::Cpu(cpu) => format!("CPU {}", kernel.cpu(*cpu)),
            Self::Named(name) => name.to_string(),
        }
    }
}

type CountedKey = (CountOwner, Arc<str>);

/// Returns every event, metric and virtual counter of a record with its values, in the record's order.
#[must_use]
pub fn measures(record: &Record) -> Vec<CountedMeasure> {
    let instructions = Instructions::of(record);
    let mut measures = Vec::new();
    for (column, name) in record.reading_counts.iter().enumerate() {
        let value = |row: &ReadingRow| {
            let seconds = row.running_ns as f64 * 1e-9;
            let count = row.counts.get(column).copied().flatten()?;
            (seconds > 0.0).then(|| count as f64 / seconds)
        };
        let unit = EVENTS.iter().find(|def| def.name == &**name);
        let unit = unit.map_or("", |def| def.unit);
        let unit = if unit.is_empty() { "1" } else { unit };
        measures.push(CountedMeasure {
            name: Arc::clone(name),
            unit: format!("{unit}/s"),
            lines: lines(record, &instructions, value),
        });
    }
    for (column, name) in record.reading_metrics.iter().enumerate() {
        let value = |row: &ReadingRow| row.metrics.get(column).copied().flatten();
        measures.push(CountedMeasure {
            name: Arc::clone(name),
            unit: String::new(),
            lines: lines(record, &instructions, value),
        });
    }
    measures.extend(virtuals(record, &instructions));
    measures.retain(|measure| !measure.lines.is_empty());
    measures
}

fn lines(
    record: &Record,
    instructions: &Instructions,
    value: impl Fn(&ReadingRow) -> Option<f64>,
) -> Vec<CountedLine> {
    let kernel = record.kernel_cpus();
    let mut lines: BTreeMap<CountedKey, CountedLine> = BTreeMap::new();
    for row in &record.readings {
        let Some(value) = value(row).filter(|v| v.is_finite()) else {
            continue;
        };
        let owner = CountOwner::of(row);
        let point = CountedPoint {
            at_ns: row.at_ns,
            instructions: instructions.at(&owner, row.at_ns),
            value,
        };
        let label = owner.label(&row.name, &kernel);
        let line = lines.entry((owner, Arc::clone(&row.core_type)));
        let line = line.or_insert_with(|| CountedLine {
            owner: label,
            core_type: Arc::clone(&row.core_type),
            points: Vec::new(),
        });
        line.points.push(point);
    }
    in_order(lines.into_values())
}

fn in_order(lines: impl Iterator<Item = CountedLine>) -> Vec<CountedLine> {
    let ordered = |mut line: CountedLine| {
        line.points.sort_by_key(|point| point.at_ns);
        line
    };
    lines.map(ordered).collect()
}

fn virtuals(record: &Record, instructions: &Instructions) -> Vec<CountedMeasure> {
    let kernel = record.kernel_cpus();
    let mut measures: Vec<(CountedMeasure, BTreeMap<CountOwner, CountedLine>)> = Vec::new();
    for row in &record.virtuals {
        let known = measures.iter().position(|(m, _)| m.name == row.name);
        let at = known.unwrap_or_else(|| {
            let measure = CountedMeasure {
                name: Arc::clone(&row.name),
                unit: row.unit.to_string(),
                lines: Vec::new(),
            };
            measures.push((measure, BTreeMap::new()));
            measures.len() - 1
        });
        let owner = CountOwner::of_virtual(row);
        let point = CountedPoint {
            at_ns: row.at_ns,
            instructions: instructions.at(&owner, row.at_ns),
            value: row.value,
        };
        let label = owner.label(&row.place, &kernel);
        let line = measures[at].1.entry(owner).or_insert_with(|| CountedLine {
            owner: label,
            core_type: Arc::from(""),
            points: Vec::new(),
        });
        line.points.push(point);
    }
    let measure =
        |(measure, lines): (CountedMeasure, BTreeMap<CountOwner, CountedLine>)| CountedMeasure {
            lines: in_order(lines.into_values()),
            ..measure
        };
    measures.into_iter().map(measure).collect()
}

/// Returns the totals by owner and core type, in the order of the lines.
#[must_use]
pub fn totals(record: &Record) -> Vec<Total> {
    let kernel = record.kernel_cpus();
    let mut totals: BTreeMap<CountedKey, Total> = BTreeMap::new();
    for row in &record.readings {
        let owner = CountOwner::of(row);
        let label = owner.label(&row.name, &kernel);
        let total = totals.entry((owner, Arc::clone(&row.core_type)));
        let total = total.or_insert_with(|| Total {
            owner: label,
            core_type: Arc::clone(&row.core_type),
            enabled_ns: 0,
            counts: vec![None; record.reading_counts.len()],
        });
        total.enabled_ns += row.enabled_ns;
        for (sum, count) in total.counts.iter_mut().zip(&row.counts) {
            if let Some(count) = count {
                *sum = Some(sum.unwrap_or(0).saturating_add(*count));
            }
        }
    }
    totals.into_values().collect()
}

/// Cumulative instructions of each owner, as pairs (time in ns, instructions).
struct Instructions(BTreeMap<CountOwner, Vec<(u64, f64)>>);

impl Instructions {
    fn of(record: &Record) -> Self {
        let plain = |name: &str| name.split(':').next() == Some("instructions");
        let column = record.reading_counts.iter().position(|name| plain(name));
        let mut sums: BTreeMap<CountOwner, Vec<(u64, f64)>> = BTreeMap::new();
        for row in &record.readings {
            let count = column.and_then(|c| row.counts.get(c).copied().flatten());
            if let Some(count) = count {
                let rows = sums.entry(CountOwner::of(row)).or_default();
                rows.push((row.at_ns, count as f64));
            }
        }
        for rows in sums.values_mut() {
            rows.sort_by_key(|row| row.0);
            let mut sum = 0.0;
            for row in rows {
                sum += row.1;
                row.1 = sum;
            }
        }
        Self(sums)
    }

    fn at(&self, owner: &CountOwner, at_ns: u64) -> Option<f64> {
        let rows = self.0.get(owner)?;
        let after = rows.partition_point(|row| row.0 <= at_ns);
        Some(after.checked_sub(1).map_or(0.0, |last| rows[last].1))
    }
}
