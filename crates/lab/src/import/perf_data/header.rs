//! Check of a perf.data file's header before the library reads the file.
//!
//! The library allocates as much memory as counts in the optional sections request. Therefore this module clears the bits of these
//! sections in the header. It keeps the section of event descriptions, whose counts it checks: only this section contains the ids by
//! which samples belong to one of several events.

/// Offset in the header of the header's own size.
const HEADER_SIZE_AT: usize = 8;
/// Offset in the header of the size of an attribute.
const ATTR_SIZE_AT: usize = 16;
/// Offset in the header of the section of attributes: its offset and size, 64 bits each.
const ATTRS_AT: usize = 24;
/// Offset in the header of the section of data.
const DATA_AT: usize = 40;
/// Offset in the header of the section of event types.
const EVENT_TYPES_AT: usize = 56;
/// Offset in the header of the bits of optional sections.
const FEATURES_AT: usize = 72;
/// Size of an attribute of the oldest kernels.
const ATTR_SIZE: usize = 64;
/// Size of the header in bytes.
const END: usize = 104;
/// Bit of the optional section with event descriptions.
const EVENT_DESC: usize = 12;
/// Bit of the optional section about compression.
const COMPRESSED: usize = 27;
/// Type of a record that is followed by data beyond the size in its header.
const AUXTRACE: usize = 71;

/// Checks a header before the rest of the file is read.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    let little_endian = bytes.starts_with(b"PERFILE2");
    let head = HeaderView {
        bytes,
        little_endian,
    };
    head.features().map(drop)
}

/// Returns the names of the events in the order of their attributes. Clears the bits of all optional sections in the header except
/// for the event descriptions.
pub(crate) fn names_of_events(bytes: &mut [u8]) -> Result<Vec<String>, String> {
    let little_endian = bytes.starts_with(b"PERFILE2");
    let header = HeaderView {
        bytes,
        little_endian,
    }
    .header()?;
    // Damaged sections may overlap, so the checks are those of the changed bytes.
    header.keep_descriptions(bytes, little_endian);
    let file = HeaderView {
        bytes,
        little_endian,
    };
    let (data_at, data_size) = header.data;
    file.check_records(data_at, data_at + data_size)?;
    let Some((at, size)) = header.descriptions else {
        return Ok(Vec::new());
    };
    file.names(at, at + size)
        .ok_or_else(|| "damaged perf.data: the names of its events are not sound".into())
}

/// Sections that a header names, each with its offset and size.
struct PerfSections {
    data: (usize, usize),
    descriptions: Option<(usize, usize)>,
}

impl PerfSections {
    /// Makes the event descriptions the only optional section. The entries of these sections are behind the data.
    fn keep_descriptions(&self, bytes: &mut [u8], little_endian: bool) {
        bytes[EVENT_TYPES_AT..END].fill(0);
        let Some((at, size)) = self.descriptions else {
            return;
        };
        let mut put = |place: usize, word: u64| {
            let word = if little_endian {
                word.to_le_bytes()
            } else {
                word.to_be_bytes()
            };
            bytes[place..place + 8].copy_from_slice(&word);
        };
        put(FEATURES_AT, 1 << EVENT_DESC);
        let entry = self.data.0 + self.data.1;
        put(entry, at as u64);
        put(entry + 8, size as u64);
    }
}

struct HeaderView<'a> {
    bytes: &'a [u8],
    little_endian: bool,
}

impl HeaderView<'_> {
    /// Checks the words of the header that are the same for every length of the file. Returns the bits of the optional sections.
    fn features(&self) -> Result<u64, String> {
        let word = |at| self.word(at).filter(|_| self.bytes.len() >= END);
        if self.word(HEADER_SIZE_AT) == Some(16) {
            return Err(
                "this perf.data was written to a pipe: write it to a file with `perf record -o FILE`"
                    .into(),
            );
        }
        // Attributes of the oldest kernels have 64 bytes; another section follows them.
        let attrs_size = word(ATTRS_AT + 8).unwrap_or(0);
        let attr_size = word(ATTR_SIZE_AT).filter(|size| (80..=attrs_size).contains(size));
        let features = word(FEATURES_AT).filter(|_| attr_size.is_some());
        let features =
            features.ok_or("damaged perf.data: its header has no attributes of events")?;
        if features >> COMPRESSED & 1 == 1 {
            return Err("this perf.data is compressed: record without `-z`".into());
        }
        Ok(features)
    }

    fn header(&self) -> Result<PerfSections, String> {
        let damaged = || "damaged perf.data: its header points outside the file".to_owned();
        let features = self.features()?;
        self.section(ATTRS_AT).ok_or_else(damaged)?;
        let data = self.section(DATA_AT).ok_or_else(damaged)?;
        let descriptions = if features >> EVENT_DESC & 1 == 1 {
            let before = (features & ((1 << EVENT_DESC) - 1)).count_ones() as usize;
            let entry = data.0 + data.1 + 16 * before;
            Some(self.section(entry).ok_or_else(damaged)?)
        } else {
            None
        };
        Ok(PerfSections { data, descriptions })
    }

    fn word(&self, at: usize) -> Option<u64> {
        let bytes: [u8; 8] = self.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        Some(if self.little_endian {
            u64::from_le_bytes(bytes)
        } else {
            u64::from_be_bytes(bytes)
        })
    }

    fn half(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let half = if self.little_endian {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        };
        usize::try_from(half).ok()
    }

    /// Returns the offset and size of a section; `None` if it is not within the file.
    fn section(&self, at: usize) -> Option<(usize, usize)> {
        let offset = usize::try_from(self.word(at)?).ok()?;
        let size = usize::try_from(self.word(at + 8)?).ok()?;
        (offset.checked_add(size)? <= self.bytes.len()).then_some((offset, size))
    }

    /// Checks that the records follow each other without gaps up to `end`. Each record begins with 8 bytes: type, flags and size.
    fn check_records(&self, mut at: usize, end: usize) -> Result<(), String> {
        while at < end {
            let size = self.half(at + 4).map(|half| {
                if self.little_endian {
                    half >> 16
                } else {
                    half & 0xffff
                }
            });
            let next = at + size.unwrap_or(0);
            if next < at + 8 || next > end {
                return Err(format!(
                    "damaged perf.data: its record at byte {at} has no sound size"
                ));
            }
            if self.half(at) == Some(AUXTRACE) {
                return Err("this perf.data has traces of instructions: record without `-e intel_pt` and the like".into());
            }
            at = next;
        }
        Ok(())
    }

    /// Parses the section of event descriptions: the number of events and the size of an attribute; then per event an attribute,
    /// the number of ids, the length of the name, the name, and the ids. Returns the names; `None` if the section is damaged.
    fn names(&self, mut at: usize, end: usize) -> Option<Vec<String>> {
        let events = self.half(at)?;
        // The library allocates memory for the number of events, so each of them has to take its place in the file.
        let attr_size = self.half(at + 4).filter(|size| *size >= ATTR_SIZE)?;
        at += 8;
        let mut names = Vec::new();
        for _ in 0..events {
            at += attr_size;
            let ids = self.half(at)?;
            let length = self.half(at + 4)?;
            let name = self.bytes.get(at + 8..at + 8 + length)?;
            names.push(super::text(name));
            at += 8 + length + 8 * ids;
            if at > end {
                return None;
            }
        }
        Some(names)
    }
}
