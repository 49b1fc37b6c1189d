//! Limits on a Parquet file, checked before any of it is decompressed: a few bytes may decompress to gigabytes.
//!
//! Input: an open file and its metadata. Output: the memory that reading takes, or the reason of a refusal. Pages are checked one
//! by one: readers allocate as much memory as a page's header states, even if the metadata of the file state less. A list has
//! more values than rows, and a text of a dictionary stands for as many texts as there are values. Headers are Thrift structs in
//! the compact protocol (Apache Parquet, `parquet.thrift`, `PageHeader`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use countersteer_files::memory;
use parquet::basic::{CompressionCodec, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

/// Limit on the decompressed bytes of a page. Writers make pages of 1 MiB, or of 1024 values if these are longer.
const MOST_PAGE: u64 = 64 << 20;
/// Limit on the number of rows per byte of a file. The most regular table that a run can produce, from ten thousand sleeping
/// threads, has ten.
const MOST_ROWS_PER_BYTE: u64 = 16;
/// Number of rows that is accepted in any file, regardless of its length.
const ROWS: u64 = 1 << 20;
/// Approximate size of a row in memory, in bytes.
const ROW_BYTES: u64 = 64;
/// Limit on the size of a page's header, in bytes.
const HEAD: usize = 1 << 16;
/// Limit on the bytes of all texts of a column that are copies of a dictionary's longest text, if that is a long one.
const MOST_COPIES: u64 = 256 << 20;
/// Length of a long text, in bytes. Names of threads and programs are shorter.
const LONG_TEXT: u64 = 1 << 12;
/// Number of rows of a batch.
const BATCH_ROWS: usize = 1 << 14;
/// Limit on the bytes of a column in a batch.
const BATCH_BYTES: u64 = 32 << 20;

/// Memory that reading a file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadBounds {
    /// Memory that all rows take, in bytes.
    pub(super) all_bytes: u64,
    /// Number of rows that are read at a time.
    pub(super) batch_rows: usize,
}

/// Checks that a file can be read page by page.
///
/// # Errors
/// Fails on a codec that this build lacks, and on pages, rows, values or texts beyond the limits.
pub(super) fn check(file: &File, metadata: &ParquetMetaData) -> Result<ReadBounds, String> {
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let most_values = length.saturating_mul(MOST_ROWS_PER_BYTE).max(ROWS);
    let groups = metadata.row_groups();
    let rows = groups.iter().fold(0_u64, |sum, group| {
        sum.saturating_add(group.num_rows().try_into().unwrap_or(u64::MAX))
    });
    if rows > most_values {
        return Err(format!(
            "it has {rows} rows in {length} bytes, which no run makes"
        ));
    }
    let (mut unpacked, mut longest) = (0_u64, 0);
    for column in groups.iter().flat_map(|group| group.columns()) {
        readable(column.compression_codec())?;
        let pages = pages(file, column)?;
        if pages.values > most_values {
            return Err(format!(
                "column `{}` has {} values in {length} bytes, which no run makes",
                column.column_path(),
                pages.values
            ));
        }
        unpacked = unpacked.saturating_add(pages.unpacked);
        longest = longest.max(copied_text(file, column, pages.values)?);
    }
    let batch_rows = (BATCH_BYTES / longest.max(1)).clamp(1, BATCH_ROWS as u64);
    Ok(ReadBounds {
        all_bytes: unpacked.saturating_add(rows.saturating_mul(ROW_BYTES)),
        batch_rows: batch_rows as usize,
    })
}

/// Returns the length of the longest text in a column's dictionary, in bytes; 0 without one. Fails if copies of it would take
/// too much memory.
fn copied_text(file: &File, column: &ColumnChunkMetaData, values: u64) -> Result<u64, String> {
    if column.column_type() != Type::BYTE_ARRAY {
        return Ok(0);
    }
    let readable = |e: parquet::errors::ParquetError| e.to_string();
    let file = Arc::new(file.try_clone().map_err(|e| e.to_string())?);
    let mut pages = SerializedPageReader::new(file, column, 0, None).map_err(readable)?;
    // A dictionary comes first.
    let Some(Page::DictionaryPage { buf, .. }) = pages.get_next_page().map_err(readable)? else {
        return Ok(0);
    };
    let longest = longest_text(&buf);
    if longest > LONG_TEXT && longest.saturating_mul(values) > MOST_COPIES {
        return Err(format!(
            "column `{}` repeats a text of {longest} bytes in {values} values, which no run makes",
            column.column_path()
        ));
    }
    Ok(longest)
}

