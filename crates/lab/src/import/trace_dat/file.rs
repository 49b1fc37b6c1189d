//! Container of trace-cmd's files, versions 6 and 7 (manual pages trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5)).
//!
//! Version 6 stores its parts in a fixed order. Version 7 stores sections, which options point to and which may be compressed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::super::unpacked::UnpackedBytes;
use super::cursor::{ByteOrder, FileCursor};

pub const MAGIC: &[u8] = b"\x17\x08Dtracing";

/// Parts of a file that describe threads.
#[derive(Debug)]
pub struct Contents<'a> {
    pub order: ByteOrder,
    /// Text of `events/header_page`.
    pub page_format: String,
    /// Texts of the formats of all events.
    pub event_formats: Vec<String>,
    /// Threads and their names, as in `saved_cmdlines`.
    pub names: String,
    /// Bytes of a page of the ring buffer.
    pub page: usize,
    /// CPUs with their pages, of the first buffer.
    pub cpus: Vec<(u32, Cow<'a, [u8]>)>,
    /// Clock of the first buffer, as `local`, or as `[local] global mono`.
    pub clock: String,
    pub tsc: Option<Tsc>,
    /// Text of `trace`, which a file has in place of pages.
    pub text: Option<Cow<'a, [u8]>>,
    /// Number of events that were lost as the kernel's own statistics have it.
    pub lost: u64,
    /// Names of parts that are not used.
    pub not_kept: BTreeSet<String>,
}

/// Conversion of times: ns = time * multiplier >> shift. The file's offset is left out, because only differences of times are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tsc {
    pub multiplier: u32,
    pub shift: u32,
}

/// Checks the first bytes of a file.
///
/// # Errors
/// The version is not 6 or 7, or the parts of the version do not follow.
pub fn check(head: &[u8]) -> Result<(), String> {
    let TraceDatHead { is_7, mut rest, .. } = TraceDatHead::read(head)?;
    if !is_7 {
        return only_page_format(&mut rest);
    }
    if rest.text()?.is_empty() {
        return Err("it does not name its compression".into());
    }
    Ok(())
}

/// Parts that the heads of both versions have.
struct TraceDatHead<'a> {
    is_7: bool,
    order: ByteOrder,
    /// Bytes of a page of the ring buffer.
    page: usize,
    rest: FileCursor<'a>,
}

impl<'a> TraceDatHead<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let at = MAGIC.len() as u64;
        let mut head = FileCursor::new(bytes, at, ByteOrder::Little)?;
        let version = head.text()?;
        if !["6", "7"].contains(&version.as_str()) {
            return Err(format!(
                "its version is {}, not 6 or 7",
                version.escape_debug()
            ));
        }
        let order = match head.byte()? {
            0 => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let mut rest = FileCursor::new(bytes, head.at(), order)?;
        let _long_bytes = rest.byte()?;
        Ok(Self {
            is_7: version == "7",
            order,
            page: rest.word()? as usize,
            rest,
        })
    }
}

fn only_page_format(head: &mut FileCursor<'_>) -> Result<(), String> {
    if head.take(12)? != b"header_page\0" {
        return Err("the format of its pages is missing".into());
    }
    Ok(())
}

