//! Import of traces from other tools.
//!
//! Input: ChampSim's 64-byte records, the output of valgrind's lackey with `--trace-mem=yes`, or the output of drmemtrace's
//! `view`. Output: a trace. These formats contain no mispredictions and no parallelism. The trace therefore has no profile, and
//! is useful only for miss curves and signatures.

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};

use super::foreign::{self, TraceFormat};
use super::{TraceError, TraceWriter};
use crate::tracer::ThreadTracer;
use crate::wire::ENDS;

/// Size of a ChampSim record in bytes: ip, two flags, six registers, two addresses written and four read.
const CHAMPSIM: usize = 64;
/// Limit on the length of a line of text in bytes; a longer line is an error.
const MOST_LINE: u64 = 1 << 16;
/// Limit on the size of one access, in bytes.
const MOST_BYTES: u64 = 4096;
/// Limit on the number of threads.
const MOST_THREADS: usize = 1 << 16;

struct Threads<'a, W: Write> {
    writer: &'a mut TraceWriter<W>,
    filter_sets: u32,
    tracers: BTreeMap<u64, ThreadTracer>,
    instructions: u64,
}

impl<W: Write> Threads<'_, W> {
    fn tracer(&mut self, tid: u64) -> &mut ThreadTracer {
        let next = self.tracers.len() as u32 + 1;
        let sets = self.filter_sets;
        // Each workload of drmemtrace becomes a process.
        let pid = (tid >> 32) as u32;
        self.tracers
            .entry(tid)
            .or_insert_with(|| ThreadTracer::new(next, pid, sets))
    }

    /// Adds an instruction. If the thread's block is complete, it is written first.
    fn instruction(&mut self, tid: u64) -> Result<(), TraceError> {
        self.instructions += 1;
        if self.tracer(tid).is_complete() {
            self.hand_on(tid, 0)?;
        }
        self.tracer(tid).instructions(1);
        Ok(())
    }

    fn hand_on(&mut self, tid: u64, flags: u32) -> Result<(), TraceError> {
        let stamp = self.instructions;
        let mut result = Ok(());
        let writer = &mut *self.writer;
        if let Some(tracer) = self.tracers.get_mut(&tid) {
            tracer.hand_on(flags, stamp, |head, words| {
                result = writer.block(head, words)
            });
        }
        result
    }

    fn finish(mut self) -> Result<(), TraceError> {
        let tids: Vec<u64> = self.tracers.keys().copied().collect();
        tids.into_iter().try_for_each(|tid| self.hand_on(tid, ENDS))
    }
}

/// Returns the first and the last cache line of an access.
fn lines(address: u64, bytes: u64) -> (u64, u64) {
    let last = address.saturating_add(bytes.clamp(1, MOST_BYTES) - 1);
    (address >> 6, last >> 6)
}

/// Imports a trace of another tool into a writer; `path` is its name in errors.
///
/// # Errors
/// Fails if reading or writing fails, or if the input has another format.
pub fn import<W: Write>(
    path: &str,
    format: TraceFormat,
    mut input: impl BufRead,
    filter_sets: u32,
    writer: &mut TraceWriter<W>,
) -> Result<(), TraceError> {
    let head = input.fill_buf().map_err(TraceError::io(path))?;
    if let Some(why) = foreign::looks_like(head, format) {
        let path = path.to_owned();
        return Err(TraceError::Unlike { path, why });
    }
    let mut threads = Threads {
        writer,
        filter_sets,
        tracers: BTreeMap::new(),
        instructions: 0,
    };
    match format {
        TraceFormat::ChampSim => champsim(path, input, &mut threads)?,
        TraceFormat::Lackey => text(path, input, &mut threads, lackey)?,
        TraceFormat::Drmemtrace => text(path, input, &mut threads, drmemtrace)?,
    }
    if threads.instructions == 0 {
        let (path, line, why) = (
            path.to_owned(),
            1,
            "no instruction in the whole of it: is it of another format?".into(),
        );
        return Err(TraceError::Import { path, line, why });
    }
    threads.finish()
}

fn champsim<W: Write>(
    path: &str,
    mut input: impl Read,
    threads: &mut Threads<'_, W>,
) -> Result<(), TraceError> {
    let mut record = Vec::with_capacity(CHAMPSIM);
    for number in 1.. {
        record.clear();
        let mut part = (&mut input).take(CHAMPSIM as u64);
        part.read_to_end(&mut record)
            .map_err(TraceError::io(path))?;
        if record.is_empty() {
            break;
        }
        let Ok(record) = <&[u8; CHAMPSIM]>::try_from(record.as_slice()) else {
            let why = format!(
                "the file ends {} bytes into record {number}, which has {CHAMPSIM}",
                record.len()
            );
            return Err(TraceError::Import {
                path: path.to_owned(),
                line: number,
                why,
            });
        };
        if record == &[0; CHAMPSIM] {
            return Err(TraceError::Import {
                path: path.to_owned(),
                line: number,
                why: format!("record {number} is all zeros: this is no trace of ChampSim"),
            });
        }
        let words = record.as_chunks::<8>().0;
        let word = |at: usize| u64::from_le_bytes(words[at]);
        threads.instruction(0)?;
        let tracer = threads.tracer(0);
        tracer.fetch(word(0) >> 6, word(0) >> 6);
        let accesses = (4..8)
            .map(|at| (word(at), false))
            .chain((2..4).map(|at| (word(at), true)));
        for (address, store) in accesses.filter(|(address, _)| *address != 0) {
            tracer.data(address >> 6, address >> 6, store);
        }
    }
    Ok(())
}

