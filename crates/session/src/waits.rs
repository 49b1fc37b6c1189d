//! Run-queue latency for tables, JSON and records. BPF programs measure each wait. The kernel's sums (schedstat) give only
//! totals and means.
//!
//! Input: a source of wait times. Output: [`Wait`]s per thread, per process, and of all threads together.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use countersteer_report::{number, table};
use countersteer_sysfs::waits::{Histogram, Schedstat, ThreadWaits, WaitSource, Waits, Whose};
use serde::Serialize;

use crate::bpf::{Bpf, measure};

/// Reason why run-queue latency is not available.
#[derive(Debug, thiserror::Error)]
pub enum WaitsError {
    #[error("run-queue latency cannot be measured by BPF programs: {0}")]
    Unmeasured(String),
    #[error("the reader of run-queue latency has panicked")]
    Panicked,
}

/// Run-queue latency of a thread, a process or a program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// Number of waits that ended with the thread running on a CPU.
    pub times: u64,
    /// Sum of all waits, in seconds.
    pub total_s: f64,
    pub mean_ms: f64,
    /// Percentiles of all waits; `None` if only sums are known.
    #[serde(flatten)]
    pub percentiles: Option<Percentiles>,
    /// Longest wait; `None` if only sums are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<f64>,
    /// Wakeup latencies, i.e. the waits that began with a wakeup; `None` if waits are not measured individually.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeups: Option<Wakeups>,
}

/// Percentiles of individually measured waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wakeups {
    pub times: u64,
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

impl Percentiles {
    fn of(waits: &Histogram, longest_ns: u64) -> Self {
        // The quantile is the middle of a histogram bucket, which may exceed the longest wait.
        let ns = |share| waits.quantile_ns(share).unwrap_or(0).min(longest_ns);
        let ms = |share| ns(share) as f64 * 1e-6;
        Self {
            p50_ms: ms(0.5),
            p90_ms: ms(0.9),
            p99_ms: ms(0.99),
        }
    }
}

impl Wait {
    /// Computes mean and percentiles of waits; returns `None` if there were no waits.
    pub fn of(waits: &Waits) -> Option<Self> {
        let measured = waits.measured.as_ref();
        let wakeups = measured.filter(|m| m.woken.count() > 0).map(|m| Wakeups {
            times: m.woken.count(),
            percentiles: Percentiles::of(&m.woken, m.longest_ns),
        });
        Some(Self {
            times: waits.times,
            total_s: waits.total_ns as f64 * 1e-9,
            mean_ms: waits.mean_ns()? * 1e-6,
            percentiles: measured.map(|m| Percentiles::of(&m.all(), m.longest_ns)),
            longest_ms: measured.map(|m| m.longest_ns as f64 * 1e-6),
            wakeups,
        })
    }
}

/// Source of run-queue latency, and the reason if it gives only sums.
pub struct LatencySource {
    pub source: Box<dyn WaitSource>,
    /// Reason why waits are not measured individually; `None` if they are.
    pub unmeasured: Option<String>,
}

impl LatencySource {
    /// Opens BPF programs unless `bpf` excludes them or they cannot be loaded, else the kernel's sums.
    ///
    /// # Errors
    /// BPF programs are required, and they cannot be loaded.
    pub fn open(whose: &Whose, bpf: Bpf) -> Result<Self, WaitsError> {
        let measured = match bpf {
            Bpf::Never => Err("BPF programs are excluded".to_owned()),
            Bpf::Auto | Bpf::Always => measure(whose),
        };
        match measured {
            Ok(source) => Ok(Self {
                source,
                unmeasured: None,
            }),
            Err(why) if bpf == Bpf::Always => Err(WaitsError::Unmeasured(why)),
            Err(why) => Ok(Self::sums(whose, why)),
        }
    }

    /// Opens the kernel's sums, with the reason why waits are not measured individually.
    pub fn sums(whose: &Whose, why: String) -> Self {
        Self {
            source: Box::new(Schedstat::new(whose.clone())),
            unmeasured: Some(why),
        }
    }

    /// Returns a sentence that describes the source of wait times.
    pub fn remark(&self) -> String {
        match &self.unmeasured {
            None if self.source.lost() => {
                "run-queue latency measured by BPF programs, except for threads beyond their table's size".into()
            }
            None => "run-queue latency measured by BPF programs".into(),
            Some(why) => format!(
                "the kernel's sums (schedstat): totals and means, no percentiles, without the last wait before a thread's exit; BPF programs would measure percentiles: {why}"
            ),
        }
    }
}

/// Waits of each thread since the start of the measurement.
#[derive(Debug, Default)]
pub struct Book {
    threads: Vec<ThreadWaits>,
    /// Indices of the live threads, with PIDs and TIDs as keys.
    living: HashMap<(u32, u32), usize>,
}

/// One row of a table of run-queue latencies: a thread, a process, or the total.
#[derive(Serialize)]
pub struct WaitRow {
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub name: String,
    #[serde(flatten)]
    pub wait: Wait,
}

