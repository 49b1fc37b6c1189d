//! Readers of traces: in one pass from any input, or block by block from a file with an index.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use countersteer_files::read;

use super::{
    BLOCK_MAGIC, BlockEntry, END_MAGIC, Header, INDEX_MAGIC, MAGIC, MOST_JSON, SCHEMA, Totals,
    TraceError, Trailer, checksum,
};
use crate::wire::{BlockHead, HEAD_WORDS, MOST_WORDS};

/// Number of bytes before a block's compressed events, without the checksum.
const FRONT: usize = 8 + HEAD_WORDS * 4;
/// Size of an entry of the index, in bytes.
const ENTRY: usize = 8 + HEAD_WORDS * 4;

/// Limit on the size of an index in bytes, which allows four million blocks.
const MOST_INDEX: u64 = 256 << 20;

/// Next part of a trace that is read in one pass.
enum Next {
    Block(BlockHead, Vec<u32>),
    End(Trailer),
}

/// Reader of a trace's blocks in the order of the file.
pub struct TraceBlocks<R: Read> {
    path: String,
    input: R,
    offset: u64,
    header: Header,
    trailer: Option<Trailer>,
    totals: Totals,
    done: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let part = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    part.map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at + 4)) << 32 | u64::from(word(bytes, at))
}

fn head(bytes: &[u8], at: usize) -> Option<BlockHead> {
    BlockHead::unpack(&std::array::from_fn(|n| word(bytes, at + 4 * n)))
}

impl<R: Read> TraceBlocks<R> {
    /// Starts reading a trace; `path` is its name in errors.
    ///
    /// # Errors
    /// Fails if reading fails, or if the input is no trace.
    pub fn new(path: &str, input: R) -> Result<Self, TraceError> {
        let header = Header {
            schema: String::new(),
            name: String::new(),
            detail: String::new(),
            filter_sets: 0,
            fetches: false,
        };
        let mut this = Self {
            path: path.to_owned(),
            input,
            offset: 0,
            header,
            trailer: None,
            totals: Totals::default(),
            done: false,
        };
        let foreign = |_| TraceError::Foreign {
            path: path.to_owned(),
        };
        let front = this.take(12).map_err(foreign)?;
        if front[..8] != MAGIC {
            return Err(foreign(this.damaged("")));
        }
        let length = word(&front, 8);
        if length > MOST_JSON {
            return Err(this.damaged("an impossible length of the header"));
        }
        let json = this.take(length as usize)?;
        let sum = this.take(8)?;
        if checksum(&[&json]) != long(&sum, 0) {
            return Err(this.damaged("the header's checksum is wrong"));
        }
        this.header = serde_json::from_slice(&json).map_err(|e| this.damaged(&e.to_string()))?;
        if this.header.schema != SCHEMA {
            let why = format!("schema `{}` instead of `{SCHEMA}`", this.header.schema);
            return Err(this.damaged(&why));
        }
        Ok(this)
    }

    fn damaged(&self, why: &str) -> TraceError {
        TraceError::damaged(&self.path, self.offset, why)
    }

    /// Reads the next `count` bytes. Memory grows only with the bytes that exist, not with `count`.
    fn take(&mut self, count: usize) -> Result<Vec<u8>, TraceError> {
        let mut bytes = Vec::new();
        let mut part = (&mut self.input).take(count as u64);
        part.read_to_end(&mut bytes)
            .map_err(TraceError::io(&self.path))?;
        if bytes.len() < count {
            return Err(self.damaged("the file ends in the middle"));
        }
        self.offset += count as u64;
        Ok(bytes)
    }

    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the trailer; `None` until it was read.
    #[must_use]
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// Returns the totals of the blocks read so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the next block: head and words. `None` at the end, even if the trace is truncated.
    ///
    /// # Errors
    /// Fails if reading fails, or if the trace is damaged.
    pub fn next_block(&mut self) -> Result<Option<(BlockHead, Vec<u32>)>, TraceError> {
        if self.done {
            return Ok(None);
        }
        match self.next() {
            Ok(Some(Next::Block(head, words))) => {
                self.totals.add(&head);
                Ok(Some((head, words)))
            }
            Ok(Some(Next::End(trailer))) => {
                self.trailer = Some(trailer);
                self.done = true;
                Ok(None)
            }
            Ok(None) => {
                self.done = true;
                Ok(None)
            }
            Err(error) => {
                self.done = true;
                Err(error)
            }
        }
    }

