//! Writer of traces, block by block.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::{
    BLOCK_MAGIC, BlockEntry, END_MAGIC, Header, INDEX_MAGIC, MAGIC, TraceError, Trailer, checksum,
};
use crate::wire::{BlockHead, ENDS};

/// Compression level of zstd; the recorder must be as fast as the program.
const LEVEL: i32 = 1;

/// Totals of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub instructions: u64,
    pub loads: u64,
    pub stores: u64,
    pub threads: u32,
    pub blocks: u64,
    /// Size of the events before compression, in bytes.
    pub event_bytes: u64,
}

impl Totals {
    /// Adds a block to the totals.
    pub fn add(&mut self, head: &BlockHead) {
        self.instructions += u64::from(head.instructions);
        self.loads += u64::from(head.loads);
        self.stores += u64::from(head.stores);
        self.threads = self.threads.max(head.thread);
        self.blocks += 1;
        self.event_bytes += u64::from(head.words) * 4;
    }
}

/// Trace file that is being written.
pub struct TraceWriter<W: Write> {
    path: String,
    out: W,
    offset: u64,
    entries: Vec<BlockEntry>,
    totals: Totals,
    compressor: zstd::bulk::Compressor<'static>,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace; `path` is its name in errors.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn new(path: &str, out: W, header: &Header) -> Result<Self, TraceError> {
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(TraceError::io(path))?;
        let mut this = Self {
            path: path.to_owned(),
            out,
            offset: 0,
            entries: Vec::new(),
            totals: Totals::default(),
            compressor,
        };
        let json = serde_json::to_vec(header).map_err(|e| TraceError::io(path)(e.into()))?;
        this.put(&MAGIC)?;
        this.put(&(json.len() as u32).to_le_bytes())?;
        this.put(&json)?;
        this.put(&checksum(&[&json]).to_le_bytes())?;
        Ok(this)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.out
            .write_all(bytes)
            .map_err(TraceError::io(&self.path))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes a block of events.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn block(&mut self, mut head: BlockHead, words: &[u32]) -> Result<(), TraceError> {
        if head.instructions == 0 && words.is_empty() && head.flags & ENDS == 0 {
            return Ok(());
        }
        head.words = words.len() as u32;
        self.entries.push(BlockEntry {
            offset: self.offset,
            head,
        });
        self.totals.add(&head);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let packed = self
            .compressor
            .compress(&bytes)
            .map_err(TraceError::io(&self.path))?;
        let mut front = Vec::with_capacity(56);
        front.extend(BLOCK_MAGIC.to_le_bytes());
        front.extend((packed.len() as u32).to_le_bytes());
        front.extend(head.pack().iter().flat_map(|word| word.to_le_bytes()));
        let sum = checksum(&[&front, &packed]);
        front.extend(sum.to_le_bytes());
        self.put(&front)?;
        self.put(&packed)
    }

    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends the trace: writes the index and the trailer. Returns the output.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn finish(mut self, mut trailer: Trailer) -> Result<W, TraceError> {
        trailer.totals = self.totals;
        let json =
            serde_json::to_vec(&trailer).map_err(|e| TraceError::io(&self.path)(e.into()))?;
        let start = self.offset;
        let mut index = Vec::new();
        index.extend(INDEX_MAGIC.to_le_bytes());
        index.extend((self.entries.len() as u32).to_le_bytes());
        index.extend((json.len() as u32).to_le_bytes());
        for entry in &self.entries {
            index.extend(entry.offset.to_le_bytes());
            index.extend(entry.head.pack().iter().flat_map(|word| word.to_le_bytes()));
        }
        index.extend(&json);
        let sum = checksum(&[&index]);
        self.put(&index)?;
        self.put(&sum.to_le_bytes())?;
        self.put(&start.to_le_bytes())?;
        self.put(&END_MAGIC)?;
        self.out.flush().map_err(TraceError::io(&self.path))?;
        Ok(self.out)
    }
}
