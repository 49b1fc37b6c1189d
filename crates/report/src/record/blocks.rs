//! Queue of rows for the disk: the counting thread adds rows, and a separate thread writes them.
//!
//! Input: rows as they are read. Output: [`RecordParts`] that grow every two seconds. Counting waits for the disk only if writing
//! is far behind. Memory does not grow with the length of a run.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::parts::RecordParts;
use super::{Manifest, Record};
use crate::error::ReportError;

/// Time for which rows are collected before they are written.
const PAUSE: Duration = Duration::from_secs(2);
/// Time after which written rows are on the disk.
const SYNC: Duration = Duration::from_secs(8);
/// Number of rows at which a block is written at once.
const BLOCK_ROWS: usize = 1 << 14;
/// Limit on the number of rows in the queue; at this limit, the caller waits.
const MOST_ROWS: usize = 1 << 16;

/// Queue of rows for the disk, with its writing thread.
pub(super) struct RowQueue {
    shared: Arc<QueueState>,
    writer: Option<JoinHandle<Result<RecordParts, ReportError>>>,
}

struct QueueState {
    state: Mutex<QueueRows>,
    changed: Condvar,
}

struct QueueRows {
    rows: Record,
    done: bool,
    /// Reason of a write failure; the inner `None` means that it was already returned.
    failed: Option<Option<String>>,
}

impl QueueState {
    fn state(&self) -> MutexGuard<'_, QueueRows> {
        // Rows are only moved under the lock, so a panic leaves no partial state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RowQueue {
    /// Starts the writing thread; `empty` is a record without rows, with the manifest and the columns.
    pub(super) fn start(parts: RecordParts, empty: Record) -> Result<Self, ReportError> {
        let state = Mutex::new(QueueRows {
            rows: empty,
            done: false,
            failed: None,
        });
        let shared = Arc::new(QueueState {
            state,
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("record".into())
            .spawn(move || write(&own, parts));
        let writer = writer.map_err(|e| ReportError::Thread { source: e })?;
        Ok(Self {
            shared,
            writer: Some(writer),
        })
    }

    /// Moves rows to the queue and leaves none. Returns the reason of a write failure once.
    pub(super) fn give(&self, rows: &mut Record) -> Option<String> {
        let gone = || self.writer.as_ref().is_none_or(JoinHandle::is_finished);
        let mut state = self.shared.state();
        while state.failed.is_none() && state.rows.most_rows() >= MOST_ROWS && !gone() {
            let waited = self.shared.changed.wait_timeout(state, PAUSE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.failed.is_some() || gone() {
            drop(rows.take_rows());
            return state.failed.as_mut().and_then(Option::take);
        }
        state.rows.append(rows);
        if state.rows.most_rows() >= BLOCK_ROWS {
            self.shared.changed.notify_all();
        }
        None
    }

    /// Writes the remaining rows, ends the writing thread, and completes the record.
    pub(super) fn finish(mut self, manifest: Manifest) -> Result<(), ReportError> {
        match self.end() {
            Some(parts) => parts?.finish(manifest),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Option<Result<RecordParts, ReportError>> {
        self.shared.state().done = true;
        self.shared.changed.notify_all();
        let panicked = |_| ReportError::Encode {
            table: "readings",
            why: "the thread that writes has panicked".into(),
        };
        Some(
            self.writer
                .take()?
                .join()
                .map_err(panicked)
                .and_then(|parts| parts),
        )
    }
}

impl Drop for RowQueue {
    /// Ends the writing thread, so that a failed run leaves an unfinished record with all rows so far.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn write(shared: &QueueState, mut parts: RecordParts) -> Result<RecordParts, ReportError> {
    let mut synced = Instant::now();
    loop {
        let idle = |state: &mut QueueRows| !state.done && state.rows.most_rows() < BLOCK_ROWS;
        let waited = shared
            .changed
            .wait_timeout_while(shared.state(), PAUSE, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let rows = state.rows.take_rows();
        let done = state.done;
        drop(state);
        shared.changed.notify_all();
        let mut written = Ok(());
        if rows.most_rows() > 0 {
            written = parts.add(rows);
        }
        if synced.elapsed() >= SYNC {
            written = written.and_then(|()| parts.sync());
            synced = Instant::now();
        }
        if let Err(error) = written {
            shared.state().failed = Some(Some(error.to_string()));
            shared.changed.notify_all();
            return Err(error);
        }
        if done {
            return Ok(parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StepRow;

    #[test]
    fn more_rows_than_may_wait_are_all_written() {
        let dir = std::env::temp_dir().join(format!("countersteer-blocks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let blocks = RowQueue::start(
            RecordParts::begin(&dir, Record::empty()).unwrap(),
            Record::empty(),
        )
        .unwrap();
        let mut rows = Record::empty();
        for _ in 0..20 {
            rows.steps.extend(vec![StepRow::default(); MOST_ROWS / 4]);
            assert_eq!(blocks.give(&mut rows), None);
            assert!(
                rows.steps.is_empty() && blocks.shared.state().rows.steps.len() <= MOST_ROWS * 2
            );
        }
        blocks.finish(Record::empty().manifest).unwrap();
        assert_eq!(Record::load(&dir).unwrap().steps.len(), 5 * MOST_ROWS);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_failure_is_reported_once_and_what_comes_after_it_is_let_go() {
        let dir = std::env::temp_dir().join(format!("countersteer-blocked-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let blocks = RowQueue::start(
            RecordParts::begin(&dir, Record::empty()).unwrap(),
            Record::empty(),
        )
        .unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let mut failures = Vec::new();
        let mut rows = Record::empty();
        for _ in 0..200 {
            rows.steps.extend(vec![StepRow::default(); BLOCK_ROWS]);
            failures.extend(blocks.give(&mut rows));
            if failures.is_empty() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        assert!(
            failures.len() == 1 && failures[0].contains("cannot write"),
            "{failures:?}"
        );
        assert!(blocks.finish(Record::empty().manifest).is_err());
    }
}
