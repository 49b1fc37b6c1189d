//! Readings of counters as text: a table that grows, CSV, JSON lines.
//!
//! Input: [`Readings`] as they come, with the plan they were counted by. Output: text, a line per reading. Counts are raw;
//! extrapolated ones appear only when asked for, and are marked.

mod csv;
mod json;
mod table;

use countersteer_core::counters::{BoundMetric, Outside, Owner, Per, Plan, Reading, Readings};
use countersteer_core::units::Nanos;

/// How readings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Columns for people.
    Table,
    /// Comma-separated values.
    Csv,
    /// A JSON object per line.
    Json,
}

/// Writes readings of one session.
pub struct Writer<'a> {
    /// How.
    pub style: Style,
    /// What was counted.
    pub plan: &'a Plan,
    /// Metrics computed from it.
    pub metrics: &'a [BoundMetric],
    /// Metrics stand alone, without the counts that they come from.
    pub only_metrics: bool,
    /// Names of core types.
    pub core_types: &'a [String],
    /// Counts are extrapolated to the time enabled.
    pub scale: bool,
    /// Times are given since then.
    pub origin: Nanos,
    /// What a row is for.
    pub per: Per,
    /// Names of virtual counters that are read too.
    pub virtuals: &'a [&'a str],
}

/// What a virtual counter said at the end of a period.
pub struct VirtualValue<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// What it is about: a zone, a sensor, a thread's name.
    pub place: &'a str,
    /// The thread, where it is about one.
    pub tid: Option<u32>,
    /// The CPU, where it is about one.
    pub cpu: Option<u32>,
    /// The value.
    pub value: f64,
}

/// A reading with everything that is shown of it.
struct Row<'a> {
    reading: &'a Reading,
    /// Seconds since the origin.
    start_s: f64,
    end_s: f64,
    pid: Option<u32>,
    tid: Option<u32>,
    name: &'a str,
    core_type: &'a str,
    /// By column of the plan.
    counts: Vec<Option<u64>>,
    /// By metric.
    metrics: Vec<Option<f64>>,
}

impl Writer<'_> {
    /// The head, where the style has one.
    #[must_use]
    pub fn head(&self) -> String {
        match self.style {
            Style::Table => table::head(self),
            Style::Csv => csv::head(self),
            Style::Json => String::new(),
        }
    }

    /// A line per reading; `outside` has the virtual counters that metrics name.
    pub fn lines<'n>(
        &self,
        readings: &Readings,
        name: impl Fn(u32) -> &'n str,
        outside: &Outside<'_>,
        into: &mut String,
    ) {
        let places = self.plan.places();
        let columns = self.plan.columns().len();
        let layout = table::Layout::new(self);
        let (mut counts, mut metrics) = (Vec::with_capacity(columns), Vec::with_capacity(self.metrics.len()));
        for (index, reading) in readings.rows().iter().enumerate() {
            let (pid, tid) = numbers(reading.owner);
            counts.clear();
            counts.resize(columns, None);
            for (event, column) in places.get(reading.set as usize).into_iter().flatten().enumerate() {
                counts[*column] = readings.value(index, event);
            }
            metrics.extend(self.metrics.iter().map(|m| m.value(readings, index, outside)));
            let row = Row {
                reading,
                start_s: seconds(reading.start.since(self.origin)),
                end_s: seconds(reading.end.since(self.origin)),
                pid,
                tid,
                name: tid.or(pid).map_or(whole(reading.owner), &name),
                core_type: self.core_types.get(reading.core_type as usize).map_or("", String::as_str),
                counts,
                metrics,
            };
            match self.style {
                Style::Table => table::line(self, &layout, &row, into),
                Style::Csv => csv::line(self, &row, into),
                Style::Json => json::line(self, &row, into),
            }
            // Their memory is wanted again.
            (counts, metrics) = (row.counts, row.metrics);
            metrics.clear();
        }
    }

    /// A line for a value of a virtual counter.
    pub fn value(&self, at: Nanos, value: &VirtualValue<'_>, into: &mut String) {
        let at_s = seconds(at.since(self.origin));
        match self.style {
            Style::Table => table::value(at_s, value, into),
            Style::Csv => csv::value(self, at_s, value, into),
            Style::Json => json::value(at_s, value, into),
        }
    }

    fn rotates(&self) -> bool {
        self.plan.sets.len() > 1
    }

    fn is_hybrid(&self) -> bool {
        self.core_types.len() > 1
    }

    /// A count, extrapolated if that was asked for and is needed.
    fn shown(&self, row: &Row<'_>, count: u64) -> (f64, bool) {
        let share = row.reading.share();
        let estimate = self.scale && share > 0.0 && share < 1.0;
        (if estimate { count as f64 / share } else { count as f64 }, estimate)
    }
}

