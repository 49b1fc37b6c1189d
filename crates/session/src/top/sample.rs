//! Conversion of an interval's samples to a snapshot, which has a row per thread and per process.
//!
//! Input: the samples of a session, and the values of virtual counters. Output: [`Snapshot`]s, which own their data and can be
//! sent to another thread.

use std::collections::HashMap;
use std::sync::Arc;

use countersteer_counters::Tick;
use countersteer_model::counters::{Fold, Outside, Owner, Per, Sample, Samples};
use countersteer_model::units::Nanos;
use countersteer_report::record::CountingRecorder;

use super::columns::ColumnMeasure;
use super::tails::Tails;
use crate::counting_record;
use crate::virtuals::Bank;

/// Key of a thread, or of a process if `tid` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    pub pid: u32,
    pub tid: u32,
}

/// Values of one thread or process in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredTask {
    pub key: TaskKey,
    pub name: Arc<str>,
    pub cpu: Option<u32>,
    /// Index of the core type on which the thread or process ran longest in the interval.
    pub core_type: u32,
    /// Run time divided by elapsed time; above 1 if several threads of a process ran at once.
    pub share: f64,
    pub values: Vec<Option<f64>>,
    pub ended: bool,
}

/// All threads and processes that ran in an interval, with their values.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Index of the interval, from 0.
    pub number: u64,
    pub at: Nanos,
    pub threads: Vec<MeasuredTask>,
    pub processes: Vec<MeasuredTask>,
    /// Message about a problem for the user; `None` if there was no problem.
    pub note: Option<String>,
}

/// Handler of each sampling interval: it reads the virtual counters, records the samples, and takes a snapshot.
pub struct Taker {
    pub sampler: Sampler,
    pub bank: Bank,
    pub tails: Tails,
    pub recorder: Option<CountingRecorder>,
}

impl Taker {
    pub fn take(&mut self, tick: &Tick<'_>) -> Snapshot {
        self.bank.read(tick.readings);
        self.tails.read();
        counting_record::keep(self.recorder.as_mut(), tick, Some(&self.bank));
        let of_bank = self.bank.outside();
        let outside = |name: &str, row: &Sample| {
            let tail = self.tails.value(name, row.owner);
            tail.or_else(|| of_bank(name, row))
        };
        let times = (tick.number, tick.origin, tick.at);
        let name = |tid| tick.name(tid);
        let mut snapshot = (self.sampler).take(times, tick.readings, name, &outside);
        drop(of_bank);
        snapshot.note = self.bank.complaint();
        snapshot
    }

    /// Replaces the set of virtual counters to read.
    pub fn turn_to(&mut self, names: &[&'static str]) -> anyhow::Result<()> {
        let others = self.tails.turn_to(names)?;
        Ok(self.bank.turn_to(&others)?)
    }
}

/// Creator of snapshots, one per interval.
pub struct Sampler {
    measures: Vec<ColumnMeasure>,
    interval: Nanos,
    threads: Fold,
    processes: Fold,
    /// Time of each thread's last sample, with TIDs as keys. Contains only threads whose last sample is near the end of the
    /// previous interval.
    heard: HashMap<u32, Nanos>,
    before: Option<Nanos>,
}

/// Key of a thread or process, and the indices of its rows in the samples.
struct TaskRows {
    key: TaskKey,
    rows: Vec<usize>,
}

impl Sampler {
    pub fn new(measures: Vec<ColumnMeasure>, interval: Nanos) -> Self {
        let threads = Fold::new(Per::Thread);
        let processes = Fold::new(Per::Process);
        Self {
            measures,
            interval,
            threads,
            processes,
            heard: HashMap::new(),
            before: None,
        }
    }

    /// Takes the snapshot of the interval that ended at `at`.
    pub fn take<'n>(
        &mut self,
        (number, origin, at): (u64, Nanos, Nanos),
        readings: &Samples,
        name: impl Fn(u32) -> &'n str,
        outside: &Outside<'_>,
    ) -> Snapshot {
        let before = self.before.replace(at).unwrap_or(origin);
        let span = at.since(before);
        let span = if span == Nanos::ZERO {
            self.interval
        } else {
            span
        };
        let shares = self.shares(readings, (before, at, span));
        let mut of_process: HashMap<u32, f64> = HashMap::new();
        shares
            .iter()
            .for_each(|(key, share)| *of_process.entry(key.pid).or_default() += share);
        let rows = self.threads.fold(readings);
        let thread = |part: TaskRows| MeasuredTask {
            share: shares.get(&part.key).copied().unwrap_or_default(),
            name: name(part.key.tid).into(),
            ..measured(&self.measures, (rows, outside), &part, span)
        };
        let threads = parts(rows).into_iter().map(thread).collect();
        let rows = self.processes.fold(readings);
        let process = |part: TaskRows| MeasuredTask {
            share: of_process.get(&part.key.pid).copied().unwrap_or_default(),
            name: name(part.key.pid).into(),
            // Never true for a process: the exited thread may not be its only one.
            ended: false,
            cpu: None,
            ..measured(&self.measures, (rows, outside), &part, span)
        };
        let processes = parts(rows).into_iter().map(process).collect();
        Snapshot {
            number,
            at: at.since(origin),
            processes,
            threads,
            note: None,
        }
    }