/// Parsed line of a text trace: thread and event.
struct TraceLine {
    tid: u64,
    what: LineWhat,
    address: u64,
    bytes: u64,
}

enum LineWhat {
    Instruction,
    Load,
    Store,
    Modify,
}

fn text<W: Write>(
    path: &str,
    mut input: impl BufRead,
    threads: &mut Threads<'_, W>,
    parse: impl Fn(&str) -> Result<Option<TraceLine>, String>,
) -> Result<(), TraceError> {
    let mut raw = Vec::new();
    for number in 1.. {
        raw.clear();
        let mut part = (&mut input).take(MOST_LINE);
        if part
            .read_until(b'\n', &mut raw)
            .map_err(TraceError::io(path))?
            == 0
        {
            break;
        }
        let line = String::from_utf8_lossy(&raw);
        let located = |why: String| TraceError::Import {
            path: path.to_owned(),
            line: number,
            why,
        };
        if raw.len() as u64 == MOST_LINE && raw.last() != Some(&b'\n') {
            return Err(located(format!("a line of more than {MOST_LINE} bytes")));
        }
        let Some(line) = parse(&line).map_err(located)? else {
            continue;
        };
        if threads.tracers.len() > MOST_THREADS {
            return Err(located(format!("more than {MOST_THREADS} threads")));
        }
        let (first, last) = lines(line.address, line.bytes);
        if matches!(line.what, LineWhat::Instruction) {
            threads.instruction(line.tid)?;
        }
        let tracer = threads.tracer(line.tid);
        match line.what {
            LineWhat::Instruction => tracer.fetch(first, last),
            LineWhat::Load => tracer.data(first, last, false),
            LineWhat::Store => tracer.data(first, last, true),
            LineWhat::Modify => {
                tracer.data(first, last, false);
                tracer.data(first, last, true);
            }
        }
    }
    Ok(())
}

/// Returns the beginning of a line, for error messages.
fn shown(line: &str) -> String {
    const MOST: usize = 80;
    let beginning: String = line.chars().take(MOST).collect();
    let more = if beginning.len() < line.len() {
        "..."
    } else {
        ""
    };
    format!("{}{more}", beginning.escape_debug())
}

/// Parses a line such as `I  04000d20,3` or ` L 1ffefffa08,8`. `None` for valgrind's messages, which begin with `==` or `--`.
fn lackey(line: &str) -> Result<Option<TraceLine>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with("==") || line.starts_with("--") {
        return Ok(None);
    }
    let wrong = || format!("`{}` is no line of lackey's memory trace", shown(line));
    let (kind, rest) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
    let what = match kind {
        "I" => LineWhat::Instruction,
        "L" => LineWhat::Load,
        "S" => LineWhat::Store,
        "M" => LineWhat::Modify,
        _ => return Err(wrong()),
    };
    let (address, bytes) = rest.trim().split_once(',').ok_or_else(wrong)?;
    let address = u64::from_str_radix(address, 16).map_err(|_| wrong())?;
    let bytes = bytes.parse().map_err(|_| wrong())?;
    Ok(Some(TraceLine {
        tid: 0,
        what,
        address,
        bytes,
    }))
}

/// Parses the thread column of drmemtrace's view: `1310715` or `T1310715`. Newer releases write `W0.T1310715` with the workload,
/// because two workloads may have equal thread numbers.
fn thread_of(column: &str) -> Option<u64> {
    let Some((workload, thread)) = column.split_once('.') else {
        return column.trim_start_matches('T').parse().ok();
    };
    let workload: u32 = workload.strip_prefix('W')?.parse().ok()?;
    let thread: u32 = thread.strip_prefix('T')?.parse().ok()?;
    Some(u64::from(workload) << 32 | u64::from(thread))
}

/// Parses a line such as `12  1:  W0.T1310715 ifetch  3 byte(s) @ 0x00007fef6f68b1d0 48 89 e7 mov ...`. `None` for lines of
/// other kinds.
fn drmemtrace(line: &str) -> Result<Option<TraceLine>, String> {
    let words: Vec<&str> = line.split_whitespace().take(10).collect();
    let kind = |word: &&str| matches!(*word, "ifetch" | "read" | "write");
    let Some(at) = words.iter().position(kind) else {
        return Ok(None);
    };
    let what = match words[at] {
        "ifetch" => LineWhat::Instruction,
        "read" => LineWhat::Load,
        _ => LineWhat::Store,
    };
    let wrong = || format!("`{}` is no line of drmemtrace's view", shown(line.trim()));
    let number = |word: Option<&&str>| word.and_then(|w| w.parse::<u64>().ok());
    let before = at.checked_sub(1).and_then(|before| words.get(before));
    let tid = before.map_or(Some(0), |word| thread_of(word));
    let tid = tid.ok_or_else(wrong)?;
    let bytes = number(words.get(at + 1)).ok_or_else(wrong)?;
    let mark = words
        .iter()
        .position(|word| *word == "@")
        .ok_or_else(wrong)?;
    let address = words.get(mark + 1).and_then(|word| word.strip_prefix("0x"));
    let address = address
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .ok_or_else(wrong)?;
    Ok(Some(TraceLine {
        tid,
        what,
        address,
        bytes,
    }))
}
