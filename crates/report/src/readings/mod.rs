//! Samples of counters as text: an incremental table, CSV, or JSON lines.
//!
//! Input: [`Samples`] as they arrive, with their counting plan. Output: text as bytes, one line per sample. Counts are
//! raw; extrapolated ones are written only on request, and are marked.

mod csv;
mod json;
mod table;

use countersteer_model::counters::{
    BoundMetric, Outside, Owner, Per, PlannedEvent, Samples, SetPlan,
};
use countersteer_model::sample;
use countersteer_model::units::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Table,
    Csv,
    /// One JSON object per line.
    Json,
}

/// Options for writing the samples of a counting session.
pub struct ReadingOptions<'a> {
    pub style: Style,
    pub plan: &'a SetPlan,
    pub metrics: &'a [BoundMetric],
    /// True if metrics are written without the counts behind them.
    pub only_metrics: bool,
    /// Names of the core types, indexed by the core type of a sample.
    pub core_types: &'a [String],
    /// True if counts are extrapolated to the enabled time.
    pub scale: bool,
    /// Key by which samples are aggregated to rows.
    pub per: Per,
    /// Names of additional virtual counters.
    pub virtuals: &'a [&'a str],
    /// Width of the terminal in characters; `None` without a limit.
    pub room: Option<usize>,
}

/// Writer of the samples of a counting session.
pub struct Writer<'a> {
    form: ReadingOptions<'a>,
    /// Time that is subtracted from all times.
    origin: Nanos,
    /// Events of the plan that have a column.
    columns: Vec<&'a PlannedEvent>,
    /// For each event set, the index of the event that each column shows.
    shown: Vec<Vec<Option<usize>>>,
    /// Layout of the table.
    layout: table::TableLayout,
}

/// Value of a virtual counter at the end of a period.
pub struct VirtualValue<'a> {
    pub name: &'a str,
    /// Unit of the value.
    pub unit: &'a str,
    /// Subject of the value: a zone, a sensor, or the name of a thread.
    pub place: &'a str,
    /// TID of the thread, if the value belongs to a thread.
    pub tid: Option<u32>,
    /// CPU, if the value belongs to a CPU.
    pub cpu: Option<u32>,
    /// Value of the virtual counter, in `unit`.
    pub value: f64,
}

/// Sample with all data that a line shows.
struct SampleLine<'a> {
    sample: sample::SampleRow<'a>,
    start: Nanos,
    end: Nanos,
    pid: Option<u32>,
    tid: Option<u32>,
    name: &'a str,
    core_type: &'a str,
    /// Fraction of the time that was counted, by which counts are extrapolated; `None` without extrapolation.
    part: Option<f64>,
    /// For each column, the index of the value to show; `None` if the event set does not count it.
    shown: &'a [Option<usize>],
    /// Values of the metrics.
    metrics: &'a [Option<f64>],
}

impl SampleLine<'_> {
    /// Iterates over the counts by column; `None` for events that were not counted.
    fn counts(&self) -> impl Iterator<Item = Option<u64>> {
        let counts = self.sample.counts;
        let shown = self.shown.iter();
        shown.map(move |place| counts.at((*place)?).map(|count| count as u64))
    }
}

impl<'a> Writer<'a> {
    /// Creates a writer with these options. Times are those of the clock until an [origin](Self::since) is set.
    #[must_use]
    pub fn new(form: ReadingOptions<'a>) -> Self {
        let columns = form.plan.columns();
        let shows = |places: &Vec<usize>| {
            (0..columns.len())
                .map(|c| places.iter().position(|p| *p == c))
                .collect()
        };
        let shown = form.plan.places().iter().map(shows).collect();
        Self {
            layout: table::TableLayout::new(&form, &columns),
            form,
            origin: Nanos::ZERO,
            columns,
            shown,
        }
    }

    /// Sets the time that is subtracted from all times.
    pub const fn since(&mut self, origin: Nanos) {
        self.origin = origin;
    }

    #[must_use]
    pub const fn style(&self) -> Style {
        self.form.style
    }

    /// Writes the head of the output; JSON has none.
    pub fn head(&self, into: &mut Vec<u8>) {
        match self.form.style {
            Style::Table => table::head(self, into),
            Style::Csv => csv::head(self, into),
            Style::Json => {}
        }
    }

