//! Run-queue latency for tables, JSON and records. BPF programs measure each wait. The kernel's sums (schedstat) give only
//! totals and means.
//!
//! Input: a source of wait times. Output: [`Wait`]s per thread, per process, and of all threads together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use countersteer_report::{number, table};
use countersteer_sysfs::waits::{Histogram, Schedstat, Source, ThreadWaits, Waits, Whose};
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
    pub tail: Option<Tail>,
    /// Wakeup latencies, i.e. the waits that began with a wakeup; `None` if waits are not measured individually.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeups: Option<Wakeups>,
}

/// Percentiles of individually measured waits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tail {
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub longest_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wakeups {
    pub times: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
}

impl Wait {
    /// Computes mean and percentiles of waits; returns `None` if there were no waits.
    pub fn of(waits: &Waits) -> Option<Self> {
        let mean_ms = waits.mean_ns()? * 1e-6;
        let ms = |h: &Histogram, share| h.quantile_ns(share).unwrap_or(0) as f64 * 1e-6;
        let measured = waits.measured.as_ref();
        let longest_ms = measured.map_or(0.0, |m| m.longest_ns as f64 * 1e-6);
        // The quantile is the middle of a histogram bucket, which may exceed the longest wait.
        let of = |h: &Histogram, share| f64::min(ms(h, share), longest_ms);
        let tail = measured.map(|m| {
            let all = m.all();
            Tail {
                p50_ms: of(&all, 0.5),
                p90_ms: of(&all, 0.9),
                p99_ms: of(&all, 0.99),
                longest_ms,
            }
        });
        let wakeups = measured.filter(|m| m.woken.count() > 0).map(|m| Wakeups {
            times: m.woken.count(),
            p50_ms: of(&m.woken, 0.5),
            p90_ms: of(&m.woken, 0.9),
            p99_ms: of(&m.woken, 0.99),
        });
        Some(Self {
            times: waits.times,
            total_s: waits.total_ns as f64 * 1e-9,
            mean_ms,
            tail,
            wakeups,
        })
    }
}

/// Source of wait times, and the reason if the source gives only sums.
pub struct Meter {
    pub source: Box<dyn Source>,
    /// Reason why waits are not measured individually; `None` if they are.
    pub unmeasured: Option<String>,
}

impl Meter {
    /// Opens a source of wait times: BPF programs unless `bpf` excludes them or they cannot be loaded, else the kernel's sums.
    ///
    /// # Errors
    /// BPF programs are required, and they cannot be loaded.
    pub fn open(whose: &Whose, bpf: Bpf) -> Result<Self, WaitsError> {
        let why = match bpf {
            Bpf::Never => "BPF programs are excluded".to_owned(),
            Bpf::Auto | Bpf::Always => match measure(whose) {
                Ok(source) => {
                    return Ok(Self {
                        source,
                        unmeasured: None,
                    });
                }
                Err(why) => why,
            },
        };
        if bpf == Bpf::Always {
            return Err(WaitsError::Unmeasured(why));
        }
        Ok(Self {
            source: Box::new(Schedstat::new(whose.clone())),
            unmeasured: Some(why),
        })
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

/// Sums of waits since the start of the measurement, one entry per thread.
#[derive(Debug, Default)]
pub struct Book {
    living: BTreeMap<(u32, u32), Entry>,
    ended: Vec<((u32, u32), Entry)>,
}

#[derive(Debug, Default)]
struct Entry {
    name: String,
    waits: Waits,
}

/// One row of a table of run-queue latencies: a thread, a process, or the total.
pub struct Row {
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub name: String,
    pub wait: Wait,
}

/// Grouping of the rows in a table of run-queue latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Thread,
    Process,
    /// Only one row, the total of all threads.
    Total,
}

impl Book {
    pub fn add(&mut self, news: ThreadWaits) {
        let key = (news.pid, news.tid);
        let entry = self.living.entry(key).or_default();
        entry.waits.add(&news.waits);
        if !news.name.is_empty() {
            entry.name = news.name;
        }
        if news.ended {
            self.ended
                .extend(self.living.remove(&key).map(|e| (key, e)));
        }
    }

    /// Removes the waits of all threads except those in `tids`.
    pub fn keep(&mut self, tids: &[u32]) {
        self.living.retain(|(_, tid), _| tids.contains(tid));
        self.ended.retain(|((_, tid), _)| tids.contains(tid));
    }

