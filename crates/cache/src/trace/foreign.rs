//! Formats of traces of other tools, and files of other kinds than the trace that is imported.
//!
//! Input: the first bytes of a file. Output: a sentence with what the file looks like and what to do, if it cannot be of the format.

use countersteer_files::packed;

use super::MAGIC;

/// Format of a trace of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    ChampSim,
    Lackey,
    Drmemtrace,
}

impl TraceFormat {
    pub const ALL: [(&'static str, Self); 3] = [
        ("champsim", Self::ChampSim),
        ("lackey", Self::Lackey),
        ("drmemtrace", Self::Drmemtrace),
    ];
}

/// Size of a record of drmemtrace's binary files in bytes: type, size, address.
const ENTRY: usize = 12;
/// Types of drmemtrace's first record and of the records that may follow it: header; marker, thread.
const HEADER: u16 = 25;
const FOLLOWING: [u16; 2] = [28, 22];

const KINDS: [(&[u8], &str); 4] = [
    (
        &MAGIC,
        "it looks like a trace of this tool, which needs no import: `steer trace info` shows it",
    ),
    (
        b"PERFILE2",
        "it looks like perf.data, which has samples instead of all accesses: `steer workload import` takes it",
    ),
    (
        b"2ELIFREP",
        "it looks like perf.data, which has samples instead of all accesses: `steer workload import` takes it",
    ),
    (
        b"\x7fELF",
        "it looks like a program: `steer trace record -- PROGRAM` records it",
    ),
];

/// Returns a sentence about a file that is not of the format; `None` if it may be.
pub(super) fn looks_like(head: &[u8], format: TraceFormat) -> Option<&'static str> {
    let known = KINDS.iter().find(|(magic, _)| head.starts_with(magic));
    let known = known.map(|(_, sentence)| *sentence);
    known
        .or_else(|| packed::looks_like(head))
        .or_else(|| is_binary_drmemtrace(head).then_some(
            "it looks like a binary file of drmemtrace: `drrun -t drmemtrace -indir FOLDER -tool view` prints it for `--format drmemtrace`",
        ))
        .or_else(|| of_text(head, format))
}

/// True for the files that drmemtrace writes, after decompression.
fn is_binary_drmemtrace(head: &[u8]) -> bool {
    let kind = |nth: usize| {
        let bytes = head.get(nth * ENTRY..)?.first_chunk()?;
        Some(u16::from_le_bytes(*bytes))
    };
    kind(0) == Some(HEADER) && kind(1).is_some_and(|next| FOLLOWING.contains(&next))
}

/// Returns a sentence about text instead of binary records, or the reverse.
fn of_text(head: &[u8], format: TraceFormat) -> Option<&'static str> {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match format {
        TraceFormat::ChampSim if head.len() > 64 && head.iter().all(is_text) => Some(
            "it is text, and ChampSim's traces are not; `--format lackey` and `--format drmemtrace` take text",
        ),
        TraceFormat::Lackey | TraceFormat::Drmemtrace if head.contains(&0) => {
            Some("it is binary, and the format is text; `--format champsim` takes binary records")
        }
        _ => None,
    }
}
