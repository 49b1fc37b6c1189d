//! Traces as programs of workloads. A program's `profile` may be a trace: the program then has the profile in the trace,
//! and traced simulation reads the accesses.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use countersteer_cache::source::{Block, EventStream, ProgramCopy, TraceSource};
use countersteer_cache::trace::{BlockEntry, TraceFile};

use crate::error::{FaultKind, failure};
use crate::library::LibraryText;

/// Extension of the names of trace files.
const EXTENSION: &str = "trace";
/// Limit on the number of decompressed words that a trace keeps in memory: 256 MiB.
const MOST_WORDS: usize = 64 << 20;
/// Distance in instructions from which on a thread searches its position in the trace again.
const FAR: f64 = 300_000.0;

/// True if a program's `profile` is the path of a trace.
#[must_use]
pub(crate) fn is_trace(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == EXTENSION)
}

/// Cache of decompressed blocks by thread and block number.
#[derive(Default)]
struct BlockCache {
    blocks: HashMap<(usize, usize), Arc<[u32]>>,
    words: usize,
}

/// Trace file that is being simulated.
struct OpenTrace {
    file: TraceFile,
    /// Blocks of each thread, in order.
    threads: Vec<Vec<BlockEntry>>,
    /// Cache of decompressed blocks.
    kept: Mutex<BlockCache>,
    /// First error that prevented a block from being read.
    failure: Mutex<Option<String>>,
}

/// Error about a trace without instructions.
pub fn nothing_executed(path: &str) -> anyhow::Error {
    failure(FaultKind::BadInput, format!("{path}: nothing was executed"))
}

/// Opens a trace. Returns the text of its profile and the source of its blocks.
///
/// # Errors
/// Fails if the file is not a trace, or has no profile or no instructions.
pub fn open(path: &Path) -> anyhow::Result<(LibraryText, Arc<dyn TraceSource>)> {
    let shown = path.display().to_string();
    let file = TraceFile::open(path)?;
    let profile = file.trailer().profile.as_ref().ok_or_else(|| {
        let why = format!(
            "{shown}: the trace carries no profile (it was imported, or its recorder was killed), and cannot be simulated; \
             record one with `steer trace record`"
        );
        failure(FaultKind::BadInput, why)
    })?;
    let text = LibraryText {
        text: serde_json::to_string(profile)?,
        path: shown.clone(),
        shipped: false,
    };
    let mut threads: Vec<Vec<BlockEntry>> = Vec::new();
    for entry in file.entries() {
        let row = entry.head.thread.saturating_sub(1) as usize;
        if row >= threads.len() {
            threads.resize(row + 1, Vec::new());
        }
        threads[row].push(*entry);
    }
    let executed = |entries: &Vec<BlockEntry>| entries.iter().any(|e| e.head.instructions > 0);
    threads.retain(executed);
    if threads.is_empty() {
        return Err(nothing_executed(&shown));
    }
    let source = OpenTrace {
        file,
        threads,
        kept: Mutex::default(),
        failure: Mutex::default(),
    };
    Ok((text, Arc::new(Recording(Arc::new(source)))))
}

/// A trace as a program.
struct Recording(Arc<OpenTrace>);

impl TraceSource for Recording {
    fn copy(&self) -> Arc<dyn ProgramCopy> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn failure(&self) -> Option<String> {
        let failure = self.0.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ProgramCopy for Recording {
    fn stream(&self, thread: u32) -> Box<dyn EventStream> {
        let thread = thread as usize % self.0.threads.len();
        let blocks = self.0.threads[thread].iter();
        let length: f64 = blocks.map(|e| f64::from(e.head.instructions)).sum();
        Box::new(TracePosition {
            source: Arc::clone(&self.0),
            thread,
            length,
            next: 0,
            start: 0.0,
            after: 0.0,
        })
    }
}

/// A thread's position in a trace.
struct TracePosition {
    source: Arc<OpenTrace>,
    thread: usize,
    /// Number of the thread's instructions.
    length: f64,
    next: usize,
    /// Number of instructions before the last block.
    start: f64,
    /// Number of instructions up to the end of the last block.
    after: f64,
}

impl EventStream for TracePosition {
    fn next_block(&mut self) -> Block {
        if self.next >= self.source.threads[self.thread].len() {
            (self.next, self.after) = (0, 0.0);
        }
        let block = self.source.block(self.thread, self.next);
        self.next += 1;
        self.start = self.after;
        self.after += f64::from(block.head.instructions);
        block
    }

    fn pass(&mut self, instructions: f64) -> f64 {
        let blocks = &self.source.threads[self.thread];
        // Skips whole repetitions of the trace at once.
        let mut gone = (instructions / self.length).floor() * self.length;
        loop {
            if self.next >= blocks.len() {
                (self.next, self.after) = (0, 0.0);
            }
            let length = f64::from(blocks[self.next].head.instructions);
            if gone + length * 0.5 >= instructions {
                return gone;
            }
            gone += length;
            self.next += 1;
            self.start = self.after;
            self.after += length;
        }
    }

    fn begin(&mut self, share: f64, behind: u32) -> bool {
        let wanted = share * self.length;
        let at = (self.start + f64::from(behind)) % self.length;
        let off = (wanted - at).abs();
        if off.min(self.length - off) <= FAR {
            return false;
        }
        (self.next, self.after) = (0, 0.0);
        for entry in &self.source.threads[self.thread] {
            let length = f64::from(entry.head.instructions);
            if self.after + length > wanted {
                break;
            }
            self.after += length;
            self.next += 1;
        }
        self.start = self.after;
        true
    }
}

impl OpenTrace {
    fn block(&self, thread: usize, block: usize) -> Block {
        let entry = &self.threads[thread][block];
        let head = entry.head;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = kept.blocks.get(&(thread, block)) {
            let words = Arc::clone(words);
            return Block { head, words };
        }
        // A damaged block counts as empty here. The experiment reports the failure at its end.
        let words = self.file.words(entry).unwrap_or_else(|error| {
            let failure = self.failure.lock();
            let mut failure = failure.unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| error.to_string());
            Vec::new()
        });
        let words: Arc<[u32]> = words.into();
        if kept.words + words.len() > MOST_WORDS {
            *kept = BlockCache::default();
        }
        kept.words += words.len();
        kept.blocks.insert((thread, block), Arc::clone(&words));
        Block { head, words }
    }
}