    /// Returns rows in descending order of total wait. The last row is the total of all threads.
    pub fn rows(&self, by: By) -> Vec<Row> {
        let entries = || {
            let living = self.living.iter().map(|(key, entry)| (*key, entry));
            living.chain(self.ended.iter().map(|(key, entry)| (*key, entry)))
        };
        let mut all = Waits::default();
        entries().for_each(|(_, e)| all.add(&e.waits));
        let mut rows: Vec<Row> = match by {
            By::Total => Vec::new(),
            By::Thread => entries()
                .filter_map(|((pid, tid), e)| row(Some(pid), Some(tid), &e.name, &e.waits))
                .collect(),
            By::Process => {
                let mut processes: BTreeMap<u32, Entry> = BTreeMap::new();
                for ((pid, tid), e) in entries() {
                    let process = processes.entry(pid).or_default();
                    process.waits.add(&e.waits);
                    if pid == tid || process.name.is_empty() {
                        process.name.clone_from(&e.name);
                    }
                }
                let of = |(pid, e): (&u32, &Entry)| row(Some(*pid), None, &e.name, &e.waits);
                processes.iter().filter_map(of).collect()
            }
        };
        rows.sort_by(|a, b| b.wait.total_s.total_cmp(&a.wait.total_s));
        rows.extend(row(None, None, "(all)", &all));
        rows
    }
}

fn row(pid: Option<u32>, tid: Option<u32>, name: &str, waits: &Waits) -> Option<Row> {
    Some(Row {
        pid,
        tid,
        name: name.to_owned(),
        wait: Wait::of(waits)?,
    })
}

/// Maximum number of rows in a table, not counting the total.
const SHOWN: usize = 20;

/// Formats run-queue latency as a table, in milliseconds.
pub fn text(rows: &[Row], by: By) -> String {
    let Some((all, rows)) = rows.split_last() else {
        return "no thread waited for a CPU\n".into();
    };
    let measured = all.wait.tail.is_some();
    let mut head = vec!["waits, in ms", "id", "times", "total", "mean"];
    if measured {
        head.extend(["50 %", "99 %", "longest", "woken", "50 %", "99 %"]);
    }
    let cells = |row: &Row| {
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
        let none = || vec!["-".to_owned(); 3];
        if measured {
            let tail = |t: Tail| vec![ms(t.p50_ms), ms(t.p99_ms), ms(t.longest_ms)];
            cells.extend(w.tail.map_or_else(none, tail));
            let woken = |u: Wakeups| vec![u.times.to_string(), ms(u.p50_ms), ms(u.p99_ms)];
            cells.extend(w.wakeups.map_or_else(none, woken));
        }
        cells
    };
    let shown = rows.iter().take(SHOWN).chain([all]).map(cells);
    let mut text = table::plain(&head, shown);
    if rows.len() > SHOWN {
        let what = if by == By::Thread {
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
pub fn json_lines(rows: &[Row], measured: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    for row in rows {
        let mut line = serde_json::json!({
            "kind": "waits", "pid": row.pid, "tid": row.tid, "name": row.name, "measured": measured,
        });
        if let (Some(line), serde_json::Value::Object(wait)) =
            (line.as_object_mut(), serde_json::to_value(row.wait)?)
        {
            line.extend(wait);
        }
        text += &format!("{line}\n");
    }
    Ok(text)
}

/// Returns the waits as JSON text, for the option `waits` in a record's manifest.
pub fn for_record(rows: &[Row], by: By, remark: &str) -> anyhow::Result<String> {
    let side = "";
    let rows: Vec<_> = rows
        .iter()
        .take(SHOWN)
        .chain(rows.last().filter(|_| rows.len() > SHOWN))
        .map(|row| {
            let id = row.tid.filter(|_| by == By::Thread).or(row.pid);
            let program = id.map_or_else(|| row.name.clone(), |id| format!("{} {id}", row.name));
            Recorded {
                side,
                program,
                wait: row.wait,
            }
        })
        .collect();
    Ok(serde_json::to_string(
        &serde_json::json!({ "remark": remark, "rows": rows }),
    )?)
}

/// One row of waits in a record's manifest.
#[derive(Serialize)]
pub struct Recorded<'a> {
    /// Policy under which these waits were measured, if blocks of several policies alternate; otherwise empty.
    pub side: &'a str,
    pub program: String,
    #[serde(flatten)]
    pub wait: Wait,
}

/// Thread that reads a source of wait times periodically.
pub struct Watch {
    over: Arc<AtomicBool>,
    wake: mpsc::Sender<()>,
    reader: JoinHandle<(Meter, Book)>,
}

impl Watch {
    /// Starts the thread that reads `meter` periodically.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(mut meter: Meter) -> anyhow::Result<Self> {
        // Threads that exit take their sums in the kernel with them, so those are read more often than measured waits.
        let pause = Duration::from_millis(if meter.unmeasured.is_some() { 25 } else { 100 });
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let (wake, sleep) = mpsc::channel::<()>();
        let read = move || {
            let mut book = Book::default();
            loop {
                let last = seen.load(Ordering::Acquire);
                meter.source.read(&mut |news| book.add(news));
                if last {
                    return (meter, book);
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
    pub fn finish(self) -> Result<(Meter, Book), WaitsError> {
        self.over.store(true, Ordering::Release);
        let _ = self.wake.send(());
        self.reader.join().map_err(|_| WaitsError::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use countersteer_sysfs::waits::Measured;

    use super::*;

    fn news(pid: u32, tid: u32, ns: u64, measured: bool, ended: bool) -> ThreadWaits {
        let mut woken = Histogram::default();
        woken.record(ns, 1);
        let measured = measured.then_some(Measured {
            woken,
            longest_ns: ns,
            ..Measured::default()
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
        let rows = book.rows(By::Thread);
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
        let rows = book.rows(By::Process);
        assert_eq!((rows[1].name.as_str(), rows[1].wait.times), ("t7", 3));
        let all = rows[2].wait;
        assert!((all.mean_ms - 3.5).abs() < 1e-9 && all.tail.unwrap().longest_ms == 9.0);
        let text = text(&rows, By::Process);
        assert!(text.contains("woken") && text.contains("(all)"), "{text}");
    }

    #[test]
    fn sums_have_no_percentiles_in_any_form() {
        let mut book = Book::default();
        book.add(news(7, 7, 2_000_000, false, false));
        let rows = book.rows(By::Thread);
        assert_eq!(rows[0].wait.tail, None);
        let table = text(&rows, By::Thread);
        assert!(table.contains("mean") && !table.contains('%'), "{table}");
        let json = json_lines(&rows, false).unwrap();
        assert!(
            !json.contains("p99_ms") && json.contains("\"mean_ms\":2.0"),
            "{json}"
        );
    }
}
