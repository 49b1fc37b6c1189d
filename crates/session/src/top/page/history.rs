//! Last intervals of one host.
//!
//! Input: lines of `steer top --json`. Output: values over time for the charts of the page. What a host sends is limited: the
//! number of intervals, of threads and of columns.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use countersteer_report::counted::{CountedLine, CountedMeasure, CountedPoint};
use countersteer_report::html::live::OWNERS;
use serde::Deserialize;

/// Number of intervals kept.
const INTERVALS: usize = 900;
/// Limit on the number of threads kept.
const THREADS: usize = 2000;
/// Limit on the number of columns kept.
const COLUMNS: usize = 64;
/// Number of the last intervals whose CPU time decides which threads are drawn.
const RECENT: usize = 60;
/// Limit on times in s, far above all that is measured; a chart of greater numbers cannot be drawn.
const LATEST_S: f64 = 1e9;
/// Limit on values.
const GREATEST: f64 = 1e24;
/// Column of CPU time in per cent. It is 0 for a thread that did not run.
const SHARE: &str = "cpu%";

/// Object of a thread (or process) and interval.
#[derive(Deserialize)]
struct HistoryRow {
    time_s: f64,
    pid: u32,
    tid: Option<u32>,
    name: String,
    columns: BTreeMap<String, f64>,
}

type HistoryPoints = VecDeque<(f64, f64)>;

/// Values of one host over time, by thread and column.
pub(crate) struct HostHistory {
    pub name: String,
    /// Message about the host, e.g. its end; empty if there is none.
    pub note: String,
    /// Ends of the kept intervals, in s.
    times: VecDeque<f64>,
    interval_s: f64,
    threads: BTreeMap<Arc<str>, BTreeMap<String, HistoryPoints>>,
    columns: Vec<String>,
    /// Threads of the newest interval, and of the one before.
    now: HashSet<Arc<str>>,
    before: HashSet<Arc<str>>,
    /// Drawn threads; an empty name is a free position.
    slots: Vec<String>,
}

impl HostHistory {
    pub fn new(name: String, interval_s: f64) -> Self {
        Self {
            name,
            note: String::new(),
            times: VecDeque::new(),
            interval_s,
            threads: BTreeMap::new(),
            columns: Vec::new(),
            now: HashSet::new(),
            before: HashSet::new(),
            slots: Vec::new(),
        }
    }

    /// End of the newest interval, in s.
    pub fn at(&self) -> f64 {
        self.times.back().copied().unwrap_or_default()
    }