/// Returns the length of the longest text of a dictionary, in which a length of four bytes precedes each text.
fn longest_text(mut dictionary: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = dictionary.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        longest = longest.max(length as u64);
        dictionary = rest.get(length..).unwrap_or_default();
    }
    longest
}

/// Checks that this many bytes of memory are free.
pub(super) fn fits(needed: u64) -> Result<(), String> {
    match memory::available() {
        Some(free) if needed > free => Err(format!(
            "reading it takes some {} MB of memory, and {} MB are free",
            needed >> 20,
            free >> 20
        )),
        _ => Ok(()),
    }
}

fn readable(codec: CompressionCodec) -> Result<(), String> {
    match codec {
        CompressionCodec::UNCOMPRESSED | CompressionCodec::SNAPPY => Ok(()),
        other => Err(format!(
            "it is compressed by {}, which this build cannot read; write it again with Snappy or uncompressed",
            format!("{other:?}").to_lowercase()
        )),
    }
}

/// Returns the sums over the pages of a column.
fn pages(file: &File, column: &ColumnChunkMetaData) -> Result<PageSizes, String> {
    let data = column.data_page_offset();
    // Some writers store 0 if there is no dictionary.
    let dictionary = column.dictionary_page_offset().filter(|at| *at > 0);
    let position =
        |at: i64| u64::try_from(at).map_err(|_| "a column begins before the file".to_owned());
    let mut at = position(dictionary.map_or(data, |at| at.min(data)))?;
    let end = at.saturating_add(position(column.compressed_size())?);
    let mut sum = PageSizes::default();
    let mut buffer = vec![0; HEAD];
    while at < end {
        let length = read_at(file, &mut buffer, at).map_err(|e| e.to_string())?;
        let page = page(&buffer[..length]).ok_or("the head of a page cannot be understood")?;
        if page.unpacked > MOST_PAGE {
            return Err(format!(
                "a page of {} MB is in it, and no run makes one above {} MB",
                page.unpacked >> 20,
                MOST_PAGE >> 20
            ));
        }
        sum.unpacked = sum.unpacked.saturating_add(page.unpacked);
        sum.values = sum.values.saturating_add(page.values);
        at = at.saturating_add(page.head + page.packed);
    }
    Ok(sum)
}

/// Reads up to the buffer's length at an offset. Returns the number of bytes read, which is smaller only at the end of the file.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], at + length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// Sizes of a page and its header in bytes, and the number of values if it is a data page.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageSizes {
    head: u64,
    unpacked: u64,
    packed: u64,
    values: u64,
}

/// Parses the header of a page; `None` if it is invalid.
fn page(bytes: &[u8]) -> Option<PageSizes> {
    let mut input = ThriftReader { bytes, at: 0 };
    let mut page = PageSizes::default();
    let mut field = 0;
    while let Some(kind) = input.field(&mut field)? {
        match field {
            2 => page.unpacked = input.integer()?.try_into().ok()?,
            3 => page.packed = input.integer()?.try_into().ok()?,
            // Headers of a data page and of one of version 2.
            5 | 8 if kind == STRUCT => page.values = input.first_integer()?,
            _ => input.skip(kind, 8)?,
        }
    }
    page.head = input.at as u64;
    Some(page)
}

/// Type of a struct in Thrift's compact protocol.
const STRUCT: u8 = 12;