/// Divided, not multiplied by a billionth: the shortest decimal then is the exact one.
fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

const fn numbers(owner: Owner) -> (Option<u32>, Option<u32>) {
    match owner {
        Owner::Thread { pid, tid } => (Some(pid), Some(tid)),
        Owner::Process { pid } => (Some(pid), None),
        Owner::Rest | Owner::Cpu | Owner::Total => (None, None),
    }
}

const fn whole(owner: Owner) -> &'static str {
    match owner {
        Owner::Rest => "(rest)",
        Owner::Total => "(total)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use countersteer_core::counters::{PlannedEvent, PlannedSet};
    use countersteer_core::units::CpuId;

    use super::*;

    fn event(name: &str, unit: &str) -> PlannedEvent {
        PlannedEvent { name: name.into(), unit: unit.into(), scale: 1.0, event: None }
    }

    fn written(style: Style, scale: bool) -> String {
        let sets = [["task_clock", "page_faults"], ["cycles", "page_faults"]];
        let set = |s: &[&str; 2]| PlannedSet {
            events: vec![event(s[0], if s[0] == "task_clock" { "ns" } else { "" }), event(s[1], "")],
        };
        let plan = Plan::new(sets.iter().map(set).collect(), Some(Nanos::from_millis(100))).unwrap();
        let core_types = ["cpu_core".to_owned(), "cpu_atom".to_owned()];
        let writer = Writer {
            style,
            plan: &plan,
            metrics: &[],
            only_metrics: false,
            core_types: &core_types,
            scale,
            origin: Nanos(1_000),
            per: Per::Thread,
            virtuals: &["energy_j"],
        };
        let mut readings = Readings::default();
        let thread = Reading::new(Owner::Thread { pid: 7, tid: 8 }, Some(CpuId(3)), 0, 0);
        let (start, end) = (Nanos(1_000), Nanos(100_001_000));
        readings
            .push(Reading { start, end, enabled: Nanos(50), running: Nanos(50), present: 3, ..thread }, [1_500_000, 4]);
        let half = Reading {
            set: 1,
            core_type: 1,
            start,
            end,
            enabled: Nanos(50),
            running: Nanos(25),
            present: 1,
            last: true,
            ..thread
        };
        readings.push(half, [1_000, 9]);
        let mut text = writer.head();
        writer.lines(&readings, |_| "a,b", &|_, _| None, &mut text);
        let energy = VirtualValue { name: "energy_j", unit: "J", place: "package-0", tid: None, cpu: None, value: 2.5 };
        writer.value(Nanos(100_001_000), &energy, &mut text);
        text
    }

    #[test]
    fn a_table_shows_what_was_counted_and_dashes_elsewhere() {
        let expected = "    time_s     pid     tid name            core_type  set  task_clock/ms    page_faults         cycles  counted\n    \
                        0.1000       7       8 a,b              cpu_core    0          1.500              4              -     100%\n    \
                        0.1000       7       8 a,b              cpu_atom    1              -              -          1,000      50%\n    \
                        0.1000                 package-0       energy_j 2.500 J\n";
        assert_eq!(written(Style::Table, false), expected);
        assert!(written(Style::Table, true).contains("~2,000"), "an estimate is marked");
    }

    #[test]
    fn csv_quotes_names_and_leaves_holes() {
        let expected = "time_s,start_s,pid,tid,name,cpu,core_type,set,enabled_ns,running_ns,last,scaled,task_clock,page_faults,cycles,energy_j\n\
                        0.100000000,0.000000000,7,8,\"a,b\",3,cpu_core,0,50,50,false,false,1500000,4,,\n\
                        0.100000000,0.000000000,7,8,\"a,b\",3,cpu_atom,1,50,25,true,false,,,1000,\n\
                        0.100000000,,,,package-0,,,,,,,,,,,2.5\n";
        assert_eq!(written(Style::Csv, false), expected);
        assert!(written(Style::Csv, true).contains("true,true,,,2000,"));
    }

    #[test]
    fn json_lines_are_objects() {
        let text = written(Style::Json, true);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0]["counts"]["task_clock"], 1_500_000);
        assert_eq!(lines[0]["scaled"], serde_json::Value::Null);
        assert_eq!((&lines[1]["scaled"]["cycles"], &lines[1]["counts"]["cycles"]), (&2_000.0.into(), &1_000.into()));
        assert_eq!(lines[1]["counts"].as_object().unwrap().len(), 1);
        assert_eq!((&lines[2]["kind"], &lines[2]["value"]), (&"value".into(), &2.5.into()));
    }
}