/// Grouping of the rows in a table of run-queue latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitGrouping {
    Thread,
    Process,
    /// Only one row, the total of all threads.
    Total,
}

impl Book {
    pub fn add(&mut self, news: ThreadWaits) {
        let (key, ended) = ((news.pid, news.tid), news.ended);
        match self.living.entry(key) {
            Entry::Vacant(new) => {
                new.insert(self.threads.len());
                self.threads.push(news);
            }
            Entry::Occupied(known) => {
                let thread = &mut self.threads[*known.get()];
                thread.waits.add(&news.waits);
                if !news.name.is_empty() {
                    thread.name = news.name;
                }
            }
        }
        if ended {
            self.living.remove(&key);
        }
    }

    /// Returns rows in descending order of total wait, of all threads or of those in `tids`. The last row is their total.
    pub fn rows(&self, by: WaitGrouping, tids: Option<&[u32]>) -> Vec<WaitRow> {
        let mut all = Waits::default();
        let mut groups: BTreeMap<(u32, Option<u32>, usize), (String, Waits)> = BTreeMap::new();
        let wanted = |t: &&ThreadWaits| tids.is_none_or(|tids| tids.contains(&t.tid));
        for (nth, thread) in self.threads.iter().filter(wanted).enumerate() {
            all.add(&thread.waits);
            let key = match by {
                WaitGrouping::Thread => (thread.pid, Some(thread.tid), nth),
                WaitGrouping::Process => (thread.pid, None, 0),
                WaitGrouping::Total => continue,
            };
            let (name, waits) = groups.entry(key).or_default();
            waits.add(&thread.waits);
            if thread.pid == thread.tid || name.is_empty() {
                name.clone_from(&thread.name);
            }
        }
        let of = |((pid, tid, _), (name, waits)): (_, (String, Waits))| {
            row(Some(pid), tid, &name, &waits)
        };
        let mut rows: Vec<WaitRow> = groups.into_iter().filter_map(of).collect();
        rows.sort_by(|a, b| b.wait.total_s.total_cmp(&a.wait.total_s));
        rows.extend(row(None, None, "(all)", &all));
        rows
    }
}

fn row(pid: Option<u32>, tid: Option<u32>, name: &str, waits: &Waits) -> Option<WaitRow> {
    Some(WaitRow {
        pid,
        tid,
        name: name.to_owned(),
        wait: Wait::of(waits)?,
    })
}

/// Maximum number of rows in a table, not counting the total.
const SHOWN: usize = 20;

/// Formats run-queue latency as a table, in milliseconds.
pub fn text(rows: &[WaitRow], by: WaitGrouping) -> String {
    let Some((all, rows)) = rows.split_last() else {
        return "no thread waited for a CPU\n".into();
    };
    let measured = all.wait.percentiles.is_some();
    let mut head = vec!["waits, in ms", "id", "times", "total", "mean"];
    if measured {
        head.extend(["50 %", "99 %", "longest", "woken", "50 %", "99 %"]);
    }
    let cells = |row: &WaitRow| {
        let w = &row.wait;
        let id = row.tid.or(row.pid);
        let ms = |value: f64| number(value, 3);
        let mut cells = vec![
            row.name.clone(),
            id.map_or_else(String::new, |id| id.to_string()),
            w.times.to_string(),
            ms(w.total_s * 1e3),
            ms(w.mean_ms),
        ];
        if measured {
            let woken = w.wakeups;
            let columns = [
                w.percentiles.map(|p| ms(p.p50_ms)),
                w.percentiles.map(|p| ms(p.p99_ms)),
                w.longest_ms.map(ms),
                woken.map(|woken| woken.times.to_string()),
                woken.map(|woken| ms(woken.percentiles.p50_ms)),
                woken.map(|woken| ms(woken.percentiles.p99_ms)),
            ];
            cells.extend(columns.map(|cell| cell.unwrap_or_else(|| "-".into())));
        }
        cells
    };
    let shown = rows.iter().take(SHOWN).chain([all]).map(cells);
    let mut text = table::plain(&head, shown);
    if rows.len() > SHOWN {
        let what = if by == WaitGrouping::Thread {
            "threads"
        } else {
            "processes"
        };
        text += &format!(
            "{} more {what} are only in the last row; --json has them\n",
            rows.len() - SHOWN
        );
    }
    text
}

/// Formats run-queue latency as JSON lines, one object per row.
pub fn json_lines(rows: &[WaitRow], measured: bool) -> serde_json::Result<String> {
    let line = |row: &WaitRow| {
        let mut line = serde_json::to_value(row)?;
        line["kind"] = "waits".into();
        line["measured"] = measured.into();
        Ok(format!("{line}\n"))
    };
    rows.iter().map(line).collect()
}

