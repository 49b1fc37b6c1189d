//! Sections of files of version 7, and places in files of both versions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::super::unpacked::UnpackedBytes;
use super::cursor::{ByteOrder, FileCursor};

/// Places in a file that were read. Each of them is read once, so that the contents of a file do not exceed its length.
#[derive(Debug, Default)]
pub struct Places {
    /// Ends of the places by their offsets.
    ends: BTreeMap<u64, u64>,
}

impl Places {
    /// Adds a place from its first byte to the one behind its last; `what` names its contents.
    pub fn add(&mut self, what: &str, begin: u64, end: u64) -> Result<(), String> {
        if begin >= end {
            return Ok(());
        }
        let before = self.ends.range(..end).next_back();
        if before.is_some_and(|(_, other)| *other > begin) {
            return Err(format!(
                "{what} at byte {begin} are within another part of the file"
            ));
        }
        self.ends.insert(begin, end);
        Ok(())
    }
}

/// Sections of a file of version 7.
pub(crate) struct Sections<'a> {
    pub bytes: &'a [u8],
    pub order: ByteOrder,
    /// Name of the compression; `none` without.
    pub codec: String,
    pub unpacked: UnpackedBytes,
    pub places: Places,
}

const COMPRESSED: u16 = 1;

impl<'a> Sections<'a> {
    /// Returns the contents of the section at an offset.
    pub fn section(&mut self, at: u64) -> Result<Cow<'a, [u8]>, String> {
        let mut head = FileCursor::new(self.bytes, at, self.order)?;
        let (id, flags, _description) = (head.short()?, head.short()?, head.word()?);
        let length = head.long()?;
        let contents = if flags & COMPRESSED == 0 {
            Cow::Borrowed(head.take(length)?)
        } else {
            let mut unpacked = Vec::new();
            self.unpack(&mut head, &mut unpacked)?;
            Cow::Owned(unpacked)
        };
        let what = format!("the contents of section {id}");
        self.places.add(&what, at, head.at())?;
        Ok(contents)
    }

    /// Returns the pages of one CPU in the section at the offset `section`.
    pub fn pages(
        &mut self,
        cpu: u32,
        section: u64,
        at: u64,
        length: u64,
    ) -> Result<Cow<'a, [u8]>, String> {
        let mut head = FileCursor::new(self.bytes, section, self.order)?;
        let (_id, flags) = (head.short()?, head.short()?);
        let mut data = FileCursor::new(self.bytes, at, self.order)?;
        let pages = if flags & COMPRESSED == 0 || length == 0 {
            Cow::Borrowed(data.take(length)?)
        } else {
            let mut unpacked = Vec::new();
            for _ in 0..data.word()? {
                self.unpack(&mut data, &mut unpacked)?;
            }
            Cow::Owned(unpacked)
        };
        let what = format!("the pages of CPU {cpu}");
        self.places.add(&what, at, data.at())?;
        Ok(pages)
    }

    /// Unpacks bytes behind their packed and their own length.
    fn unpack(&mut self, data: &mut FileCursor<'a>, unpacked: &mut Vec<u8>) -> Result<(), String> {
        let (packed, length) = (data.word()?, data.word()?);
        let packed = data.take(u64::from(packed))?;
        if self.codec != "zstd" {
            return Err(format!(
                "it is compressed by {}: `trace-cmd convert --compression none -i FILE -o NEW` unpacks it",
                self.codec.escape_debug()
            ));
        }
        self.unpacked.add(u64::from(length))?;
        let before = unpacked.len();
        unpacked.resize(before + length as usize, 0);
        let read = zstd::bulk::decompress_to_buffer(packed, &mut unpacked[before..])
            .map_err(|e| format!("its zstd data is damaged: {e}"))?;
        if read != length as usize {
            return Err("its zstd data ends early".into());
        }
        Ok(())
    }
}
