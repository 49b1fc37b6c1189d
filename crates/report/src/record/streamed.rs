//! Tables of a record in progress: Arrow IPC streams that grow with each block of rows.
//!
//! Input: batches of a table, or the file of a stream. Output: the stream, or its batches. A stream may end inside a message: its
//! run was killed, its disk was full, or it is just being written. It is then read up to the last whole message (Apache Arrow,
//! columnar format, IPC streaming format).

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Take, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::root_as_message;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use countersteer_files::write::temporary_file;

use super::bounded;

/// Extension of a stream's file.
pub(super) const EXTENSION: &str = "arrows";
/// Bytes before the length of a message's header.
const MARKER: [u8; 4] = [0xff; 4];
/// Limit on the bytes of a header. Headers of records take some 200 bytes per column.
const MOST_HEADER: u64 = 1 << 24;
/// Approximate size of a row in memory, in bytes.
const ROW_BYTES: u64 = 64;

/// Stream that is being written.
pub(super) struct TableStream {
    schema: SchemaRef,
    file: File,
    /// Encoder, which writes to memory, so that a block reaches the file in one piece.
    encoder: StreamWriter<Vec<u8>>,
}

impl TableStream {
    /// Creates a stream with its first batch. The file appears at `path` with this batch in it.
    ///
    /// # Errors
    /// Fails if the file cannot be written; no temporary file is left behind.
    pub(super) fn create(path: &Path, batch: &RecordBatch) -> io::Result<Self> {
        let schema = batch.schema();
        let encoder = StreamWriter::try_new(Vec::new(), &schema).map_err(io_error)?;
        let new = temporary_file(path)?;
        let file = new.as_file().try_clone()?;
        let mut stream = Self {
            schema,
            file,
            encoder,
        };
        stream.append(batch)?;
        new.persist(path).map_err(|e| e.error)?;
        Ok(stream)
    }

    pub(super) const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends a batch with the columns of the stream.
    pub(super) fn append(&mut self, batch: &RecordBatch) -> io::Result<()> {
        self.encoder.write(batch).map_err(io_error)?;
        let bytes = self.encoder.get_mut();
        let written = self.file.write_all(bytes);
        bytes.clear();
        written
    }

    /// Waits until all rows are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

/// Reader of a stream's batches.
pub(super) type TableReader = StreamReader<BufReader<Take<File>>>;

/// Opens the whole messages of a stream. Returns their reader, and the memory that all rows take, in bytes.
///
/// # Errors
/// Fails with a sentence if the file is no stream.
pub(super) fn open(mut file: File) -> Result<(TableReader, u64), String> {
    let whole = whole_messages(&file).map_err(|e| e.to_string())?;
    bounded::fits(whole.largest)?;
    file.seek(SeekFrom::Start(0)).map_err(|e| e.to_string())?;
    let reader = StreamReader::try_new_buffered(file.take(whole.bytes), None);
    let reader = reader.map_err(|e| e.to_string())?;
    let all_bytes = whole
        .rows
        .saturating_mul(ROW_BYTES)
        .saturating_add(whole.bytes);
    Ok((reader, all_bytes))
}

/// Messages of a stream up to the last whole one.
#[derive(Debug, Default, PartialEq, Eq)]
struct WholeMessages {
    bytes: u64,
    rows: u64,
    /// Bytes of the largest body.
    largest: u64,
}

/// Finds the whole messages of a file. What follows them is ignored.
fn whole_messages(file: &File) -> io::Result<WholeMessages> {
    let length = file.metadata()?.len();
    let mut whole = WholeMessages::default();
    let mut header = Vec::new();
    while let Some(start) = prefix(file, whole.bytes, length)? {
        let size = u64::from(u32::from_le_bytes([start[4], start[5], start[6], start[7]]));
        let body = whole.bytes + 8 + size;
        if start[..4] != MARKER || size > MOST_HEADER {
            return Err(io::Error::other("a message has no valid length"));
        }
        if size == 0 || body > length {
            break;
        }
        header.resize(size as usize, 0);
        file.read_exact_at(&mut header, whole.bytes + 8)?;
        let message = root_as_message(&header).map_err(|e| io::Error::other(e.to_string()))?;
        let bytes = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        let end = body.saturating_add(bytes);
        if end > length {
            break;
        }
        whole.bytes = end;
        whole.largest = whole.largest.max(bytes);
        let rows = message.header_as_record_batch().map(|batch| batch.length());
        let rows = rows.and_then(|rows| u64::try_from(rows).ok());
        whole.rows = whole.rows.saturating_add(rows.unwrap_or(0));
    }
    Ok(whole)
}

/// Reads the marker and the length at the start of a message; `None` at the end of the file.
fn prefix(file: &File, at: u64, length: u64) -> io::Result<Option<[u8; 8]>> {
    let mut start = [0; 8];
    if at.saturating_add(8) > length {
        return Ok(None);
    }
    file.read_exact_at(&mut start, at)?;
    Ok(Some(start))
}