impl<'a> Contents<'a> {
    /// Reads a file of version 6 or 7.
    ///
    /// # Errors
    /// The file has another version, ends early, or is compressed by something else than zstd.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let TraceDatHead {
            is_7,
            order,
            page,
            rest: head,
        } = TraceDatHead::read(bytes)?;
        let mut contents = Self {
            order,
            page_format: String::new(),
            event_formats: Vec::new(),
            names: String::new(),
            page,
            cpus: Vec::new(),
            clock: String::new(),
            tsc: None,
            text: None,
            lost: 0,
            not_kept: BTreeSet::new(),
        };
        if is_7 {
            contents.read_version_7(bytes, head)?;
        } else {
            contents.read_version_6(bytes, head)?;
        }
        Ok(contents)
    }

    fn read_version_6(&mut self, bytes: &'a [u8], mut head: FileCursor<'a>) -> Result<(), String> {
        self.see_page_format(&mut head)?;
        self.see_formats_of_ftrace(&mut head)?;
        self.see_event_formats(&mut head)?;
        for name in ["kallsyms", "printk"] {
            let length = head.word()?;
            head.take(u64::from(length))?;
            self.not_kept.insert(name.into());
        }
        self.names = head.long_text()?;
        let cpus = head.word()?;
        loop {
            match head.take(10)? {
                b"options  \0" => while self.see_option_of_6(&mut head)? {},
                b"flyrecord\0" => break,
                b"latency  \0" => {
                    self.text = Some(Cow::Borrowed(head.rest()));
                    return Ok(());
                }
                _ => return Err("there are no events behind its head".into()),
            }
        }
        let mut places = Places::default();
        for cpu in 0..cpus {
            let (at, length) = (head.long()?, head.long()?);
            let mut data = FileCursor::new(bytes, at, self.order)?;
            let pages = data.take(length)?;
            places.add(&format!("the pages of CPU {cpu}"), at, data.at())?;
            self.cpus.push((cpu, Cow::Borrowed(pages)));
        }
        Ok(())
    }

    /// Reads an option of version 6; false at the end of the options.
    fn see_option_of_6(&mut self, head: &mut FileCursor<'a>) -> Result<bool, String> {
        let id = head.short()?;
        if id == 0 {
            return Ok(false);
        }
        let length = head.word()?;
        let data = head.take(u64::from(length))?;
        match id {
            // The place of another buffer, and its name.
            3 => {
                let name = FileCursor::new(data, 8, self.order)?.text()?;
                self.not_kept.insert(format!("instance `{name}`"));
            }
            _ => self.see_option(id, data)?,
        }
        Ok(true)
    }

    fn read_version_7(&mut self, bytes: &'a [u8], mut head: FileCursor<'a>) -> Result<(), String> {
        let codec = head.text()?;
        let _version_of_codec = head.text()?;
        let mut file = Sections {
            bytes,
            order: self.order,
            codec,
            unpacked: UnpackedBytes::of(bytes.len()),
            places: Places::default(),
        };
        let mut buffers = Vec::new();
        let mut at = head.long()?;
        // Each section of options has the place of the next one, so damaged ones can be a ring.
        let mut seen = BTreeSet::new();
        while at != 0 && seen.insert(at) {
            let section = file.section(at)?;
            let mut options = FileCursor::new(&section, 0, self.order)?;
            at = loop {
                let id = options.short()?;
                let length = options.word()?;
                let data = options.take(u64::from(length))?;
                let mut data_of = FileCursor::new(data, 0, self.order)?;
                match id {
                    0 => break data_of.long()?,
                    3 => buffers.push(data.to_vec()),
                    16..=21 => self.see_section(id, &file.section(data_of.long()?)?)?,
                    22 if self.text.is_none() => self.text = Some(file.section(data_of.long()?)?),
                    _ => self.see_option(id, data)?,
                }
            };
        }
        for (nth, buffer) in buffers.iter().enumerate() {
            self.see_buffer(&mut file, buffer, nth == 0)?;
        }
        Ok(())
    }

    fn see_section(&mut self, id: u16, bytes: &[u8]) -> Result<(), String> {
        let mut section = FileCursor::new(bytes, 0, self.order)?;
        match id {
            16 => self.see_page_format(&mut section),
            17 => self.see_formats_of_ftrace(&mut section),
            18 => self.see_event_formats(&mut section),
            21 => {
                self.names = section.long_text()?;
                Ok(())
            }
            _ => {
                let name = if id == 19 { "kallsyms" } else { "printk" };
                self.not_kept.insert(name.into());
                Ok(())
            }
        }
    }

    fn see_page_format(&mut self, head: &mut FileCursor<'_>) -> Result<(), String> {
        only_page_format(head)?;
        self.page_format = head.long_text()?;
        head.take(13)?;
        // The format of an event's head has been the same since pages exist.
        head.long_text()?;
        Ok(())
    }

    fn see_formats_of_ftrace(&mut self, head: &mut FileCursor<'_>) -> Result<(), String> {
        for _ in 0..head.word()? {
            self.event_formats.push(head.long_text()?);
        }
        Ok(())
    }

    fn see_event_formats(&mut self, head: &mut FileCursor<'_>) -> Result<(), String> {
        for _ in 0..head.word()? {
            let _system = head.text()?;
            self.see_formats_of_ftrace(head)?;
        }
        Ok(())
    }

    /// Reads an option that both versions have.
    fn see_option(&mut self, id: u16, data: &[u8]) -> Result<(), String> {
        let text = || {
            String::from_utf8_lossy(data)
                .trim_end_matches('\0')
                .to_owned()
        };
        match id {
            2 => self.lost += lost_of(&text()),
            4 if self.clock.is_empty() => self.clock = text(),
            14 => {
                let mut data = FileCursor::new(data, 0, self.order)?;
                self.tsc = Some(Tsc {
                    multiplier: data.word()?,
                    shift: data.word()?,
                });
            }
            _ => {
                self.not_kept.insert(name_of_option(id));
            }
        }
        Ok(())
    }

    /// Reads the description of a buffer, and its pages if it is the first one.
    fn see_buffer(
        &mut self,
        file: &mut Sections<'a>,
        bytes: &[u8],
        is_first: bool,
    ) -> Result<(), String> {
        let mut buffer = FileCursor::new(bytes, 0, self.order)?;
        let section = buffer.long()?;
        let name = buffer.text()?;
        if !is_first {
            self.not_kept.insert(format!("instance `{name}`"));
            return Ok(());
        }
        self.clock = buffer.text()?;
        self.page = buffer.word()? as usize;
        for _ in 0..buffer.word()? {
            let cpu = buffer.word()?;
            let (at, length) = (buffer.long()?, buffer.long()?);
            self.cpus.push((cpu, file.pages(cpu, section, at, length)?));
        }
        Ok(())
    }
}

/// Returns the name of an option that is not used.
fn name_of_option(id: u16) -> String {
    let name = match id {
        1 => "date",
        5 => "uname",
        6 => "event hooks",
        7 => "offset of times",
        8 => "number of CPUs",
        9 => "version of trace-cmd",
        10 => "memory maps",
        11 => "id of the trace",
        12 => "time shift of a guest",
        13 => "guest",
        _ => return format!("option {id}"),
    };
    name.into()
}

/// Sums up the lost events in a text of `per_cpu/cpuN/stats`.
fn lost_of(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(": "));
    let lost = lines.filter(|(name, _)| ["overrun", "dropped events"].contains(name));
    lost.filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

/// Places in a file that were read. Each of them is read once, so that the contents of a file do not exceed its length.
#[derive(Debug, Default)]
struct Places {
    /// Ends of the places by their offsets.
    ends: BTreeMap<u64, u64>,
}

impl Places {
    /// Adds a place from its first byte to the one behind its last; `what` names its contents.
    fn add(&mut self, what: &str, begin: u64, end: u64) -> Result<(), String> {
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
struct Sections<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    /// Name of the compression; `none` without.
    codec: String,
    unpacked: UnpackedBytes,
    places: Places,
}

const COMPRESSED: u16 = 1;

impl<'a> Sections<'a> {
    /// Returns the contents of the section at an offset.
    fn section(&mut self, at: u64) -> Result<Cow<'a, [u8]>, String> {
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
    fn pages(
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