    /// Writes one line per sample; `outside` returns the virtual counters that metrics use.
    pub fn lines<'n>(
        &self,
        samples: &Samples,
        name: impl Fn(u32) -> &'n str,
        outside: &Outside<'_>,
        into: &mut Vec<u8>,
    ) {
        let form = &self.form;
        let mut metrics = Vec::with_capacity(form.metrics.len());
        for (index, sample) in samples.iter().enumerate() {
            let (pid, tid) = numbers(sample.owner);
            metrics.clear();
            metrics.extend(
                form.metrics
                    .iter()
                    .map(|m| m.value(samples, index, outside)),
            );
            let row = SampleLine {
                sample,
                start: sample.start.since(self.origin),
                end: sample.end.since(self.origin),
                pid,
                tid,
                name: tid.or(pid).map_or(whole(sample.owner), &name),
                core_type: form
                    .core_types
                    .get(sample.core_type.index())
                    .map_or("", String::as_str),
                part: form
                    .scale
                    .then(|| sample.share())
                    .filter(|share| *share > 0.0 && *share < 1.0),
                shown: self
                    .shown
                    .get(sample.set as usize)
                    .map_or(&[], Vec::as_slice),
                metrics: &metrics,
            };
            match form.style {
                Style::Table => table::line(self, &row, into),
                Style::Csv => csv::line(self, &row, into),
                Style::Json => json::line(self, &row, into),
            }
        }
    }

    /// Writes one line for a value of a virtual counter.
    pub fn value(&self, at: Nanos, value: &VirtualValue<'_>, into: &mut Vec<u8>) {
        let at = at.since(self.origin);
        match self.form.style {
            Style::Table => table::value(at, value, into),
            Style::Csv => csv::value(self, at, value, into),
            Style::Json => json::value(at, value, into),
        }
    }
}

impl ReadingOptions<'_> {
    const fn rotates(&self) -> bool {
        self.plan.sets.len() > 1
    }

    const fn is_hybrid(&self) -> bool {
        self.core_types.len() > 1
    }
}