    /// Computes each thread's CPU share in the interval. Threads are sampled at different times. So the share refers to the time
    /// between a thread's last two samples if these are near the interval's ends. Otherwise a thread that runs all the time could
    /// show a share below 1.
    fn shares(
        &mut self,
        readings: &Samples,
        (before, at, span): (Nanos, Nanos, Nanos),
    ) -> HashMap<TaskKey, f64> {
        let near = Nanos(span.0 / 5);
        let mut ran: HashMap<TaskKey, (Nanos, Nanos, bool)> = HashMap::new();
        for row in readings.rows() {
            let Owner::Thread { pid, tid } = row.owner else {
                continue;
            };
            let (time, end, ended) = ran.entry(TaskKey { pid, tid }).or_default();
            *time += row.enabled;
            *end = (*end).max(row.end);
            *ended |= row.last;
        }
        let heard = std::mem::take(&mut self.heard);
        let mut share = |(key, (time, end, ended)): (TaskKey, (Nanos, Nanos, bool))| {
            let start = heard.get(&key.tid).copied().unwrap_or(before);
            let late = at.since(end) <= near;
            if late && !ended {
                self.heard.insert(key.tid, end);
            }
            let between = (if late { end } else { at }).since(start);
            let between = if between.0 < near.0 { span } else { between };
            (key, (time.as_secs_f64() / between.as_secs_f64()).min(1.0))
        };
        ran.into_iter().map(&mut share).collect()
    }
}

/// Groups the rows by thread or process, in the order of each group's first row.
fn parts(readings: &Samples) -> Vec<TaskRows> {
    let mut parts: Vec<TaskRows> = Vec::new();
    let mut known: HashMap<TaskKey, usize> = HashMap::new();
    for (row, reading) in readings.rows().iter().enumerate() {
        let key = match reading.owner {
            Owner::Thread { pid, tid } => TaskKey { pid, tid },
            Owner::Process { pid } => TaskKey { pid, tid: 0 },
            // These rows do not belong to one thread or process.
            Owner::Rest | Owner::Cpu | Owner::Total => continue,
        };
        let place = *known.entry(key).or_insert_with(|| {
            parts.push(TaskRows {
                key,
                rows: Vec::new(),
            });
            parts.len() - 1
        });
        parts[place].rows.push(row);
    }
    parts
}

fn measured(
    measures: &[ColumnMeasure],
    (readings, outside): (&Samples, &Outside<'_>),
    part: &TaskRows,
    span: Nanos,
) -> MeasuredTask {
    let reading = |row: &usize| &readings.rows()[*row];
    let most = part.rows.iter().max_by_key(|row| reading(row).enabled);
    // A value that comes from no event set is that of the thread, of which a row may have only a part.
    let ran: u64 = part.rows.iter().map(|row| reading(row).ran().0).sum();
    let of_all_rows = |name: &str, row: &Sample| {
        let enabled = Nanos(ran);
        outside(name, &Sample { enabled, ..*row })
    };
    let value = |measure: &ColumnMeasure| {
        let outside: &Outside<'_> = if measure.set().is_some() {
            outside
        } else {
            &of_all_rows
        };
        let of_set = || {
            part.rows
                .iter()
                .filter(|row| measure.set().is_none_or(|set| reading(row).set == set))
        };
        let found = if measure.per_second && measure.set().is_some() {
            // Counts are summed over core types. Events of the kernel have the same meaning on each core type. For other
            // events, the user wants a total rate, not a comparison of core types.
            let counts = of_set().filter_map(|row| measure.value(readings, *row, outside));
            counts.fold(None, |sum: Option<f64>, count| {
                Some(sum.unwrap_or(0.0) + count)
            })
        } else {
            let row = of_set().max_by_key(|row| reading(row).enabled)?;
            measure.value(readings, *row, outside)
        };
        if measure.per_second {
            found.map(|value| value / span.as_secs_f64())
        } else {
            found
        }
    };
    MeasuredTask {
        key: part.key,
        name: "".into(),
        cpu: most.and_then(|row| reading(row).cpu).map(|cpu| cpu.0),
        core_type: most.map_or(0, |row| reading(row).core_type.0),
        share: 0.0,
        values: measures.iter().map(value).collect(),
        ended: part.rows.iter().any(|row| reading(row).last),
    }
}

#[cfg(test)]
mod tests {
    use countersteer_model::units::{CoreTypeId, CpuId};