    fn next(&mut self) -> Result<Option<Next>, TraceError> {
        let mut magic = Vec::new();
        let mut part = (&mut self.input).take(4);
        part.read_to_end(&mut magic)
            .map_err(TraceError::io(&self.path))?;
        if magic.is_empty() {
            return Ok(None);
        }
        self.offset += magic.len() as u64;
        match word(&magic, 0) {
            BLOCK_MAGIC if magic.len() == 4 => self.block(magic).map(Some),
            INDEX_MAGIC if magic.len() == 4 => self.end(magic).map(Some),
            _ => Err(self.damaged("neither a block nor an index")),
        }
    }

    fn block(&mut self, mut front: Vec<u8>) -> Result<Next, TraceError> {
        front.extend(self.take(FRONT - 4)?);
        let sum = self.take(8)?;
        let length = word(&front, 4);
        let head = head(&front, 8).filter(|_| length <= 2 * 4 * MOST_WORDS);
        let head = head.ok_or_else(|| self.damaged("an impossible block"))?;
        let packed = self.take(length as usize)?;
        let words = unpack(&front, &packed, &sum, &head).map_err(|why| self.damaged(why))?;
        Ok(Next::Block(head, words))
    }

    fn end(&mut self, mut front: Vec<u8>) -> Result<Next, TraceError> {
        front.extend(self.take(8)?);
        let (entries, json) = (word(&front, 4) as usize, word(&front, 8));
        if json > MOST_JSON {
            return Err(self.damaged("an impossible length of the trailer"));
        }
        let rest = entries.saturating_mul(ENTRY).saturating_add(json as usize);
        if rest as u64 > MOST_INDEX {
            return Err(self.damaged("an impossible length of the index"));
        }
        front.extend(self.take(rest)?);
        let sum = self.take(8)?;
        let (_, trailer) = parse_index(&front, &sum).map_err(|why| self.damaged(&why))?;
        Ok(Next::End(trailer))
    }
}

/// Checks and decompresses a block. Returns its words.
fn unpack(
    front: &[u8],
    packed: &[u8],
    sum: &[u8],
    head: &BlockHead,
) -> Result<Vec<u32>, &'static str> {
    if checksum(&[front, packed]) != long(sum, 0) {
        return Err("a block's checksum is wrong");
    }
    let bytes = zstd::bulk::decompress(packed, head.words as usize * 4);
    let bytes = bytes.map_err(|_| "a block cannot be decompressed")?;
    if bytes.len() != head.words as usize * 4 {
        return Err("a block is not as long as it says");
    }
    Ok(bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| u32::from_le_bytes(*b))
        .collect())
}

/// Checks and parses an index. Returns its entries and the trailer.
fn parse_index(index: &[u8], sum: &[u8]) -> Result<(Vec<BlockEntry>, Trailer), String> {
    if checksum(&[index]) != long(sum, 0) {
        return Err("the index's checksum is wrong".into());
    }
    let json = (word(index, 4) as usize)
        .saturating_mul(ENTRY)
        .saturating_add(12);
    let entries = index.get(12..json).unwrap_or_default().chunks_exact(ENTRY);
    let entry = |bytes: &[u8]| {
        let head = head(bytes, 8)?;
        let offset = long(bytes, 0);
        Some(BlockEntry { offset, head })
    };
    let entries: Option<Vec<BlockEntry>> = entries.map(entry).collect();
    let entries = entries.ok_or("an impossible entry of the index")?;
    let trailer: Trailer =
        serde_json::from_slice(index.get(json..).unwrap_or_default()).map_err(|e| e.to_string())?;
    if let Some(profile) = &trailer.profile {
        profile.check()?;
    }
    Ok((entries, trailer))
}

