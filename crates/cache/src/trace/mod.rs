//! Trace files: instructions and memory accesses of a program, by thread.
//!
//! Layout, little-endian:
//!
//! - eight bytes of magic;
//! - the [`Header`] as JSON, with its length before it and its checksum after it;
//! - blocks of events of one thread each ([`crate::wire`], compressed with zstd), each with its [`BlockHead`], length and checksum;
//! - an index of the blocks and the [`Trailer`] as JSON;
//! - the offset of the index.
//!
//! A file is written in one pass, and can be read in one pass. If its end is missing (the recorder was killed, or the file comes
//! through a pipe), it has no index, but its blocks are valid.

mod foreign;
mod import;
mod read;
mod write;

use countersteer_model::profile::Recorded;
use serde::{Deserialize, Serialize};

use crate::wire::BlockHead;

pub use foreign::TraceFormat;
pub use import::import;
pub use read::{TraceBlocks, TraceFile};
pub use write::{Totals, TraceWriter};

/// Schema identifier in every trace.
pub const SCHEMA: &str = "countersteer.trace/1";
/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"CSTRACE1";
/// First word of a block.
const BLOCK_MAGIC: u32 = 0x314b_4c42;
/// First word of the index.
const INDEX_MAGIC: u32 = 0x3158_4449;
/// Last bytes of a complete trace.
const END_MAGIC: [u8; 8] = *b"CSTREND1";
/// Limit on the size of each JSON part, in bytes.
const MOST_JSON: u32 = 64 << 20;
/// Seed of the checksums.
const SEED: u64 = 0;

/// Metadata before the events of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Schema identifier, `countersteer.trace/1`.
    pub schema: String,
    /// Short name of the trace; by default the file name of the program.
    pub name: String,
    /// Command that records the trace again, or the name of the imported file.
    pub detail: String,
    /// Number of sets of the filter; 0 without a filter. Accesses are omitted if they hit the MRU way in every LRU cache of at
    /// least this number of sets.
    pub filter_sets: u32,
    /// True if the trace contains instruction fetches.
    pub fetches: bool,
}

/// Metadata after the events of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trailer {
    pub totals: Totals,
    /// Reason for which the recording ended before the program did; `None` for a complete trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Other measurements of the same run: parallelism, branches, phases. `None` without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<Recorded>>,
}

/// Position of a block in a file, with the block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    pub offset: u64,
    pub head: BlockHead,
}

/// Error of reading, writing or importing a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error(
        "{path}: this is no trace; `steer trace record` makes one, `steer trace import` takes those of other tools"
    )]
    Foreign { path: String },
    #[error("{path}: damaged at byte {offset}: {why}; record or import it again")]
    Damaged {
        path: String,
        offset: u64,
        why: String,
    },
    /// The file to import is of another kind.
    #[error("{path} is in another format than `--format` says: {why}")]
    Unlike { path: String, why: &'static str },
    #[error("{path}:{line}: {why}")]
    Import {
        path: String,
        line: u64,
        why: String,
    },
}

impl TraceError {
    fn io(path: &str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn damaged(path: &str, offset: u64, why: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            why: why.into(),
        }
    }
}

fn checksum(parts: &[&[u8]]) -> u64 {
    use std::hash::Hasher;
    let mut hash = twox_hash::XxHash64::with_seed(SEED);
    parts.iter().for_each(|part| hash.write(part));
    hash.finish()
}