/// Reader of values in Thrift's compact protocol.
struct ThriftReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl ThriftReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Returns the type of the next field, and adds its number to `last`. The inner option is `None` at the end of the struct;
    /// the outer one is `None` on invalid input.
    fn field(&mut self, last: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *last = match head >> 4 {
            0 => self.integer()?,
            delta => *last + i64::from(delta),
        };
        Some(Some(head & 0xf))
    }

    /// Reads a struct. Returns the integer in its first field, which must not be negative; 0 without that field.
    fn first_integer(&mut self) -> Option<u64> {
        let (mut field, mut first) = (0, 0);
        while let Some(kind) = self.field(&mut field)? {
            match field {
                1 => first = self.integer()?.try_into().ok()?,
                _ => self.skip(kind, 8)?,
            }
        }
        Some(first)
    }

    /// Skips a value, including structs and lists that are nested up to `depth` levels. `None` on invalid input.
    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => self.pass(8)?,
            8 => {
                let length = self.varint()?;
                self.pass(length.try_into().ok()?)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    short => u64::from(short),
                };
                for _ in 0..count {
                    // Boolean values take one byte in lists and none as fields.
                    match head & 0xf {
                        1 | 2 => self.pass(1)?,
                        kind => self.skip(kind, depth)?,
                    }
                }
            }
            STRUCT => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn pass(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes)?;
        (self.at <= self.bytes.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int32Type, UInt32Type};
    use arrow_array::{
        ArrayRef, DictionaryArray, Int32Array, ListArray, RecordBatch, StringArray, UInt32Array,
    };
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::basic::Compression;
    use parquet::file::properties::WriterProperties;

    use super::*;

    /// A file of these columns, written as records are.
    fn written(columns: Vec<(&str, ArrayRef)>, times: usize) -> File {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = tempfile::tempfile().unwrap();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let kept = file.try_clone().unwrap();
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        for _ in 0..times {
            writer.write(&batch).unwrap();
        }
        writer.close().unwrap();
        kept
    }

    fn checked(file: &File) -> Result<ReadBounds, String> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file.try_clone().unwrap()).unwrap();
        check(file, reader.metadata())
    }

    #[test]
    fn rows_without_measure_are_refused() {
        let equal = || Arc::new(UInt32Array::from(vec![7; 1 << 20])) as ArrayRef;
        assert!(checked(&written(vec![("a", equal())], 1)).is_ok());
        let why = checked(&written(vec![("a", equal())], 2)).unwrap_err();
        assert!(why.contains("2097152 rows in"), "{why}");
    }

    #[test]
    fn a_text_of_65_megabytes_is_refused_and_one_of_ten_is_read() {
        let text = |bytes| Arc::new(StringArray::from(vec!["x".repeat(bytes)])) as ArrayRef;
        assert!(
            checked(&written(vec![("name", text(10 << 20))], 1))
                .is_ok_and(|needed| needed.all_bytes > 10 << 20)
        );
        let why = checked(&written(vec![("name", text(65 << 20))], 1)).unwrap_err();
        assert!(why.contains("a page of 65 MB"), "{why}");
    }

    #[test]
    fn a_list_without_measure_is_refused() {
        let list = |values| {
            let row = Some(vec![Some(7); values]);
            Arc::new(ListArray::from_iter_primitive::<UInt32Type, _, _>([row])) as ArrayRef
        };
        assert!(checked(&written(vec![("seen", list(1 << 20))], 1)).is_ok());
        let why = checked(&written(vec![("seen", list(3 << 20))], 1)).unwrap_err();
        assert!(why.contains("has 3145728 values in"), "{why}");
    }

    #[test]
    fn a_long_text_may_not_be_repeated_without_measure() {
        let repeated = |bytes, rows| {
            let text = Arc::new(StringArray::from(vec!["x".repeat(bytes)]));
            let keys = Int32Array::from(vec![0; rows]);
            Arc::new(DictionaryArray::<Int32Type>::new(keys, text)) as ArrayRef
        };
        let bounds = |bytes, rows| checked(&written(vec![("name", repeated(bytes, rows))], 1));
        assert_eq!(bounds(16, 1 << 20).unwrap().batch_rows, BATCH_ROWS);
        assert_eq!(bounds(1 << 19, 200).unwrap().batch_rows, 64);
        let why = bounds(1 << 19, 2000).unwrap_err();
        assert!(why.contains("repeats a text of 524288 bytes"), "{why}");
    }

    #[test]
    fn heads_of_pages_are_read_with_what_stands_in_them() {
        // Type 0, 300 bytes that are 20 packed, a nested struct with an integer, a text, truth values and a list.
        let head = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x2c, 0x15, 0x02, 0x18, 0x02, b'a', b'b',
            0x11, 0x12, 0x19, 0x25, 0x02, 0x04, 0x00, 0x00, 0xff,
        ];
        let expected = PageSizes {
            head: head.len() as u64 - 1,
            unpacked: 300,
            packed: 20,
            values: 1,
        };
        assert_eq!(page(&head), Some(expected));
        for length in 0..head.len() - 1 {
            assert_eq!(page(&head[..length]), None);
        }
    }

    #[test]
    fn a_codec_that_is_not_built_in_is_named() {
        let why = readable(CompressionCodec::ZSTD).unwrap_err();
        assert!(
            why.starts_with("it is compressed by zstd, which this build cannot read"),
            "{why}"
        );
    }
}