/// Trace file whose index is in memory.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: File,
    header: Header,
    entries: Vec<BlockEntry>,
    trailer: Trailer,
}

impl TraceFile {
    /// Opens a trace file. If it has no index, it is read once to create one.
    ///
    /// # Errors
    /// Fails if reading fails, or if the trace is damaged.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let shown = path.display().to_string();
        let file = read::open(path).map_err(TraceError::io(&shown))?;
        let mut blocks = TraceBlocks::new(&shown, std::io::BufReader::new(file))?;
        let header = blocks.header.clone();
        let file = read::open(path).map_err(TraceError::io(&shown))?;
        let length = file.metadata().map_err(TraceError::io(&shown))?.len();
        let (entries, trailer) = match index_of(&file, length) {
            Some(found) => found,
            None => scan(&mut blocks)?,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
            entries,
            trailer,
        })
    }

    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    #[must_use]
    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// Returns the entries of all blocks in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[BlockEntry] {
        &self.entries
    }

    /// Returns the words of a block, which encode its events.
    ///
    /// # Errors
    /// Fails if reading fails, or if the trace is damaged.
    pub fn words(&self, entry: &BlockEntry) -> Result<Vec<u32>, TraceError> {
        let shown = self.path.display().to_string();
        let damaged = |why: &str| TraceError::damaged(&shown, entry.offset, why);
        let mut front = [0; FRONT + 8];
        self.file
            .read_exact_at(&mut front, entry.offset)
            .map_err(TraceError::io(&shown))?;
        let (front, sum) = front.split_at(FRONT);
        let length = word(front, 4);
        if word(front, 0) != BLOCK_MAGIC
            || length > 2 * 4 * MOST_WORDS
            || head(front, 8) != Some(entry.head)
        {
            return Err(damaged("the index points to no such block"));
        }
        let mut packed = vec![0; length as usize];
        let from = entry.offset + (FRONT + 8) as u64;
        self.file
            .read_exact_at(&mut packed, from)
            .map_err(TraceError::io(&shown))?;
        unpack(front, &packed, sum, &entry.head).map_err(damaged)
    }
}

/// Returns the index and the trailer at the end of a file; `None` if they are missing or damaged.
fn index_of(file: &File, length: u64) -> Option<(Vec<BlockEntry>, Trailer)> {
    let mut end = [0; 24];
    let end_at = length.checked_sub(24)?;
    file.read_exact_at(&mut end, end_at).ok()?;
    let start = long(&end, 8);
    let size = end_at.checked_sub(start)?;
    if end[16..] != END_MAGIC || size > MOST_INDEX {
        return None;
    }
    let mut index = vec![0; size as usize];
    file.read_exact_at(&mut index, start).ok()?;
    (word(&index, 0) == INDEX_MAGIC).then(|| parse_index(&index, &end[..8]).ok())?
}

/// Reads the whole trace and creates the missing index.
fn scan<R: Read>(blocks: &mut TraceBlocks<R>) -> Result<(Vec<BlockEntry>, Trailer), TraceError> {
    let mut entries = Vec::new();
    let mut cut = false;
    loop {
        let offset = blocks.offset;
        match blocks.next_block() {
            Ok(Some((head, _))) => entries.push(BlockEntry { offset, head }),
            Ok(None) => break,
            // The recorder was killed while it wrote a block.
            Err(TraceError::Damaged { .. }) if !entries.is_empty() => {
                cut = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let trailer = blocks.trailer.take().unwrap_or_else(|| Trailer {
        totals: blocks.totals,
        partial: Some(
            if cut {
                "the file ends in the middle of a block"
            } else {
                "the file has no end"
            }
            .into(),
        ),
        profile: None,
    });
    Ok((entries, trailer))
}