/// Returns the waits of `stat` as JSON text, for the option `waits` in a record's manifest.
pub fn for_record(rows: &[WaitRow], by: WaitGrouping, remark: &str) -> serde_json::Result<String> {
    let last = rows.last().filter(|_| rows.len() > SHOWN);
    let rows = rows.iter().take(SHOWN).chain(last).map(|row| {
        let id = row.tid.filter(|_| by == WaitGrouping::Thread).or(row.pid);
        RecordedWaits {
            side: "",
            program: id.map_or_else(|| row.name.clone(), |id| format!("{} {id}", row.name)),
            wait: row.wait,
        }
    });
    recorded(rows, remark)
}

/// Returns rows of waits as JSON text, for the option `waits` in a record's manifest.
pub fn recorded<'a>(
    rows: impl Iterator<Item = RecordedWaits<'a>>,
    remark: &str,
) -> serde_json::Result<String> {
    let rows: Vec<_> = rows.collect();
    serde_json::to_string(&serde_json::json!({ "remark": remark, "rows": rows }))
}

/// One row of waits in a record's manifest.
#[derive(Serialize)]
pub struct RecordedWaits<'a> {
    /// Policy under which these waits were measured, if blocks of several policies alternate; otherwise empty.
    pub side: &'a str,
    pub program: String,
    #[serde(flatten)]
    pub wait: Wait,
}

/// Thread that reads a source of wait times periodically.
pub struct WaitWatch {
    over: Arc<AtomicBool>,
    wake: mpsc::Sender<()>,
    reader: JoinHandle<(LatencySource, Book)>,
}

impl WaitWatch {
    /// Starts the thread that reads `latency` periodically.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(mut latency: LatencySource) -> anyhow::Result<Self> {
        // Threads that exit take their sums in the kernel with them, so those are read more often than measured waits.
        let pause = Duration::from_millis(if latency.unmeasured.is_some() {
            25
        } else {
            100
        });
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let (wake, sleep) = mpsc::channel::<()>();
        let read = move || {
            let mut book = Book::default();
            loop {
                let last = seen.load(Ordering::Acquire);
                latency.source.read(&mut |news| book.add(news));
                if last {
                    return (latency, book);
                }
                let _ = sleep.recv_timeout(pause);
            }
        };
        let reader = std::thread::Builder::new()
            .name("waits".into())
            .spawn(read)?;
        Ok(Self { over, wake, reader })
    }

    /// Stops the thread after a final read. Returns the source and the waits read from it.
    ///
    /// # Errors
    /// The reading thread has panicked.
    pub fn finish(self) -> Result<(LatencySource, Book), WaitsError> {
        self.over.store(true, Ordering::Release);
        let _ = self.wake.send(());
        self.reader.join().map_err(|_| WaitsError::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use countersteer_sysfs::waits::MeasuredWaits;

    use super::*;

    fn news(pid: u32, tid: u32, ns: u64, measured: bool, ended: bool) -> ThreadWaits {
        let mut woken = Histogram::default();
        woken.record(ns, 1);
        let measured = measured.then_some(MeasuredWaits {
            woken,
            longest_ns: ns,
            ..MeasuredWaits::default()
        });
        let waits = Waits {
            times: 1,
            total_ns: ns,
            measured,
        };
        let name = format!("t{tid}");
        ThreadWaits {
            pid,
            tid,
            name,
            ended,
            waits,
        }
    }

    #[test]
    fn processes_have_the_waits_of_all_their_threads_dead_or_alive() {
        let mut book = Book::default();
        book.add(news(7, 8, 3_000_000, true, true));
        // A new thread with the TID of one that exited.
        book.add(news(7, 8, 1_000_000, true, false));
        book.add(news(7, 7, 1_000_000, true, false));
        book.add(news(9, 9, 9_000_000, true, false));
        let rows = book.rows(WaitGrouping::Thread, None);
        let seen: Vec<_> = rows.iter().map(|r| (r.tid, r.wait.times)).collect();
        assert_eq!(
            seen,
            [
                (Some(9), 1),
                (Some(8), 1),
                (Some(7), 1),
                (Some(8), 1),
                (None, 4)
            ]
        );
        let rows = book.rows(WaitGrouping::Process, None);
        assert_eq!((rows[1].name.as_str(), rows[1].wait.times), ("t7", 3));
        let all = rows[2].wait;
        assert!((all.mean_ms - 3.5).abs() < 1e-9 && all.longest_ms == Some(9.0));
        let text = text(&rows, WaitGrouping::Process);
        assert!(text.contains("woken") && text.contains("(all)"), "{text}");
        let one = book.rows(WaitGrouping::Total, Some(&[9]));
        assert_eq!((one.len(), one[0].wait.times), (1, 1));
    }

    #[test]
    fn sums_have_no_percentiles_in_any_form() {
        let mut book = Book::default();
        book.add(news(7, 7, 2_000_000, false, false));
        let rows = book.rows(WaitGrouping::Thread, None);
        assert_eq!(rows[0].wait.percentiles, None);
        let table = text(&rows, WaitGrouping::Thread);
        assert!(table.contains("mean") && !table.contains('%'), "{table}");
        let json = json_lines(&rows, false).unwrap();
        assert!(
            !json.contains("p99_ms") && json.contains("\"mean_ms\":2.0"),
            "{json}"
        );
    }
}