/// Division gives the shortest exact decimal number; multiplication by 1e-9 would not.
const fn seconds(time: Nanos) -> f64 {
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
mod narrow;

#[cfg(test)]
mod tests {
    use countersteer_model::counters::{PlannedEvent, PlannedSet};
    use countersteer_model::sample::Sample;
    use countersteer_model::units::{CoreTypeId, CpuId};

    use super::*;

    fn event(name: &str, unit: &str) -> PlannedEvent {
        PlannedEvent {
            name: name.into(),
            unit: unit.into(),
            scale: 1.0,
            event: None,
        }
    }

    const fn form<'a>(
        style: Style,
        per: Per,
        plan: &'a SetPlan,
        core_types: &'a [String],
    ) -> ReadingOptions<'a> {
        ReadingOptions {
            style,
            plan,
            metrics: &[],
            only_metrics: false,
            core_types,
            scale: false,
            per,
            virtuals: &[],
            room: None,
        }
    }

    fn written(style: Style, scale: bool) -> String {
        let sets = [["task_clock", "page_faults"], ["cycles", "page_faults"]];
        let set = |s: &[&str; 2]| PlannedSet {
            events: vec![
                event(s[0], if s[0] == "task_clock" { "ns" } else { "" }),
                event(s[1], ""),
            ],
        };
        let plan = SetPlan::new(
            sets.iter().map(set).collect(),
            Some(Nanos::from_millis(100)),
        )
        .unwrap();
        let core_types = ["cpu_core".to_owned(), "cpu_atom".to_owned()];
        let form = form(style, Per::Thread, &plan, &core_types);
        let mut writer = Writer::new(ReadingOptions {
            scale,
            virtuals: &["energy_j"],
            ..form
        });
        writer.since(Nanos(1_000));
        let mut samples = Samples::default();
        let thread = Sample::new(
            Owner::Thread { pid: 7, tid: 8 },
            Some(CpuId(3)),
            CoreTypeId(0),
            0,
        );
        let start = Nanos(1_000);
        let end = Nanos(100_001_000);
        samples.push(
            Sample {
                start,
                end,
                enabled: Nanos(50),
                running: Nanos(50),
                present: 3,
                ..thread
            },
            [1_500_000.0, 4.0],
        );
        let half = Sample {
            set: 1,
            core_type: CoreTypeId(1),
            start,
            end,
            enabled: Nanos(50),
            running: Nanos(25),
            present: 1,
            last: true,
            ..thread
        };
        samples.push(half, [1_000.0, 9.0]);
        let mut text = Vec::new();
        writer.head(&mut text);
        writer.lines(&samples, |_| "a,b", &|_, _| None, &mut text);
        let energy = VirtualValue {
            name: "energy_j",
            unit: "J",
            place: "package-0",
            tid: None,
            cpu: None,
            value: 2.5,
        };
        writer.value(Nanos(100_001_000), &energy, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_table_shows_what_was_counted_and_dashes_elsewhere() {
        let expected = "    time_s     pid     tid name            core_type  set  task_clock/ms    page_faults         cycles  counted\n    \
                        0.1000       7       8 a,b              cpu_core    0          1.500              4              -     100%\n    \
                        0.1000       7       8 a,b              cpu_atom    1              -              -          1,000      50%\n    \
                        0.1000                 package-0       energy_j 2.500 J\n";
        assert_eq!(written(Style::Table, false), expected);
        assert!(
            written(Style::Table, true).contains("~2,000"),
            "an estimate is marked"
        );
    }

    #[test]
    fn what_is_too_wide_moves_what_is_behind_it_but_for_names() {
        let plan = SetPlan::new(
            vec![PlannedSet {
                events: vec![event("switches", "")],
            }],
            None,
        )
        .unwrap();
        let core_types = ["cpu".to_owned()];
        let writer = Writer::new(form(Style::Table, Per::Process, &plan, &core_types));
        let mut samples = Samples::default();
        for (pid, count, seconds) in [(7, 1.0, 1), (123_456_789, u64::MAX as f64, 10_000_000)] {
            let end = Nanos(seconds * 1_000_000_000);
            let process = Sample::new(Owner::Process { pid }, None, CoreTypeId(0), 0);
            samples.push(
                Sample {
                    end,
                    present: 1,
                    ..process
                },
                [count],
            );
        }
        let mut text = Vec::new();
        writer.lines(
            &samples,
            |pid| {
                if pid == 7 {
                    "größer"
                } else {
                    "ein viel zu langer Näme"
                }
            },
            &|_, _| None,
            &mut text,
        );
        let expected = "    1.0000       7 größer                       1     100%\n\
                        10000000.0000 123456789 ein viel zu lan 18,446,744,073,709,551,615     100%\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_thread_that_comes_again_is_written_the_same_and_another_is_not() {
        let plan = SetPlan::new(
            vec![PlannedSet {
                events: vec![event("switches", "")],
            }],
            None,
        )
        .unwrap();
        let core_types = ["cpu".to_owned()];
        let writer = Writer::new(form(Style::Table, Per::Thread, &plan, &core_types));
        let line = |pid, name: &str, count: u32| {
            let mut samples = Samples::default();
            let thread = Sample::new(Owner::Thread { pid, tid: 8 }, None, CoreTypeId(0), 0);
            samples.push(
                Sample {
                    present: 1,
                    ..thread
                },
                [f64::from(count)],
            );
            let mut text = Vec::new();
            writer.lines(&samples, |_| name, &|_, _| None, &mut text);
            String::from_utf8(text).unwrap()
        };
        for _ in 0..2 {
            assert_eq!(
                line(7, "a", 1),
                "    0.0000       7       8 a                            1     100%\n"
            );
            assert_eq!(
                line(7, "a", 1_234),
                "    0.0000       7       8 a                        1,234     100%\n"
            );
            assert_eq!(
                line(7, "ab", 1),
                "    0.0000       7       8 ab                           1     100%\n"
            );
            assert_eq!(
                line(6, "ab", 1),
                "    0.0000       6       8 ab                           1     100%\n"
            );
            assert_eq!(
                line(6, "größer", 1),
                "    0.0000       6       8 größer                       1     100%\n"
            );
            assert_eq!(
                line(123_456_789, "ab", 1),
                "    0.0000 123456789       8 ab                           1     100%\n"
            );
        }
    }

    #[test]
    fn numbers_stand_at_the_right_end_and_a_blank_before_them() {
        let events = vec![event("switches", ""), event("task_clock", "ns")];
        let plan = SetPlan::new(vec![PlannedSet { events }], None).unwrap();
        let core_types = ["cpu".to_owned()];
        let writer = Writer::new(form(Style::Table, Per::Process, &plan, &core_types));
        for value in (0..16).flat_map(|digits| [10u64.pow(digits) - 1, 10u64.pow(digits)]) {
            let pid = value.min(u32::MAX.into()) as u32;
            let mut samples = Samples::default();
            samples.push(
                Sample {
                    present: 3,
                    ..Sample::new(Owner::Process { pid }, None, CoreTypeId(0), 0)
                },
                [value as f64, value as f64],
            );
            let mut text = Vec::new();
            writer.lines(&samples, |_| "", &|_, _| None, &mut text);
            let microseconds = value / 1_000 + u64::from(value % 1_000 > 499);
            let count = crate::format::count(value);
            let milliseconds = format!("{}.{:03}", microseconds / 1_000, microseconds % 1_000);
            let expected = format!(
                "    0.0000 {pid:>7} {:15} {count:>14} {milliseconds:>14}     100%\n",
                ""
            );
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
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
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines[0]["counts"]["task_clock"], 1_500_000);
        assert_eq!(lines[0]["scaled"], serde_json::Value::Null);
        assert_eq!(
            (&lines[1]["scaled"]["cycles"], &lines[1]["counts"]["cycles"]),
            (&2_000.0.into(), &1_000.into())
        );
        assert_eq!(lines[1]["counts"].as_object().unwrap().len(), 1);
        assert_eq!(
            (&lines[2]["kind"], &lines[2]["value"]),
            (&"value".into(), &2.5.into())
        );
    }
}
