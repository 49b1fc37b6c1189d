//! Trace files: what a program executed and touched, thread by thread.
//!
//! Layout, little-endian: eight bytes of magic; the [`Header`] as JSON with its length before it and its checksum after it; blocks
//! of events of one thread each ([`crate::wire`], compressed with zstd), each with its [`Head`], length and checksum; an index of
//! the blocks and the [`Trailer`] as JSON; the place of the index. A file is written and can be read in one pass: without its end
//! (the recorder was killed, the file comes through a pipe) it has no index, and its blocks are as good.

mod import;
mod read;
mod write;

use countersteer_model::profile::Recorded;
use serde::{Deserialize, Serialize};

use crate::wire::Head;

pub use import::{Format, import};
pub use read::{Blocks, TraceFile};
pub use write::{Totals, TraceWriter};

/// The schema name that every trace carries.
pub const SCHEMA: &str = "countersteer.trace/1";
/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"CSTRACE1";
const BLOCK_MAGIC: u32 = 0x314b_4c42;
const INDEX_MAGIC: u32 = 0x3158_4449;
const END_MAGIC: [u8; 8] = *b"CSTREND1";
/// Bytes of JSON in a trace at most.
const MOST_JSON: u32 = 64 << 20;
/// Seed of checksums.
const SEED: u64 = 0;

/// What a trace says of itself before its events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// `countersteer.trace/1`.
    pub schema: String,
    /// Short name: the program's file name unless given.
    pub name: String,
    /// The command that makes it again, or the file it was made from.
    pub detail: String,
    /// Accesses that least-recently-used caches of so many sets or more hit at their sets' first place are left out; 0: none.
    pub filter_sets: u32,
    /// Whether instruction fetches are there.
    pub fetches: bool,
}

/// What a trace says of itself after its events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trailer {
    pub totals: Totals,
    /// Why the recording ended before the program did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// What else was measured of the same run: parallelism, branches, phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<Recorded>>,
}

/// A block's place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub offset: u64,
    pub head: Head,
}

/// Why a trace cannot be read, written or imported.
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
