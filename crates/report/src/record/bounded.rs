//! Limits on a Parquet file, checked before any of it is decompressed: a few bytes may decompress to gigabytes.
//!
//! Input: an open file and its metadata. Output: nothing, or the reason of a refusal. Pages are checked one by one:
//! readers allocate as much memory as a page's header states, even if the metadata of the file state less. Headers are Thrift
//! structs in the compact protocol (Apache Parquet, `parquet.thrift`, `PageHeader`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use countersteer_files::memory;
use parquet::basic::CompressionCodec;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

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

/// Checks that a file can be read page by page. Returns the memory that all its rows take, in bytes.
///
/// # Errors
/// Fails on a codec that this build lacks, and on pages or rows beyond the limits.
pub(super) fn check(file: &File, metadata: &ParquetMetaData) -> Result<u64, String> {
    let length = file.metadata().map_err(|e| e.to_string())?.len();
    let groups = metadata.row_groups();
    let rows = groups.iter().fold(0_u64, |sum, group| {
        sum.saturating_add(group.num_rows().try_into().unwrap_or(u64::MAX))
    });
    if rows > length.saturating_mul(MOST_ROWS_PER_BYTE).max(ROWS) {
        return Err(format!(
            "it has {rows} rows in {length} bytes, which no run makes"
        ));
    }
    let mut unpacked = 0_u64;
    for column in groups.iter().flat_map(|group| group.columns()) {
        readable(column.compression_codec())?;
        unpacked = unpacked.saturating_add(pages(file, column)?);
    }
    Ok(unpacked.saturating_add(rows.saturating_mul(ROW_BYTES)))
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

/// Returns the number of bytes to which the pages of a column decompress.
fn pages(file: &File, column: &ColumnChunkMetaData) -> Result<u64, String> {
    let data = column.data_page_offset();
    // Some writers store 0 if there is no dictionary.
    let dictionary = column.dictionary_page_offset().filter(|at| *at > 0);
    let position =
        |at: i64| u64::try_from(at).map_err(|_| "a column begins before the file".to_owned());
    let mut at = position(dictionary.map_or(data, |at| at.min(data)))?;
    let end = at.saturating_add(position(column.compressed_size())?);
    let mut unpacked = 0_u64;
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
        unpacked = unpacked.saturating_add(page.unpacked);
        at = at.saturating_add(page.head + page.packed);
    }
    Ok(unpacked)
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

/// Sizes of a page and its header in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageSizes {
    head: u64,
    unpacked: u64,
    packed: u64,
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
            _ => input.skip(kind, 8)?,
        }
    }
    page.head = input.at as u64;
    Some(page)
}

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
            12 => {
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

    use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
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

    fn checked(file: &File) -> Result<u64, String> {
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
                .is_ok_and(|needed| needed > 10 << 20)
        );
        let why = checked(&written(vec![("name", text(65 << 20))], 1)).unwrap_err();
        assert!(why.contains("a page of 65 MB"), "{why}");
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