    use super::*;
    use crate::top::columns::{ColumnSource, Silent, columns};
    use crate::top::testing;

    const S: u64 = 1_000_000_000;

    fn sampler() -> Sampler {
        Sampler::new(
            columns(&testing::counted(), 0, false, &Silent::new()).1,
            Nanos(S),
        )
    }

    fn row(
        tid: u32,
        cpu: u32,
        core_type: u32,
        (end, enabled): (u64, u64),
        switches: u64,
        into: &mut Samples,
    ) {
        let enabled = Nanos(enabled);
        let end = Nanos(end);
        let blank = Sample::new(
            Owner::Thread { pid: 1, tid },
            Some(CpuId(cpu)),
            CoreTypeId(core_type),
            0,
        );
        into.push(
            Sample {
                end,
                enabled,
                running: enabled,
                present: 3,
                ..blank
            },
            [enabled.0 as f64, switches as f64],
        );
    }

    #[test]
    fn a_thread_that_never_stops_has_all_of_a_cpu_whenever_it_is_heard_of() {
        let mut sampler = sampler();
        let mut share = |number, end, enabled| {
            let mut readings = Samples::default();
            row(7, 0, 0, (end, enabled), 0, &mut readings);
            sampler
                .take(
                    (number, Nanos(0), Nanos((number + 1) * S)),
                    &readings,
                    |_| "x",
                    &|_, _| None,
                )
                .threads[0]
                .share
        };
        assert!((share(0, S * 9 / 10, S * 9 / 10) - 1.0).abs() < 1e-9);
        assert!((share(1, 2 * S, S * 11 / 10) - 1.0).abs() < 1e-9);
        assert!(
            (share(2, S * 23 / 10, S * 3 / 10) - 0.3).abs() < 1e-9,
            "it has slept since"
        );
    }

    #[test]
    fn threads_and_processes_have_rows_and_core_types_are_named_by_the_longer() {
        let mut readings = Samples::default();
        row(7, 0, 0, (S, S / 4), 10, &mut readings);
        row(7, 5, 1, (S, S / 2), 20, &mut readings);
        row(8, 1, 0, (S, S / 2), 40, &mut readings);
        let snapshot = sampler().take(
            (0, Nanos(0), Nanos(S)),
            &readings,
            |tid| if tid == 1 { "p" } else { "t" },
            &|_, _| None,
        );
        let [first, second] = &snapshot.threads[..] else {
            unreachable!()
        };
        assert_eq!(
            (first.core_type, first.cpu, first.values[0]),
            (1, Some(5), Some(30.0))
        );
        assert!((first.share - 0.75).abs() < 1e-9 && (second.share - 0.5).abs() < 1e-9);
        let [process] = &snapshot.processes[..] else {
            unreachable!()
        };
        assert_eq!(
            (&*process.name, process.key, process.values[0]),
            ("p", TaskKey { pid: 1, tid: 0 }, Some(70.0))
        );
        assert!((process.share - 1.25).abs() < 1e-9);
    }

    #[test]
    fn what_a_thread_spent_is_per_second_and_once_whatever_cores_it_ran_on() {
        let (columns, measures) = columns(&testing::counted(), 0, false, &Silent::new());
        let place =
            |name: &str| match columns[crate::top::columns::find(&columns, name).unwrap()].source {
                ColumnSource::Measure(Some(nth)) => nth,
                other => unreachable!("{other:?}"),
            };
        let spent = place("thread_energy_j");
        let held = place("llc_occupancy_bytes");
        let share = place("energy%");
        let rests: Vec<bool> = [spent, held, share]
            .iter()
            .map(|nth| measures[*nth].rests())
            .collect();
        let mut readings = Samples::default();
        row(7, 0, 0, (2 * S, S / 4), 10, &mut readings);
        row(7, 5, 1, (2 * S, S / 2), 20, &mut readings);
        let virtuals = |name: &str, row: &Sample| match (name, row.owner) {
            ("thread_energy_j", Owner::Thread { .. }) => {
                Some(row.enabled.0 as f64 * 8.0 / S as f64)
            }
            ("thread_energy_j", Owner::Process { .. }) => Some(8.0),
            ("llc_occupancy_bytes", Owner::Thread { .. }) => Some(4096.0),
            _ => None,
        };
        let mut sampler = Sampler::new(measures, Nanos(S));
        let snapshot = sampler.take((0, Nanos(0), Nanos(2 * S)), &readings, |_| "x", &virtuals);
        let values = |of: &[MeasuredTask]| [spent, held, share].map(|nth| of[0].values[nth]);
        assert_eq!(values(&snapshot.threads), [Some(3.0), Some(4096.0), None]);
        assert_eq!(values(&snapshot.processes), [Some(4.0), None, None]);
        assert_eq!(rests, [true, false, true]);
    }
}
