//! Traces as programs of workloads: where a program's `profile` names a trace, the profile in it is the program's, and traced
//! simulation reads its accesses.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use countersteer_cache::trace::{Entry, TraceFile};
use countersteer_cache::wire::Head;
use countersteer_sim::progress::traced::{Block, TraceSource};

use crate::error::{Kind, told};
use crate::library::Text;

/// How traces' files end.
const EXTENSION: &str = "trace";
/// Words of unpacked blocks that a trace keeps in memory: 256 MiB.
const MOST_WORDS: usize = 64 << 20;

/// Whether a program's `profile` names a trace.
#[must_use]
pub fn is_trace(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == EXTENSION)
}

/// Blocks that were read, by thread and number.
#[derive(Default)]
struct Kept {
    blocks: HashMap<(u32, u32), Arc<[u32]>>,
    words: usize,
}

/// A trace file that is simulated.
pub struct Source {
    file: TraceFile,
    /// Blocks by thread, in order.
    threads: Vec<Vec<Entry>>,
    kept: Mutex<Kept>,
}

/// Opens a trace; its profile as text, and its blocks.
///
/// # Errors
/// A file that is no trace, or one without a profile or instructions.
pub fn open(path: &Path) -> anyhow::Result<(Text, Arc<Source>)> {
    let shown = path.display().to_string();
    let file = TraceFile::open(path)?;
    let profile = file.trailer().profile.as_ref().ok_or_else(|| {
        let why = format!(
            "{shown}: the trace carries no profile (it was imported, or its recorder was killed), and cannot be simulated; \
             record one with `steer trace record`"
        );
        told(Kind::BadInput, why)
    })?;
    let text = Text {
        text: serde_json::to_string(profile)?,
        path: shown.clone(),
        shipped: false,
    };
    let mut threads: Vec<Vec<Entry>> = Vec::new();
    for entry in file.entries() {
        let row = entry.head.thread.saturating_sub(1) as usize;
        if row >= threads.len() {
            threads.resize(row + 1, Vec::new());
        }
        threads[row].push(*entry);
    }
    let executed = |entries: &Vec<Entry>| entries.iter().any(|e| e.head.instructions > 0);
    threads.retain(executed);
    if threads.is_empty() {
        return Err(told(
            Kind::BadInput,
            format!("{shown}: nothing was executed"),
        ));
    }
    let kept = Mutex::default();
    Ok((
        text,
        Arc::new(Source {
            file,
            threads,
            kept,
        }),
    ))
}

impl TraceSource for Source {
    fn threads(&self) -> u32 {
        self.threads.len() as u32
    }

    fn blocks(&self, thread: u32) -> u32 {
        self.threads[thread as usize].len() as u32
    }

    fn head(&self, thread: u32, block: u32) -> Head {
        self.threads[thread as usize][block as usize].head
    }

    fn block(&self, thread: u32, block: u32) -> Block {
        let entry = &self.threads[thread as usize][block as usize];
        let head = entry.head;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = kept.blocks.get(&(thread, block)) {
            let words = Arc::clone(words);
            return Block { head, words };
        }
        // A file that was changed meanwhile has nothing to say.
        let words: Arc<[u32]> = self.file.words(entry).unwrap_or_default().into();
        if kept.words + words.len() > MOST_WORDS {
            *kept = Kept::default();
        }
        kept.words += words.len();
        kept.blocks.insert((thread, block), Arc::clone(&words));
        Block { head, words }
    }
}