    /// Adds one line.
    ///
    /// # Errors
    /// The line is not one of `steer top --json`, or exceeds a limit.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let row: HistoryRow = serde_json::from_str(line)
            .map_err(|why| format!("a line is none of `steer top --json`: {why}"))?;
        if !(0.0..LATEST_S).contains(&row.time_s) || row.time_s < self.at() {
            return Err("times in lines of `steer top --json` do not grow".into());
        }
        if row.time_s > self.at() || self.times.is_empty() {
            self.begin(row.time_s);
        }
        let owner: Arc<str> = format!("{} ({})", row.name, row.tid.unwrap_or(row.pid)).into();
        if self.now.len() >= THREADS {
            return Ok(());
        }
        let appears = !self.before.contains(&owner);
        let (at, interval) = (row.time_s, self.interval_s);
        let columns = self.threads.entry(Arc::clone(&owner)).or_default();
        for (column, value) in row.columns {
            if value.abs() > GREATEST {
                continue;
            }
            if !self.columns.contains(&column) {
                if self.columns.len() >= COLUMNS {
                    continue;
                }
                self.columns.push(column.clone());
            }
            let points = columns.entry(column).or_default();
            if appears {
                // The value is that of the whole interval, and a line needs two points.
                points.push_back(((at - interval).max(0.0), value));
            }
            points.push_back((at, value));
        }
        self.now.insert(owner);
        Ok(())
    }

    /// Begins an interval. Threads that did not run in the one before get no CPU time there, and their other lines are cut.
    fn begin(&mut self, at: f64) {
        let ended = self.at();
        for owner in self.before.difference(&self.now) {
            for (column, points) in self.threads.get_mut(owner).into_iter().flatten() {
                points.push_back((ended, if column == SHARE { 0.0 } else { f64::NAN }));
            }
        }
        self.before = std::mem::take(&mut self.now);
        self.times.push_back(at);
        if self.times.len() > INTERVALS {
            self.times.pop_front();
        }
        let oldest = self.times.front().copied().unwrap_or_default() - self.interval_s;
        for columns in self.threads.values_mut() {
            for points in columns.values_mut() {
                while points.front().is_some_and(|(at, _)| *at < oldest) {
                    points.pop_front();
                }
            }
        }
        let last = |columns: &BTreeMap<String, HistoryPoints>| {
            let ends = columns.values().filter_map(|points| points.back());
            ends.map(|(at, _)| *at).fold(f64::NEG_INFINITY, f64::max)
        };
        let mut ends: Vec<f64> = self.threads.values().map(last).collect();
        ends.sort_by(f64::total_cmp);
        let surplus = ends.len().checked_sub(THREADS);
        let least = surplus.map_or(oldest, |nth| ends[nth]);
        self.threads.retain(|_, columns| last(columns) >= least);
        self.choose(at);
    }

    /// Chooses the threads with the most CPU time in the recent intervals. A thread that stays keeps its position.
    fn choose(&mut self, at: f64) {
        let since = at - RECENT as f64 * self.interval_s;
        let used = |columns: &BTreeMap<String, HistoryPoints>| {
            let points = columns.get(SHARE).into_iter().flatten();
            let recent = points
                .filter(|(at, _)| *at >= since)
                .map(|(_, share)| share);
            recent.sum::<f64>()
        };
        let mut ranks: Vec<(f64, &Arc<str>)> = self
            .threads
            .iter()
            .map(|(owner, columns)| (used(columns), owner))
            .collect();
        ranks.sort_by(|a, b| b.0.total_cmp(&a.0));
        let chosen: Vec<&Arc<str>> = ranks.into_iter().take(OWNERS).map(|(_, o)| o).collect();
        for slot in &mut self.slots {
            if !chosen.iter().any(|owner| ***owner == **slot) {
                slot.clear();
            }
        }
        for owner in chosen {
            if self.slots.iter().any(|slot| **slot == **owner) {
                continue;
            }
            match self.slots.iter_mut().find(|slot| slot.is_empty()) {
                Some(free) => *free = owner.to_string(),
                None => self.slots.push(owner.to_string()),
            }
        }
    }

    /// Returns the drawn threads, whose positions determine their colours, and their values over time.
    pub fn drawn(&mut self) -> (Vec<String>, Vec<CountedMeasure>) {
        self.choose(self.at());
        let line = |owner: &String, column: &String| {
            let points = self.threads.get(owner.as_str())?.get(column)?;
            let point = |(at, value): &(f64, f64)| CountedPoint {
                at_ns: (at * 1e9) as u64,
                instructions: None,
                value: *value,
            };
            Some(CountedLine {
                owner: owner.clone(),
                core_type: Arc::from(""),
                points: points.iter().map(point).collect(),
            })
        };
        let measure = |column: &String| CountedMeasure {
            name: column.as_str().into(),
            unit: String::new(),
            lines: self
                .slots
                .iter()
                .filter_map(|owner| line(owner, column))
                .collect(),
        };
        (
            self.slots.clone(),
            self.columns.iter().map(measure).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(time_s: f64, tid: u32, share: f64) -> String {
        serde_json::json!({
            "kind": "thread", "time_s": time_s, "pid": 1, "tid": tid, "name": "t", "cpu": 0, "core_type": "cpu",
            "ended": false, "columns": {"cpu%": share, "ipc": 1.5},
        })
        .to_string()
    }

    fn points(history: &mut HostHistory, owner: &str, column: &str) -> Vec<(f64, f64)> {
        let (_, measures) = history.drawn();
        let measure = measures.iter().find(|m| &*m.name == column).unwrap();
        let line = measure.lines.iter().find(|l| l.owner == owner).unwrap();
        line.points
            .iter()
            .map(|p| (p.at_ns as f64 * 1e-9, p.value))
            .collect()
    }

    #[test]
    fn a_thread_that_rests_has_no_cpu_time_and_its_other_lines_are_cut() {
        let mut history = HostHistory::new("h".into(), 1.0);
        for (at, tid) in [(1.0, 7), (1.0, 8), (2.0, 8), (3.0, 8), (4.0, 7), (4.0, 8)] {
            history.add(&row(at, tid, 50.0)).unwrap();
        }
        let cpu = points(&mut history, "t (7)", "cpu%");
        assert_eq!(
            cpu,
            [
                (0.0, 50.0),
                (1.0, 50.0),
                (2.0, 0.0),
                (3.0, 50.0),
                (4.0, 50.0)
            ]
        );
        let ipc = points(&mut history, "t (7)", "ipc");
        assert!(
            ipc[2].0 == 2.0 && ipc[2].1.is_nan() && ipc[3] == (3.0, 1.5),
            "{ipc:?}"
        );
    }

    #[test]
    fn threads_keep_their_colours_and_the_busiest_are_drawn() {
        let mut history = HostHistory::new("h".into(), 1.0);
        for tid in 0..20 {
            history.add(&row(1.0, tid, f64::from(tid))).unwrap();
        }
        let (before, _) = history.drawn();
        assert_eq!(before.len(), OWNERS);
        assert!(before.contains(&"t (19)".to_owned()) && !before.contains(&"t (11)".to_owned()));
        for n in 2..=RECENT * 2 {
            history.add(&row(n as f64, 0, 100.0)).unwrap();
            history.add(&row(n as f64, 19, 1.0)).unwrap();
        }
        let (after, _) = history.drawn();
        let at = |slots: &[String], name: &str| slots.iter().position(|s| s == name);
        assert_eq!(at(&after, "t (19)"), at(&before, "t (19)"));
        assert!(at(&after, "t (0)").is_some());
    }

    #[test]
    fn memory_is_limited_and_lies_are_refused() {
        let mut history = HostHistory::new("h".into(), 1.0);
        for n in 0..3 * INTERVALS {
            history.add(&row(n as f64, 7, 1.0)).unwrap();
            history.add(&row(n as f64, 1000 + n as u32, 1.0)).unwrap();
        }
        assert_eq!(history.times.len(), INTERVALS);
        assert!(history.threads.len() <= THREADS);
        let most = points(&mut history, "t (7)", "cpu%").len();
        assert!((INTERVALS..=INTERVALS + 2).contains(&most), "{most}");
        for lie in [
            "",
            "[]",
            "{}",
            "\u{0}",
            &row(1.0, 7, 1.0),
            &row(1e300, 7, 1.0),
        ] {
            assert!(history.add(lie).is_err(), "{lie}");
        }
    }
}
